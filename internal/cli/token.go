package cli

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/pandastack/pandastack/api"
)

func newToken(a *app) *cobra.Command {
	cmd := group("token", "Create and revoke API keys", "Create and revoke API keys.")
	cmd.Aliases = []string{"tokens"}
	cmd.Example = "  pandastack token create ci"
	cmd.AddCommand(newTokenCreate(a), newTokenList(a), newTokenRevoke(a))
	return cmd
}

func newTokenCreate(a *app) *cobra.Command {
	var in api.CreateToken
	cmd := &cobra.Command{
		Use:   "create NAME [flags]",
		Short: "Create an API key and print it",
		Long:  "Create an API key and print it. It is stored hashed and cannot be shown again.",
		Example: `  key=$(pandastack token create ci)
  pandastack token create root --admin -o json`,
		Args: args(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			in.Name = args[0]
			return runTokenCreate(cmd, a, in)
		},
	}
	cmd.Flags().BoolVar(&in.Admin, "admin", false, "a key that may manage keys")
	return cmd
}

func runTokenCreate(cmd *cobra.Command, a *app, in api.CreateToken) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	t, err := c.Tokens.Create(cmd.Context(), in)
	if err != nil {
		return err
	}
	if a.output == "json" {
		return a.printJSON(t)
	}
	_, err = fmt.Fprintln(a.stdout, t.Key)
	return err
}

func newTokenList(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "list", Aliases: []string{"ls"},
		Short:   "List API keys by their prefixes",
		Example: "  pandastack token list",
		Args:    args(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.client()
			if err != nil {
				return err
			}
			list, err := c.Tokens.List(cmd.Context())
			if err != nil {
				return err
			}
			if a.output == "json" {
				return a.printJSON(api.TokenList{Tokens: list})
			}
			t := table{headings: []string{"PREFIX", "NAME", "ADMIN", "CREATED", "LAST USED"}}
			for _, k := range list {
				admin, used := "no", "never"
				if k.Admin {
					admin = "yes"
				}
				if k.LastUsed != nil {
					used = ago(*k.LastUsed)
				}
				t.add(k.Prefix, k.Name, admin, k.CreatedAt.UTC().Format(time.RFC3339), used)
			}
			return t.print(a)
		},
	}
}

func newTokenRevoke(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "revoke PREFIX", Aliases: []string{"delete", "rm"},
		Short:   "End an API key",
		Example: "  pandastack token revoke pds_1a2b3c4d",
		Args:    args(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.client()
			if err != nil {
				return err
			}
			if err := c.Tokens.Revoke(cmd.Context(), args[0]); err != nil {
				return err
			}
			if a.output == "json" {
				return a.printJSONLine(map[string]string{"prefix": args[0]})
			}
			_, err = fmt.Fprintln(a.stdout, args[0])
			return err
		},
	}
}
