package netrule

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"

	"github.com/pandastack/pandastack/api"
)

func mustParse(t testing.TB, r api.NetworkRules) *Rules {
	t.Helper()
	out, err := Parse(r)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func yes() *bool { v := true; return &v }
func no() *bool  { v := false; return &v }

func TestDecide(t *testing.T) {
	t.Parallel()
	const d = "203.0.113.7:443"
	for _, c := range []struct {
		rules    api.NetworkRules
		name, to string
		want     bool
	}{
		{api.NetworkRules{}, "", d, true},
		{api.NetworkRules{Internet: no()}, "", d, false},
		{api.NetworkRules{Internet: no()}, "packages.example.com", d, false},
		{api.NetworkRules{Allow: []string{"packages.example.com"}}, "packages.example.com", d, true},
		{api.NetworkRules{Allow: []string{"packages.example.com"}}, "Packages.Example.com.", d, true},
		{api.NetworkRules{Allow: []string{"PACKAGES.Example.com."}}, "packages.example.com", d, true},
		{api.NetworkRules{Allow: []string{"packages.example.com"}}, "", d, false},
		{api.NetworkRules{Allow: []string{"packages.example.com"}}, "evil-packages.example.com", d, false},
		{api.NetworkRules{Allow: []string{"packages.example.com"}}, "packages.example.com.evil.com", d, false},
		{api.NetworkRules{Allow: []string{"packages.example.com"}}, "www.packages.example.com", d, false},
		{api.NetworkRules{Allow: []string{"packages.example.com"}}, "packages.example.com\x00.evil.com", d, false},
		{api.NetworkRules{Allow: []string{"packages.example.com:443"}}, "packages.example.com", "203.0.113.7:80", false},
		{api.NetworkRules{Allow: []string{"packages.example.com:400-500"}}, "packages.example.com", d, true},
		{api.NetworkRules{Allow: []string{"*.packages.example.com"}}, "packages.example.com", d, false},
		{api.NetworkRules{Allow: []string{"*.packages.example.com"}}, "a.b.packages.example.com", d, true},
		{api.NetworkRules{Allow: []string{"*.packages.example.com"}}, ".packages.example.com", d, false},
		{api.NetworkRules{Allow: []string{"*.packages.example.com"}}, "evil-packages.example.com", d, false},
		{api.NetworkRules{Allow: []string{"*.packages.example.com"}}, "a.packages.example.com.evil.com", d, false},
		{api.NetworkRules{Allow: []string{"203.0.113.0/24"}}, "", d, true},
		{api.NetworkRules{Allow: []string{"203.0.113.0/24:22"}}, "", d, false},
		{api.NetworkRules{Allow: []string{"203.0.113.7:443"}}, "anything.example", d, true},
		{api.NetworkRules{Allow: []string{"0.0.0.0/0:443"}}, "", d, true},
		{api.NetworkRules{Allow: []string{"0.0.0.0/0"}}, "", "[::ffff:203.0.113.7]:443", true},
		{api.NetworkRules{Allow: []string{"0.0.0.0/0"}}, "", "[2001:db8::1]:443", false},
		// The default is to allow: deny takes, allow gives back.
		{api.NetworkRules{Deny: []string{"203.0.113.0/24"}}, "", d, false},
		{api.NetworkRules{Deny: []string{"evil.com"}}, "evil.com", d, false},
		{api.NetworkRules{Deny: []string{"evil.com"}}, "good.com", d, true},
		{api.NetworkRules{Internet: yes(), Deny: []string{"203.0.113.0/24"}, Allow: []string{"203.0.113.7"}}, "", d, true},
		{api.NetworkRules{Internet: yes(), Deny: []string{"203.0.113.0/24"}, Allow: []string{"packages.example.com"}}, "packages.example.com", d, true},
		{api.NetworkRules{Internet: yes(), Deny: []string{"203.0.113.0/24"}, Allow: []string{"packages.example.com"}}, "", d, false},
		{api.NetworkRules{Internet: yes(), Allow: []string{"packages.example.com"}}, "", d, true},
		// The default is to refuse: allow gives, deny takes back.
		{api.NetworkRules{Allow: []string{"*.packages.example.com"}, Deny: []string{"evil.packages.example.com"}}, "evil.packages.example.com", d, false},
		{api.NetworkRules{Allow: []string{"*.packages.example.com"}, Deny: []string{"203.0.113.0/28"}}, "a.packages.example.com", d, false},
		{api.NetworkRules{Allow: []string{"203.0.113.0/24"}, Deny: []string{"203.0.113.7:443"}}, "", d, false},
		{api.NetworkRules{Allow: []string{"203.0.113.0/24"}, Deny: []string{"203.0.113.7:443"}}, "", "203.0.113.7:80", true},
		// Entries in other scripts are their punycode.
		{api.NetworkRules{Allow: []string{"bücher.example"}}, "xn--bcher-kva.example", d, true},
		{api.NetworkRules{Allow: []string{"*.BÜCHER.example:443"}}, "www.xn--bcher-kva.example", d, true},
		{api.NetworkRules{Allow: []string{"xn--bcher-kva.example"}}, "bücher.example", d, false},
		{api.NetworkRules{Allow: []string{"_dmarc.example.com"}}, "_dmarc.example.com", d, true},
	} {
		r := mustParse(t, c.rules)
		if got := r.Decide(c.name, netip.MustParseAddrPort(c.to)); got != c.want {
			t.Errorf("%+v: Decide(%q, %s) = %v", c.rules, c.name, c.to, got)
		}
	}
	if mustParse(t, api.NetworkRules{}).Decide("", netip.AddrPort{}) {
		t.Error("no address is allowed")
	}
}

func TestParseRefuses(t *testing.T) {
	t.Parallel()
	for entry, reason := range map[string]string{
		"":                                    "empty",
		" packages.example.com":               "not an IPv4",
		"packages.example.com ":               "not an IPv4",
		"pypi..org":                           "not an IPv4",
		".packages.example.com":               "not an IPv4",
		"*":                                   "star",
		"*.":                                  "not an IPv4",
		"*.*.org":                             "star",
		"a.*.org":                             "star",
		"*packages.example.com":               "star",
		"-a.org":                              "dash",
		"a-.org":                              "dash",
		"https://packages.example.com":        "URL",
		"packages.example.com/simple":         "range",
		"packages.example.com:":               "port",
		"packages.example.com:0":              "port",
		"packages.example.com:65536":          "port",
		"packages.example.com:+1":             "port",
		"packages.example.com:080":            "port",
		"packages.example.com:http":           "port",
		"packages.example.com:90-80":          "end before",
		"packages.example.com:1-":             "port",
		"packages.example.com:1-2-3":          "port",
		"1.2.3":                               "not an IPv4",
		"1.2.3.4.5":                           "not an IPv4",
		"1.2.3.256":                           "not an IPv4",
		"01.2.3.4":                            "not an IPv4",
		"0x7f.1":                              "not an IPv4",
		"a.0x7f":                              "not an IPv4",
		"2130706433":                          "not an IPv4",
		"203.0.113.0/33":                      "range",
		"203.0.113.0/":                        "range",
		"203.0.113.7/24":                      "203.0.113.0/24",
		"::1":                                 "IPv6",
		"[::1]:443":                           "IPv6",
		"2001:db8::/32":                       "IPv6",
		"::ffff:1.2.3.4":                      "IPv6",
		"web.internal":                        "join",
		"*.internal":                          "join",
		"internal":                            "join",
		"\xff\xfe.org":                        "punycode",
		"a\x00b.org":                          "not an IPv4",
		strings.Repeat("a", 64) + ".org":      "not an IPv4",
		strings.Repeat("a.", 126) + "toolong": "not an IPv4",
		strings.Repeat("a", 4000):             "bytes",
	} {
		_, err := Parse(api.NetworkRules{Allow: []string{"ok.example"}, Deny: []string{"1.1.1.1", entry}})
		e := api.AsError(err)
		if err == nil || e.Code != api.CodeInvalidRequest || e.Details["field"] != "network.deny[1]" ||
			!strings.Contains(e.Message, reason) || !strings.Contains(e.Message, "network.deny[1]") {
			t.Errorf("%q: %v, details %v; want a reason with %q", entry, err, e.Details, reason)
		}
		if len(e.Message) > 400 {
			t.Errorf("%q: a message of %d bytes", entry, len(e.Message))
		}
	}
}

func TestParseLimits(t *testing.T) {
	t.Parallel()
	var many []string
	for i := range MaxEntries {
		many = append(many, fmt.Sprintf("n%d.example", i))
	}
	mustParse(t, api.NetworkRules{Allow: many})
	_, err := Parse(api.NetworkRules{Allow: many, Deny: []string{"1.1.1.1"}})
	if e := api.AsError(err); err == nil || e.Details["field"] != "network" {
		t.Errorf("1001 entries: %v", err)
	}
	for _, mbps := range []int{-1, MaxMbps + 1} {
		_, err := Parse(api.NetworkRules{EgressMbps: mbps})
		if e := api.AsError(err); err == nil || e.Details["field"] != "network.egress_mbps" {
			t.Errorf("%d Mbit/s: %v", mbps, err)
		}
	}
	if r := mustParse(t, api.NetworkRules{EgressMbps: 20}); r.Mbps() != 20 {
		t.Errorf("Mbps() = %d", r.Mbps())
	}
}

func TestSummary(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		rules                       api.NetworkRules
		byName, denies, offline, by bool
	}{
		{api.NetworkRules{}, false, false, false, true},
		{api.NetworkRules{Internet: no()}, false, false, true, false},
		{api.NetworkRules{Internet: no(), Allow: []string{"a.com"}}, true, false, false, false},
		{api.NetworkRules{Allow: []string{"a.com"}}, true, false, false, false},
		{api.NetworkRules{Allow: []string{"1.1.1.1"}, Deny: []string{"*.com"}}, true, true, false, false},
		{api.NetworkRules{Allow: []string{"1.1.1.1"}, Deny: []string{"0.0.0.0/0"}}, false, false, true, false},
		{api.NetworkRules{Deny: []string{"0.0.0.0/0"}}, false, false, true, true},
		{api.NetworkRules{Deny: []string{"0.0.0.0/0:1-100", "0.0.0.0/0:101-65535"}}, false, false, true, true},
		{api.NetworkRules{Deny: []string{"0.0.0.0/0:1-100"}}, false, false, false, true},
		{api.NetworkRules{Internet: yes(), Deny: []string{"0.0.0.0/0"}, Allow: []string{"a.com"}}, true, false, false, true},
	} {
		r := mustParse(t, c.rules)
		if r.ByName() != c.byName || r.DeniesByName() != c.denies || r.Offline() != c.offline || r.Default() != c.by {
			t.Errorf("%+v: by name %v, denies %v, offline %v, default %v", c.rules, r.ByName(), r.DeniesByName(), r.Offline(), r.Default())
		}
	}
	r := mustParse(t, api.NetworkRules{Allow: []string{"1.1.1.1", "10.0.0.0/8:22", "x.com"}, Deny: []string{"0.0.0.0/0:1-9"}})
	if got := fmt.Sprint(r.Allow(), r.Deny()); got != "[{1.1.1.1/32 0 0} {10.0.0.0/8 22 22}] [{0.0.0.0/0 1 9}]" {
		t.Errorf("ranges %s", got)
	}
}

func TestNames(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		rules        api.NetworkRules
		name         string
		asked, named bool
	}{
		{api.NetworkRules{}, "a.com", true, false},
		{api.NetworkRules{Internet: no()}, "a.com", false, false},
		{api.NetworkRules{Allow: []string{"a.com:443"}}, "a.com", true, true},
		{api.NetworkRules{Allow: []string{"a.com:443"}}, "b.com", false, false},
		{api.NetworkRules{Allow: []string{"*.a.com"}}, "x.a.com", true, true},
		{api.NetworkRules{Allow: []string{"*.a.com"}}, "a.com", false, false},
		{api.NetworkRules{Allow: []string{"*.a.com"}, Deny: []string{"x.a.com"}}, "x.a.com", false, false},
		{api.NetworkRules{Allow: []string{"*.a.com:443"}, Deny: []string{"x.a.com:443"}}, "x.a.com", false, false},
		{api.NetworkRules{Allow: []string{"*.a.com:443"}, Deny: []string{"x.a.com:80"}}, "x.a.com", true, true},
		{api.NetworkRules{Allow: []string{"*.a.com:443"}, Deny: []string{"0.0.0.0/0:443"}}, "x.a.com", false, false},
		{api.NetworkRules{Allow: []string{"203.0.113.0/24"}}, "a.com", true, false},
		{api.NetworkRules{Allow: []string{"203.0.113.0/24"}, Deny: []string{"a.com"}}, "a.com", false, false},
		{api.NetworkRules{Deny: []string{"a.com"}}, "a.com", false, false},
		{api.NetworkRules{Deny: []string{"a.com:443"}}, "a.com", true, false},
		{api.NetworkRules{Deny: []string{"*.com"}, Allow: []string{"a.com:443"}, Internet: yes()}, "a.com", true, true},
		{api.NetworkRules{Deny: []string{"*.com"}, Allow: []string{"a.com:443"}, Internet: yes()}, "b.com", false, false},
		{api.NetworkRules{}, "1.2.3.4", false, false},
		{api.NetworkRules{}, "a b.com", false, false},
		{api.NetworkRules{}, "", false, false},
	} {
		r := mustParse(t, c.rules)
		if a, n := r.NameMayBeAsked(c.name), r.NameIsAllowed(c.name); a != c.asked || n != c.named {
			t.Errorf("%+v: %q may be asked %v, is allowed %v", c.rules, c.name, a, n)
		}
	}
	r := mustParse(t, api.NetworkRules{Allow: []string{"db.example:5432", "*.example:6000-6001", "web.example"}, Deny: []string{"no.example"}})
	for _, c := range []struct {
		name      string
		port      uint16
		at, names bool
	}{
		{"db.example", 5432, true, true}, {"db.example", 5433, false, false}, {"db.example", 6001, true, true},
		{"web.example", 80, true, false}, {"web.example", 6000, true, true}, {"no.example", 6000, false, true}, {"", 1, false, false},
	} {
		if at, names := r.NameAllowedAt(c.name, c.port), r.NamesPort(c.name, c.port); at != c.at || names != c.names {
			t.Errorf("%s:%d: allowed %v, named %v", c.name, c.port, at, names)
		}
	}
}

func TestNamesWithPort(t *testing.T) {
	t.Parallel()
	r := mustParse(t, api.NetworkRules{Allow: []string{"b.example:5432", "a.example:5000-6000", "*.c.example:5432", "d.example", "e.example:80"}})
	if got := fmt.Sprint(r.NamesWithPort(5432), r.NamesWithPort(81)); got != "[a.example b.example] []" {
		t.Errorf("%s", got)
	}
}

// TestAgainstTheRule compares the arranged lists with the rule read entry by
// entry, and what the summaries promise with what Decide says.
func TestAgainstTheRule(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(4, 4))
	pick := func(from ...string) string { return from[rnd.IntN(len(from))] }
	entries := func() (out []string) {
		for range rnd.IntN(4) {
			out = append(out, pick("0.0.0.0/0", "10.0.0.0/8", "10.1.0.0/16", "10.1.2.3", "a.com", "*.com", "*.a.com", "b.a.com")+pick("", ":1", ":1-2", ":2-65535", ":3"))
		}
		return out
	}
	for range 20000 {
		in := api.NetworkRules{Allow: entries(), Deny: entries(), Internet: []*bool{nil, yes(), no()}[rnd.IntN(3)]}
		r := mustParse(t, in)
		asked, anyAllowed := map[string]bool{}, false
		for range 20 {
			name := pick("", "a.com", "b.a.com", "c.b.a.com", "com", "org")
			to := netip.MustParseAddrPort(pick("10.1.2.3", "10.1.9.9", "10.9.9.9", "8.8.8.8") + pick(":1", ":2", ":3", ":4"))
			want := plain(in, name, to)
			if r.Decide(name, to) != want {
				t.Fatalf("%+v: Decide(%q, %s) = %v", in, name, to, !want)
			}
			asked[name] = asked[name] || want
			anyAllowed = anyAllowed || want
		}
		if anyAllowed && r.Offline() {
			t.Fatalf("%+v is offline, and allows", in)
		}
		for name, ok := range asked {
			if name != "" && ok && !r.NameMayBeAsked(name) {
				t.Fatalf("%+v: %q is allowed and may not be asked", in, name)
			}
		}
	}
}

// plain is the rule as api/network.go states it.
func plain(in api.NetworkRules, name string, to netip.AddrPort) bool {
	matches := func(entries []string) bool {
		for _, e := range entries {
			what, p, _ := strings.Cut(e, ":")
			first, last := 0, 65535
			if n, _ := fmt.Sscanf(p, "%d-%d", &first, &last); n == 1 {
				last = first
			}
			if int(to.Port()) < first || int(to.Port()) > last {
				continue
			}
			if pre, err := netip.ParsePrefix(what); err == nil && pre.Contains(to.Addr()) {
				return true
			}
			if what == to.Addr().String() || what == name {
				return true
			}
			if base, ok := strings.CutPrefix(what, "*"); ok && strings.HasSuffix(name, base) {
				return true
			}
		}
		return false
	}
	byDefault := len(in.Allow) == 0
	if in.Internet != nil {
		byDefault = *in.Internet
	}
	if byDefault {
		return !matches(in.Deny) || matches(in.Allow)
	}
	return matches(in.Allow) && !matches(in.Deny)
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"packages.example.com", "*.packages.example.com:443", "203.0.113.0/24:1-2", "bücher.example", "1.2.3", "::1", "a\x00b", "*", ":", "-", "xn--a.com", "faß.de", "０.0.0.0"} {
		f.Add(s, "a.b")
	}
	f.Fuzz(func(t *testing.T, entry, name string) {
		r, err := Parse(api.NetworkRules{Allow: []string{entry}})
		if err != nil {
			if e := api.AsError(err); e.Code != api.CodeInvalidRequest || e.Details["field"] != "network.allow[0]" {
				t.Fatalf("%q: %v", entry, err)
			}
			return
		}
		if r.Default() || r.Offline() || r.ByName() == (len(r.Allow()) == 1) {
			t.Fatalf("%q: default %v, offline %v, by name %v, ranges %v", entry, r.Default(), r.Offline(), r.ByName(), r.Allow())
		}
		to := netip.MustParseAddrPort("203.0.113.7:443")
		if canonical, ok := Name(name); ok && r.Decide(name, to) != r.Decide(canonical, to) {
			t.Fatalf("%q: %q and %q differ", entry, name, canonical)
		}
		if r.ByName() && r.Decide(name, to) && !r.NameMayBeAsked(name) {
			t.Fatalf("%q allows %q, which may not be asked", entry, name)
		}
	})
}

func BenchmarkDecide(b *testing.B) {
	var in api.NetworkRules
	for i := range MaxEntries / 4 {
		in.Allow = append(in.Allow, fmt.Sprintf("n%d.example.com:443", i), fmt.Sprintf("*.w%d.example.com", i), fmt.Sprintf("10.%d.0.0/16:1-1000", i), fmt.Sprintf("172.16.%d.%d", i, i))
	}
	r := mustParse(b, in)
	to := netip.MustParseAddrPort("203.0.113.7:443")
	b.ReportAllocs()
	for b.Loop() {
		r.Decide("a.b.c.w900.example.com", to)
	}
}
