package cli

import (
	"fmt"

	"github.com/spf13/cobra"
)

// check is one thing that a server needs of this machine.
type check struct {
	Name     string `json:"name"`
	Status   string `json:"status"` // OK, WARN or MISSING
	Detail   string `json:"detail"`
	Fix      string `json:"fix,omitempty"`
	Required bool   `json:"required"`
}

func newDoctor(a *app) *cobra.Command {
	var o serverOptions
	cmd := &cobra.Command{
		Use:   "doctor [flags]",
		Short: "Say what this machine lacks to run sandboxes",
		Long: `Say what this machine has and lacks to run sandboxes, and what to do about it.

It changes nothing. It ends with 1 when something is missing that a server
cannot do without.`,
		Example: `  sudo pandastack doctor
  sudo pandastack doctor -o json | jq '.checks[] | select(.status != "OK")'`,
		Args: args(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error { return runDoctor(cmd, a, o) },
	}
	o.addFlags(cmd)
	return cmd
}

func runDoctor(cmd *cobra.Command, a *app, o serverOptions) error {
	o.logLevel, o.logFormat = "error", "text"
	c, err := o.config(cmd, a)
	if err != nil {
		return err
	}
	checks, err := checkHost(cmd.Context(), c)
	if err != nil {
		return err
	}
	ok := true
	for _, c := range checks {
		ok = ok && (c.Status != "MISSING" || !c.Required)
	}
	if err := a.showChecks(checks, ok); err != nil {
		return err
	}
	if !ok {
		return silentExit(exitFailure)
	}
	return nil
}

func (a *app) showChecks(checks []check, ok bool) error {
	if a.output == "json" {
		return a.printJSON(map[string]any{"ok": ok, "checks": checks})
	}
	t := table{headings: []string{"STATUS", "CHECK", "DETAIL"}}
	terminal := isTerminal(a.stdout)
	if !terminal {
		t.headings = append(t.headings, "FIX")
	}
	for _, c := range checks {
		t.add([]string{c.Status, c.Name, c.Detail, c.Fix}[:len(t.headings)]...)
	}
	if err := t.print(a); err != nil {
		return err
	}
	if !terminal {
		return nil
	}
	for _, c := range checks {
		if c.Status == "OK" || c.Fix == "" {
			continue
		}
		colour := yellow
		if c.Status == "MISSING" && c.Required {
			colour = red
		}
		fmt.Fprintf(a.stdout, "\n%s %s\n", a.paint(a.stdout, colour, c.Name+":"), printable(c.Fix))
	}
	return nil
}
