package cli

import (
	"github.com/spf13/cobra"
)

func newSandboxExec(a *app) *cobra.Command {
	var o execOptions
	cmd := &cobra.Command{
		Use:   "exec ID [flags] -- COMMAND [ARG...]",
		Short: "Run a command in a sandbox",
		Long: `Run a command in a sandbox and end with its exit code.

A COMMAND with arguments is run as it is; one alone is a line for the shell.
Standard input is passed on unless it is a terminal, then only with -i; output
comes as it is written. Ctrl-C sends the command SIGTERM, and SIGKILL the second
time or when it does not end within 10 seconds.

With -o json the output is collected, up to 16 MiB a stream, and printed with
the exit code and the duration.`,
		Example: `  pandastack sandbox exec $id -- python3 -c 'print(6*7)'
  pandastack sandbox exec $id -- 'ls | wc -l'
  pandastack sandbox exec $id --timeout 30s --env MODE=test --cwd /tmp -- ./test.sh -v
  tar c src | pandastack sandbox exec $id -- tar x -C /workspace`,
		Args: args(1, -1),
		RunE: func(cmd *cobra.Command, args []string) error {
			argv, err := commandLine(cmd, args, 1)
			if err != nil {
				return err
			}
			sb, err := a.handle(args[0])
			if err != nil {
				return err
			}
			return a.execute(cmd, sb, o, argv)
		},
	}
	o.addFlags(cmd)
	cmd.Flags().StringArrayVarP(&o.env, "env", "e", nil, "environment as KEY=VALUE, or KEY to pass on this shell's; may be repeated")
	return cmd
}
