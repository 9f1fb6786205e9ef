package agent

import (
	"context"
	"io"
	"net/netip"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/host"
	"github.com/pandastack/pandastack/internal/hostnet"
	"github.com/pandastack/pandastack/internal/image"
)

// Network is what the agent needs of the host's network: places on it for
// sandboxes, made ahead, and what is enforced there. Setup, then Adopt and Sweep,
// come before Run.
type Network interface {
	Setup(ctx context.Context) error
	Run(ctx context.Context) error
	Take(ctx context.Context) (hostnet.Slot, error)
	Adopt(ctx context.Context, index int) (hostnet.Slot, error)
	Release(ctx context.Context, slot hostnet.Slot) error
	Sweep(ctx context.Context, keep []int) error
	Close(ctx context.Context) error
	Free() int
	// Admit says which sandbox a slot is for and what it may reach. It comes after
	// Take or Adopt and before the guest runs, and again for every change; when it
	// fails, what held before still holds. Release ends it.
	Admit(ctx context.Context, slot hostnet.Slot, id string, network host.Network) error
	// Nameservers are the resolvers that sandboxes may use.
	Nameservers() []netip.Addr
	// Log reads what a sandbox has contacted. It is there until Forget.
	Log(id string, since int64, limit int) (api.ConnectionLog, error)
	// Keep forgets the logs of all sandboxes but these.
	Keep(ids []string) error
	Forget(id string)
	// Denied hears what sandboxes were denied. It is set before Setup.
	OnDenied(func(id string, c api.Connection))
}

// Images is what the agent needs of the image store: the images that template
// names stand for.
type Images interface {
	Resolve(name string) (image.Image, error)
	Tag(name, digest string) error
	// Add takes in a finished image. Content that has another digest is refused.
	Add(ctx context.Context, digest string, size int64, content io.Reader) (image.Image, error)
	Tags() (map[string]string, error)
}

// Template is a template that the agent makes ready by itself.
type Template struct {
	Name     string
	CPU      float64 // zero sizes take the host's defaults
	MemoryMB int
	DiskMB   int

	// Build makes the image, or finds that the store has what it would make. It
	// is called once in each run of the agent. Nil when images of this name come
	// by other means.
	Build func(ctx context.Context, report image.Progress) (image.Image, error)
	// Aliases are more names that Create knows it by.
	Aliases []string
	// OnDemand leaves building and baking to the first create: nothing is made
	// at the start of the agent, and readiness does not wait for it.
	OnDemand bool
	// Stale lets an image that has the template's name already serve when
	// Build fails, as it does for a recipe on a host without network.
	Stale bool
}
