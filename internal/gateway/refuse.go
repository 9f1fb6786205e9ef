package gateway

import (
	"encoding/json"
	"errors"
	"html/template"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/pandastack/pandastack/api"
)

// comeBack is when a client may try again after a failure that can pass by
// itself.
const comeBack = 5

// asleep gives a sandbox that could not be made to answer 503, whatever its
// state is called elsewhere: the same request may succeed later. One that is
// gone or dead stays so.
func asleep(err error) error {
	e := api.AsError(err)
	switch e.Code {
	case api.CodeSandboxNotFound, api.CodeSandboxDied, api.CodeCanceled, api.CodeForbidden, api.CodeInvalidRequest:
		return err
	}
	if e.Details["status"] == string(api.StatusCreating) {
		return &unready{cause: e, title: "The sandbox is starting", after: 1}
	}
	return &unready{cause: e, title: "The sandbox cannot be woken now", after: comeBack}
}

// unready is a sandbox that cannot answer now.
type unready struct {
	cause *api.Error
	title string
	after int // seconds
}

func (u *unready) Error() string { return u.cause.Error() }
func (u *unready) Unwrap() error { return u.cause }

// refuse answers a request that the sandbox does not: with a page for people and
// the envelope of the API for programs.
func (g *Gateway) refuse(w http.ResponseWriter, r *http.Request, requestID string, v *visit, from time.Time, err error) {
	e, status, title := *api.AsError(err), 0, "This preview cannot be shown"
	status = e.Status()
	h := w.Header()
	var not *unready
	switch {
	case errors.As(err, &not):
		status, title = http.StatusServiceUnavailable, not.title
		e = *e.With("retryable", true)
		e = *e.With("retry_after_sec", not.after)
		h.Set("Retry-After", strconv.Itoa(not.after))
	case e.Code == api.CodeSandboxNotFound:
		title = "There is no such sandbox"
	case e.Code == api.CodeSandboxDied:
		status, title = http.StatusBadGateway, "The sandbox has ended"
	case e.Code == api.CodePreviewUnreachable:
		title = "Nothing answers on port " + strconv.Itoa(v.port)
	case e.Code == api.CodeInvalidToken:
		title = "This preview is private"
	}
	e.RequestID = requestID
	if e.Details["retryable"] == nil {
		e = *e.With("retryable", retryable(e.Code))
	}
	h.Set("X-Request-Id", requestID)
	h.Set("Cache-Control", "no-store")
	if v.grpc {
		// A client of gRPC reads this and nothing of a body.
		h.Set("Content-Type", "application/grpc")
		h.Set("Grpc-Status", grpcStatus(status))
		h.Set("Grpc-Message", string(e.Code))
		w.WriteHeader(http.StatusOK)
	} else if wantsPage(r) {
		showPage(w, status, title, e)
	} else {
		h.Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(api.Envelope{Error: &e}) // a client that has gone is no error of ours
	}
	g.Log.Debug("preview refused", "request_id", requestID, "sandbox_id", v.id, "port", v.port, "status", status,
		"duration_ms", float64(time.Since(from).Microseconds())/1000, "error", err)
}

// grpcStatus is the number that clients of gRPC know a status by.
func grpcStatus(status int) string {
	switch status {
	case http.StatusBadRequest:
		return "3"
	case http.StatusNotFound:
		return "5"
	case http.StatusForbidden:
		return "7"
	case http.StatusUnauthorized:
		return "16"
	}
	return "14"
}

func retryable(code api.Code) bool {
	for _, i := range api.Catalogue() {
		if i.Code == code {
			return i.Retryable
		}
	}
	return false
}

var page = sync.OnceValue(func() *template.Template { return template.Must(template.New("page").Parse(pageText)) })

const pageText = `<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{{.Title}}</title>
{{if .After}}<meta http-equiv="refresh" content="{{.After}}">
{{end}}<style>body{font:16px/1.5 system-ui,sans-serif;max-width:36rem;margin:15vh auto;padding:0 1.5rem;color:#222;background:#fff}
h1{font-size:1.4rem}code{background:#eee;padding:.1em .3em;border-radius:.2em}footer{margin-top:2rem;color:#777;font-size:.85rem}
@media(prefers-color-scheme:dark){body{color:#ddd;background:#181818}code{background:#333}}</style></head>
<body><h1>{{.Title}}</h1><p>{{.Error.Message}}</p>{{with .Error.Hint}}<p>{{.}}</p>{{end}}
<footer><code>{{.Error.Code}}</code> · {{.Error.RequestID}}</footer></body></html>
`

// showPage answers with a page. It runs nothing and fetches nothing.
func showPage(w http.ResponseWriter, status int, title string, e api.Error) {
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_ = page().Execute(w, struct { // a client that has gone is no error of ours
		Title string
		After any
		Error api.Error
	}{title, e.Details["retry_after_sec"], e})
}
