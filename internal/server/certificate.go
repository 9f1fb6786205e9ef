package server

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"os"
	"sync"
	"time"

	"github.com/caddyserver/certmagic"
	"go.uber.org/zap"

	"github.com/pandastack/pandastack/api"
)

// certificates are what the TLS listener shows of itself.
type certificates struct {
	get       func(*tls.ClientHelloInfo) (*tls.Certificate, error)
	protocols []string
	close     func()
}

// patient lets a handshake wait for its certificate for as long as within says,
// and the client go on with it for rest after that. The deadline of the server's
// own, which ends with the handshake, covers both; what is set here replaces it,
// and is taken back by the server as that is.
func patient(get func(*tls.ClientHelloInfo) (*tls.Certificate, error), within, rest time.Duration) func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	return func(h *tls.ClientHelloInfo) (*tls.Certificate, error) {
		// An error is of a client that has left, which the handshake finds out.
		_ = h.Conn.SetDeadline(time.Now().Add(within))
		defer func() { _ = h.Conn.SetDeadline(time.Now().Add(rest)) }()
		return get(h)
	}
}

// maxCertificates bounds the certificates that are kept in memory.
const maxCertificates = 4096

// lookEvery is how often certificate files are looked at for a change.
const lookEvery = 10 * time.Second

// certificates opens the files that were named, or else asks an ACME authority
// for each host that a client wants and allowed admits.
func (s *server) certificates(allowed func(ctx context.Context, name string) error) (certificates, error) {
	p := s.cfg.Previews
	if p.TLSCert == "" {
		return s.authority(allowed)
	}
	f := &fileCertificate{cert: p.TLSCert, key: p.TLSKey}
	if err := f.load(); err != nil {
		return certificates{}, api.Wrap(api.CodeInvalidRequest, err, "the TLS certificate cannot be used: %s", reason(err)).
			WithHint("Name a certificate with its chain and its key, both in PEM, with --tls-cert and --tls-key.")
	}
	return certificates{get: f.get, protocols: []string{"h2", "http/1.1"}, close: func() {}}, nil
}

// fileCertificate is a certificate in files, read again when they have changed,
// so that who renews it need not restart the server.
type fileCertificate struct {
	cert, key string

	mu      sync.Mutex
	looked  time.Time
	changed time.Time // of the files as they were read
	current *tls.Certificate
}

func (f *fileCertificate) load() error {
	cert, err := tls.LoadX509KeyPair(f.cert, f.key)
	if err != nil {
		return err
	}
	f.current, f.changed, f.looked = &cert, f.time(), time.Now()
	return nil
}

// time is when the files changed last.
func (f *fileCertificate) time() time.Time {
	var last time.Time
	for _, path := range []string{f.cert, f.key} {
		if info, err := os.Stat(path); err == nil && info.ModTime().After(last) {
			last = info.ModTime()
		}
	}
	return last
}

// get gives the certificate. A pair that cannot be used, as while one of the two
// is being replaced, leaves the one before in use.
func (f *fileCertificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if time.Since(f.looked) >= lookEvery {
		f.looked = time.Now()
		if !f.time().Equal(f.changed) {
			_ = f.load() // tried again at the next look
		}
	}
	return f.current, nil
}

// authority asks an ACME authority for certificates, by the challenge that the
// TLS listener itself answers. They are kept in the data directory.
func (s *server) authority(allowed func(ctx context.Context, name string) error) (certificates, error) {
	p := s.cfg.Previews
	roots, err := p.roots()
	if err != nil {
		return certificates{}, err
	}
	storage := &certmagic.FileStorage{Path: s.cfg.path("certificates")}
	quiet := zap.NewNop() // what matters of it comes by OnEvent
	var config *certmagic.Config
	cache := certmagic.NewCache(certmagic.CacheOptions{
		GetConfigForCert: func(certmagic.Certificate) (*certmagic.Config, error) { return config, nil },
		Capacity:         maxCertificates, Logger: quiet,
	})
	config = certmagic.New(cache, certmagic.Config{Storage: storage, Logger: quiet, OnEvent: s.noteCertificate})
	issuer := certmagic.NewACMEIssuer(config, certmagic.ACMEIssuer{
		CA: p.ACMECA, Email: p.ACMEEmail, Agreed: true, TrustedRoots: roots, Logger: quiet,
		DisableHTTPChallenge: true, AltTLSALPNPort: s.tlsListener.Addr().(*net.TCPAddr).Port,
	})
	config.Issuers = []certmagic.Issuer{issuer}
	config.OnDemand = &certmagic.OnDemandConfig{DecisionFunc: func(ctx context.Context, name string) error {
		switch name {
		case p.Domain, "api." + p.Domain:
			return nil
		}
		if storage.Exists(ctx, certmagic.StorageKeys.SiteCert(issuer.IssuerKey(), name)) {
			return nil // it was admitted before; a sleeping sandbox listens on nothing
		}
		return allowed(ctx, name)
	}}
	t := config.TLSConfig()
	return certificates{get: t.GetCertificate, protocols: append([]string{"h2", "http/1.1"}, t.NextProtos...), close: cache.Stop}, nil
}

// roots are the certificates that the authority is known by; nil: the system's.
func (p Previews) roots() (*x509.CertPool, error) {
	if p.ACMERoot == "" {
		return nil, nil
	}
	data, err := os.ReadFile(p.ACMERoot)
	if err != nil {
		return nil, api.Wrap(api.CodeInvalidRequest, err, "the certificates of the ACME authority cannot be read: %s", reason(err))
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(data) {
		return nil, invalid("acme root", "%s holds no certificate in PEM", p.ACMERoot)
	}
	return pool, nil
}

// noteCertificate logs what became of certificates.
func (s *server) noteCertificate(_ context.Context, event string, data map[string]any) error {
	switch event {
	case "cert_obtained":
		s.log.Info("obtained a certificate", "host", data["identifier"], "renewal", data["renewal"])
	case "cert_failed":
		s.log.Warn("no certificate was obtained", "host", data["identifier"], "error", data["error"])
	}
	return nil
}
