package client

import (
	"context"
	"net/http"

	"github.com/pandastack/pandastack/api"
)

// Git is the repositories in a sandbox. Failures carry git.* codes with what git
// itself said. Credentials in a request are never on the sandbox's disk, in an
// argument or in an environment variable.
type Git struct{ s *Sandbox }

// Git gives the repositories in the sandbox.
func (s *Sandbox) Git() Git { return Git{s} }

func gitCall[O any](ctx context.Context, g Git, name string, in any) (O, error) {
	var out O
	err := g.s.c.call(ctx, request{method: http.MethodPost, path: g.s.path("git", name), in: in}, &out)
	return out, err
}

// Clone makes a repository of a remote one.
func (g Git) Clone(ctx context.Context, in api.GitClone) (api.GitStatus, error) {
	return gitCall[api.GitStatus](ctx, g, "clone", in)
}

// Status says how a repository stands.
func (g Git) Status(ctx context.Context, in api.GitRepo) (api.GitStatus, error) {
	return gitCall[api.GitStatus](ctx, g, "status", in)
}

// Diff gives changes as a patch.
func (g Git) Diff(ctx context.Context, in api.GitDiff) (api.GitPatch, error) {
	return gitCall[api.GitPatch](ctx, g, "diff", in)
}

// Add stages changes.
func (g Git) Add(ctx context.Context, in api.GitAdd) (api.GitStatus, error) {
	return gitCall[api.GitStatus](ctx, g, "add", in)
}

// Commit commits what is staged.
func (g Git) Commit(ctx context.Context, in api.GitCommitRequest) (api.GitCommit, error) {
	return gitCall[api.GitCommit](ctx, g, "commit", in)
}

// Branches makes or deletes a branch if asked to, and lists all.
func (g Git) Branches(ctx context.Context, in api.GitBranchRequest) (api.GitBranches, error) {
	return gitCall[api.GitBranches](ctx, g, "branch", in)
}

// Checkout changes to a branch, tag or commit.
func (g Git) Checkout(ctx context.Context, in api.GitCheckout) (api.GitStatus, error) {
	return gitCall[api.GitStatus](ctx, g, "checkout", in)
}

// Pull takes over the changes of a remote.
func (g Git) Pull(ctx context.Context, in api.GitSync) (api.GitStatus, error) {
	return gitCall[api.GitStatus](ctx, g, "pull", in)
}

// Push sends commits to a remote.
func (g Git) Push(ctx context.Context, in api.GitSync) (api.GitStatus, error) {
	return gitCall[api.GitStatus](ctx, g, "push", in)
}

// Log lists commits, newest first.
func (g Git) Log(ctx context.Context, in api.GitLogRequest) (api.GitLog, error) {
	return gitCall[api.GitLog](ctx, g, "log", in)
}
