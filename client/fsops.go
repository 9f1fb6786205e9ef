package client

import (
	"context"
	"errors"
	"io"
	"iter"
	"net/http"
	"strconv"
	"strings"

	"github.com/pandastack/pandastack/api"
)

// operation makes the request of a file operation whose body is JSON.
func (f Files) operation(name string, in any) request {
	r := f.request(http.MethodPost, name, "")
	r.query.Del("path")
	r.in = in
	return r
}

// OpenRange begins to read length bytes of a file from offset on; a negative
// length is all that follow. Where fewer are there, fewer come; where none are,
// it is request.invalid.
func (f Files) OpenRange(ctx context.Context, path string, offset, length int64) (*File, error) {
	if offset < 0 || length == 0 {
		return nil, api.Errorf(api.CodeInvalidRequest, "a range starts at 0 or later and is not empty")
	}
	r := f.request(http.MethodGet, "", path)
	r.accept = "*/*"
	last := ""
	if length > 0 {
		last = strconv.FormatInt(offset+length-1, 10)
	}
	r.header = http.Header{"Range": {"bytes=" + strconv.FormatInt(offset, 10) + "-" + last}}
	resp, err := f.c.send(ctx, r)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusPartialContent {
		resp.Body.Close()
		return nil, api.Errorf(api.CodeUnsupported, "this file has no ranges")
	}
	return f.content(ctx, resp, "application/octet-stream")
}

// WriteAtomic makes or replaces a file all at once: who reads it sees the old
// bytes or the new ones, whatever happens.
func (f Files) WriteAtomic(ctx context.Context, path string, r io.Reader) (api.FileInfo, error) {
	return f.put(ctx, "", path, "atomic", "true", r)
}

// WriteFrom writes a file from offset on, which is no more than its size, and
// drops what was behind. What has come stays when it breaks off, so that it can
// go on from there.
func (f Files) WriteFrom(ctx context.Context, path string, offset int64, r io.Reader) (api.FileInfo, error) {
	return f.put(ctx, "", path, "offset", strconv.FormatInt(offset, 10), r)
}

func (f Files) put(ctx context.Context, endpoint, path, key, value string, body io.Reader) (api.FileInfo, error) {
	r := f.request(http.MethodPut, endpoint, path)
	r.query.Set(key, value)
	r.body, r.length = body, -1
	var out api.FileInfo
	err := f.c.call(ctx, r, &out)
	return out, err
}

// Append puts bytes at the end of a file, which is made if need be.
func (f Files) Append(ctx context.Context, path string, body io.Reader) (api.FileInfo, error) {
	r := f.request(http.MethodPost, "append", path)
	r.body, r.length = body, -1
	var out api.FileInfo
	err := f.c.call(ctx, r, &out)
	return out, err
}

// Copy copies a file or a tree to a path of its own, and says how many files and
// directories. Without overwrite a file that is there is file.exists.
func (f Files) Copy(ctx context.Context, from, to string, overwrite bool) (int, error) {
	var out api.Changed
	err := f.c.call(ctx, f.operation("copy", api.CopyFile{From: from, To: to, Overwrite: overwrite}), &out)
	return out.Count, err
}

// Chmod sets permissions, given in octal as "0755".
func (f Files) Chmod(ctx context.Context, in api.ChangeMode) (int, error) {
	var out api.Changed
	err := f.c.call(ctx, f.operation("chmod", in), &out)
	return out.Count, err
}

// Chown sets owner and group.
func (f Files) Chown(ctx context.Context, in api.ChangeOwner) (int, error) {
	var out api.Changed
	err := f.c.call(ctx, f.operation("chown", in), &out)
	return out.Count, err
}

// Symlink makes a symbolic link at path that says target.
func (f Files) Symlink(ctx context.Context, target, path string) error {
	return f.c.call(ctx, f.operation("symlink", api.MakeLink{Path: path, Target: target}), nil)
}

// Readlink gives what a symbolic link says.
func (f Files) Readlink(ctx context.Context, path string) (string, error) {
	var out api.LinkTarget
	err := f.c.call(ctx, f.request(http.MethodGet, "readlink", path), &out)
	return out.Target, err
}

// Glob finds files by the pattern of their path, in which ** is any directories.
func (f Files) Glob(ctx context.Context, in api.Glob) (api.GlobResult, error) {
	var out api.GlobResult
	err := f.c.call(ctx, f.operation("glob", in), &out)
	return out, err
}

// Search finds lines of files, or files by name.
func (f Files) Search(ctx context.Context, in api.Search) (api.SearchResult, error) {
	var out api.SearchResult
	err := f.c.call(ctx, f.operation("search", in), &out)
	return out, err
}

// Replace changes text in files.
func (f Files) Replace(ctx context.Context, in api.Replace) (api.ReplaceResult, error) {
	var out api.ReplaceResult
	err := f.c.call(ctx, f.operation("replace", in), &out)
	return out, err
}

// Archive begins to read a directory, or one file, as a tar.gz.
func (f Files) Archive(ctx context.Context, path string) (*File, error) {
	r := f.request(http.MethodGet, "archive", path)
	r.accept = "*/*"
	resp, err := f.c.send(ctx, r)
	if err != nil {
		return nil, err
	}
	return f.content(ctx, resp, "application/gzip")
}

// Extract makes the files of a tar or tar.gz, all of them below a directory.
func (f Files) Extract(ctx context.Context, path string, archive io.Reader) (api.Extracted, error) {
	r := f.request(http.MethodPut, "archive", path)
	r.body, r.length = archive, -1
	var out api.Extracted
	err := f.c.call(ctx, r, &out)
	return out, err
}

// FileWatcher follows the changes of a directory. It must be closed. Next is for
// one goroutine.
type FileWatcher struct {
	ctx  context.Context
	c    *Client
	body io.Closer
	sse  *sseReader
}

// Watch begins to follow a directory, and with recursive what is below it. When
// it returns, every change from then on will come, or an event that says that
// some were lost.
func (f Files) Watch(ctx context.Context, path string, recursive bool) (*FileWatcher, error) {
	r := f.request(http.MethodGet, "watch", path)
	r.accept = "text/event-stream"
	r.query.Set("recursive", strconv.FormatBool(recursive))
	resp, err := f.c.send(ctx, r)
	if err != nil {
		return nil, err
	}
	if !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
		defer resp.Body.Close()
		return nil, f.c.notAServer(resp)
	}
	return &FileWatcher{ctx: ctx, c: f.c, body: resp.Body, sse: newSSEReader(resp.Body)}, nil
}

// Next waits for the next change; io.EOF says that the directory is gone.
func (w *FileWatcher) Next() (api.FileEvent, error) {
	ev, err := w.sse.next()
	if errors.Is(err, io.EOF) {
		return api.FileEvent{}, io.EOF
	}
	if err != nil {
		return api.FileEvent{}, w.c.transportError(w.ctx, err)
	}
	return decodeEvent[api.FileEvent](ev)
}

// All gives the changes until the directory is gone, or the first error.
func (w *FileWatcher) All() iter.Seq2[api.FileEvent, error] {
	return func(yield func(api.FileEvent, error) bool) {
		for {
			ev, err := w.Next()
			if errors.Is(err, io.EOF) || !yield(ev, err) || err != nil {
				return
			}
		}
	}
}

// Close ends it.
func (w *FileWatcher) Close() error { return w.body.Close() }

// Sign makes a URL that works without a key until it expires.
func (f Files) Sign(ctx context.Context, in api.SignFile) (api.SignedFile, error) {
	r := f.operation("sign", in)
	r.query = nil
	if in.User == "" {
		in.User = f.user
		r.in = in
	}
	var out api.SignedFile
	err := f.c.call(ctx, r, &out)
	return out, err
}
