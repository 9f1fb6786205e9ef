package agent

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/pandastack/pandastack/api"
)

func TestFlightsShareWorkThatOutlivesItsCallers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFlights()
		f.open(t.Context())
		boom := errors.New("boom")
		runs, finish := 0, make(chan struct{})
		work := func(context.Context) error {
			runs++
			<-finish
			return boom
		}
		leaver, leave := context.WithCancel(t.Context())
		left := make(chan error, 1)
		go func() { left <- f.do(leaver, "key", work) }()
		synctest.Wait()
		var others sync.WaitGroup
		for range 5 {
			others.Go(func() {
				if err := f.do(t.Context(), "key", work); !errors.Is(err, boom) {
					t.Errorf("error %v, want boom", err)
				}
			})
		}
		synctest.Wait()
		leave()
		if err := <-left; api.CodeOf(err) != api.CodeCanceled {
			t.Errorf("the caller who left got %v", err)
		}
		close(finish)
		others.Wait()
		f.close()
		if runs != 1 {
			t.Errorf("the work ran %d times", runs)
		}
		if err := f.do(t.Context(), "key", work); api.CodeOf(err) != api.CodeHostUnreachable {
			t.Errorf("work after close: %v", err)
		}
	})
}

func TestFlightsCloseWaits(t *testing.T) {
	t.Parallel()
	f := newFlights()
	ctx, cancel := context.WithCancel(t.Context())
	f.open(ctx)
	var done atomic.Bool
	f.run(func(ctx context.Context) {
		<-ctx.Done()
		done.Store(true)
	})
	cancel()
	f.close()
	if !done.Load() {
		t.Error("close returned before the work")
	}
}

func TestFailuresHoldForAWhile(t *testing.T) {
	t.Parallel()
	var f failures
	boom := errors.New("boom")
	if f.holds("a") != nil {
		t.Error("holds before a failure")
	}
	f.note("a", boom)
	if !errors.Is(f.holds("a"), boom) || f.holds("b") != nil {
		t.Error("a failure does not hold for its key only")
	}
	f.note("a", nil)
	if f.holds("a") != nil || f.last("a") != nil {
		t.Error("a success does not clear a failure")
	}
	for range 70 {
		f.note("c", boom)
	}
	if f.holds("c") == nil {
		t.Error("the pause overflowed")
	}
}
