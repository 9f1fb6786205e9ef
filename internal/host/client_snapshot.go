package host

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"sync"

	"github.com/pandastack/pandastack/api"
)

// Fork implements Host.
func (c *Client) Fork(ctx context.Context, parent string, children []Spec) ([]Sandbox, error) {
	return call[[]Sandbox](ctx, c, http.MethodPost, "fork", byID(parent), children)
}

// Hibernate implements Host.
func (c *Client) Hibernate(ctx context.Context, id string) error { return c.act(ctx, "hibernate", id) }

// Wake implements Host.
func (c *Client) Wake(ctx context.Context, id string) (Sandbox, error) {
	return call[Sandbox](ctx, c, http.MethodPost, "wake", byID(id), nil)
}

// Rollback implements Host.
func (c *Client) Rollback(ctx context.Context, id, snapshot string) (Sandbox, error) {
	query := byID(id)
	query.Set("snapshot", snapshot)
	return call[Sandbox](ctx, c, http.MethodPost, "rollback", query, nil)
}

// Snapshot implements Host.
func (c *Client) Snapshot(ctx context.Context, id string, spec SnapshotSpec) (Snapshot, error) {
	return call[Snapshot](ctx, c, http.MethodPost, "snapshot", byID(id), spec)
}

// GetSnapshot implements Host.
func (c *Client) GetSnapshot(ctx context.Context, snapshot string) (Snapshot, error) {
	return call[Snapshot](ctx, c, http.MethodGet, "get-snapshot", byID(snapshot), nil)
}

// Snapshots implements Host.
func (c *Client) Snapshots(ctx context.Context) ([]Snapshot, error) {
	return call[[]Snapshot](ctx, c, http.MethodGet, "snapshots", nil, nil)
}

// DeleteSnapshot implements Host.
func (c *Client) DeleteSnapshot(ctx context.Context, snapshot string) error {
	return c.act(ctx, "delete-snapshot", snapshot)
}

// Export implements Host. The file ends with io.EOF only if the host said that
// it is whole, and with the host's own error if it failed on the way.
func (c *Client) Export(ctx context.Context, snapshot string) (io.ReadCloser, error) {
	resp, err := c.send(ctx, http.MethodGet, "export", byID(snapshot), nil)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		defer resp.Body.Close()
		return nil, c.failure(ctx, decodeAnswer(resp, nil))
	}
	return &exported{c, ctx, resp}, nil
}

// exported is the file on its way.
type exported struct {
	client *Client
	ctx    context.Context
	resp   *http.Response
}

func (e *exported) Read(p []byte) (int, error) {
	n, err := e.resp.Body.Read(p)
	if errors.Is(err, io.EOF) {
		err = decodeOutcome(e.resp.Trailer.Get(outcomeTrailer))
	}
	if err != nil && err != io.EOF {
		err = e.client.failure(e.ctx, err)
	}
	return n, err
}

func (e *exported) Close() error { return e.resp.Body.Close() }

// Import implements Host. The file is sent as it is read, and is not read any
// more once Import has returned.
func (c *Client) Import(ctx context.Context, spec SnapshotSpec, file io.Reader) (Snapshot, error) {
	query := url.Values{"id": {spec.ID}, "memory": {strconv.FormatBool(spec.Memory)}}
	req, err := c.request(ctx, http.MethodPost, "import", query)
	if err != nil {
		return Snapshot{}, err
	}
	body := &imported{file: file}
	defer body.stop()
	req.Body, req.ContentLength = body, -1
	req.Header.Set("Content-Type", contentBytes)
	// A host that refuses at once does so before the file is sent.
	req.Header.Set("Expect", "100-continue")
	resp, err := c.http.Do(req)
	if err == nil {
		defer resp.Body.Close()
		var out Snapshot
		if err = decodeAnswer(resp, &out); err == nil {
			return out, nil
		}
	}
	if err := body.failed(); err != nil && ctx.Err() == nil {
		return Snapshot{}, err
	}
	return Snapshot{}, c.failure(ctx, err)
}

// imported is a file on its way to a host. The transport may go on reading a body
// after the answer has come, in a goroutine of its own.
type imported struct {
	mu   sync.Mutex
	file io.Reader // nil when it may not be read any more
	err  error     // of the file
}

func (i *imported) Read(p []byte) (int, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.file == nil {
		return 0, http.ErrBodyReadAfterClose
	}
	n, err := i.file.Read(p)
	if err != nil && err != io.EOF {
		i.err = err
	}
	return n, err
}

// Close is the transport's; the file is the caller's to close.
func (i *imported) Close() error { return nil }

// stop waits for a reading that is under way and allows no more.
func (i *imported) stop() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.file = nil
}

// failed gives a code to the error of the file itself.
func (i *imported) failed() error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.err == nil {
		return nil
	}
	var e *api.Error
	if errors.As(i.err, &e) {
		return e
	}
	return api.Wrap(api.CodeInvalidRequest, i.err, "the file could not be read to its end")
}
