//go:build linux

package guestd

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

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

// headerTaken says how many bytes of input a process was given.
const headerTaken = "X-Stdin-Taken"

// feedProcess answers POST /processes/stdin: the body goes to the standard input
// or the terminal of a process as it comes, at the pace at which that reads. It
// ends with the body or with the process; close=1 then closes the input. That a
// program ends, or closes its input, before it has read everything is its own
// affair and no failure: the answer says how much it was given.
func (s *Server) feedProcess(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	pid, err := strconv.ParseUint(q.Get("pid"), 10, 31)
	if err != nil {
		httpFail(w, invalid("pid must be the number of a process"))
		return
	}
	p, err := s.procs.find(&pb.ProcessSelector{Selector: &pb.ProcessSelector_Pid{Pid: uint32(pid)}}, keepReplay)
	if err != nil {
		httpFail(w, err)
		return
	}
	f := &feeding{p: p, w: w, rc: http.NewResponseController(w), over: make(chan struct{})}
	if err := f.run(r.Context(), r.Body); err != nil {
		httpFail(w, err)
		return
	}
	if q.Get("close") == "1" && p.pty == nil {
		p.stdin.close()
	}
}

// What is still read of a body whose process takes no more: closing on a client
// that writes would reset the connection under the answer.
const (
	lingerTime  = 2 * time.Second
	lingerBytes = 16 << 20
)

// feeding copies a request's body to the input of a process, and answers when the
// body ends or the process takes no more, whichever is first.
type feeding struct {
	p    *process
	w    http.ResponseWriter
	rc   *http.ResponseController
	once sync.Once     // of the answer
	over chan struct{} // closed when the process takes no more

	giving sync.Mutex // held while a write is under way, which the process's end ends
	taken  int64
}

// run reads the body to its end, or for a moment after an early answer. An error
// is one to answer with.
func (f *feeding) run(ctx context.Context, body io.Reader) error {
	_ = f.rc.EnableFullDuplex() // HTTP/1 has it; else an answer would wait for the body
	ctx, cancel := context.WithCancel(ctx)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		select {
		case <-f.p.done:
			f.early()
			cancel()
		case <-ctx.Done():
		}
	}()
	err := f.copy(ctx, body)
	cancel()
	<-watched
	select {
	case <-f.over: // it was answered
		return nil
	default:
	}
	if err == nil {
		f.answer()
	}
	return err
}

// copy gives the process what comes, and drops it once it takes no more.
func (f *feeding) copy(ctx context.Context, body io.Reader) error {
	buf := make([]byte, feedPiece)
	for dropped := 0; dropped < lingerBytes; {
		n, err := body.Read(buf)
		select {
		case <-f.over:
			dropped += n
		default:
			if werr := f.give(ctx, buf[:n]); werr != nil {
				return invalid(werr.Error())
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return invalid(err.Error())
		}
	}
	return nil
}

// give writes to the process. That it takes no more is no error.
func (f *feeding) give(ctx context.Context, data []byte) error {
	if len(data) == 0 {
		return nil
	}
	f.giving.Lock()
	n, err := f.p.stdin.write(ctx, data)
	f.taken += int64(n)
	f.giving.Unlock()
	if err != nil && (f.p.over() || errors.Is(err, errInputRefused)) {
		f.early()
		return nil
	}
	return err
}

// early answers before the body's end.
func (f *feeding) early() {
	f.once.Do(func() {
		_ = f.rc.SetReadDeadline(time.Now().Add(lingerTime)) // a connection always has one
		f.w.Header().Set("Connection", "close")
		f.send()
		_ = f.rc.Flush() // a client that is gone needs no answer
		close(f.over)
	})
}

func (f *feeding) answer() { f.once.Do(f.send) }

func (f *feeding) send() {
	f.giving.Lock()
	taken := f.taken
	f.giving.Unlock()
	f.w.Header().Set(headerTaken, strconv.FormatInt(taken, 10))
	f.w.WriteHeader(http.StatusNoContent)
}
