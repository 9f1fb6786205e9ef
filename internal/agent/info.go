package agent

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/host"
)

// Info says what this host is, what it can run and how full it is.
func (a *Agent) Info(ctx context.Context) (host.Info, error) {
	if err := a.await(ctx); err != nil {
		return host.Info{}, err
	}
	infos, fallback, version := a.drivers.describe()
	ready, detail := a.catalogue.ready(ctx)
	return host.Info{
		ID:        a.id,
		Name:      a.hostName(),
		Arch:      runtime.GOARCH,
		Kernel:    kernel(),
		CPUs:      runtime.NumCPU(),
		MemoryMB:  memoryMB(),
		Sandboxes: len(a.all()),
		Slots:     a.cfg.Network.Free(),
		Default:   fallback,
		Drivers:   infos,
		Ready:     ready,
		Detail:    detail,
		Runtime:   version,
	}, nil
}

func (a *Agent) hostName() string {
	if a.cfg.Name != "" {
		return a.cfg.Name
	}
	name, err := os.Hostname()
	if err != nil {
		return a.id
	}
	return name
}

// hostID gives the id of this host, which its state directory keeps.
func hostID(dir string) (string, error) {
	path := filepath.Join(dir, "host-id")
	data, err := os.ReadFile(path)
	if err == nil && api.ValidID(strings.TrimSpace(string(data))) {
		return strings.TrimSpace(string(data)), nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("read the host's id: %w", err)
	}
	id := api.NewID()
	if err := os.WriteFile(path, []byte(id+"\n"), 0o600); err != nil {
		return "", fmt.Errorf("write the host's id: %w", err)
	}
	return id, nil
}

// kernel gives the release of the host's kernel; empty where it cannot be read.
func kernel() string {
	data, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(data))
}

// memoryMB gives the host's memory in MiB; 0 where it cannot be read.
func memoryMB() int {
	f, err := os.Open("/proc/meminfo")
	if err != nil {
		return 0
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) >= 2 && fields[0] == "MemTotal:" {
			kib, _ := strconv.Atoi(fields[1])
			return kib / 1024
		}
	}
	return 0
}
