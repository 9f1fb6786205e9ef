//go:build linux

package guestd

import (
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"connectrpc.com/connect"
)

// copyBuffer is the size of the pieces that files are moved in.
const copyBuffer = 64 << 10

var (
	copyBuffers = sync.Pool{New: func() any { return new([copyBuffer]byte) }}
	gzipWriters = sync.Pool{New: func() any { w, _ := gzip.NewWriterLevel(nil, gzip.BestSpeed); return w }} // the level is valid
)

// download answers GET /files with the bytes of one file.
func (s *Server) download(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	encoding, ok := chooseEncoding(r.Header.Get("Accept-Encoding"))
	if !ok {
		httpError(w, http.StatusNotAcceptable, "only the encodings gzip and identity are offered")
		return
	}
	path, _, err := s.resolve(q.Get("path"), q.Get("username"))
	if err != nil {
		httpFail(w, err)
		return
	}
	f, fi, err := openRegular(path)
	if err != nil {
		httpFail(w, err)
		return
	}
	defer f.Close()
	h := w.Header()
	h.Set("Content-Disposition", "inline")
	h.Set("Content-Type", "application/octet-stream")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Vary", "Accept-Encoding")
	switch {
	case fi.Size() == 0:
		sendUnsized(w, f)
	case encoding == "gzip" && r.Header.Get("Range") == "":
		sendGzip(w, r, f)
	default:
		http.ServeContent(w, r, "", fi.ModTime(), f)
	}
}

// openRegular opens a file to read. Nothing else than a regular file is opened:
// a named pipe would wait, and a device never end.
func openRegular(path string) (*os.File, os.FileInfo, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil, missing(path)
	}
	if err != nil {
		return nil, nil, err
	}
	fi, err := f.Stat()
	switch {
	case err != nil:
	case fi.IsDir():
		err = &fault{code: connect.CodeInvalidArgument, reason: "EISDIR", text: fmt.Sprintf("path '%s' is a directory", path)}
	case !fi.Mode().IsRegular():
		err = &fault{code: connect.CodeInvalidArgument, reason: "EINVAL", text: fmt.Sprintf("path '%s' is not a regular file", path)}
	}
	if err != nil {
		f.Close()
		return nil, nil, err
	}
	return f, fi, nil
}

// sendUnsized sends a file that says it is empty: some are (which clients must
// be told as a length), and those of /proc are not.
func sendUnsized(w http.ResponseWriter, f *os.File) {
	buf := copyBuffers.Get().(*[copyBuffer]byte)
	defer copyBuffers.Put(buf)
	n, err := f.Read(buf[:])
	if n == 0 && err != nil && err != io.EOF {
		httpFail(w, err)
		return
	}
	if n == 0 {
		w.Header().Set("Content-Length", "0")
		return
	}
	for n > 0 {
		if _, err := w.Write(buf[:n]); err != nil {
			return
		}
		n, err = f.Read(buf[:])
	}
	if err != nil && err != io.EOF {
		panic(http.ErrAbortHandler) // a short answer must not look whole
	}
}

func sendGzip(w http.ResponseWriter, r *http.Request, f *os.File) {
	w.Header().Set("Content-Encoding", "gzip")
	if r.Method == http.MethodHead {
		return
	}
	z := gzipWriters.Get().(*gzip.Writer)
	defer gzipWriters.Put(z)
	z.Reset(w)
	buf := copyBuffers.Get().(*[copyBuffer]byte)
	defer copyBuffers.Put(buf)
	// The file's own WriteTo would take a buffer of its own.
	if _, err := io.CopyBuffer(z, struct{ io.Reader }{f}, buf[:]); err != nil {
		panic(http.ErrAbortHandler)
	}
	_ = z.Close() // writing failed: the client is gone
}

// chooseEncoding picks gzip or identity from Accept-Encoding. It is not ok when
// the header admits neither.
func chooseEncoding(accept string) (string, bool) {
	if strings.TrimSpace(accept) == "" {
		return "identity", true
	}
	weight := map[string]float64{}
	for part := range strings.SplitSeq(accept, ",") {
		name, params, _ := strings.Cut(part, ";")
		q := 1.0
		if v, ok := strings.CutPrefix(strings.TrimSpace(params), "q="); ok {
			f, err := strconv.ParseFloat(v, 64)
			if err != nil || !(f >= 0 && f <= 1) {
				f = 0
			}
			q = f
		}
		weight[strings.ToLower(strings.TrimSpace(name))] = q
	}
	of := func(name string) float64 {
		if q, ok := weight[name]; ok {
			return q
		}
		return weight["*"]
	}
	_, named := weight["gzip"]
	switch {
	case named && of("gzip") > 0 && of("gzip") >= of("identity"):
		return "gzip", true
	case of("identity") > 0:
		return "identity", true
	case of("gzip") > 0:
		return "gzip", true
	}
	return "", false
}
