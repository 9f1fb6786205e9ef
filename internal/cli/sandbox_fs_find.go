package cli

import (
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/pandastack/pandastack/api"
)

// note says on standard error what a result leaves out.
func (a *app) note(format string, args ...any) {
	fmt.Fprintf(a.stderr, "%s %s\n", a.paint(a.stderr, yellow, "note:"), printable(fmt.Sprintf(format, args...)))
}

// incomplete notes why a result is not all there is.
func (a *app) incomplete(truncated, timedOut bool) {
	if truncated {
		a.note("there are more than are shown")
	}
	if timedOut {
		a.note("the time was over before all files were looked at")
	}
}

func newFSFind(a *app) *cobra.Command {
	var limit int
	var regexp, ignoreCase bool
	cmd := ask(a, doc{
		use: "find ID PATTERN [PATH] [flags]", aliases: []string{"glob"},
		short: "Find files by their path or name",
		long: `Find files below a directory, by default the working directory of the sandbox, by
the pattern of their path: * and ? within a name, ** over directories, [a-z] and
{a,b}. With --regexp PATTERN is a regular expression for the name alone. The
paths are printed, a line each.`,
		example: `  pandastack sandbox fs find $id 'src/**/*.{ts,tsx}' /workspace
  pandastack sandbox fs find $id --regexp '^test_.*\.py$' /workspace`,
	}, func(c call) (api.SearchResult, error) {
		if regexp {
			return c.files().Search(c.ctx, api.Search{Path: c.arg(1), Pattern: c.args[0], Names: true, IgnoreCase: ignoreCase, MaxResults: limit})
		}
		if ignoreCase {
			return api.SearchResult{}, usagef(c.cmd, "--ignore-case goes with --regexp")
		}
		g, err := c.files().Glob(c.ctx, api.Glob{Path: c.arg(1), Pattern: c.args[0], Limit: limit})
		out := api.SearchResult{Path: g.Path, Matches: []api.SearchMatch{}, Truncated: g.Truncated}
		for _, m := range g.Matches {
			out.Matches = append(out.Matches, api.SearchMatch{Path: m.Path})
		}
		return out, err
	}, func(a *app, r api.SearchResult) error {
		for _, m := range r.Matches {
			if err := a.printLine(cleanCells([]string{m.Path})[0]); err != nil {
				return err
			}
		}
		a.incomplete(r.Truncated, r.TimedOut)
		return nil
	})
	f := cmd.Flags()
	f.BoolVar(&regexp, "regexp", false, "PATTERN is a regular expression (RE2) for the name")
	f.BoolVarP(&ignoreCase, "ignore-case", "i", false, "capitals and small letters are the same")
	f.IntVarP(&limit, "max", "n", 0, "at most so many (default 1000)")
	return cmd
}

func newFSGrep(a *app) *cobra.Command {
	var in api.Search
	var limit duration
	cmd := inSandbox(a, doc{
		use: "grep ID PATTERN [PATH] [flags]", aliases: []string{"search"},
		short: "Find lines of files",
		long: `Find lines of the files below a directory, or of one file, that match a regular
expression (RE2). By default it looks in the working directory of the sandbox.
The lines come as path, number and text; those around a match, with -C, have a -
behind the number. The exit code is 1 when nothing was found.`,
		example: `  pandastack sandbox fs grep $id 'import (os|sys)' /workspace --include '*.py'
  pandastack sandbox fs grep $id -F 'a.b()' main.py -C 2`,
	}, func(c call) error {
		in.Pattern, in.Path, in.TimeoutSeconds = c.args[0], c.arg(1), limit.Seconds()
		out, err := c.files().Search(c.ctx, in)
		if err != nil {
			return err
		}
		if err := a.showMatches(out); err != nil {
			return err
		}
		if len(out.Matches) == 0 {
			return silentExit(exitFailure)
		}
		return nil
	})
	f := cmd.Flags()
	f.BoolVarP(&in.Literal, "fixed", "F", false, "PATTERN is the text itself")
	f.BoolVarP(&in.IgnoreCase, "ignore-case", "i", false, "capitals and small letters are the same")
	f.IntVarP(&in.Context, "context", "C", 0, "lines around each match, at most 20")
	f.IntVarP(&in.MaxResults, "max", "n", 0, "at most so many (default 1000)")
	addGlobFlags(cmd, &in.Include, &in.Exclude, &limit)
	return cmd
}

// addGlobFlags adds what says which files are looked at, and for how long.
func addGlobFlags(cmd *cobra.Command, include, exclude *[]string, limit *duration) {
	f := cmd.Flags()
	f.StringArrayVar(include, "include", nil, "only files that match this glob; may be repeated")
	f.StringArrayVar(exclude, "exclude", nil, "no files or directories that match this glob; may be repeated")
	f.Var(limit, "timeout", "stop after this long (default 30s)")
}

func (a *app) showMatches(r api.SearchResult) error {
	if a.output == "json" {
		return a.printJSON(r)
	}
	t := table{headings: []string{"PATH", "LINE", "TEXT"}}
	path, shown := "", 0 // the last line that is in the table
	around := func(line int, text string) {
		if line > shown {
			t.add(path, strconv.Itoa(line)+"-", text)
			shown = line
		}
	}
	for i, m := range r.Matches {
		if m.Path != path {
			path, shown = m.Path, 0
		}
		for n, text := range m.Before {
			around(m.Line-len(m.Before)+n, text)
		}
		t.add(path, strconv.Itoa(m.Line), m.Text)
		shown = m.Line
		for n, text := range m.After {
			if i+1 < len(r.Matches) && r.Matches[i+1].Path == path && r.Matches[i+1].Line <= m.Line+1+n {
				break // it matches itself
			}
			around(m.Line+1+n, text)
		}
	}
	if len(t.rows) > 0 {
		if err := t.print(a); err != nil {
			return err
		}
	}
	a.incomplete(r.Truncated, r.TimedOut)
	return nil
}

func newFSReplace(a *app) *cobra.Command {
	var in api.Replace
	var limit duration
	cmd := ask(a, doc{
		use:   "replace ID PATTERN REPLACEMENT [PATH] [flags]",
		short: "Change text in files",
		long: `Change text in the files below a directory, or in one file; by default in the
working directory of the sandbox. PATTERN is a regular expression (RE2), and in
REPLACEMENT $1 or ${name} is a group and $$ a dollar. Each file is replaced as a
whole or left as it was. The files are printed with how many changes each has.`,
		example: `  pandastack sandbox fs replace $id 'colou?r' color /workspace --include '*.md' --dry-run
  pandastack sandbox fs replace $id -F old.example.com new.example.com config.json`,
	}, func(c call) (api.ReplaceResult, error) {
		in.Pattern, in.Replacement, in.Path, in.TimeoutSeconds = c.args[0], c.args[1], c.arg(2), limit.Seconds()
		return c.files().Replace(c.ctx, in)
	}, func(a *app, r api.ReplaceResult) error {
		t := table{headings: []string{"PATH", "CHANGES"}}
		for _, f := range r.Files {
			t.add(f.Path, strconv.Itoa(f.Count))
		}
		if r.Skipped > 0 {
			a.note("%d files above 8 MiB were left alone", r.Skipped)
		}
		a.incomplete(r.Truncated, r.TimedOut)
		if len(t.rows) == 0 {
			return nil
		}
		return t.print(a)
	})
	f := cmd.Flags()
	f.BoolVarP(&in.Literal, "fixed", "F", false, "PATTERN and REPLACEMENT are the text itself")
	f.BoolVarP(&in.IgnoreCase, "ignore-case", "i", false, "capitals and small letters are the same")
	f.BoolVar(&in.DryRun, "dry-run", false, "change nothing, only count")
	addGlobFlags(cmd, &in.Include, &in.Exclude, &limit)
	return cmd
}

func newFSWatch(a *app) *cobra.Command {
	var recursive bool
	cmd := inSandbox(a, doc{
		use:   "watch ID [PATH] [flags]",
		short: "Follow the changes of a directory",
		long: `Follow the changes of a directory, by default the home directory, until
interrupted or until the directory is gone: type and path, a line each. overflow
says that changes were lost and the directory must be looked at anew.`,
		example: `  pandastack sandbox fs watch $id /workspace --recursive
  pandastack sandbox fs watch $id /workspace -o json | jq -r .path`,
	}, func(c call) error {
		path := c.arg(0)
		if path == "" {
			path = "."
		}
		w, err := c.files().Watch(c.ctx, path, recursive)
		if err != nil {
			return err
		}
		defer w.Close()
		if isTerminal(a.stderr) {
			fmt.Fprintln(a.stderr, "watching; Ctrl-C ends it")
		}
		for ev, err := range w.All() {
			switch {
			case err != nil:
			case a.output == "json":
				err = a.printJSONLine(ev)
			default:
				err = a.printRows([]string{string(ev.Type), ev.Path})
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	cmd.Flags().BoolVarP(&recursive, "recursive", "r", false, "everything below too")
	return cmd
}
