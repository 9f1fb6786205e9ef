package server

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/httpapi"
)

// TestDoor: before the API is there, /healthz and /readyz are answered and
// everything else waits for it.
func TestDoor(t *testing.T) {
	t.Parallel()
	d := newDoor()
	d.say("opening the database")
	get := func(ctx context.Context, path string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		d.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, path, nil))
		return w
	}
	if w := get(t.Context(), "/healthz"); w.Code != 200 || w.Header().Get("X-Request-Id") == "" {
		t.Errorf("healthz: %d %s", w.Code, w.Body)
	}
	if w := get(t.Context(), "/readyz"); w.Code != 503 || !strings.Contains(w.Body.String(), "opening the database") {
		t.Errorf("readyz: %d %s", w.Code, w.Body)
	}
	waited := make(chan *httptest.ResponseRecorder)
	go func() { waited <- get(t.Context(), "/version") }()
	stopped, hangUp := context.WithCancelCause(t.Context())
	hangUp(errStopping())
	w := get(stopped, "/version")
	var env api.Envelope
	if err := json.Unmarshal(w.Body.Bytes(), &env); err != nil || w.Code != 503 || env.Error.Code != api.CodeCapacity || env.Error.RequestID == "" {
		t.Errorf("stopping: %d %s", w.Code, w.Body)
	}
	d.open(httpapi.New(httpapi.Deps{Version: api.Version{Version: "v"}, Log: slog.New(slog.DiscardHandler)}), nil)
	if w := <-waited; w.Code != 200 || !strings.Contains(w.Body.String(), `"version":"v"`) {
		t.Errorf("waited: %d %s", w.Code, w.Body)
	}
}
