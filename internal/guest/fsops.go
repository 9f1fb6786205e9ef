package guest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"unicode/utf8"

	"github.com/pandastack/pandastack/api"
)

// maxAnswer bounds the answer to an operation that gives a list.
const maxAnswer = 32 << 20

// fsCall makes a call of one of the daemon's own file operations.
func (c *Client) fsCall(ctx context.Context, op, user string, in, out any, paths ...string) error {
	if err := checkText(api.CodeFileInvalidPath, "the path", append(paths, user)...); err != nil {
		return err
	}
	data, err := json.Marshal(in)
	if err != nil {
		return api.Wrap(api.CodeInvalidRequest, err, "the request cannot be encoded")
	}
	resp, err := c.do(ctx, http.MethodPost, nativeTarget(op, "", user, nil), bytes.NewReader(data), http.Header{"Content-Type": {"application/json"}})
	if err != nil {
		return err
	}
	return decodeAnswer(ctx, resp, out)
}

// nativeTarget is the address of one of the daemon's own operations.
func nativeTarget(op, path, user string, q url.Values) string {
	if q == nil {
		q = url.Values{}
	}
	if path != "" {
		q.Set("path", path)
	}
	if user != "" {
		q.Set("username", user)
	}
	return "/pandastack/fs/" + op + "?" + q.Encode()
}

func decodeAnswer(ctx context.Context, resp *http.Response, out any) error {
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	switch {
	case err != nil:
		return transportError(ctx, err)
	case len(body) > maxAnswer:
		return api.Errorf(api.CodeTooLarge, "the sandbox's answer is larger than %d MiB", maxAnswer>>20)
	case json.Unmarshal(body, out) != nil:
		return api.Errorf(api.CodeInternal, "the sandbox's daemon gave an answer that makes no sense")
	}
	return nil
}

// Copy copies a file or a tree, and says how many files and directories.
func (c *Client) Copy(ctx context.Context, in api.CopyFile, user string) (out api.Changed, err error) {
	if in.From == "" || in.To == "" {
		return out, api.Errorf(api.CodeFileInvalidPath, "a path is empty")
	}
	return out, c.fsCall(ctx, "copy", user, in, &out, in.From, in.To)
}

// Chmod sets permissions.
func (c *Client) Chmod(ctx context.Context, in api.ChangeMode, user string) (out api.Changed, err error) {
	return out, c.fsCall(ctx, "chmod", user, in, &out, in.Path)
}

// Chown sets owner and group.
func (c *Client) Chown(ctx context.Context, in api.ChangeOwner, user string) (out api.Changed, err error) {
	return out, c.fsCall(ctx, "chown", user, in, &out, in.Path, in.Owner, in.Group)
}

// Symlink makes a symbolic link. A path that is taken is file.exists.
func (c *Client) Symlink(ctx context.Context, in api.MakeLink, user string) (out api.LinkTarget, err error) {
	return out, c.fsCall(ctx, "symlink", user, in, &out, in.Path, in.Target)
}

// Readlink gives what a symbolic link says.
func (c *Client) Readlink(ctx context.Context, path, user string) (out api.LinkTarget, err error) {
	return out, c.fsCall(ctx, "readlink", user, api.LinkTarget{Path: path}, &out, path)
}

// Glob finds files by the pattern of their path.
func (c *Client) Glob(ctx context.Context, in api.Glob, user string) (out api.GlobResult, err error) {
	if err = c.fsCall(ctx, "glob", user, in, &out, in.Path, in.Pattern); err != nil {
		return out, err
	}
	if out.Matches == nil {
		out.Matches = []api.FileInfo{}
	}
	for i := range out.Matches {
		m := &out.Matches[i]
		if !plausible(*m) {
			return api.GlobResult{}, api.Errorf(api.CodeInternal, "the sandbox's daemon gave an answer that makes no sense")
		}
		m.Mode, m.Owner, m.Group = clean(m.Mode), clean(m.Owner), clean(m.Group)
	}
	return out, nil
}

// plausible reports whether what a guest says of a file can be true.
func plausible(f api.FileInfo) bool {
	switch f.Type {
	case "file", "directory", "symlink", "other":
	default:
		return false
	}
	return plausiblePath(f.Path) && f.Size >= 0 && f.Name != "" && f.Name != "." && f.Name != ".." &&
		(f.Name == "/" || !strings.Contains(f.Name, "/")) && !strings.ContainsRune(f.Name, 0) && len(f.Target) <= maxName
}

func plausiblePath(path string) bool {
	return strings.HasPrefix(path, "/") && len(path) <= maxName && !strings.ContainsRune(path, 0) && utf8.ValidString(path)
}

// Search finds lines of files, or files by name.
func (c *Client) Search(ctx context.Context, in api.Search, user string) (out api.SearchResult, err error) {
	if err = c.fsCall(ctx, "search", user, in, &out, in.Path, in.Pattern); err == nil && out.Matches == nil {
		out.Matches = []api.SearchMatch{}
	}
	return out, err
}

// Replace changes text in files.
func (c *Client) Replace(ctx context.Context, in api.Replace, user string) (out api.ReplaceResult, err error) {
	if err = c.fsCall(ctx, "replace", user, in, &out, in.Path, in.Pattern); err == nil && out.Files == nil {
		out.Files = []api.ReplacedFile{}
	}
	return out, err
}

// PutOptions say how a file is written, beyond replacing it in place.
type PutOptions struct {
	Append bool   // at its end
	Atomic bool   // all at once or not at all
	Offset *int64 // from here on; what was behind is dropped. No more than its size
}

// PutFile writes a file of the sandbox in one of these ways. With append and
// offset what has come when r fails stays.
func (c *Client) PutFile(ctx context.Context, path, user string, o PutOptions, r io.Reader) (info api.FileInfo, err error) {
	if _, err := filesTarget(path, user); err != nil {
		return info, err
	}
	q := url.Values{}
	switch {
	case o.Append && (o.Atomic || o.Offset != nil), o.Atomic && o.Offset != nil:
		return info, api.Errorf(api.CodeInvalidRequest, "only one of append, atomic and offset can be chosen")
	case o.Atomic:
		q.Set("atomic", "1")
	case o.Offset != nil:
		q.Set("offset", strconv.FormatInt(*o.Offset, 10))
	}
	resp, err := c.send(ctx, http.MethodPut, nativeTarget("file", path, user, q), r)
	if err != nil {
		return info, err
	}
	if err := decodeAnswer(ctx, resp, &info); err != nil {
		return info, err
	}
	if !plausible(info) {
		return info, api.Errorf(api.CodeInternal, "the sandbox's daemon gave an answer that makes no sense")
	}
	return info, nil
}

// Extract makes files of a tar or tar.gz, all of them below a directory.
func (c *Client) Extract(ctx context.Context, path, user string, r io.Reader) (out api.Extracted, err error) {
	if err := checkText(api.CodeFileInvalidPath, "the path", path, user); err != nil {
		return out, err
	}
	resp, err := c.send(ctx, http.MethodPut, nativeTarget("archive", path, user, nil), r)
	if err != nil {
		return out, err
	}
	return out, decodeAnswer(ctx, resp, &out)
}

// Archive reads a directory, or one file, as a tar.gz. The reader ends with an
// error if it did not come whole.
func (c *Client) Archive(ctx context.Context, path, user string) (io.ReadCloser, error) {
	if err := checkText(api.CodeFileInvalidPath, "the path", path, user); err != nil {
		return nil, err
	}
	resp, err := c.do(ctx, http.MethodGet, nativeTarget("archive", path, user, nil), nil, nil)
	if err != nil {
		return nil, err
	}
	return &content{ctx: ctx, body: resp.Body}, nil
}

// send makes a request whose body is r, of any length. When ctx ends, or the
// daemon has answered, no other Read of r begins. An r of known size is Sized.
func (c *Client) send(ctx context.Context, method, target string, r io.Reader) (*http.Response, error) {
	// The transport waits for what it reads from, also when it has given up. This
	// body ends with ctx and with the connection, whatever r does.
	var failed atomic.Pointer[error]
	size := int64(-1)
	if s, ok := r.(*sized); ok {
		r, size = s.Reader, s.n
	}
	body := newPieces(&source{r: r, failed: &failed})
	defer body.Close()
	defer context.AfterFunc(ctx, func() { body.stop(context.Canceled) })()
	var watching sync.WaitGroup
	defer watching.Wait()
	done := make(chan struct{})
	defer close(done)
	trace := &httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) {
		if conn, ok := i.Conn.(*watched); ok {
			watching.Go(func() {
				select {
				case <-conn.closed:
					body.stop(io.ErrUnexpectedEOF)
				case <-done:
				}
			})
		}
	}}
	resp, err := c.doSized(httptrace.WithClientTrace(ctx, trace), areaFile, method, target, body, size, http.Header{"Content-Type": {"application/octet-stream"}})
	if cause := failed.Load(); cause != nil && err != nil {
		return nil, api.Wrap(api.CodeInvalidRequest, *cause, "the bytes to be written could not all be read")
	}
	return resp, err
}

// FileWatch is the changes of a directory. Recv is for one goroutine.
type FileWatch struct {
	ctx  context.Context
	body io.ReadCloser
	r    *bufio.Reader
}

// maxWatchRecord bounds one event as it is sent: a path, each byte escaped.
const maxWatchRecord = 32 << 10

// Watch follows the changes of a directory from when it returns on.
func (c *Client) Watch(ctx context.Context, path, user string, recursive bool) (*FileWatch, error) {
	if err := checkText(api.CodeFileInvalidPath, "the path", path, user); err != nil {
		return nil, err
	}
	q := url.Values{}
	if recursive {
		q.Set("recursive", "1")
	}
	resp, err := c.do(ctx, http.MethodGet, nativeTarget("watch", path, user, q), nil, nil)
	if err != nil {
		return nil, err
	}
	w := &FileWatch{ctx: ctx, body: resp.Body, r: bufio.NewReaderSize(resp.Body, maxWatchRecord)}
	if _, err := w.record(); err != nil {
		w.Close()
		return nil, err
	}
	return w, nil
}

func (w *FileWatch) record() (api.FileEvent, error) {
	var ev api.FileEvent
	record, err := w.r.ReadSlice('\n')
	switch {
	case err == io.EOF && len(record) == 0:
		return ev, io.EOF
	case err == bufio.ErrBufferFull, err == nil && json.Unmarshal(record, &ev) != nil:
		return ev, api.Errorf(api.CodeInternal, "the sandbox's daemon sent an event that makes no sense")
	case err != nil:
		return ev, transportError(w.ctx, err)
	}
	return ev, nil
}

// Recv gives the next event; io.EOF when the directory itself is gone.
func (w *FileWatch) Recv() (api.FileEvent, error) {
	for {
		ev, err := w.record()
		switch {
		case err != nil:
			return ev, err
		case ev.Type == "":
			continue // a sign of life
		case ev.Type == api.FileOverflow:
			return api.FileEvent{Type: ev.Type}, nil
		}
		switch ev.Type {
		case api.FileCreate, api.FileWrite, api.FileRemove, api.FileRename, api.FileChmod:
			if plausiblePath(ev.Path) {
				return ev, nil
			}
		}
		return ev, api.Errorf(api.CodeInternal, "the sandbox's daemon sent an event that makes no sense")
	}
}

// Close ends the watch.
func (w *FileWatch) Close() error { return w.body.Close() }
