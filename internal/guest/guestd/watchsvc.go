//go:build linux

package guestd

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"sync"
	"time"

	"connectrpc.com/connect"

	pb "github.com/pandastack/pandastack/internal/guest/envdpb"
)

// Bounds of watchers that are polled: how many there are, and how many events
// wait for a poll. Beyond it the oldest are forgotten.
const (
	maxWatchers = 128
	maxPending  = 8192
)

func (h files) WatchDir(ctx context.Context, req *connect.Request[pb.WatchDirRequest], out *connect.ServerStream[pb.WatchDirResponse]) error {
	m := req.Msg
	w, err := h.s.newWatch(m.GetPath(), basicUser(req.Header()), m.GetRecursive(), m.GetIncludeEntry(), m.GetAllowNetworkMounts())
	if err != nil {
		return rpcError(err)
	}
	var watching sync.WaitGroup
	defer watching.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	events := make(chan *pb.FilesystemEvent)
	ended := make(chan error, 1)
	watching.Go(func() {
		ended <- w.run(ctx, func(ev *pb.FilesystemEvent) error {
			select {
			case events <- ev:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
	})
	return streamEvents(events, ended, keepalive(req.Header()), out.Send)
}

// streamEvents sends what comes until watching ends or a send fails.
func streamEvents(events <-chan *pb.FilesystemEvent, ended <-chan error, silence time.Duration, send func(*pb.WatchDirResponse) error) error {
	if err := send(&pb.WatchDirResponse{Event: &pb.WatchDirResponse_Start{Start: &pb.WatchDirResponse_StartEvent{}}}); err != nil {
		return err
	}
	timer := time.NewTimer(silence)
	defer timer.Stop()
	for {
		msg := &pb.WatchDirResponse{Event: &pb.WatchDirResponse_Keepalive{Keepalive: &pb.WatchDirResponse_KeepAlive{}}}
		select {
		case err := <-ended:
			return err
		case ev := <-events:
			msg.Event = &pb.WatchDirResponse_Filesystem{Filesystem: ev}
		case <-timer.C:
		}
		if err := send(msg); err != nil {
			return err
		}
		timer.Reset(silence)
	}
}

// watchers is the watches that are polled.
type watchers struct {
	mu   sync.Mutex
	byID map[string]*polled
}

type polled struct {
	stop context.CancelFunc

	mu     sync.Mutex
	events []*pb.FilesystemEvent
}

func (p *polled) put(ev *pb.FilesystemEvent) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.events) >= maxPending {
		p.events = append([]*pb.FilesystemEvent(nil), p.events[maxPending/4:]...)
	}
	p.events = append(p.events, ev)
	return nil
}

func (h files) CreateWatcher(_ context.Context, req *connect.Request[pb.CreateWatcherRequest]) (*connect.Response[pb.CreateWatcherResponse], error) {
	m := req.Msg
	ws := &h.s.watchers
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if len(ws.byID) >= maxWatchers {
		return nil, connect.NewError(connect.CodeResourceExhausted, errors.New("too many watchers; remove some"))
	}
	w, err := h.s.newWatch(m.GetPath(), basicUser(req.Header()), m.GetRecursive(), m.GetIncludeEntry(), m.GetAllowNetworkMounts())
	if err != nil {
		return nil, rpcError(err)
	}
	var raw [10]byte
	rand.Read(raw[:])
	id := "w" + hex.EncodeToString(raw[:])
	ctx, stop := context.WithCancel(h.s.lifetime)
	p := &polled{stop: stop}
	ws.byID[id] = p
	h.s.tasks.Go(func() { _ = w.run(ctx, p.put) }) // it ends with the watcher; a poll then finds nothing more
	return connect.NewResponse(&pb.CreateWatcherResponse{WatcherId: id}), nil
}

func (ws *watchers) get(id string) (*polled, error) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	p := ws.byID[id]
	if p == nil {
		return nil, connect.NewError(connect.CodeNotFound, errors.New("watcher with id '"+printable(id, 64)+"' not found"))
	}
	return p, nil
}

func (h files) GetWatcherEvents(_ context.Context, req *connect.Request[pb.GetWatcherEventsRequest]) (*connect.Response[pb.GetWatcherEventsResponse], error) {
	p, err := h.s.watchers.get(req.Msg.GetWatcherId())
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	events := p.events
	p.events = nil
	p.mu.Unlock()
	return connect.NewResponse(&pb.GetWatcherEventsResponse{Events: events}), nil
}

func (h files) RemoveWatcher(_ context.Context, req *connect.Request[pb.RemoveWatcherRequest]) (*connect.Response[pb.RemoveWatcherResponse], error) {
	id := req.Msg.GetWatcherId()
	p, err := h.s.watchers.get(id)
	if err != nil {
		return nil, err
	}
	p.stop()
	ws := &h.s.watchers
	ws.mu.Lock()
	defer ws.mu.Unlock()
	delete(ws.byID, id)
	return connect.NewResponse(&pb.RemoveWatcherResponse{}), nil
}
