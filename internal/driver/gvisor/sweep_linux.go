package gvisor

import (
	"context"
	"os"
	"path/filepath"
	"strings"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/driver"
)

// Sweep implements driver.Driver. Everything of ours carries the state
// directory in its command line, its name or its path, so what an earlier
// process left can be told from what other servers own.
func (d *Driver) Sweep(ctx context.Context, keep []driver.Handle) error {
	if err := d.setup(); err != nil {
		return api.Wrap(api.CodeHostSetup, err, "cannot prepare the gVisor state directory")
	}
	keepPID, keepID := map[int]bool{}, map[string]bool{}
	for _, h := range keep {
		if v, err := parseHandle(h); err == nil {
			keepPID[v.PID] = true
			keepID[v.ID] = true
		}
	}
	for _, pid := range sentriesOf(d.cfg.StateDir) {
		if keepPID[pid] {
			continue
		}
		started, err := startTime(pid)
		if err != nil {
			continue
		}
		s := &sentry{pid: pid, started: started}
		s.kill(ctx)
	}
	for _, id := range cgroupsOf(d.tag) {
		if !keepID[id] {
			removeCgroup(d.tag, id)
		}
	}
	return d.sweepFiles(keepID)
}

// sweepFiles removes control sockets and shells that no kept machine uses.
func (d *Driver) sweepFiles(keepID map[string]bool) error {
	if err := os.RemoveAll(shellsDir(d.cfg.StateDir)); err != nil {
		return err
	}
	if err := os.Mkdir(shellsDir(d.cfg.StateDir), 0o711); err != nil {
		return err
	}
	entries, err := os.ReadDir(runDir(d.cfg.StateDir))
	if err != nil {
		return err
	}
	for _, e := range entries {
		kept := false
		for id := range keepID {
			kept = kept || strings.Contains(e.Name(), id)
		}
		if !kept {
			os.RemoveAll(filepath.Join(runDir(d.cfg.StateDir), e.Name()))
		}
	}
	return nil
}
