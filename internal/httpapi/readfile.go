package httpapi

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"github.com/danielgtaylor/huma/v2"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/guest"
)

type readInput struct {
	FilePath
	Range string `header:"Range" doc:"One range of bytes" example:"bytes=0-1023"`
}

func (a *API) readFile(ctx context.Context, in *readInput) (*huma.StreamResponse, error) {
	client, err := a.Control.Guest(ctx, who(ctx), in.ID)
	if err != nil {
		return nil, err
	}
	return raw(func(w http.ResponseWriter, r *http.Request) { a.sendFile(w, r, client, in) }), nil
}

// sendFile answers with the bytes of a file, or a range of them.
func (a *API) sendFile(w http.ResponseWriter, r *http.Request, client *guest.Client, in *readInput) {
	h := w.Header()
	h.Set("Accept-Ranges", "bytes")
	h.Set("X-Content-Type-Options", "nosniff") // the bytes are the sandbox's, not ours
	from, length, ranged := parseRange(in.Range)
	var err error
	if r.Method == http.MethodHead || ranged {
		err = sendDescribed(w, r, client, in, from, length, ranged)
	} else {
		err = sendWhole(w, r, client, in)
	}
	if err != nil {
		a.fail(w, r, err)
	}
}

// sendWhole answers with all of a file. An error means that nothing was sent.
func sendWhole(w http.ResponseWriter, r *http.Request, client *guest.Client, in *readInput) error {
	body, size, err := client.ReadFile(r.Context(), in.Path, in.User)
	if err != nil {
		return err
	}
	defer body.Close()
	copyBody(w, r, http.StatusOK, body, size)
	return nil
}

// sendDescribed answers a HEAD request or one for a range, which need to know
// the size of the file first.
func sendDescribed(w http.ResponseWriter, r *http.Request, client *guest.Client, in *readInput, from, length int64, ranged bool) error {
	info, err := client.Stat(r.Context(), in.Path, in.User)
	if err != nil {
		return err
	}
	if info.Type == "directory" {
		return api.Errorf(api.CodeFileIsDirectory, "%s is a directory", clip(in.Path))
	}
	w.Header().Set("Last-Modified", info.Modified.UTC().Format(http.TimeFormat))
	status, size := http.StatusOK, info.Size
	if ranged {
		if from, size = resolveRange(from, length, info.Size); size <= 0 {
			w.Header().Set("Content-Range", fmt.Sprintf("bytes */%d", info.Size))
			return &statusError{api.Errorf(api.CodeInvalidRequest, "the range is outside the file of %d bytes", info.Size).With("field", "Range"),
				http.StatusRequestedRangeNotSatisfiable}
		}
		status = http.StatusPartialContent
		w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, from+size-1, info.Size))
	}
	if r.Method == http.MethodHead {
		copyBody(w, r, status, strings.NewReader(""), size)
		return nil
	}
	body, _, err := client.ReadFileRange(r.Context(), in.Path, in.User, from, size)
	if err != nil {
		w.Header().Del("Content-Range")
		return err
	}
	defer body.Close()
	copyBody(w, r, status, body, size)
	return nil
}

// copyBody sends the bytes of a file. A file that does not come whole cuts the
// connection, which is the only way left to say so.
func copyBody(w http.ResponseWriter, r *http.Request, status int, body io.Reader, size int64) {
	w.Header().Set("Content-Type", "application/octet-stream")
	if size >= 0 {
		w.Header().Set("Content-Length", strconv.FormatInt(size, 10))
	}
	w.WriteHeader(status)
	if r.Method == http.MethodHead {
		return
	}
	if _, err := copyFrom(w, body); err != nil {
		requestOf(r.Context()).err = err
		panic(http.ErrAbortHandler)
	}
}

// copyBuffer is the size of the pieces in which files are sent. A piece costs the
// same at every hop, whatever its size.
const copyBuffer = 256 << 10

var copyBuffers = sync.Pool{New: func() any { return new([copyBuffer]byte) }}

// copyFrom copies what comes from a sandbox.
func copyFrom(w io.Writer, body io.Reader) (int64, error) {
	buf := copyBuffers.Get().(*[copyBuffer]byte)
	defer copyBuffers.Put(buf)
	return io.CopyBuffer(struct{ io.Writer }{w}, body, buf[:])
}

// parseRange reads a Range header with one range. from is negative for the last
// so many bytes, and length for all that follow. Anything else is ignored, as
// HTTP allows: the answer is then the whole file.
func parseRange(h string) (from, length int64, ok bool) {
	spec, ok := strings.CutPrefix(h, "bytes=")
	if !ok || strings.Contains(spec, ",") {
		return 0, 0, false
	}
	first, last, ok := strings.Cut(strings.TrimSpace(spec), "-")
	if !ok {
		return 0, 0, false
	}
	if first == "" {
		n, err := strconv.ParseInt(last, 10, 64)
		return -n, -1, err == nil && n > 0
	}
	from, err := strconv.ParseInt(first, 10, 64)
	if err != nil || from < 0 {
		return 0, 0, false
	}
	if last == "" {
		return from, -1, true
	}
	to, err := strconv.ParseInt(last, 10, 64)
	if err != nil || to < from {
		return 0, 0, false
	}
	return from, to - from + 1, true
}

// resolveRange fits a range to a file; the length is 0 or less where they do
// not meet.
func resolveRange(from, length, size int64) (start, n int64) {
	if from < 0 {
		from = max(0, size+from)
	}
	n = size - from
	if length >= 0 {
		n = min(n, length)
	}
	return from, n
}
