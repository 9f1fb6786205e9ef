package agent

import (
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"strings"
	"sync"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/host"
	"github.com/pandastack/pandastack/internal/snapshot"
)

// keptVersion is what parseKept reads.
const keptVersion = 1

// kept is what the agent has written about a snapshot: what a machine needs that
// is to start from it. It holds the guest's token, which a guest with memory goes
// on to ask for.
type kept struct {
	Version       int               `json:"version"`
	SandboxID     string            `json:"sandbox_id,omitempty"`
	Template      string            `json:"template"`
	Image         string            `json:"image"` // digest
	Driver        string            `json:"driver"`
	DriverVersion string            `json:"driver_version,omitempty"`
	Memory        bool              `json:"memory"`
	CPU           float64           `json:"cpu"`
	MemoryMB      int               `json:"memory_mb"`
	DiskMB        int               `json:"disk_mb"`
	PauseMS       float64           `json:"pause_ms,omitempty"`
	Token         string            `json:"token,omitempty"`
	Env           map[string]string `json:"env,omitempty"`
}

// Bounds of what may come from a file that someone imports.
const (
	maxKept      = 8 << 20
	maxName      = 128
	maxToken     = 1024
	maxCPU       = 4096
	maxMegabytes = 1 << 30
)

var digestPattern = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^sha256:[0-9a-f]{64}$`) })

// parseKept reads what encode wrote. Anything else is snapshot.corrupt.
func parseKept(data []byte) (kept, error) {
	var k kept
	if len(data) > maxKept {
		return k, corruptKept(fmt.Errorf("%d bytes are too many", len(data)))
	}
	if err := json.Unmarshal(data, &k); err != nil {
		return k, corruptKept(err)
	}
	if k.Version != keptVersion {
		return k, api.Errorf(api.CodeSnapshotMismatch, "the snapshot's description has version %d; this build reads version %d", k.Version, keptVersion)
	}
	if err := k.check(); err != nil {
		return k, corruptKept(err)
	}
	return k, nil
}

func corruptKept(err error) error {
	return api.Wrap(api.CodeSnapshotCorrupt, err, "the snapshot's description is damaged")
}

func (k kept) check() error {
	switch {
	case k.SandboxID != "" && !api.ValidID(k.SandboxID):
		return fmt.Errorf("sandbox id %q", k.SandboxID)
	case !plain(k.Template), !plain(k.Driver):
		return fmt.Errorf("template or driver have no plain names")
	case !digestPattern().MatchString(k.Image):
		return fmt.Errorf("image %q", k.Image)
	case !(k.CPU > 0 && k.CPU <= maxCPU), !within(k.MemoryMB), !within(k.DiskMB):
		return fmt.Errorf("sizes %g, %d and %d", k.CPU, k.MemoryMB, k.DiskMB)
	case !(k.PauseMS >= 0) || math.IsInf(k.PauseMS, 0):
		return fmt.Errorf("pause of %g ms", k.PauseMS)
	case len(k.Token) > maxToken, k.Memory && k.Token == "":
		return fmt.Errorf("a token of %d bytes", len(k.Token))
	}
	return nil
}

func within(megabytes int) bool { return megabytes > 0 && megabytes <= maxMegabytes }

// plain reports whether s can be shown in a message and a log as it is.
func plain(s string) bool {
	return s != "" && len(s) <= maxName && !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' })
}

func (k kept) encode() json.RawMessage {
	data, err := json.Marshal(k)
	if err != nil {
		panic("agent: a description of plain values does not marshal: " + err.Error())
	}
	return data
}

func (k kept) sizes() sizes { return sizes{cpu: k.CPU, memoryMB: k.MemoryMB, diskMB: k.DiskMB} }

// view says a kept snapshot in the words of the host's contract.
func view(rec snapshot.Record) (host.Snapshot, error) {
	k, err := parseKept(rec.Data)
	if err != nil {
		return host.Snapshot{}, err
	}
	return host.Snapshot{
		ID:          rec.ID,
		SandboxID:   k.SandboxID,
		Template:    k.Template,
		Driver:      k.Driver,
		Memory:      k.Memory,
		CPU:         k.CPU,
		MemoryMB:    k.MemoryMB,
		DiskMB:      k.DiskMB,
		SizeBytes:   rec.SizeBytes,
		StoredBytes: rec.StoredBytes,
		PauseMS:     k.PauseMS,
		CreatedAt:   rec.CreatedAt,
	}, nil
}
