package httpapi

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/auth"
	"github.com/pandastack/pandastack/internal/gateway"
)

func (f *wire) Ports(context.Context, auth.Identity, string) ([]api.Port, error) {
	return []api.Port{{Port: 8000, Listening: true, Process: "python3", Visibility: api.PreviewPublic}}, f.err
}
func (f *wire) ExposePort(_ context.Context, _ auth.Identity, _ string, req api.ExposePort) (api.Port, error) {
	f.note(func() { f.got = req })
	return api.Port{Port: req.Port, Visibility: req.Visibility}, f.err
}
func (f *wire) ClosePort(_ context.Context, _ auth.Identity, _ string, port int) error {
	f.note(func() { f.got = port })
	return f.err
}
func (f *wire) Preview(_ context.Context, _ auth.Identity, _ string, port int) (api.Preview, error) {
	return api.Preview{Port: port, Visibility: api.PreviewPrivate}, f.err
}

func TestPreviewRoutes(t *testing.T) {
	t.Parallel()
	f := &wire{}
	b := serve(t, f)
	id := api.NewID()
	path := "/v1/sandboxes/" + id
	at := "http://8000-" + id + ".localhost:" + b.url[strings.LastIndex(b.url, ":")+1:] + "/"
	decode := func(body string, into any) {
		t.Helper()
		if err := json.Unmarshal([]byte(body), into); err != nil {
			t.Fatal(err, body)
		}
	}
	var list api.PortList
	decode(b.read(b.do("GET", path+"/ports", "")), &list)
	if want := []api.Port{{Port: 8000, Listening: true, Process: "python3", Visibility: api.PreviewPublic, URL: at}}; !slices.Equal(list.Ports, want) {
		t.Errorf("%+v, want %+v", list, want)
	}
	var port api.Port
	decode(b.read(b.do("POST", path+"/ports", `{"port":8000,"visibility":"private"}`)), &port)
	if f.got != (api.ExposePort{Port: 8000, Visibility: api.PreviewPrivate}) || port.URL != at {
		t.Errorf("%+v %+v", f.got, port)
	}
	if resp := b.do("DELETE", path+"/ports?port=8000", ""); resp.StatusCode != 204 || f.got != 8000 {
		t.Errorf("%d %+v", resp.StatusCode, f.got)
	}
	var preview api.Preview
	decode(b.read(b.do("POST", path+"/preview", `{"port":8000}`)), &preview)
	if preview != (api.Preview{Port: 8000, URL: at, Visibility: api.PreviewPrivate}) {
		t.Errorf("%+v", preview)
	}
	for _, bad := range [][3]string{
		{"POST", "/ports", `{"port":0}`}, {"POST", "/ports", `{"port":65536}`}, {"POST", "/ports", `{"port":80,"visibility":"closed"}`},
		{"POST", "/preview", `{}`}, {"DELETE", "/ports", ""}, {"DELETE", "/ports?port=x", ""}, {"POST", "/preview-token", `{"port":80,"ttl_seconds":604801}`},
	} {
		if e := b.failure(b.do(bad[0], path+bad[1], bad[2]), api.CodeInvalidRequest); e.Details["field"] == nil {
			t.Errorf("%v: %+v", bad, e)
		}
	}
	if f.uses != nil {
		t.Errorf("uses %v: who only looks at ports keeps nothing awake", f.uses)
	}
	b.failure(b.do("POST", path+"/preview-token", `{"port":8000}`), api.CodeUnsupported)
}

func TestSignPreview(t *testing.T) {
	t.Parallel()
	signer, err := gateway.NewSigner([]byte("secret"))
	if err != nil {
		t.Fatal(err)
	}
	a := New(Deps{Control: &wire{}, Keys: wireKeys{}, Log: slog.New(slog.DiscardHandler), Signer: signer, Previews: gateway.Address{Domain: "example.com", TLSPort: 443}})
	id := api.NewID()
	w := httptest.NewRecorder()
	r := httptest.NewRequestWithContext(t.Context(), "POST", "/v1/sandboxes/"+id+"/preview-token", strings.NewReader(`{"port":8000,"ttl_seconds":60}`))
	r.Header.Set("Authorization", "Bearer "+userKey)
	r.Header.Set("Content-Type", "application/json")
	a.ServeHTTP(w, r)
	var out api.PreviewURL
	if err := json.Unmarshal(w.Body.Bytes(), &out); err != nil {
		t.Fatal(err, w.Body)
	}
	u, err := url.Parse(out.URL)
	if err != nil || u.Scheme != "https" || u.Host != "8000-"+id+".example.com" || u.Query().Get("ps_token") != out.Token || out.Token == "" {
		t.Errorf("%+v %v", out, err)
	}
	if d := time.Until(out.ExpiresAt); d > time.Minute || d < 30*time.Second {
		t.Errorf("expires in %s", d)
	}
}
