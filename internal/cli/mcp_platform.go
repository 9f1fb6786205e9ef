package cli

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/client"
	"github.com/pandastack/pandastack/internal/mcp"
)

// mcpPlatform is a server as the tools for models see it.
type mcpPlatform struct{ c *client.Client }

func (p mcpPlatform) Create(ctx context.Context, req api.CreateSandbox) (api.Sandbox, error) {
	return record(p.c.Sandboxes.Create(ctx, req))
}

func (p mcpPlatform) List(ctx context.Context, q mcp.ListQuery) (api.SandboxList, error) {
	o := client.ListOptions{Metadata: q.Metadata, Status: q.Status, Template: q.Template, PageSize: q.Limit}
	return p.c.Sandboxes.Page(ctx, o, q.Page)
}

func (p mcpPlatform) Get(ctx context.Context, id string) (api.Sandbox, error) {
	return record(p.c.Sandboxes.Get(ctx, id))
}

func (p mcpPlatform) Delete(ctx context.Context, id string) error {
	return p.c.Sandboxes.Delete(ctx, id)
}

func (p mcpPlatform) Hibernate(ctx context.Context, id string) (api.Sandbox, error) {
	sb := p.c.Sandboxes.Handle(id)
	return record(sb, sb.Hibernate(ctx))
}

func (p mcpPlatform) Run(ctx context.Context, id string, req api.Exec, stdout, stderr io.Writer) (api.ExecResult, error) {
	sb := p.c.Sandboxes.Handle(id)
	if req.Background {
		res, err := sb.ExecWith(ctx, req)
		if err != nil {
			return api.ExecResult{}, err
		}
		return *res, nil
	}
	cmd, err := mcpCommand(ctx, sb, req)
	if err != nil {
		return api.ExecResult{}, err
	}
	cmd.Stdout, cmd.Stderr = stdout, stderr
	err = cmd.Run()
	var exit *client.ExitError
	if errors.As(err, &exit) {
		return exit.Result, nil
	}
	if err != nil {
		return api.ExecResult{}, err
	}
	return *cmd.Result, nil
}

func (p mcpPlatform) ReadFile(ctx context.Context, id string, f mcp.File, offset int64) (io.ReadCloser, int64, error) {
	file, err := p.files(id, f.User).Open(ctx, f.Path)
	if err != nil {
		return nil, 0, err
	}
	skipped, err := io.CopyN(io.Discard, file, offset)
	if errors.Is(err, io.EOF) {
		err = api.Errorf(api.CodeInvalidRequest, "offset %d is beyond the file of %d bytes", offset, skipped).With("field", "offset")
	}
	if err != nil {
		file.Close()
		return nil, 0, err
	}
	return file, file.Size, nil
}

func (p mcpPlatform) WriteFile(ctx context.Context, id string, f mcp.File, data []byte) error {
	return p.files(id, f.User).WriteFile(ctx, f.Path, data)
}

func (p mcpPlatform) ListDir(ctx context.Context, id string, f mcp.File, depth int) ([]api.FileInfo, error) {
	return p.files(id, f.User).ReadTree(ctx, f.Path, depth)
}

func (p mcpPlatform) files(id, user string) client.Files {
	return p.c.Sandboxes.Handle(id).As(user)
}

func (p mcpPlatform) Fork(ctx context.Context, id string, req api.Fork) (api.ForkTree, error) {
	tree, err := p.c.Sandboxes.Handle(id).ForkTree(ctx, req.Count, req)
	if err != nil {
		return api.ForkTree{}, err
	}
	out := api.ForkTree{TreeID: tree.ID, ParentID: tree.ParentID}
	for _, child := range tree.Children {
		out.Children = append(out.Children, child.Sandbox)
	}
	return out, nil
}

func (p mcpPlatform) Snapshot(ctx context.Context, id string, req api.CreateSnapshot) (api.Snapshot, error) {
	return p.c.Sandboxes.Handle(id).Snapshot(ctx, req)
}

func (p mcpPlatform) Checkpoint(ctx context.Context, id, name string) (api.Snapshot, error) {
	return p.c.Sandboxes.Handle(id).Checkpoint(ctx, name)
}

func (p mcpPlatform) Restore(ctx context.Context, id, checkpoint string) (api.Sandbox, error) {
	sb := p.c.Sandboxes.Handle(id)
	return record(sb, sb.Restore(ctx, checkpoint))
}

func (p mcpPlatform) Snapshots(ctx context.Context, q mcp.SnapshotQuery) (api.SnapshotList, error) {
	return p.c.Snapshots.Page(ctx, client.SnapshotListOptions{SandboxID: q.SandboxID, PageSize: q.Limit}, q.Page)
}

func (p mcpPlatform) Templates(ctx context.Context) ([]api.Template, error) {
	return p.c.Templates.List(ctx)
}

// record is the record of a handle, if there is one.
func record(sb *client.Sandbox, err error) (api.Sandbox, error) {
	if err != nil {
		return api.Sandbox{}, err
	}
	return sb.Sandbox, nil
}

// mcpCommand is the command of a call, whose line came as JSON.
func mcpCommand(ctx context.Context, sb *client.Sandbox, req api.Exec) (*client.Cmd, error) {
	var line string
	if err := json.Unmarshal(req.Cmd, &line); err != nil || line == "" {
		return nil, api.Errorf(api.CodeInvalidRequest, "there is no command to run").With("field", "command")
	}
	cmd := sb.ShellCommand(ctx, line)
	cmd.Env, cmd.Dir, cmd.User = req.Env, req.Cwd, req.User
	cmd.Timeout = time.Duration(req.TimeoutSeconds * float64(time.Second))
	if req.Stdin != nil {
		cmd.Stdin = strings.NewReader(*req.Stdin)
	}
	return cmd, nil
}

func (p mcpPlatform) RunCode(ctx context.Context, id string, req api.RunCode, event func(api.CodeEvent) error) error {
	o := client.CodeOptions{Language: req.Language, Context: req.ContextID, Env: req.Env, Timeout: time.Duration(req.TimeoutMS) * time.Millisecond}
	for e, err := range p.c.Sandboxes.Handle(id).StreamCode(ctx, req.Code, o) {
		if err == nil {
			err = event(e)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (p mcpPlatform) Contexts(ctx context.Context, id string) ([]api.CodeContext, error) {
	return p.c.Sandboxes.Handle(id).Contexts(ctx)
}

func (p mcpPlatform) CreateContext(ctx context.Context, id string, req api.CreateContext) (api.CodeContext, error) {
	x, err := p.c.Sandboxes.Handle(id).CreateContext(ctx, req)
	if err != nil {
		return api.CodeContext{}, err
	}
	return *x, nil
}

func (p mcpPlatform) DeleteContext(ctx context.Context, id, name string) error {
	return p.c.Sandboxes.Handle(id).DeleteContext(ctx, name)
}

func (p mcpPlatform) Processes(ctx context.Context, id string, all bool) ([]api.Process, error) {
	return p.c.Sandboxes.Handle(id).Processes(ctx, all)
}

func (p mcpPlatform) Kill(ctx context.Context, id, name string) error {
	return p.c.Sandboxes.Handle(id).Tagged(name).Kill(ctx)
}

func (p mcpPlatform) Ports(ctx context.Context, id string) ([]api.Port, error) {
	return p.c.Sandboxes.Handle(id).Ports(ctx)
}

func (p mcpPlatform) Preview(ctx context.Context, id string, port int) (api.Preview, error) {
	return p.c.Sandboxes.Handle(id).Preview(ctx, port)
}

func (p mcpPlatform) SignPreview(ctx context.Context, id string, req api.PreviewRequest) (api.PreviewURL, error) {
	return p.c.Sandboxes.Handle(id).SignedPreviewURL(ctx, req.Port, time.Duration(req.TTLSeconds)*time.Second)
}
