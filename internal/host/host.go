// Package host is what the control plane may ask of a machine that runs
// sandboxes. In one process the agent is called directly; across machines the
// same interface is spoken over HTTP with mutual TLS (Handler and Client). Both
// pass the suite in hosttest, so a single machine is the distributed system
// minus the wire.
//
// # Rules
//
// A host owns the truth about its sandboxes; the control plane owns what is
// wanted. Every method is safe to repeat: creating an id that exists answers
// sandbox.exists, deleting one that does not answers nil. A sandbox that Create
// returned survives the death of the host's agent and is in List after its
// restart. A failed Create leaves nothing behind. Errors carry api codes, on
// both sides of the wire. Bytes of Dial stream both ways without buffering
// beyond a socket's; closing either end closes both.
package host

import (
	"context"
	"io"
	"net"
	"slices"
	"time"

	"github.com/pandastack/pandastack/api"
)

// Host runs sandboxes on one machine.
type Host interface {
	// Info says what the host is, what it can run and how full it is.
	Info(ctx context.Context) (Info, error)

	// Create starts a sandbox and returns when its guest has answered.
	// It waits for a template that is being built.
	Create(ctx context.Context, spec Spec) (Sandbox, error)
	Get(ctx context.Context, id string) (Sandbox, error)
	List(ctx context.Context) ([]Sandbox, error)
	// Delete ends a sandbox and removes all it had. Unknown ids are nil.
	Delete(ctx context.Context, id string) error
	Pause(ctx context.Context, id string) error
	Resume(ctx context.Context, id string) error

	// Fork captures a running or paused sandbox once and creates every child
	// from that; the parent goes on. All children run when it returns, or none
	// exists. Children's sizes of zero are the parent's; their Env is added to
	// the parent's.
	Fork(ctx context.Context, parent string, children []Spec) ([]Sandbox, error)
	// Hibernate moves a running or paused sandbox to disk: nothing of it stays
	// in memory, all of its state is kept. Hibernating a hibernated one is nil.
	Hibernate(ctx context.Context, id string) error
	// Wake brings a hibernated sandbox back. Concurrent calls share one wake; of
	// a running one it answers the record.
	Wake(ctx context.Context, id string) (Sandbox, error)
	// Rollback replaces a running, paused or hibernated sandbox by a snapshot of
	// it, with the same id and, unless it was hibernated, the same address. If it
	// fails the sandbox is as before.
	Rollback(ctx context.Context, id, snapshot string) (Sandbox, error)

	// Snapshot takes a snapshot of a running or paused sandbox, which goes on.
	// It is durable when the call returns. An id that exists is refused with
	// snapshot.exists.
	Snapshot(ctx context.Context, id string, spec SnapshotSpec) (Snapshot, error)
	GetSnapshot(ctx context.Context, snapshot string) (Snapshot, error)
	Snapshots(ctx context.Context) ([]Snapshot, error)
	// DeleteSnapshot forgets a snapshot; sandboxes made from it go on. Unknown
	// ids are nil.
	DeleteSnapshot(ctx context.Context, snapshot string) error
	// Export streams a snapshot, with the image it needs, as one file.
	Export(ctx context.Context, snapshot string) (io.ReadCloser, error)
	// Import reads what Export wrote and keeps it under the id of spec.
	Import(ctx context.Context, spec SnapshotSpec, file io.Reader) (Snapshot, error)

	// Dial connects to a TCP port inside a sandbox.
	Dial(ctx context.Context, id string, port int) (net.Conn, error)

	// SetNetwork replaces what a sandbox may reach and its links, also of one that
	// is asleep. It holds when it returns: connections that it denies are cut. What
	// this host cannot enforce is refused, and all is as before.
	SetNetwork(ctx context.Context, id string, network Network) error
	// NetworkLog reads the newest lines, at most limit, after since of what a
	// sandbox has contacted.
	NetworkLog(ctx context.Context, id string, since int64, limit int) (api.ConnectionLog, error)

	Usage(ctx context.Context, id string) (api.Metrics, error)
	// Usages is Usage of every running or paused sandbox at once, by id, without
	// what is relative to the last reading. One that cannot be measured is left out.
	Usages(ctx context.Context) (map[string]api.Metrics, error)

	// Templates lists what Create may name, with the progress of builds.
	Templates(ctx context.Context) ([]api.Template, error)

	// Changes streams what happened to sandboxes of this host without being
	// asked for: that one died, and what was denied to one. It ends with ctx.
	Changes(ctx context.Context) (<-chan Change, error)
}

// Spec is a sandbox to create. Zero sizes take the template's.
type Spec struct {
	ID       string            `json:"id"`
	Template string            `json:"template"`
	Driver   string            `json:"driver,omitempty"` // empty: the host's default
	CPU      float64           `json:"cpu,omitempty"`
	MemoryMB int               `json:"memory_mb,omitempty"`
	DiskMB   int               `json:"disk_mb,omitempty"`
	Env      map[string]string `json:"env,omitempty"`
	Token    string            `json:"token"` // access token of the guest daemon
	// Snapshot to start from; template, driver and disk are then its own.
	Snapshot string  `json:"snapshot,omitempty"`
	Network  Network `json:"network"`
}

// Network is what a sandbox may reach: by rules, and of other sandboxes by links.
type Network struct {
	Rules api.NetworkRules `json:"rules"`
	Links []Link           `json:"links,omitempty"`
}

// Link makes a sandbox a member of a group, whose members reach each other. They
// find it by its name and by its id.
type Link struct {
	Group string `json:"group"` // unique on the host, whoever owns it
	Name  string `json:"name,omitempty"`
}

// Equal reports whether two networks say the same.
func (n Network) Equal(m Network) bool {
	a, b := n.Rules, m.Rules
	same := a.Internet == b.Internet || a.Internet != nil && b.Internet != nil && *a.Internet == *b.Internet
	return same && a.EgressMbps == b.EgressMbps && slices.Equal(a.Allow, b.Allow) && slices.Equal(a.Deny, b.Deny) &&
		slices.Equal(n.Links, m.Links)
}

// SnapshotSpec is a snapshot to take or to import.
type SnapshotSpec struct {
	ID     string `json:"id"` // api.NewSnapshotID
	Memory bool   `json:"memory,omitempty"`
}

// Snapshot is what the host knows of one.
type Snapshot struct {
	ID          string    `json:"id"`
	SandboxID   string    `json:"sandbox_id"` // source; empty of an imported one
	Template    string    `json:"template"`
	Driver      string    `json:"driver"`
	Memory      bool      `json:"memory"`
	CPU         float64   `json:"cpu"`
	MemoryMB    int       `json:"memory_mb"`
	DiskMB      int       `json:"disk_mb"`
	SizeBytes   int64     `json:"size_bytes"`
	StoredBytes int64     `json:"stored_bytes"` // 0 until packed
	PauseMS     float64   `json:"pause_ms"`
	CreatedAt   time.Time `json:"created_at"`
}

// State of a sandbox on its host.
type State string

// The states a host knows.
const (
	StateRunning    State = "running"
	StatePaused     State = "paused"
	StateHibernated State = "hibernated"
	StateFailed     State = "failed"
)

// Sandbox is what the host knows of one.
type Sandbox struct {
	ID        string       `json:"id"`
	Template  string       `json:"template"`
	Driver    string       `json:"driver"`
	State     State        `json:"state"`
	CPU       float64      `json:"cpu"`
	MemoryMB  int          `json:"memory_mb"`
	DiskMB    int          `json:"disk_mb"`
	GuestIP   string       `json:"guest_ip"`
	Network   Network      `json:"network"`
	BootMode  api.BootMode `json:"boot_mode"`
	BootMS    float64      `json:"boot_ms"`
	BootSteps []api.Step   `json:"boot_steps,omitempty"`
	CreatedAt time.Time    `json:"created_at"`
	Error     *api.Error   `json:"error,omitempty"`
}

// Info describes a host.
type Info struct {
	ID        string       `json:"id"`
	Name      string       `json:"name"`
	Arch      string       `json:"arch"`
	Kernel    string       `json:"kernel"`
	CPUs      int          `json:"cpus"`
	MemoryMB  int          `json:"memory_mb"`
	Sandboxes int          `json:"sandboxes"`
	Slots     int          `json:"slots"` // sandboxes that still fit, by network addresses
	Default   string       `json:"default_driver"`
	Drivers   []DriverInfo `json:"drivers"`
	Ready     bool         `json:"ready"`            // creates from base restore
	Detail    string       `json:"detail,omitempty"` // what readiness waits for, or why it cannot come
	Runtime   string       `json:"runtime"`
}

// DriverInfo is one isolation driver as its host probed it.
type DriverInfo struct {
	Name    string `json:"name"`
	Usable  bool   `json:"usable"`
	Reason  string `json:"reason"`
	Version string `json:"version,omitempty"`
}

// Change is something that happened to a sandbox: it is in another state, or it
// was denied a connection.
type Change struct {
	SandboxID string          `json:"sandbox_id"`
	State     State           `json:"state,omitempty"`
	Error     *api.Error      `json:"error,omitempty"`
	Denied    *api.Connection `json:"denied,omitempty"`
}
