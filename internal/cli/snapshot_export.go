package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/spf13/cobra"

	"github.com/pandastack/pandastack/api"
)

type exportOptions struct {
	file  string
	force bool
}

func newSnapshotExport(a *app) *cobra.Command {
	var o exportOptions
	cmd := &cobra.Command{
		Use:   "export ID|NAME -f FILE [flags]",
		Short: "Write a snapshot to a file",
		Long: `Write a snapshot, with the image it needs, to one file that "snapshot import"
takes on any server. FILE appears when it is whole, readable by you alone: it
holds what was in the sandbox's memory. - is standard output.`,
		Example: `  pandastack snapshot export warm -f warm.snapshot
  pandastack snapshot export warm -f - | ssh other pandastack snapshot import - --name warm`,
		Args: args(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.file == "" {
				return usagef(cmd, "say with -f which file to write, or - for standard output")
			}
			return runSnapshotExport(cmd.Context(), a, o, args[0])
		},
	}
	cmd.Flags().StringVarP(&o.file, "file", "f", "", "file to write")
	cmd.Flags().BoolVar(&o.force, "force", false, "replace a file that exists")
	return cmd
}

func runSnapshotExport(ctx context.Context, a *app, o exportOptions, name string) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	bar := a.newProgress()
	defer bar.end()
	if o.file == "-" {
		if isTerminal(a.stdout) {
			return api.Errorf(api.CodeInvalidRequest, "a snapshot is not for a terminal").WithHint("Say with -f which file to write.")
		}
		return c.Snapshots.Export(ctx, name, bar.writer(a.stdout, name, -1))
	}
	n, err := exportFile(o, func(w io.Writer) error { return c.Snapshots.Export(ctx, name, bar.writer(w, name, -1)) })
	if err != nil {
		return err
	}
	bar.end()
	if a.output == "json" {
		return a.printJSON(map[string]any{"file": o.file, "size_bytes": n})
	}
	if isTerminal(a.stderr) {
		fmt.Fprintf(a.stderr, "%s written\n", bytesText(n))
	}
	_, err = fmt.Fprintln(a.stdout, o.file)
	return err
}

// exportFile has a file written under another name first, so that what has the
// name is whole, and gives its length.
func exportFile(o exportOptions, write func(io.Writer) error) (int64, error) {
	info, err := os.Stat(o.file)
	switch {
	case err == nil && info.IsDir():
		return 0, localError(&fs.PathError{Op: "write", Path: o.file, Err: errors.New("is a directory")})
	case err == nil && !info.Mode().IsRegular(): // a device or pipe is written to, not replaced
		f, err := os.OpenFile(o.file, os.O_WRONLY, 0)
		if err != nil {
			return 0, localError(err)
		}
		defer f.Close()
		return exportTo(f, write)
	case err == nil && !o.force:
		return 0, fileExists(o.file)
	}
	part := o.file + ".part-" + api.NewID()
	f, err := os.OpenFile(part, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return 0, localError(err)
	}
	defer os.Remove(part) // it is not there any more when all went well
	n, err := exportTo(f, write)
	if err == nil {
		err = fileError(f.Sync())
	}
	if e := f.Close(); err == nil {
		err = fileError(e)
	}
	if err != nil {
		return 0, err
	}
	return n, place(part, o.file, o.force)
}

// place gives a finished file its name. Without force a file that has got the
// name meanwhile stays.
func place(part, name string, force bool) error {
	if force {
		return fileError(os.Rename(part, name))
	}
	err := os.Link(part, name)
	switch {
	case errors.Is(err, fs.ErrExist):
		return fileExists(name)
	case err != nil: // a filesystem without links
		return fileError(os.Rename(part, name))
	}
	return nil
}

func fileExists(name string) error {
	return api.Errorf(api.CodeInvalidRequest, "%s exists", name).WithHint("Choose another name, or replace it with --force.")
}

func fileError(err error) error {
	if err == nil {
		return nil
	}
	return localError(err)
}

// exportTo has w written and gives its length.
func exportTo(w io.Writer, write func(io.Writer) error) (int64, error) {
	counted := &countedWriter{w: w}
	err := write(counted)
	var local *fs.PathError
	if errors.As(err, &local) {
		return 0, localError(err)
	}
	return counted.n, err
}

// countedWriter knows how much went through it.
type countedWriter struct {
	w io.Writer
	n int64
}

func (c *countedWriter) Write(b []byte) (int, error) {
	n, err := c.w.Write(b)
	c.n += int64(n)
	return n, err
}
