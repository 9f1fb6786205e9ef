package agent

import (
	"context"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/guest"
)

// initGuest tells the guest who it is now: a restored one has the identity,
// clock and randomness of its snapshot until then, and obeys anyone.
func (a *Agent) initGuest(ctx context.Context, c *creation) error {
	client := guest.NewClient(c.machine.Dial, c.spec.Token)
	defer client.Close()
	_, err := bounded(ctx, a.bootTimeout(c.boot), "answer", func(ctx context.Context) (struct{}, error) {
		return struct{}{}, client.Init(ctx, guest.Init{
			AccessToken: c.spec.Token,
			EnvVars:     c.spec.Env,
			Hostname:    hostname(c.spec.ID),
			ID:          c.spec.ID,
			Template:    c.spec.Template,
			Timestamp:   time.Now(),
			Nameservers: a.cfg.Network.Nameservers(),
			Identity:    true,
			Warn: func(line string) {
				a.log.Warn("a guest could not be renewed whole", "sandbox", c.spec.ID, "guest", line)
			},
		})
	})
	if api.CodeOf(err) == api.CodeSandboxDied {
		// It never was a sandbox that could die.
		err = api.Wrap(api.CodeBootFailed, err, "the sandbox's machine ended before its guest answered")
	}
	return err
}
