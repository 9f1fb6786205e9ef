//go:build linux

package guestd

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"

	"github.com/pandastack/pandastack/api"
	pb "github.com/pandastack/pandastack/internal/guest/envdpb"
)

// maxShown bounds the text of one process in a list.
const maxShown = 2 << 10

// feedPiece is how much input is read at a time.
const feedPiece = 8 << 10

// describe says what is started, in little memory.
func describe(req *pb.StartRequest, l *launch) api.Process {
	c := req.GetProcess()
	info := api.Process{
		Cmd:      shown(c.GetCmd(), maxShown),
		Args:     []string{},
		Cwd:      shown(l.attr.Dir, maxShown),
		User:     l.user,
		Tag:      shown(req.GetTag(), maxShown),
		Terminal: req.GetPty() != nil,
	}
	room := maxShown
	for _, a := range c.GetArgs() {
		if room <= 0 {
			info.ArgsCut = true
			break
		}
		info.ArgsCut = len(a) > room
		info.Args = append(info.Args, shown(a, room))
		room -= len(a) + 1
	}
	return info
}

// shown is a copy of the first bytes of text, so that the rest is not kept.
func shown(s string, most int) string {
	return strings.Clone(strings.ToValidUTF8(s[:min(len(s), most)], "\uFFFD"))
}

// listProcesses answers GET /processes: what was started and runs, in order of
// start; with all=1 also what has ended and is not forgotten.
func (s *Server) listProcesses(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	httpJSON(w, api.ProcessList{Processes: s.procs.list(r.URL.Query().Get("all") == "1")})
}

// list describes the processes that run, and with all those that have ended.
func (t *table) list(all bool) []api.Process {
	out := []api.Process{}
	if all {
		t.mu.Lock()
		for _, p := range t.old {
			if t.byPID[p.pid] == p {
				out = append(out, p.ended())
			}
		}
		t.mu.Unlock()
	}
	for _, p := range t.running() {
		out = append(out, p.info)
	}
	return out
}

// ended describes a process that has ended. It is called with the table's lock
// held.
func (p *process) ended() api.Process {
	info, at := p.info, p.endedAt.UTC()
	info.EndedAt = &at
	code := p.status.ExitStatus()
	if p.status.Signaled() {
		code = 128 + int(p.status.Signal())
		info.Signal = unix.SignalName(p.status.Signal())
	}
	info.ExitCode = &code
	return info
}

// feedProcess answers POST /processes/stdin: the body goes to the standard input
// or the terminal of a process as it comes, at the pace at which that reads. It
// ends with the body or with the process; close=1 then closes the input.
func (s *Server) feedProcess(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	pid, err := strconv.ParseUint(q.Get("pid"), 10, 31)
	if err != nil {
		httpFail(w, invalid("pid must be the number of a process"))
		return
	}
	p, err := s.procs.find(&pb.ProcessSelector{Selector: &pb.ProcessSelector_Pid{Pid: uint32(pid)}}, 0)
	if err != nil {
		httpFail(w, err)
		return
	}
	if err := p.feedFrom(r.Context(), http.NewResponseController(w), r.Body); err != nil {
		httpFail(w, err)
		return
	}
	if q.Get("close") == "1" && p.pty == nil {
		p.stdin.close()
	}
	w.WriteHeader(http.StatusNoContent)
}

// feedFrom copies a request's body to the input of a process.
func (p *process) feedFrom(ctx context.Context, rc *http.ResponseController, body io.Reader) error {
	ctx, cancel := context.WithCancel(ctx)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		select {
		case <-p.done:
			cancel()
			_ = rc.SetReadDeadline(time.Unix(1, 0)) // else the body is waited for
		case <-ctx.Done():
		}
	}()
	defer func() { cancel(); <-watched }()
	buf := make([]byte, feedPiece)
	for {
		n, err := body.Read(buf)
		if n > 0 {
			if err := p.stdin.write(ctx, buf[:n]); err != nil {
				return p.inputError(err)
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return p.inputError(err)
		}
	}
}

// inputError says why input was not taken.
func (p *process) inputError(err error) error {
	if p.over() {
		return connect.NewError(connect.CodeNotFound, errors.New("the process has ended"))
	}
	return invalid(err.Error())
}
