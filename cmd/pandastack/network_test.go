//go:build linux

package main

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/client"
)

//go:embed testdata/network/probe.py
var probeProgram string

// internetNames are what the world's resolver knows.
var internetNames = map[string]string{
	"a.example.com.":      webAddress,
	"b.example.com.":      webAddress,
	"sub.a.example.com.":  webAddress,
	"other.example.com.":  otherAddress,
	"echo.example.com.":   otherAddress,
	"rebind.example.com.": metadataAddress,
	"inside.example.com.": privateAddress,
}

// world serves what a sandbox tries to reach.
func world(t *testing.T, m *machine) {
	t.Helper()
	site := func(at string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			name := ""
			if r.TLS != nil {
				name = " sni=" + r.TLS.ServerName
			}
			fmt.Fprintf(w, "%s host=%s%s", at, r.Host, name)
		})
	}
	serve := func(l net.Listener, h http.Handler) {
		s := &http.Server{Handler: h}
		go s.Serve(l)
		t.Cleanup(func() { s.Close() })
	}
	for at, address := range map[string]string{"web": webAddress, "other": otherAddress, "metadata": metadataAddress, "private": privateAddress} {
		serve(m.rest.listen(t, address+":80"), site(at))
	}
	secure := tls.NewListener(m.rest.listen(t, webAddress+":443"), &tls.Config{Certificates: []tls.Certificate{certificate(t)}})
	serve(secure, site("tls"))
	// A service of the machine itself, on all of its addresses.
	serve(m.host.listen(t, "0.0.0.0:9999"), site("machine"))
	echo(m.rest.listen(t, otherAddress+":7000"))
	go sink(m.rest.listen(t, otherAddress+":7001"))
	packets := m.rest.listenPacket(t, otherAddress+":7002")
	go func() {
		buf := make([]byte, 1500)
		for {
			n, from, err := packets.ReadFrom(buf)
			if err != nil {
				return
			}
			packets.WriteTo(buf[:n], from)
		}
	}()
	names := dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		a := new(dns.Msg).SetReply(q)
		at, known := internetNames[strings.ToLower(q.Question[0].Name)]
		switch {
		case !known:
			a.Rcode = dns.RcodeNameError
		case q.Question[0].Qtype == dns.TypeA:
			a.Answer = []dns.RR{&dns.A{Hdr: dns.RR_Header{Name: q.Question[0].Name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 5}, A: net.ParseIP(at)}}
		}
		w.WriteMsg(a)
	})
	for _, s := range []*dns.Server{
		{PacketConn: m.rest.listenPacket(t, dnsAddress+":53"), Handler: names},
		{Listener: m.rest.listen(t, dnsAddress+":53"), Handler: names},
		{Listener: m.rest.listen(t, dnsAddress+":853"), Handler: names},
	} {
		go s.ActivateAndServe()
		t.Cleanup(func() { s.Shutdown() })
	}
}

func echo(l net.Listener) {
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				io.Copy(c, c)
			}()
		}
	}()
}

// sink answers when it has read all.
func sink(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			io.Copy(io.Discard, c)
			io.WriteString(c, "all")
		}()
	}
}

func certificate(t *testing.T) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	of := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotAfter: time.Now().Add(time.Hour),
		DNSNames: []string{"a.example.com", "b.example.com"},
	}
	der, err := x509.CreateCertificate(rand.Reader, of, of, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// probe is something that a sandbox tries, and what comes of it: a text that
// begins like one of want, divided by |.
type probe struct {
	try  []any
	want string
}

func p(want string, try ...any) probe { return probe{try, want} }

// none is every way in which something can be out of reach.
const none = "refused|timeout|closed|error|Refused by"

// wantProbes runs probes in a sandbox.
func wantProbes(t *testing.T, sb *client.Sandbox, when string, probes ...probe) {
	t.Helper()
	tries := make([][]any, len(probes))
	for i, p := range probes {
		tries[i] = p.try
	}
	for i, got := range runProbes(t, sb, tries) {
		text := fmt.Sprint(got)
		ok := false
		for want := range strings.SplitSeq(probes[i].want, "|") {
			ok = ok || strings.HasPrefix(text, want)
		}
		if !ok {
			t.Errorf("%s: %v gives %q, want %s", when, probes[i].try, text, probes[i].want)
		}
	}
}

func runProbes(t *testing.T, sb *client.Sandbox, tries [][]any) []any {
	t.Helper()
	arg, err := json.Marshal(tries)
	if err != nil {
		t.Fatal(err)
	}
	res, err := sb.ExecWith(t.Context(), api.Exec{Cmd: client.Argv("python3", "-c", probeProgram, string(arg)), TimeoutSeconds: 120})
	if err != nil {
		t.Fatal(err)
	}
	var out []any
	if err := json.Unmarshal([]byte(res.Stdout), &out); err != nil || len(out) != len(tries) {
		t.Fatalf("the probes: exit %d, %q, %q", res.ExitCode, res.Stdout, res.Stderr)
	}
	return out
}

// TestNetworkMachine proves from the inside what a sandbox reaches and what not,
// with a server on a machine of its own and a world behind one uplink.
func TestNetworkMachine(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	world(t, m)
	dir := t.TempDir()
	s := m.serve(dir)
	c := s.client()
	defer c.Close()
	at := func(n *api.Network) *client.Sandbox { return create(t, s, api.CreateSandbox{Network: n}) }

	t.Run("default", func(t *testing.T) {
		neighbour := at(nil)
		serveInside(t, neighbour, 8000, "neighbour")
		wantProbes(t, at(nil), "by default",
			p("web host=a.example.com", "http", webAddress, 80, "a.example.com"),
			p("tls host=a.example.com sni=a.example.com", "tls", "a.example.com", 443, "a.example.com"),
			p(webAddress, "name", "a.example.com"), p("ping", "tcp", otherAddress, 7000), p("ping", "udp", otherAddress, 7002),
			p(none, "http", metadataAddress, 80, "metadata"), p(none, "http", privateAddress, 80, "x"),
			p(none, "http", machineAddress, 9999, "x"), p(none, "http", gatewayOf(neighbour), 9999, "x"),
			p(none, "http", neighbour.GuestIP, 8000, "x"), p(none, "name", "rebind.example.com"), p(none, "name", "unknown.example.com"),
			p(none, "udp", "224.0.0.1", 7002), p(none, "tcp", "fd00:ec2::254", 80), p(none, "tcp", "100.64.0.1", 80),
		)
	})
	t.Run("offline", func(t *testing.T) {
		no := false
		wantProbes(t, at(&api.Network{NetworkRules: api.NetworkRules{Internet: &no}}), "without internet",
			p(none, "http", webAddress, 80, "a.example.com"), p(none, "name", "a.example.com"), p(none, "tcp", otherAddress, 7000),
			p(none, "udp", otherAddress, 7002), p(none, "dns", dnsAddress, "a.example.com"), p(none, "http", machineAddress, 9999, "x"),
		)
	})
	t.Run("ranges", func(t *testing.T) {
		wantProbes(t, at(&api.Network{NetworkRules: api.NetworkRules{Allow: []string{otherAddress + ":7000", "198.51.100.8/29:80-90"}}}), "ranges allowed",
			p("ping", "tcp", otherAddress, 7000), p(none, "tcp", otherAddress, 7001), p("web", "http", webAddress, 80, "x"), p(none, "tls", webAddress, 443, "a.example.com"),
			p(none, "udp", otherAddress, 7002),
		)
		wantProbes(t, at(&api.Network{NetworkRules: api.NetworkRules{Deny: []string{"198.51.100.0/24"}, Allow: []string{otherAddress + ":7000"}, Internet: yes()}}), "ranges denied",
			p("ping", "tcp", otherAddress, 7000), p(none, "tcp", otherAddress, 7001), p(none, "http", webAddress, 80, "x"),
		)
	})
	t.Run("names", func(t *testing.T) { networkNames(t, at) })
	t.Run("change", func(t *testing.T) { networkChange(t, at(nil)) })
	t.Run("cap", func(t *testing.T) {
		sb := at(&api.Network{NetworkRules: api.NetworkRules{EgressMbps: 16}})
		// 6 MB at 2 MB/s; a burst of the cap is free.
		took := runProbes(t, sb, [][]any{{"send", otherAddress, 7001, 6}})[0]
		if seconds, ok := took.(float64); !ok || seconds < 1.5 {
			t.Errorf("6 MB under a cap of 16 Mbit/s: %v s", took)
		}
	})
	t.Run("links", func(t *testing.T) { networkLinks(t, c, at) })
	t.Run("refusals", func(t *testing.T) {
		for _, bad := range []api.NetworkRules{{Allow: []string{"http://x.com"}}, {Deny: []string{"1.2.3.4/40"}}, {Allow: []string{"a:0"}}, {EgressMbps: -1}} {
			if sb, err := c.Sandboxes.Create(t.Context(), api.CreateSandbox{Network: &api.Network{NetworkRules: bad}}); api.CodeOf(err) != api.CodeInvalidRequest {
				t.Errorf("%+v: %v", bad, err)
				if err == nil {
					sb.Delete(t.Context())
				}
			}
		}
	})
	// Last, since it ends the server.
	t.Run("survival", func(t *testing.T) { networkSurvival(t, m, s, dir) })
}

func yes() *bool { b := true; return &b }

// gatewayOf is the host's end of a sandbox's slot.
func gatewayOf(sb *client.Sandbox) string {
	return net.IP(append(net.ParseIP(sb.GuestIP).To4()[:3], net.ParseIP(sb.GuestIP).To4()[3]-1)).String()
}

// serveInside starts a site in a sandbox and waits until it answers there.
func serveInside(t *testing.T, sb *client.Sandbox, port int, text string) {
	t.Helper()
	line := fmt.Sprintf("mkdir -p /tmp/site && echo %s >/tmp/site/index.html && cd /tmp/site && exec python3 -m http.server %d --bind 0.0.0.0", text, port)
	if _, err := sb.ExecWith(t.Context(), api.Exec{Cmd: client.Line(line), Background: true}); err != nil {
		t.Fatal(err)
	}
	sh(t, sb, fmt.Sprintf("for i in $(seq 300); do python3 -c 'import socket; socket.create_connection((\"127.0.0.1\", %d))' 2>/dev/null && exit; sleep 0.1; done; exit 1", port))
}

// onlyA are rules under which one name and one port of another may be reached.
var onlyA = api.NetworkRules{Allow: []string{"a.example.com", "*.a.example.com", "echo.example.com:7000"}}

// probesOfA are what holds under onlyA, in short.
var probesOfA = []probe{
	p("web host=a.example.com", "http", "a.example.com", 80, "a.example.com"), p(none, "http", webAddress, 80, "b.example.com"),
	p("tls host=a.example.com", "tls", "a.example.com", 443, "a.example.com"), p(none, "tls", webAddress, 443, "b.example.com"),
	p(none, "tcp", otherAddress, 7001), p(none, "name", "b.example.com"), p(none, "http", machineAddress, 9999, "a.example.com"),
}

func networkNames(t *testing.T, at func(*api.Network) *client.Sandbox) {
	sb := at(&api.Network{NetworkRules: onlyA})
	wantProbes(t, sb, "names allowed", probesOfA...)
	wantProbes(t, sb, "tricks against names",
		p("tls host=sub.a.example.com", "tls", "sub.a.example.com", 443, "sub.a.example.com"),
		p(webAddress, "name", "a.example.com"), p(none, "name", "other.example.com"), p(none, "name", "evila.example.com"),
		// The address of an allowed name, under another name or none.
		p(none, "http", webAddress, 80, webAddress), p(none, "tls", webAddress, 443, ""), p(none, "tls", webAddress, 443, "a.example.com.evil.net"),
		p(none, "http", webAddress, 80, "a.example.com@b.example.com"),
		// An allowed name on top, the forbidden one in the request within: TLS is
		// not looked into, so the proxy sees only the first.
		p(none, "http", otherAddress, 80, "b.example.com"),
		// Other resolvers, over every transport.
		p(none, "dns", dnsAddress, "b.example.com"), p(none, "dns_tcp", dnsAddress, "b.example.com"), p(none, "dns_tcp", dnsAddress, "b.example.com", 853),
		p(none, "udp", otherAddress, 7002), p(none, "udp", webAddress, 443),
		p(none, "http", metadataAddress, 80, "a.example.com"), p(none, "http", privateAddress, 80, "a.example.com"),
	)
	wantProbes(t, sb, "a port of a name", p("ping", "tcp", "echo.example.com", 7000), p(none, "tcp", "echo.example.com", 7001))
	wantProbes(t, at(&api.Network{NetworkRules: api.NetworkRules{Allow: []string{"rebind.example.com", "inside.example.com"}}}), "names that point inside",
		p(none, "http", "rebind.example.com", 80, "rebind.example.com"), p(none, "http", "inside.example.com", 80, "inside.example.com"),
		p(none, "http", metadataAddress, 80, "rebind.example.com"),
	)
	wantProbes(t, at(&api.Network{NetworkRules: api.NetworkRules{Deny: []string{"*.example.com"}, Allow: []string{"a.example.com"}, Internet: yes()}}), "names denied",
		p("web host=a.example.com", "http", "a.example.com", 80, "a.example.com"), p(none, "name", "b.example.com"),
		p(none, "tls", webAddress, 443, "b.example.com"), p(none, "http", webAddress, 80, "b.example.com"),
	)
	log, err := sb.NetworkLog(t.Context(), 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, l := range log.Connections {
		seen[fmt.Sprintf("%s %s %s %d", l.Verdict, l.Protocol, l.Name, l.Port)] = true
		if l.Verdict == api.VerdictAllowed && l.Protocol == "tcp" && l.Port == 80 && (l.Sent == 0 || l.Received == 0) {
			t.Errorf("no bytes in %+v", l)
		}
	}
	for _, want := range []string{"allowed tcp a.example.com 80", "allowed tcp a.example.com 443", "denied tcp b.example.com 443"} {
		if !seen[want] {
			t.Errorf("the log has no %q: %v", want, seen)
		}
	}
	waitFor(t, "an event of the refusals", func() bool {
		for e, err := range sb.Events(t.Context(), client.EventOptions{}) {
			if err != nil {
				t.Fatal(err)
			}
			if e.Type == "network.denied" {
				return true
			}
		}
		return false
	})
}

func waitFor(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !ok(); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s did not come", what)
		}
	}
}

// networkChange changes rules while a connection is open.
func networkChange(t *testing.T, sb *client.Sandbox) {
	const talk = `import socket, time
s = socket.create_connection(("` + otherAddress + `", 7000), timeout=5)
try:
    while s.send(b"x") and s.recv(1):
        print("alive", flush=True)
        time.sleep(0.1)
except OSError:
    pass
print("cut", flush=True)`
	cmd := sb.Command(t.Context(), "python3", "-c", talk)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := make(chan string, 1000)
	go func() {
		defer close(lines)
		for scan := bufio.NewScanner(out); scan.Scan(); {
			lines <- scan.Text()
		}
	}()
	if first := <-lines; first != "alive" {
		t.Fatalf("the connection: %q", first)
	}
	if _, err := sb.SetNetwork(t.Context(), api.Network{NetworkRules: onlyA}); err != nil {
		t.Fatal(err)
	}
	last := ""
	for line := range lines {
		last = line
	}
	if last != "cut" {
		t.Errorf("the connection that is no longer allowed: %q", last)
	}
	cmd.Wait()
	wantProbes(t, sb, "after the change", probesOfA...)
	if _, err := sb.SetNetwork(t.Context(), api.Network{}); err != nil {
		t.Fatal(err)
	}
	wantProbes(t, sb, "after the change back", p("ping", "tcp", otherAddress, 7000), p("web", "http", webAddress, 80, "b.example.com"))
	if _, err := sb.SetNetwork(t.Context(), api.Network{NetworkRules: api.NetworkRules{Allow: []string{"x:y"}}}); api.CodeOf(err) != api.CodeInvalidRequest {
		t.Errorf("malformed rules: %v", err)
	}
}

func networkLinks(t *testing.T, c *client.Client, at func(*api.Network) *client.Sandbox) {
	no := false
	if _, err := c.Networks.Create(t.Context(), "backend"); err != nil {
		t.Fatal(err)
	}
	web := at(&api.Network{Join: []string{"backend"}, Name: "web", NetworkRules: api.NetworkRules{Internet: &no}})
	db := at(&api.Network{Join: []string{"backend"}, Name: "db"})
	outsider := at(nil)
	serveInside(t, web, 8000, "web-site")
	site := func(host string) []any { return []any{"http", host, 8000, "x"} }
	wantProbes(t, db, "a member", probe{site("web.internal"), "web-site"}, probe{site(web.ID + ".internal"), "web-site"}, probe{site(web.GuestIP), "web-site"},
		p("web", "http", webAddress, 80, "x"), p(none, "http", machineAddress, 9999, "x"))
	wantProbes(t, web, "a member without internet", p(db.GuestIP, "name", "db.internal"), p(none, "http", webAddress, 80, "x"))
	named := at(&api.Network{Join: []string{"backend"}, NetworkRules: onlyA})
	wantProbes(t, named, "a member with rules by name", append([]probe{{site("web.internal"), "web-site"}}, probesOfA...)...)
	wantProbes(t, outsider, "an outsider", probe{site(web.GuestIP), none}, p(none, "name", "web.internal"))

	if _, err := c.Sandboxes.Create(t.Context(), api.CreateSandbox{Network: &api.Network{Join: []string{"backend"}, Name: "web"}}); api.CodeOf(err) != api.CodeNetworkName {
		t.Errorf("a second web: %v", err)
	}
	if err := c.Networks.Delete(t.Context(), "backend"); api.CodeOf(err) != api.CodeNetworkInUse {
		t.Errorf("a network in use: %v", err)
	}
	child, err := web.Fork(t.Context(), api.Fork{})
	if err != nil {
		t.Fatal(err)
	}
	defer child.Delete(context.Background())
	wantProbes(t, db, "beside a fork", probe{site("web.internal"), "web-site"}, probe{site(child.ID + ".internal"), "web-site"})
	wantProbes(t, child, "a fork", p(db.GuestIP, "name", "db.internal"), p(none, "http", webAddress, 80, "x"))

	if _, err := db.SetNetwork(t.Context(), api.Network{}); err != nil {
		t.Fatal(err)
	}
	wantProbes(t, db, "who left", probe{site(web.GuestIP), none}, p(none, "name", "web.internal"))
	group, err := c.Networks.Get(t.Context(), "backend")
	if err != nil || len(group.Members) != 3 {
		t.Errorf("members: %+v, %v", group, err)
	}
}

// networkSurvival takes a sandbox with rules through everything that can happen
// to it: the rules hold after each.
func networkSurvival(t *testing.T, m *machine, s *server, dir string) {
	c := s.client()
	defer c.Close()
	sb := create(t, s, api.CreateSandbox{Network: &api.Network{NetworkRules: onlyA}})
	ctx := t.Context()
	must := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	must("pause", sb.Pause(ctx))
	must("resume", sb.Resume(ctx))
	wantProbes(t, sb, "after pause and resume", probesOfA...)
	must("hibernate", sb.Hibernate(ctx))
	must("wake", sb.Wake(ctx))
	wantProbes(t, sb, "after sleep", probesOfA...)
	child, err := sb.Fork(ctx, api.Fork{})
	must("fork", err)
	wantProbes(t, child, "in a fork", probesOfA...)
	must("delete", child.Delete(ctx))
	snap, err := sb.Snapshot(ctx, api.CreateSnapshot{})
	must("snapshot", err)
	from := create(t, s, api.CreateSandbox{FromSnapshot: snap.ID})
	wantProbes(t, from, "from a snapshot", probesOfA...)
	must("restore", sb.Restore(ctx, snap.ID))
	wantProbes(t, sb, "after a rollback", probesOfA...)
	must("delete", from.Delete(ctx))
	must("kill", s.stop(syscall.SIGKILL))
	// The rules are the kernel's and hold without a server; what it alone knows
	// is closed meanwhile.
	second := m.serve(dir)
	c2 := second.client()
	defer c2.Close()
	again, err := c2.Sandboxes.Get(ctx, sb.ID)
	must("get", err)
	wantProbes(t, again, "after a kill of the server", probesOfA...)
	// What was changed while it slept holds when it wakes.
	must("hibernate", again.Hibernate(ctx))
	_, err = again.SetNetwork(ctx, api.Network{})
	must("set", err)
	must("wake", again.Wake(ctx))
	wantProbes(t, again, "changed while it slept", p("web", "http", webAddress, 80, "b.example.com"), p(none, "http", machineAddress, 9999, "x"))
	list := c2.Sandboxes.List(ctx, client.ListOptions{})
	var wg sync.WaitGroup
	for b, err := range list {
		must("list", err)
		wg.Go(func() {
			if err := b.Delete(ctx); err != nil && !client.IsNotFound(err) {
				t.Errorf("delete: %v", err)
			}
		})
	}
	wg.Wait()
	must("stop", second.stop(syscall.SIGTERM))
}
