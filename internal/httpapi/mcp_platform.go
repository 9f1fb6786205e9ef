package httpapi

import (
	"bytes"
	"context"
	"io"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/auth"
	"github.com/pandastack/pandastack/internal/control"
	"github.com/pandastack/pandastack/internal/guest"
	"github.com/pandastack/pandastack/internal/mcp"
)

// mcpPlatform is the control plane for one caller.
type mcpPlatform struct {
	api     *API
	who     auth.Identity
	reached Reached
}

// as is a context in which the API's handlers find the caller.
func (p *mcpPlatform) as(ctx context.Context) context.Context {
	return context.WithValue(ctx, requestKey{}, &request{identity: p.who})
}

func (p *mcpPlatform) Create(ctx context.Context, req api.CreateSandbox) (api.Sandbox, error) {
	if req.Template == "" && req.FromSnapshot == "" {
		req.Template = "base"
	}
	s, err := p.api.Control.Create(ctx, p.who, req)
	p.api.metrics.created(s, err)
	return s, err
}

func (p *mcpPlatform) List(ctx context.Context, q mcp.ListQuery) (api.SandboxList, error) {
	return p.api.Control.List(ctx, p.who, control.ListQuery{
		Status: q.Status, Template: q.Template, Metadata: q.Metadata, Limit: q.Limit, Page: q.Page,
	})
}

func (p *mcpPlatform) Get(ctx context.Context, id string) (api.Sandbox, error) {
	return p.api.Control.Get(ctx, p.who, id)
}

func (p *mcpPlatform) Delete(ctx context.Context, id string) error {
	return p.api.Control.Delete(ctx, p.who, id)
}

func (p *mcpPlatform) Hibernate(ctx context.Context, id string) (api.Sandbox, error) {
	return p.api.Control.Hibernate(ctx, p.who, id)
}

func (p *mcpPlatform) Run(ctx context.Context, id string, req api.Exec, stdout, stderr io.Writer) (api.ExecResult, error) {
	defer p.api.Control.UseBy(ctx, p.who, id)()
	start := time.Now()
	res, err := p.run(ctx, id, req, stdout, stderr)
	p.api.metrics.executed("mcp", start, err)
	return res, err
}

func (p *mcpPlatform) run(ctx context.Context, id string, req api.Exec, stdout, stderr io.Writer) (res api.ExecResult, err error) {
	if req.Background {
		return p.api.Control.Exec(ctx, p.who, id, req)
	}
	err = p.api.Control.ExecStream(ctx, p.who, id, req, func(e api.ExecEvent) error {
		switch {
		case e.Type == "stdout":
			_, err := stdout.Write(e.Data)
			return err
		case e.Type == "stderr":
			_, err := stderr.Write(e.Data)
			return err
		case e.Result != nil:
			res = *e.Result
		}
		return nil
	})
	return res, err
}

func (p *mcpPlatform) ReadFile(ctx context.Context, id string, f mcp.File, offset int64) (io.ReadCloser, int64, error) {
	defer p.api.Control.UseBy(ctx, p.who, id)()
	client, err := p.api.Control.Guest(ctx, p.who, id)
	if err != nil {
		return nil, 0, err
	}
	if offset == 0 {
		return client.ReadFile(ctx, f.Path, f.User)
	}
	info, err := client.Stat(ctx, f.Path, f.User)
	if err != nil {
		return nil, 0, err
	}
	if offset >= info.Size && info.Type == "file" {
		return nil, 0, api.Errorf(api.CodeInvalidRequest, "offset %d is beyond the file of %d bytes", offset, info.Size).With("field", "offset")
	}
	body, _, err := client.ReadFileRange(ctx, f.Path, f.User, offset, -1)
	return body, info.Size, err
}

func (p *mcpPlatform) WriteFile(ctx context.Context, id string, f mcp.File, data []byte) error {
	defer p.api.Control.UseBy(ctx, p.who, id)()
	client, err := p.api.Control.Guest(ctx, p.who, id)
	if err != nil {
		return err
	}
	return client.WriteFile(ctx, f.Path, f.User, bytes.NewReader(data))
}

func (p *mcpPlatform) ListDir(ctx context.Context, id string, f mcp.File, depth int) ([]api.FileInfo, error) {
	defer p.api.Control.UseBy(ctx, p.who, id)()
	client, err := p.api.Control.Guest(ctx, p.who, id)
	if err != nil {
		return nil, err
	}
	return client.ListDir(ctx, f.Path, f.User, depth)
}

func (p *mcpPlatform) Fork(ctx context.Context, id string, req api.Fork) (api.ForkTree, error) {
	defer p.api.Control.UseBy(ctx, p.who, id)()
	tree, err := p.api.Control.Fork(ctx, p.who, id, req)
	if err != nil {
		p.api.metrics.created(api.Sandbox{}, err)
	}
	for _, child := range tree.Children {
		p.api.metrics.created(child, nil)
	}
	return tree, err
}

func (p *mcpPlatform) Snapshot(ctx context.Context, id string, req api.CreateSnapshot) (api.Snapshot, error) {
	defer p.api.Control.UseBy(ctx, p.who, id)()
	return p.taken(p.api.Control.Snapshot(ctx, p.who, id, req))
}

func (p *mcpPlatform) Checkpoint(ctx context.Context, id, name string) (api.Snapshot, error) {
	defer p.api.Control.UseBy(ctx, p.who, id)()
	return p.taken(p.api.Control.Checkpoint(ctx, p.who, id, api.Checkpoint{Name: name}))
}

func (p *mcpPlatform) taken(s api.Snapshot, err error) (api.Snapshot, error) {
	if err == nil {
		p.api.metrics.captured(s)
	}
	return s, err
}

func (p *mcpPlatform) Restore(ctx context.Context, id, checkpoint string) (api.Sandbox, error) {
	defer p.api.Control.UseBy(ctx, p.who, id)()
	s, err := p.api.Control.Restore(ctx, p.who, id, api.Restore{Checkpoint: checkpoint})
	if err == nil {
		p.api.metrics.started(s)
	}
	return s, err
}

func (p *mcpPlatform) Snapshots(ctx context.Context, q mcp.SnapshotQuery) (api.SnapshotList, error) {
	return p.api.Control.Snapshots(ctx, p.who, control.SnapshotQuery{SandboxID: q.SandboxID, Limit: q.Limit, Page: q.Page})
}

func (p *mcpPlatform) Templates(ctx context.Context) ([]api.Template, error) {
	l, err := p.api.Control.Templates(ctx, p.who)
	return l.Templates, err
}

func (p *mcpPlatform) RunCode(ctx context.Context, id string, req api.RunCode, event func(api.CodeEvent) error) error {
	defer p.api.Control.UseBy(ctx, p.who, id)()
	client, err := p.api.Control.Guest(ctx, p.who, id)
	if err != nil {
		return err
	}
	start := time.Now()
	err = p.api.codeEventsOf(ctx, client, id, req, event)
	p.api.metrics.executed("mcp", start, err)
	return err
}

func (p *mcpPlatform) Contexts(ctx context.Context, id string) ([]api.CodeContext, error) {
	return inGuest(ctx, p, id, (*guest.Client).Contexts)
}

func (p *mcpPlatform) CreateContext(ctx context.Context, id string, req api.CreateContext) (api.CodeContext, error) {
	return inGuest(ctx, p, id, func(c *guest.Client, ctx context.Context) (api.CodeContext, error) { return c.CreateContext(ctx, req) })
}

func (p *mcpPlatform) DeleteContext(ctx context.Context, id, name string) error {
	_, err := inGuest(ctx, p, id, func(c *guest.Client, ctx context.Context) (struct{}, error) {
		return struct{}{}, c.DeleteContext(ctx, name)
	})
	return err
}

func (p *mcpPlatform) Processes(ctx context.Context, id string, all bool) ([]api.Process, error) {
	return inGuest(ctx, p, id, func(c *guest.Client, ctx context.Context) ([]api.Process, error) { return c.Processes(ctx, all) })
}

func (p *mcpPlatform) Kill(ctx context.Context, id, name string) error {
	_, err := inGuest(ctx, p, id, func(c *guest.Client, ctx context.Context) (struct{}, error) {
		pid, err := c.Find(ctx, name)
		if err == nil {
			err = c.KillTree(ctx, pid)
		}
		return struct{}{}, err
	})
	return err
}

func (p *mcpPlatform) Ports(ctx context.Context, id string) ([]api.Port, error) {
	out, err := p.api.listPorts(p.as(ctx), &portsInput{SandboxPath{id}, p.reached})
	if err != nil {
		return nil, err
	}
	return out.Body.Ports, nil
}

func (p *mcpPlatform) Preview(ctx context.Context, id string, port int) (api.Preview, error) {
	out, err := p.api.preview(p.as(ctx), &previewInput{SandboxPath{id}, p.reached, api.PreviewPort{Port: port}})
	if err != nil {
		return api.Preview{}, err
	}
	return out.Body, nil
}

func (p *mcpPlatform) SignPreview(ctx context.Context, id string, req api.PreviewRequest) (api.PreviewURL, error) {
	out, err := p.api.signPreview(p.as(ctx), &signPreviewInput{SandboxPath{id}, p.reached, req})
	if err != nil {
		return api.PreviewURL{}, err
	}
	return out.Body, nil
}

// inGuest makes one call of a sandbox's daemon, which counts as its use.
func inGuest[T any](ctx context.Context, p *mcpPlatform, id string, call func(*guest.Client, context.Context) (T, error)) (T, error) {
	defer p.api.Control.UseBy(ctx, p.who, id)()
	client, err := p.api.Control.Guest(ctx, p.who, id)
	if err != nil {
		var none T
		return none, err
	}
	return call(client, ctx)
}
