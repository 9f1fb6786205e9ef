package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

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
//
// The record is written before Create answers and removed first of all by a
// delete, so a directory without one is half-made and removed at the next start;
// what drivers and networks have for it is swept, since no record names it.
// Records are replaced by rename and not synced to disk: they survive the death
// of the agent, and the death of the host ends every machine anyway.
type journal struct {
	root string
}

// recordVersion changes when an older agent could misread a record.
const recordVersion = 1

// record is the file of one sandbox. It holds the guest's token, so only root
// may read it.
type record struct {
	Version int            `json:"version"`
	Spec    host.Spec      `json:"spec"`
	Sandbox host.Sandbox   `json:"sandbox"`
	Slot    *hostnet.Slot  `json:"slot,omitempty"`
	Handle  *driver.Handle `json:"handle,omitempty"`
}

const recordFile = "record.json"

func (j journal) dir(id string) string        { return filepath.Join(j.root, id) }
func (j journal) machineDir(id string) string { return filepath.Join(j.root, id, "machine") }

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
	if err := os.Mkdir(j.machineDir(id), 0o700); err != nil {
		return errors.Join(fmt.Errorf("make the machine's directory: %w", err), j.remove(id))
	}
	return nil
}

// save replaces the record.
func (j journal) save(r record) error {
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

// emptyMachineDir makes the machine's directory anew, whatever is in it.
func (j journal) emptyMachineDir(id string) error {
	if err := j.removeMachineDir(id); err != nil {
		return err
	}
	if err := os.Mkdir(j.machineDir(id), 0o700); err != nil {
		return fmt.Errorf("make the machine's directory: %w", err)
	}
	return nil
}

func (j journal) removeMachineDir(id string) error {
	if err := os.RemoveAll(j.machineDir(id)); err != nil {
		return fmt.Errorf("remove the machine's directory: %w", err)
	}
	return nil
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
	ok := api.ValidID(id) && r.Spec.ID == id && r.Sandbox.ID == id && r.Version == recordVersion
	return r, ok
}
