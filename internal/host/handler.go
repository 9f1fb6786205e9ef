package host

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/pandastack/pandastack/api"
)

// Handler serves a Host to a Client. Its server must not limit the time of
// reads and writes, since dial, changes, export and import last; when the base
// context of the server ends, so do they. Who may call is decided by the server's TLS (ServerTLS).
type Handler struct {
	host Host
	log  *slog.Logger
	mux  *http.ServeMux
}

// NewHandler makes a Handler. The log gets the causes of failures that have no
// code of their own, which do not cross the wire.
func NewHandler(h Host, log *slog.Logger) *Handler {
	s := &Handler{host: h, log: log, mux: http.NewServeMux()}
	answer := func(op string, f func(r *http.Request) (any, error)) {
		method := http.MethodPost
		switch op {
		case "info", "get", "list", "usage", "usages", "templates", "get-snapshot", "snapshots", "network-log":
			method = http.MethodGet
		}
		s.mux.HandleFunc(method+" "+pathPrefix+op, func(w http.ResponseWriter, r *http.Request) {
			out, err := f(r)
			if err != nil {
				s.fail(w, r, err)
				return
			}
			s.write(w, r, http.StatusOK, out)
		})
	}
	answer("info", func(r *http.Request) (any, error) { return h.Info(r.Context()) })
	answer("create", s.create)
	answer("get", func(r *http.Request) (any, error) { return h.Get(r.Context(), id(r)) })
	answer("list", func(r *http.Request) (any, error) { return h.List(r.Context()) })
	answer("delete", func(r *http.Request) (any, error) { return struct{}{}, h.Delete(r.Context(), id(r)) })
	answer("pause", func(r *http.Request) (any, error) { return struct{}{}, h.Pause(r.Context(), id(r)) })
	answer("resume", func(r *http.Request) (any, error) { return struct{}{}, h.Resume(r.Context(), id(r)) })
	answer("usage", func(r *http.Request) (any, error) { return h.Usage(r.Context(), id(r)) })
	answer("usages", func(r *http.Request) (any, error) { return h.Usages(r.Context()) })
	answer("templates", func(r *http.Request) (any, error) { return h.Templates(r.Context()) })
	answer("set-network", s.setNetwork)
	answer("network-log", s.networkLog)
	answer("fork", s.fork)
	answer("hibernate", func(r *http.Request) (any, error) { return struct{}{}, h.Hibernate(r.Context(), id(r)) })
	answer("wake", func(r *http.Request) (any, error) { return h.Wake(r.Context(), id(r)) })
	answer("rollback", s.rollback)
	answer("snapshot", s.snapshot)
	answer("get-snapshot", func(r *http.Request) (any, error) { return h.GetSnapshot(r.Context(), id(r)) })
	answer("snapshots", func(r *http.Request) (any, error) { return h.Snapshots(r.Context()) })
	answer("delete-snapshot", func(r *http.Request) (any, error) { return struct{}{}, h.DeleteSnapshot(r.Context(), id(r)) })
	s.mux.HandleFunc("GET "+pathPrefix+"export", s.export)
	s.mux.HandleFunc("POST "+pathPrefix+"import", s.importFile)
	s.mux.HandleFunc("GET "+pathPrefix+"dial", s.dial)
	s.mux.HandleFunc("GET "+pathPrefix+"changes", s.changes)
	s.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		s.fail(w, r, api.Errorf(api.CodeNotFound, "a host has no %s %s", r.Method, r.URL.Path))
	})
	return s
}

func (s *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	defer func() {
		v := recover()
		if v == nil {
			return
		}
		if v == http.ErrAbortHandler {
			panic(v) // the server cuts the answer off, so that it does not look whole
		}
		s.fail(w, r, fmt.Errorf("panic: %v\n%s", v, debug.Stack()))
	}()
	s.mux.ServeHTTP(w, r)
}

func id(r *http.Request) string { return r.URL.Query().Get("id") }

func (s *Handler) create(r *http.Request) (any, error) {
	var spec Spec
	if err := decodeStrict(r.Body, &spec); err != nil {
		return nil, err
	}
	return s.host.Create(r.Context(), spec)
}

func (s *Handler) setNetwork(r *http.Request) (any, error) {
	var n Network
	if err := decodeStrict(r.Body, &n); err != nil {
		return nil, err
	}
	return struct{}{}, s.host.SetNetwork(r.Context(), id(r), n)
}

func (s *Handler) networkLog(r *http.Request) (any, error) {
	q := r.URL.Query()
	since, err := strconv.ParseInt(q.Get("since"), 10, 64)
	if err != nil {
		return nil, api.Errorf(api.CodeInvalidRequest, "since: %q is not a number", q.Get("since"))
	}
	limit, err := strconv.Atoi(q.Get("limit"))
	if err != nil {
		return nil, api.Errorf(api.CodeInvalidRequest, "limit: %q is not a number", q.Get("limit"))
	}
	return s.host.NetworkLog(r.Context(), id(r), since, limit)
}

// dial connects first and switches protocols only then, so that a failure is an
// answer like any other.
func (s *Handler) dial(w http.ResponseWriter, r *http.Request) {
	if !strings.EqualFold(r.Header.Get("Upgrade"), upgradeName) {
		s.fail(w, r, api.Errorf(api.CodeInvalidRequest, "dial needs the header Upgrade: %s", upgradeName))
		return
	}
	port, err := strconv.Atoi(r.URL.Query().Get("port"))
	if err != nil || port < 1 || port > 65535 {
		s.fail(w, r, api.Errorf(api.CodeInvalidRequest, "port: %q is not a number from 1 to 65535", r.URL.Query().Get("port")))
		return
	}
	guest, err := s.host.Dial(r.Context(), id(r), port)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	defer guest.Close()
	client, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		s.fail(w, r, err)
		return
	}
	defer client.Close()
	if err := client.SetDeadline(time.Time{}); err != nil {
		return
	}
	head := "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: " + upgradeName + "\r\n\r\n"
	if _, err := client.Write([]byte(head)); err != nil {
		return // the client is gone
	}
	// Past what the server had read already, bytes are read from the connection
	// itself: the server's reader would take the client's last as its leaving,
	// and end the request's context.
	join(r.Context(), client, &stream{client, buffered.Reader}, guest)
}

func (s *Handler) changes(w http.ResponseWriter, r *http.Request) {
	changes, err := s.host.Changes(r.Context())
	if err != nil {
		s.fail(w, r, err)
		return
	}
	w.Header().Set("Content-Type", contentNDJSON)
	w.WriteHeader(http.StatusOK)
	tick := time.NewTicker(keepAlive)
	defer tick.Stop()
	rc := http.NewResponseController(w)
	line := changeLine{} // at once, so that the client knows it is listening
	for {
		// A reader that takes nothing is dropped, not waited for.
		if rc.SetWriteDeadline(time.Now().Add(staleAfter)) != nil ||
			json.NewEncoder(w).Encode(line) != nil || rc.Flush() != nil {
			return
		}
		select {
		case <-r.Context().Done():
			return
		case c, ok := <-changes:
			if !ok {
				return
			}
			line = changeLine{&c}
		case <-tick.C:
			line = changeLine{}
		}
	}
}

func (s *Handler) fail(w http.ResponseWriter, r *http.Request, err error) {
	e := s.public(r, err)
	s.write(w, r, e.Status(), api.Envelope{Error: e})
}

// public is the end of an error on this side: one without a code is logged under
// the request id that the client gets.
func (s *Handler) public(r *http.Request, err error) *api.Error {
	e := *coded(err)
	if e.Code == api.CodeInternal && e.RequestID == "" {
		e.RequestID = "req_" + api.NewID()[:12]
		s.log.Error("host request failed", "request_id", e.RequestID, "path", r.URL.Path, "error", err)
	}
	return &e
}

func (s *Handler) write(w http.ResponseWriter, r *http.Request, status int, body any) {
	text, err := json.Marshal(body)
	if err != nil {
		s.log.Error("host answer cannot be encoded", "path", r.URL.Path, "error", err)
		panic(http.ErrAbortHandler)
	}
	w.Header().Set("Content-Type", contentJSON)
	w.WriteHeader(status)
	_, _ = w.Write(text) // fails only when the client is gone
}
