//go:build linux

package guest_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/guest"
	pb "github.com/pandastack/pandastack/internal/guest/envdpb"
)

// call makes a plain request and gives status, headers and body.
func (d *daemon) call(t *testing.T, method, target, body string, header ...string) (int, http.Header, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(testContext(t), method, "http://"+d.addr+target, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Add(header[i], header[i+1])
	}
	tr := &http.Transport{DisableCompression: true, DisableKeepAlives: true}
	resp, err := tr.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, resp.Header, string(data)
}

func TestToken(t *testing.T) {
	t.Parallel()
	d := startDaemon(t)
	ctx := testContext(t)
	old := d.client(t, "other")
	if err := d.Init(ctx, guest.Init{AccessToken: "tok", EnvVars: map[string]string{"K": "v"}}); err != nil {
		t.Fatal(err)
	}
	const refused = `{"code":401,"message":"unauthorized access, please provide a valid access token or method signing if supported"}`
	for _, target := range []string{"/metrics", "/envs", "/logs", "/nowhere"} {
		if code, _, body := d.call(t, "GET", target, ""); code != 401 || body != refused {
			t.Errorf("%s: %d %s", target, code, body)
		}
	}
	if code, _, body := d.call(t, "POST", "/process.Process/List", "{}", "Content-Type", "application/json"); code != 401 || body != refused {
		t.Errorf("%d %s", code, body)
	}
	if code, h, _ := d.call(t, "GET", "/health", ""); code != 204 || h.Get("Cache-Control") != "no-store" {
		t.Error(code, h)
	}
	if code, _, body := d.call(t, "GET", "/envs", "", "X-Access-Token", "tok"); code != 200 || !strings.Contains(body, `"K":"v"`) {
		t.Error(code, body)
	}
	if code, _, _ := d.call(t, "POST", "/init", `{"accessToken":"mine"}`); code != 401 {
		t.Error(code)
	}
	if code, h, _ := d.call(t, "POST", "/init", "", "X-Access-Token", "tok"); code != 204 || h.Get("X-Envd-Version") == "" {
		t.Error(code, h)
	}
	wantCode(t, old.Init(ctx, guest.Init{AccessToken: "mine"}), api.CodeInternal)
	_, err := old.List(ctx)
	wantCode(t, err, api.CodeInternal)
	_, err = old.Start(ctx, guest.Command{Cmd: "true"})
	wantCode(t, err, api.CodeInternal)
	if _, err := d.List(ctx); err != nil {
		t.Error(err)
	}
	wantCode(t, d.Init(ctx, guest.Init{Timestamp: time.Now().Add(-time.Hour), AccessToken: "older"}), api.CodeSandboxState)
	if err := d.Init(ctx, guest.Init{AccessToken: "next"}); err != nil {
		t.Error(err)
	}
	if _, err := d.List(ctx); err != nil {
		t.Error(err)
	}
	code, h, _ := d.call(t, "OPTIONS", "/process.Process/List", "", "Origin", "http://x", "Access-Control-Request-Headers", "x-access-token")
	if code != 204 || h.Get("Access-Control-Allow-Origin") != "*" || h.Get("Access-Control-Allow-Headers") != "x-access-token" {
		t.Error(code, h)
	}
}

func TestSignedFiles(t *testing.T) {
	t.Parallel()
	d := startDaemon(t)
	if err := d.Init(testContext(t), guest.Init{AccessToken: "tok"}); err != nil {
		t.Fatal(err)
	}
	const known = "v1_54rCkEfEkZrpUtVWRlqL2nxBx/LpQ6ChNKYkiNC4s3g" // path a, read, token tok
	for _, c := range []struct {
		query, token string
		code         int
		text         string
	}{
		{"path=a", "", 401, "missing signature query parameter"},
		{"path=a", "bad", 401, "access token present in header but does not match"},
		{"path=a", "tok", 404, "does not exist"},
		{"path=a&signature=" + url.QueryEscape(known), "", 404, "does not exist"},
		{"path=b&signature=" + url.QueryEscape(known), "", 401, "invalid signature"},
		{"path=a&signature=v1_x&signature_expiration=1", "", 401, "invalid signature"},
	} {
		var h []string
		if c.token != "" {
			h = []string{"X-Access-Token", c.token}
		}
		if code, _, body := d.call(t, "GET", "/files?"+c.query, "", h...); code != c.code || !strings.Contains(body, c.text) {
			t.Errorf("%s: %d %s", c.query, code, body)
		}
	}
}

func TestInitFromInsideIsRefused(t *testing.T) {
	t.Parallel()
	d := startDaemon(t, "-allow-local-init=false")
	if code, _, body := d.call(t, "POST", "/init", `{"accessToken":"mine"}`); code != 403 {
		t.Fatal(code, body)
	}
	if code, _, _ := d.call(t, "GET", "/envs", ""); code != 200 {
		t.Fatal("a token was set", code)
	}
}

func TestIdentity(t *testing.T) {
	t.Parallel()
	d := startDaemon(t)
	if err := os.Mkdir(filepath.Join(d.root, "etc"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/nowhere/resolv.conf", filepath.Join(d.root, "etc/resolv.conf")); err != nil {
		t.Fatal(err)
	}
	read := func(path string) string {
		data, err := os.ReadFile(filepath.Join(d.root, path))
		if err != nil {
			t.Error(err)
		}
		return string(data)
	}
	seen := map[string]bool{}
	for _, id := range []string{"abcdefghij0123456789", "bbcdefghij0123456789"} {
		body := fmt.Sprintf(`{"id":%q,"template":"base","hostname":"box-1","identity":true,"nameservers":["10.0.0.1","fd00::1"]}`, id)
		if code, h, _ := d.call(t, "POST", "/init", body); code != 204 || h.Get("X-Init-Warnings") != "" {
			t.Fatal(code, h)
		}
		machine := read("/etc/machine-id")
		if len(machine) != 33 || seen[machine] {
			t.Errorf("machine-id %q", machine)
		}
		seen[machine] = true
		if read("/etc/hostname") != "box-1\n" || !strings.Contains(read("/etc/hosts"), "127.0.1.1\tbox-1\n") ||
			read("/etc/resolv.conf") != "nameserver 10.0.0.1\nnameserver fd00::1\n" ||
			read("/run/e2b/.E2B_SANDBOX_ID") != id || read("/run/e2b/.E2B_SANDBOX") != "true" || read("/run/e2b/.E2B_TEMPLATE_ID") != "base" {
			t.Error("identity files differ")
		}
		var ident map[string]string
		if err := json.Unmarshal([]byte(read("/run/pandastack/identity")), &ident); err != nil || ident["id"] != id || ident["template"] != "base" {
			t.Error(ident, err)
		}
	}
	if code, _, _ := d.call(t, "POST", "/init", "nonsense"); code != 400 {
		t.Error(code)
	}
	warned := ""
	err := d.Init(testContext(t), guest.Init{Identity: true, ID: "third", Hostname: "not a name", Warn: func(s string) { warned = s }})
	if err != nil || !strings.Contains(warned, "hostname") {
		t.Error(err, warned)
	}
}

func TestUploadForms(t *testing.T) {
	t.Parallel()
	d := startDaemon(t)
	dir := t.TempDir()
	multi := func(names ...string) string {
		var b strings.Builder
		for _, n := range names {
			fmt.Fprintf(&b, "--B\r\nContent-Disposition: form-data; name=\"file\"; filename=\"%s\"\r\nContent-Type: application/octet-stream\r\n\r\nbody of %s\r\n", n, filepath.Base(n))
		}
		return b.String() + "--B--\r\n"
	}
	form := []string{"Content-Type", "multipart/form-data; boundary=B"}
	one, two := dir+"/deep/один.txt", dir+"/two"
	code, _, body := d.call(t, "POST", "/files?username=root", multi(one, two), form...)
	if want := fmt.Sprintf(`[{"name":"один.txt","path":%q,"type":"file"},{"name":"two","path":%q,"type":"file"}]`, one, two); code != 200 || body != want {
		t.Fatal(code, body)
	}
	if got, _ := os.ReadFile(one); string(got) != "body of один.txt" {
		t.Fatalf("%q", got)
	}
	code, _, body = d.call(t, "POST", "/files?path="+dir+"/target", multi("ignored"), form...)
	if code != 200 || !strings.Contains(body, dir+"/target") {
		t.Fatal(code, body)
	}
	for name, c := range map[string]struct {
		target, body string
		header       []string
		code         int
	}{
		"twice":        {"/files", multi(two, dir+"/./two"), form, 400},
		"path and two": {"/files?path=" + dir + "/x", multi("a", "b"), form, 400},
		"none":         {"/files", "--B--\r\n", form, 200},
		"broken":       {"/files", multi(two)[:len(multi(two))-8], form, 400},
		"no type":      {"/files?path=/tmp/x", "x", nil, 400},
		"no path":      {"/files", "x", []string{"Content-Type", "application/octet-stream"}, 400},
		"encoding":     {"/files?path=/tmp/x", "x", []string{"Content-Type", "application/octet-stream", "Content-Encoding", "br"}, 400},
		"not gzip":     {"/files?path=/tmp/x", "x", []string{"Content-Type", "application/octet-stream", "Content-Encoding", "gzip"}, 400},
		"user":         {"/files?username=nobody-here", multi(two), form, 401},
		"metadata":     {"/files?path=/tmp/x", "x", []string{"Content-Type", "application/octet-stream", "X-Metadata-K", strings.Repeat("v", 5000)}, 400},
	} {
		if code, _, body := d.call(t, "POST", c.target, c.body, c.header...); code != c.code {
			t.Errorf("%s: %d %s", name, code, body)
		}
	}
	var z bytes.Buffer
	w := gzip.NewWriter(&z)
	_, _ = w.Write([]byte("inflated"))
	w.Close()
	code, _, body = d.call(t, "POST", "/files?path="+dir+"/z", z.String(), "Content-Type", "application/octet-stream", "Content-Encoding", "gzip")
	if got, _ := os.ReadFile(dir + "/z"); code != 200 || string(got) != "inflated" {
		t.Fatal(code, body, string(got))
	}
	if d.compose(t, dir) != "body of twobody of ignored" {
		t.Fatal("compose")
	}
}

func (d *daemon) compose(t *testing.T, dir string) string {
	code, _, body := d.call(t, "POST", "/files/compose", fmt.Sprintf(`{"source_paths":["%s/two","%s/target"],"destination":"%s/joined"}`, dir, dir, dir))
	if code != 200 || !strings.Contains(body, `"name":"joined"`) {
		t.Fatal(code, body)
	}
	if _, err := os.Stat(dir + "/two"); !os.IsNotExist(err) {
		t.Fatal("a source is left")
	}
	got, _ := os.ReadFile(dir + "/joined")
	return string(got)
}

func TestDownloadForms(t *testing.T) {
	t.Parallel()
	d := startDaemon(t)
	dir := t.TempDir()
	for name, text := range map[string]string{"text": strings.Repeat("text ", 1000), "empty": ""} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	code, h, body := d.call(t, "GET", "/files?path="+dir+"/text", "", "Accept-Encoding", "gzip, deflate")
	if code != 200 || h.Get("Content-Encoding") != "gzip" || h.Get("Vary") == "" || len(body) > 500 {
		t.Fatal(code, h, len(body))
	}
	z, err := gzip.NewReader(strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if text, err := io.ReadAll(z); err != nil || len(text) != 5000 {
		t.Fatal(len(text), err)
	}
	code, h, body = d.call(t, "GET", "/files?path="+dir+"/text", "", "Range", "bytes=5-8", "Accept-Encoding", "gzip")
	if code != 206 || body != "text" || h.Get("Content-Disposition") != "inline" {
		t.Fatal(code, h, body)
	}
	if code, _, _ = d.call(t, "GET", "/files?path="+dir+"/text", "", "Accept-Encoding", "br"); code != 406 {
		t.Fatal(code)
	}
	code, h, _ = d.call(t, "GET", "/files?path="+dir+"/empty", "", "Accept-Encoding", "gzip")
	if code != 200 || h.Get("Content-Length") != "0" {
		t.Fatal(code, h)
	}
	if code, _, body = d.call(t, "GET", "/files?path="+dir, ""); code != 400 {
		t.Fatal(code, body)
	}
	if code, _, body = d.call(t, "GET", "/files?path="+dir+"/no", ""); code != 404 || !strings.Contains(body, "path '"+dir+"/no' does not exist") {
		t.Fatal(code, body)
	}
}

func TestFileMetadata(t *testing.T) {
	t.Parallel()
	d := startDaemon(t)
	path := filepath.Join(t.TempDir(), "f")
	oct := []string{"Content-Type", "application/octet-stream"}
	code, _, body := d.call(t, "POST", "/files?path="+path, "x", append(oct, "X-Metadata-Color", "blue")...)
	if code != 200 {
		t.Skipf("SKIPPED: the filesystem of temporary files keeps no user attributes: %s", body)
	}
	if !strings.Contains(body, `"metadata":{"color":"blue"}`) {
		t.Fatal(body)
	}
	stat := func() map[string]string {
		c := pb.NewFilesystemClient(http.DefaultClient, "http://"+d.addr)
		resp, err := c.Stat(testContext(t), connect.NewRequest(&pb.StatRequest{Path: path}))
		if err != nil {
			t.Fatal(err)
		}
		http.DefaultClient.CloseIdleConnections()
		return resp.Msg.GetEntry().GetMetadata()
	}
	if m := stat(); len(m) != 1 || m["color"] != "blue" {
		t.Fatal(m)
	}
	if code, _, body = d.call(t, "POST", "/files?path="+path, "x", oct...); code != 200 {
		t.Fatal(code, body)
	}
	if m := stat(); len(m) != 0 {
		t.Fatal(m)
	}
}
