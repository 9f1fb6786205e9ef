package client

import (
	"context"
	"errors"
	"io"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"sync/atomic"

	"github.com/pandastack/pandastack/api"
)

// Snapshots finds, removes and moves snapshots. A sandbox's Snapshot makes one,
// and api.CreateSandbox.FromSnapshot starts sandboxes from it.
type Snapshots struct{ c *Client }

// SnapshotListOptions choose snapshots. The zero value is all of them, of both
// kinds.
type SnapshotListOptions struct {
	SandboxID string           // taken of this sandbox, which may be gone
	Kind      api.SnapshotKind // only snapshots, or only checkpoints
	PageSize  int              // how many to ask for at a time; 0 lets the server choose
}

// List gives the caller's snapshots, newest first, page by page as they are
// asked for. It ends after the first error.
func (s *Snapshots) List(ctx context.Context, o SnapshotListOptions) iter.Seq2[api.Snapshot, error] {
	return func(yield func(api.Snapshot, error) bool) {
		page := ""
		for {
			list, err := s.Page(ctx, o, page)
			if err != nil {
				yield(api.Snapshot{}, err)
				return
			}
			for _, rec := range list.Snapshots {
				if !yield(rec, nil) {
					return
				}
			}
			if list.NextPage == "" || list.NextPage == page {
				return
			}
			page = list.NextPage
		}
	}
}

// Page reads one page of List: the first when page is empty, otherwise the one
// that the last page's NextPage names.
func (s *Snapshots) Page(ctx context.Context, o SnapshotListOptions, page string) (api.SnapshotList, error) {
	q := url.Values{}
	if o.SandboxID != "" {
		q.Set("sandbox_id", o.SandboxID)
	}
	if o.Kind != "" {
		q.Set("kind", string(o.Kind))
	}
	if o.PageSize > 0 {
		q.Set("limit", strconv.Itoa(o.PageSize))
	}
	if page != "" {
		q.Set("page", page)
	}
	var out api.SnapshotList
	err := s.c.call(ctx, request{method: http.MethodGet, path: s.path(), query: q}, &out)
	return out, err
}

// Get reads a snapshot's record by its id or name (snapshot.not_found).
func (s *Snapshots) Get(ctx context.Context, idOrName string) (api.Snapshot, error) {
	var out api.Snapshot
	err := s.c.call(ctx, request{method: http.MethodGet, path: s.path(idOrName)}, &out)
	return out, err
}

// Delete removes a snapshot. Sandboxes that were made from it go on
// (snapshot.not_found, snapshot.in_use).
func (s *Snapshots) Delete(ctx context.Context, idOrName string) error {
	return s.c.call(ctx, request{method: http.MethodDelete, path: s.path(idOrName)}, nil)
}

// Export writes a snapshot as one file, which Import takes on any server. After
// an error w has only a part of it.
func (s *Snapshots) Export(ctx context.Context, idOrName string, w io.Writer) error {
	resp, err := s.c.send(ctx, request{method: http.MethodGet, path: s.path(idOrName, "export"), accept: "application/octet-stream"})
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.Header.Get("Content-Type") != "application/octet-stream" {
		return s.c.notAServer(resp)
	}
	body := &File{body: resp.Body, ctx: ctx, c: s.c} // gives the reader's errors their codes; the writer's stay
	_, err = io.Copy(w, body)
	return err
}

// Import makes a snapshot of a file that Export wrote. An empty name leaves it
// without one. Failures carry, among others, snapshot.exists, snapshot.corrupt
// and snapshot.store_full.
func (s *Snapshots) Import(ctx context.Context, name string, file io.Reader) (api.Snapshot, error) {
	q := url.Values{}
	if name != "" {
		q.Set("name", name)
	}
	source := &source{r: file}
	var out api.Snapshot
	err := s.c.call(ctx, request{method: http.MethodPost, path: s.path("import"), query: q, body: source}, &out)
	if failed := source.err.Load(); failed != nil && api.CodeOf(err) == api.CodeServerUnreachable {
		return api.Snapshot{}, *failed // it was the file that failed, not the connection
	}
	return out, err
}

func (s *Snapshots) path(more ...string) []string {
	return append([]string{"v1", "snapshots"}, more...)
}

// source is a reader that remembers why it could not be read to its end.
type source struct {
	r   io.Reader
	err atomic.Pointer[error] // set by the goroutine that sends the body
}

func (s *source) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		s.err.Store(&err)
	}
	return n, err
}
