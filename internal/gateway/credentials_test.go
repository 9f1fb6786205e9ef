package gateway

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"
)

func newSigner(t testing.TB, secret string) *Signer {
	t.Helper()
	s, err := NewSigner([]byte(secret))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestToken(t *testing.T) {
	t.Parallel()
	s, now := newSigner(t, "secret"), time.Unix(1_800_000_000, 0)
	token := s.Token(someID, 8000, now.Add(time.Minute))
	if until, err := s.check(token, someID, 8000, now); err != nil || !until.Equal(now.Add(time.Minute)) {
		t.Fatal(until, err)
	}
	other := strings.Replace(someID, "k", "l", 1)
	last := token[len(token)-1:]
	if last == "A" {
		last = "B"
	} else {
		last = "A"
	}
	for what, err := range map[string]error{
		"another port":    second(s.check(token, someID, 8001, now)),
		"another sandbox": second(s.check(token, other, 8000, now)),
		"another secret":  second(newSigner(t, "secret2").check(token, someID, 8000, now)),
		"expired":         second(s.check(token, someID, 8000, now.Add(time.Minute))),
		"empty":           second(s.check("", someID, 8000, now)),
		"longer":          second(s.check(token+"A", someID, 8000, now)),
		"changed":         second(s.check(token[:len(token)-5]+last+token[len(token)-4:], someID, 8000, now)),
		"garbage":         second(s.check(strings.Repeat("!", len(token)), someID, 8000, now)),
	} {
		if err == nil {
			t.Errorf("%s: accepted", what)
		}
	}
	if _, err := NewSigner(nil); err == nil {
		t.Error("no secret is one")
	}
}

func second(_ time.Time, err error) error { return err }

func TestTakeCredentials(t *testing.T) {
	t.Parallel()
	r := httptest.NewRequestWithContext(t.Context(), "GET", "/p?a=1;b&ps_token=one&c=%zz&%70s_token=two&xps_token=3", nil)
	r.Header["Cookie"] = []string{`a=1; ps_preview=three; b="x y"`, "ps_preview=four", "ps_preview_x=5"}
	r.Header.Set(tokenHeader, "five")
	c := takeCredentials(r)
	if got, want := slices.Concat(c.query, c.header, c.cookies), []string{"one", "two", "five", "three", "four"}; !slices.Equal(got, want) || len(c.query) != 2 {
		t.Errorf("%+v, want %v", c, want)
	}
	if want := "a=1;b&c=%zz&xps_token=3"; r.URL.RawQuery != want {
		t.Errorf("query %q, want %q", r.URL.RawQuery, want)
	}
	if want := []string{`a=1; b="x y"`, "ps_preview_x=5"}; !slices.Equal(r.Header["Cookie"], want) {
		t.Errorf("cookies %q, want %q", r.Header["Cookie"], want)
	}
	if r.Header.Get(tokenHeader) != "" {
		t.Error("the header goes on")
	}
	untouched := httptest.NewRequestWithContext(t.Context(), "GET", "/p?a=1&&b", nil)
	untouched.Header["Cookie"] = []string{" a=1;;b "}
	if takeCredentials(untouched); untouched.URL.RawQuery != "a=1&&b" || untouched.Header["Cookie"][0] != " a=1;;b " {
		t.Errorf("%q %q", untouched.URL.RawQuery, untouched.Header["Cookie"])
	}
}

func FuzzTakeCredentials(f *testing.F) {
	f.Add("a=1&ps_token=x", "a=1; ps_preview=y", "http://h/p?ps_token=x&b")
	f.Add("&&%70s_token", ";;ps_preview;", "?%70s_token=%zz")
	f.Fuzz(func(t *testing.T, query, cookie, referer string) {
		r := &http.Request{Header: http.Header{"Cookie": {cookie}, "Referer": {referer}}, URL: &url.URL{RawQuery: query}}
		takeCredentials(r)
		if c := takeCredentials(r); len(c.cookies) != 0 || len(c.query) != 0 {
			t.Fatalf("%+v is left of query %q and cookie %q", c, query, cookie)
		}
		left := r.Header.Get("Referer")
		_, query, _ = strings.Cut(left, "?")
		if _, found := takeQuery(query); len(found) > 0 || strings.Contains(left, tokenQuery) {
			t.Fatalf("%q is left of %q", left, referer)
		}
	})
}

// A browser goes on to the same host whatever the path says.
func TestWelcome(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]string{
		"/": "/", "/a%2Fb": "/a%2Fb", "//evil.example/x": "/evil.example/x", `/\evil.example`: "/%5Cevil.example", "/a?b=c": "/a?b=c",
	} {
		r := httptest.NewRequestWithContext(t.Context(), "GET", "http://h.localhost"+path, nil)
		w := httptest.NewRecorder()
		welcome(w, "token", time.Now().Add(time.Minute), true)
		sendOn(w, r)
		resp := w.Result()
		if got := resp.Header.Get("Location"); got != want || resp.StatusCode != 302 {
			t.Errorf("%s leads to %q with %d, want %q", path, got, resp.StatusCode, want)
		}
		c := resp.Cookies()[0]
		if c.Name != tokenCookie || c.Value != "token" || !c.HttpOnly || !c.Secure || c.SameSite != http.SameSiteLaxMode || c.Domain != "" || c.MaxAge < 50 {
			t.Errorf("%+v", c)
		}
	}
}

func TestCleanReferer(t *testing.T) {
	t.Parallel()
	for referer, want := range map[string]string{
		"http://h/p":                           "http://h/p",
		"http://h/p?a=%zz&b":                   "http://h/p?a=%zz&b",
		"http://h/p?a=1&ps_token=x&b":          "http://h/p?a=1&b",
		"http://h/p?%70s_token=x":              "http://h/p",
		"http://h/p?ps_token=x&ps_token=y#top": "http://h/p",
		"http://h/ps_token=x":                  "",
		"http://h/p?a=1;ps_token=x":            "",
		"http://h/p?next=%3Fps_token%3Dx":      "",
		"%zz ps_token=x":                       "",
	} {
		r := httptest.NewRequestWithContext(t.Context(), "GET", "/", nil)
		r.Header.Set("Referer", referer)
		takeCredentials(r)
		if got := r.Header.Get("Referer"); got != want {
			t.Errorf("%s becomes %q, want %q", referer, got, want)
		}
	}
}

// A cookie admits what the preview's own page asks for, or a person who opens
// it, and nothing that a page of another preview can make a browser ask.
func TestOwnPage(t *testing.T) {
	t.Parallel()
	const host, sibling = "8000-" + someID + ".example.com", "https://9000-" + someID + ".example.com"
	for _, c := range []struct {
		what    string
		method  string
		headers []string // in pairs
		want    bool
	}{
		{"a program", "GET", nil, true},
		{"an address that was typed", "GET", []string{"Sec-Fetch-Site", "none", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "document"}, true},
		{"a link elsewhere", "GET", []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "document"}, true},
		{"a picture of its own", "GET", []string{"Sec-Fetch-Site", "same-origin", "Sec-Fetch-Mode", "no-cors", "Sec-Fetch-Dest", "image"}, true},
		{"a form of its own", "POST", []string{"Origin", "https://" + host, "Sec-Fetch-Site", "same-origin"}, true},
		{"one that says nothing of its origin", "POST", []string{"Origin", "null", "Sec-Fetch-Site", "same-origin"}, true},
		{"an old browser's", "POST", []string{"Origin", "https://" + strings.ToUpper(host)}, true},
		{"by the name of a proxy", "POST", []string{"Origin", "https://app.example.org"}, true},
		{"a WebSocket of its own", "GET", []string{"Origin", "https://" + host, "Upgrade", "websocket"}, true},
		{"a WebSocket of a sibling", "GET", []string{"Origin", sibling, "Upgrade", "websocket"}, false},
		{"a form of a sibling", "POST", []string{"Origin", sibling, "Sec-Fetch-Site", "same-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "document"}, false},
		{"a fetch of a sibling", "GET", []string{"Origin", sibling, "Sec-Fetch-Site", "same-site", "Sec-Fetch-Mode", "cors", "Sec-Fetch-Dest", "empty"}, false},
		{"a script of a sibling", "GET", []string{"Sec-Fetch-Site", "same-site", "Sec-Fetch-Mode", "no-cors", "Sec-Fetch-Dest", "script"}, false},
		{"a frame of a sibling", "GET", []string{"Sec-Fetch-Site", "same-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "iframe"}, false},
		{"an old browser's sibling", "POST", []string{"Origin", sibling}, false},
		{"another port of the host", "POST", []string{"Origin", "https://" + host + ":8443"}, false},
		{"an origin that is none", "POST", []string{"Origin", "null"}, false},
		{"two origins", "POST", []string{"Origin", "https://" + host, "Origin", sibling}, false},
		{"an empty origin", "POST", []string{"Origin", ""}, false},
	} {
		r := httptest.NewRequestWithContext(t.Context(), c.method, "https://"+host+"/", nil)
		for i := 0; i < len(c.headers); i += 2 {
			r.Header.Add(c.headers[i], c.headers[i+1])
		}
		if got := (peer{host: "app.example.org"}).ownPage(r); got != c.want {
			t.Errorf("%s: %t", c.what, got)
		}
	}
}

// The URL's token is asked before older ones, and a flood of tokens is not.
func TestAdmit(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_800_000_000, 0)
	g := &Gateway{signer: newSigner(t, "secret")}
	older, newer := g.signer.Token(someID, 80, now.Add(time.Minute)), g.signer.Token(someID, 80, now.Add(time.Hour))
	for what, c := range map[string]struct {
		credentials
		own   bool
		token string // that becomes a cookie
		ok    bool
	}{
		"newer in the URL": {credentials{query: []string{newer}, cookies: []string{older}}, true, newer, true},
		"second in it":     {credentials{query: []string{"x", newer}, header: []string{older}}, false, newer, true},
		"same in both":     {credentials{query: []string{newer}, cookies: []string{newer}}, true, newer, true},
		"wrong in it":      {credentials{query: []string{"x"}, cookies: []string{older}}, true, "", true},
		"header":           {credentials{header: []string{older}}, false, "", true},
		"of a sibling":     {credentials{cookies: []string{older}}, false, "", false},
		"a flood":          {credentials{header: slices.Repeat([]string{"x"}, maxTokens), cookies: []string{older}}, true, "", false},
		"before a flood":   {credentials{query: []string{newer}, cookies: slices.Repeat([]string{"x"}, maxTokens)}, true, newer, true},
		"none":             {credentials{}, true, "", false},
	} {
		token, expires, err := g.admit(c.credentials, c.own, someID, 80, now)
		if token != c.token || (err == nil) != c.ok || expires.IsZero() != (c.token == "") {
			t.Errorf("%s: %q until %s: %v", what, token, expires, err)
		}
	}
}
