package control_test

import (
	"context"
	"sync"
	"testing"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/control"
	"github.com/pandastack/pandastack/internal/host"
)

// Creates with one key are one sandbox, also when they come at the same time.
func TestCreateOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t, control.Limits{})
	req := api.CreateSandbox{Metadata: map[string]string{"a": "b"}}
	ids := make([]string, 8)
	var g sync.WaitGroup
	for i := range ids {
		g.Go(func() {
			b, err := w.CreateOnce(t.Context(), alice, "key-1", req)
			must(t, err)
			ids[i] = b.ID
			if b.Status != api.StatusRunning {
				t.Errorf("the sandbox of create %d is %s", i, b.Status)
			}
		})
	}
	g.Wait()
	for _, id := range ids {
		if id != ids[0] {
			t.Errorf("creates with one key made %v", ids)
			break
		}
	}
	if n := w.host.count(); n != 1 {
		t.Errorf("the host has %d sandboxes", n)
	}
	_, err := w.CreateOnce(t.Context(), alice, "key-1", api.CreateSandbox{})
	wantCode(t, err, api.CodeKeyReused)
	for _, key := range []string{"", "a b", "\n", string(make([]byte, 300))} {
		_, err := w.CreateOnce(t.Context(), alice, key, req)
		wantCode(t, err, api.CodeInvalidRequest)
	}
	must(t, w.Delete(t.Context(), alice, ids[0]))
	again, err := w.CreateOnce(t.Context(), alice, "key-1", req)
	must(t, err)
	if again.ID == ids[0] {
		t.Error("a sandbox that is gone was answered")
	}
}

// A create that failed leaves its key free.
func TestCreateOnceAfterFailure(t *testing.T) {
	t.Parallel()
	w := newWorld(t, control.Limits{})
	failing := true
	w.host.beforeCreate = func(context.Context, host.Spec) error {
		if failing {
			return api.Errorf(api.CodeCapacity, "no room")
		}
		return nil
	}
	_, err := w.CreateOnce(t.Context(), alice, "key", api.CreateSandbox{})
	wantCode(t, err, api.CodeCapacity)
	failing = false
	_, err = w.CreateOnce(t.Context(), alice, "key", api.CreateSandbox{})
	must(t, err)
}
