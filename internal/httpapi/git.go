package httpapi

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/pandastack/pandastack/internal/auth"
)

type gitInput[T any] struct {
	SandboxPath
	Body T
}

type gitOutput[T any] struct{ Body T }

// gitOperation makes the handler of an operation that control has under the
// same types.
func gitOperation[I, O any](do func(context.Context, auth.Identity, string, I) (O, error)) registrar {
	return typed(func(ctx context.Context, in *gitInput[I]) (*gitOutput[O], error) {
		out, err := do(ctx, who(ctx), in.ID, in.Body)
		if err != nil {
			return nil, err
		}
		return &gitOutput[O]{out}, nil
	})
}

// gitRoutes are the operations on repositories.
func (a *API) gitRoutes() []route {
	c := a.Control
	if c == nil {
		return nil // only the documents are served
	}
	post := func(name, id, summary string, h registrar, more func(*huma.Operation)) route {
		return route{http.MethodPost, sandbox + "/git/" + name, anyKey, id, "git", summary, h, more}
	}
	return []route{
		post("clone", "gitClone", "Clone a repository", gitOperation(c.GitClone), docGitClone),
		post("status", "gitStatus", "How a repository stands", gitOperation(c.GitStatus), nil),
		post("diff", "gitDiff", "Changes as a patch", gitOperation(c.GitDiff), nil),
		post("add", "gitAdd", "Stage changes", gitOperation(c.GitAdd), nil),
		post("commit", "gitCommit", "Commit what is staged", gitOperation(c.GitCommit), nil),
		post("branch", "gitBranch", "List, make or delete branches", gitOperation(c.GitBranches), docGitBranch),
		post("checkout", "gitCheckout", "Change to a branch, tag or commit", gitOperation(c.GitCheckout), nil),
		post("pull", "gitPull", "Take over changes of a remote", gitOperation(c.GitPull), nil),
		post("push", "gitPush", "Send commits to a remote", gitOperation(c.GitPush), nil),
		post("log", "gitLog", "List commits", gitOperation(c.GitLog), nil),
	}
}

func docGitClone(op *huma.Operation) {
	op.Description = "Path is the directory to make; default the last part of the URL, in the sandbox's working directory. " +
		"Closing the connection ends the clone. Credentials are never on the sandbox's disk, in an argument or in an environment variable."
}

func docGitBranch(op *huma.Operation) {
	op.Description = "Makes or deletes a branch if asked to, and answers with all branches."
}
