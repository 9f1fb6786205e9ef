package control

import (
	"context"
	"fmt"
	"net/url"
	"path"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/auth"
	"github.com/pandastack/pandastack/internal/guest"
)

// How long git may take unless a request says so.
const (
	gitTime       = 60 * time.Second
	gitRemoteTime = 10 * time.Minute
)

// repo is a repository in a sandbox, for one request.
type repo struct {
	ctx    context.Context
	client *guest.Client
	in     api.GitRepo
	until  time.Time // all runs of the request together
}

func (s *Service) repo(ctx context.Context, who auth.Identity, id string, in api.GitRepo, limit time.Duration) (*repo, error) {
	if in.TimeoutSeconds > 0 {
		limit = time.Duration(in.TimeoutSeconds * float64(time.Second))
	}
	client, err := s.Guest(ctx, who, id)
	if err != nil {
		return nil, err
	}
	return &repo{ctx: ctx, client: client, in: in, until: time.Now().Add(limit)}, nil
}

// run runs git and turns a failure into a coded error.
func (r *repo) run(secret *guest.GitSecret, env map[string]string, args ...string) (guest.GitOutput, error) {
	left := time.Until(r.until)
	if left <= 0 {
		return guest.GitOutput{}, gitTimeout()
	}
	out, err := r.client.Git(r.ctx, guest.GitRun{Args: args, Dir: r.in.Path, User: r.in.User, Env: env, TimeoutMS: max(left.Milliseconds(), 1), Auth: secret})
	switch {
	case err != nil:
		return out, gitStartError(err)
	case out.TimedOut:
		return out, gitTimeout()
	case out.Exit != 0:
		return out, gitError(args[0], out)
	}
	return out, nil
}

func gitTimeout() error {
	return api.Errorf(api.CodeTimeout, "git did not finish in time and was stopped").WithHint("Allow more time (timeout_seconds), or clone with a depth.")
}

// GitClone makes a repository of a remote one.
func (s *Service) GitClone(ctx context.Context, who auth.Identity, id string, in api.GitClone) (api.GitStatus, error) {
	if err := checkGitURL(in.URL); err != nil {
		return api.GitStatus{}, err
	}
	if err := checkRefs(in.Branch); err != nil {
		return api.GitStatus{}, err
	}
	secret, err := gitSecret(in.Auth, in.URL)
	if err != nil {
		return api.GitStatus{}, err
	}
	r, err := s.repo(ctx, who, id, in.GitRepo, gitRemoteTime)
	if err != nil {
		return api.GitStatus{}, err
	}
	args := []string{"clone", "--quiet"}
	if in.Depth > 0 {
		args = append(args, "--depth", strconv.Itoa(in.Depth))
	}
	if in.Branch != "" {
		args = append(args, "--branch", in.Branch)
	}
	to := in.Path
	if to == "" {
		to = strings.TrimSuffix(path.Base(strings.TrimRight(in.URL, "/")), ".git")
	}
	r.in.Path = "" // it does not exist yet
	if strings.HasPrefix(to, "~") {
		return api.GitStatus{}, invalid("path", "the path of a clone is written in full, or relative to the working directory")
	}
	if _, err := r.run(secret, nil, append(args, "--", in.URL, to)...); err != nil {
		return api.GitStatus{}, err
	}
	if !path.IsAbs(to) {
		out, err := r.run(nil, nil, "-C", "./"+to, "rev-parse", "--show-toplevel")
		if err != nil {
			return api.GitStatus{}, err
		}
		to = strings.TrimSuffix(string(out.Stdout), "\n")
	}
	r.in.Path = to
	return r.status()
}

// GitStatus says how a repository stands.
func (s *Service) GitStatus(ctx context.Context, who auth.Identity, id string, in api.GitRepo) (api.GitStatus, error) {
	r, err := s.repo(ctx, who, id, in, gitTime)
	if err != nil {
		return api.GitStatus{}, err
	}
	return r.status()
}

func (r *repo) status() (api.GitStatus, error) {
	out, err := r.run(nil, map[string]string{"GIT_OPTIONAL_LOCKS": "0"}, "status", "--porcelain=v2", "--branch", "-z", "--untracked-files=all")
	if err != nil {
		return api.GitStatus{}, err
	}
	return parseStatus(string(out.Stdout), out.Truncated), nil
}

// GitDiff gives changes as a patch.
func (s *Service) GitDiff(ctx context.Context, who auth.Identity, id string, in api.GitDiff) (api.GitPatch, error) {
	if err := checkRefs(in.From, in.To); err != nil {
		return api.GitPatch{}, err
	}
	if in.To != "" && in.From == "" {
		return api.GitPatch{}, invalid("to", "to needs from")
	}
	r, err := s.repo(ctx, who, id, in.GitRepo, gitTime)
	if err != nil {
		return api.GitPatch{}, err
	}
	args := []string{"diff", "--no-color", "--no-ext-diff", "--no-textconv"}
	if in.Staged {
		args = append(args, "--cached")
	}
	for _, ref := range []string{in.From, in.To} {
		if ref != "" {
			args = append(args, ref)
		}
	}
	out, err := r.run(nil, map[string]string{"GIT_OPTIONAL_LOCKS": "0"}, append(append(args, "--"), in.Paths...)...)
	if err != nil {
		return api.GitPatch{}, err
	}
	return api.GitPatch{Diff: strings.ToValidUTF8(string(out.Stdout), "\uFFFD"), Truncated: out.Truncated}, nil
}

// GitAdd stages changes.
func (s *Service) GitAdd(ctx context.Context, who auth.Identity, id string, in api.GitAdd) (api.GitStatus, error) {
	r, err := s.repo(ctx, who, id, in.GitRepo, gitTime)
	if err != nil {
		return api.GitStatus{}, err
	}
	args := append([]string{"add", "--"}, in.Paths...)
	if len(in.Paths) == 0 {
		args = []string{"add", "--all"}
	}
	if _, err := r.run(nil, nil, args...); err != nil {
		return api.GitStatus{}, err
	}
	return r.status()
}

// GitCommit commits what is staged.
func (s *Service) GitCommit(ctx context.Context, who auth.Identity, id string, in api.GitCommitRequest) (api.GitCommit, error) {
	if strings.ContainsRune(in.Message, 0) || !printableText(in.Name) || !printableText(in.Email) {
		return api.GitCommit{}, invalid("message", "the message, name or address has control characters")
	}
	r, err := s.repo(ctx, who, id, in.GitRepo, gitTime)
	if err != nil {
		return api.GitCommit{}, err
	}
	env := map[string]string{}
	if in.Name != "" {
		env["GIT_AUTHOR_NAME"], env["GIT_COMMITTER_NAME"] = in.Name, in.Name
	}
	if in.Email != "" {
		env["GIT_AUTHOR_EMAIL"], env["GIT_COMMITTER_EMAIL"] = in.Email, in.Email
	}
	args := []string{"commit", "--quiet", "--no-gpg-sign", "--message=" + in.Message}
	if in.All {
		args = append(args, "--all")
	}
	if in.AllowEmpty {
		args = append(args, "--allow-empty")
	}
	if _, err := r.run(nil, env, args...); err != nil {
		return api.GitCommit{}, err
	}
	log, err := r.log("HEAD", 1, 0, nil)
	if err != nil || len(log.Commits) == 0 {
		return api.GitCommit{}, err
	}
	return log.Commits[0], nil
}

// GitBranches makes or deletes a branch if asked to, and lists all.
func (s *Service) GitBranches(ctx context.Context, who auth.Identity, id string, in api.GitBranchRequest) (api.GitBranches, error) {
	if err := checkRefs(in.Create, in.From, in.Delete); err != nil {
		return api.GitBranches{}, err
	}
	if in.Create != "" && in.Delete != "" {
		return api.GitBranches{}, invalid("delete", "create and delete do not go together")
	}
	r, err := s.repo(ctx, who, id, in.GitRepo, gitTime)
	if err != nil {
		return api.GitBranches{}, err
	}
	var args []string
	switch {
	case in.Create != "":
		args = []string{"branch", "--", in.Create}
		if in.From != "" {
			args = append(args, in.From)
		}
	case in.Delete != "" && in.Force:
		args = []string{"branch", "--delete", "--force", "--", in.Delete}
	case in.Delete != "":
		args = []string{"branch", "--delete", "--", in.Delete}
	}
	if args != nil {
		if _, err := r.run(nil, nil, args...); err != nil {
			return api.GitBranches{}, err
		}
	}
	out, err := r.run(nil, nil, "for-each-ref", "--format="+branchFormat, "refs/heads", "refs/remotes")
	if err != nil {
		return api.GitBranches{}, err
	}
	return parseBranches(string(out.Stdout)), nil
}

// GitCheckout changes to a branch, tag or commit.
func (s *Service) GitCheckout(ctx context.Context, who auth.Identity, id string, in api.GitCheckout) (api.GitStatus, error) {
	if err := checkRefs(in.Ref); err != nil {
		return api.GitStatus{}, err
	}
	r, err := s.repo(ctx, who, id, in.GitRepo, gitTime)
	if err != nil {
		return api.GitStatus{}, err
	}
	args := []string{"checkout", "--quiet", in.Ref, "--"}
	if in.Create {
		args = []string{"checkout", "--quiet", "-b", in.Ref}
	}
	if _, err := r.run(nil, nil, args...); err != nil {
		return api.GitStatus{}, err
	}
	return r.status()
}

// GitPull takes over the changes of a remote.
func (s *Service) GitPull(ctx context.Context, who auth.Identity, id string, in api.GitSync) (api.GitStatus, error) {
	args := []string{"pull", "--quiet", "--no-edit", "--no-rebase"}
	if in.Rebase {
		args = []string{"pull", "--quiet", "--rebase"}
	}
	return s.sync(ctx, who, id, in, args, "get-url")
}

// GitPush sends commits to a remote.
func (s *Service) GitPush(ctx context.Context, who auth.Identity, id string, in api.GitSync) (api.GitStatus, error) {
	args := []string{"push", "--quiet"}
	if in.Force {
		args = append(args, "--force-with-lease")
	}
	if in.SetUpstream {
		args = append(args, "--set-upstream")
	}
	return s.sync(ctx, who, id, in, args, "get-url", "--push")
}

func (s *Service) sync(ctx context.Context, who auth.Identity, id string, in api.GitSync, args []string, lookup ...string) (api.GitStatus, error) {
	if err := checkRefs(in.Remote, in.Branch); err != nil {
		return api.GitStatus{}, err
	}
	r, err := s.repo(ctx, who, id, in.GitRepo, gitRemoteTime)
	if err != nil {
		return api.GitStatus{}, err
	}
	remote, branch := in.Remote, in.Branch
	if remote == "" {
		remote = "origin"
	}
	if branch == "" {
		out, err := r.run(nil, nil, "symbolic-ref", "--quiet", "--short", "HEAD")
		if api.CodeOf(err) == api.CodeGitFailed && out.Exit == 1 {
			return api.GitStatus{}, api.Errorf(api.CodeGitConflict, "no branch is checked out; name one")
		} else if err != nil {
			return api.GitStatus{}, err
		}
		branch = strings.TrimSuffix(string(out.Stdout), "\n")
	}
	var secret *guest.GitSecret
	if in.Auth != nil {
		out, err := r.run(nil, nil, append(append([]string{"remote"}, lookup...), remote)...)
		if err != nil {
			return api.GitStatus{}, err
		}
		if secret, err = gitSecret(in.Auth, strings.TrimSuffix(string(out.Stdout), "\n")); err != nil {
			return api.GitStatus{}, err
		}
	}
	if _, err := r.run(secret, nil, append(args, "--", remote, branch)...); err != nil {
		return api.GitStatus{}, err
	}
	return r.status()
}

// GitLog lists commits.
func (s *Service) GitLog(ctx context.Context, who auth.Identity, id string, in api.GitLogRequest) (api.GitLog, error) {
	if err := checkRefs(in.Ref); err != nil {
		return api.GitLog{}, err
	}
	r, err := s.repo(ctx, who, id, in.GitRepo, gitTime)
	if err != nil {
		return api.GitLog{}, err
	}
	ref, limit := in.Ref, in.Limit
	if ref == "" {
		ref = "HEAD"
	}
	if limit == 0 {
		limit = 50
	}
	return r.log(ref, limit, in.Skip, in.Paths)
}

func (r *repo) log(ref string, limit, skip int, paths []string) (api.GitLog, error) {
	args := []string{"log", "-z", "--no-color", "--no-show-signature", "--format=" + logFormat, "--max-count=" + strconv.Itoa(limit), "--skip=" + strconv.Itoa(skip), ref, "--"}
	out, err := r.run(nil, nil, append(args, paths...)...)
	if err != nil {
		return api.GitLog{}, err
	}
	return parseLog(string(out.Stdout), out.Truncated), nil
}

// checkRefs refuses what git would take for an option rather than a name.
func checkRefs(refs ...string) error {
	for _, ref := range refs {
		if strings.HasPrefix(ref, "-") || !printableText(ref) || strings.Contains(ref, " ") {
			return invalid("ref", "%.80q is not the name of a branch, tag, commit or remote", ref)
		}
	}
	return nil
}

func printableText(s string) bool {
	return !strings.ContainsFunc(s, unicode.IsControl)
}

// checkGitURL refuses an address that would have git keep a password, or run a
// program.
func checkGitURL(raw string) error {
	if strings.HasPrefix(raw, "-") || !printableText(raw) || strings.Contains(raw, "::") {
		return invalid("url", "this is not the address of a repository")
	}
	u, err := url.Parse(raw)
	if err != nil || !strings.Contains(raw, "://") {
		return nil // as host:path, or a directory
	}
	if _, has := u.User.Password(); has || u.User != nil && strings.HasPrefix(u.Scheme, "http") {
		return api.Errorf(api.CodeInvalidRequest, "the address has a name or password in it, which git would keep in the sandbox").
			With("field", "url").WithHint("Send name and password in auth.")
	}
	return nil
}

// gitSecret is what git may be told, for the host of an address or the one that
// the caller names.
func gitSecret(in *api.GitAuth, address string) (*guest.GitSecret, error) {
	if in == nil {
		return nil, nil
	}
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" {
		return nil, api.Errorf(api.CodeInvalidRequest, "a name and password are for an http or https address").With("field", "auth")
	}
	if in.Host != "" && !strings.EqualFold(in.Host, u.Host) {
		return nil, api.Errorf(api.CodeGitAuth, "the remote is on %.100q, and the credentials are for %.100q only", u.Host, in.Host)
	}
	if !printableText(in.Username) || !printableText(in.Password) {
		return nil, api.Errorf(api.CodeInvalidRequest, "the name or password has control characters").With("field", "auth")
	}
	name := in.Username
	if name == "" {
		name = "git"
	}
	return &guest.GitSecret{Protocol: u.Scheme, Host: u.Host, Username: name, Password: in.Password}, nil
}

// gitStartError is an error of a run that did not begin.
func gitStartError(err error) error {
	e := api.AsError(err)
	switch {
	case e.Code == api.CodeProcessInvalid && strings.Contains(e.Message, "executable file not found"):
		return api.Wrap(api.CodeUnsupported, err, "there is no git in this sandbox").WithHint("Install git in the sandbox, or use a template that has it.")
	case strings.Contains(e.Message, "cwd"):
		return api.Wrap(api.CodeFileNotFound, err, "the directory of the repository does not exist or is none")
	}
	return err
}

// gitErrors are the words by which a failure is known, most telling first.
var gitErrors = []struct {
	code  api.Code
	words []string
}{
	{api.CodeGitNoRepository, []string{"not a git repository"}},
	{api.CodeDiskFull, []string{"No space left on device"}},
	{api.CodeGitAuth, []string{"Authentication failed", "could not read Username", "could not read Password", "terminal prompts disabled", "returned error: 401", "returned error: 403", "HTTP Basic: Access denied", "Permission denied (publickey", "Host key verification failed"}},
	{api.CodeGitNothing, []string{"nothing to commit", "no changes added to commit", "nothing added to commit"}},
	{api.CodeGitConflict, []string{"CONFLICT", "Automatic merge failed", "would be overwritten", "[rejected]", "fetch first", "non-fast-forward", "Not possible to fast-forward", "divergent branches", "unmerged", "not fully merged", "resolve your current index", "already exists", "needs merge", "checked out at", "used by worktree", "index.lock", "stale info", "Committing is not possible"}},
	{api.CodeGitUnreachable, []string{"Could not resolve host", "Failed to connect", "Connection refused", "Connection timed out", "Could not connect", "No route to host", "Network is unreachable", "early EOF", "unexpected disconnect", "Connection reset"}},
	{api.CodeGitNotFound, []string{"not found", "did not match any", "unknown revision", "bad revision", "does not exist", "not a valid object name", "does not have any commits", "couldn't find remote ref", "No such remote", "does not appear to be a git repository", "bad object", "no such path", "src refspec", "invalid reference", "not a commit", "ambiguous argument"}},
	{api.CodeFilePermission, []string{"Permission denied", "dubious ownership", "Operation not permitted"}},
}

// gitError turns what git says into a coded error. The text is the sandbox's: it
// is bounded and made one line.
func gitError(command string, out guest.GitOutput) error {
	text := string(out.Stderr)
	if len(out.Stdout) <= 4096 { // some commands complain there
		text += "\n" + string(out.Stdout)
	}
	code := api.CodeGitFailed
	for _, e := range gitErrors {
		if containsAny(text, e.words) {
			code = e.code
			break
		}
	}
	return api.Errorf(code, "%s", fmt.Sprintf("git %s: %s", command, gitMessage(text))).With("exit_code", out.Exit)
}

func containsAny(text string, words []string) bool {
	for _, w := range words {
		if strings.Contains(text, w) {
			return true
		}
	}
	return false
}

// gitMessage is the last lines of what git says that are not advice.
func gitMessage(text string) string {
	const most = 500
	var kept []string
	for line := range strings.Lines(strings.ToValidUTF8(text, "\uFFFD")) {
		line = strings.TrimSpace(strings.Map(func(r rune) rune {
			if unicode.IsControl(r) {
				return ' '
			}
			return r
		}, line))
		if line != "" && !strings.HasPrefix(line, "hint:") {
			kept = append(kept, line)
		}
	}
	joined := strings.Join(kept, "; ")
	if len(joined) > most {
		joined = strings.ToValidUTF8(joined[:most], "") + "..."
	}
	if joined == "" {
		joined = "it failed and said nothing"
	}
	return joined
}
