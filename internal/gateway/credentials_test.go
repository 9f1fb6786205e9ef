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
	if want := []string{"five", "three", "four", "one", "two"}; !slices.Equal(c.tokens, want) || c.query != "one" {
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
	f.Add("a=1&ps_token=x", "a=1; ps_preview=y")
	f.Add("&&%70s_token", ";;ps_preview;")
	f.Fuzz(func(t *testing.T, query, cookie string) {
		r := &http.Request{Header: http.Header{"Cookie": {cookie}}, URL: &url.URL{RawQuery: query}}
		takeCredentials(r)
		if c := takeCredentials(r); len(c.tokens) != 0 || c.query != "" {
			t.Fatalf("%q is left of query %q and cookie %q", c.tokens, query, cookie)
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
		welcome(w, r, "token", time.Now().Add(time.Minute), true)
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
