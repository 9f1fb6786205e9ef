package httpapi

import (
	"context"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/auth"
)

// signedPath is where signed URLs lead. What they allow is in the query, which
// no log has.
const signedPath = "/v1/signed/fs"

const (
	signPurpose = "pandastack signed file url v1" // the key signs nothing else
	signDefault = time.Hour
)

// grant is what a signed URL allows: one operation on one file.
type grant struct {
	Sandbox string `json:"s"`
	Org     string `json:"o"`
	Method  string `json:"m"`
	Path    string `json:"p"`
	User    string `json:"u,omitempty"`
	Expires int64  `json:"e"` // Unix seconds
}

// signGrant gives the token of a grant: the grant, and a code that only who has
// the server's secret can make.
func signGrant(secret []byte, g grant) (string, error) {
	text, err := json.Marshal(g)
	if err != nil {
		return "", err
	}
	code, err := grantCode(secret, text)
	if err != nil {
		return "", err
	}
	return base64.RawURLEncoding.EncodeToString(text) + "." + base64.RawURLEncoding.EncodeToString(code), nil
}

func grantCode(secret, text []byte) ([]byte, error) {
	key, err := hkdf.Key(sha256.New, secret, nil, signPurpose, sha256.Size)
	if err != nil {
		return nil, err
	}
	mac := hmac.New(sha256.New, key)
	mac.Write(text)
	return mac.Sum(nil), nil
}

// openGrant gives the grant of a token if the server made it, it is for this
// method and it has not expired.
func openGrant(secret []byte, token, method string, now time.Time) (grant, error) {
	refused := func(why string) (grant, error) {
		return grant{}, api.Errorf(api.CodeInvalidToken, "%s", why).WithHint("Make a new signed URL.")
	}
	body, sum, ok := strings.Cut(token, ".")
	text, err1 := base64.RawURLEncoding.DecodeString(body)
	got, err2 := base64.RawURLEncoding.DecodeString(sum)
	if !ok || len(secret) == 0 || err1 != nil || err2 != nil {
		return refused("the URL's signature is not valid")
	}
	want, err := grantCode(secret, text)
	if err != nil {
		return grant{}, err
	}
	var g grant
	if !hmac.Equal(got, want) || json.Unmarshal(text, &g) != nil {
		return refused("the URL's signature is not valid")
	}
	if now.Unix() >= g.Expires {
		return refused("the signed URL has expired")
	}
	if method == http.MethodHead {
		method = http.MethodGet
	}
	if method != g.Method {
		return refused("the signed URL is for another method")
	}
	return g, nil
}

type signInput struct {
	SandboxPath
	Body api.SignFile
}

func (a *API) signFile(ctx context.Context, in *signInput) (*huma.StreamResponse, error) {
	if len(a.SignSecret) == 0 {
		return nil, api.Errorf(api.CodeUnsupported, "this server signs no URLs")
	}
	if errs := (&FilePath{Path: in.Body.Path}).Resolve(nil); len(errs) > 0 {
		return nil, errs[0]
	}
	if _, err := a.Control.Get(ctx, who(ctx), in.ID); err != nil {
		return nil, err
	}
	return raw(func(w http.ResponseWriter, r *http.Request) {
		life := time.Duration(in.Body.ExpiresSeconds) * time.Second
		if life <= 0 {
			life = signDefault
		}
		g := grant{Sandbox: in.ID, Org: who(ctx).Org, Method: http.MethodGet, Path: in.Body.Path, User: in.Body.User,
			Expires: time.Now().Add(life).Unix()}
		if in.Body.Operation == "write" {
			g.Method = http.MethodPut
		}
		token, err := signGrant(a.SignSecret, g)
		if err != nil {
			a.fail(w, r, err)
			return
		}
		out := url.URL{Scheme: "http", Host: r.Host, Path: signedPath, RawQuery: url.Values{"token": {token}}.Encode()}
		if r.TLS != nil || r.Header.Get("X-Forwarded-Proto") == "https" {
			out.Scheme = "https"
		}
		writeJSON(w, http.StatusOK, api.SignedFile{URL: out.String(), Method: g.Method, ExpiresAt: time.Unix(g.Expires, 0).UTC()})
	}), nil
}

type signedInput struct {
	Token string `query:"token" required:"true" maxLength:"16384" doc:"As the signed URL has it"`
	Range string `header:"Range" doc:"One range of bytes" example:"bytes=0-1023"`
}

// admit makes a request one of whoever signed its URL.
func (a *API) admit(w http.ResponseWriter, r *http.Request, token string) (FilePath, bool) {
	g, err := openGrant(a.SignSecret, token, r.Method, time.Now())
	if err != nil {
		a.refuse(w, r, err)
		return FilePath{}, false
	}
	requestOf(r.Context()).identity = auth.Identity{Org: g.Org, Name: "signed URL"}
	return FilePath{SandboxPath: SandboxPath{ID: g.Sandbox}, Path: g.Path, User: g.User}, true
}

func (a *API) readSigned(_ context.Context, in *signedInput) (*huma.StreamResponse, error) {
	return raw(func(w http.ResponseWriter, r *http.Request) {
		file, ok := a.admit(w, r, in.Token)
		if !ok {
			return
		}
		defer a.Control.UseBy(r.Context(), who(r.Context()), file.ID)()
		client, err := a.Control.Guest(r.Context(), who(r.Context()), file.ID)
		if err != nil {
			a.fail(w, r, err)
			return
		}
		a.sendFile(w, r, client, &readInput{FilePath: file, Range: in.Range})
	}), nil
}

func (a *API) writeSigned(_ context.Context, in *signedInput) (*huma.StreamResponse, error) {
	return raw(func(w http.ResponseWriter, r *http.Request) {
		file, ok := a.admit(w, r, in.Token)
		if !ok {
			return
		}
		defer a.Control.UseBy(r.Context(), who(r.Context()), file.ID)()
		a.receiveFile(w, r, &writeOptions{FilePath: file, Offset: -1})
	}), nil
}
