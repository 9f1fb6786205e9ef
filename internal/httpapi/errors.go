package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/pandastack/pandastack/api"
)

// What is still read of a body whose request was refused.
const (
	lingerTime  = 2 * time.Second
	lingerBytes = 16 << 20
)

// envelope is the body of every failed request, api.Envelope in the form that
// the HTTP framework takes for an error.
type envelope struct {
	Failure *api.Error `json:"error"`
	status  int
}

func (e *envelope) Error() string  { return e.Failure.Error() }
func (e *envelope) GetStatus() int { return e.status }

// statusError is an error under another HTTP status than its code's, for the
// few places where HTTP itself prescribes one.
type statusError struct {
	error
	status int
}

func (e *statusError) Unwrap() error { return e.error }

// installErrors makes the framework's own errors ours, and lists in its schemas
// never null. The framework keeps both in variables of its package; they are set
// once, to what depends on nothing but the request.
var installErrors = sync.OnceFunc(func() {
	huma.DefaultArrayNullable = false
	huma.NewErrorWithContext = func(ctx huma.Context, status int, msg string, errs ...error) huma.StatusError {
		e := newEnvelope(ctx.Context(), fromFramework(status, msg, errs))
		setErrorHeaders(ctx.SetHeader, e)
		return e
	}
	huma.NewError = func(status int, msg string, errs ...error) huma.StatusError {
		return &envelope{Failure: api.AsError(fromFramework(status, msg, errs)), status: status}
	}
})

// newEnvelope turns an error into what the caller may see of it and notes the
// whole of it for the request's log line. It is the only maker of error
// answers.
func newEnvelope(ctx context.Context, err error) *envelope {
	coded := *codeError(ctx, err)
	out := &envelope{Failure: &coded, status: coded.Status()}
	var st *statusError
	if errors.As(err, &st) {
		out.status = st.status
	}
	retryable := catalogue()[coded.Code].Retryable
	details := make(map[string]any, len(coded.Details)+2)
	if retryable {
		details["retry_after_sec"] = 1
	}
	for k, v := range coded.Details {
		details[k] = v
	}
	details["retryable"] = retryable
	coded.Details = details
	if req := requestOf(ctx); req != nil {
		coded.RequestID = req.id
		req.err = err
	}
	return out
}

var catalogue = sync.OnceValue(func() map[api.Code]api.Info {
	m := make(map[api.Code]api.Info)
	for _, i := range api.Catalogue() {
		m[i.Code] = i
	}
	return m
})

// codeError finds the code of an error. Where the request was ended on purpose,
// the purpose is the answer, whatever became of the work. An error without a
// code is internal, and its text goes only to the log.
func codeError(ctx context.Context, err error) *api.Error {
	var coded, cause *api.Error
	isCoded := errors.As(err, &coded)
	canceled := errors.Is(err, context.Canceled) || isCoded && coded.Code == api.CodeCanceled
	switch {
	case canceled && errors.As(context.Cause(ctx), &cause):
		return cause
	case isCoded:
		return coded
	case canceled && ctx.Err() != nil:
		return api.Wrap(api.CodeCanceled, err, "the client closed the connection")
	case errors.Is(err, context.DeadlineExceeded):
		return api.Wrap(api.CodeTimeout, err, "the server did not finish in time")
	}
	return api.AsError(err)
}

func setErrorHeaders(set func(k, v string), e *envelope) {
	if e.status == http.StatusUnauthorized {
		set("WWW-Authenticate", `Bearer realm="pandastack"`)
	}
	if s := seconds(e.Failure.Details["retry_after_sec"]); s > 0 &&
		(e.status == http.StatusTooManyRequests || e.status == http.StatusServiceUnavailable) {
		set("Retry-After", strconv.Itoa(s))
	}
}

func seconds(v any) int {
	switch n := v.(type) {
	case int:
		return n
	case int64:
		return int(n)
	case float64:
		return int(n + 0.999)
	}
	return 0
}

// fail answers with an error where the framework is not asked: before it and
// in streams that have sent nothing yet.
func (a *API) fail(w http.ResponseWriter, r *http.Request, err error) {
	e := newEnvelope(r.Context(), err)
	h := w.Header()
	for _, k := range []string{"Content-Length", "Content-Encoding", "Last-Modified", "Cache-Control"} {
		h.Del(k)
	}
	h.Set("Content-Type", "application/json")
	setErrorHeaders(h.Set, e)
	body, merr := json.Marshal(e)
	if merr != nil { // a detail that is no JSON; the code and the message are
		e.Failure.Details = nil
		body, _ = json.Marshal(e)
	}
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(e.status)
	if r.Method != http.MethodHead {
		_, _ = w.Write(body) // a client that has gone is no error of ours
	}
}

// refuse is fail for a request whose body was not read to its end. The answer
// goes out at once and is the last of its connection; what the client still
// sends is taken for a moment, since closing on it would reset the connection
// under the answer.
func (a *API) refuse(w http.ResponseWriter, r *http.Request, err error) {
	if r.ContentLength == 0 {
		a.fail(w, r, err)
		return
	}
	early(w, r, func() { a.fail(w, r, err) })
}

// early is what refuse does with any answer.
func early(w http.ResponseWriter, r *http.Request, answer func()) {
	rc := http.NewResponseController(w)
	duplex := rc.EnableFullDuplex()
	w.Header().Set("Connection", "close")
	answer()
	if duplex == nil && rc.Flush() == nil && rc.SetReadDeadline(time.Now().Add(lingerTime)) == nil {
		_, _ = io.CopyN(io.Discard, r.Body, lingerBytes)
	}
}
