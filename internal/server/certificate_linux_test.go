package server

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/toolserver"
)

// pemFiles writes a certificate for names, signed by itself, and its key.
func pemFiles(t *testing.T, dir string, serial int64, names ...string) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	about := &x509.Certificate{SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: "test"}, DNSNames: names,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	der, err := x509.CreateCertificate(rand.Reader, about, about, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalECPrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for path, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: der}, key: {Type: "EC PRIVATE KEY", Bytes: keyDER}} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return cert, key
}

// A certificate in files is read again after they were replaced, and a pair that
// does not fit changes nothing.
func TestCertificateFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cert, key := pemFiles(t, dir, 1, "*.example.com")
	s := &server{cfg: Config{Previews: Previews{TLSCert: cert, TLSKey: key}}}
	c, err := s.certificates(nil)
	if err != nil {
		t.Fatal(err)
	}
	f := &fileCertificate{cert: cert, key: key}
	if err := f.load(); err != nil {
		t.Fatal(err)
	}
	serial := func() string {
		t.Helper()
		f.looked = time.Time{}
		got, err := f.get(nil)
		if err != nil {
			t.Fatal(err)
		}
		return got.Leaf.SerialNumber.String()
	}
	if got, err := c.get(nil); err != nil || got.Leaf.SerialNumber.Int64() != 1 || serial() != "1" {
		t.Fatal(got, err)
	}
	if err := os.WriteFile(cert, []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	if serial() != "1" {
		t.Error("half a file is used")
	}
	pemFiles(t, dir, 2, "*.example.com")
	if serial() != "2" {
		t.Error("the new certificate is not used")
	}
	s.cfg.Previews.TLSCert = filepath.Join(dir, "none")
	if _, err := s.certificates(nil); api.CodeOf(err) != api.CodeInvalidRequest {
		t.Error(err)
	}
}

// resolver answers, over TCP, that every name is this machine.
func resolver(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := &dns.Server{Listener: l, Handler: dns.HandlerFunc(func(w dns.ResponseWriter, r *dns.Msg) {
		m := new(dns.Msg).SetReply(r)
		if q := r.Question[0]; q.Qtype == dns.TypeA {
			m.Answer = []dns.RR{&dns.A{Hdr: dns.RR_Header{Name: q.Name, Rrtype: dns.TypeA, Class: dns.ClassINET}, A: net.IPv4(127, 0, 0, 1)}}
		}
		_ = w.WriteMsg(m) // who asked asks again
	})}
	var serving sync.WaitGroup
	ready := make(chan struct{})
	srv.NotifyStartedFunc = func() { close(ready) }
	serving.Go(func() { _ = srv.ActivateAndServe() }) // ends with Shutdown
	<-ready
	t.Cleanup(func() { _ = srv.Shutdown(); serving.Wait() })
	return l.Addr().String()
}

// startAuthority starts an ACME server that validates at a port of this machine.
func startAuthority(t *testing.T, tlsPort int) (directory, root string) {
	t.Helper()
	dir := t.TempDir()
	cert, key := pemFiles(t, dir, 7, "localhost")
	binary, dnsServer := toolserver.Build(t, "pebble"), resolver(t)
	err := toolserver.Anywhere(func(addr string) error {
		config, err := json.Marshal(map[string]any{"pebble": map[string]any{
			"listenAddress": addr, "managementListenAddress": "127.0.0.1:0", "certificate": cert, "privateKey": key,
			"httpPort": 1, "tlsPort": tlsPort, "retryAfter": map[string]int{"authz": 1, "order": 1}, "keyAlgorithm": "ecdsa",
			"profiles": map[string]any{"default": map[string]any{"description": "default", "validityPeriod": 7776000}},
		}})
		if err != nil {
			return err
		}
		file := filepath.Join(dir, "config.json")
		if err := os.WriteFile(file, config, 0o600); err != nil {
			return err
		}
		client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}, Timeout: time.Minute}
		directory = "https://" + addr + "/dir"
		p, err := toolserver.Start(toolserver.Spec{
			Binary: binary, Args: []string{"-config", file, "-dnsserver", dnsServer, "-strict=false"}, Dir: dir,
			Env: []string{"PEBBLE_VA_NOSLEEP=1", "PEBBLE_WFE_NONCEREJECT=0"},
			Ready: func() error {
				resp, err := client.Get(directory)
				if err != nil {
					return err
				}
				resp.Body.Close()
				return nil
			},
		})
		if err == nil {
			t.Cleanup(p.Stop)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return directory, cert
}

// TestAutomaticCertificates gets certificates from a real ACME server: at the
// first visit of a host that is admitted, kept after that, and for no other host.
func TestAutomaticCertificates(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	directory, root := startAuthority(t, l.Addr().(*net.TCPAddr).Port)
	const domain = "sandboxes.example.com"
	preview := "8000-" + api.NewID() + "." + domain
	var asked []string
	var mu sync.Mutex
	s := &server{log: slog.New(slog.NewTextHandler(testWriter{t}, nil)), tlsListener: l,
		cfg: Config{DataDir: t.TempDir(), Previews: Previews{Domain: domain, ACMECA: directory, ACMERoot: root, ACMEEmail: "admin@example.com"}}}
	open := func() certificates {
		t.Helper()
		c, err := s.certificates(func(_ context.Context, name string) error {
			mu.Lock()
			defer mu.Unlock()
			asked = append(asked, name)
			if name != preview {
				return errors.New("no such sandbox")
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	c := open()
	srv := &http.Server{TLSConfig: &tls.Config{GetCertificate: c.get, NextProtos: c.protocols}, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, 0),
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.Proto, " ", r.Host) })}
	var serving sync.WaitGroup
	serving.Go(func() { _ = srv.ServeTLS(l, "", "") }) // ends with Close
	t.Cleanup(func() { srv.Close(); serving.Wait(); c.close() })

	for _, host := range []string{preview, domain, preview} {
		if got, err := visit(t, l.Addr().String(), host); err != nil || got != "HTTP/2.0 "+host {
			t.Fatalf("%s: %q %v", host, got, err)
		}
	}
	if got, err := visit(t, l.Addr().String(), "8001-"+api.NewID()+"."+domain); err == nil {
		t.Errorf("a host that is nobody's got %q", got)
	}
	stored, _ := filepath.Glob(filepath.Join(s.cfg.DataDir, "certificates", "certificates", "*", "*"))
	if len(stored) != 2 {
		t.Errorf("certificates %v", stored)
	}
	// Another server on the same directory goes on with them, without asking.
	mu.Lock()
	asked = nil
	mu.Unlock()
	again := open()
	t.Cleanup(again.close)
	client, inside := net.Pipe()
	defer client.Close()
	serving.Go(func() {
		_ = tls.Server(inside, &tls.Config{GetCertificate: again.get}).HandshakeContext(t.Context()) // the client says how it went
		inside.Close()
	})
	_ = client.SetDeadline(time.Now().Add(time.Minute))
	if err := tls.Client(client, &tls.Config{ServerName: preview, InsecureSkipVerify: true}).HandshakeContext(t.Context()); err != nil {
		t.Error(err)
	}
	mu.Lock()
	defer mu.Unlock()
	if slices.Contains(asked, preview) {
		t.Error("a certificate that is there is asked for again")
	}
}

// visit opens a host over TLS, whoever signed its certificate, which must name it.
func visit(t *testing.T, addr, host string) (string, error) {
	t.Helper()
	transport := &http.Transport{DisableKeepAlives: true, ForceAttemptHTTP2: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "tcp", addr)
		},
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, Timeout: 2 * time.Minute}
	resp, err := client.Get("https://" + host + "/")
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil {
		err = resp.TLS.PeerCertificates[0].VerifyHostname(host)
	}
	return strings.TrimSpace(string(body)), err
}

// A first visit waits for its certificate longer than a client may take for the
// rest of a handshake, and has no deadline left of that afterwards.
func TestPatientHandshake(t *testing.T) {
	t.Parallel()
	cert, key := pemFiles(t, t.TempDir(), 1, "slow.example.com")
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	const limit = 2 * time.Second
	slow := func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		time.Sleep(2 * limit)
		return &pair, nil
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{TLSConfig: &tls.Config{GetCertificate: patient(slow, time.Minute, 2*limit)}, ReadHeaderTimeout: limit,
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, 0),
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(3 * limit) // beyond what was left for the handshake
			fmt.Fprint(w, r.Host)
		})}
	var serving sync.WaitGroup
	serving.Go(func() { _ = srv.ServeTLS(l, "", "") }) // ends with Close
	t.Cleanup(func() { srv.Close(); serving.Wait() })
	if got, err := visit(t, l.Addr().String(), "slow.example.com"); err != nil || got != "slow.example.com" {
		t.Errorf("%q %v", got, err)
	}
}

func TestPreviewSettings(t *testing.T) {
	t.Parallel()
	for field, bad := range map[string][]Previews{
		"preview domain":  {{Domain: "Example.com"}, {Domain: "*.example.com"}, {TLSListen: ":443"}, {TLSListen: ":443", Domain: "localhost"}},
		"tls cert":        {{TLSCert: "x", TLSListen: ":443"}, {TLSKey: "x"}},
		"tls listen":      {{TLSCert: "x", TLSKey: "y"}, {TLSListen: "443", Domain: "example.com"}},
		"trusted proxies": {{TrustedProxies: "10.0.0.0/8, proxy"}},
	} {
		for _, p := range bad {
			if err := (Config{Previews: p}).Validate(); api.CodeOf(err) != api.CodeInvalidRequest || api.AsError(err).Details["field"] != field {
				t.Errorf("%+v: %v", p, err)
			}
		}
	}
	for _, p := range []Previews{{}, {Domain: "example.com", TLSListen: ":443"}, {TLSListen: ":443", TLSCert: "c", TLSKey: "k"}, {TrustedProxies: "10.0.0.0/8,::1, 192.0.2.1"}} {
		if err := (Config{Previews: p}).Validate(); err != nil {
			t.Errorf("%+v: %v", p, err)
		}
	}
}
