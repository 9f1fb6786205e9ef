//go:build linux

package guestd

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"syscall"
	"time"

	"connectrpc.com/connect"

	pb "github.com/pandastack/pandastack/internal/guest/envdpb"
)

// headerReplay on Connect, with the value 1, asks for what is kept of the output
// so far before the new; headerSkipped in its answer is how many bytes of output
// from before are not kept. Without it Connect is the protocol's.
const (
	headerReplay  = "X-Replay"
	headerSkipped = "X-Replay-Skipped"
)

// headerScope on SendSignal, with the value tree, sends the signal to all that
// descends from the process as well.
const headerScope = "X-Signal-Scope"

// headerKeepalive is how many seconds a stream may be silent.
const headerKeepalive = "Keepalive-Ping-Interval"

// maxSignal is the last of the real-time signals.
const maxSignal = 64

// processes implements process.Process.
type processes struct{ s *Server }

func (h processes) List(context.Context, *connect.Request[pb.ListRequest]) (*connect.Response[pb.ListResponse], error) {
	out := &pb.ListResponse{}
	for _, p := range h.s.procs.running() {
		p.mu.Lock()
		config := p.config
		p.mu.Unlock()
		if config != nil { // it ended this moment
			out.Processes = append(out.Processes, &pb.ProcessInfo{Config: config, Pid: uint32(p.pid), Tag: p.tag})
		}
	}
	return connect.NewResponse(out), nil
}

// Start runs a program. The timeout of the call is the lifetime of the process,
// which outlives the call if the client leaves.
func (h processes) Start(ctx context.Context, req *connect.Request[pb.StartRequest], out *connect.ServerStream[pb.StartResponse]) error {
	var lifetime time.Duration
	if deadline, ok := ctx.Deadline(); ok {
		lifetime = max(time.Until(deadline), time.Millisecond)
	}
	p, sub, err := h.s.start(ctx, req.Msg, basicUser(req.Header()), lifetime)
	if err != nil {
		return rpcError(err)
	}
	msg := &pb.StartResponse{}
	return h.s.follow(ctx, p, sub, req.Header(), lifetime > 0, func(ev *pb.ProcessEvent) error {
		msg.Event = ev
		return out.Send(msg)
	})
}

func (h processes) Connect(ctx context.Context, req *connect.Request[pb.ConnectRequest], out *connect.ServerStream[pb.ConnectResponse]) error {
	replay, ended := req.Header().Get(headerReplay) == "1", keepEnded
	if replay {
		ended = keepReplay
	}
	p, err := h.s.procs.find(req.Msg.GetProcess(), ended)
	if err != nil {
		return err
	}
	sub := p.subscribe(replay)
	if replay {
		out.ResponseHeader().Set(headerSkipped, strconv.FormatInt(sub.before.lost, 10))
	}
	msg := &pb.ConnectResponse{}
	return h.s.follow(ctx, p, sub, req.Header(), false, func(ev *pb.ProcessEvent) error {
		msg.Event = ev
		return out.Send(msg)
	})
}

// follow sends the events of a process until it ends or the client leaves. With
// owner, the end of ctx by time is the end of the process, which is waited for.
func (s *Server) follow(ctx context.Context, p *process, sub *subscriber, header http.Header, owner bool, send func(*pb.ProcessEvent) error) error {
	defer p.leave(sub)
	if err := send(&pb.ProcessEvent{Event: &pb.ProcessEvent_Start{Start: &pb.ProcessEvent_StartEvent{Pid: uint32(p.pid)}}}); err != nil {
		return err
	}
	if err := sub.replay(send); err != nil {
		return err
	}
	silence := keepalive(header)
	timer := time.NewTimer(silence)
	defer timer.Stop()
	over := ctx.Done()
	for {
		select {
		case c := <-sub.chunks:
			err := send(dataEvent(c.from, c.data))
			c.release()
			if err != nil {
				return err
			}
			timer.Reset(silence)
		case <-p.done:
			if owner && p.expired() {
				return connect.NewError(connect.CodeDeadlineExceeded, errors.New("the process ran longer than its timeout and was killed"))
			}
			holdFlush(ctx) // what ends the answer follows at once
			return send(&pb.ProcessEvent{Event: &pb.ProcessEvent_End{End: p.end()}})
		case <-timer.C:
			if err := send(&pb.ProcessEvent{Event: &pb.ProcessEvent_Keepalive{Keepalive: &pb.ProcessEvent_KeepAlive{}}}); err != nil {
				return err
			}
			timer.Reset(silence)
		case <-s.stopping:
			return connect.NewError(connect.CodeUnavailable, errors.New("the sandbox is stopping"))
		case <-over:
			if !owner || !errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return ctx.Err()
			}
			over = nil // the process's own timer kills it
		}
	}
}

func (p *process) expired() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.timedOut
}

// replay sends what was written before, once.
func (s *subscriber) replay(send func(*pb.ProcessEvent) error) error {
	if s.before == nil {
		return nil
	}
	data := s.before.data
	for _, sp := range s.before.spans {
		for rest := sp.n; rest > 0; {
			n := min(rest, ptyChunk)
			if err := send(dataEvent(sp.from, data[:n])); err != nil {
				return err
			}
			data, rest = data[n:], rest-n
		}
	}
	s.before = nil
	return nil
}

func dataEvent(from stream, data []byte) *pb.ProcessEvent {
	d := &pb.ProcessEvent_DataEvent{}
	switch from {
	case streamStdout:
		d.Output = &pb.ProcessEvent_DataEvent_Stdout{Stdout: data}
	case streamStderr:
		d.Output = &pb.ProcessEvent_DataEvent_Stderr{Stderr: data}
	case streamPTY:
		d.Output = &pb.ProcessEvent_DataEvent_Pty{Pty: data}
	}
	return &pb.ProcessEvent{Event: &pb.ProcessEvent_Data{Data: d}}
}

// keepalive is how long a stream of this request may be silent.
func keepalive(h http.Header) time.Duration {
	if n, err := strconv.Atoi(h.Get(headerKeepalive)); err == nil && n > 0 && n <= 3600 {
		return time.Duration(n) * time.Second
	}
	return 90 * time.Second
}

// basicUser is the user a request names; the password means nothing.
func basicUser(h http.Header) string {
	name, _, _ := (&http.Request{Header: h}).BasicAuth()
	return name
}

func (h processes) Update(_ context.Context, req *connect.Request[pb.UpdateRequest]) (*connect.Response[pb.UpdateResponse], error) {
	p, err := h.s.procs.find(req.Msg.GetProcess(), 0)
	if err != nil {
		return nil, err
	}
	if size := req.Msg.GetPty().GetSize(); size != nil {
		if err := p.resize(size); err != nil {
			return nil, rpcError(err)
		}
	}
	return connect.NewResponse(&pb.UpdateResponse{}), nil
}

func (h processes) SendInput(ctx context.Context, req *connect.Request[pb.SendInputRequest]) (*connect.Response[pb.SendInputResponse], error) {
	p, err := h.s.procs.find(req.Msg.GetProcess(), 0)
	if err != nil {
		return nil, err
	}
	if err := p.feed(ctx, req.Msg.GetInput()); err != nil {
		return nil, err
	}
	return connect.NewResponse(&pb.SendInputResponse{}), nil
}

func (h processes) StreamInput(ctx context.Context, in *connect.ClientStream[pb.StreamInputRequest]) (*connect.Response[pb.StreamInputResponse], error) {
	var p *process
	for in.Receive() {
		switch ev := in.Msg().GetEvent().(type) {
		case *pb.StreamInputRequest_Start:
			var err error
			if p, err = h.s.procs.find(ev.Start.GetProcess(), 0); err != nil {
				return nil, err
			}
		case *pb.StreamInputRequest_Data:
			if p == nil {
				return nil, connect.NewError(connect.CodeInvalidArgument, errors.New("the first message must say which process"))
			}
			if err := p.feed(ctx, ev.Data.GetInput()); err != nil {
				return nil, err
			}
		}
	}
	if err := in.Err(); err != nil {
		return nil, err
	}
	return connect.NewResponse(&pb.StreamInputResponse{}), nil
}

// feed writes input of the kind that the process takes.
func (p *process) feed(ctx context.Context, in *pb.ProcessInput) error {
	var data []byte
	switch v := in.GetInput().(type) {
	case *pb.ProcessInput_Stdin:
		if p.pty != nil {
			return connect.NewError(connect.CodeInternal, errors.New("the process has a terminal, not stdin"))
		}
		data = v.Stdin
	case *pb.ProcessInput_Pty:
		if p.pty == nil {
			return connect.NewError(connect.CodeInternal, errors.New("the process has no terminal"))
		}
		data = v.Pty
	default:
		return connect.NewError(connect.CodeInvalidArgument, errors.New("the input is empty"))
	}
	if _, err := p.stdin.write(ctx, data); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return connect.NewError(connect.CodeInternal, err)
	}
	return nil
}

func (h processes) SendSignal(_ context.Context, req *connect.Request[pb.SendSignalRequest]) (*connect.Response[pb.SendSignalResponse], error) {
	p, err := h.s.procs.find(req.Msg.GetProcess(), 0)
	if err != nil {
		return nil, err
	}
	sig := syscall.Signal(req.Msg.GetSignal())
	if sig < 1 || sig > maxSignal {
		return nil, connect.NewError(connect.CodeUnimplemented, errors.New("signal "+itoa(int(sig))+" cannot be sent"))
	}
	if req.Header().Get(headerScope) == "tree" {
		p.signalTree(sig)
	} else if err := p.signal(sig); err != nil {
		return nil, rpcError(err)
	}
	return connect.NewResponse(&pb.SendSignalResponse{}), nil
}

func (h processes) CloseStdin(_ context.Context, req *connect.Request[pb.CloseStdinRequest]) (*connect.Response[pb.CloseStdinResponse], error) {
	p, err := h.s.procs.find(req.Msg.GetProcess(), 0)
	if err != nil {
		return nil, err
	}
	if p.pty != nil {
		return nil, connect.NewError(connect.CodeInternal, errors.New("a terminal has no stdin to close; send Ctrl-D"))
	}
	p.stdin.close()
	return connect.NewResponse(&pb.CloseStdinResponse{}), nil
}
