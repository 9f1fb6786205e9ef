package cli

import (
	"github.com/spf13/cobra"
)

// commands is every command in the order of the help.
func commands(a *app) []*cobra.Command {
	return []*cobra.Command{
		newRun(a),
		newServer(a),
		newDoctor(a),
		newSandbox(a),
		newSnapshot(a),
		newNetwork(a),
		newTemplate(a),
		newToken(a),
		newSSHKey(a),
		newLanguages(a),
		newImage(a),
		newMCP(a),
		newAuth(a),
		newBench(a),
		newStatus(a),
		newVersion(a),
		newExitCodes(),
	}
}

// group makes a command that only holds others. Alone it prints its help; what
// is not one of its commands is a usage error that names those that come near.
func group(use, short, long string) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, Long: long,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cmd.Help()
			}
			err := usagef(cmd, "%q is not a command of %s", args[0], cmd.CommandPath())
			if cmd.SuggestionsMinimumDistance <= 0 {
				cmd.SuggestionsMinimumDistance = 2
			}
			if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
				err = usagef(cmd, "%q is not a command of %s; did you mean %s?", args[0], cmd.CommandPath(), near[0])
			}
			return err
		},
	}
}

// args makes a check of the number of arguments, whose names stand in the
// command's Use line.
func args(least, most int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, given []string) error {
		switch {
		case len(given) < least:
			return usagef(cmd, "%s: an argument is missing", cmd.CommandPath())
		case most >= 0 && len(given) > most:
			return usagef(cmd, "%s: %q is one argument too many", cmd.CommandPath(), given[most])
		}
		return nil
	}
}
