package cli

import (
	"fmt"
	"io"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/client"
)

// Where the credentials for a remote come from when no flag names them.
const (
	envGitUser     = "PANDASTACK_GIT_USERNAME"
	envGitPassword = "PANDASTACK_GIT_PASSWORD"
)

// maxGitPassword bounds what is read as a password.
const maxGitPassword = 8 << 10

func newSandboxGit(a *app) *cobra.Command {
	cmd := group("git", "Work on the git repositories of a sandbox", `Work on the git repositories of a sandbox. -C says in which directory; without it
that is the working directory of the sandbox.

The name and password or token for a remote come from `+envGitUser+`
and `+envGitPassword+`, or from --username and --password-file. They are
never on the sandbox's disk, in an argument or in an environment variable there,
and never printed.`)
	cmd.Example = `  pandastack sandbox git clone $id https://example.com/team/project.git /workspace/project
  pandastack sandbox git add $id -C /workspace/project
  pandastack sandbox git commit $id -C /workspace/project -m 'Fix it'
  PANDASTACK_GIT_PASSWORD=$TOKEN pandastack sandbox git push $id -C /workspace/project --host example.com`
	f := cmd.PersistentFlags()
	f.StringP("repo", "C", "", "directory of the repository (default: the sandbox's working directory)")
	f.StringP("user", "u", "", "user to run git as (default: user)")
	f.Var(&duration{}, "timeout", "end it after this long (default 1m, with a remote 10m)")
	cmd.AddCommand(
		newGitClone(a),
		ask(a, doc{
			use:   "status ID",
			short: "Show how a repository stands",
			long: `Show how a repository stands: branch, commit, and the files that differ from the
last commit with what is staged of them and what is not.`,
			example: "  pandastack sandbox git status $id -C /workspace/project",
		}, func(c call) (api.GitStatus, error) { return c.sb.Git().Status(c.ctx, c.repo()) }, (*app).showGitStatus),
		newGitDiff(a),
		ask(a, doc{
			use:   "add ID [PATH...]",
			short: "Stage changes",
			long:  "Stage the changes of the files named, or all. Paths are relative to the repository's directory.",
			example: `  pandastack sandbox git add $id -C /workspace/project
  pandastack sandbox git add $id -C /workspace/project src README.md`,
		}, func(c call) (api.GitStatus, error) {
			return c.sb.Git().Add(c.ctx, api.GitAdd{GitRepo: c.repo(), Paths: c.args})
		}, nil),
		newGitCommit(a), newGitBranch(a), newGitCheckout(a), newGitPull(a), newGitPush(a), newGitLog(a),
	)
	return cmd
}

// repo is the repository that the flags of the group name.
func (c call) repo() api.GitRepo {
	f := c.cmd.Flags()
	dir, _ := f.GetString("repo") // the group has both flags
	return api.GitRepo{Path: dir, User: c.user(), TimeoutSeconds: f.Lookup("timeout").Value.(*duration).Seconds()}
}

// gitLogin is the flags of what talks to a remote.
type gitLogin struct{ username, passwordFile, host string }

func (l *gitLogin) addFlags(cmd *cobra.Command, host string) {
	f := cmd.Flags()
	f.StringVar(&l.username, "username", "", "name for the remote (default: $"+envGitUser+", else git)")
	f.StringVar(&l.passwordFile, "password-file", "", "file with the password or token, - for standard input (default: $"+envGitPassword+")")
	f.StringVar(&l.host, "host", "", host)
}

// auth gives the credentials, nil when there are none. What runs in the sandbox
// can point a remote elsewhere, so they are never sent without the name of the
// host that they are for.
func (l *gitLogin) auth(c call, remote string) (*api.GitAuth, error) {
	password := c.app.getenv(envGitPassword)
	if l.passwordFile != "" {
		var err error
		if password, err = readPassword(c.app, l.passwordFile); err != nil {
			return nil, err
		}
	}
	host := l.host
	if u, err := url.Parse(remote); err == nil && host == "" {
		host = u.Host
	}
	switch {
	case password == "":
		return nil, nil
	case host == "" && remote == "":
		return nil, usagef(c.cmd, "say with --host which server the password is for: the repository in the sandbox may name another")
	case host == "": // no URL with a host: git says what is wrong with it
		return nil, nil
	}
	name := l.username
	if name == "" {
		name = c.app.getenv(envGitUser)
	}
	return &api.GitAuth{Username: name, Password: password, Host: host}, nil
}

func readPassword(a *app, file string) (string, error) {
	in := a.stdin
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return "", localError(err)
		}
		defer f.Close()
		in = f
	}
	raw, err := io.ReadAll(io.LimitReader(in, maxGitPassword+2))
	if err != nil {
		return "", localError(err)
	}
	password := strings.TrimRight(string(raw), "\r\n")
	if password == "" || len(password) > maxGitPassword {
		return "", api.Errorf(api.CodeInvalidRequest, "%s holds no password", file).WithHint("")
	}
	return password, nil
}

func newGitClone(a *app) *cobra.Command {
	var in api.GitClone
	var login gitLogin
	cmd := ask(a, doc{
		use:   "clone ID URL [DIRECTORY] [flags]",
		short: "Make a repository of a remote one",
		long: `Make a repository of a remote one, in DIRECTORY, by default one of its name in the
sandbox's working directory.`,
		example: `  pandastack sandbox git clone $id https://example.com/team/project.git --depth 1
  PANDASTACK_GIT_PASSWORD=$TOKEN pandastack sandbox git clone $id https://example.com/team/private.git`,
	}, func(c call) (api.GitStatus, error) {
		var err error
		in.GitRepo, in.URL = c.repo(), c.args[0]
		if dir := c.arg(1); dir != "" {
			in.Path = dir
		}
		if in.Auth, err = login.auth(c, in.URL); err != nil {
			return api.GitStatus{}, err
		}
		return c.sb.Git().Clone(c.ctx, in)
	}, (*app).showGitStatus)
	login.addFlags(cmd, "server that the password is for (default: that of URL)")
	cmd.Flags().StringVarP(&in.Branch, "branch", "b", "", "branch or tag to check out")
	cmd.Flags().IntVar(&in.Depth, "depth", 0, "only so many of the latest commits (default all)")
	return cmd
}

func newGitDiff(a *app) *cobra.Command {
	var in api.GitDiff
	cmd := ask(a, doc{
		use:   "diff ID [PATH...] [flags]",
		short: "Show changes as a patch",
		long: `Show changes as a patch: what is not staged, with --staged what is, or with --from
the difference to a commit.`,
		example: `  pandastack sandbox git diff $id -C /workspace/project
  pandastack sandbox git diff $id -C /workspace/project --from main --to work src`,
	}, func(c call) (api.GitPatch, error) {
		in.GitRepo, in.Paths = c.repo(), c.args
		return c.sb.Git().Diff(c.ctx, in)
	}, func(a *app, p api.GitPatch) error {
		if p.Truncated {
			a.note("the patch is longer; name paths to get it in parts")
		}
		if isTerminal(a.stdout) {
			p.Diff = printable(p.Diff)
		}
		_, err := io.WriteString(a.stdout, p.Diff)
		return err
	})
	f := cmd.Flags()
	f.BoolVar(&in.Staged, "staged", false, "what is staged, against the last commit")
	f.StringVar(&in.From, "from", "", "commit or branch to compare with")
	f.StringVar(&in.To, "to", "", "with --from: the other commit (default: the files as they are)")
	return cmd
}

func newGitCommit(a *app) *cobra.Command {
	var in api.GitCommitRequest
	cmd := ask(a, doc{
		use:   "commit ID [flags]",
		short: "Commit what is staged, and print the commit's id",
		example: `  pandastack sandbox git commit $id -C /workspace/project -m 'Fix it'
  pandastack sandbox git commit $id -C /workspace/project -a -m 'Fix it' --author 'Ann <ann@example.com>'`,
	}, func(c call) (api.GitCommit, error) {
		author, _ := c.cmd.Flags().GetString("author")
		name, rest, angle := strings.Cut(author, "<")
		email, _, closed := strings.Cut(rest, ">")
		if author != "" && (!angle || !closed) {
			return api.GitCommit{}, usagef(c.cmd, "--author is 'NAME <EMAIL>', not %q", author)
		}
		if in.Message == "" {
			return api.GitCommit{}, usagef(c.cmd, "say with -m what the commit is")
		}
		in.GitRepo, in.Name, in.Email = c.repo(), strings.TrimSpace(name), email
		return c.sb.Git().Commit(c.ctx, in)
	}, func(a *app, g api.GitCommit) error { return a.printLine(g.ID) })
	f := cmd.Flags()
	f.StringVarP(&in.Message, "message", "m", "", "what the commit is")
	f.BoolVarP(&in.All, "all", "a", false, "stage the changes of tracked files first")
	f.BoolVar(&in.AllowEmpty, "allow-empty", false, "commit also when nothing has changed")
	f.String("author", "", "author and committer as 'NAME <EMAIL>' (default: of git's configuration)")
	return cmd
}

func newGitBranch(a *app) *cobra.Command {
	var in api.GitBranchRequest
	cmd := ask(a, doc{
		use:   "branch ID [NAME] [flags]",
		short: "List branches, make one, or delete one",
		long: `List branches, after making the one that NAME says, or deleting the one that
--delete says. The current one is marked with *.`,
		example: `  pandastack sandbox git branch $id -C /workspace/project
  pandastack sandbox git branch $id work -C /workspace/project --from main
  pandastack sandbox git branch $id --delete work -C /workspace/project`,
	}, func(c call) (api.GitBranches, error) {
		in.GitRepo, in.Create = c.repo(), c.arg(0)
		return c.sb.Git().Branches(c.ctx, in)
	}, func(a *app, b api.GitBranches) error {
		t := table{headings: []string{"", "NAME", "COMMIT", "UPSTREAM"}}
		for _, x := range b.Branches {
			mark := ""
			if x.Current {
				mark = "*"
			}
			t.add(mark, x.Name, x.Commit, x.Upstream)
		}
		return t.print(a)
	})
	f := cmd.Flags()
	f.StringVar(&in.From, "from", "", "where the new branch starts (default: the current commit)")
	f.StringVarP(&in.Delete, "delete", "d", "", "branch to delete")
	f.BoolVar(&in.Force, "force", false, "delete also what is not merged")
	return cmd
}

func newGitCheckout(a *app) *cobra.Command {
	var in api.GitCheckout
	cmd := ask(a, doc{
		use: "checkout ID REF [flags]", aliases: []string{"switch"},
		short: "Change to a branch, tag or commit",
		example: `  pandastack sandbox git checkout $id main -C /workspace/project
  pandastack sandbox git checkout $id -b work -C /workspace/project`,
	}, func(c call) (api.GitStatus, error) {
		in.GitRepo, in.Ref = c.repo(), c.args[0]
		return c.sb.Git().Checkout(c.ctx, in)
	}, (*app).showGitStatus)
	cmd.Flags().BoolVarP(&in.Create, "create", "b", false, "make the branch first")
	return cmd
}

// gitSync makes a command that exchanges commits with a remote.
func gitSync(a *app, d doc, in *api.GitSync, do func(client.Git, call, api.GitSync) (api.GitStatus, error)) *cobra.Command {
	var login gitLogin
	cmd := ask(a, d, func(c call) (api.GitStatus, error) {
		var err error
		in.GitRepo, in.Remote, in.Branch = c.repo(), c.arg(0), c.arg(1)
		if in.Auth, err = login.auth(c, ""); err != nil {
			return api.GitStatus{}, err
		}
		return do(c.sb.Git(), c, *in)
	}, (*app).showGitStatus)
	login.addFlags(cmd, "server that the password is for; needed with one")
	return cmd
}

func newGitPull(a *app) *cobra.Command {
	var in api.GitSync
	cmd := gitSync(a, doc{
		use:     "pull ID [REMOTE] [BRANCH] [flags]",
		short:   "Take over the changes of a remote",
		long:    "Take over the changes of a remote, by default those of origin for the current branch.",
		example: "  pandastack sandbox git pull $id -C /workspace/project --rebase",
	}, &in, func(g client.Git, c call, in api.GitSync) (api.GitStatus, error) { return g.Pull(c.ctx, in) })
	cmd.Flags().BoolVar(&in.Rebase, "rebase", false, "put local commits on top instead of merging")
	return cmd
}

func newGitPush(a *app) *cobra.Command {
	var in api.GitSync
	cmd := gitSync(a, doc{
		use:     "push ID [REMOTE] [BRANCH] [flags]",
		short:   "Send commits to a remote",
		long:    "Send commits to a remote, by default those of the current branch to origin.",
		example: "  PANDASTACK_GIT_PASSWORD=$TOKEN pandastack sandbox git push $id -C /workspace/project --host example.com",
	}, &in, func(g client.Git, c call, in api.GitSync) (api.GitStatus, error) { return g.Push(c.ctx, in) })
	cmd.Flags().BoolVar(&in.Force, "force", false, "replace the remote branch, unless somebody else has changed it")
	cmd.Flags().BoolVar(&in.SetUpstream, "set-upstream", false, "remember the branch for later pulls")
	return cmd
}

func newGitLog(a *app) *cobra.Command {
	var in api.GitLogRequest
	cmd := ask(a, doc{
		use:     "log ID [PATH...] [flags]",
		short:   "List commits, newest first",
		long:    "List commits, newest first, with PATH only those that changed it.",
		example: "  pandastack sandbox git log $id -C /workspace/project -n 5",
	}, func(c call) (api.GitLog, error) {
		in.GitRepo, in.Paths = c.repo(), c.args
		return c.sb.Git().Log(c.ctx, in)
	}, func(a *app, l api.GitLog) error {
		t := table{headings: []string{"COMMIT", "TIME", "AUTHOR", "SUBJECT"}}
		for _, g := range l.Commits {
			t.add(g.ID, g.Time.UTC().Format(time.RFC3339), g.Author, g.Subject)
		}
		a.incomplete(l.Truncated, false)
		return t.print(a)
	})
	f := cmd.Flags()
	f.StringVar(&in.Ref, "ref", "", "branch, tag or commit to start at (default: the current commit)")
	f.IntVarP(&in.Limit, "limit", "n", 0, "at most so many, up to 1000 (default 50)")
	f.IntVar(&in.Skip, "skip", 0, "leave out so many of the newest")
	return cmd
}

// showGitStatus prints where a repository stands, and the files that differ.
func (a *app) showGitStatus(s api.GitStatus) error {
	var f fields
	f.add("branch", s.Branch)
	f.add("commit", s.Commit)
	f.add("upstream", s.Upstream)
	if s.Upstream != "" {
		f.add("difference", fmt.Sprintf("%d ahead, %d behind", s.Ahead, s.Behind))
	}
	if s.Clean {
		f.add("state", "clean")
	}
	if err := f.print(a); err != nil || len(s.Files) == 0 {
		return err
	}
	t := table{headings: []string{"STAGED", "NOT STAGED", "PATH"}}
	for _, x := range s.Files {
		name := x.Path
		if x.From != "" {
			name = x.From + " -> " + x.Path
		}
		t.add(x.Staged, x.Worktree, name)
	}
	a.incomplete(s.Truncated, false)
	return t.print(a)
}
