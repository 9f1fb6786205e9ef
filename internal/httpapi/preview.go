package httpapi

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/auth"
	"github.com/pandastack/pandastack/internal/gateway"
)

const previewDefault = time.Hour // that a signed URL is good for

// previewControl is what the API asks of the rules about ports and previews.
type previewControl interface {
	Ports(ctx context.Context, who auth.Identity, id string) ([]api.Port, error)
	ExposePort(ctx context.Context, who auth.Identity, id string, req api.ExposePort) (api.Port, error)
	ClosePort(ctx context.Context, who auth.Identity, id string, port int) error
	Preview(ctx context.Context, who auth.Identity, id string, port int) (api.Preview, error)
}

// previewRoutes are the operations on ports and their previews. None of them is
// a use of the sandbox, and none wakes it.
func (a *API) previewRoutes() []route {
	const get, post, del = http.MethodGet, http.MethodPost, http.MethodDelete
	ports := sandbox + "/ports"
	return []route{
		{get, ports, anyKey, "listPorts", "previews", "List ports and who may open their previews", typed(a.listPorts), docListPorts},
		{post, ports, anyKey, "exposePort", "previews", "Say who may open the preview of a port", typed(a.exposePort), docExposePort},
		{del, ports, anyKey, "closePort", "previews", "Close the preview of a port", typed(a.closePort), docClosePort},
		{post, sandbox + "/preview", anyKey, "previewSandbox", "previews", "Address of a port's preview", typed(a.preview), nil},
		{post, sandbox + "/preview-token", anyKey, "signPreview", "previews", "Sign a URL of a private preview", typed(a.signPreview), docSignPreview},
	}
}

func docListPorts(op *huma.Operation) {
	op.Description = "The TCP ports that something listens on, other than on the loopback interface alone, and those that something was set for. " +
		"A sleeping sandbox is not woken; nothing listens there. Events `port.opened` and `port.closed` tell of changes while events are followed."
}

func docExposePort(op *huma.Operation) {
	op.Description = "A port that nothing was said about is public. A private one asks for a token. A fork starts with what was set for its parent. " +
		"The ports 49983 and 49999 are reserved."
}

func docClosePort(op *huma.Operation) {
	op.Description = "Its preview is open to nobody until the port is exposed again, and tokens do not open it."
	op.DefaultStatus = http.StatusNoContent
}

func docSignPreview(op *huma.Operation) {
	op.Description = "The URL opens the preview, whatever its visibility but closed, until it expires or the sandbox is deleted. It cannot be taken back " +
		"before, other than by closing the port. A browser is given a cookie and the plain address."
}

// Reached is how the client of a request has reached the server, which is how it
// reaches previews.
type Reached struct {
	host   string
	secure bool
}

// Resolve implements huma.Resolver.
func (r *Reached) Resolve(ctx huma.Context) []error {
	r.host = ctx.Host()
	r.secure = ctx.TLS() != nil || ctx.Header("X-Forwarded-Proto") == "https"
	return nil
}

// previewURL is where the client of a request finds a preview.
func (a *API) previewURL(r Reached, id string, port int) url.URL {
	return a.Previews.URL(r.host, r.secure, id, port)
}

type portsInput struct {
	SandboxPath
	Reached
}

type portsOutput struct{ Body api.PortList }

func (a *API) listPorts(ctx context.Context, in *portsInput) (*portsOutput, error) {
	list, err := a.Control.Ports(ctx, who(ctx), in.ID)
	if err != nil {
		return nil, err
	}
	if list == nil {
		list = []api.Port{} // a list in JSON also when it is empty
	}
	for i := range list {
		u := a.previewURL(in.Reached, in.ID, list[i].Port)
		list[i].URL = u.String()
	}
	return &portsOutput{api.PortList{Ports: list}}, nil
}

type exposeInput struct {
	SandboxPath
	Reached
	Body api.ExposePort
}

type portOutput struct{ Body api.Port }

func (a *API) exposePort(ctx context.Context, in *exposeInput) (*portOutput, error) {
	port, err := a.Control.ExposePort(ctx, who(ctx), in.ID, in.Body)
	if err != nil {
		return nil, err
	}
	u := a.previewURL(in.Reached, in.ID, port.Port)
	port.URL = u.String()
	return &portOutput{port}, nil
}

type closeInput struct {
	SandboxPath
	Port int `query:"port" required:"true" minimum:"1" maximum:"65535" doc:"Whose preview is closed"`
}

func (a *API) closePort(ctx context.Context, in *closeInput) (*struct{}, error) {
	return nil, a.Control.ClosePort(ctx, who(ctx), in.ID, in.Port)
}

type previewInput struct {
	SandboxPath
	Reached
	Body api.PreviewPort
}

type previewOutput struct{ Body api.Preview }

func (a *API) preview(ctx context.Context, in *previewInput) (*previewOutput, error) {
	p, err := a.Control.Preview(ctx, who(ctx), in.ID, in.Body.Port)
	if err != nil {
		return nil, err
	}
	u := a.previewURL(in.Reached, in.ID, p.Port)
	p.URL = u.String()
	return &previewOutput{p}, nil
}

type signPreviewInput struct {
	SandboxPath
	Reached
	Body api.PreviewRequest
}

type signPreviewOutput struct{ Body api.PreviewURL }

func (a *API) signPreview(ctx context.Context, in *signPreviewInput) (*signPreviewOutput, error) {
	if a.Signer == nil {
		return nil, api.Errorf(api.CodeUnsupported, "this server signs no URLs")
	}
	p, err := a.Control.Preview(ctx, who(ctx), in.ID, in.Body.Port)
	if err != nil {
		return nil, err
	}
	life := time.Duration(in.Body.TTLSeconds) * time.Second
	if life <= 0 {
		life = previewDefault
	}
	expires := time.Now().Add(life).Truncate(time.Second).UTC()
	token := a.Signer.Token(in.ID, p.Port, expires)
	return &signPreviewOutput{api.PreviewURL{
		URL: gateway.Signed(a.previewURL(in.Reached, in.ID, p.Port), token), Token: token, ExpiresAt: expires,
	}}, nil
}
