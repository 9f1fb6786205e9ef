package cli

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/client"
)

type listOptions struct {
	metadata []string
	status   []string
	template string
	quiet    bool
}

func newSandboxList(a *app) *cobra.Command {
	var o listOptions
	cmd := &cobra.Command{
		Use: "list [flags]", Aliases: []string{"ls"},
		Short: "List sandboxes, newest first",
		Example: `  pandastack sandbox list
  pandastack sandbox list --status running,paused --metadata owner=ci
  pandastack sandbox list -q --metadata owner=ci | xargs pandastack sandbox delete`,
		Args: args(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error { return runSandboxList(cmd, a, o) },
	}
	f := cmd.Flags()
	f.StringArrayVarP(&o.metadata, "metadata", "m", nil, "only those with this label, as KEY=VALUE; may be repeated")
	f.StringSliceVar(&o.status, "status", nil, "only these states: creating, running, paused, hibernated, deleting, failed")
	f.StringVarP(&o.template, "template", "t", "", "only those of this template")
	f.BoolVarP(&o.quiet, "quiet", "q", false, "ids only")
	return cmd
}

func runSandboxList(cmd *cobra.Command, a *app, o listOptions) error {
	labels, err := pairs(cmd, "metadata", o.metadata, nil)
	if err != nil {
		return err
	}
	query := client.ListOptions{Metadata: labels, Template: o.template}
	for _, s := range o.status {
		query.Status = append(query.Status, api.Status(s))
	}
	c, err := a.client()
	if err != nil {
		return err
	}
	out := api.SandboxList{Sandboxes: []api.Sandbox{}}
	for sb, err := range c.Sandboxes.List(cmd.Context(), query) {
		if err != nil {
			return err
		}
		out.Sandboxes = append(out.Sandboxes, sb.Sandbox)
	}
	if a.output == "json" {
		return a.printJSON(out)
	}
	t := table{headings: []string{"ID", "STATUS", "TEMPLATE", "DRIVER", "CREATED", "EXPIRES", "METADATA"}}
	if o.quiet {
		t.headings = t.headings[:1]
	}
	for _, s := range out.Sandboxes {
		var labels []string
		for _, k := range sortedKeys(s.Metadata) {
			labels = append(labels, k+"="+s.Metadata[k])
		}
		row := []string{s.ID, string(s.Status), s.Template, s.Driver, ago(s.CreatedAt), expires(s), strings.Join(labels, ",")}
		t.add(row[:len(t.headings)]...)
	}
	return t.print(a)
}
