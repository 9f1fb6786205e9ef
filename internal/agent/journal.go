package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/driver"
	"github.com/pandastack/pandastack/internal/host"
	"github.com/pandastack/pandastack/internal/hostnet"
)

// journal is what the agent must know after its own death: one directory for
// each sandbox, made when its create begins, with the machine's directory in it
// and, once the sandbox is whole, a record.
//
//	<root>/<id>/record.json
//	<root>/<id>/machine/
//	<root>/<id>/machine-<n>/   after the nth rollback, instead
//
// The record is written before Create answers and removed first of all by a
// delete, so a directory without one is half-made and removed at the next start;
// what drivers and networks have for it is swept, since no record names it.
// Records are replaced by rename and not synced to disk: they survive the death
// of the agent, and the death of the host ends every machine anyway. That of a
// hibernated sandbox is synced before its machine ends.
type journal struct {
	root string
}

// recordVersion changes when an older agent could misread a record. Version 1
// knew neither Image, Sleep nor Generation, version 2 no rules of the network.
const (
	recordVersion = 3
	oldestRecord  = 1
)

// record is the file of one sandbox. It holds the guest's token, so only root
// may read it.
type record struct {
	Version int            `json:"version"`
	Spec    host.Spec      `json:"spec"`
	Sandbox host.Sandbox   `json:"sandbox"`
	Slot    *hostnet.Slot  `json:"slot,omitempty"`
	Handle  *driver.Handle `json:"handle,omitempty"`
	Image   string         `json:"image,omitempty"` // digest of the machine's root
	// Sleep is the kept snapshot that the sandbox can be brought back from: of a
	// hibernated one, what it is; of another, what its machine is still being
	// loaded from.
	Sleep      string `json:"sleep,omitempty"`
	Generation int    `json:"generation,omitempty"` // of the machine's directory
}

const recordFile = "record.json"

const machinePrefix = "machine"

func (j journal) dir(id string) string { return filepath.Join(j.root, id) }

// machineDir is the directory of a sandbox's machine of one generation.
func (j journal) machineDir(id string, generation int) string {
	name := machinePrefix
	if generation > 0 {
		name += "-" + strconv.Itoa(generation)
	}
	return filepath.Join(j.root, id, name)
}

// begin makes the directories of a new sandbox. An id whose directory exists is
// refused with sandbox.exists.
func (j journal) begin(id string) error {
	err := os.Mkdir(j.dir(id), 0o700)
	if errors.Is(err, fs.ErrExist) {
		return api.Errorf(api.CodeSandboxExists, "sandbox %s exists", id)
	}
	if err != nil {
		return fmt.Errorf("make the sandbox's directory: %w", err)
	}
	if err := os.Mkdir(j.machineDir(id, 0), 0o700); err != nil {
		return errors.Join(fmt.Errorf("make the machine's directory: %w", err), j.remove(id))
	}
	return nil
}

// save replaces the record.
func (j journal) save(r record) error { return j.write(r, func(string) error { return nil }) }

// saveDurably is save that also outlives the host.
func (j journal) saveDurably(r record) error {
	if err := j.write(r, syncPath); err != nil {
		return err
	}
	if err := errors.Join(syncPath(j.dir(r.Spec.ID)), syncPath(j.root)); err != nil {
		return fmt.Errorf("write the record: %w", err)
	}
	return nil
}

// write replaces the record by a file that finish has seen.
func (j journal) write(r record, finish func(path string) error) error {
	r.Version = recordVersion
	data, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("encode the record: %w", err)
	}
	path := filepath.Join(j.dir(r.Spec.ID), recordFile)
	tmp := path + ".tmp"
	if err := os.WriteFile(tmp, data, 0o600); err != nil {
		return fmt.Errorf("write the record: %w", err)
	}
	if err := finish(tmp); err != nil {
		return fmt.Errorf("write the record: %w", err)
	}
	if err := os.Rename(tmp, path); err != nil {
		return fmt.Errorf("write the record: %w", err)
	}
	return nil
}

// forget removes the record only: from here on the sandbox is half-made, and a
// crash leads to its removal. It is the first act of a delete.
func (j journal) forget(id string) error {
	err := os.Remove(filepath.Join(j.dir(id), recordFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the record: %w", err)
	}
	return nil
}

// syncPath makes a file, or the names in a directory, durable.
func syncPath(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// emptyMachineDir makes a machine's directory anew, whatever is in it.
func (j journal) emptyMachineDir(id string, generation int) error {
	if err := j.removeMachineDir(id, generation); err != nil {
		return err
	}
	if err := os.Mkdir(j.machineDir(id, generation), 0o700); err != nil {
		return fmt.Errorf("make the machine's directory: %w", err)
	}
	return nil
}

func (j journal) removeMachineDir(id string, generation int) error {
	if err := os.RemoveAll(j.machineDir(id, generation)); err != nil {
		return fmt.Errorf("remove the machine's directory: %w", err)
	}
	return nil
}

// noMachineDir is no generation.
const noMachineDir = -1

// removeOtherMachineDirs removes every machine's directory but that of one
// generation.
func (j journal) removeOtherMachineDirs(id string, keep int) error {
	entries, err := os.ReadDir(j.dir(id))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the sandbox's directory: %w", err)
	}
	kept := ""
	if keep != noMachineDir {
		kept = filepath.Base(j.machineDir(id, keep))
	}
	var errs []error
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), machinePrefix) && e.Name() != kept {
			errs = append(errs, os.RemoveAll(filepath.Join(j.dir(id), e.Name())))
		}
	}
	return errors.Join(errs...)
}

func (j journal) remove(id string) error {
	if err := os.RemoveAll(j.dir(id)); err != nil {
		return fmt.Errorf("remove the sandbox's directory: %w", err)
	}
	return nil
}

// load reads every record. whole holds the sandboxes that have one; rest names
// every other entry of the directory.
func (j journal) load() (whole []record, rest []string, err error) {
	entries, err := os.ReadDir(j.root)
	if err != nil {
		return nil, nil, fmt.Errorf("read the journal: %w", err)
	}
	for _, e := range entries {
		r, ok := j.read(e.Name())
		if ok {
			whole = append(whole, r)
		} else {
			rest = append(rest, e.Name())
		}
	}
	return whole, rest, nil
}

// read gives one record. A record that is missing, damaged, of another version
// or of another sandbox counts as none.
func (j journal) read(id string) (record, bool) {
	data, err := os.ReadFile(filepath.Join(j.dir(id), recordFile))
	if err != nil {
		return record{}, false
	}
	var r record
	if err := json.Unmarshal(data, &r); err != nil {
		return record{}, false
	}
	ok := api.ValidID(id) && r.Spec.ID == id && r.Sandbox.ID == id && r.Version >= oldestRecord && r.Version <= recordVersion
	return r, ok
}
