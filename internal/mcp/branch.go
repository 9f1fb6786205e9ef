package mcp

import (
	"context"
	"fmt"
	"strings"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/pandastack/pandastack/api"
)

// maxForks is how many children a model may make at once.
const maxForks = 16

type forkInput struct {
	SandboxID  string            `json:"sandbox_id" jsonschema:"Id of the sandbox to fork"`
	Count      int               `json:"count,omitempty" jsonschema:"Children: default 1, at most 16"`
	Metadata   map[string]string `json:"metadata,omitempty" jsonschema:"Labels of the children; default the parent's"`
	TTLSeconds int               `json:"ttl_seconds,omitempty" jsonschema:"Children are deleted after this many seconds; default as the parent"`
	Checkpoint string            `json:"checkpoint,omitempty" jsonschema:"Checkpoint of the sandbox to branch from; default from now"`
}

type forkOutput struct {
	ParentID string          `json:"parent_id"`
	TreeID   string          `json:"tree_id"`
	Children []sandboxOutput `json:"children"`
}

type snapshotInput struct {
	SandboxID string `json:"sandbox_id" jsonschema:"Id of the sandbox"`
	Name      string `json:"name,omitempty" jsonschema:"Name for it: letters, digits, dots, dashes and underscores"`
	FilesOnly bool   `json:"files_only,omitempty" jsonschema:"Leave memory and processes out"`
}

type checkpointInput struct {
	SandboxID string `json:"sandbox_id" jsonschema:"Id of the sandbox"`
	Name      string `json:"name,omitempty" jsonschema:"Name for it, unique in this sandbox"`
}

type restoreInput struct {
	SandboxID  string `json:"sandbox_id" jsonschema:"Id of the sandbox"`
	Checkpoint string `json:"checkpoint,omitempty" jsonschema:"Id or name of a checkpoint of this sandbox; default the newest"`
}

type snapshotOutput struct {
	ID        string  `json:"id"`
	Name      string  `json:"name,omitempty"`
	Kind      string  `json:"kind" jsonschema:"snapshot or checkpoint"`
	SandboxID string  `json:"sandbox_id" jsonschema:"Sandbox it was taken of, which may be gone"`
	Template  string  `json:"template"`
	Memory    bool    `json:"memory" jsonschema:"Has memory and processes; else files only"`
	SizeBytes int64   `json:"size_bytes"`
	PauseMS   float64 `json:"pause_ms" jsonschema:"How long the sandbox stood still for it"`
	CreatedAt string  `json:"created_at"`
}

type listSnapshotsInput struct {
	SandboxID string `json:"sandbox_id,omitempty" jsonschema:"Only those taken of this sandbox"`
	Limit     int    `json:"limit,omitempty" jsonschema:"Snapshots in a page: default 20, at most 100"`
	Page      string `json:"page,omitempty" jsonschema:"next_page of the last result"`
}

type snapshotsOutput struct {
	Snapshots []snapshotOutput `json:"snapshots"`
	NextPage  string           `json:"next_page,omitempty" jsonschema:"Pass it as page for more"`
}

type noInput struct{}

type templateOutput struct {
	Name     string  `json:"name"`
	Status   string  `json:"status" jsonschema:"building, ready or failed"`
	CPU      float64 `json:"cpu,omitempty"`
	MemoryMB int     `json:"memory_mb,omitempty"`
	DiskMB   int     `json:"disk_mb,omitempty"`
}

type templatesOutput struct {
	Templates []templateOutput `json:"templates"`
	Omitted   int              `json:"omitted_templates,omitempty"`
}

func (t *toolbox) addBranches() {
	add(t, &sdk.Tool{
		Name: "fork_sandbox", Title: "Fork a sandbox",
		Description: `Make copies of a running sandbox that go on from where it is now, with its files, memory and processes; the sandbox itself goes on too. Use it to try several things from one state.
All children are made, or none. Example: {"sandbox_id": "k3v9x0q2m7c1b8n4t6zd", "count": 3}`,
		Annotations: &sdk.ToolAnnotations{DestructiveHint: no(), OpenWorldHint: no()},
	}, forkSandbox)
	add(t, &sdk.Tool{
		Name: "snapshot_sandbox", Title: "Take a snapshot",
		Description: `Keep a sandbox as it is now, until the snapshot is deleted; the sandbox goes on. create_sandbox with from_snapshot starts others from it.`,
		Annotations: &sdk.ToolAnnotations{DestructiveHint: no(), OpenWorldHint: no()},
	}, func(ctx context.Context, c Caller, in snapshotInput) (snapshotOutput, string, error) {
		memory := !in.FilesOnly
		return oneSnapshot(c.Platform.Snapshot(ctx, in.SandboxID, api.CreateSnapshot{Name: in.Name, Memory: &memory}))
	})
	add(t, &sdk.Tool{
		Name: "checkpoint_sandbox", Title: "Take a checkpoint",
		Description: `Note where a sandbox is, so that restore_sandbox can take it back there. Cheap: take one before every risky step. It is deleted with its sandbox.`,
		Annotations: &sdk.ToolAnnotations{DestructiveHint: no(), OpenWorldHint: no()},
	}, func(ctx context.Context, c Caller, in checkpointInput) (snapshotOutput, string, error) {
		return oneSnapshot(c.Platform.Checkpoint(ctx, in.SandboxID, in.Name))
	})
	add(t, &sdk.Tool{
		Name: "restore_sandbox", Title: "Go back to a checkpoint",
		Description: `Take a sandbox back to a checkpoint: files, memory and processes are as they were then, and its id stays. What happened since is lost.`,
		Annotations: &sdk.ToolAnnotations{DestructiveHint: yes(), OpenWorldHint: no()},
	}, func(ctx context.Context, c Caller, in restoreInput) (sandboxOutput, string, error) {
		return oneSandbox(c.Platform.Restore(ctx, in.SandboxID, in.Checkpoint))
	})
}

func (t *toolbox) addCatalogue() {
	add(t, &sdk.Tool{
		Name: "list_templates", Title: "List templates",
		Description: `List what sandboxes can be started from, for create_sandbox.`,
		Annotations: &sdk.ToolAnnotations{ReadOnlyHint: true, OpenWorldHint: no()},
	}, listTemplates)
	add(t, &sdk.Tool{
		Name: "list_snapshots", Title: "List snapshots",
		Description: `List the caller's snapshots and checkpoints, newest first, 20 at a time unless limit says otherwise.`,
		Annotations: &sdk.ToolAnnotations{ReadOnlyHint: true, OpenWorldHint: no()},
	}, listSnapshots)
}

func forkSandbox(ctx context.Context, c Caller, in forkInput) (forkOutput, string, error) {
	if in.Count < 0 || in.Count > maxForks {
		return forkOutput{}, "", api.Errorf(api.CodeInvalidRequest, "count is between 1 and %d", maxForks).With("field", "count")
	}
	req := api.Fork{Count: max(in.Count, 1), Metadata: in.Metadata, Checkpoint: in.Checkpoint}
	if in.TTLSeconds != 0 {
		req.TTLSeconds = &in.TTLSeconds
	}
	tree, err := c.Platform.Fork(ctx, in.SandboxID, req)
	if err != nil {
		return forkOutput{}, "", err
	}
	out := forkOutput{ParentID: tree.ParentID, TreeID: tree.TreeID, Children: []sandboxOutput{}}
	var text strings.Builder
	for _, s := range tree.Children {
		o := outputOf(s)
		out.Children = append(out.Children, o)
		fmt.Fprintln(&text, o)
	}
	return out, text.String(), nil
}

func oneSnapshot(s api.Snapshot, err error) (snapshotOutput, string, error) {
	if err != nil {
		return snapshotOutput{}, "", err
	}
	o := snapshotOf(s)
	return o, o.String(), nil
}

func snapshotOf(s api.Snapshot) snapshotOutput {
	return snapshotOutput{
		ID: s.ID, Name: s.Name, Kind: string(s.Kind), SandboxID: s.SandboxID, Template: s.Template, Memory: s.Memory,
		SizeBytes: s.SizeBytes, PauseMS: s.PauseMS, CreatedAt: s.CreatedAt.UTC().Format(time.RFC3339),
	}
}

// String is one line about a snapshot.
func (o snapshotOutput) String() string {
	line := o.ID
	if o.Name != "" {
		line += " " + o.Name
	}
	line += fmt.Sprintf(", %s of %s at %s", o.Kind, o.SandboxID, o.CreatedAt)
	if !o.Memory {
		line += ", files only"
	}
	return line
}

func listSnapshots(ctx context.Context, c Caller, in listSnapshotsInput) (snapshotsOutput, string, error) {
	limit, err := pageOf(in.Limit)
	if err != nil {
		return snapshotsOutput{}, "", err
	}
	l, err := c.Platform.Snapshots(ctx, SnapshotQuery{SandboxID: in.SandboxID, Limit: limit, Page: in.Page})
	if err != nil {
		return snapshotsOutput{}, "", err
	}
	out := snapshotsOutput{Snapshots: []snapshotOutput{}, NextPage: l.NextPage}
	var text strings.Builder
	for _, s := range l.Snapshots {
		o := snapshotOf(s)
		out.Snapshots = append(out.Snapshots, o)
		fmt.Fprintln(&text, o)
	}
	if len(l.Snapshots) == 0 {
		text.WriteString("there are none\n")
	}
	text.WriteString(morePages(l.NextPage))
	return out, text.String(), nil
}

func listTemplates(ctx context.Context, c Caller, _ noInput) (templatesOutput, string, error) {
	list, err := c.Platform.Templates(ctx)
	if err != nil {
		return templatesOutput{}, "", err
	}
	out := templatesOutput{Templates: []templateOutput{}}
	if over := len(list) - maxPage; over > 0 {
		list, out.Omitted = list[:maxPage], over
	}
	var text strings.Builder
	for _, t := range list {
		out.Templates = append(out.Templates, templateOutput{t.Name, t.Status, t.CPU, t.MemoryMB, t.DiskMB})
		fmt.Fprintf(&text, "%s %s\n", t.Name, t.Status)
	}
	if out.Omitted > 0 {
		fmt.Fprintf(&text, "[%d more left out]\n", out.Omitted)
	}
	return out, text.String(), nil
}
