package host

import (
	"crypto/tls"
	"crypto/x509"
	"os"

	"github.com/pandastack/pandastack/api"
)

// Files are the paths of one party's certificate, its key, and the certificate
// of the authority that both parties trust, all PEM.
type Files struct {
	CA   string
	Cert string
	Key  string
}

// ServerTLS is how a host listens: TLS 1.3, and only for callers with a control
// plane's certificate of the authority. A host's own certificate does not let it
// call other hosts.
func ServerTLS(files Files) (*tls.Config, error) {
	cert, pool, err := files.load()
	if err != nil {
		return nil, err
	}
	return &tls.Config{
		MinVersion:   tls.VersionTLS13,
		Certificates: []tls.Certificate{cert},
		ClientAuth:   tls.RequireAndVerifyClientCert,
		ClientCAs:    pool,
		NextProtos:   []string{"http/1.1"},
	}, nil
}

// ClientTLS is how a control plane calls the host of that name: the certificate
// it was issued under, whatever address it has. With an empty name the
// certificate must be for the address called.
func ClientTLS(files Files, name string) (*tls.Config, error) {
	cert, pool, err := files.load()
	if err != nil {
		return nil, err
	}
	return &tls.Config{
		MinVersion:   tls.VersionTLS13,
		Certificates: []tls.Certificate{cert},
		RootCAs:      pool,
		ServerName:   name,
		NextProtos:   []string{"http/1.1"},
	}, nil
}

func (f Files) load() (tls.Certificate, *x509.CertPool, error) {
	cert, err := tls.LoadX509KeyPair(f.Cert, f.Key)
	if err != nil {
		return cert, nil, api.Wrap(api.CodeHostSetup, err, "the certificate %s and its key %s cannot be used", f.Cert, f.Key)
	}
	text, err := os.ReadFile(f.CA)
	if err != nil {
		return cert, nil, api.Wrap(api.CodeHostSetup, err, "the authority's certificate %s cannot be read", f.CA)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return cert, nil, api.Errorf(api.CodeHostSetup, "%s holds no certificate", f.CA)
	}
	return cert, pool, nil
}
