//go:build linux

package guestd

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pandastack/pandastack/internal/guest"
	pb "github.com/pandastack/pandastack/internal/guest/envdpb"
)

// Bounds of a run of git.
const (
	gitTimeMax    = time.Hour
	gitPiece      = 32 << 10 // of output in one frame
	maxCredential = 4 << 10  // of what git says when it asks
)

// askHelper is a credential helper of git: it hands the question to the socket
// that git's processes inherit as file 3, and gives what comes back. Nothing of
// the answer is in its text, which every process can see.
const askHelper = `!f() { test "$1" = get || exit 0; { cat; echo; } >&3; cat <&3; }; f`

// git answers POST /pandastack/git: it runs git as a user of the sandbox and
// sends its output as one guest.GitFrame in JSON per line. When the client
// leaves, git and what it started are killed.
//
// A name and password go to git through a socket that the daemon answers once,
// and only for the protocol and host they are meant for. The first empty helper
// drops those of configuration files, one of which might write to the disk what
// git got; and no hook of the repository runs beside them.
func (s *Server) git(w http.ResponseWriter, r *http.Request) {
	var run guest.GitRun
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxCall)).Decode(&run); err != nil {
		httpFail(w, invalid("the body is not the JSON of this call"))
		return
	}
	limit := min(time.Duration(run.TimeoutMS)*time.Millisecond, gitTimeMax)
	ctx, cancel := context.WithTimeout(r.Context(), limit)
	defer cancel()
	args := run.Args
	if run.Auth != nil {
		args = append([]string{"-c", "credential.helper=", "-c", "credential.helper=" + askHelper, "-c", "core.hooksPath=/dev/null"}, args...)
	}
	cfg := &pb.ProcessConfig{Cmd: "git", Args: args, Envs: gitEnv(run.Env)}
	if run.Dir != "" {
		cfg.Cwd = &run.Dir
	}
	l, err := s.launch(cfg, run.User, false)
	if err != nil {
		httpFail(w, err)
		return
	}
	p, closeHelper, err := s.spawnGit(ctx, l, run.Auth)
	if err != nil {
		httpFail(w, err)
		return
	}
	defer closeHelper()
	defer p.end()
	w.Header().Set("Content-Type", "application/x-ndjson")
	out := &frames{json: json.NewEncoder(w), rc: http.NewResponseController(w)}
	var reading sync.WaitGroup
	reading.Go(func() { out.pump(p.stdout, false) })
	reading.Go(func() { out.pump(p.stderr, true) })
	reading.Wait()
	<-p.gone
	if r.Context().Err() != nil {
		panic(http.ErrAbortHandler)
	}
	end := guest.GitFrame{Done: true, Exit: 128 + int(p.status.Signal()), TimedOut: ctx.Err() != nil}
	if p.status.Exited() {
		end.Exit = p.status.ExitStatus()
	}
	out.send(end)
}

// gitEnv is the environment of git: no questions on a terminal, messages in one
// language, and no trace of what it sends.
func gitEnv(extra map[string]string) map[string]string {
	env := map[string]string{
		"GIT_TERMINAL_PROMPT": "0", "GIT_ASKPASS": "/bin/true", "SSH_ASKPASS": "/bin/true", "GCM_INTERACTIVE": "never",
		"GIT_EDITOR": "true", "GIT_SEQUENCE_EDITOR": "true", "GIT_PAGER": "cat", "LC_ALL": "C.UTF-8", "LANGUAGE": "C",
		"GIT_SSH_COMMAND": "ssh -oBatchMode=yes",
	}
	for _, name := range []string{"GIT_TRACE", "GIT_TRACE_CURL", "GIT_CURL_VERBOSE", "GIT_TRACE_PACKET", "GIT_TRACE2", "GIT_TRACE2_EVENT", "GIT_TRACE2_PERF"} {
		env[name] = "0"
	}
	env["GIT_TRACE_REDACT"] = "1"
	for k, v := range extra {
		env[k] = v
	}
	return env
}

// spawnGit starts git, with a socket for its questions if there is something to
// answer.
func (s *Server) spawnGit(ctx context.Context, l *launch, secret *guest.GitSecret) (*spawned, func(), error) {
	if secret == nil {
		p, err := s.spawn(ctx, l)
		return p, func() {}, err
	}
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	mine := ours(fds[0])
	p, err := s.spawn(ctx, l, uintptr(fds[1]))
	syscall.Close(fds[1])
	if err != nil {
		mine.Close()
		return nil, nil, err
	}
	var answering sync.WaitGroup
	answering.Go(func() { answerOnce(mine, secret) })
	return p, func() { _ = mine.SetReadDeadline(time.Unix(1, 0)); answering.Wait() }, nil
}

// answerOnce answers the first question on a socket, if it is about the right
// host, and closes it.
func answerOnce(socket *os.File, secret *guest.GitSecret) {
	defer socket.Close()
	asked := map[string]string{}
	r := bufio.NewReader(io.LimitReader(socket, maxCredential))
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			return
		}
		line = strings.TrimSuffix(line, "\n")
		if line == "" {
			break
		}
		key, value, _ := strings.Cut(line, "=")
		asked[key] = value
	}
	if asked["protocol"] != secret.Protocol || !strings.EqualFold(asked["host"], secret.Host) {
		return
	}
	// A question that breaks off is git's end, which others tell.
	_, _ = io.WriteString(socket, "username="+secret.Username+"\npassword="+secret.Password+"\n")
}

// frames writes the frames of two outputs to one client.
type frames struct {
	mu   sync.Mutex
	json *json.Encoder
	rc   *http.ResponseController
}

func (f *frames) send(frame guest.GitFrame) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.json.Encode(frame) == nil {
		_ = f.rc.Flush() // a client that is gone ends the request's context
	}
}

func (f *frames) pump(from *os.File, stderr bool) {
	buf := make([]byte, gitPiece)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			frame := guest.GitFrame{Out: buf[:n]}
			if stderr {
				frame = guest.GitFrame{Err: buf[:n]}
			}
			f.send(frame)
		}
		if err != nil {
			return
		}
	}
}
