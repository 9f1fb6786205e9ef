package cli

import (
	"fmt"
	"strconv"

	"github.com/spf13/cobra"
)

func newSandboxPreviewURL(a *app) *cobra.Command {
	var ttl duration
	cmd := inSandbox(a, doc{
		use:   "preview-url ID PORT [flags]",
		short: "Print the address of a port's preview",
		long: `Print the address of the preview of a port of a sandbox.

With --ttl it is a signed one that opens a private preview too, for that long.`,
		example: `  curl $(pandastack sandbox preview-url k3v9x0q2m7c1b8n4t6zd 8000)
  pandastack sandbox preview-url k3v9x0q2m7c1b8n4t6zd 8000 --ttl 1h`,
	}, func(c call) error {
		port, err := strconv.Atoi(c.arg(0))
		if err != nil {
			return usagef(c.cmd, "%q is not a port", c.arg(0))
		}
		return printPreviewURL(c, port, ttl)
	})
	cmd.Flags().Var(&ttl, "ttl", "how long a signed URL is good for, such as 90s, 2h or 7d")
	return cmd
}

func printPreviewURL(c call, port int, ttl duration) error {
	var url string
	var out any
	if c.cmd.Flags().Changed("ttl") {
		signed, err := c.sb.SignedPreviewURL(c.ctx, port, ttl.Duration)
		if err != nil {
			return err
		}
		url, out = signed.URL, signed
	} else {
		plain, err := c.sb.Preview(c.ctx, port)
		if err != nil {
			return err
		}
		url, out = plain.URL, plain
	}
	if c.app.output == "json" {
		return c.app.printJSON(out)
	}
	_, err := fmt.Fprintln(c.app.stdout, url)
	return err
}
