package server

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/pandastack/pandastack/api"
)

// state is what server.json says of a server that runs.
type state struct {
	Addr    string `json:"addr"`
	SSHAddr string `json:"ssh_addr,omitempty"`
	PID     int    `json:"pid"`
}

func statePath(dir string) string { return filepath.Join(dir, "server.json") }

// writeState tells other programs where the server is. The file is whole or
// not there.
func writeState(dir, addr, sshAddr string) error {
	data, err := json.Marshal(state{Addr: addr, SSHAddr: sshAddr, PID: os.Getpid()})
	if err != nil {
		return err
	}
	tmp := statePath(dir) + ".new"
	if err := os.WriteFile(tmp, append(data, '\n'), 0o600); err != nil {
		return dataDirError(err, dir)
	}
	return os.Rename(tmp, statePath(dir))
}

func removeState(dir string) error {
	if err := os.Remove(statePath(dir)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func dataDirError(err error, dir string) error {
	if errors.Is(err, os.ErrPermission) {
		return api.Wrap(api.CodeNotRoot, err, "the data directory %s cannot be used: permission denied", dir)
	}
	return api.Wrap(api.CodeHostSetup, err, "the data directory %s cannot be used: %s", dir, reason(err)).
		WithHint("Choose another --data-dir.")
}
