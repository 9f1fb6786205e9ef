package host

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/pandastack/pandastack/api"
)

// The wire between control plane and host is HTTP/1.1 under one path, one
// operation for each method of Host, named like it. Arguments are query
// parameters, or the JSON body of create, fork and snapshot. Answers are JSON; a
// failure is an api.Envelope under the status of its code. The files of export and
// import are bodies as they are, of any size.
const (
	pathPrefix = "/host/v1/"

	// upgradeName is the protocol that dial switches its connection to: the
	// bytes of the guest's connection and nothing else.
	upgradeName = "pandastack-dial"

	contentJSON   = "application/json"
	contentNDJSON = "application/x-ndjson"
	contentBytes  = "application/octet-stream"

	// outcomeTrailer comes after an exported file: an api.Envelope, without an
	// error if the file is whole.
	outcomeTrailer = "Pandastack-Outcome"
)

// Bounds on what one side reads of the other.
const (
	maxRequest  = 4 << 20
	maxResponse = 64 << 20
	maxLine     = 1 << 20
	maxOutcome  = 16 << 10
)

// keepAlive is how often a stream of changes says that it is still there; the
// reader gives up after staleAfter without a word.
const (
	keepAlive  = 10 * time.Second
	staleAfter = 45 * time.Second
)

// stalledAfter is how long the other side of an export or import may take no byte,
// or give none. Behind it may be a person's line, so it is long.
const stalledAfter = 5 * time.Minute

// lingering is how long a host that has refused a file waits for its sender to
// notice.
const lingering = 10 * time.Second

// awaitContinue is how long a client waits for the host's word before it sends a
// file anyway.
const awaitContinue = 10 * time.Second

// changeLine is one line of the stream of changes. Without a change it is a
// sign of life.
type changeLine struct {
	Change *Change `json:"change,omitempty"`
}

// decodeStrict reads one JSON value and nothing after it. Fields that this
// build does not know are refused: they ask for something it would not do.
func decodeStrict(r io.Reader, into any) error {
	limited := &io.LimitedReader{R: r, N: maxRequest + 1}
	d := json.NewDecoder(limited)
	d.DisallowUnknownFields()
	err := d.Decode(into)
	if err == nil {
		if _, more := d.Token(); !errors.Is(more, io.EOF) {
			err = errors.New("there is more than one JSON value")
		}
	}
	switch {
	case limited.N <= 0:
		return api.Errorf(api.CodeTooLarge, "the request is larger than %d bytes", maxRequest)
	case err == nil:
		return nil
	case strings.HasPrefix(err.Error(), "json: unknown field "):
		return api.Errorf(api.CodeUnknownField, "unknown field %s", strings.TrimPrefix(err.Error(), "json: unknown field "))
	}
	return api.Errorf(api.CodeInvalidRequest, "the request is not valid: %v", err)
}

// decodeAnswer reads the body of an answer. Fields that this build does not
// know are fine: a newer host says more.
func decodeAnswer(resp *http.Response, into any) error {
	limited := &io.LimitedReader{R: resp.Body, N: maxResponse + 1}
	if resp.StatusCode != http.StatusOK {
		return decodeFailure(resp, limited)
	}
	if err := json.NewDecoder(limited).Decode(into); err != nil {
		if limited.N <= 0 {
			return api.Errorf(api.CodeInternal, "the host's answer is larger than %d bytes", maxResponse)
		}
		return err
	}
	// To the end, so that the connection can be used again.
	_, err := io.Copy(io.Discard, limited)
	return err
}

func decodeFailure(resp *http.Response, body io.Reader) error {
	var e api.Envelope
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if kind == contentJSON && json.NewDecoder(body).Decode(&e) == nil && e.Error != nil && e.Error.Code != "" {
		return e.Error
	}
	return api.Errorf(api.CodeHostUnreachable, "what answers for the host is not a host: %s", resp.Status)
}

// encodeOutcome gives what the trailer of an export says. In JSON every byte that
// may not be in a header is escaped, but for those beyond ASCII.
func encodeOutcome(e *api.Error) string {
	text, err := json.Marshal(api.Envelope{Error: e})
	if err != nil || len(text) > maxOutcome {
		text, _ = json.Marshal(api.Envelope{Error: api.Errorf(e.Code, "the export failed")}) // of plain strings
	}
	return strconv.QuoteToASCII(string(text))
}

// decodeOutcome gives the error that a trailer says, and io.EOF if the file is
// whole.
func decodeOutcome(trailer string) error {
	var e api.Envelope
	text, err := strconv.Unquote(trailer)
	if err != nil || json.Unmarshal([]byte(text), &e) != nil {
		return io.ErrUnexpectedEOF
	}
	if e.Error != nil {
		return e.Error
	}
	return io.EOF
}

// coded gives the code of an ended context to an error that has none.
func coded(err error) *api.Error {
	var e *api.Error
	switch {
	case errors.As(err, &e):
		return e
	case errors.Is(err, context.DeadlineExceeded):
		return api.Wrap(api.CodeTimeout, err, "the host did not finish in time")
	case errors.Is(err, context.Canceled):
		return api.Wrap(api.CodeCanceled, err, "the request was given up")
	}
	return api.AsError(err)
}
