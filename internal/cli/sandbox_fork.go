package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/client"
)

type forkOptions struct {
	count      int
	checkpoint string
	ttl        duration
	persistent bool
	cpu        float64
	memoryMB   int
	env        []string
	metadata   []string
}

func newSandboxFork(a *app) *cobra.Command {
	var o forkOptions
	cmd := &cobra.Command{
		Use:   "fork ID [flags]",
		Short: "Branch a running sandbox and print the children's ids",
		Long: `Branch a running sandbox: each child goes on from where it is now, with its
memory, processes and files, and an identity of its own. The parent goes on as
well. The ids of the children are printed, a line each.

Children are as their parent but for what is said here. All of several children
come from one moment; either all of them are made or none.`,
		Example: `  child=$(pandastack sandbox fork k3v9x0q2m7c1b8n4t6zd)
  pandastack sandbox fork k3v9x0q2m7c1b8n4t6zd --count 10 --ttl 15m --metadata try=2
  pandastack sandbox fork k3v9x0q2m7c1b8n4t6zd --checkpoint before-step-3`,
		Args: args(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error { return runSandboxFork(cmd, a, o, args[0]) },
	}
	f := cmd.Flags()
	f.IntVar(&o.count, "count", 1, "children")
	f.StringVar(&o.checkpoint, "checkpoint", "", "branch from this checkpoint, by id or name, instead of from now")
	f.Var(&o.ttl, "ttl", "delete children after this long (default: as the parent was given)")
	f.BoolVar(&o.persistent, "persistent", false, "no time to live (default: as the parent)")
	f.Float64Var(&o.cpu, "cpu", 0, "CPUs (default: the parent's)")
	f.IntVar(&o.memoryMB, "memory-mb", 0, "memory limit in MiB (default: the parent's)")
	f.StringArrayVarP(&o.env, "env", "e", nil, "environment of processes started from now on, as KEY=VALUE, or KEY to pass on this shell's; may be repeated")
	f.StringArrayVarP(&o.metadata, "metadata", "m", nil, "label as KEY=VALUE instead of the parent's labels; may be repeated")
	return cmd
}

// request makes the body of the call.
func (o *forkOptions) request(cmd *cobra.Command, a *app) (api.Fork, error) {
	if o.count < 1 {
		return api.Fork{}, usagef(cmd, "--count must be at least 1")
	}
	in := api.Fork{Checkpoint: o.checkpoint, CPU: o.cpu, MemoryMB: o.memoryMB}
	var err error
	if in.Env, err = pairs(cmd, "env", o.env, a.getenv); err != nil {
		return in, err
	}
	if in.Metadata, err = pairs(cmd, "metadata", o.metadata, nil); err != nil {
		return in, err
	}
	if cmd.Flags().Changed("ttl") {
		seconds := o.ttl.seconds()
		in.TTLSeconds = &seconds
	}
	if cmd.Flags().Changed("persistent") {
		in.Persistent = &o.persistent
	}
	return in, nil
}

func runSandboxFork(cmd *cobra.Command, a *app, o forkOptions, id string) error {
	in, err := o.request(cmd, a)
	if err != nil {
		return err
	}
	parent, err := a.handle(id)
	if err != nil {
		return err
	}
	if o.count > 1 {
		tree, err := parent.ForkTree(cmd.Context(), o.count, in)
		if err != nil {
			return err
		}
		return a.showForkTree(tree)
	}
	child, err := parent.Fork(cmd.Context(), in)
	if err != nil {
		return err
	}
	if a.output == "json" {
		return a.printJSON(child.Sandbox)
	}
	if isTerminal(a.stderr) {
		fmt.Fprintf(a.stderr, "started by %s in %.1f ms\n", child.BootMode, child.BootMS)
	}
	_, err = fmt.Fprintln(a.stdout, child.ID)
	return err
}

func (a *app) showForkTree(tree *client.ForkTree) error {
	out := api.ForkTree{TreeID: tree.ID, ParentID: tree.ParentID}
	for _, child := range tree.Children {
		out.Children = append(out.Children, child.Sandbox)
	}
	if a.output == "json" {
		return a.printJSON(out)
	}
	for _, child := range out.Children {
		if _, err := fmt.Fprintln(a.stdout, child.ID); err != nil {
			return err
		}
	}
	return nil
}
