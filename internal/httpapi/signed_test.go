package httpapi

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/pandastack/pandastack/api"
)

func TestGrants(t *testing.T) {
	t.Parallel()
	secret, now := []byte("a secret of the server's"), time.Unix(1_000_000, 0)
	token, err := signGrant(secret, grant{Sandbox: "s", Org: "o", Method: "GET", Path: "/a", Expires: now.Unix() + 60})
	if err != nil {
		t.Fatal(err)
	}
	for _, method := range []string{http.MethodGet, http.MethodHead} {
		if g, err := openGrant(secret, token, method, now); err != nil || g.Sandbox != "s" || g.Org != "o" || g.Path != "/a" {
			t.Errorf("%+v %v", g, err)
		}
	}
	body, sum, _ := strings.Cut(token, ".")
	other, err := signGrant(secret, grant{Sandbox: "s", Org: "o", Method: "GET", Path: "/b", Expires: now.Unix() + 60})
	if err != nil {
		t.Fatal(err)
	}
	otherBody, _, _ := strings.Cut(other, ".")
	for name, c := range map[string]struct {
		secret        []byte
		token, method string
		at            time.Time
	}{
		"another method": {secret, token, http.MethodPut, now},
		"expired":        {secret, token, http.MethodGet, now.Add(time.Minute)},
		"another path":   {secret, otherBody + "." + sum, http.MethodGet, now},
		"another secret": {[]byte("another"), token, http.MethodGet, now},
		"no secret":      {nil, token, http.MethodGet, now},
		"no code":        {secret, body + ".", http.MethodGet, now},
		"no token":       {secret, "", http.MethodGet, now},
		"rubbish":        {secret, "a.b.c!", http.MethodGet, now},
	} {
		if _, err := openGrant(c.secret, c.token, c.method, c.at); api.CodeOf(err) != api.CodeInvalidToken {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzOpenGrant(f *testing.F) {
	secret := []byte("secret")
	good, err := signGrant(secret, grant{Sandbox: "s", Method: "GET", Expires: 1 << 40})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add("e30.e30")
	f.Fuzz(func(t *testing.T, token string) {
		if _, err := openGrant(secret, token, "GET", time.Unix(0, 0)); err == nil && token != good {
			t.Errorf("%q is taken", token)
		}
	})
}
