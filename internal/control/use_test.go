package control_test

import (
	"context"
	"testing"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/control"
)

// Only who owns a sandbox uses it by asking, and asking alone wakes nobody.
func TestUseBy(t *testing.T) {
	t.Parallel()
	w := newWorld(t, control.Limits{})
	ctx := t.Context()
	left, cancel := context.WithCancel(ctx)
	cancel()
	b := w.create(api.CreateSandbox{})
	for _, id := range []string{b.ID, api.NewID(), "../x", ""} {
		w.UseBy(ctx, mallory, id)()
		done := w.UseBy(ctx, mallory, id)
		if n := w.UnderWay(id); n != 0 {
			t.Errorf("%q: a stranger uses it %d times", id, n)
		}
		done()
		if n := w.UnderWay(id); n != 0 {
			t.Errorf("%q: %d uses after the stranger's end", id, n)
		}
	}

	// What is known of a sandbox costs no query: with this context there is none.
	done, again := w.UseBy(ctx, alice, b.ID), w.UseBy(left, alice, b.ID)
	if n := w.UnderWay(b.ID); n != 2 {
		t.Errorf("%d uses of the owner's, not 2", n)
	}
	done()
	again()
	if n := w.UnderWay(b.ID); n != 0 {
		t.Errorf("%d uses after the end", n)
	}

	_, err := w.Hibernate(ctx, alice, b.ID)
	must(t, err)
	w.restart()
	w.UseBy(left, mallory, b.ID)() // whose leaving is no reason to count
	done = w.UseBy(left, mallory, b.ID)
	if n := w.UnderWay(b.ID); n != 0 {
		t.Errorf("a stranger who left uses it %d times", n)
	}
	done()
	done = w.UseBy(ctx, alice, b.ID)
	if n, st := w.UnderWay(b.ID), w.status(b.ID)(); n != 1 || st != api.StatusHibernated {
		t.Errorf("%d uses, and it is %s", n, st)
	}
	done()

	// An owner who cannot be looked up is not cut off.
	w.restart()
	must(t, w.store.Close())
	done = w.UseBy(ctx, alice, b.ID)
	if n := w.UnderWay(b.ID); n != 1 {
		t.Errorf("%d uses of the owner's while the database is away", n)
	}
	done()
}
