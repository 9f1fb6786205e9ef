package cli

import (
	"fmt"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"github.com/pandastack/pandastack/api"
)

type createOptions struct {
	template   string
	ttl        duration
	persistent bool
	driver     string
	cpu        float64
	memoryMB   int
	diskMB     int
	env        []string
	metadata   []string
	snapshot   string
	idle       duration
	network    networkFlags
}

func newSandboxCreate(a *app) *cobra.Command {
	var o createOptions
	cmd := &cobra.Command{
		Use:   "create [flags]",
		Short: "Start a sandbox and print its id",
		Long: `Start a sandbox and print its id.

It returns when commands can run in it. Unless --persistent is given the sandbox
is deleted when its time to live has run out. With --idle-timeout it goes to
sleep when nothing has used it for that long; the next request wakes it.

A sandbox from a snapshot has the snapshot's template, driver and disk.`,
		Example: `  id=$(pandastack sandbox create)
  pandastack sandbox create --template base --ttl 15m --memory-mb 1024 --env MODE=test
  pandastack sandbox create --persistent --idle-timeout 10m
  pandastack sandbox create --from-snapshot warm
  pandastack sandbox create --allow packages.example.com --allow '*.files.example.com'
  pandastack sandbox create -o json | jq .boot_ms`,
		Args: args(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error { return runSandboxCreate(cmd, a, o) },
	}
	o.addFlags(cmd)
	f := cmd.Flags()
	f.BoolVar(&o.persistent, "persistent", false, "no time to live")
	f.StringArrayVarP(&o.metadata, "metadata", "m", nil, "label as KEY=VALUE; may be repeated")
	f.StringVar(&o.snapshot, "from-snapshot", "", "id or name of a snapshot to start from, or id of a checkpoint")
	f.Var(&o.idle, "idle-timeout", "hibernate after this long without use (default never)")
	return cmd
}

// addFlags adds the flags that `run` has too.
func (o *createOptions) addFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVarP(&o.template, "template", "t", "base", "what to start from")
	f.Var(&o.ttl, "ttl", "delete it after this long (default 1h)")
	f.StringVar(&o.driver, "driver", "", "isolation driver (default: the host's)")
	f.Float64Var(&o.cpu, "cpu", 0, "CPUs (default: the template's)")
	f.IntVar(&o.memoryMB, "memory-mb", 0, "memory limit in MiB (default: the template's)")
	f.IntVar(&o.diskMB, "disk-mb", 0, "writable disk in MiB (default: the template's)")
	o.network.add(cmd)
	f.StringArrayVarP(&o.env, "env", "e", nil, "environment as KEY=VALUE, or KEY to pass on this shell's; may be repeated")
}

// request makes the body of the call.
func (o *createOptions) request(cmd *cobra.Command, a *app) (api.CreateSandbox, error) {
	env, err := pairs(cmd, "env", o.env, a.getenv)
	if err != nil {
		return api.CreateSandbox{}, err
	}
	metadata, err := pairs(cmd, "metadata", o.metadata, nil)
	if err != nil {
		return api.CreateSandbox{}, err
	}
	in := api.CreateSandbox{
		Template: o.template, Driver: o.driver, Persistent: o.persistent, FromSnapshot: o.snapshot, IdleTimeout: o.idle.seconds(),
		CPU: o.cpu, MemoryMB: o.memoryMB, DiskMB: o.diskMB, Env: env, Metadata: metadata,
		Network: o.network.value(cmd),
	}
	if o.snapshot != "" && !cmd.Flags().Changed("template") {
		in.Template = ""
	}
	if cmd.Flags().Changed("ttl") {
		seconds := o.ttl.seconds()
		in.TTLSeconds = &seconds
	}
	return in, nil
}

func runSandboxCreate(cmd *cobra.Command, a *app, o createOptions) error {
	in, err := o.request(cmd, a)
	if err != nil {
		return err
	}
	c, err := a.client()
	if err != nil {
		return err
	}
	sb, err := c.Sandboxes.Create(cmd.Context(), in)
	if err != nil {
		return err
	}
	if a.output == "json" {
		return a.printJSON(sb.Sandbox)
	}
	if isTerminal(a.stderr) {
		fmt.Fprintf(a.stderr, "started by %s in %.1f ms\n", sb.BootMode, sb.BootMS)
	}
	_, err = fmt.Fprintln(a.stdout, sb.ID)
	return err
}

func sortedKeys(m map[string]string) []string { return slices.Sorted(maps.Keys(m)) }
