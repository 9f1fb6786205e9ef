package control

import (
	"context"
	"crypto/rsa"
	"errors"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/crypto/ssh"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/auth"
	"github.com/pandastack/pandastack/internal/guest"
	"github.com/pandastack/pandastack/internal/store"
)

// Bounds of SSH keys.
const (
	maxSSHKeys    = 100 // of an owner
	maxSSHKeyName = 128
	maxSSHKeyLine = 16 << 10
	minRSABits    = 2048
	maxRSABits    = 16384
)

// sshKeyTypes are the kinds of keys that may open a shell. Certificates are none:
// nothing here knows their authorities.
var sshKeyTypes = map[string]bool{
	ssh.KeyAlgoED25519: true, ssh.KeyAlgoSKED25519: true,
	ssh.KeyAlgoECDSA256: true, ssh.KeyAlgoECDSA384: true, ssh.KeyAlgoECDSA521: true, ssh.KeyAlgoSKECDSA256: true,
	ssh.KeyAlgoRSA: true,
}

// AddSSHKey lets the holder of a key open shells in the owner's sandboxes, for as
// long as the API key that adds it is valid: what a leaked API key has added ends
// with it. Adding a key again changes its name, and not which API key it ends with.
func (s *Service) AddSSHKey(ctx context.Context, who auth.Identity, req api.AddSSHKey) (api.SSHKey, error) {
	key, comment, err := parseSSHKey(req.PublicKey)
	if err != nil {
		return api.SSHKey{}, err
	}
	name := strings.TrimSpace(req.Name)
	if name == "" {
		name = readable(comment)
	}
	if len(name) > maxSSHKeyName || !utf8.ValidString(name) || strings.ContainsFunc(name, unicode.IsControl) {
		return api.SSHKey{}, invalid("name", "name must be at most %d bytes of text in one line", maxSSHKeyName)
	}
	row := store.SSHKey{
		Org: who.Org, Fingerprint: ssh.FingerprintSHA256(key), Name: name,
		PublicKey: strings.TrimSpace(string(ssh.MarshalAuthorizedKey(key))), AddedBy: who.KeyPrefix, CreatedAt: now(),
	}
	ok, err := s.store.PutSSHKey(ctx, &row, maxSSHKeys)
	if err != nil {
		return api.SSHKey{}, err
	}
	if !ok {
		return api.SSHKey{}, api.Errorf(api.CodeQuotaSSHKeys, "there are %d SSH keys, and more are not kept", maxSSHKeys)
	}
	return externalSSHKey(row), nil
}

// SSHKeys lists the owner's keys, oldest first.
func (s *Service) SSHKeys(ctx context.Context, who auth.Identity) (api.SSHKeyList, error) {
	rows, err := s.store.SSHKeys(ctx, who.Org)
	out := api.SSHKeyList{Keys: make([]api.SSHKey, 0, len(rows))}
	for _, k := range rows {
		out.Keys = append(out.Keys, externalSSHKey(k))
	}
	return out, err
}

// DeleteSSHKey removes a key, named by its fingerprint with or without SHA256:.
// Connections that were made with it end within moments.
func (s *Service) DeleteSSHKey(ctx context.Context, who auth.Identity, fingerprint string) error {
	full := "SHA256:" + strings.TrimRight(strings.TrimPrefix(fingerprint, "SHA256:"), "=")
	// A fingerprint is base64, whose / and + a path may have in the other form.
	full = strings.NewReplacer("_", "/", "-", "+").Replace(full)
	err := s.store.DeleteSSHKey(ctx, who.Org, full)
	if errors.Is(err, store.ErrNotFound) {
		return api.Errorf(api.CodeSSHKeyNotFound, "there is no SSH key %.80q", fingerprint)
	}
	return err
}

// SSHIdentity says as whom the holder of a key uses a sandbox: as the owner of
// both. Whatever is missing, the answer is the same and takes the same steps, so
// that it tells a stranger nothing.
func (s *Service) SSHIdentity(ctx context.Context, id, fingerprint string) (auth.Identity, error) {
	keys, err := s.store.SSHKeysByFingerprint(ctx, fingerprint)
	if err != nil {
		return auth.Identity{}, err
	}
	row, err := s.store.GetSandbox(ctx, id)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return auth.Identity{}, err
	}
	for _, k := range keys {
		if err == nil && k.Org == row.Org {
			return auth.Identity{Org: k.Org, KeyPrefix: k.AddedBy, Name: k.Name}, nil
		}
	}
	return auth.Identity{}, api.Errorf(api.CodeForbidden, "no sandbox of that name is open to this SSH key")
}

// StartProcess starts a program in a sandbox, which is woken for it. The end of
// ctx does not end it, nor the stream of its events: the caller closes that.
func (s *Service) StartProcess(ctx context.Context, who auth.Identity, id string, cmd guest.Command) (*guest.Process, *guest.Client, error) {
	client, err := s.Guest(ctx, who, id)
	if err != nil {
		return nil, nil, err
	}
	proc, _, err := startDetached(context.WithoutCancel(ctx), client, cmd)
	return proc, client, err
}

func externalSSHKey(k store.SSHKey) api.SSHKey {
	return api.SSHKey{Fingerprint: k.Fingerprint, Name: k.Name, PublicKey: k.PublicKey, CreatedAt: k.CreatedAt}
}

// parseSSHKey reads one line as in authorized_keys.
func parseSSHKey(line string) (ssh.PublicKey, string, error) {
	bad := func(format string, args ...any) (ssh.PublicKey, string, error) {
		return nil, "", invalid("public_key", format, args...)
	}
	line = strings.TrimSpace(line)
	switch {
	case line == "":
		return bad("public_key is missing")
	case len(line) > maxSSHKeyLine:
		return bad("public_key has more than %d bytes", maxSSHKeyLine)
	case strings.Contains(line, "PRIVATE KEY"):
		return bad("public_key is a private key: keep that to yourself and send the file that ends in .pub")
	case strings.ContainsAny(line, "\r\n"):
		return bad("public_key must be one line: each key is added by itself")
	}
	key, comment, options, _, err := ssh.ParseAuthorizedKey([]byte(line))
	if err != nil {
		return bad("public_key is not a key as in authorized_keys, such as `ssh-ed25519 AAAA... me@laptop`")
	}
	if len(options) > 0 {
		return bad("public_key has options in front of the key, which would not be followed")
	}
	if !sshKeyTypes[key.Type()] {
		return bad("keys of type %.40s are not accepted; ed25519, ecdsa and rsa are", readable(key.Type()))
	}
	if ck, ok := key.(ssh.CryptoPublicKey); ok {
		if k, ok := ck.CryptoPublicKey().(*rsa.PublicKey); ok && (k.N.BitLen() < minRSABits || k.N.BitLen() > maxRSABits) {
			return bad("an RSA key must have %d to %d bits and this one has %d", minRSABits, maxRSABits, k.N.BitLen())
		}
	}
	return key, comment, nil
}

// readable cuts text that nobody checked to a name.
func readable(s string) string {
	s = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || r == utf8.RuneError {
			return -1
		}
		return r
	}, s)
	if len(s) > maxSSHKeyName {
		s = strings.ToValidUTF8(s[:maxSSHKeyName], "")
	}
	return strings.TrimSpace(s)
}
