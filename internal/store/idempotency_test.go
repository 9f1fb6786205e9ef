package store_test

import (
	"errors"
	"testing"
	"time"

	"github.com/pandastack/pandastack/internal/store"
)

func TestIdempotency(t *testing.T) {
	t.Parallel()
	engines(t, func(t *testing.T, dsn string) {
		s := open(t, dsn)
		first := newSandbox("o")
		first.Idempotency = store.Idempotency{Key: "k", Request: "r"}
		must(t, s.CreateSandbox(t.Context(), first, 100))
		second := newSandbox("o")
		second.Idempotency = store.Idempotency{Key: "k", Request: "other"}
		var taken *store.KeyTaken
		if err := s.CreateSandbox(t.Context(), second, 100); !errors.As(err, &taken) || taken.SandboxID != first.ID || taken.Request != "r" {
			t.Fatalf("a second create with the key: %v", err)
		}
		if _, err := s.GetSandbox(t.Context(), second.ID); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("it has left a row: %v", err)
		}
		elsewhere := newSandbox("p")
		elsewhere.Idempotency = first.Idempotency
		must(t, s.CreateSandbox(t.Context(), elsewhere, 100))

		must(t, s.DeleteSandbox(t.Context(), first.ID, time.Now()))
		must(t, s.CreateSandbox(t.Context(), second, 100)) // the key is free again
		third := newSandbox("o")
		third.Idempotency = second.Idempotency
		if err := s.CreateSandbox(t.Context(), third, 100); !errors.As(err, &taken) || taken.SandboxID != second.ID {
			t.Errorf("the key's new sandbox: %v", err)
		}
		if n, err := s.PruneIdempotency(t.Context(), time.Now().Add(time.Hour)); n != 2 || err != nil {
			t.Error(n, err)
		}
		must(t, s.CreateSandbox(t.Context(), third, 100))
	})
}
