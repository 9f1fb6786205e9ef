package agent

import (
	"context"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/image"
)

// image gives the image of a template, and builds it first if it is one of the
// agent's own and has none, or a damaged one.
func (c *catalogue) image(ctx context.Context, name string) (image.Image, error) {
	img, err := c.agent.cfg.Images.Resolve(name)
	code := api.CodeOf(err)
	if err == nil || code != api.CodeTemplateNotFound && code != api.CodeSnapshotCorrupt {
		return img, err
	}
	t := c.own[name]
	if t.Build == nil {
		return image.Image{}, err
	}
	key := buildKey(name)
	if err := c.failed.holds(key); err != nil {
		return image.Image{}, err
	}
	err = c.agent.flights.do(ctx, key, func(ctx context.Context) error { return c.build(ctx, t) })
	if err != nil {
		return image.Image{}, err
	}
	return c.agent.cfg.Images.Resolve(name)
}

func buildKey(name string) string { return "build " + name }

// build makes and tags an image, and notes how that ended.
func (c *catalogue) build(ctx context.Context, t Template) error {
	began := time.Now()
	log := c.agent.log.With("template", t.Name)
	log.Info("building a template's image")
	defer c.report(t.Name, work{})
	c.report(t.Name, work{step: "building the image"})
	img, err := t.Build(ctx, func(step string, fraction float64) {
		c.report(t.Name, work{step: step, percent: 100 * fraction})
	})
	if err == nil {
		err = c.agent.cfg.Images.Tag(t.Name, img.Digest)
	}
	if err != nil && api.CodeOf(err) == api.CodeInternal {
		err = api.Wrap(api.CodeTemplateBuild, err, "the image of template %q could not be built", t.Name)
	}
	if ctx.Err() == nil {
		c.failed.note(buildKey(t.Name), err)
	}
	c.agent.observe(Observation{Op: "build", Template: t.Name, Took: time.Since(began), Err: err})
	if err == nil {
		log.Info("built a template's image", "digest", img.Digest, "bytes", img.Size, "took", time.Since(began))
	}
	return err
}

// report says what is being made for a template; no step when it is done.
func (c *catalogue) report(name string, w work) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if w.step == "" {
		delete(c.work, name)
		return
	}
	c.work[name] = w
}
