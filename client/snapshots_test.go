package client_test

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/client"
)

func TestSnapshotPages(t *testing.T) {
	t.Parallel()
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		if r.URL.Path != "/v1/snapshots" || q.Get("sandbox_id") != "x" || q.Get("kind") != "snapshot" {
			t.Errorf("%s, query %v", r.URL.Path, q)
		}
		switch q.Get("page") {
		case "":
			answer(w, 200, api.SnapshotList{Snapshots: []api.Snapshot{{ID: "1"}, {ID: "2"}}, NextPage: "p2"})
		case "p2":
			answer(w, 200, api.SnapshotList{Snapshots: []api.Snapshot{{ID: "3"}}, NextPage: "p3"})
		default:
			answer(w, 503, api.Envelope{Error: api.Errorf(api.CodeHostSetup, "no")})
		}
	})
	ids, last := "", error(nil)
	for rec, err := range c.Sandboxes.Handle("x").Snapshots(t.Context()) {
		ids += rec.ID
		last = err
	}
	if ids != "123" {
		t.Errorf("got %s", ids)
	}
	wantCode(t, last, api.CodeHostSetup)
	for range c.Snapshots.List(t.Context(), client.SnapshotListOptions{SandboxID: "x", Kind: api.KindSnapshot, PageSize: 2}) {
		break // the next page is not asked for
	}
}

func TestOneSnapshotByName(t *testing.T) {
	t.Parallel()
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.Method + " " + r.URL.EscapedPath() {
		case "GET /v1/snapshots/warm":
			answer(w, 200, api.Snapshot{ID: "snap-1", Name: "warm"})
		case "DELETE /v1/snapshots/warm":
			w.WriteHeader(204)
		default:
			answer(w, 404, api.Envelope{Error: api.Errorf(api.CodeSnapshotNotFound, "none")})
		}
	})
	if s, err := c.Snapshots.Get(t.Context(), "warm"); err != nil || s.ID != "snap-1" {
		t.Errorf("%+v, %v", s, err)
	}
	if err := c.Snapshots.Delete(t.Context(), "warm"); err != nil {
		t.Error(err)
	}
	_, err := c.Snapshots.Get(t.Context(), "a/b")
	wantCode(t, err, api.CodeSnapshotNotFound)
	if !client.IsNotFound(err) {
		t.Error("IsNotFound is false")
	}
	wantCode(t, c.Snapshots.Delete(t.Context(), ""), api.CodeInvalidRequest)
}

// TestExportImport: a file of any length goes through as it is.
func TestExportImport(t *testing.T) {
	t.Parallel()
	file := bytes.Repeat([]byte("\x00\xffpanda"), 300_000)
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/snapshots/warm/export" {
			w.Header().Set("Content-Type", "application/octet-stream")
			_, _ = w.Write(file)
			return
		}
		body, err := io.ReadAll(r.Body)
		if err != nil || r.URL.RequestURI() != "/v1/snapshots/import?name=cold" || !bytes.Equal(body, file) {
			t.Errorf("%s with %d bytes (%v)", r.URL.RequestURI(), len(body), err)
		}
		answer(w, 201, api.Snapshot{ID: "snap-2", Name: "cold"})
	})
	var out bytes.Buffer
	if err := c.Snapshots.Export(t.Context(), "warm", &out); err != nil || !bytes.Equal(out.Bytes(), file) {
		t.Errorf("%d bytes came (%v)", out.Len(), err)
	}
	s, err := c.Snapshots.Import(t.Context(), "cold", bytes.NewReader(file))
	if err != nil || s.ID != "snap-2" {
		t.Errorf("%+v, %v", s, err)
	}
}

// TestExportFailures: neither half a file nor a page of something else passes
// for a snapshot, and the writer's own failure is told as it is.
func TestExportFailures(t *testing.T) {
	t.Parallel()
	broken := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/octet-stream")
		_, _ = io.WriteString(w, "half")
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	})
	var out strings.Builder
	wantCode(t, broken.Snapshots.Export(t.Context(), "warm", &out), api.CodeServerUnreachable)
	if out.String() != "half" {
		t.Errorf("got %q", out.String())
	}
	page := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = io.WriteString(w, "<html>")
	})
	out.Reset()
	wantCode(t, page.Snapshots.Export(t.Context(), "warm", &out), api.CodeNotAServer)
	if out.Len() > 0 {
		t.Errorf("got %q", out.String())
	}
	whole := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/octet-stream")
		_, _ = io.WriteString(w, "whole")
	})
	full := errors.New("the disk is full")
	if err := whole.Snapshots.Export(t.Context(), "warm", failingWriter{full}); !errors.Is(err, full) || api.CodeOf(err) == api.CodeServerUnreachable {
		t.Errorf("error is %v", err)
	}
}

type failingWriter struct{ err error }

func (f failingWriter) Write([]byte) (int, error) { return 0, f.err }

// TestImportFailures: the server's refusal and the file's own fault are told
// apart.
func TestImportFailures(t *testing.T) {
	t.Parallel()
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err == nil {
			answer(w, 500, api.Envelope{Error: api.Errorf(api.CodeSnapshotCorrupt, "not a snapshot")})
		}
	})
	_, err := c.Snapshots.Import(t.Context(), "", strings.NewReader("nonsense"))
	wantCode(t, err, api.CodeSnapshotCorrupt)
	bad := errors.New("bad sector")
	if _, err := c.Snapshots.Import(t.Context(), "", io.MultiReader(strings.NewReader("ab"), iotest.ErrReader(bad))); !errors.Is(err, bad) || strings.Contains(err.Error(), "connection") {
		t.Errorf("error is %v", err)
	}
}
