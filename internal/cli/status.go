package cli

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/pandastack/pandastack/api"
)

// serverStatus is what `status` gives with -o json.
type serverStatus struct {
	Server  string      `json:"server"`
	Health  api.Health  `json:"health"`
	Ready   api.Health  `json:"ready"`
	Version api.Version `json:"version"`
}

func newStatus(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Show whether the server is up, and whether creates are fast yet",
		Long: `Show whether the server is up, and whether creates are fast yet. No key is needed.
The exit code is 1 while it is not ready.`,
		Example: `  pandastack status
  until pandastack status >/dev/null 2>&1; do sleep 1; done`,
		Args: args(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error { return runStatus(cmd, a) },
	}
}

func runStatus(cmd *cobra.Command, a *app) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	s := serverStatus{Server: c.BaseURL()}
	if s.Health, err = c.Health(cmd.Context()); err != nil {
		return err
	}
	if s.Ready, err = c.Ready(cmd.Context()); err != nil {
		return err
	}
	if s.Version, err = c.Version(cmd.Context()); err != nil {
		return err
	}
	if a.output == "json" {
		err = a.printJSON(s)
	} else {
		var f fields
		f.add("server", s.Server)
		f.add("health", s.Health.Status)
		f.add("ready", strings.TrimSuffix(s.Ready.Status+": "+s.Ready.Detail, ": "))
		f.add("version", s.Version.Version)
		err = f.print(a)
	}
	if err == nil && s.Ready.Status != "ok" {
		return silentExit(exitFailure)
	}
	return err
}
