package gateway

import (
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/pandastack/pandastack/api"
)

// A token opens the preview of one port of one sandbox until it expires: the
// time, and a code over it with the sandbox's id and the port, which only who
// has the server's secret can make. An id is never given again, so that a token
// ends with its sandbox too.

const tokenPurpose = "pandastack preview token v1" // the key signs nothing else

const tokenSize = 8 + sha256.Size

// Signer makes and checks tokens.
type Signer struct{ key []byte }

// NewSigner takes the secret that all servers of one database share.
func NewSigner(secret []byte) (*Signer, error) {
	if len(secret) == 0 {
		return nil, api.Errorf(api.CodeInternal, "there is no secret to sign previews with")
	}
	key, err := hkdf.Key(sha256.New, secret, nil, tokenPurpose, sha256.Size)
	return &Signer{key}, err
}

// Token makes a token that is good until expires, in whole seconds.
func (s *Signer) Token(id string, port int, expires time.Time) string {
	var b [tokenSize]byte
	binary.BigEndian.PutUint64(b[:8], uint64(expires.Unix()))
	copy(b[8:], s.code(id, port, b[:8]))
	return base64.RawURLEncoding.EncodeToString(b[:])
}

// check gives when a token expires, if it is one for this port and has not yet.
func (s *Signer) check(token, id string, port int, now time.Time) (time.Time, error) {
	var b [tokenSize]byte
	if base64.RawURLEncoding.DecodedLen(len(token)) != len(b) {
		return time.Time{}, refused("the preview token is not valid")
	}
	if _, err := base64.RawURLEncoding.Strict().Decode(b[:], []byte(token)); err != nil {
		return time.Time{}, refused("the preview token is not valid")
	}
	if !hmac.Equal(b[8:], s.code(id, port, b[:8])) {
		return time.Time{}, refused("the preview token is not valid for this port of this sandbox")
	}
	expires := time.Unix(int64(binary.BigEndian.Uint64(b[:8])), 0)
	if !now.Before(expires) {
		return time.Time{}, refused("the preview token has expired")
	}
	return expires, nil
}

func (s *Signer) code(id string, port int, expiry []byte) []byte {
	mac := hmac.New(sha256.New, s.key)
	fmt.Fprintf(mac, "%s:%d:", id, port)
	mac.Write(expiry)
	return mac.Sum(nil)
}

func refused(why string) error {
	return api.Errorf(api.CodeInvalidToken, "%s", why).
		WithHint("This preview is private: open a signed URL (POST /v1/sandboxes/{id}/preview-token), or send its token as " + tokenHeader + ".")
}
