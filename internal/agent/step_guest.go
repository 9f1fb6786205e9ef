package agent

import (
	"context"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/driver"
	"github.com/pandastack/pandastack/internal/guest"
	"github.com/pandastack/pandastack/internal/host"
)

// initGuest tells the guest who it is now. One that comes from its template's
// snapshot obeys anyone until then, any other only who knows its token.
func (a *Agent) initGuest(ctx context.Context, c *creation) error {
	return a.introduce(ctx, c.machine, c.boot, c.spec, c.source)
}

// introduce tells a guest that it is the sandbox of spec: a restored one has the
// identity, clock and randomness of its snapshot until then. Source is nil for a
// guest of its template.
func (a *Agent) introduce(ctx context.Context, m driver.Machine, mode api.BootMode, spec host.Spec, from *source) error {
	token := spec.Token
	in := guest.Init{
		AccessToken: spec.Token,
		EnvVars:     spec.Env,
		Hostname:    hostname(spec.ID),
		ID:          spec.ID,
		Template:    spec.Template,
		Timestamp:   time.Now(),
		Nameservers: a.cfg.Network.Nameservers(),
		Boot:        string(mode),
		Identity:    true,
		Warn: func(line string) {
			a.log.Warn("a guest could not be renewed whole", "sandbox", spec.ID, "guest", line)
		},
	}
	if from != nil {
		in.ParentID, in.SnapshotID = from.parent, from.id
		if known := from.knownToken(); known != "" {
			token = known
		}
	}
	client := guest.NewClient(m.Dial, token)
	defer client.Close()
	_, err := bounded(ctx, a.bootTimeout(mode), "answer", func(ctx context.Context) (struct{}, error) {
		return struct{}{}, client.Init(ctx, in)
	})
	if api.CodeOf(err) == api.CodeSandboxDied {
		// It never was a sandbox that could die.
		err = api.Wrap(api.CodeBootFailed, err, "the sandbox's machine ended before its guest answered")
	}
	return err
}
