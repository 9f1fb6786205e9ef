package cli

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pandastack/pandastack/api"
)

func newTemplate(a *app) *cobra.Command {
	cmd := group("template", "See what sandboxes start from", "See what sandboxes start from.")
	cmd.Aliases = []string{"templates"}
	cmd.Example = "  pandastack template list"
	cmd.AddCommand(newTemplateList(a), newTemplateGet(a))
	return cmd
}

func newTemplateList(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "list", Aliases: []string{"ls"},
		Short:   "List templates",
		Example: "  pandastack template list",
		Args:    args(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.client()
			if err != nil {
				return err
			}
			list, err := c.Templates.List(cmd.Context())
			if err != nil {
				return err
			}
			if a.output == "json" {
				return a.printJSON(api.TemplateList{Templates: list})
			}
			t := table{headings: []string{"NAME", "STATUS", "SIZE", "SNAPSHOTS", "DIGEST"}}
			for _, x := range list {
				t.add(x.Name, templateStatus(x), bytesText(x.SizeBytes), strings.Join(x.Snapshots, ","), x.Digest)
			}
			return t.print(a)
		},
	}
}

func newTemplateGet(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "get NAME",
		Short:   "Show a template",
		Example: "  pandastack template get base",
		Args:    args(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.client()
			if err != nil {
				return err
			}
			x, err := c.Templates.Get(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return a.showTemplate(x)
		},
	}
}

func (a *app) showTemplate(x api.Template) error {
	if a.output == "json" {
		return a.printJSON(x)
	}
	var f fields
	f.add("name", x.Name)
	f.add("status", templateStatus(x))
	f.add("digest", x.Digest)
	f.add("size", bytesText(x.SizeBytes))
	f.add("cpu", fmt.Sprintf("%g", x.CPU))
	f.add("memory", fmt.Sprintf("%d MiB", x.MemoryMB))
	f.add("disk", fmt.Sprintf("%d MiB", x.DiskMB))
	f.add("snapshots", strings.Join(x.Snapshots, ","))
	if x.CreatedAt != nil {
		f.add("created", x.CreatedAt.UTC().Format(time.RFC3339))
	}
	if x.Error != nil {
		f.add("error", x.Error.Message)
	}
	return f.print(a)
}

func templateStatus(x api.Template) string {
	if x.Status == "building" && x.Progress != "" {
		return fmt.Sprintf("building: %s, %.0f%%", x.Progress, x.Percent)
	}
	return x.Status
}
