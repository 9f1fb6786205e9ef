package guest

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sync/atomic"

	"github.com/pandastack/pandastack/api"
)

// ReadFile opens a file of the sandbox. Relative paths start in the user's
// home; the empty user is the default one. The size is -1 where the file does
// not say it. The reader ends with an error if the file did not come whole.
func (c *Client) ReadFile(ctx context.Context, path, user string) (io.ReadCloser, int64, error) {
	return c.readFile(ctx, path, user, http.StatusOK, nil)
}

// ReadFileRange opens length bytes of a file from offset on; a negative length
// is all that follow. Where fewer are there, fewer come.
func (c *Client) ReadFileRange(ctx context.Context, path, user string, offset, length int64) (io.ReadCloser, int64, error) {
	if offset < 0 || length == 0 {
		return nil, 0, api.Errorf(api.CodeInvalidRequest, "a range starts at 0 or later and is not empty")
	}
	value := fmt.Sprintf("bytes=%d-", offset)
	if length > 0 {
		value = fmt.Sprintf("bytes=%d-%d", offset, offset+length-1)
	}
	return c.readFile(ctx, path, user, http.StatusPartialContent, http.Header{"Range": {value}})
}

func (c *Client) readFile(ctx context.Context, path, user string, want int, header http.Header) (io.ReadCloser, int64, error) {
	target, err := filesTarget(path, user)
	if err != nil {
		return nil, 0, err
	}
	resp, err := c.do(ctx, http.MethodGet, target, nil, header)
	if err != nil {
		return nil, 0, err
	}
	if resp.StatusCode != want {
		resp.Body.Close()
		if resp.StatusCode == http.StatusOK { // a file without a size, as in /proc
			return nil, 0, api.Errorf(api.CodeUnsupported, "this file has no ranges")
		}
		return nil, 0, api.Errorf(api.CodeInternal, "the sandbox's daemon gave an answer that makes no sense")
	}
	return &content{ctx: ctx, body: resp.Body}, resp.ContentLength, nil
}

func filesTarget(path, user string) (string, error) {
	if path == "" {
		return "", api.Errorf(api.CodeFileInvalidPath, "the path is empty")
	}
	if err := checkText(api.CodeFileInvalidPath, "the path", path, user); err != nil {
		return "", err
	}
	q := url.Values{"path": {path}}
	if user != "" {
		q.Set("username", user)
	}
	return "/files?" + q.Encode(), nil
}

// content is the body of a file, with coded errors.
type content struct {
	ctx  context.Context
	body io.ReadCloser
}

func (c *content) Read(p []byte) (int, error) {
	n, err := c.body.Read(p)
	if err != nil && err != io.EOF {
		err = transportError(c.ctx, err)
	}
	return n, err
}

func (c *content) Close() error { return c.body.Close() }

// WriteFile makes or replaces a file of the sandbox with the bytes of r. It and
// its missing directories belong to the user. If r fails, a file that was there
// is cut off, and a new one is not kept. When ctx ends, WriteFile returns at
// once; a Read of r that had begun may then still be going on, but no other
// begins.
func (c *Client) WriteFile(ctx context.Context, path, user string, r io.Reader) error {
	target, err := filesTarget(path, user)
	if err != nil {
		return err
	}
	resp, err := c.send(ctx, http.MethodPost, target, r)
	if err != nil {
		return err
	}
	return finish(resp)
}

// source remembers that reading failed, as apart from sending.
type source struct {
	r      io.Reader
	failed *atomic.Pointer[error]
}

func (s *source) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	if err != nil && err != io.EOF {
		s.failed.Store(&err)
	}
	return n, err
}
