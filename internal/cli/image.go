package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/pandastack/pandastack/internal/server"
)

func newImage(a *app) *cobra.Command {
	cmd := group("image", "Make root images on this machine", `Make the images that templates start from, on this machine and without a server.`)
	cmd.Example = `  sudo pandastack image build base`
	cmd.AddCommand(newImageBuild(a))
	return cmd
}

func newImageBuild(a *app) *cobra.Command {
	var o serverOptions
	cmd := &cobra.Command{
		Use:   "build [flags] NAME",
		Short: "Make a template's image ahead of the first server",
		Long: `Make the image of a template, unless it is there. A server does the same at its
first start; this is for machine images, CI caches, and sites that go offline.`,
		Example: `  sudo pandastack image build base
  sudo pandastack image build base --image-cache /srv/images --mirror http://mirror.internal/debian
  sudo pandastack image build mine --image mine=/srv/rootfs.tar`,
		Args: args(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.logLevel, o.logFormat = "error", "text"
			c, err := o.config(cmd, a)
			if err != nil {
				return err
			}
			p := a.newProgress()
			digest, err := server.BuildTemplate(cmd.Context(), c, args[0], p.show)
			p.end()
			if err != nil {
				return err
			}
			if a.output == "json" {
				return a.printJSON(map[string]string{"name": args[0], "digest": digest})
			}
			_, err = fmt.Fprintln(a.stdout, digest)
			return err
		},
	}
	o.addFlags(cmd)
	return cmd
}
