package server

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/agent"
	"github.com/pandastack/pandastack/internal/driver"
	"github.com/pandastack/pandastack/internal/driver/gvisor"
	"github.com/pandastack/pandastack/internal/edge"
	"github.com/pandastack/pandastack/internal/guest/guestbin"
	"github.com/pandastack/pandastack/internal/hostnet"
	"github.com/pandastack/pandastack/internal/image"
	"github.com/pandastack/pandastack/templates"
)

const baseTemplate = "base"

func checkHost() error {
	if os.Geteuid() != 0 {
		return api.Errorf(api.CodeNotRoot, "a server needs root")
	}
	return nil
}

func runtimeVersion() string { return gvisor.Version() }

// localMachine is the agent of this machine with the image store it uses.
type localMachine struct {
	*agent.Agent
	images *image.Store
	log    *slog.Logger
}

// Run removes what a crash left in the image store, then runs the agent.
func (m *localMachine) Run(ctx context.Context) error {
	if err := m.images.Sweep(ctx); err != nil {
		m.log.Warn("the image store was not swept", "error", err)
	}
	return m.Agent.Run(ctx)
}

func imageStore(cfg Config) *image.Store {
	var options []image.Option
	if cfg.Mirror != "" {
		options = append(options, image.WithMirror(cfg.Mirror))
	}
	return image.NewStore(cfg.ImageCache, cfg.Log, options...)
}

func newMachine(ctx context.Context, cfg Config) (Machine, error) {
	images := imageStore(cfg)
	drivers, err := localDrivers(ctx, cfg, images)
	if err != nil {
		return nil, err
	}
	list, err := localTemplates(cfg, images)
	if err != nil {
		return nil, err
	}
	kept, err := openSnapshots(ctx, cfg)
	if err != nil {
		return nil, err
	}
	network := hostnet.Config{Owner: ownerOf(cfg.DataDir), Ahead: slotsAhead()}
	if cfg.NetworkPrefix != "" {
		network.Prefix = netip.MustParsePrefix(cfg.NetworkPrefix).Masked() // Validate has parsed it
	}
	for _, text := range cfg.NetworkPass {
		network.Pass = append(network.Pass, netip.MustParsePrefix(text).Masked()) // Validate has parsed it
	}
	shells := shellsAhead()
	if cfg.Shells != nil {
		shells = *cfg.Shells
	}
	return &localMachine{images: images, log: cfg.Log, Agent: agent.New(agent.Config{
		Dir:       cfg.path("agent"),
		Snapshots: cfg.path("snapshots"),
		Drivers:   drivers,
		Default:   cfg.Driver,
		Network:   edge.New(edge.Config{Slots: network, Logs: cfg.path("network"), Log: cfg.Log}),
		Images:    images,
		Kept:      kept,
		Templates: list,
		Shells:    shells,
		Log:       cfg.Log,
	})}, nil
}

// shellsAhead is how many empty runtimes are kept ready: enough for a fork into
// ten where the host has the memory, which is 11 MB each.
func shellsAhead() int {
	const most, memoryPerShell = 12, 2 << 30
	few := runtime.NumCPU() + 2
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) != nil {
		return few
	}
	return max(few, min(most, int(uint64(info.Totalram)*uint64(info.Unit)/memoryPerShell)))
}

// localDrivers makes every isolation driver that this build has.
func localDrivers(ctx context.Context, cfg Config, images *image.Store) ([]driver.Driver, error) {
	if cfg.Driver != "" && cfg.Driver != gvisor.Name {
		return nil, api.Errorf(api.CodeDriverUnavailable, "there is no isolation driver %q; there is %s", cfg.Driver, gvisor.Name)
	}
	program, err := guestProgram(cfg)
	if err != nil {
		return nil, err
	}
	guest, err := images.GuestImage(ctx, program)
	if err != nil {
		return nil, err
	}
	gv, err := gvisor.New(gvisor.Config{StateDir: cfg.path("gvisor"), GuestImage: guest.Path, GuestDigest: guest.Digest, Log: cfg.Log})
	if err != nil {
		return nil, err
	}
	return []driver.Driver{gv}, nil
}

// guestProgram is what runs first in every sandbox.
func guestProgram(cfg Config) ([]byte, error) {
	if cfg.GuestProgram == "" {
		return guestbin.Binary()
	}
	data, err := os.ReadFile(cfg.GuestProgram)
	if err != nil {
		return nil, api.Wrap(api.CodeHostSetup, err, "the guest program cannot be read: %s", reason(err))
	}
	return data, nil
}

// recipeAliases are more names of the recipes: those that code written for
// another platform asks for.
var recipeAliases = map[string][]string{"code-interpreter": {"code-interpreter-v1"}}

// recipeTemplate is one of the recipes that the program brings along. Only base
// is made ready at the start.
func recipeTemplate(name string, images *image.Store) (agent.Template, error) {
	file, data, err := templates.Read(name)
	if err != nil {
		return agent.Template{}, err
	}
	recipe, err := image.ParseRecipe(file, data)
	if err != nil {
		return agent.Template{}, err
	}
	return agent.Template{
		Name: name, CPU: recipe.Size.CPU, MemoryMB: recipe.Size.MemoryMB, DiskMB: recipe.Size.DiskMB,
		Aliases: recipeAliases[name], OnDemand: name != baseTemplate, Stale: true,
		Build: func(ctx context.Context, report image.Progress) (image.Image, error) {
			return images.FromRecipe(ctx, recipe, report)
		},
	}, nil
}

// localTemplates is what the agent can make by itself: the recipes, and the
// images of the configuration.
func localTemplates(cfg Config, images *image.Store) ([]agent.Template, error) {
	var list []agent.Template
	for _, name := range templates.Names() {
		if cfg.Images[name] != "" {
			continue
		}
		t, err := recipeTemplate(name, images)
		if err != nil {
			return nil, err
		}
		list = append(list, t)
	}
	names := make([]string, 0, len(cfg.Images))
	for name := range cfg.Images {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		path, err := filepath.Abs(cfg.Images[name])
		if err != nil {
			return nil, invalid("image", "%s: %s", name, err)
		}
		info, err := os.Stat(path)
		if err != nil {
			return nil, api.Wrap(api.CodeTemplateInvalid, err, "image %s: %s: %s", name, path, reason(err))
		}
		build := images.FromTarFile
		if info.IsDir() {
			build = images.FromDir
		}
		list = append(list, agent.Template{Name: name, Build: func(ctx context.Context, report image.Progress) (image.Image, error) {
			return build(ctx, path, report)
		}})
	}
	return list, nil
}

// ownerOf marks what a server has on the machine outside of its data directory.
// It comes from the directory's place, so that a directory that was removed
// and made anew still finds, and sweeps, what its predecessor left.
func ownerOf(dir string) string {
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		dir = real
	}
	sum := sha256.Sum256([]byte(dir))
	return hex.EncodeToString(sum[:4])
}

// slotsAhead is how many network slots are made before they are needed.
func slotsAhead() int { return 2*runtime.NumCPU() + 4 }
