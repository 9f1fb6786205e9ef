package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/client"
)

func newSandboxCp(a *app) *cobra.Command {
	var user string
	cmd := &cobra.Command{
		Use:   "cp SOURCE DESTINATION [flags]",
		Short: "Copy files to or from a sandbox",
		Long: `Copy files and directories to or from a sandbox.

One side is a path here, or - for standard input or output; the other is
ID:PATH, where a relative path starts in the user's home directory. A directory
is copied with all in it: into DESTINATION if that is a directory, else as
DESTINATION. SOURCE/. is what is in it. Links and special files are left out,
with a warning.

A file of 8 MiB or more that breaks off is tried again, and goes on where it was.
What has come until then stays beside its place as .NAME.part-*: the same command
goes on from there, unless the source has changed.`,
		Example: `  pandastack sandbox cp main.py $id:/workspace/
  pandastack sandbox cp ./src $id:/workspace/src
  pandastack sandbox cp $id:/workspace/out ./out
  pandastack sandbox cp $id:result.json - | jq .`,
		Args: args(2, 2),
		RunE: func(cmd *cobra.Command, args []string) error { return runSandboxCp(cmd, a, user, args[0], args[1]) },
	}
	cmd.Flags().StringVarP(&user, "user", "u", "", "whose home relative paths start in and who owns what is made (default: user)")
	return cmd
}

// copier copies between here and one sandbox.
type copier struct {
	app  *app
	ctx  context.Context
	fs   client.Files
	sb   *client.Sandbox
	user string
	bar  *progress
}

func runSandboxCp(cmd *cobra.Command, a *app, user, from, to string) error {
	fromID, fromPath, fromRemote := remotePath(from)
	toID, toPath, toRemote := remotePath(to)
	if fromRemote == toRemote {
		return usagef(cmd, "one of SOURCE and DESTINATION is in a sandbox, as ID:PATH, and the other is not")
	}
	id := fromID + toID
	sb, err := a.handle(id)
	if err != nil {
		return err
	}
	c := &copier{app: a, ctx: cmd.Context(), sb: sb, fs: sb.As(user), user: user, bar: a.newProgress()}
	defer c.bar.end()
	if toRemote {
		return c.upload(from, toPath)
	}
	return c.download(fromPath, to)
}

// remotePath takes ID:PATH apart. A slash before the first colon makes it a
// path here.
func remotePath(s string) (id, p string, ok bool) {
	id, p, ok = strings.Cut(s, ":")
	if !ok || id == "" || strings.ContainsAny(id, `/\`) {
		return "", "", false
	}
	if p == "" {
		p = "."
	}
	return id, p, true
}

// isDir reports whether a path in the sandbox is a directory, following links.
func (c *copier) isDir(p string) (bool, error) {
	info, err := c.fs.Stat(c.ctx, p)
	switch {
	case client.IsNotFound(err) && api.CodeOf(err) == api.CodeFileNotFound:
		return false, nil
	case err != nil:
		return false, err
	case info.Type == "symlink":
		_, err := c.fs.ReadDir(c.ctx, p)
		return err == nil, nil
	}
	return info.Type == "directory", nil
}

func (c *copier) warn(format string, args ...any) {
	c.bar.end()
	fmt.Fprintf(c.app.stderr, "%s %s\n", c.app.paint(c.app.stderr, yellow, "warning:"), printable(fmt.Sprintf(format, args...)))
}

func (c *copier) upload(from, to string) error {
	intoDir := strings.HasSuffix(to, "/")
	if from == "-" {
		if intoDir {
			return api.Errorf(api.CodeInvalidRequest, "standard input has no name; say which file to write").WithHint("")
		}
		return c.fs.Upload(c.ctx, to, c.bar.reader(c.app.stdin, to, -1))
	}
	info, err := os.Stat(from)
	if err != nil {
		return localError(err)
	}
	contents := strings.HasSuffix(from, "/.") || from == "."
	if !contents {
		if !intoDir {
			if intoDir, err = c.isDir(to); err != nil {
				return err
			}
		}
		if intoDir {
			abs, err := filepath.Abs(from)
			if err != nil {
				return localError(err)
			}
			to = path.Join(to, filepath.Base(abs))
		}
	}
	if info.IsDir() {
		return c.uploadTree(from, to)
	}
	if err := c.uploadFile(from, to); err != nil {
		return err
	}
	if info.Mode()&0o111 != 0 {
		return c.makeExecutable([]string{to})
	}
	return nil
}

func (c *copier) uploadFile(from, to string) error {
	f, err := os.Open(from)
	if err != nil {
		return localError(err)
	}
	defer f.Close()
	size := int64(-1)
	if info, err := f.Stat(); err == nil && info.Mode().IsRegular() {
		if size = info.Size(); size >= resumeAbove {
			return c.uploadParts(f, info, to)
		}
	}
	return c.fs.Upload(c.ctx, to, c.bar.reader(f, filepath.Base(from), size))
}

func (c *copier) uploadTree(from, to string) error {
	var executables []string
	err := filepath.WalkDir(from, func(name string, entry os.DirEntry, err error) error {
		if err != nil {
			return localError(err)
		}
		rel, err := filepath.Rel(from, name)
		if err != nil {
			return localError(err)
		}
		remote := path.Join(to, filepath.ToSlash(rel))
		switch {
		case entry.IsDir():
			return c.fs.MkdirAll(c.ctx, remote)
		case name == from: // a link to a directory, given by its name
			return localError(fmt.Errorf("%s is a link; add /. to copy what it leads to", from))
		case !entry.Type().IsRegular():
			c.warn("left out %s: not a plain file", name)
			return nil
		}
		if info, err := entry.Info(); err == nil && info.Mode()&0o111 != 0 {
			executables = append(executables, remote)
		}
		return c.uploadFile(name, remote)
	})
	if err != nil {
		return err
	}
	return c.makeExecutable(executables)
}

// makeExecutable sets the permission that an upload does not carry.
func (c *copier) makeExecutable(files []string) error {
	const batch = 100 // far below the longest command line
	for len(files) > 0 {
		n := min(batch, len(files))
		in := api.Exec{Cmd: client.Argv("chmod", append([]string{"a+x", "--"}, files[:n]...)...), User: c.user}
		files = files[n:]
		r, err := c.sb.ExecWith(c.ctx, in)
		if err != nil {
			return err
		}
		if r.ExitCode != 0 {
			c.warn("some files could not be made executable: %s", strings.TrimSpace(r.Stderr))
		}
	}
	return nil
}

// localError is a failure of this machine's files, as its text says.
func localError(err error) error {
	return api.Wrap(api.CodeInvalidRequest, err, "%s", err).WithHint("")
}

func (c *copier) downloadTo(w io.Writer, from string) error {
	f, err := c.fs.Open(c.ctx, from)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = io.Copy(w, c.bar.reader(f, path.Base(from), f.Size))
	return err
}
