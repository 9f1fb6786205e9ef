package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/client"
)

func newSnapshotImport(a *app) *cobra.Command {
	var name string
	cmd := &cobra.Command{
		Use:   "import FILE [flags]",
		Short: "Take a snapshot from a file, and print its id",
		Long:  `Take a snapshot from a file that "snapshot export" wrote, and print its id. - is standard input.`,
		Example: `  pandastack snapshot import warm.snapshot --name warm
  pandastack sandbox create --from-snapshot warm`,
		Args: args(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.client()
			if err != nil {
				return err
			}
			s, err := importFile(cmd, a, c, name, args[0])
			if err != nil {
				return err
			}
			if a.output == "json" {
				return a.printJSON(s)
			}
			_, err = fmt.Fprintln(a.stdout, s.ID)
			return err
		},
	}
	cmd.Flags().StringVar(&name, "name", "", "name to find it by")
	return cmd
}

// importFile sends a file, or standard input, to the server.
func importFile(cmd *cobra.Command, a *app, c *client.Client, name, file string) (api.Snapshot, error) {
	bar := a.newProgress()
	defer bar.end()
	if file == "-" {
		if a.stdin == nil || isTerminal(a.stdin) {
			return api.Snapshot{}, usagef(cmd, "standard input is a terminal, not a snapshot")
		}
		return c.Snapshots.Import(cmd.Context(), name, bar.reader(a.stdin, "import", -1))
	}
	f, err := os.Open(file)
	if err != nil {
		return api.Snapshot{}, localError(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return api.Snapshot{}, localError(err)
	}
	size := int64(-1)
	switch {
	case info.IsDir():
		return api.Snapshot{}, localError(&fs.PathError{Op: "read", Path: file, Err: errors.New("is a directory")})
	case info.Mode().IsRegular():
		size = info.Size()
	}
	return c.Snapshots.Import(cmd.Context(), name, bar.reader(f, filepath.Base(file), size))
}
