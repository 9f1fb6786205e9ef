//go:build linux

package guestd

import (
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// Bounds of an upload.
const (
	maxParts       = 10_000
	maxMetadataKey = 246
	maxMetadata    = 4096
	uploadIdle     = 2 * time.Minute // without a byte from the client
)

// written is what an upload answers for one file.
type written struct {
	Name     string            `json:"name"`
	Path     string            `json:"path"`
	Type     string            `json:"type"`
	Metadata map[string]string `json:"metadata,omitempty"`
}

// upload answers POST /files. Each file is made, then given to its user, then
// written, in place: clients count these events.
func (s *Server) upload(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	meta, err := metadata(r.Header)
	if err != nil {
		httpFail(w, err)
		return
	}
	body, err := uploadBody(w, r)
	if err != nil {
		httpFail(w, err)
		return
	}
	kind, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	up := &uploading{s: s, username: q.Get("username"), meta: meta}
	switch {
	case err == nil && kind == "multipart/form-data":
		err = up.multipart(multipart.NewReader(body, params["boundary"]), q.Get("path"))
	case err == nil && kind == "application/octet-stream":
		if q.Get("path") == "" {
			err = invalid("an upload of application/octet-stream needs a path")
			break
		}
		err = up.file(q.Get("path"), body)
	default:
		err = invalid("uploads are multipart/form-data or application/octet-stream")
	}
	if err != nil {
		httpFail(w, err)
		return
	}
	httpJSON(w, up.done)
}

// uploadBody is the body of the request, inflated, which ends when the client
// sends nothing for too long.
func uploadBody(w http.ResponseWriter, r *http.Request) (io.Reader, error) {
	body := io.Reader(&idleReader{r: r.Body, c: http.NewResponseController(w)})
	switch enc := strings.ToLower(strings.TrimSpace(r.Header.Get("Content-Encoding"))); enc {
	case "", "identity":
		return body, nil
	case "gzip":
		z, err := gzip.NewReader(body)
		if err != nil {
			return nil, invalid("the body is not gzip")
		}
		return z, nil
	default:
		return nil, invalid("unsupported content encoding: " + printable(enc, 64))
	}
}

type idleReader struct {
	r io.Reader
	c *http.ResponseController
}

func (i *idleReader) Read(p []byte) (int, error) {
	_ = i.c.SetReadDeadline(time.Now().Add(uploadIdle)) // a connection always has one
	return i.r.Read(p)
}

// metadata takes the X-Metadata-* headers of an upload.
func metadata(h http.Header) (map[string]string, error) {
	var out map[string]string
	total := 0
	for name, values := range h {
		key, ok := strings.CutPrefix(name, "X-Metadata-")
		if !ok {
			continue
		}
		key = strings.ToLower(key)
		value := strings.Join(values, ",")
		total += len(key) + len(value)
		if key == "" || len(key) > maxMetadataKey || total > maxMetadata || !printableASCII(key+value) {
			return nil, invalid(fmt.Sprintf("metadata is printable ASCII, keys of at most %d and altogether %d bytes", maxMetadataKey, maxMetadata))
		}
		if out == nil {
			out = map[string]string{}
		}
		out[key] = value
	}
	return out, nil
}

func printableASCII(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

// uploading is one request's files.
type uploading struct {
	s        *Server
	username string
	meta     map[string]string
	done     []written
}

// multipart takes the parts named file. A path in the query is the target of
// the only one; else each part's file name is its full target.
func (u *uploading) multipart(parts *multipart.Reader, path string) error {
	u.done = []written{}
	for {
		part, err := parts.NextRawPart()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return bodyError(err)
		}
		form, name := partName(part.Header.Get("Content-Disposition"))
		if form != "file" {
			continue
		}
		target := name
		if path != "" {
			if target = path; len(u.done) > 0 {
				return invalid("a path in the query goes with one file only")
			}
		}
		if target == "" {
			return invalid("a part has no file name, and there is no path in the query")
		}
		if len(u.done) == maxParts {
			return invalid(fmt.Sprintf("more than %d files in one request", maxParts))
		}
		if err := u.file(target, part); err != nil {
			return err
		}
	}
}

// partName gives the form field and the file name of a part. The library's own
// method drops the directories of the file name.
func partName(disposition string) (form, file string) {
	kind, params, err := mime.ParseMediaType(disposition)
	if err != nil || kind != "form-data" {
		return "", ""
	}
	return params["name"], params["filename"]
}

// file writes one file.
func (u *uploading) file(target string, body io.Reader) error {
	path, owner, err := u.s.resolve(target, u.username)
	if err != nil {
		return err
	}
	for _, d := range u.done {
		if d.Path == path {
			return invalid(fmt.Sprintf("path '%s' is in this request twice", path))
		}
	}
	if err := writeFile(path, owner, u.meta, body); err != nil {
		return err
	}
	u.done = append(u.done, written{Name: filepath.Base(path), Path: path, Type: "file", Metadata: u.meta})
	return nil
}

// writeFile replaces the content of a file, making it and its parents. A file
// that is new and could not be written whole is removed.
func writeFile(path string, owner user, meta map[string]string, body io.Reader) error {
	if fi, err := os.Stat(path); err == nil && !fi.Mode().IsRegular() {
		return notRegular(path, fi)
	}
	if _, err := mkdirOwned(filepath.Dir(path), owner); err != nil {
		return err
	}
	f, fresh, err := create(path)
	if err != nil {
		return err
	}
	err = f.Chown(int(owner.uid), int(owner.gid))
	if err == nil {
		err = replaceMetadata(f, meta)
	}
	if err == nil {
		err = copyInto(f, body)
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil && fresh {
		_ = os.Remove(path) // the first error is the one to tell
	}
	return err
}

// create opens a file to write from its start and says whether it is new.
func create(path string) (f *os.File, fresh bool, err error) {
	const flags = os.O_WRONLY | os.O_CREATE | syscall.O_NONBLOCK
	if f, err = os.OpenFile(path, flags|os.O_EXCL, 0o666); err == nil {
		return f, true, nil
	}
	if !errors.Is(err, os.ErrExist) {
		return nil, false, err
	}
	f, err = os.OpenFile(path, flags|os.O_TRUNC, 0o666)
	return f, false, err
}

// copyInto copies in full buffers, so that a small file is one write however
// its bytes arrive. One that does not fit goes on in wide ones.
func copyInto(f *os.File, body io.Reader) error {
	pooled := copyBuffers.Get().(*[copyBuffer]byte)
	defer copyBuffers.Put(pooled)
	buf := pooled[:]
	var wide []byte
	defer func() {
		if wide != nil {
			giveWide(wide)
		}
	}()
	for {
		var n int
		var err error
		for n < len(buf) && err == nil { // not io.ReadFull, which says of a broken body that it is a short one
			var m int
			m, err = body.Read(buf[n:])
			n += m
		}
		if n > 0 {
			if _, werr := f.Write(buf[:n]); werr != nil {
				return werr
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return bodyError(err)
		}
		if wide == nil {
			if wide = takeWide(); wide != nil {
				buf = wide
			}
		}
	}
}

// bodyError says that the client's bytes did not all come.
func bodyError(err error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return invalid("the upload stood still for too long")
	}
	return invalid("the body of the request broke off or is malformed: " + printable(err.Error(), 200))
}
