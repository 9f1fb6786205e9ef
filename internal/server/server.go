// Package server is the wiring: it reads the configuration, builds every part,
// runs them and ends them in order. It is the only package that sees both the
// control plane and the machines.
package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/auth"
	"github.com/pandastack/pandastack/internal/control"
	"github.com/pandastack/pandastack/internal/gateway"
	"github.com/pandastack/pandastack/internal/host"
	"github.com/pandastack/pandastack/internal/httpapi"
	"github.com/pandastack/pandastack/internal/store"
)

// Machine is a host that lives in this process.
type Machine interface {
	host.Host
	// Run serves the host's calls until ctx ends. Sandboxes go on without it.
	Run(ctx context.Context) error
}

// Run serves until ctx ends or a part fails. Sandboxes keep running after it,
// and the next Run on the same data directory goes on with them. A part that
// cannot start gives a coded error: server.data_dir_locked, server.port_in_use,
// server.store_corrupt, server.store_unavailable, host.not_root,
// request.unsupported and others.
func Run(ctx context.Context, cfg Config) error {
	return run(ctx, cfg, checkHost, newMachine)
}

func run(ctx context.Context, cfg Config, check func() error, machine func(context.Context, Config) (Machine, error)) error {
	cfg, err := cfg.complete()
	if err != nil {
		return err
	}
	if err := check(); err != nil {
		return err
	}
	unlock, err := lockDataDir(cfg.DataDir)
	if err != nil {
		return err
	}
	defer unlock()
	s := &server{cfg: cfg, log: cfg.Log, failed: make(chan *task, 8)}
	if err := s.listen(ctx); err != nil {
		return err
	}
	err = s.open(ctx, machine)
	if err == nil {
		s.door.open(s.api, s.gateway)
		s.log.Info("serving", "addr", s.addr, "after_ms", time.Since(s.begun).Milliseconds())
		err = s.wait(ctx)
	}
	return errors.Join(err, s.close(ctx))
}

// server is one run: its parts in the order in which they are made, and ended
// from the last to the first.
type server struct {
	cfg   Config
	log   *slog.Logger
	begun time.Time

	http    *http.Server
	addr    string
	door    *door
	hangUp  context.CancelCauseFunc // ends every request
	served  *task
	store   *store.Store
	api     *httpapi.API
	machine *task
	ssh     *task
	keys    *task
	control *task
	failed  chan *task // parts that ended by themselves

	sshListener net.Listener // nil: SSH is not served

	gateway     *gateway.Gateway
	tlsListener net.Listener // nil: TLS is not served
	https       *http.Server
	servedTLS   *task
	closeCerts  func()
}

// listen takes the address and answers /healthz before anything else is done.
func (s *server) listen(ctx context.Context) error {
	s.begun = time.Now()
	l, err := listen(ctx, s.cfg.Listen)
	if err != nil {
		return err
	}
	s.addr = l.Addr().String()
	s.door = newDoor()
	base, hangUp := context.WithCancelCause(context.WithoutCancel(ctx))
	s.hangUp = hangUp
	s.http = s.newHTTP(base)
	s.served = s.start(ctx, "HTTP server", func(context.Context) error {
		if err := s.http.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})
	if err := s.listenTLS(ctx); err != nil {
		return errors.Join(err, s.close(ctx))
	}
	if err := s.listenSSH(ctx); err != nil {
		return errors.Join(err, s.close(ctx))
	}
	if err := writeState(s.cfg.DataDir, s.addr, s.sshAddr()); err != nil {
		return errors.Join(err, s.close(ctx))
	}
	s.log.Info("listening", "addr", s.addr)
	if s.cfg.OnListen != nil {
		s.cfg.OnListen(s.addr)
	}
	return nil
}

// open makes the parts behind the door.
func (s *server) open(ctx context.Context, newMachine func(context.Context, Config) (Machine, error)) error {
	s.door.say("opening the database")
	var err error
	if s.store, err = store.Open(ctx, s.cfg.database(), s.log); err != nil {
		return err
	}
	keys := auth.NewKeys(s.store, s.log)
	keyFile := s.cfg.path("admin.key")
	created, err := keys.Bootstrap(ctx, keyFile)
	if err != nil {
		return err
	}
	if created {
		s.log.Info("made the first admin key", "file", keyFile)
	}
	secret, err := signSecret(ctx, s.store)
	if err != nil {
		return err
	}
	hostKey, err := sshHostKey(ctx, s.store)
	if err != nil {
		return err
	}
	s.door.say("preparing the host")
	machine, err := newMachine(ctx, s.cfg)
	if err != nil {
		return err
	}
	service := control.New(control.Deps{
		Store: s.store, Host: machine, Log: s.log, Limits: s.cfg.Limits,
		Woken: func(b api.Sandbox) { s.api.Woken(b) }, // which is there before the first request
	})
	signer, err := gateway.NewSigner(secret)
	if err != nil {
		return err
	}
	if err := s.newGateway(service, signer); err != nil {
		return err
	}
	s.api = httpapi.New(httpapi.Deps{
		Previews: s.previewAddress(), Signer: signer,
		Control: service, Keys: keys, Log: s.log, Version: Version(), Registry: s.cfg.Registry, SignSecret: secret, Origins: s.cfg.CORSOrigins, SSH: s.sshInfo(hostKey),
		States: func(ctx context.Context) (map[string]int, error) { return countStates(ctx, machine) },
	})
	s.machine = s.start(ctx, "host", machine.Run)
	s.keys = s.start(ctx, "keys", keys.Run)
	s.control = s.start(ctx, "control plane", service.Run)
	s.serveSSH(ctx, service, hostKey)
	return s.serveTLS(ctx, service)
}

// wait returns when ctx ends, or with the error of a part that ended.
func (s *server) wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
		s.log.Info("stopping")
		return nil
	case t := <-s.failed:
		if t.err == nil {
			return api.Errorf(api.CodeInternal, "the %s ended by itself", t.name)
		}
		t.told = true
		return fmt.Errorf("%s: %w", t.name, t.err)
	}
}

// close ends the parts in order: no new requests, the ones under way, streams
// after the grace, then what requests use, and the store last.
func (s *server) close(ctx context.Context) error {
	s.endSSH()
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.cfg.Grace)
	defer cancel()
	late := context.AfterFunc(grace, func() { s.hangUp(errStopping()) })
	if s.api == nil {
		s.hangUp(errStopping()) // whoever waits, waits for what will not come
	}
	last, cancelLast := context.WithTimeout(context.WithoutCancel(ctx), s.cfg.Grace+hangUpTime)
	defer cancelLast()
	s.shutdown(last)
	if s.api != nil { // WebSockets are not the HTTP server's any more
		if s.api.Wait(grace) != nil || s.gateway.Wait(grace) != nil {
			s.hangUp(errStopping())
			if err := errors.Join(s.api.Wait(last), s.gateway.Wait(last)); err != nil {
				s.log.Error("requests did not end", "error", err)
			}
		}
		s.api.Close()
	}
	late()
	s.hangUp(errStopping())
	errs := []error{s.served.stop(), s.closeTLS(), s.closeSSH(), s.control.stop(), s.keys.stop(), s.machine.stop()}
	if s.store != nil {
		errs = append(errs, s.store.Close())
	}
	return errors.Join(append(errs, removeState(s.cfg.DataDir))...)
}

func errStopping() error {
	return api.Errorf(api.CodeCapacity, "the server is stopping").With("retry_after_sec", 2)
}

func countStates(ctx context.Context, h host.Host) (map[string]int, error) {
	list, err := h.List(ctx)
	if err != nil {
		return nil, err
	}
	n := map[string]int{string(host.StateRunning): 0, string(host.StatePaused): 0,
		string(host.StateHibernated): 0, string(host.StateFailed): 0}
	for _, b := range list {
		n[string(b.State)]++
	}
	return n, nil
}

// hangUpTime is how long requests may take to end once they were told to.
const hangUpTime = 5 * time.Second
