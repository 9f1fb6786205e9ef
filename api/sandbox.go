package api

import "time"

// Status is the state of a sandbox as its owner sees it.
type Status string

// A sandbox is creating until its guest answers, and ends as deleted or failed.
// A paused one stands still in memory; a hibernated one is on disk only, and the
// next request wakes it. Deleted is seen in lineages only.
const (
	StatusCreating   Status = "creating"
	StatusRunning    Status = "running"
	StatusPaused     Status = "paused"
	StatusHibernated Status = "hibernated"
	StatusDeleting   Status = "deleting"
	StatusDeleted    Status = "deleted"
	StatusFailed     Status = "failed"
)

// BootMode says how a sandbox came to life.
type BootMode string

// Every create restores a snapshot, the template's or one of the owner's; cold is
// the first start of a template on a host, a size that its snapshot cannot serve,
// or a snapshot without memory. Fork is a child of a running sandbox, wake the
// return of a hibernated one.
const (
	BootCold    BootMode = "cold"
	BootRestore BootMode = "restore"
	BootFork    BootMode = "fork"
	BootWake    BootMode = "wake"
)

// Step is one named part of a start and how long it took.
type Step struct {
	Name string  `json:"name" example:"restore"`
	MS   float64 `json:"ms" doc:"Milliseconds"`
}

// Sandbox is the record of one sandbox.
type Sandbox struct {
	ID         string            `json:"id" example:"k3v9x0q2m7c1b8n4t6zd"`
	Template   string            `json:"template" example:"base"`
	Status     Status            `json:"status" enum:"creating,running,paused,hibernated,deleting,failed"`
	Driver     string            `json:"driver" example:"gvisor"`
	Host       string            `json:"host" doc:"Host that runs it"`
	CPU        float64           `json:"cpu" doc:"CPUs it may use at most"`
	MemoryMB   int               `json:"memory_mb" doc:"Memory limit, MiB"`
	DiskMB     int               `json:"disk_mb" doc:"Writable disk, MiB"`
	GuestIP    string            `json:"guest_ip,omitempty" doc:"Its address on the host's sandbox network"`
	BootMode   BootMode          `json:"boot_mode,omitempty" enum:"cold,restore,fork,wake"`
	BootMS     float64           `json:"boot_ms,omitempty" doc:"Milliseconds from the host taking the request to the guest answering"`
	BootSteps  []Step            `json:"boot_steps,omitempty" doc:"Milliseconds by step"`
	Metadata   map[string]string `json:"metadata" doc:"The owner's own labels"`
	Persistent bool              `json:"persistent" doc:"Has no time to live"`
	TTLSeconds int               `json:"ttl_seconds" doc:"Lifetime from its last setting; 0 when persistent"`
	CreatedAt  time.Time         `json:"created_at"`
	ExpiresAt  *time.Time        `json:"expires_at,omitempty" doc:"When its time to live runs out"`
	ParentID   string            `json:"parent_id,omitempty" doc:"Sandbox that it was forked from"`
	TreeID     string            `json:"tree_id,omitempty" doc:"Fork that it came from, shared with its siblings"`
	SnapshotID string            `json:"snapshot_id,omitempty" doc:"Snapshot that it was created from, or the checkpoint that it was last taken at or rolled back to"`
	Idle       *IdlePolicy       `json:"idle,omitempty" doc:"When it goes to sleep by itself"`
	Error      *Error            `json:"error,omitempty" doc:"Why it failed"`
}

// CreateSandbox is the body of POST /v1/sandboxes. Everything has a default.
type CreateSandbox struct {
	Template     string            `json:"template,omitempty" doc:"Template name; default base, or that of from_snapshot"`
	TTLSeconds   *int              `json:"ttl_seconds,omitempty" minimum:"1" maximum:"2592000" doc:"Deleted after this long; default 3600"`
	Metadata     map[string]string `json:"metadata,omitempty" doc:"Labels: at most 64, keys of at most 128 bytes, 64 KiB in all"`
	Env          map[string]string `json:"env,omitempty" doc:"Environment of every process"`
	Persistent   bool              `json:"persistent,omitempty" doc:"No time to live"`
	Driver       string            `json:"driver,omitempty" doc:"Isolation driver, or auto" example:"gvisor"`
	CPU          float64           `json:"cpu,omitempty" minimum:"0" maximum:"256" doc:"CPUs; default of the template"`
	MemoryMB     int               `json:"memory_mb,omitempty" minimum:"0" maximum:"1048576" doc:"Memory limit, MiB; default of the template"`
	DiskMB       int               `json:"disk_mb,omitempty" minimum:"0" maximum:"16777216" doc:"Writable disk, MiB; default of the template"`
	FromSnapshot string            `json:"from_snapshot,omitempty" doc:"Id or name of a snapshot, or id of a checkpoint, to start from; template, driver and disk size are then its own"`
	IdleTimeout  int               `json:"idle_timeout_seconds,omitempty" minimum:"0" maximum:"2592000" doc:"Hibernate after this long without use; short for idle.timeout_seconds"`
	Idle         *IdlePolicy       `json:"idle,omitempty" doc:"When to hibernate, in detail"`
	Checkpoints  *CheckpointPolicy `json:"checkpoints,omitempty" doc:"Which checkpoints to keep"`
	Volumes      []VolumeMount     `json:"volumes,omitempty" doc:"Volumes to attach"`
	Network      *Network          `json:"network,omitempty" doc:"What it may reach, and the networks it joins"`
	EgressMbps   int               `json:"egress_mbps,omitempty" minimum:"0" maximum:"100000" doc:"Short for network.egress_mbps"`
}

// VolumeMount attaches a volume to a sandbox.
type VolumeMount struct {
	Name     string `json:"name"`
	ReadOnly bool   `json:"read_only,omitempty"`
}

// SandboxList is one page of sandboxes, newest first.
type SandboxList struct {
	Sandboxes []Sandbox `json:"sandboxes"`
	NextPage  string    `json:"next_page,omitempty" doc:"Pass as page= for the next page; absent on the last"`
}

// Lifecycle is how long a sandbox lives. In a PATCH, absent fields stay.
type Lifecycle struct {
	TTLSeconds  *int              `json:"ttl_seconds,omitempty" minimum:"1" maximum:"2592000" doc:"From now on"`
	Persistent  *bool             `json:"persistent,omitempty"`
	IdleSeconds *int              `json:"idle_seconds,omitempty" minimum:"0" maximum:"2592000" doc:"Short for idle.timeout_seconds"`
	Idle        *IdlePolicy       `json:"idle,omitempty"`
	Checkpoints *CheckpointPolicy `json:"checkpoints,omitempty"`
	ExpiresAt   *time.Time        `json:"expires_at,omitempty" readOnly:"true"`
}

// Metrics is what a sandbox uses now.
type Metrics struct {
	PID            int     `json:"pid" doc:"Process of the runtime on its host"`
	UptimeSeconds  float64 `json:"uptime_seconds"`
	HostCPUPercent float64 `json:"host_cpu_percent" doc:"Since the last reading, 100 is one CPU"`
	CPUSeconds     float64 `json:"cpu_seconds" doc:"Host CPU time so far"`
	HostRSSBytes   int64   `json:"host_rss_bytes" doc:"Memory charged to the sandbox on its host"`
	MemoryLimit    int64   `json:"memory_limit_bytes"`
	DiskUsedBytes  int64   `json:"disk_used_bytes"`
	DiskLimit      int64   `json:"disk_limit_bytes"`
	Processes      int     `json:"processes" doc:"Host tasks, the runtime's own included"`
	RxBytes        int64   `json:"rx_bytes"`
	TxBytes        int64   `json:"tx_bytes"`
}

// Event is something that happened to a sandbox.
type Event struct {
	ID        int64             `json:"id" doc:"Grows with time; pass as since= to go on from here"`
	SandboxID string            `json:"sandbox_id"`
	Type      string            `json:"type" example:"sandbox.running"`
	Time      time.Time         `json:"time"`
	Data      map[string]string `json:"data,omitempty"`
}

// LogLine is one line that a process in the sandbox wrote.
type LogLine struct {
	Time   time.Time `json:"time"`
	Stream string    `json:"stream" enum:"stdout,stderr,system"`
	PID    int       `json:"pid,omitempty"`
	Line   string    `json:"line"`
}
