package gateway

import (
	"strings"
	"testing"

	"github.com/pandastack/pandastack/api"
)

const someID = "k3v9x0q2m7c1b8n4t6zd"

func TestParseHost(t *testing.T) {
	t.Parallel()
	for host, want := range map[string]struct {
		port int
		ok   bool
		bad  bool
	}{
		"8000-" + someID + ".example.com":                   {port: 8000, ok: true},
		"8000-" + someID + ".example.com:8443":              {port: 8000, ok: true},
		"8000-" + someID + ".example.com.":                  {port: 8000, ok: true},
		"1-" + someID + ".EXAMPLE.com:80":                   {port: 1, ok: true},
		"65535-" + strings.ToUpper(someID) + ".example.com": {port: 65535, ok: true},
		"example.com":                      {},
		"example.com:8080":                 {},
		"127.0.0.1:8080":                   {},
		"[::1]:8080":                       {},
		"":                                 {},
		".":                                {},
		":":                                {},
		".example.com":                     {},
		"8000-" + someID + ".example.org":  {},
		"8000-" + someID + "xexample.com":  {},
		"notexample.com":                   {},
		"65536-" + someID + ".example.com": {ok: true, bad: true},
		"0-" + someID + ".example.com":     {ok: true, bad: true},
		"08000-" + someID + ".example.com": {ok: true, bad: true},
		"+800-" + someID + ".example.com":  {ok: true, bad: true},
		"-8000-" + someID + ".example.com": {ok: true, bad: true},
		"99999999999999999999-" + someID + ".example.com":           {ok: true, bad: true},
		"8000-" + someID + "x.example.com":                          {ok: true, bad: true},
		"8000-" + someID[1:] + ".example.com":                       {ok: true, bad: true},
		"8000." + someID + ".example.com":                           {ok: true, bad: true},
		"x.8000-" + someID + ".example.com":                         {ok: true, bad: true},
		"8000-../../etc/passwd.example.com":                         {ok: true, bad: true},
		"xn--8000-k3v9x0q2m7c1b8n4t6zd-mua.example.com":             {ok: true, bad: true},
		"8000-k3v9x0q2m7c1b8n4t6z\u00e9.example.com":                {ok: true, bad: true},
		"\uff18000-" + someID + ".example.com":                      {ok: true, bad: true},
		"8000-" + someID + ".example.com" + "\x00" + ".example.com": {ok: true, bad: true},
		strings.Repeat("a", 300) + ".example.com":                   {ok: true, bad: true},
		strings.Repeat("8", 1<<20) + "-" + someID + ".example.com":  {ok: true, bad: true},
	} {
		port, id, ok, err := ParseHost(host, "example.com")
		if ok != want.ok || (err != nil) != want.bad || port != want.port {
			t.Errorf("%.80q: %d %q %v %v", host, port, id, ok, err)
		}
		if ok && err == nil && id != someID {
			t.Errorf("%.80q: id %q", host, id)
		}
		if err != nil && (api.CodeOf(err) != api.CodeInvalidRequest || len(err.Error()) > 200) {
			t.Errorf("%.80q: %v", host, err)
		}
	}
}

func TestOwns(t *testing.T) { // counts allocations, which others must not disturb
	g := &Gateway{Config: Config{Domain: "localhost"}}
	for host, want := range map[string]bool{
		"localhost": false, "localhost:8080": false, "127.0.0.1:8080": false, "api.localhost:8080": false, "API.localhost": false,
		"8000-" + someID + ".localhost:8080": true, "garbage.localhost": true, "example.com": false, "[::1]:8080": false,
	} {
		if got := g.Owns(host); got != want {
			t.Errorf("%s: %v", host, got)
		}
	}
	if n := testing.AllocsPerRun(100, func() { g.Owns("127.0.0.1:8080"); g.Owns("api.localhost:8080") }); n != 0 {
		t.Errorf("%v allocations for a request of the API", n)
	}
}

func TestValidDomain(t *testing.T) {
	t.Parallel()
	for domain, want := range map[string]bool{
		"localhost": true, "sandboxes.example.com": true, "a-b.c": true, "": false, "Example.com": false, ".example.com": false, "example.com.": false,
		"exa mple.com": false, "-a.com": false, "a-.com": false, "b\u00fccher.de": false, "*.example.com": false, "example.com:80": false,
		strings.Repeat("a", 64) + ".com": false, strings.Repeat("a.", 101) + "com": false,
	} {
		if got := ValidDomain(domain); got != want {
			t.Errorf("%q: %v", domain, got)
		}
	}
}

func FuzzParseHost(f *testing.F) {
	f.Add("8000-" + someID + ".localhost:8080")
	f.Add("8000-" + someID + ".localhost.")
	f.Add("xn--bcher-kva.localhost")
	f.Add("....localhost:1:2")
	f.Add("-.localhost")
	f.Fuzz(func(t *testing.T, host string) {
		port, id, ok, err := ParseHost(host, "localhost")
		if !ok || err != nil {
			return
		}
		if port < 1 || port > 65535 || !api.ValidID(id) || len(host) > maxHost {
			t.Fatalf("%q gave %d and %q", host, port, id)
		}
		again, sameID, ok, err := ParseHost(label(id, port)+".localhost", "localhost")
		if again != port || sameID != id || !ok || err != nil {
			t.Fatalf("%q is not the name of %d and %q", host, port, id)
		}
	})
}
