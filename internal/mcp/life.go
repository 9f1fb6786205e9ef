package mcp

import (
	"context"
	"fmt"
	"strings"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/pandastack/pandastack/api"
)

type createInput struct {
	Template     string            `json:"template,omitempty" jsonschema:"Template to start from; default base. list_templates gives them"`
	TTLSeconds   int               `json:"ttl_seconds,omitempty" jsonschema:"Deleted after this many seconds; default 3600"`
	Persistent   bool              `json:"persistent,omitempty" jsonschema:"Never deleted by itself"`
	FromSnapshot string            `json:"from_snapshot,omitempty" jsonschema:"Id or name of a snapshot to go on from, instead of a template"`
	Metadata     map[string]string `json:"metadata,omitempty" jsonschema:"Labels to find it by"`
	Env          map[string]string `json:"env,omitempty" jsonschema:"Environment of every command in it"`
	CPU          float64           `json:"cpu,omitempty" jsonschema:"CPUs; default of the template"`
	MemoryMB     int               `json:"memory_mb,omitempty" jsonschema:"Memory, MiB; default of the template"`
	DiskMB       int               `json:"disk_mb,omitempty" jsonschema:"Writable disk, MiB; default of the template"`
	IdleTimeout  int               `json:"idle_timeout_seconds,omitempty" jsonschema:"Sleep on disk after this many seconds without use; the next use wakes it"`
}

type sandboxInput struct {
	SandboxID string `json:"sandbox_id" jsonschema:"Id of the sandbox"`
}

type listSandboxesInput struct {
	Status   string            `json:"status,omitempty" jsonschema:"Only those in this state: creating, running, paused, hibernated or failed"`
	Template string            `json:"template,omitempty" jsonschema:"Only those of this template"`
	Metadata map[string]string `json:"metadata,omitempty" jsonschema:"Only those that have all these labels"`
	Limit    int               `json:"limit,omitempty" jsonschema:"Sandboxes in a page: default 20, at most 100"`
	Page     string            `json:"page,omitempty" jsonschema:"next_page of the last result"`
}

type sandboxOutput struct {
	ID        string            `json:"id"`
	Status    string            `json:"status"`
	Template  string            `json:"template"`
	CPU       float64           `json:"cpu"`
	MemoryMB  int               `json:"memory_mb"`
	DiskMB    int               `json:"disk_mb"`
	Metadata  map[string]string `json:"metadata,omitempty"`
	CreatedAt string            `json:"created_at"`
	ExpiresAt string            `json:"expires_at,omitempty" jsonschema:"When it will be deleted"`
	ParentID  string            `json:"parent_id,omitempty" jsonschema:"Sandbox it was forked from"`
	TreeID    string            `json:"tree_id,omitempty" jsonschema:"Fork it came from"`
	Error     string            `json:"error,omitempty" jsonschema:"Why it failed"`
}

type sandboxesOutput struct {
	Sandboxes []sandboxOutput `json:"sandboxes"`
	NextPage  string          `json:"next_page,omitempty" jsonschema:"Pass it as page for more"`
}

type deletedOutput struct {
	SandboxID string `json:"sandbox_id"`
	Deleted   bool   `json:"deleted"`
}

func (t *toolbox) addLife() {
	add(t, &sdk.Tool{
		Name: "create_sandbox", Title: "Create a sandbox",
		Description: `Start a new isolated Linux computer and wait until commands can run in it, usually well under a second. It deletes itself after ttl_seconds (default one hour).
Example: {"template": "base", "ttl_seconds": 1800, "metadata": {"task": "fix the tests"}}`,
		Annotations: &sdk.ToolAnnotations{DestructiveHint: no(), OpenWorldHint: no()},
	}, createSandbox)
	add(t, &sdk.Tool{
		Name: "list_sandboxes", Title: "List sandboxes",
		Description: `List the caller's sandboxes, newest first, 20 at a time unless limit says otherwise.`,
		Annotations: &sdk.ToolAnnotations{ReadOnlyHint: true, OpenWorldHint: no()},
	}, listSandboxes)
	add(t, &sdk.Tool{
		Name: "get_sandbox", Title: "Get a sandbox",
		Description: `Say how a sandbox is: its state, its size and when it will be deleted. This does not wake one that sleeps.`,
		Annotations: &sdk.ToolAnnotations{ReadOnlyHint: true, OpenWorldHint: no()},
	}, func(ctx context.Context, c Caller, in sandboxInput) (sandboxOutput, string, error) {
		return oneSandbox(c.Platform.Get(ctx, in.SandboxID))
	})
	add(t, &sdk.Tool{
		Name: "delete_sandbox", Title: "Delete a sandbox",
		Description: `End a sandbox with all its processes and files. This cannot be undone; snapshots that were taken of it stay.`,
		Annotations: &sdk.ToolAnnotations{DestructiveHint: yes(), OpenWorldHint: no()},
	}, func(ctx context.Context, c Caller, in sandboxInput) (deletedOutput, string, error) {
		if err := c.Platform.Delete(ctx, in.SandboxID); err != nil {
			return deletedOutput{}, "", err
		}
		return deletedOutput{in.SandboxID, true}, "deleted " + in.SandboxID, nil
	})
	add(t, &sdk.Tool{
		Name: "hibernate_sandbox", Title: "Put a sandbox to sleep",
		Description: `Put a sandbox to sleep on disk with its memory and processes. Whatever uses it next wakes it, and its processes go on where they were.`,
		Annotations: &sdk.ToolAnnotations{DestructiveHint: no(), IdempotentHint: true, OpenWorldHint: no()},
	}, func(ctx context.Context, c Caller, in sandboxInput) (sandboxOutput, string, error) {
		return oneSandbox(c.Platform.Hibernate(ctx, in.SandboxID))
	})
}

func createSandbox(ctx context.Context, c Caller, in createInput) (sandboxOutput, string, error) {
	req := api.CreateSandbox{
		Template: in.Template, FromSnapshot: in.FromSnapshot, Persistent: in.Persistent,
		Metadata: in.Metadata, Env: in.Env, CPU: in.CPU, MemoryMB: in.MemoryMB, DiskMB: in.DiskMB, IdleTimeout: in.IdleTimeout,
	}
	if in.TTLSeconds != 0 {
		req.TTLSeconds = &in.TTLSeconds
	}
	return oneSandbox(c.Platform.Create(ctx, req))
}

func listSandboxes(ctx context.Context, c Caller, in listSandboxesInput) (sandboxesOutput, string, error) {
	limit, err := pageOf(in.Limit)
	if err != nil {
		return sandboxesOutput{}, "", err
	}
	q := ListQuery{Template: in.Template, Metadata: in.Metadata, Limit: limit, Page: in.Page}
	switch st := api.Status(in.Status); st {
	case "":
	case api.StatusCreating, api.StatusRunning, api.StatusPaused, api.StatusHibernated, api.StatusFailed:
		q.Status = []api.Status{st}
	default:
		return sandboxesOutput{}, "", api.Errorf(api.CodeInvalidRequest, "there is no status %.40q", in.Status).With("field", "status")
	}
	l, err := c.Platform.List(ctx, q)
	if err != nil {
		return sandboxesOutput{}, "", err
	}
	out := sandboxesOutput{Sandboxes: []sandboxOutput{}, NextPage: l.NextPage}
	var text strings.Builder
	for _, s := range l.Sandboxes {
		o := outputOf(s)
		out.Sandboxes = append(out.Sandboxes, o)
		fmt.Fprintln(&text, o)
	}
	if len(l.Sandboxes) == 0 {
		text.WriteString("there are none\n")
	}
	text.WriteString(morePages(l.NextPage))
	return out, text.String(), nil
}

func pageOf(limit int) (int, error) {
	switch {
	case limit < 0 || limit > maxPage:
		return 0, api.Errorf(api.CodeInvalidRequest, "limit is between 1 and %d", maxPage).With("field", "limit")
	case limit == 0:
		return 20, nil
	}
	return limit, nil
}

func morePages(next string) string {
	if next == "" {
		return ""
	}
	return "[there are more: pass page " + next + "]\n"
}

func oneSandbox(s api.Sandbox, err error) (sandboxOutput, string, error) {
	if err != nil {
		return sandboxOutput{}, "", err
	}
	o := outputOf(s)
	return o, o.String(), nil
}

func outputOf(s api.Sandbox) sandboxOutput {
	o := sandboxOutput{
		ID: s.ID, Status: string(s.Status), Template: s.Template, CPU: s.CPU, MemoryMB: s.MemoryMB, DiskMB: s.DiskMB,
		Metadata: s.Metadata, CreatedAt: s.CreatedAt.UTC().Format(time.RFC3339), ParentID: s.ParentID, TreeID: s.TreeID,
	}
	if s.ExpiresAt != nil {
		o.ExpiresAt = s.ExpiresAt.UTC().Format(time.RFC3339)
	}
	if s.Error != nil {
		o.Error = string(s.Error.Code) + ": " + s.Error.Message
	}
	return o
}

// String is one line about a sandbox.
func (o sandboxOutput) String() string {
	line := fmt.Sprintf("%s %s, template %s, %g CPUs, %d MiB", o.ID, o.Status, o.Template, o.CPU, o.MemoryMB)
	if o.ExpiresAt != "" {
		line += ", deleted at " + o.ExpiresAt
	}
	if o.ParentID != "" {
		line += ", forked from " + o.ParentID
	}
	if o.Error != "" {
		line += ", failed: " + o.Error
	}
	return line
}
