package client

import (
	"context"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/pandastack/pandastack/api"
)

// Sandboxes makes and finds sandboxes.
type Sandboxes struct{ c *Client }

// Create starts a sandbox, from a template or a snapshot, and returns when
// commands can run in it. A create whose answer was lost is repeated and gives the
// same sandbox. Failures carry, among others, template.not_found,
// snapshot.not_found, snapshot.incompatible, quota.sandboxes_exceeded,
// capacity.unavailable, request.invalid.
func (s *Sandboxes) Create(ctx context.Context, in api.CreateSandbox) (*Sandbox, error) {
	var rec api.Sandbox
	if err := s.c.call(ctx, request{method: http.MethodPost, path: []string{"v1", "sandboxes"}, in: in, key: api.NewID()}, &rec); err != nil {
		return nil, err
	}
	return s.adopt(rec), nil
}

// Get reads a sandbox's record (sandbox.not_found).
func (s *Sandboxes) Get(ctx context.Context, id string) (*Sandbox, error) {
	sb := s.Handle(id)
	if err := sb.Refresh(ctx); err != nil {
		return nil, err
	}
	return sb, nil
}

// Handle gives a handle on a sandbox by its id and asks the server nothing:
// all of the record but the id is empty until Refresh.
func (s *Sandboxes) Handle(id string) *Sandbox {
	return s.adopt(api.Sandbox{ID: id})
}

// adopt gives a handle on the sandbox of a record.
func (s *Sandboxes) adopt(rec api.Sandbox) *Sandbox {
	return &Sandbox{Sandbox: rec, Files: Files{c: s.c, id: rec.ID}}
}

// ListOptions choose sandboxes. The zero value is all of them.
type ListOptions struct {
	Metadata map[string]string // all of these must match
	Status   []api.Status      // any of these
	Template string
	PageSize int // how many to ask for at a time; 0 lets the server choose
}

// List gives the caller's sandboxes, newest first, page by page as they are
// asked for. It ends after the first error.
func (s *Sandboxes) List(ctx context.Context, o ListOptions) iter.Seq2[*Sandbox, error] {
	return func(yield func(*Sandbox, error) bool) {
		page := ""
		for {
			list, err := s.Page(ctx, o, page)
			if err != nil {
				yield(nil, err)
				return
			}
			for _, rec := range list.Sandboxes {
				if !yield(s.adopt(rec), nil) {
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
func (s *Sandboxes) Page(ctx context.Context, o ListOptions, page string) (api.SandboxList, error) {
	q := url.Values{}
	for k, v := range o.Metadata {
		q.Set("metadata."+k, v)
	}
	if len(o.Status) > 0 {
		var names []string
		for _, st := range o.Status {
			names = append(names, string(st))
		}
		q.Set("status", strings.Join(names, ","))
	}
	if o.Template != "" {
		q.Set("template", o.Template)
	}
	if o.PageSize > 0 {
		q.Set("limit", strconv.Itoa(o.PageSize))
	}
	if page != "" {
		q.Set("page", page)
	}
	var out api.SandboxList
	err := s.c.call(ctx, request{method: http.MethodGet, path: []string{"v1", "sandboxes"}, query: q}, &out)
	return out, err
}

// Delete ends a sandbox and all in it (sandbox.not_found).
func (s *Sandboxes) Delete(ctx context.Context, id string) error {
	return s.c.call(ctx, request{method: http.MethodDelete, path: []string{"v1", "sandboxes", id}}, nil)
}
