package cli

import (
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/pandastack/pandastack/api"
)

func newNetwork(a *app) *cobra.Command {
	cmd := group("network", "Link sandboxes with each other",
		`Make networks that sandboxes join. Members reach each other at any port, find
each other as NAME.internal and ID.internal, and nobody else reaches them.`)
	cmd.Aliases = []string{"networks"}
	cmd.Example = `  pandastack network create backend
  db=$(pandastack sandbox create --join backend --name db)
  web=$(pandastack sandbox create --join backend --name web)
  pandastack sandbox exec $web -- getent hosts db.internal`
	cmd.AddCommand(newNetworkCreate(a), newNetworkList(a), newNetworkGet(a), newNetworkDelete(a))
	return cmd
}

func newNetworkCreate(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "create NAME",
		Short:   "Make a network",
		Long:    "Make a network. NAME is 1 to 40 of a-z, 0-9 and - within.",
		Example: `  pandastack network create backend`,
		Args:    args(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.client()
			if err != nil {
				return err
			}
			g, err := c.Networks.Create(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return a.showGroup(g)
		},
	}
}

func newNetworkList(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "list", Aliases: []string{"ls"},
		Short: "List networks",
		Long:  "List networks by name.",
		Example: `  pandastack network list
  pandastack network list -o json`,
		Args: args(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.client()
			if err != nil {
				return err
			}
			list, err := c.Networks.List(cmd.Context())
			if err != nil {
				return err
			}
			if a.output == "json" {
				return a.printJSON(api.NetworkGroupList{Networks: list})
			}
			t := table{headings: []string{"NAME", "MEMBERS", "CREATED"}}
			for _, g := range list {
				t.add(g.Name, strconv.Itoa(len(g.Members)), ago(g.CreatedAt))
			}
			return t.print(a)
		},
	}
}

func newNetworkGet(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "get NAME",
		Short:   "Show a network and its members",
		Long:    "Show a network and its members. One that sleeps has no address.",
		Example: `  pandastack network get backend`,
		Args:    args(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.client()
			if err != nil {
				return err
			}
			g, err := c.Networks.Get(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return a.showGroup(g)
		},
	}
}

func (a *app) showGroup(g *api.NetworkGroup) error {
	if a.output == "json" {
		return a.printJSON(g)
	}
	var f fields
	f.add("name", g.Name)
	f.add("created", g.CreatedAt.UTC().Format(time.RFC3339))
	for _, m := range g.Members {
		name := m.SandboxID
		if m.Name != "" {
			name += " " + m.Name + ".internal"
		}
		f.add("member", name+" "+m.Address)
	}
	return f.print(a)
}

func newNetworkDelete(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "delete NAME...", Aliases: []string{"rm"},
		Short:   "Delete networks that have no members",
		Long:    "Delete networks that have no members. What was deleted is printed.",
		Example: `  pandastack network delete backend`,
		Args:    args(1, -1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.client()
			if err != nil {
				return err
			}
			return a.eachNamed(cmd.Context(), args, func(name string) error { return c.Networks.Delete(cmd.Context(), name) })
		},
	}
}
