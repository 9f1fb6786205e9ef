package server

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"strings"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/control"
	"github.com/pandastack/pandastack/internal/gateway"
	"github.com/pandastack/pandastack/internal/httpapi"
)

// Previews says where user traffic comes in. The zero value serves previews
// below localhost at the address of the API, without TLS.
type Previews struct {
	// Domain is what previews are below: {port}-{id}.{domain}. Default localhost.
	// PANDASTACK_PREVIEW_DOMAIN
	Domain string
	// TLSListen is the address on which API and previews are served over TLS, as
	// host:port. Default: none. PANDASTACK_TLS_LISTEN
	TLSListen string
	// TLSCert and TLSKey are files in PEM, which may be replaced while the server
	// runs. Without them certificates are asked of an ACME authority, one for
	// each host. PANDASTACK_TLS_CERT, PANDASTACK_TLS_KEY
	TLSCert, TLSKey string
	// ACMEEmail is where the authority writes to. PANDASTACK_ACME_EMAIL
	ACMEEmail string
	// ACMECA is the URL of its directory. Default: that of Let's Encrypt.
	// PANDASTACK_ACME_CA
	ACMECA string
	// ACMERoot is a file of PEM certificates that the authority itself is known
	// by. Default: those of the system. PANDASTACK_ACME_ROOT
	ACMERoot string
	// TrustedProxies are ranges of addresses of proxies in front of the server,
	// with commas between them: what those say of the client in X-Forwarded-For,
	// -Host and -Proto is passed on. Default: none. PANDASTACK_TRUSTED_PROXIES
	TrustedProxies string
}

// checkPreviews looks at what a configuration says of previews.
func (c Config) checkPreviews() error {
	p := c.Previews
	if p.Domain != "" && !gateway.ValidDomain(p.Domain) {
		return invalid("preview domain", "%q is not a name such as sandboxes.example.com, in lower case", p.Domain)
	}
	if _, err := p.proxies(); err != nil {
		return err
	}
	if (p.TLSCert == "") != (p.TLSKey == "") {
		return invalid("tls cert", "a certificate and its key go together; one of the two files is not given")
	}
	if p.TLSListen == "" {
		if p.TLSCert != "" {
			return invalid("tls listen", "there is a certificate, but no address to use it on")
		}
		return nil
	}
	if _, port, err := net.SplitHostPort(p.TLSListen); err != nil || port == "" {
		return invalid("tls listen", "%q is not host:port", p.TLSListen)
	}
	if p.TLSCert == "" && (p.Domain == "" || p.Domain == gateway.DefaultDomain) {
		return invalid("preview domain", "no authority gives certificates for localhost; name the domain of previews, or a certificate file")
	}
	return nil
}

// proxies reads TrustedProxies.
func (p Previews) proxies() ([]netip.Prefix, error) {
	var out []netip.Prefix
	for text := range strings.SplitSeq(p.TrustedProxies, ",") {
		if text = strings.TrimSpace(text); text == "" {
			continue
		}
		prefix, err := netip.ParsePrefix(text)
		if err != nil {
			addr, addrErr := netip.ParseAddr(text)
			if addrErr != nil {
				return nil, invalid("trusted proxies", "%q is neither an address nor a range such as 10.0.0.0/8", text)
			}
			prefix = netip.PrefixFrom(addr, addr.BitLen())
		}
		out = append(out, prefix)
	}
	return out, nil
}

// listenTLS takes the address of TLS, if it is to be served. Clients that come
// before the rest is ready wait in its queue.
func (s *server) listenTLS(ctx context.Context) error {
	if s.cfg.Previews.TLSListen == "" {
		return nil
	}
	l, err := listen(ctx, s.cfg.Previews.TLSListen)
	if err != nil {
		var e *api.Error
		if errors.As(err, &e) {
			return e.WithHint("Choose another address with --tls-listen.")
		}
		return err
	}
	s.tlsListener = l
	return nil
}

// previewAddress is where previews are reached.
func (s *server) previewAddress() gateway.Address {
	a := gateway.Address{Domain: s.cfg.Previews.Domain}
	if s.tlsListener != nil {
		a.TLSPort = s.tlsListener.Addr().(*net.TCPAddr).Port
	}
	return a
}

// newGateway makes what carries the traffic of previews.
func (s *server) newGateway(boxes *control.Service, signer *gateway.Signer) error {
	proxies, err := s.cfg.Previews.proxies()
	if err != nil {
		return err
	}
	s.gateway = gateway.New(gateway.Config{
		Domain: s.cfg.Previews.Domain, Sandboxes: boxes, Signer: signer, Log: s.log,
		NewRequestID: httpapi.NewRequestID, TrustedProxies: proxies,
	})
	return nil
}

// serveTLS serves it, if it is to be served.
func (s *server) serveTLS(ctx context.Context, boxes *control.Service) error {
	if s.tlsListener == nil {
		return nil
	}
	certs, err := s.certificates(func(ctx context.Context, name string) error {
		port, id, ok, err := s.gateway.Match(name)
		if err != nil {
			return err
		}
		if !ok {
			return api.Errorf(api.CodeInvalidRequest, "%q is no host of this server", name)
		}
		return boxes.CertifyPort(ctx, id, port)
	})
	if err != nil {
		return err
	}
	s.closeCerts = certs.close
	s.https = s.newHTTP(s.http.BaseContext(s.tlsListener))
	s.https.TLSConfig = &tls.Config{GetCertificate: patient(certs.get, certificateWithin, headerWithin), NextProtos: certs.protocols, MinVersion: tls.VersionTLS12}
	s.servedTLS = s.start(ctx, "HTTPS server", func(context.Context) error {
		if err := s.https.ServeTLS(s.tlsListener, "", ""); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})
	s.log.Info("serving TLS", "addr", s.tlsListener.Addr().String(), "domain", s.cfg.Previews.Domain)
	return nil
}

// closeTLS ends what is left when its requests have ended.
func (s *server) closeTLS() error {
	if s.tlsListener != nil {
		s.tlsListener.Close() // if it was never served
	}
	err := s.servedTLS.stop()
	if s.closeCerts != nil {
		s.closeCerts()
	}
	if s.gateway != nil {
		s.gateway.Close()
	}
	return err
}
