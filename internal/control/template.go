package control

import (
	"context"
	"slices"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/auth"
)

// Templates lists what sandboxes can be made from.
func (s *Service) Templates(ctx context.Context, _ auth.Identity) (api.TemplateList, error) {
	templates, err := s.host.Templates(ctx)
	if templates == nil {
		templates = []api.Template{}
	}
	return api.TemplateList{Templates: templates}, err
}

// Template gives one template by name.
func (s *Service) Template(ctx context.Context, who auth.Identity, name string) (api.Template, error) {
	list, err := s.Templates(ctx, who)
	if err != nil {
		return api.Template{}, err
	}
	for _, t := range list.Templates {
		if t.Name == name || slices.Contains(t.Aliases, name) {
			return t, nil
		}
	}
	return api.Template{}, api.Errorf(api.CodeTemplateNotFound, "there is no template %.60q", name)
}

// Ready says whether creates from the base template are fast now, and if not,
// what is waited for.
func (s *Service) Ready(ctx context.Context) api.Health {
	if err := s.store.Ping(ctx); err != nil {
		return api.Health{Status: "failed", Detail: api.AsError(err).Message}
	}
	info, err := s.host.Info(ctx)
	if err != nil {
		return api.Health{Status: "failed", Detail: api.AsError(err).Message}
	}
	if !info.Ready {
		return api.Health{Status: "starting", Detail: info.Detail}
	}
	return api.Health{Status: "ok", Detail: info.Detail}
}
