package client

import (
	"bytes"
	"context"
	"errors"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strconv"

	"github.com/pandastack/pandastack/api"
)

// Files is the filesystem of a sandbox for one of its users: relative paths
// start in that user's home directory, and what is made belongs to the user.
// Failures carry file.* codes: file.not_found, file.permission_denied,
// file.is_directory, file.no_space and others.
type Files struct {
	c    *Client
	id   string
	user string // empty: the sandbox's default user
}

// As gives the same filesystem for another user, such as root.
func (f Files) As(user string) Files {
	f.user = user
	return f
}

func (f Files) request(method, endpoint, path string) request {
	q := url.Values{"path": {path}}
	if f.user != "" {
		q.Set("user", f.user)
	}
	segments := []string{"v1", "sandboxes", f.id, "fs"}
	if endpoint != "" {
		segments = append(segments, endpoint)
	}
	return request{method: method, path: segments, query: q}
}

// File is a file's bytes as they come. It must be closed. A Read error other
// than io.EOF means that not all of it came.
type File struct {
	Size int64 // -1 when the server does not know it beforehand
	body io.ReadCloser
	ctx  context.Context
	c    *Client
}

// Read implements io.Reader.
func (f *File) Read(p []byte) (int, error) {
	n, err := f.body.Read(p)
	if err != nil && !errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = f.c.transportError(f.ctx, err)
	}
	return n, err
}

// Close drops what was not read.
func (f *File) Close() error { return f.body.Close() }

// Open begins to read a file. The context covers the reading too.
func (f Files) Open(ctx context.Context, path string) (*File, error) {
	r := f.request(http.MethodGet, "", path)
	r.accept = "*/*"
	resp, err := f.c.send(ctx, r)
	if err != nil {
		return nil, err
	}
	return f.content(ctx, resp, "application/octet-stream")
}

// content gives the body of an answer, which must be of a kind: whatever else a
// proxy may answer with is not what a file holds.
func (f Files) content(ctx context.Context, resp *http.Response, kind string) (*File, error) {
	if is, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); is != kind {
		resp.Body.Close()
		return nil, f.c.notAServer(resp)
	}
	return &File{Size: resp.ContentLength, body: resp.Body, ctx: ctx, c: f.c}, nil
}

// ReadFile reads a whole file into memory.
func (f Files) ReadFile(ctx context.Context, path string) ([]byte, error) {
	file, err := f.Open(ctx, path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return io.ReadAll(file)
}

// WriteFile makes or replaces a file, and the directories above it.
func (f Files) WriteFile(ctx context.Context, path string, data []byte) error {
	return f.upload(ctx, path, bytes.NewReader(data), int64(len(data)))
}

// Upload makes or replaces a file from a reader of any length.
func (f Files) Upload(ctx context.Context, path string, r io.Reader) error {
	return f.upload(ctx, path, r, -1)
}

func (f Files) upload(ctx context.Context, path string, body io.Reader, length int64) error {
	r := f.request(http.MethodPut, "", path)
	r.body, r.length = body, length
	if length == 0 {
		r.body = http.NoBody
	}
	return f.c.call(ctx, r, nil)
}

// FileWriter writes a file in a sandbox. What was written is there once Close
// has returned nil.
type FileWriter struct {
	pipe *io.PipeWriter
	done chan struct{}
	err  error
}

// Create begins to write a file. It fails only in Write or Close.
func (f Files) Create(ctx context.Context, path string) *FileWriter {
	r, w := io.Pipe()
	out := &FileWriter{pipe: w, done: make(chan struct{})}
	go func() {
		defer close(out.done)
		out.err = f.upload(ctx, path, r, -1)
		cause := out.err
		if cause == nil {
			cause = io.ErrClosedPipe
		}
		r.CloseWithError(cause)
	}()
	return out
}

// Write implements io.Writer.
func (w *FileWriter) Write(p []byte) (int, error) { return w.pipe.Write(p) }

// Close ends the file and waits until it is written. Calling it again gives
// the same answer.
func (w *FileWriter) Close() error {
	w.pipe.Close()
	<-w.done
	return w.err
}

// Stat describes a file or directory.
func (f Files) Stat(ctx context.Context, path string) (api.FileInfo, error) {
	var out api.FileInfo
	err := f.c.call(ctx, f.request(http.MethodGet, "stat", path), &out)
	return out, err
}

// ReadDir lists a directory.
func (f Files) ReadDir(ctx context.Context, path string) ([]api.FileInfo, error) {
	return f.ReadTree(ctx, path, 1)
}

// ReadTree lists a directory and depth-1 levels of those within.
func (f Files) ReadTree(ctx context.Context, path string, depth int) ([]api.FileInfo, error) {
	r := f.request(http.MethodGet, "dir", path)
	r.query.Set("depth", strconv.Itoa(depth))
	var out api.DirList
	err := f.c.call(ctx, r, &out)
	return out.Entries, err
}

// MkdirAll makes a directory and those above it. One that exists is no error.
func (f Files) MkdirAll(ctx context.Context, path string) error {
	return f.c.call(ctx, f.request(http.MethodPost, "dir", path), nil)
}

// Remove removes a file, or a directory with all that is in it.
func (f Files) Remove(ctx context.Context, path string) error {
	return f.c.call(ctx, f.request(http.MethodDelete, "", path), nil)
}

// Rename moves a file or directory.
func (f Files) Rename(ctx context.Context, from, to string) error {
	r := f.request(http.MethodPost, "move", "")
	r.query.Del("path")
	r.in = map[string]string{"from": from, "to": to}
	return f.c.call(ctx, r, nil)
}
