package httpapi

import (
	"context"
	"io"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/auth"
	"github.com/pandastack/pandastack/internal/control"
	"github.com/pandastack/pandastack/internal/guest"
)

// Control is what the API asks of the rules; *control.Service is it. Every
// method authorises the caller itself, and its errors carry api codes.
type Control interface {
	Create(ctx context.Context, who auth.Identity, req api.CreateSandbox) (api.Sandbox, error)
	CreateOnce(ctx context.Context, who auth.Identity, key string, req api.CreateSandbox) (api.Sandbox, error)
	Get(ctx context.Context, who auth.Identity, id string) (api.Sandbox, error)
	List(ctx context.Context, who auth.Identity, q control.ListQuery) (api.SandboxList, error)
	Delete(ctx context.Context, who auth.Identity, id string) error
	Pause(ctx context.Context, who auth.Identity, id string) (api.Sandbox, error)
	Resume(ctx context.Context, who auth.Identity, id string) (api.Sandbox, error)
	Lifecycle(ctx context.Context, who auth.Identity, id string) (api.Lifecycle, error)
	SetLifecycle(ctx context.Context, who auth.Identity, id string, l api.Lifecycle) (api.Lifecycle, error)

	Hibernate(ctx context.Context, who auth.Identity, id string) (api.Sandbox, error)
	Wake(ctx context.Context, who auth.Identity, id string) (api.Sandbox, error)
	// UseBy says that a request about a sandbox has begun, and done that it ended.
	// It is for before the caller was found to be the owner: nothing is counted of
	// another's sandbox.
	UseBy(ctx context.Context, who auth.Identity, id string) (done func())

	Snapshot(ctx context.Context, who auth.Identity, id string, req api.CreateSnapshot) (api.Snapshot, error)
	Snapshots(ctx context.Context, who auth.Identity, q control.SnapshotQuery) (api.SnapshotList, error)
	GetSnapshot(ctx context.Context, who auth.Identity, idOrName string) (api.Snapshot, error)
	DeleteSnapshot(ctx context.Context, who auth.Identity, idOrName string) error
	ExportSnapshot(ctx context.Context, who auth.Identity, idOrName string) (api.Snapshot, io.ReadCloser, error)
	ImportSnapshot(ctx context.Context, who auth.Identity, name string, file io.Reader) (api.Snapshot, error)

	Checkpoint(ctx context.Context, who auth.Identity, id string, req api.Checkpoint) (api.Snapshot, error)
	Timeline(ctx context.Context, who auth.Identity, id string) (api.Timeline, error)
	Restore(ctx context.Context, who auth.Identity, id string, req api.Restore) (api.Sandbox, error)
	Fork(ctx context.Context, who auth.Identity, id string, req api.Fork) (api.ForkTree, error)
	Promote(ctx context.Context, who auth.Identity, id string, req api.Promote) (api.Promoted, error)
	Tree(ctx context.Context, who auth.Identity, id string) (api.Tree, error)

	Guest(ctx context.Context, who auth.Identity, id string) (*guest.Client, error)
	Exec(ctx context.Context, who auth.Identity, id string, req api.Exec) (api.ExecResult, error)
	ExecStream(ctx context.Context, who auth.Identity, id string, req api.Exec, emit func(api.ExecEvent) error) error
	StartCommand(ctx context.Context, who auth.Identity, id string, req api.Exec) (*guest.Process, *guest.Client, error)

	GitClone(ctx context.Context, who auth.Identity, id string, req api.GitClone) (api.GitStatus, error)
	GitStatus(ctx context.Context, who auth.Identity, id string, req api.GitRepo) (api.GitStatus, error)
	GitDiff(ctx context.Context, who auth.Identity, id string, req api.GitDiff) (api.GitPatch, error)
	GitAdd(ctx context.Context, who auth.Identity, id string, req api.GitAdd) (api.GitStatus, error)
	GitCommit(ctx context.Context, who auth.Identity, id string, req api.GitCommitRequest) (api.GitCommit, error)
	GitBranches(ctx context.Context, who auth.Identity, id string, req api.GitBranchRequest) (api.GitBranches, error)
	GitCheckout(ctx context.Context, who auth.Identity, id string, req api.GitCheckout) (api.GitStatus, error)
	GitPull(ctx context.Context, who auth.Identity, id string, req api.GitSync) (api.GitStatus, error)
	GitPush(ctx context.Context, who auth.Identity, id string, req api.GitSync) (api.GitStatus, error)
	GitLog(ctx context.Context, who auth.Identity, id string, req api.GitLogRequest) (api.GitLog, error)

	networkControl
	previewControl

	AddSSHKey(ctx context.Context, who auth.Identity, req api.AddSSHKey) (api.SSHKey, error)
	SSHKeys(ctx context.Context, who auth.Identity) (api.SSHKeyList, error)
	DeleteSSHKey(ctx context.Context, who auth.Identity, fingerprint string) error

	Events(ctx context.Context, who auth.Identity, id string, q control.EventQuery) ([]api.Event, error)
	FollowEvents(ctx context.Context, who auth.Identity, id string, since int64, emit func(api.Event) error) error
	Logs(ctx context.Context, who auth.Identity, id string, o guest.LogOptions) (*guest.LogStream, error)
	Metrics(ctx context.Context, who auth.Identity, id string) (api.Metrics, error)
	Series(ctx context.Context, who auth.Identity, id string, span, step time.Duration) (api.MetricsSeries, error)
	StartTerminal(ctx context.Context, who auth.Identity, id string, req api.Exec, size guest.Size) (*guest.Process, *guest.Client, error)
	// Touch says that a byte of a stream moved.
	Touch(id string)
	Templates(ctx context.Context, who auth.Identity) (api.TemplateList, error)
	Template(ctx context.Context, who auth.Identity, name string) (api.Template, error)
	Ready(ctx context.Context) api.Health
}

var (
	_ Control = (*control.Service)(nil)
	_ Keys    = (*auth.Keys)(nil)
)

// Keys says who is calling and manages keys; *auth.Keys is it.
type Keys interface {
	Authenticate(ctx context.Context, secret string) (auth.Identity, error)
	Create(ctx context.Context, who auth.Identity, req api.CreateToken) (api.NewToken, error)
	List(ctx context.Context, who auth.Identity) (api.TokenList, error)
	Revoke(ctx context.Context, who auth.Identity, prefix string) error
}
