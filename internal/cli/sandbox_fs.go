package cli

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pandastack/pandastack/api"
)

func newSandboxFS(a *app) *cobra.Command {
	cmd := group("fs", "Work on the files of a sandbox", `Work on the files of a sandbox. A relative path starts in the home directory of
--user, who also owns what is made. It is done as root of the sandbox: no
permission stands in the way.

To copy between here and a sandbox there is "sandbox cp".`)
	cmd.Aliases = []string{"files"}
	cmd.Example = `  pandastack sandbox fs ls $id /workspace
  echo 'print(6*7)' | pandastack sandbox fs write $id main.py
  pandastack sandbox fs grep $id 'def \w+' /workspace --include '*.py'`
	cmd.PersistentFlags().StringP("user", "u", "", "whose home relative paths start in and who owns what is made (default: user)")
	cmd.AddCommand(
		newFSList(a), newFSStat(a), newFSRead(a), newFSWrite(a), newFSAppend(a),
		newFSCopy(a), newFSChmod(a), newFSChown(a), newFSFind(a), newFSGrep(a), newFSReplace(a),
		newFSWatch(a), newFSArchive(a), newFSExtract(a), newFSURL(a),
	)
	cmd.AddCommand(plainFS(a)...)
	return cmd
}

// plainFS is the commands that need nothing but paths.
func plainFS(a *app) []*cobra.Command {
	return []*cobra.Command{
		forEach(a, doc{
			use: "rm ID PATH...", aliases: []string{"remove", "delete"},
			short: "Remove files, and directories with all in them",
			long: `Remove files, and directories with all in them. The path of each that was removed
is printed.`,
			example: "  pandastack sandbox fs rm $id build dist",
		}, "path", 0, func(c call, path string) error { return c.files().Remove(c.ctx, path) }),
		forEach(a, doc{
			use:     "mkdir ID PATH...",
			short:   "Make directories, and those above them",
			long:    "Make directories, and those above them. One that exists is no error.",
			example: "  pandastack sandbox fs mkdir $id src/app src/test",
		}, "path", 0, func(c call, path string) error { return c.files().MkdirAll(c.ctx, path) }),
		ask(a, doc{
			use: "mv ID FROM TO", aliases: []string{"move", "rename"},
			short:   "Move or rename a file or directory",
			example: "  pandastack sandbox fs mv $id draft.txt final.txt",
		}, func(c call) (done, error) {
			return done{From: c.args[0], To: c.args[1]}, c.files().Rename(c.ctx, c.args[0], c.args[1])
		}, nil),
		ask(a, doc{
			use: "ln ID TARGET PATH", aliases: []string{"symlink"},
			short:   "Make a symbolic link at PATH that says TARGET",
			long:    "Make a symbolic link at PATH that says TARGET, word for word. TARGET need not exist.",
			example: "  pandastack sandbox fs ln $id releases/42 current",
		}, func(c call) (api.LinkTarget, error) {
			return api.LinkTarget{Path: c.args[1], Target: c.args[0]}, c.files().Symlink(c.ctx, c.args[0], c.args[1])
		}, nil),
		ask(a, doc{
			use:     "readlink ID PATH",
			short:   "Show what a symbolic link says",
			example: "  pandastack sandbox fs readlink $id current",
		}, func(c call) (api.LinkTarget, error) {
			target, err := c.files().Readlink(c.ctx, c.args[0])
			return api.LinkTarget{Path: c.args[0], Target: target}, err
		}, func(a *app, l api.LinkTarget) error { return a.printLine(l.Target) }),
	}
}

func newFSList(a *app) *cobra.Command {
	var depth int
	cmd := ask(a, doc{
		use: "ls ID [PATH] [flags]", aliases: []string{"list"},
		short: "List a directory",
		long:  "List a directory, the home directory unless PATH says otherwise, and with --depth what is below it.",
		example: `  pandastack sandbox fs ls $id /workspace
  pandastack sandbox fs ls $id /workspace --depth 3 -o json | jq -r '.entries[].path'`,
	}, func(c call) (api.DirList, error) {
		path := c.arg(0)
		if path == "" {
			path = "."
		}
		list, err := c.files().ReadTree(c.ctx, path, depth)
		return api.DirList{Path: path, Entries: list}, err
	}, func(a *app, l api.DirList) error {
		t := table{headings: []string{"MODE", "OWNER", "GROUP", "SIZE", "MODIFIED", "NAME"}}
		for _, e := range l.Entries {
			name := e.Name
			if depth > 1 {
				name = e.Path
			}
			if e.Target != "" {
				name += " -> " + e.Target
			}
			t.add(e.Mode, e.Owner, e.Group, strconv.FormatInt(e.Size, 10), e.Modified.UTC().Format(time.RFC3339), name)
		}
		return t.print(a)
	})
	cmd.Flags().IntVar(&depth, "depth", 1, "levels of directories to list")
	return cmd
}

func newFSStat(a *app) *cobra.Command {
	return ask(a, doc{
		use:     "stat ID PATH",
		short:   "Describe a file or directory",
		example: "  pandastack sandbox fs stat $id main.py -o json | jq .size",
	}, func(c call) (api.FileInfo, error) { return c.files().Stat(c.ctx, c.args[0]) }, (*app).showFile)
}

func (a *app) showFile(e api.FileInfo) error {
	var f fields
	f.add("path", e.Path)
	f.add("type", e.Type)
	f.add("size", strconv.FormatInt(e.Size, 10))
	f.add("mode", e.Mode)
	f.add("owner", e.Owner)
	f.add("group", e.Group)
	f.add("modified", e.Modified.UTC().Format(time.RFC3339))
	f.add("target", e.Target)
	return f.print(a)
}

func newFSCopy(a *app) *cobra.Command {
	var overwrite bool
	cmd := ask(a, doc{
		use: "cp ID FROM TO [flags]", aliases: []string{"copy"},
		short: "Copy a file or directory within a sandbox",
		long: `Copy a file or directory within a sandbox. TO is the path of the copy itself; a
file that is there stays unless --overwrite is given.`,
		example: "  pandastack sandbox fs cp $id src backup/src",
	}, func(c call) (api.Changed, error) {
		n, err := c.files().Copy(c.ctx, c.args[0], c.args[1], overwrite)
		return api.Changed{Count: n}, err
	}, nil)
	cmd.Flags().BoolVar(&overwrite, "overwrite", false, "replace files that are there")
	return cmd
}

func newFSChmod(a *app) *cobra.Command {
	var recursive bool
	cmd := forEach(a, doc{
		use:   "chmod ID MODE PATH... [flags]",
		short: "Set permissions, given in octal",
		example: `  pandastack sandbox fs chmod $id 755 run.sh
  pandastack sandbox fs chmod $id 0644 docs -R`,
	}, "path", 1, func(c call, path string) error {
		_, err := c.files().Chmod(c.ctx, api.ChangeMode{Path: path, Mode: c.args[0], Recursive: recursive})
		return err
	})
	cmd.Flags().BoolVarP(&recursive, "recursive", "R", false, "everything below too")
	return cmd
}

func newFSChown(a *app) *cobra.Command {
	var recursive bool
	cmd := forEach(a, doc{
		use:   "chown ID OWNER[:GROUP] PATH... [flags]",
		short: "Set the owner, the group, or both",
		long: `Set the owner, the group, or both, by name or number. OWNER alone takes its own
group with it, :GROUP leaves the owner.`,
		example: `  pandastack sandbox fs chown $id root:root /etc/app.conf
  pandastack sandbox fs chown $id user /workspace -R`,
	}, "path", 1, func(c call, path string) error {
		owner, group, _ := strings.Cut(c.args[0], ":")
		_, err := c.files().Chown(c.ctx, api.ChangeOwner{Path: path, Owner: owner, Group: group, Recursive: recursive})
		return err
	})
	cmd.Flags().BoolVarP(&recursive, "recursive", "R", false, "everything below too")
	return cmd
}

func newFSURL(a *app) *cobra.Command {
	var write bool
	expires := duration{time.Hour}
	cmd := ask(a, doc{
		use:   "url ID PATH [flags]",
		short: "Make a URL for a file that works without a key",
		long: `Make a URL for a file that works without a key until it expires or the sandbox is
deleted: one that is read with GET or, with --write, that makes or replaces the
file with PUT. Whoever has the URL can use it.`,
		example: `  curl -O "$(pandastack sandbox fs url $id report.pdf --expires 10m)"
  curl -T data.csv "$(pandastack sandbox fs url $id data.csv --write)"`,
	}, func(c call) (api.SignedFile, error) {
		in := api.SignFile{Path: c.args[0], Operation: "read", ExpiresSeconds: expires.seconds()}
		if write {
			in.Operation = "write"
		}
		return c.files().Sign(c.ctx, in)
	}, func(a *app, s api.SignedFile) error { return a.printLine(s.URL) })
	cmd.Flags().BoolVar(&write, "write", false, "for an upload")
	cmd.Flags().Var(&expires, "expires", "how long it works, at most 7d")
	return cmd
}

// printLine prints one line, on a terminal without what would control it.
func (a *app) printLine(s string) error {
	if isTerminal(a.stdout) {
		s = printable(s)
	}
	_, err := fmt.Fprintln(a.stdout, s)
	return err
}
