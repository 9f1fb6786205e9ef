package control

import (
	"context"
	"errors"
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/auth"
	"github.com/pandastack/pandastack/internal/guest"
	"github.com/pandastack/pandastack/internal/store"
)

// The rules of previews. Every port of a sandbox has one, but for those of the
// daemon. It is public unless something else was set, which a child inherits
// from its parent, and which ends with the sandbox. A request to the preview of
// a sleeping sandbox wakes it, and one under way keeps it awake.

// maxExposed bounds the ports of one sandbox that something is set for.
const maxExposed = 256

// exposure is what was set of a sandbox's ports, read when it is first needed.
type exposure struct {
	mu    sync.Mutex
	ports map[int]api.Visibility // nil: not read yet; never changed
}

// get gives what was set; an absent port is public.
func (e *exposure) get(load func() (map[int]api.Visibility, error)) (map[int]api.Visibility, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.ports == nil {
		ports, err := load()
		if err != nil {
			return nil, err
		}
		e.ports = ports
	}
	return e.ports, nil
}

// forget has the next get read again. It comes after a change has been written,
// so that what is read before the change does not outlive it.
func (e *exposure) forget() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.ports = nil
}

// exposed gives what was set of a sandbox's ports.
func (s *Service) exposed(ctx context.Context, id string, rec *record) (map[int]api.Visibility, error) {
	return rec.exposed.get(func() (map[int]api.Visibility, error) { return s.store.Previews(ctx, id) })
}

// internalPort reports whether a port belongs to the daemon, which obeys whoever
// reaches it with a token: what it does is asked for through the API.
func internalPort(port int) bool { return port == api.InternalPort || port == guest.CodePort }

// checkPreviewPort refuses ports that have no preview.
func checkPreviewPort(port int) error {
	if port < 1 || port > 65535 {
		return invalid("port", "port must be between 1 and 65535")
	}
	if internalPort(port) {
		return api.Errorf(api.CodeForbidden, "port %d of a sandbox is reserved", port).With("field", "port").
			WithHint("Let the service in the sandbox listen on another port.")
	}
	return nil
}

// PortVisibility says who may open the preview of a port of any org's sandbox.
// It wakes nobody.
func (s *Service) PortVisibility(ctx context.Context, id string, port int) (api.Visibility, error) {
	if err := checkPreviewPort(port); err != nil {
		return "", err
	}
	rec, err := s.findAny(ctx, id)
	if err != nil {
		return "", err
	}
	return s.visibility(ctx, id, rec, port)
}

func (s *Service) visibility(ctx context.Context, id string, rec *record, port int) (api.Visibility, error) {
	set, err := s.exposed(ctx, id, rec)
	if err != nil {
		return "", err
	}
	if v := set[port]; v != "" {
		return v, nil
	}
	return api.PreviewPublic, nil
}

// CertifyPort refuses ports for which no certificate is to be asked of an
// authority: for whoever knows a sandbox could name all 65535 of its ports. It is
// for those that something was set for, or that something listens on now; of the
// latter a few a day, since what runs inside can listen on all and connect to
// each name itself.
func (s *Service) CertifyPort(ctx context.Context, id string, port int) error {
	if err := checkPreviewPort(port); err != nil {
		return err
	}
	rec, err := s.findAny(ctx, id)
	if err != nil {
		return err
	}
	set, err := s.exposed(ctx, id, rec)
	if err != nil {
		return err
	}
	if v := set[port]; v != "" {
		return nil
	}
	if rec.status == api.StatusRunning {
		now, err := rec.client.Ports(ctx)
		if err != nil {
			return err
		}
		if slices.ContainsFunc(now.Ports, func(l guest.Listener) bool { return l.Port == port }) {
			return s.certified.admit(id, port, time.Now())
		}
	}
	return api.Errorf(api.CodePreviewUnreachable, "nothing listens on port %d of sandbox %s, and it was not exposed", port, id)
}

// maxCertified bounds the names of one sandbox that a certificate is asked for
// in a day although nothing was set for their ports.
const maxCertified = 8

// certified are those names. They are not kept over a restart.
type certified struct {
	mu    sync.Mutex
	since time.Time // when the day began; it is the same for all
	ports map[string][]int
}

// admit counts a port, once a day, and refuses it if there were too many.
func (c *certified) admit(id string, port int, now time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ports == nil || now.Sub(c.since) >= 24*time.Hour {
		c.ports, c.since = make(map[string][]int), now
	}
	if slices.Contains(c.ports[id], port) {
		return nil
	}
	if len(c.ports[id]) >= maxCertified {
		return api.Errorf(api.CodeRateLimited, "certificates were asked for %d ports of sandbox %s today", maxCertified, id).
			WithHint("Expose the port by name: POST /v1/sandboxes/{id}/ports.")
	}
	c.ports[id] = append(c.ports[id], port)
	return nil
}

// Awake wakes a sandbox of any org if it sleeps, once for all that ask at the
// same time; one that could not be woken just now is left alone for a moment. The
// era is another after it has slept, was paused or was taken back
// to a checkpoint: connections of two eras lead to two machines.
func (s *Service) Awake(ctx context.Context, id string) (era uint64, err error) {
	rec, err := s.awakeFor(ctx, id)
	if err != nil {
		return 0, err
	}
	return rec.era, nil
}

// DialPort connects to a port, which must have a preview, of a sandbox of any
// org; one that sleeps is woken. An error of code sandbox.invalid_state with the
// detail port says that nothing listens there.
func (s *Service) DialPort(ctx context.Context, id string, port int) (net.Conn, error) {
	if err := checkPreviewPort(port); err != nil {
		return nil, err
	}
	for try := 1; ; try++ {
		if _, err := s.awakeFor(ctx, id); err != nil {
			return nil, err
		}
		conn, err := s.host.Dial(ctx, id, port)
		if err == nil || try == wakeTries || !wentToSleep(err) {
			return conn, err
		}
	}
}

// wentToSleep reports whether a connection failed because the sandbox does not
// run any more, and not because nothing listens.
func wentToSleep(err error) bool {
	e := api.AsError(err)
	return e.Code == api.CodeSandboxState && e.Details["port"] == nil
}

// Preview says who may open the preview of a port of the caller's sandbox.
func (s *Service) Preview(ctx context.Context, who auth.Identity, id string, port int) (api.Preview, error) {
	if err := checkPreviewPort(port); err != nil {
		return api.Preview{}, err
	}
	rec, err := s.find(ctx, who, id)
	if err != nil {
		return api.Preview{}, err
	}
	v, err := s.visibility(ctx, id, rec, port)
	return api.Preview{Port: port, Visibility: v}, err
}

// ExposePort sets who may open the preview of a port.
func (s *Service) ExposePort(ctx context.Context, who auth.Identity, id string, req api.ExposePort) (api.Port, error) {
	if req.Visibility == "" {
		req.Visibility = api.PreviewPublic
	}
	if req.Visibility != api.PreviewPublic && req.Visibility != api.PreviewPrivate {
		return api.Port{}, invalid("visibility", "there is no visibility %.20q", string(req.Visibility))
	}
	if err := s.setPreview(ctx, who, id, req.Port, req.Visibility); err != nil {
		return api.Port{}, err
	}
	ports, err := s.Ports(ctx, who, id)
	if i := slices.IndexFunc(ports, func(p api.Port) bool { return p.Port == req.Port }); err == nil && i >= 0 {
		return ports[i], nil
	}
	return api.Port{Port: req.Port, Visibility: req.Visibility}, nil // it is set, whatever listens
}

// ClosePort closes the preview of a port to everybody.
func (s *Service) ClosePort(ctx context.Context, who auth.Identity, id string, port int) error {
	return s.setPreview(ctx, who, id, port, api.PreviewClosed)
}

func (s *Service) setPreview(ctx context.Context, who auth.Identity, id string, port int, v api.Visibility) error {
	if err := checkPreviewPort(port); err != nil {
		return err
	}
	rec, err := s.find(ctx, who, id)
	if err != nil {
		return err
	}
	set, err := s.exposed(ctx, id, rec)
	if err != nil {
		return err
	}
	if set[port] == "" && len(set) >= maxExposed {
		return invalid("port", "the visibility of at most %d ports of a sandbox can be set", maxExposed)
	}
	err = s.store.SetPreview(ctx, id, port, v)
	if now, _ := s.records.get(id); now != nil {
		now.exposed.forget() // also after an error: the change may have been made
	}
	if errors.Is(err, store.ErrNotFound) {
		return notFound(id)
	}
	return err
}

// Ports lists the ports of a sandbox that something listens on, and those that
// something was set for. A sleeping one is not woken for it: nothing listens
// there then.
func (s *Service) Ports(ctx context.Context, who auth.Identity, id string) ([]api.Port, error) {
	rec, err := s.find(ctx, who, id)
	if err != nil {
		return nil, err
	}
	set, err := s.exposed(ctx, id, rec)
	if err != nil {
		return nil, err
	}
	ports := map[int]api.Port{}
	for port, v := range set {
		ports[port] = api.Port{Port: port, Visibility: v}
	}
	if rec.status == api.StatusRunning {
		now, err := rec.client.Ports(ctx)
		if err != nil {
			return nil, err
		}
		for _, l := range now.Ports {
			p := ports[l.Port]
			p.Port, p.Listening, p.Process = l.Port, true, l.Process
			if p.Visibility == "" {
				p.Visibility = api.PreviewPublic
			}
			ports[l.Port] = p
		}
	}
	maps.DeleteFunc(ports, func(port int, _ api.Port) bool { return internalPort(port) })
	return slices.SortedFunc(maps.Values(ports), func(a, b api.Port) int { return a.Port - b.Port }), nil
}
