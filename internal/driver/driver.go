// Package driver is the contract between this product and whatever isolates a
// sandbox from its host.
//
// # Terms
//
// A machine is one isolated computer: a guest program (internal/guest) runs as
// its first process and everything else descends from it. An image is the
// read-only EROFS file that machines have as their root. Each machine writes to
// an upper layer of its own, which starts empty or as its snapshot left it. A
// snapshot is a directory that holds the memory, the processes and the upper
// layer of a machine at one moment. A handle is what a driver needs to find a
// machine again from another process. A shell is a started runtime process with
// no guest in it, made ahead so that a later Start is quick.
//
// # Rules
//
// Start either returns a machine whose guest accepts connections on
// api.InternalPort, or returns an error and leaves nothing behind: no process,
// mount, cgroup, control socket or file outside Spec.Dir. Spec.Dir belongs to
// the machine: the caller makes it empty before Start and removes it after Stop.
//
// A machine outlives the process that started it. Its handle is valid from the
// return of Start to the return of Stop, may be stored, and is refused with a
// reason by a driver that cannot read its version. Attach finds a machine that
// still runs; for one that has ended it returns sandbox.died.
//
// Snapshot leaves the machine running, also when it fails, and a directory that
// a failed Snapshot wrote to is removed by it. A snapshot may be started from
// any number of times, concurrently, after its source is gone. Machines started
// from one snapshot share nothing that any of them can write. A snapshot that
// this host cannot restore is refused with snapshot.incompatible and what
// differs; a damaged one with snapshot.corrupt or sandbox.boot_failed. Clocks in
// a restored guest continue at the host's time and its kernel's random numbers
// differ from every other restore; user-space state is the guest program's to
// renew.
//
// A restored guest runs as soon as Start returns, and reads the rest of its
// memory from the snapshot as it goes: the directory and what Remote serves stay
// until Loaded has returned. Every process of the guest but the guest program
// stands still until the guest program has been told who it is (guest.Init), so
// that none of them sees another machine's identity. A machine that was reading
// from Remote when its starter died ends, and who attaches to it finds it dead.
//
// SaveDisk leaves the machine running, like Snapshot. What it writes holds the
// files of the upper layer and depends on the image only: any build of any driver
// that says Capabilities.Disk starts from it.
//
// The guest never has more memory, CPU, tasks or disk than Limits says, never
// reads or writes a file of the host, and reaches networks only through its
// Network. A limit that the driver cannot enforce makes Start fail.
//
// Pause freezes every task of the guest and Resume lets them go on; both are
// idempotent. Stop ends the machine at once, frees all it held, cuts every
// connection that Dial gave, and is idempotent; it is due also for a machine
// that has ended by itself. Wait returns when the machine has ended, however it ended, any
// number of times and from any process that has attached. Usage never blocks on
// the guest. Every method honours its context: when it ends, the method returns
// soon, and Start and Snapshot undo what they did.
//
// No method logs an error that it returns. Errors carry api codes. A power that
// Capabilities denies is refused with request.unsupported, never ignored.
//
// # Example
//
//	m, err := d.Start(ctx, Spec{ID: id, Dir: dir, Image: img, Limits: l, Network: n})  // cold
//	err = m.Snapshot(ctx, snapDir)
//	err = m.Stop(ctx)
//	a, err := d.Start(ctx, Spec{ID: idA, Dir: dirA, Image: img, Snapshot: snapDir, ...})
//	b, err := d.Start(ctx, Spec{ID: idB, Dir: dirB, Image: img, Snapshot: snapDir, ...})
//	save(a.Handle())                 // the agent may die here
//	a, err = d.Attach(ctx, saved)    // and find the machine again
package driver

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/netip"
	"time"
)

// Driver starts machines.
type Driver interface {
	// Name is what users write to choose this driver.
	Name() string

	// Probe says whether machines can be started on this host, and if not,
	// why, as a sentence a person can act on. It changes nothing.
	Probe(ctx context.Context) Probe

	// Start makes a machine: from Spec.Snapshot if it names one, else cold
	// from the image.
	Start(ctx context.Context, spec Spec) (Machine, error)

	// Attach finds a machine by its handle.
	Attach(ctx context.Context, h Handle) (Machine, error)

	// Prepare says that machines like spec will be started soon. The driver
	// keeps up to n shells ready for them, replaces what is used up in the
	// background, and forgets earlier shells of the same image. Only Image,
	// Snapshot and Limits of spec count. A driver without shells ignores it.
	// The end of ctx does not end the keeping; Close does.
	Prepare(ctx context.Context, spec Spec, n int)

	// Sweep ends and removes every machine and shell that an earlier process
	// left under this driver's state directory and that keep does not name.
	// It is called once, before the first Start.
	Sweep(ctx context.Context, keep []Handle) error

	// Close ends all shells and waits for them. Machines go on.
	Close(ctx context.Context) error
}

// Machine is one isolated computer. Its methods may be called concurrently.
type Machine interface {
	Handle() Handle
	// Dial connects to a TCP port of the guest.
	Dial(ctx context.Context, port int) (net.Conn, error)
	// Snapshot writes the machine to dir, which must not exist yet.
	Snapshot(ctx context.Context, dir string) error
	// Park is a Snapshot of a machine that is about to be stopped: nothing of the
	// guest runs between the moment it is taken of and the Stop. The machine goes
	// on, as it was, when unpark is called or the process that parked it ends;
	// until then it may only be stopped. After an error it goes on already.
	Park(ctx context.Context, dir string) (unpark func(), err error)
	// SaveDisk writes the upper layer alone to a file that must not exist yet.
	SaveDisk(ctx context.Context, path string) error
	// Loaded returns when the machine needs its snapshot no more. A machine
	// whose snapshot goes away before ends.
	Loaded(ctx context.Context) error
	Pause(ctx context.Context) error
	Resume(ctx context.Context) error
	Usage(ctx context.Context) (Usage, error)
	Wait(ctx context.Context) (Exit, error)
	Stop(ctx context.Context) error
	// Boot says how this machine came up; empty after Attach.
	Boot() Boot
}

// Spec is everything a machine is made of, as plain values.
type Spec struct {
	ID       string // unique on this host; becomes part of names of processes and cgroups
	Dir      string // private directory of the machine
	Image    Image  // read-only root
	Snapshot string // directory written by Machine.Snapshot; empty for a cold start
	// Remote serves files of the snapshot that are not in its directory, by name.
	// They are read while the machine starts and after, until Loaded returns.
	Remote   map[string]io.ReaderAt
	Disk     string  // file written by Machine.SaveDisk, for a cold start; empty for an empty upper layer
	Limits   Limits  // zero fields take the driver's defaults
	Network  Network // where its one interface leads
	Hostname string  // of a cold start; a restored guest is renamed by the guest program
}

// Image is a root filesystem: one EROFS file, named by the digest of its bytes.
type Image struct {
	Path   string
	Digest string // sha256:...
}

// Limits bounds what a machine may use.
type Limits struct {
	CPU         float64 // CPUs
	MemoryBytes int64
	DiskBytes   int64 // of the upper layer
	Tasks       int   // tasks of the host, the runtime's own included
}

// Network is the machine's place on the host's network: an interface in a
// network namespace that exists before Start and is removed after Stop by its
// owner.
type Network struct {
	Namespace string       // path of the network namespace
	Interface string       // name of the interface within it that becomes the guest's eth0
	MAC       string       // hardware address of that interface
	Address   netip.Prefix // of the guest
	Gateway   netip.Addr
	// GatewayMAC is the gateway's hardware address, so that a guest need not ask
	// for it with its first packet; empty where it is not known.
	GatewayMAC string
	MTU        int
}

// Probe is what a driver can do here.
type Probe struct {
	Usable       bool
	Reason       string // a sentence; also when usable, to say which variant
	Version      string // build of the runtime
	Capabilities Capabilities
}

// Capabilities are facts about a driver that callers may branch on.
type Capabilities struct {
	Snapshot       bool // Snapshot and Start from one
	Disk           bool // SaveDisk and Start from its file
	Pause          bool
	ResizeOnCreate bool // a restored machine may have limits other than its snapshot's
	HardwareVirt   bool // own kernel on hardware virtualisation
	SharedPages    bool // machines of one snapshot share unwritten memory
}

// Handle finds a machine again. It is plain data, safe to store.
type Handle struct {
	Driver  string          `json:"driver"`
	Version int             `json:"version"`
	Data    json.RawMessage `json:"data"`
}

// Boot is how a machine came up.
type Boot struct {
	Restored bool
	Shell    bool // a shell was there for it
	Steps    []Step
}

// Step is one part of a start.
type Step struct {
	Name string
	Took time.Duration
}

// Usage is what a machine uses now, as its host sees it.
type Usage struct {
	PID         int
	CPU         time.Duration // so far
	MemoryBytes int64
	MemoryLimit int64
	DiskBytes   int64
	DiskLimit   int64
	Tasks       int
	StartedAt   time.Time
}

// Exit is how a machine ended.
type Exit struct {
	Status int    // exit status of the runtime process where it is known, else -1
	Reason string // a sentence, e.g. that the memory limit was reached
}
