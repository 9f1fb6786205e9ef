package agent

import (
	"context"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/image"
)

// image gives the image of a template. One of the agent's own is built once for
// each run of the agent, which is quick when the store has what the build would
// make: an image that another configuration left under the same name does not
// count.
func (c *catalogue) image(ctx context.Context, name string) (image.Image, error) {
	t := c.own[name]
	if t.Build == nil {
		return c.agent.cfg.Images.Resolve(name)
	}
	if img, ok := c.builtImage(name); ok {
		return img, nil
	}
	key := buildKey(name)
	if err := c.failed.holds(key); err != nil {
		return image.Image{}, err
	}
	err := c.agent.flights.do(ctx, key, func(ctx context.Context) error {
		if _, ok := c.builtImage(name); ok {
			return nil
		}
		return c.build(ctx, t)
	})
	if err != nil {
		return image.Image{}, err
	}
	return c.agent.cfg.Images.Resolve(c.digest(name))
}

// builtImage gives what this run has built for a template, if it is still whole.
func (c *catalogue) builtImage(name string) (image.Image, bool) {
	digest := c.digest(name)
	if digest == "" {
		return image.Image{}, false
	}
	img, err := c.agent.cfg.Images.Resolve(digest)
	return img, err == nil
}

func (c *catalogue) digest(name string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.digests[name]
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
	} else if old, resolveErr := c.agent.cfg.Images.Resolve(t.Name); t.Stale && ctx.Err() == nil && resolveErr == nil {
		log.Warn("the image could not be built anew; an earlier one is used", "error", err, "digest", old.Digest)
		img, err = old, nil
	}
	if err == nil {
		c.mu.Lock()
		c.digests[t.Name] = img.Digest
		c.mu.Unlock()
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
