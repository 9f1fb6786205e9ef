package server

import (
	"context"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/image"
)

// BuildTemplate makes the image of a template of the configuration, if it is not
// there yet, and tells progress as words and a fraction of 1 (less than 0 when
// that is not known). It gives the image's digest.
func BuildTemplate(ctx context.Context, cfg Config, name string, progress func(step string, fraction float64)) (string, error) {
	cfg, err := cfg.complete()
	if err != nil {
		return "", err
	}
	if err := checkHost(); err != nil {
		return "", err
	}
	images := imageStore(cfg)
	list, err := localTemplates(cfg, images)
	if err != nil {
		return "", err
	}
	for _, t := range list {
		if t.Name != name {
			continue
		}
		img, err := t.Build(ctx, image.Progress(progress))
		if err != nil {
			return "", err
		}
		return img.Digest, images.Tag(name, img.Digest)
	}
	return "", api.Errorf(api.CodeTemplateNotFound, "there is no recipe or --image for template %q", name)
}
