package kernels

import (
	"encoding/json"
	"errors"
	"net/http"
	"time"
)

// Handler serves contexts over HTTP: the code interpreter's protocol, and beside
// it interrupts, languages and time limits, which that does not have. Failures
// are plain text.
func (c *Contexts) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) { text(w, http.StatusOK, "OK") })
	mux.HandleFunc("POST /execute", c.serveExecute)
	mux.HandleFunc("POST /contexts", c.serveCreate)
	mux.HandleFunc("GET /contexts", func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, c.List()) })
	mux.HandleFunc("DELETE /contexts/{id}", c.withContext(func(x *Context) error { return c.Delete(x.ID) }))
	mux.HandleFunc("POST /contexts/{id}/restart", c.withContext(func(x *Context) error { x.Restart(); return nil }))
	mux.HandleFunc("POST /contexts/{id}/interrupt", c.withContext(func(x *Context) error { x.Interrupt(); return nil }))
	mux.HandleFunc("GET /languages", func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, c.Languages()) })
	return mux
}

// executeRequest is the body of /execute. Fields may be null.
type executeRequest struct {
	Code      *string           `json:"code"`
	ContextID string            `json:"context_id"`
	Language  string            `json:"language"`
	EnvVars   map[string]string `json:"env_vars"`
	TimeoutMS int64             `json:"timeout_ms"` // ours
}

func (c *Contexts) serveExecute(w http.ResponseWriter, r *http.Request) {
	var req executeRequest
	if !decode(w, r, &req) {
		return
	}
	x, err := c.chosen(req)
	if err != nil {
		fail(w, err)
		return
	}
	rc := http.NewResponseController(w)
	w.Header().Set("Content-Type", "application/x-ndjson")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusOK)
	if rc.Flush() != nil {
		return
	}
	emit := func(line []byte) error {
		if _, err := w.Write(line); err != nil {
			return err
		}
		return rc.Flush()
	}
	out, err := x.Execute(r.Context(), Execution{
		Code: *req.Code, Env: req.EnvVars, Timeout: time.Duration(req.TimeoutMS) * time.Millisecond, Emit: emit,
	})
	if errors.Is(err, ErrDeleted) {
		err = emit(errorLine("ContextDeleted", err.Error()))
	}
	switch {
	case err != nil: // nobody reads on
	case out.TimedOut:
		_ = emit([]byte(`{"type":"end_of_execution","timed_out":true}` + "\n")) // the last that is sent
	default:
		_ = emit([]byte(`{"type":"end_of_execution"}` + "\n")) // as above
	}
}

// chosen gives the context that a request is for.
func (c *Contexts) chosen(req executeRequest) (*Context, error) {
	switch {
	case req.Code == nil:
		return nil, InvalidError("the field code is missing")
	case len(*req.Code) > MaxCode:
		return nil, InvalidError("the code is too long")
	case req.ContextID != "" && req.Language != "":
		return nil, InvalidError("only one of context_id and language may be given")
	case req.TimeoutMS < 0:
		return nil, InvalidError("timeout_ms may not be negative")
	}
	if err := checkEnv(req.EnvVars); err != nil {
		return nil, err
	}
	if req.ContextID != "" {
		return c.Get(req.ContextID)
	}
	return c.Shared(req.Language)
}

func (c *Contexts) serveCreate(w http.ResponseWriter, r *http.Request) {
	var req struct {
		Language string            `json:"language"`
		Cwd      string            `json:"cwd"`
		EnvVars  map[string]string `json:"env_vars"` // ours
	}
	if !decode(w, r, &req) {
		return
	}
	x, err := c.Create(req.Language, req.Cwd, req.EnvVars)
	if err != nil {
		fail(w, err)
		return
	}
	answer(w, http.StatusOK, x.Info)
}

func (c *Contexts) withContext(do func(*Context) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		x, err := c.Get(r.PathValue("id"))
		if err == nil {
			err = do(x)
		}
		if err != nil {
			fail(w, err)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	}
}

// decode reads a body of JSON, which may be empty.
func decode(w http.ResponseWriter, r *http.Request, into any) bool {
	// A character of the code may take six in JSON.
	body := http.MaxBytesReader(w, r.Body, 2*MaxCode)
	if r.ContentLength == 0 {
		return true
	}
	if err := json.NewDecoder(body).Decode(into); err != nil {
		text(w, http.StatusBadRequest, "the body is not the JSON of this request, or too large")
		return false
	}
	return true
}

func fail(w http.ResponseWriter, err error) {
	var bad InvalidError
	switch {
	case errors.As(err, &bad):
		text(w, http.StatusBadRequest, err.Error())
	case errors.Is(err, ErrNotFound):
		text(w, http.StatusNotFound, err.Error())
	case errors.Is(err, ErrTooMany):
		text(w, http.StatusTooManyRequests, err.Error())
	default:
		text(w, http.StatusInternalServerError, err.Error())
	}
}

func text(w http.ResponseWriter, status int, s string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(s)) // a client that has gone is no error of ours
}

func answer(w http.ResponseWriter, status int, v any) {
	data, err := json.Marshal(v)
	if err != nil {
		text(w, http.StatusInternalServerError, "the answer cannot be written")
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(data, '\n')) // as above
}
