package httpapi

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net"
	"net/http"
	"os"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/control"
)

const snap = "/v1/snapshots/snap-k3v9x0q2m7c1b8n4t6zd"

// TestBodies: what clients send to make and change things reaches control as it
// was meant, and an empty body is one of them.
func TestBodies(t *testing.T) {
	t.Parallel()
	no, ttl := false, 60
	for _, tt := range []struct {
		path, body string
		status     int
		want       any
	}{
		{"/snapshots", ``, 201, api.CreateSnapshot{}},
		{"/snapshots", `{"name":"warm","memory":false,"metadata":{"a":"b"}}`, 201, api.CreateSnapshot{Name: "warm", Memory: &no, Metadata: map[string]string{"a": "b"}}},
		{"/snapshots", `{"name":null,"memory":null}`, 201, api.CreateSnapshot{}},
		{"/snapshot", ``, 201, api.CreateSnapshot{}},
		{"/snapshot", `{"name":"warm"}`, 201, api.CreateSnapshot{Name: "warm"}},
		{"/checkpoint", ``, 201, api.Checkpoint{}},
		{"/checkpoint", `{"name":"before"}`, 201, api.Checkpoint{Name: "before"}},
		{"/restore", ``, 200, api.Restore{}},
		{"/restore", `{"checkpoint":"before"}`, 200, api.Restore{Checkpoint: "before"}},
		{"/promote", ``, 200, api.Promote{}},
		{"/promote", `{"tree_id":"t","cleanup_siblings":true}`, 200, api.Promote{TreeID: "t", CleanupSiblings: true}},
		{"/fork", ``, 201, api.Fork{}},
		{"/fork?cross_host=1", `{"metadata":{"a":"b"}}`, 201, api.Fork{Metadata: map[string]string{"a": "b"}}},
		{"/fork-tree?cross_host=true", `{"count":3,"metadata":{},"env":{"A":"b"},"ttl_seconds":60,"persistent":false,"cpu":2,"memory_mb":64,"checkpoint":"c"}`, 201,
			api.Fork{Count: 3, Metadata: map[string]string{}, Env: map[string]string{"A": "b"}, TTLSeconds: &ttl, Persistent: &no, CPU: 2, MemoryMB: 64, Checkpoint: "c"}},
	} {
		f := &wire{tree: api.ForkTree{Children: make([]api.Sandbox, 1)}}
		b := serve(t, f)
		resp := b.do("POST", box+tt.path, tt.body)
		if body := b.read(resp); resp.StatusCode != tt.status || !strings.HasPrefix(body, "{") {
			t.Errorf("%s %s: %d %s", tt.path, tt.body, resp.StatusCode, body)
		}
		if !reflect.DeepEqual(f.got, tt.want) {
			t.Errorf("%s %s: control got %+v, want %+v", tt.path, tt.body, f.got, tt.want)
		}
	}
}

func TestForkAnswers(t *testing.T) {
	t.Parallel()
	child := func(id string) api.Sandbox { return api.Sandbox{ID: id, BootMode: api.BootFork, BootMS: 40} }
	f := &wire{tree: api.ForkTree{TreeID: "t", ParentID: "p", Children: []api.Sandbox{child("a"), child("b")}}}
	b := serve(t, f)
	for _, tt := range []struct{ path, body, location, is string }{
		{"/fork", ``, "/v1/sandboxes/a", `{"id":"a",`},
		{"/fork", `{"count":1}`, "/v1/sandboxes/a", `{"id":"a",`},
		{"/fork", `{"count":0}`, "/v1/sandboxes/a", `{"id":"a",`},
		{"/fork", `{"count":2}`, "", `{"tree_id":"t","parent_id":"p","children":[{"id":"a",`},
		{"/fork-tree", ``, "", `{"tree_id":"t","parent_id":"p","children":[{"id":"a",`},
		{"/fork-tree", `{"count":1}`, "", `{"tree_id":"t","parent_id":"p","children":[{"id":"a",`},
	} {
		resp := b.do("POST", box+tt.path, tt.body)
		_, has := resp.Header["Location"]
		if body := b.read(resp); resp.StatusCode != 201 || !strings.HasPrefix(body, tt.is) {
			t.Errorf("%s %s: %d %s", tt.path, tt.body, resp.StatusCode, body)
		}
		if resp.Header.Get("Location") != tt.location || has != (tt.location != "") {
			t.Errorf("%s %s: location %q", tt.path, tt.body, resp.Header["Location"])
		}
	}
	refused := serve(t, &wire{err: api.Errorf(api.CodeQuotaSandboxes, "10000 are too many")})
	refused.failure(refused.do("POST", box+"/fork-tree", `{"count":10000}`), api.CodeQuotaSandboxes)
}

// TestEmptyListsAreLists: a client may always go through what a list answers.
func TestEmptyListsAreLists(t *testing.T) {
	t.Parallel()
	b := serve(t, &wire{})
	for request, want := range map[string]string{
		"GET /v1/snapshots":           `{"snapshots":[]}`,
		"GET " + box + "/snapshots":   `{"snapshots":[]}`,
		"GET " + box + "/checkpoints": `{"checkpoints":[],"policy":{}}`,
		"GET " + box + "/tree":        `{"root_id":"","nodes":[]}`,
		"POST " + box + "/promote":    `"deleted":[]}`,
	} {
		method, path, _ := strings.Cut(request, " ")
		resp := b.do(method, path, "")
		if body := b.read(resp); resp.StatusCode != 200 || !strings.HasSuffix(body, want+"\n") {
			t.Errorf("%s: %d %s", request, resp.StatusCode, body)
		}
	}
}

func TestSnapshotQueries(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]control.SnapshotQuery{
		"/v1/snapshots": {Limit: 100},
		"/v1/snapshots?sandbox_id=x&kind=checkpoint&limit=7&page=p": {SandboxID: "x", Kind: api.KindCheckpoint, Limit: 7, Page: "p"},
		box + "/snapshots?limit=7&page=p":                           {SandboxID: "k3v9x0q2m7c1b8n4t6zd", Kind: api.KindSnapshot, Limit: 7, Page: "p"},
	} {
		f := &wire{page: api.SnapshotList{Snapshots: []api.Snapshot{{ID: "snap-1"}}, NextPage: "next"}}
		b := serve(t, f)
		resp := b.do("GET", path, "")
		if body := b.read(resp); resp.StatusCode != 200 || !strings.Contains(body, `"next_page":"next"`) {
			t.Errorf("%s: %d %s", path, resp.StatusCode, body)
		}
		if f.got != any(want) {
			t.Errorf("%s: control got %+v, want %+v", path, f.got, want)
		}
	}
}

func TestOneSnapshot(t *testing.T) {
	t.Parallel()
	f := &wire{snapshot: api.Snapshot{ID: "snap-1", Name: "warm"}}
	b := serve(t, f)
	for _, name := range []string{"snap-k3v9x0q2m7c1b8n4t6zd", "warm", "import"} { // a name may be a word of ours
		if resp := b.do("GET", "/v1/snapshots/"+name, ""); resp.StatusCode != 200 || f.got != any(name) {
			t.Errorf("get %s: %d, control got %v", name, resp.StatusCode, f.got)
		}
		if resp := b.do("DELETE", "/v1/snapshots/"+name, ""); resp.StatusCode != 204 || f.got != any(name) {
			t.Errorf("delete %s: %d, control got %v", name, resp.StatusCode, f.got)
		}
	}
	resp := b.do("POST", box+"/snapshots", `{}`)
	if loc := resp.Header.Get("Location"); loc != "/v1/snapshots/snap-1" {
		t.Errorf("location %q", loc)
	}
	gone := serve(t, &wire{err: api.Errorf(api.CodeSnapshotNotFound, "none")})
	gone.failure(gone.do("GET", snap, ""), api.CodeSnapshotNotFound)
	gone.failure(gone.do("GET", snap+"/export", ""), api.CodeSnapshotNotFound)
}

// TestDeleteCheckpoint: a checkpoint goes by its name only within its sandbox,
// and a snapshot of the same name is left alone.
func TestDeleteCheckpoint(t *testing.T) {
	t.Parallel()
	f := &wire{timeline: api.Timeline{Checkpoints: []api.Snapshot{{ID: "snap-1", Name: "before"}, {ID: "snap-2"}}}}
	b := serve(t, f)
	for name, id := range map[string]string{"before": "snap-1", "snap-2": "snap-2"} {
		if resp := b.do("DELETE", box+"/checkpoints/"+name, ""); resp.StatusCode != 204 || f.got != any(id) {
			t.Errorf("%s: %d, control got %v", name, resp.StatusCode, f.got)
		}
	}
	f.got = nil
	b.failure(b.do("DELETE", box+"/checkpoints/other", ""), api.CodeSnapshotNotFound)
	if f.got != nil {
		t.Errorf("%v was deleted", f.got)
	}
}

func TestExport(t *testing.T) {
	t.Parallel()
	const size = 3 << 20
	for _, tt := range []struct {
		snapshot api.Snapshot
		file     string
	}{
		{api.Snapshot{ID: "snap-1", Name: "warm"}, "warm.pandasnap"},
		{api.Snapshot{ID: "snap-1"}, "snap-1.pandasnap"},
	} {
		file := &closed{Reader: io.LimitReader(letters{}, size)}
		b := serve(t, &wire{snapshot: tt.snapshot, export: file})
		resp := b.do("GET", snap+"/export", "")
		if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "application/octet-stream" {
			t.Errorf("%d %v", resp.StatusCode, resp.Header)
		}
		kind, params, err := mime.ParseMediaType(resp.Header.Get("Content-Disposition"))
		if err != nil || kind != "attachment" || params["filename"] != tt.file {
			t.Errorf("%s %v %v, want %s", kind, params, err, tt.file)
		}
		if n := len(b.read(resp)); n != size {
			t.Errorf("%d bytes came", n)
		}
		b.eventually("the end of the file", file.isClosed)
	}
}

// TestExportFailures: before the first byte a failure is an error answer, and
// after it the transfer breaks, so that no client takes a part for the whole.
func TestExportFailures(t *testing.T) {
	t.Parallel()
	gone := iotest.ErrReader(api.Errorf(api.CodeSnapshotStore, "the store does not answer"))
	early := &closed{Reader: gone}
	b := serve(t, &wire{export: early})
	resp := b.do("GET", snap+"/export", "")
	b.failure(resp, api.CodeSnapshotStore)
	if resp.Header.Get("Content-Disposition") != "" {
		t.Error("the error is called an attachment")
	}
	b.eventually("the end of the file", early.isClosed)

	late := &closed{Reader: io.MultiReader(io.LimitReader(letters{}, 1<<20), gone)}
	b = serve(t, &wire{export: late})
	resp = b.do("GET", snap+"/export", "")
	n, err := io.Copy(io.Discard, resp.Body)
	if resp.StatusCode != 200 || n > 1<<20 || !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("status %d, %d bytes, then %v", resp.StatusCode, n, err)
	}
	b.eventually("the end of the file", late.isClosed)
	b.eventually("the log line", func() bool { return strings.Contains(b.log.String(), "the store does not answer") })

	unread := &closed{Reader: gone}
	b = serve(t, &wire{snapshot: api.Snapshot{ID: "snap-1"}, export: unread})
	if resp := b.do("HEAD", snap+"/export", ""); resp.StatusCode != 200 || !strings.Contains(resp.Header.Get("Content-Disposition"), "snap-1.pandasnap") {
		t.Errorf("HEAD: %d %v", resp.StatusCode, resp.Header)
	}
	b.eventually("the end of the file", unread.isClosed)
}

// closed is a file that knows that it was closed.
type closed struct {
	io.Reader
	wire wire
}

func (c *closed) Close() error { c.wire.note(func() { c.wire.using = 1 }); return nil }
func (c *closed) isClosed() (is bool) {
	c.wire.note(func() { is = c.wire.using == 1 })
	return is
}

// TestImport: a file is larger than any other body may be, comes without saying
// how large, and under whatever type the client calls it.
func TestImport(t *testing.T) {
	t.Parallel()
	b := serve(t, &wire{snapshot: api.Snapshot{ID: "snap-1"}})
	for _, kind := range []string{"", "application/octet-stream", "application/x-www-form-urlencoded", "multipart/form-data"} {
		const size = 5 << 20
		req, err := http.NewRequestWithContext(t.Context(), "POST", b.url+"/v1/snapshots/import?name=warm", io.NopCloser(io.LimitReader(letters{}, size)))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+userKey)
		if kind != "" {
			req.Header.Set("Content-Type", kind)
		}
		resp, err := transport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		var got api.Snapshot
		if err := json.Unmarshal([]byte(b.read(resp)), &got); err != nil || resp.StatusCode != 201 || got.SizeBytes != size || got.Name != "warm" {
			t.Errorf("%q: %d %+v (%v)", kind, resp.StatusCode, got, err)
		}
		if resp.Header.Get("Location") != "/v1/snapshots/snap-1" {
			t.Errorf("%q: location %q", kind, resp.Header.Get("Location"))
		}
	}
}

// TestImportRefused: the refusal is read by a client that is still sending.
func TestImportRefused(t *testing.T) {
	t.Parallel()
	b := serve(t, &wire{err: api.Errorf(api.CodeSnapshotStoreFull, "no room")})
	resp := b.do("POST", "/v1/snapshots/import", strings.Repeat("x", 8<<20))
	if resp.StatusCode != 507 {
		t.Errorf("status %d", resp.StatusCode)
	}
	b.failure(resp, api.CodeSnapshotStoreFull)
}

// TestImportBrokenOff: a client that stops sending is told that, and not what
// control makes of the part that came.
func TestImportBrokenOff(t *testing.T) {
	t.Parallel()
	b := serve(t, &wire{})
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", strings.TrimPrefix(b.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	io.WriteString(conn, "POST /v1/snapshots/import HTTP/1.1\r\nHost: x\r\nX-API-Key: "+userKey+"\r\nContent-Length: 100\r\n\r\npart")
	if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	if e := b.failure(resp, api.CodeInvalidRequest); !strings.Contains(e.Message, "to its end") {
		t.Errorf("message %q", e.Message)
	}
}

// TestImportFile: a body that breaks off is at fault itself, and no deadline is
// left behind at its end.
func TestImportFile(t *testing.T) {
	t.Parallel()
	for want, end := range map[string]error{
		"to its end":  io.ErrUnexpectedEOF,
		"within 2m0s": os.ErrDeadlineExceeded,
		"":            io.EOF,
	} {
		var last time.Time
		f := &importFile{body: io.MultiReader(strings.NewReader("abc"), iotest.ErrReader(end)), deadline: func(at time.Time) error {
			last = at
			return nil
		}}
		_, err := io.ReadAll(f)
		if want == "" {
			if err != nil || f.err != nil || !last.IsZero() {
				t.Errorf("at the end: %v, %v, deadline %v", err, f.err, last)
			}
			continue
		}
		if api.CodeOf(err) != api.CodeInvalidRequest || !strings.Contains(err.Error(), want) || f.err != err {
			t.Errorf("%v: %v, kept %v", end, err, f.err)
		}
		if f.done(); !last.IsZero() {
			t.Errorf("%v: deadline %v", end, last)
		}
	}
}
