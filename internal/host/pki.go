package host

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/pandastack/pandastack/api"
)

// How long certificates are valid. They begin an hour early for clocks that
// are behind.
const (
	authorityYears = 20
	leafYears      = 2
	clockSkew      = time.Hour
)

// Authority issues the certificates by which control plane and hosts know each
// other. Its key never leaves its directory.
type Authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// OpenAuthority reads the authority kept in dir, or makes one. Of two that make
// one at the same time, both get the same.
func OpenAuthority(dir string) (*Authority, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, setupError(err, "the directory of the authority cannot be made")
	}
	path := filepath.Join(dir, "authority.pem") // key and certificate in one file are never a mismatched pair
	a, err := readAuthority(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return a, err
	}
	text, err := newAuthority()
	if err != nil {
		return nil, setupError(err, "the authority cannot be made")
	}
	if err := writeFile(path, text, os.Link); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, setupError(err, "the authority cannot be written")
	}
	return readAuthority(path)
}

func newAuthority() ([]byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	t := &x509.Certificate{
		Subject:               pkix.Name{CommonName: "PandaStack hosts"},
		NotBefore:             now.Add(-clockSkew),
		NotAfter:              now.AddDate(authorityYears, 0, 0),
		KeyUsage:              x509.KeyUsageCertSign,
		BasicConstraintsValid: true,
		IsCA:                  true,
		MaxPathLenZero:        true,
	}
	der, err := x509.CreateCertificate(rand.Reader, t, t, &key.PublicKey, key)
	if err != nil {
		return nil, err
	}
	keyText, err := keyPEM(key)
	if err != nil {
		return nil, err
	}
	return append(keyText, certPEM(der)...), nil
}

func readAuthority(path string) (*Authority, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, setupError(err, "the authority cannot be read")
	}
	damaged := func(err error) (*Authority, error) {
		return nil, api.Wrap(api.CodeHostSetup, err, "the authority %s is damaged", path)
	}
	keyBlock, rest := pem.Decode(text)
	certBlock, _ := pem.Decode(rest)
	if keyBlock == nil || certBlock == nil {
		return damaged(nil)
	}
	key, err := x509.ParsePKCS8PrivateKey(keyBlock.Bytes)
	if err != nil {
		return damaged(err)
	}
	cert, err := x509.ParseCertificate(certBlock.Bytes)
	if err != nil {
		return damaged(err)
	}
	ec, ok := key.(*ecdsa.PrivateKey)
	if !ok || !ec.PublicKey.Equal(cert.PublicKey) {
		return damaged(nil)
	}
	return &Authority{cert, ec}, nil
}

// IssueHost writes the certificate of a host, known by its name and by the
// addresses (IP addresses or DNS names) at which control planes call it.
func (a *Authority) IssueHost(files Files, name string, addresses ...string) error {
	t := &x509.Certificate{
		Subject:     pkix.Name{CommonName: name},
		DNSNames:    []string{name},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	for _, addr := range addresses {
		if ip := net.ParseIP(addr); ip != nil {
			t.IPAddresses = append(t.IPAddresses, ip)
		} else if addr != name {
			t.DNSNames = append(t.DNSNames, addr)
		}
	}
	return a.issue(files, t)
}

// IssueControl writes the certificate by which a control plane calls hosts.
func (a *Authority) IssueControl(files Files, name string) error {
	return a.issue(files, &x509.Certificate{
		Subject:     pkix.Name{CommonName: name},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
}

func (a *Authority) issue(files Files, t *x509.Certificate) error {
	now := time.Now()
	t.NotBefore, t.NotAfter = now.Add(-clockSkew), now.AddDate(leafYears, 0, 0)
	t.KeyUsage = x509.KeyUsageDigitalSignature
	t.BasicConstraintsValid = true
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return setupError(err, "a key cannot be made")
	}
	der, err := x509.CreateCertificate(rand.Reader, t, a.cert, &key.PublicKey, a.key)
	if err != nil {
		return setupError(err, "a certificate cannot be made")
	}
	text, err := keyPEM(key)
	if err != nil {
		return setupError(err, "a key cannot be encoded")
	}
	for _, f := range []struct {
		path string
		text []byte
	}{{files.Key, text}, {files.Cert, certPEM(der)}, {files.CA, certPEM(a.cert.Raw)}} {
		if err := writeFile(f.path, f.text, os.Rename); err != nil {
			return setupError(err, "a certificate cannot be written")
		}
	}
	return nil
}

func certPEM(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

func keyPEM(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
}

// writeFile makes a whole file that only its owner reads appear at path at once.
// publish is os.Rename to replace a file, os.Link to leave one that exists.
func writeFile(path string, text []byte, publish func(from, to string) error) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*") // mode 0600
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(text)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return publish(f.Name(), path)
}

func setupError(err error, what string) error {
	return api.Wrap(api.CodeHostSetup, err, "%s: %v", what, err)
}
