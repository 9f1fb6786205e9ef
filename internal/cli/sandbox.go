package cli

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/client"
)

func newSandbox(a *app) *cobra.Command {
	cmd := group("sandbox", "Create and use sandboxes", "Create and use sandboxes.")
	cmd.Aliases = []string{"sandboxes", "sb"}
	cmd.Example = `  id=$(pandastack sandbox create)
  pandastack sandbox exec $id -- python3 -c 'print(6*7)'
  pandastack sandbox delete $id`
	cmd.AddCommand(
		newSandboxCreate(a), newSandboxList(a), newSandboxGet(a), newSandboxExec(a), newSandboxShell(a), newSandboxSSH(a), newSandboxRunCode(a),
		newSandboxCp(a), newSandboxLogs(a), newSandboxEvents(a), newSandboxMetrics(a),
		newSandboxPause(a), newSandboxResume(a), newSandboxHibernate(a), newSandboxWake(a),
		newSandboxSetIdle(a), newSandboxSetTTL(a), newSandboxSnapshot(a), newSandboxFork(a),
		newSandboxTree(a), newSandboxPromote(a), newSandboxCheckpoint(a), newSandboxCheckpoints(a),
		newSandboxRestore(a), newSandboxPorts(a), newSandboxPreviewURL(a), newSandboxDelete(a), newSandboxDeleteCheckpoint(a), newSandboxLifecycle(a),
		newSandboxFS(a), newSandboxGit(a), newSandboxProcess(a), newSandboxContext(a), newSandboxLSP(a), newSandboxNetwork(a),
	)
	return cmd
}

// handle gives a handle on the sandbox that a command names.
func (a *app) handle(id string) (*client.Sandbox, error) {
	c, err := a.client()
	if err != nil {
		return nil, err
	}
	return c.Sandboxes.Handle(id), nil
}

// showSandbox prints a record.
func (a *app) showSandbox(s api.Sandbox) error {
	if a.output == "json" {
		return a.printJSON(s)
	}
	var f fields
	f.add("id", s.ID)
	f.add("status", string(s.Status))
	f.add("template", s.Template)
	f.add("driver", s.Driver)
	f.add("host", s.Host)
	f.add("cpu", strconv.FormatFloat(s.CPU, 'g', -1, 64))
	f.add("memory", fmt.Sprintf("%d MiB", s.MemoryMB))
	f.add("disk", fmt.Sprintf("%d MiB", s.DiskMB))
	f.add("address", s.GuestIP)
	if s.BootMode != "" {
		f.add("boot", fmt.Sprintf("%s in %.1f ms", s.BootMode, s.BootMS))
	}
	for _, step := range s.BootSteps {
		f.add("boot "+step.Name, fmt.Sprintf("%.1f ms", step.MS))
	}
	f.add("parent", s.ParentID)
	f.add("tree", s.TreeID)
	f.add("snapshot", s.SnapshotID)
	if s.Idle != nil {
		f.add("idle", idleText(*s.Idle))
	}
	f.add("created", s.CreatedAt.UTC().Format(time.RFC3339))
	f.add("expires", expires(s))
	for _, k := range sortedKeys(s.Metadata) {
		f.add("metadata "+k, s.Metadata[k])
	}
	if s.Error != nil {
		f.add("error", s.Error.Message)
	}
	return f.print(a)
}

func expires(s api.Sandbox) string {
	if s.Persistent {
		return "never"
	}
	if s.ExpiresAt == nil {
		return ""
	}
	return s.ExpiresAt.UTC().Format(time.RFC3339)
}

// each does something to every sandbox named, as eachNamed does.
func (a *app) each(ctx context.Context, ids []string, do func(*client.Sandbox) error) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	return a.eachNamed(ctx, ids, func(id string) error { return do(c.Sandboxes.Handle(id)) })
}

// eachNamed does something to everything named, as eachOf does.
func (a *app) eachNamed(ctx context.Context, ids []string, do func(id string) error) error {
	return a.eachOf(ctx, "id", ids, do)
}

// eachOf does something to everything named, and goes on after a failure. It
// prints the name of each that worked, in JSON under a key, and gives the first
// error.
func (a *app) eachOf(ctx context.Context, key string, names []string, do func(name string) error) error {
	var first error
	for _, name := range names {
		err := do(name)
		if err == nil && a.output == "json" {
			err = a.printJSONLine(map[string]string{key: name})
		} else if err == nil {
			_, err = fmt.Fprintln(a.stdout, name)
		}
		switch {
		case err != nil && first == nil:
			first = err
		case err != nil:
			// The first is printed at the end; the others here.
			fmt.Fprintf(a.stderr, "%s %s\n", a.paint(a.stderr, red, "error:"), printable(api.AsError(err).Message))
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return first
}
