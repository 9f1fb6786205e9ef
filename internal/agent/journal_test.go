package agent

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/driver"
	"github.com/pandastack/pandastack/internal/host"
	"github.com/pandastack/pandastack/internal/hostnet"
)

func sampleRecord(id string) record {
	return record{
		Version: recordVersion,
		Spec:    host.Spec{ID: id, Template: "base", Token: "secret", Env: map[string]string{"A": "b"}},
		Sandbox: host.Sandbox{
			ID: id, State: host.StateFailed, CreatedAt: time.Unix(1e9, 0).UTC(),
			Error: api.Errorf(api.CodeSandboxDied, "it is gone").With("reason", "memory"),
		},
		Slot:   &hostnet.Slot{Index: 7, Address: netip.MustParsePrefix("10.0.0.2/30"), Gateway: netip.MustParseAddr("10.0.0.1")},
		Handle: &driver.Handle{Driver: "gvisor", Version: 1, Data: []byte(`{"pid":1}`)},
	}
}

func TestJournalKeepsRecordsAndTellsWholeFromHalfMade(t *testing.T) {
	t.Parallel()
	j := journal{root: t.TempDir()}
	live, half, odd := api.NewID(), api.NewID(), api.NewID()
	for _, id := range []string{live, half} {
		if err := j.begin(id); err != nil {
			t.Fatal(err)
		}
	}
	if err := j.save(sampleRecord(live)); err != nil {
		t.Fatal(err)
	}
	// Names that no agent makes, damaged records and records of another
	// sandbox are no sandboxes.
	for name, data := range map[string]string{"stray": "", odd: "{", api.NewID(): `{"version":1}`} {
		if err := os.MkdirAll(filepath.Join(j.root, name, "machine"), 0o700); err != nil {
			t.Fatal(err)
		}
		if data != "" {
			if err := os.WriteFile(filepath.Join(j.root, name, recordFile), []byte(data), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	whole, rest, err := j.load()
	if err != nil {
		t.Fatal(err)
	}
	if len(whole) != 1 || !reflect.DeepEqual(whole[0], sampleRecord(live)) {
		t.Errorf("whole is %+v", whole)
	}
	if len(rest) != 4 || !slices.Contains(rest, half) || !slices.Contains(rest, odd) {
		t.Errorf("the rest is %v", rest)
	}
}

func TestJournalReadsOlderRecordsAndNoLaterOnes(t *testing.T) {
	t.Parallel()
	j := journal{root: t.TempDir()}
	for version, want := range map[int]bool{oldestRecord - 1: false, oldestRecord: true, recordVersion: true, recordVersion + 1: false} {
		r := sampleRecord(api.NewID())
		if err := errors.Join(j.begin(r.Spec.ID), j.saveDurably(r)); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(j.dir(r.Spec.ID), recordFile)
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		data = bytes.Replace(data, fmt.Appendf(nil, `"version":%d`, recordVersion), fmt.Appendf(nil, `"version":%d`, version), 1)
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, ok := j.read(r.Spec.ID); ok != want {
			t.Errorf("a record of version %d is read: %v", version, ok)
		}
	}
}

func TestJournalKeepsOneMachineDir(t *testing.T) {
	t.Parallel()
	j := journal{root: t.TempDir()}
	id := api.NewID()
	err := errors.Join(j.begin(id), j.emptyMachineDir(id, 1), j.emptyMachineDir(id, 2), j.removeOtherMachineDirs(id, 1))
	if err != nil {
		t.Fatal(err)
	}
	dirs, _ := filepath.Glob(filepath.Join(j.dir(id), "*"))
	if len(dirs) != 1 || dirs[0] != j.machineDir(id, 1) {
		t.Errorf("directories %v", dirs)
	}
	if err := j.removeOtherMachineDirs(id, noMachineDir); err != nil {
		t.Fatal(err)
	}
	if dirs, _ := filepath.Glob(filepath.Join(j.dir(id), "*")); len(dirs) != 0 {
		t.Errorf("directories %v", dirs)
	}
}

func TestJournalHidesTheTokenFromOtherUsers(t *testing.T) {
	t.Parallel()
	j := journal{root: t.TempDir()}
	id := api.NewID()
	if err := errors.Join(j.begin(id), j.save(sampleRecord(id))); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]os.FileMode{j.dir(id): 0o700, filepath.Join(j.dir(id), recordFile): 0o600} {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if got := info.Mode().Perm(); got != want {
			t.Errorf("%s has mode %o, want %o", path, got, want)
		}
	}
}

func TestJournalRefusesAnIDTwiceAndForgetsOnce(t *testing.T) {
	t.Parallel()
	j := journal{root: t.TempDir()}
	r := sampleRecord(api.NewID())
	if err := errors.Join(j.begin(r.Spec.ID), j.save(r)); err != nil {
		t.Fatal(err)
	}
	if got := api.CodeOf(j.begin(r.Spec.ID)); got != api.CodeSandboxExists {
		t.Errorf("a second begin gives %s", got)
	}
	for range 2 {
		if err := j.forget(r.Spec.ID); err != nil {
			t.Fatal(err)
		}
	}
	whole, rest, err := j.load()
	if err != nil || len(whole) != 0 || len(rest) != 1 {
		t.Errorf("after forget: whole %v, rest %v, %v", whole, rest, err)
	}
}
