//go:build linux

package main

import (
	"archive/tar"
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/client"
)

// vanisher makes requests whose client is gone in the middle, without a word.
type vanisher struct {
	t  *testing.T
	s  *server
	sb *client.Sandbox
	// alone has no other connections: what a test leaves behind is its own.
	alone *http.Client
}

// cut makes a request and lets the connection go when sight has seen enough of
// the answer; a nil sight needs only what until says.
func (v *vanisher) cut(method, path string, body io.Reader, sight string, until func() bool) {
	v.t.Helper()
	ctx, cancel := context.WithTimeout(v.t.Context(), time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, v.s.addr+"/v1/sandboxes/"+v.sb.ID+"/"+path, body)
	if err != nil {
		v.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+v.s.key)
	ended := make(chan error, 1)
	seen := make(chan struct{})
	go func() {
		resp, err := v.alone.Do(req)
		if err != nil {
			ended <- err
			return
		}
		defer resp.Body.Close()
		in := bufio.NewReader(resp.Body)
		if resp.StatusCode >= 300 {
			text, _ := in.ReadString(0)
			ended <- fmt.Errorf("%s: %s", resp.Status, text)
			return
		}
		if sight != "" {
			for line := ""; !strings.Contains(line, sight) && err == nil; {
				line, err = in.ReadString('\n')
			}
		}
		close(seen)
		<-ctx.Done()
	}()
	if until == nil {
		until = func() bool {
			select {
			case <-seen:
				return true
			default:
				return false
			}
		}
	}
	for !until() {
		select {
		case err := <-ended:
			v.t.Fatalf("%s %s ended first: %v", method, path, err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// stalled is a body that gives some bytes, and then none until the request ends.
func stalled(t *testing.T, head []byte) (io.Reader, func() bool) {
	r, w := io.Pipe()
	t.Cleanup(func() { w.Close() })
	taken := make(chan struct{})
	go func() {
		_, _ = w.Write(head) // the reader may leave, which is what is tested
		close(taken)
	}()
	return r, func() bool {
		select {
		case <-taken:
			return true
		default:
			return false
		}
	}
}

// socket opens a WebSocket, says something, and leaves when it has read sight.
func (v *vanisher) socket(path, say, sight string) {
	v.t.Helper()
	ctx, cancel := context.WithTimeout(v.t.Context(), time.Minute)
	defer cancel()
	conn, _, err := websocket.Dial(ctx, v.s.addr+"/v1/sandboxes/"+v.sb.ID+"/"+path, &websocket.DialOptions{
		HTTPClient: v.alone, HTTPHeader: http.Header{"Authorization": {"Bearer " + v.s.key}},
	})
	if err != nil {
		v.t.Fatal(err)
	}
	defer conn.CloseNow()
	if say != "" {
		if err := conn.Write(ctx, websocket.MessageText, []byte(say)); err != nil {
			v.t.Fatal(err)
		}
	}
	for out := ""; !strings.Contains(out, sight); {
		_, data, err := conn.Read(ctx)
		if err != nil {
			v.t.Fatalf("%s after %q: %v", path, out, err)
		}
		var ev api.ExecEvent
		if json.Unmarshal(data, &ev) == nil {
			data = ev.Data
		}
		out += string(data)
	}
}

// runs reports whether a command line runs in the sandbox.
func (v *vanisher) runs(pattern string) bool {
	// The brackets keep pgrep's own command line out.
	return sh(v.t, v.sb, "pgrep -fc '["+pattern[:1]+"]"+pattern[1:]+"' || true") != "0"
}

func (v *vanisher) eventually(what string, ok func() bool) {
	v.t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if ok() {
			return
		}
	}
	v.t.Fatalf("never: %s", what)
}

// commands vanishes from the calls that run something.
func (v *vanisher) commands() {
	started := func(pattern string) func() bool { return func() bool { return v.runs(pattern) } }
	v.cut("POST", "exec/stream", strings.NewReader(`{"cmd":"echo up; sleep 70011 & sleep 70012"}`), `"stdout"`, nil)
	v.cut("POST", "exec", strings.NewReader(`{"cmd":"sleep 70021 & sleep 70022"}`), "", started("sleep 70022"))
	v.cut("POST", "exec", strings.NewReader(`{"cmd":"yes 70023"}`), "", started("yes 70023"))
	v.socket("exec/ws", `{"type":"start","exec":{"cmd":"echo up; sleep 70031 & sleep 70032"}}`, "up")
	v.eventually("what ran in the foreground ends", func() bool { return !v.runs("sleep 700[123]") && !v.runs("yes 70023") })

	// These detach: what runs goes on.
	v.socket("exec/pty?tag=term&cmd=echo+up;+exec+sleep+70041", "", "up")
	p := background(v.t, v.sb, "", "echo up; while read x; do :; done; exec sleep 70051")
	v.cut("GET", "processes/"+p.Name, nil, `"stdout"`, nil)
	v.socket("exec/ws", `{"type":"attach","pid":`+p.Name+`}`, "up")
	body, taken := stalled(v.t, []byte("line\n"))
	v.cut("POST", "processes/"+p.Name+"/stdin", body, "", taken)
	list, err := v.sb.Processes(v.t.Context(), false)
	if err != nil || len(list) != 2 {
		v.t.Errorf("after detaching there are %+v, %v", list, err)
	}
	for _, q := range list {
		if err := v.sb.Proc(q.PID).Kill(v.t.Context()); err != nil {
			v.t.Error(err)
		}
	}
	v.eventually("nothing runs", func() bool {
		list, err := v.sb.Processes(v.t.Context(), false)
		return err == nil && len(list) == 0
	})
}

// files vanishes from transfers in both directions, and from what follows.
func (v *vanisher) files() {
	sh(v.t, v.sb, "mkdir -p ~/v/tree; head -c 40000000 /dev/urandom > ~/v/big; head -c 40000000 /dev/urandom > ~/v/tree/big; echo old > ~/v/kept")
	part := make([]byte, 3<<20)
	for _, path := range []string{"fs?path=v/new", "fs?path=v/kept&atomic=true", "fs?path=v/fresh&atomic=true"} {
		body, taken := stalled(v.t, part)
		v.cut("PUT", path, body, "", taken)
	}
	body, taken := stalled(v.t, part)
	v.cut("PUT", "fs?path=v/tail&offset=0", body, "", taken)
	body, taken = stalled(v.t, part)
	v.cut("POST", "fs/append?path=v/tail", body, "", taken)
	var archive strings.Builder
	w := tar.NewWriter(&archive)
	if err := w.WriteHeader(&tar.Header{Name: "half", Mode: 0o644, Size: 10 << 20}); err != nil {
		v.t.Fatal(err)
	}
	body, taken = stalled(v.t, append([]byte(archive.String()), part...))
	v.cut("PUT", "fs/archive?path=v/out", body, "", taken)
	v.cut("GET", "fs?path=v/big", nil, "\n", nil)
	v.cut("GET", "fs/archive?path=v/tree", nil, "\n", nil)
	v.cut("GET", "fs/watch?path=v&recursive=true", nil, "", nil)
	v.cut("GET", "logs?follow=true", nil, "", nil)
	v.cut("GET", "events?follow=true", nil, "", nil)
	v.eventually("what was cut off is gone, and what was there is as it was", func() bool {
		return sh(v.t, v.sb, "cat ~/v/kept; ls -A ~/v | tr '\\n' ' '; ls -A ~/v/out") == "old\nbig kept out tail tree "
	})
	sh(v.t, v.sb, "test $(stat -c %s ~/v/tail) -ge 3145728; rm -r ~/v")
	if left := sh(v.t, v.sb, "find / -xdev -name '.pandastack-*' -not -path '/proc/*' 2>/dev/null || true"); left != "" {
		v.t.Errorf("temporary files are left: %s", left)
	}
}

// code vanishes from runs, which are interrupted and keep their state.
func (v *vanisher) code() {
	for language, loop := range map[string]string{
		"python": "print('up', flush=True)\nwhile True: pass", "javascript": "console.log('up'); await null; while (true) {}", "bash": "echo up; while true; do sleep 0.1; done",
	} {
		for _, stream := range []bool{true, false} {
			req, err := json.Marshal(api.RunCode{Code: loop, Language: language, Stream: stream})
			if err != nil {
				v.t.Fatal(err)
			}
			if stream {
				v.cut("POST", "code", strings.NewReader(string(req)), `"stdout"`, nil)
			} else {
				from := time.Now()
				v.cut("POST", "code", strings.NewReader(string(req)), "", func() bool { return time.Since(from) > time.Second })
			}
		}
		// The first execution of a kernel would be one that was started for it.
		run, err := v.sb.RunCode(v.t.Context(), "1", client.CodeOptions{Language: language, Timeout: 30 * time.Second})
		if language != "bash" && (err != nil || run.Text != "1") || run == nil || run.TimedOut || run.ExecutionCount < 2 {
			v.t.Errorf("%s after its clients have left: %+v, %v", language, run, err)
		}
	}
}

// goroutines is how many the server has.
func (v *vanisher) goroutines() int {
	resp, err := v.alone.Get(v.s.addr + "/metrics")
	if err != nil {
		v.t.Fatal(err)
	}
	defer resp.Body.Close()
	for scan := bufio.NewScanner(resp.Body); scan.Scan(); {
		if text, ok := strings.CutPrefix(scan.Text(), "pandastack_goroutines "); ok {
			n, err := strconv.ParseFloat(text, 64)
			if err != nil {
				v.t.Fatal(err)
			}
			return int(n)
		}
	}
	v.t.Fatal("the server does not say how many goroutines it has")
	return 0
}

// held is what the guest program has open: descriptors that are no sockets, since
// the server keeps some connections for its next calls.
func (v *vanisher) held() int {
	res, err := v.sb.ExecWith(v.t.Context(), api.Exec{Cmd: client.Line("find /proc/1/fd -type l -not -lname 'socket:*' | wc -l"), User: "root"})
	if err != nil || res.ExitCode != 0 {
		v.t.Fatalf("%+v, %v", res, err)
	}
	n, err := strconv.Atoi(strings.TrimSpace(res.Stdout))
	if err != nil {
		v.t.Fatal(err)
	}
	return n
}

// TestClientsThatVanish: clients disappear in the middle of every call that lasts.
// What they ran ends where it should and goes on where it should; no goroutine of
// the server, no descriptor of the guest program and no temporary file is left.
func TestClientsThatVanish(t *testing.T) {
	t.Parallel()
	needRoot(t)
	s := own(t, t.TempDir())
	v := &vanisher{t: t, s: s, sb: create(t, s, api.CreateSandbox{}), alone: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}}
	round := func() {
		v.commands()
		v.files()
		v.code()
	}
	round() // what is made once is there now: connections, kernels
	var before []int
	for range 10 {
		before = append(before, v.goroutines(), 0)
		time.Sleep(100 * time.Millisecond)
	}
	least, files := slices.Max(before), v.held()
	const rounds = 2
	for range rounds {
		round()
	}
	// A leak of one call would be there once for each round.
	v.eventually("the server has as many goroutines as before", func() bool { return v.goroutines() < least+rounds })
	v.eventually("the guest program has as many files open as before", func() bool { return v.held() < files+rounds })
	if text := sh(t, v.sb, "ps -eo stat= | grep -c Z || true"); text != "0" {
		t.Errorf("%s zombies are left", text)
	}
}
