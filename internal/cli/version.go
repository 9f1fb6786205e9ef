package cli

import (
	"runtime/debug"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/server"
)

// buildInfo is what this program was built from.
var buildInfo = sync.OnceValue(func() api.Version {
	v := server.Version()
	v.Go = strings.TrimPrefix(v.Go, "go")
	if info, ok := debug.ReadBuildInfo(); ok && v.Commit == "" {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				v.Commit = s.Value
			}
		}
	}
	return v
})

func version() string { return buildInfo().Version }

func newVersion(a *app) *cobra.Command {
	var server bool
	cmd := &cobra.Command{
		Use:   "version [flags]",
		Short: "Show what this program was built from",
		Example: `  pandastack version
  pandastack version --server -o json`,
		Args: args(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error { return runVersion(cmd, a, server) },
	}
	cmd.Flags().BoolVar(&server, "server", false, "ask the server instead")
	return cmd
}

func runVersion(cmd *cobra.Command, a *app, server bool) error {
	v := buildInfo()
	if server {
		c, err := a.client()
		if err != nil {
			return err
		}
		if v, err = c.Version(cmd.Context()); err != nil {
			return err
		}
	}
	if a.output == "json" {
		return a.printJSON(v)
	}
	var f fields
	f.add("version", v.Version)
	f.add("commit", v.Commit)
	f.add("go", v.Go)
	f.add("runtime", v.Runtime)
	return f.print(a)
}
