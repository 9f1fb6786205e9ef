package api

import (
	"regexp"
	"strings"
	"sync"
	"time"
)

// SnapshotPrefix begins the id of every snapshot.
const SnapshotPrefix = "snap-"

var snapshotIDPattern = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^snap-[a-z0-9]{20}$`) })

// NewSnapshotID makes the id of a snapshot: SnapshotPrefix and 20 characters.
func NewSnapshotID() string { return SnapshotPrefix + NewID() }

// ValidSnapshotID reports whether s has the form of a snapshot id.
func ValidSnapshotID(s string) bool { return snapshotIDPattern().MatchString(s) }

// LooksLikeSnapshotID reports whether s can only be meant as an id: names of
// snapshots may not begin like one.
func LooksLikeSnapshotID(s string) bool { return strings.HasPrefix(s, SnapshotPrefix) }

// SnapshotKind says what a snapshot is for.
type SnapshotKind string

// A snapshot is kept until it is deleted. A checkpoint belongs to the timeline
// of its sandbox: it goes by the sandbox's policy, and with the sandbox.
const (
	KindSnapshot   SnapshotKind = "snapshot"
	KindCheckpoint SnapshotKind = "checkpoint"
)

// Snapshot is the record of one snapshot.
type Snapshot struct {
	ID          string            `json:"id" example:"snap-k3v9x0q2m7c1b8n4t6zd"`
	Name        string            `json:"name,omitempty" doc:"Unique among the owner's snapshots; of a checkpoint, within its sandbox"`
	Kind        SnapshotKind      `json:"kind" enum:"snapshot,checkpoint"`
	SandboxID   string            `json:"sandbox_id" doc:"Sandbox it was taken of, which may be gone"`
	ParentID    string            `json:"parent_id,omitempty" doc:"Snapshot or checkpoint that its sandbox last came from"`
	Memory      bool              `json:"memory" doc:"Holds memory and processes; else files only, which start cold and survive upgrades"`
	Template    string            `json:"template" example:"base"`
	Driver      string            `json:"driver" example:"gvisor"`
	Host        string            `json:"host" doc:"Host that has it"`
	CPU         float64           `json:"cpu"`
	MemoryMB    int               `json:"memory_mb"`
	DiskMB      int               `json:"disk_mb"`
	SizeBytes   int64             `json:"size_bytes" doc:"What it holds"`
	StoredBytes int64             `json:"stored_bytes" doc:"What it added to the store; the rest is shared with other snapshots. Grows from 0 when it is packed, shortly after it was taken"`
	PauseMS     float64           `json:"pause_ms" doc:"How long the sandbox stood still for it"`
	Metadata    map[string]string `json:"metadata,omitempty"`
	CreatedAt   time.Time         `json:"created_at"`
}

// CreateSnapshot is the body of POST /v1/sandboxes/{id}/snapshots.
type CreateSnapshot struct {
	Name     string            `json:"name,omitempty" maxLength:"128" doc:"Letters, digits, dots, dashes and underscores"`
	Memory   *bool             `json:"memory,omitempty" doc:"false for files only; default true"`
	Metadata map[string]string `json:"metadata,omitempty"`
}

// SnapshotList is one page of snapshots, newest first.
type SnapshotList struct {
	Snapshots []Snapshot `json:"snapshots"`
	NextPage  string     `json:"next_page,omitempty" doc:"Pass as page= for the next page; absent on the last"`
}

// Checkpoint is the body of POST /v1/sandboxes/{id}/checkpoint.
type Checkpoint struct {
	Name string `json:"name,omitempty" maxLength:"128"`
}

// Timeline is the checkpoints of one sandbox, oldest first.
type Timeline struct {
	Checkpoints []Snapshot       `json:"checkpoints"`
	Current     string           `json:"current,omitempty" doc:"The checkpoint that the sandbox now goes on from"`
	Policy      CheckpointPolicy `json:"policy"`
}

// Restore is the body of POST /v1/sandboxes/{id}/restore.
type Restore struct {
	Checkpoint string `json:"checkpoint,omitempty" doc:"Id or name of a checkpoint of this sandbox, or id of a snapshot taken of it; default the newest"`
}

// CheckpointPolicy says which checkpoints of a sandbox are removed by
// themselves. The one it goes on from stays. Zero fields keep all.
type CheckpointPolicy struct {
	KeepLast      int `json:"keep_last,omitempty" minimum:"0" maximum:"10000"`
	MaxAgeSeconds int `json:"max_age_seconds,omitempty" minimum:"0"`
}

// Fork is the body of POST /v1/sandboxes/{id}/fork and fork-tree. The children
// are as their parent but for what is said here.
type Fork struct {
	Count      int               `json:"count,omitempty" minimum:"0" doc:"Children; default 1"`
	Metadata   map[string]string `json:"metadata,omitempty" doc:"Replaces the parent's; absent keeps it"`
	Env        map[string]string `json:"env,omitempty" doc:"Added to the parent's, for processes started from now on"`
	TTLSeconds *int              `json:"ttl_seconds,omitempty" minimum:"1" maximum:"2592000" doc:"Default: as the parent was given"`
	Persistent *bool             `json:"persistent,omitempty"`
	CPU        float64           `json:"cpu,omitempty" minimum:"0" maximum:"256"`
	MemoryMB   int               `json:"memory_mb,omitempty" minimum:"0" maximum:"1048576"`
	Network    *Network          `json:"network,omitempty" doc:"Default: the parent's, without its name there"`
	Checkpoint string            `json:"checkpoint,omitempty" doc:"Branch from this checkpoint of the sandbox instead of from now"`
}

// ForkTree is the answer of a fork with several children.
type ForkTree struct {
	TreeID   string    `json:"tree_id" doc:"Names these siblings; pass it to promote"`
	ParentID string    `json:"parent_id"`
	Children []Sandbox `json:"children"`
}

// Promote is the body of POST /v1/sandboxes/{id}/promote.
type Promote struct {
	TreeID          string `json:"tree_id,omitempty" doc:"The tree the sandbox must belong to; default the one it does"`
	CleanupSiblings bool   `json:"cleanup_siblings,omitempty" doc:"Delete the other children of its tree"`
}

// Promoted is the answer of promote.
type Promoted struct {
	Sandbox Sandbox  `json:"sandbox"`
	TreeID  string   `json:"tree_id"`
	Deleted []string `json:"deleted" doc:"Siblings that were deleted"`
}

// TreeNode is one sandbox of a lineage. Ancestors stay in it after their end.
type TreeNode struct {
	ID         string     `json:"id"`
	ParentID   string     `json:"parent_id,omitempty"`
	TreeID     string     `json:"tree_id,omitempty" doc:"Fork that it came from"`
	SnapshotID string     `json:"snapshot_id,omitempty" doc:"Snapshot that it was created from"`
	Template   string     `json:"template"`
	Status     Status     `json:"status" doc:"deleted when it is gone"`
	Promoted   bool       `json:"promoted,omitempty"`
	CreatedAt  time.Time  `json:"created_at"`
	EndedAt    *time.Time `json:"ended_at,omitempty"`
}

// Tree is the lineage of a sandbox: all that descends from its oldest ancestor,
// parents before children.
type Tree struct {
	RootID string     `json:"root_id"`
	Nodes  []TreeNode `json:"nodes"`
}

// IdlePolicy says when a sandbox goes to sleep by itself and what counts as
// use. Requests through the API always count.
type IdlePolicy struct {
	TimeoutSeconds  int     `json:"timeout_seconds" minimum:"0" maximum:"2592000" doc:"Sleep after this long without use; 0 is never"`
	IgnoreStreams   bool    `json:"ignore_streams,omitempty" doc:"An open stream or terminal without a byte does not count"`
	IgnoreTraffic   bool    `json:"ignore_traffic,omitempty" doc:"Its own network traffic does not count"`
	IgnoreProcesses bool    `json:"ignore_processes,omitempty" doc:"Busy processes do not count"`
	CPUPercent      float64 `json:"cpu_percent,omitempty" minimum:"0" maximum:"100" doc:"Of one CPU: more than this is busy; default 2"`
	TrafficBytes    int64   `json:"traffic_bytes,omitempty" minimum:"0" doc:"In a look of some seconds: more than this is traffic; default 1024"`
}
