package bench

import (
	"context"
	"fmt"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/client"
)

// openHibernate changes 64 MB before each sleep: what did not change since the
// last one is cheaper.
func openHibernate(ctx context.Context, t *target) (*session, error) {
	h, err := t.hold(ctx, 64, nil)
	if err != nil {
		return nil, err
	}
	s := &session{rounds: t.some(20), warm: 1}
	sleep, wake := s.row("hibernate, 64 MB changed", "ms").aim(120, 0), s.row("wake on a command, 64 MB", "ms")
	s.round = func(ctx context.Context) error {
		if err := h.change(ctx); err != nil {
			return err
		}
		if !pause(ctx, rest) {
			return ctx.Err()
		}
		return h.nap(ctx, sleep, wake)
	}
	return s, nil
}

func openWake(ctx context.Context, t *target) (*session, error) {
	h, err := t.hold(ctx, 0, nil)
	if err != nil {
		return nil, err
	}
	s := &session{rounds: t.some(50), warm: 2}
	sleep, wake := s.row("hibernate an idle Python process", "ms"), s.row("wake on a command, to its response", "ms").aim(40, 80)
	s.round = func(ctx context.Context) error { return h.nap(ctx, sleep, wake) }
	return s, nil
}

// nap hibernates a sandbox and wakes it by a command, in which its process must
// be there.
func (h *holder) nap(ctx context.Context, sleep, wake *row) error {
	from := time.Now()
	if err := h.Hibernate(ctx); err != nil {
		return err
	}
	sleep.took(time.Since(from))
	if !pause(ctx, 2*rest) {
		return ctx.Err()
	}
	from = time.Now()
	if err := answers(ctx, h.Sandbox, h.alive()); err != nil {
		return err
	}
	wake.took(time.Since(from))
	if err := h.Refresh(ctx); err != nil {
		return err
	}
	if h.BootMode != api.BootWake {
		return fmt.Errorf("a sandbox that was woken says that it came by %q", h.BootMode)
	}
	wake.boot(h.BootSteps)
	return gone(ctx, nil)
}

// openRestore starts sandboxes from a snapshot whose sandbox is gone.
func openRestore(ctx context.Context, t *target) (*session, error) {
	h, err := t.hold(ctx, 256, nil)
	if err != nil {
		return nil, err
	}
	snap, err := t.snapshot(ctx, h.Sandbox)
	if err != nil {
		return nil, err
	}
	if err := h.Delete(ctx); err != nil {
		return nil, err
	}
	s := &session{rounds: t.some(20), warm: 1}
	total := s.row("create from 256 MB to first output", "ms").aim(60, 0)
	s.round = func(ctx context.Context) error {
		from := time.Now()
		sb, err := t.create(ctx, api.CreateSandbox{FromSnapshot: snap.ID})
		if err != nil {
			total.fail(err)
			return gone(ctx, nil)
		}
		total.answered(ctx, sb, h.alive(), from)
		return gone(ctx, sb)
	}
	return s, nil
}

// openRollback takes a checkpoint, changes something and goes back; what was
// changed must be gone.
func openRollback(ctx context.Context, t *target) (*session, error) {
	h, err := t.hold(ctx, 0, nil)
	if err != nil {
		return nil, err
	}
	s := &session{rounds: t.some(30), warm: 1}
	note, pauses := s.row("checkpoint", "ms"), s.row("checkpoint: the sandbox stands still", "ms")
	back, output := s.row("roll back", "ms").aim(50, 0), s.row("roll back to first output", "ms")
	s.round = func(ctx context.Context) error {
		from := time.Now()
		checkpoint, err := h.Checkpoint(ctx, "")
		if err != nil {
			return err
		}
		note.took(time.Since(from))
		pauses.add(checkpoint.PauseMS)
		if err := answers(ctx, h.Sandbox, "touch later && echo hello"); err != nil {
			return err
		}
		from = time.Now()
		if err := h.Restore(ctx, checkpoint.ID); err != nil {
			return err
		}
		back.took(time.Since(from))
		if err := answers(ctx, h.Sandbox, "test ! -e later && "+h.alive()); err != nil {
			return err
		}
		output.took(time.Since(from))
		back.boot(h.BootSteps)
		return gone(ctx, nil)
	}
	return s, nil
}

// packLimit bounds waiting for a snapshot's bytes to be packed.
const packLimit = time.Minute

// openStored reads what a child's snapshot adds to its parent's.
func openStored(ctx context.Context, t *target) (*session, error) {
	h, err := t.hold(ctx, 0, nil)
	if err != nil {
		return nil, err
	}
	s := &session{rounds: t.some(3)}
	parent, child := s.row("snapshot of an idle Python process", "MB"), s.row("snapshot of its child that changed 3 MB", "MB").aim(4, 0)
	s.round = func(ctx context.Context) error {
		if err := t.storedBytes(ctx, h.Sandbox, parent); err != nil {
			return err
		}
		sb, err := fork(ctx, h.Sandbox)
		if err != nil {
			return err
		}
		if err := answers(ctx, sb, "head -c 3000000 /dev/urandom >changed && echo hello"); err != nil {
			return err
		}
		if err := t.storedBytes(ctx, sb, child); err != nil {
			return err
		}
		return gone(ctx, sb)
	}
	return s, nil
}

// storedBytes takes a snapshot and adds what it takes in the store, which the
// server knows some time after.
func (t *target) storedBytes(ctx context.Context, sb *client.Sandbox, r *row) error {
	snap, err := t.snapshot(ctx, sb)
	if err != nil {
		return err
	}
	for deadline := time.Now().Add(packLimit); snap.StoredBytes == 0; {
		if time.Now().After(deadline) {
			return fmt.Errorf("snapshot %s was not packed within %s", snap.ID, packLimit)
		}
		if !pause(ctx, rest) {
			return ctx.Err()
		}
		if snap, err = t.Snapshots.Get(ctx, snap.ID); err != nil {
			return err
		}
	}
	r.add(float64(snap.StoredBytes) / 1e6)
	return nil
}
