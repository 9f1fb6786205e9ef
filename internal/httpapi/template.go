package httpapi

import (
	"context"

	"github.com/pandastack/pandastack/api"
)

type templatesOutput struct{ Body api.TemplateList }

func (a *API) listTemplates(ctx context.Context, _ *nothing) (*templatesOutput, error) {
	l, err := a.Control.Templates(ctx, who(ctx))
	if err != nil {
		return nil, err
	}
	if l.Templates == nil {
		l.Templates = []api.Template{}
	}
	return &templatesOutput{l}, nil
}

type templateInput struct {
	Name string `path:"name" maxLength:"128" doc:"Template name" example:"base"`
}

type templateOutput struct{ Body api.Template }

func (a *API) getTemplate(ctx context.Context, in *templateInput) (*templateOutput, error) {
	t, err := a.Control.Template(ctx, who(ctx), in.Name)
	if err != nil {
		return nil, err
	}
	return &templateOutput{t}, nil
}
