package server

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/pandastack/pandastack/api"
)

// TestServer is the main job over real connections: a sandbox is created, runs
// code, has files, and is gone.
func TestServer(t *testing.T) {
	t.Parallel()
	r := start(t, sandboxConfig(t))
	var st state
	data, err := os.ReadFile(filepath.Join(r.dir, "server.json"))
	if err != nil || json.Unmarshal(data, &st) != nil || st.Addr != r.addr || st.PID != os.Getpid() {
		t.Errorf("server.json: %s (%v)", data, err)
	}
	r.do(200, "GET", "/healthz", nil, nil)

	// Sent before the base image is made: it waits and is served.
	box := r.create(map[string]any{"template": "base", "metadata": map[string]string{"k": "v"}, "env": map[string]string{"GREETING": "hi"}})
	if box.Status != api.StatusRunning || box.Driver != "gvisor" || box.BootMS <= 0 || box.BootMode == "" || box.Metadata["k"] != "v" {
		t.Errorf("created %+v", box)
	}
	r.waitReady()
	path := "/v1/sandboxes/" + box.ID
	t.Run("exec", func(t *testing.T) { testExec(t, r, path) })
	t.Run("files", func(t *testing.T) { testFiles(t, r, path) })
	t.Run("ranges", func(t *testing.T) { testRanges(t, r, path) })
	t.Run("stream", func(t *testing.T) { testStream(t, r, path) })
	t.Run("websocket", func(t *testing.T) { testSocket(t, r, path) })
	t.Run("disconnect", func(t *testing.T) { testDisconnect(t, r, box.ID) })
	t.Run("logs", func(t *testing.T) { testLogs(t, r, path) })
	t.Run("records", func(t *testing.T) { testRecords(t, r, path, box.ID) })

	r.do(204, "DELETE", path, nil, nil)
	r.do(404, "GET", path, nil, nil)
	r.do(404, "POST", path+"/exec", map[string]any{"cmd": "true"}, nil)
	if err := r.stop(); err != nil {
		t.Errorf("stop: %v", err)
	}
	if _, err := os.Stat(filepath.Join(r.dir, "server.json")); err == nil {
		t.Error("server.json is left")
	}
}

func testExec(t *testing.T, r *running, path string) {
	r = r.with(t)
	for _, tt := range []struct {
		req  map[string]any
		want api.ExecResult
	}{
		{map[string]any{"cmd": "echo $GREETING; id -un; pwd"}, api.ExecResult{Stdout: "hi\nuser\n/home/user\n"}},
		{map[string]any{"cmd": "echo", "args": []string{"$HOME", "b"}}, api.ExecResult{Stdout: "$HOME b\n"}},
		{map[string]any{"cmd": []string{"echo", "a  b"}}, api.ExecResult{Stdout: "a  b\n"}},
		{map[string]any{"cmd": "cat", "stdin": "typed"}, api.ExecResult{Stdout: "typed"}},
		{map[string]any{"cmd": "echo no >&2; exit 3"}, api.ExecResult{Stderr: "no\n", ExitCode: 3}},
		{map[string]any{"cmd": []string{"no-such-program"}}, api.ExecResult{Stderr: "no-such-program: not found\n", ExitCode: 127}},
		{map[string]any{"cmd": "kill -9 $$"}, api.ExecResult{ExitCode: 137, Signal: "SIGKILL"}},
		{map[string]any{"cmd": "sleep 100", "timeout_seconds": 0.5}, api.ExecResult{ExitCode: 124, TimedOut: true}},
		{map[string]any{"cmd": `printf '\377\000x'`}, api.ExecResult{Stdout: "\uFFFD\x00x"}},
	} {
		var got api.ExecResult
		r.do(200, "POST", path+"/exec", tt.req, &got)
		got.DurationMS, got.PID = 0, 0
		if got != tt.want {
			t.Errorf("%v: got %+v, want %+v", tt.req, got, tt.want)
		}
	}
}

func testFiles(t *testing.T, r *running, path string) {
	r = r.with(t)
	const mib = 1 << 20
	big := bytes.Repeat([]byte("0123456789abcdef"), 3*mib/16)
	var info api.FileInfo
	r.do(200, "PUT", path+"/fs?path=a/b/big.bin", bytes.NewReader(big), &info)
	if info.Size != 3*mib || info.Path != "/home/user/a/b/big.bin" || info.Owner != "user" {
		t.Errorf("written %+v", info)
	}
	if got := r.do(200, "GET", path+"/fs?path=/home/user/a/b/big.bin", nil, nil); got != string(big) {
		t.Errorf("read %d bytes", len(got))
	}
	r.do(200, "PUT", path+"/fs?path=/root/x&user=root", strings.NewReader("secret"), nil)
	r.do(200, "GET", path+"/fs/stat?path=x&user=root", nil, &info)
	if info.Path != "/root/x" || info.Owner != "root" {
		t.Errorf("root's file %+v", info)
	}
	r.do(201, "POST", path+"/fs/dir?path=a/c", nil, nil)
	r.do(200, "PUT", path+"/fs/dir?path=a/c", nil, nil)
	r.do(400, "POST", path+"/fs/dir?path=a/b/big.bin", nil, nil)
	var dir api.DirList
	r.do(200, "GET", path+"/fs/dir?path=a&depth=2", nil, &dir)
	if len(dir.Entries) != 3 {
		t.Errorf("listed %+v", dir)
	}
	r.do(200, "POST", path+"/fs/move", map[string]string{"from": "a/b/big.bin", "to": "a/c/moved"}, nil)
	r.do(200, "GET", path+"/fs/stat?path=a/c/moved", nil, nil)
	r.do(404, "GET", path+"/fs/stat?path=a/b/big.bin", nil, nil)
	r.do(400, "GET", path+"/fs?path=a", nil, nil)
	r.do(400, "GET", path+"/fs?path=%00", nil, nil)
	r.do(204, "DELETE", path+"/fs?path=a", nil, nil)
	r.do(404, "GET", path+"/fs?path=../../home/user/a/c/moved", nil, nil)
}

func testRanges(t *testing.T, r *running, path string) {
	r = r.with(t)
	r.do(200, "PUT", path+"/fs?path=digits", strings.NewReader("0123456789"), nil)
	for _, tt := range []struct {
		method, header string
		status         int
		body, covered  string
	}{
		{"GET", "bytes=2-4", 206, "234", "bytes 2-4/10"},
		{"GET", "bytes=7-", 206, "789", "bytes 7-9/10"},
		{"GET", "bytes=-2", 206, "89", "bytes 8-9/10"},
		{"GET", "bytes=5-100", 206, "56789", "bytes 5-9/10"},
		{"GET", "bytes=10-", 416, "", "bytes */10"},
		{"GET", "bytes=0-1,4-5", 200, "0123456789", ""},
		{"GET", "letters=1-2", 200, "0123456789", ""},
		{"HEAD", "", 200, "", ""},
		{"HEAD", "bytes=2-4", 206, "", "bytes 2-4/10"},
	} {
		req, _ := http.NewRequestWithContext(t.Context(), tt.method, "http://"+r.addr+path+"/fs?path=digits", nil)
		req.Header.Set("X-API-Key", r.key)
		if tt.header != "" {
			req.Header.Set("Range", tt.header)
		}
		resp, err := transport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode != tt.status || resp.Header.Get("Content-Range") != tt.covered || tt.status != 416 && string(body) != tt.body {
			t.Errorf("%s %s: %d %q %q (%v)", tt.method, tt.header, resp.StatusCode, resp.Header.Get("Content-Range"), body, err)
		}
		if tt.method == "HEAD" && resp.ContentLength != int64(map[int]int{200: 10, 206: 3}[tt.status]) {
			t.Errorf("HEAD %s: length %d", tt.header, resp.ContentLength)
		}
	}
}

// testStream: output comes while the command runs, byte for byte, and more of
// it than would fit in memory limits does not stop the server.
func testStream(t *testing.T, r *running, path string) {
	r = r.with(t)
	resp, err := r.try(t.Context(), "POST", path+"/exec/stream", map[string]any{"cmd": `printf 'a\000\377'; echo b >&2; head -c 33554432 /dev/zero; exit 5`})
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	in := bufio.NewScanner(resp.Body)
	in.Buffer(nil, 8<<20)
	var stdout, stderr int
	var last api.ExecEvent
	for in.Scan() {
		data, ok := strings.CutPrefix(in.Text(), "data: ")
		if !ok {
			continue
		}
		last = api.ExecEvent{}
		if err := json.Unmarshal([]byte(data), &last); err != nil {
			t.Fatal(err)
		}
		switch last.Type {
		case "stdout":
			stdout += len(last.Data)
		case "stderr":
			stderr += len(last.Data)
		}
	}
	if stdout != 3+32<<20 || stderr != 2 || last.Type != "exit" || last.Result.ExitCode != 5 {
		t.Errorf("%d bytes of stdout, %d of stderr, last %+v (%v)", stdout, stderr, last, in.Err())
	}
}

// dial opens exec/ws as a browser does, with the key as a subprotocol.
func dial(ctx context.Context, t *testing.T, r *running, path string) *websocket.Conn {
	t.Helper()
	conn, _, err := websocket.Dial(ctx, "ws://"+r.addr+path+"/exec/ws", &websocket.DialOptions{
		HTTPClient: &http.Client{Transport: transport}, Subprotocols: []string{"bearer." + r.key},
		HTTPHeader: http.Header{"Origin": {"https://elsewhere.example"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.CloseNow() })
	if conn.Subprotocol() != "bearer."+r.key {
		t.Errorf("subprotocol %q", conn.Subprotocol())
	}
	conn.SetReadLimit(8 << 20)
	return conn
}

func testSocket(t *testing.T, r *running, path string) {
	r = r.with(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	conn := dial(ctx, t, r, path)
	say := func(kind websocket.MessageType, data string) {
		if err := conn.Write(ctx, kind, []byte(data)); err != nil {
			t.Fatal(err)
		}
	}
	next := func() (e api.ExecEvent) {
		_, data, err := conn.Read(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(data, &e); err != nil {
			t.Fatal(err)
		}
		return e
	}
	say(websocket.MessageText, `{"type":"start","exec":{"cmd":"cat; echo end >&2; exit 4"}}`)
	if e := next(); e.Type != "start" || e.PID == 0 {
		t.Errorf("got %+v", e)
	}
	say(websocket.MessageBinary, "one\x00")
	if e := next(); e.Type != "stdout" || string(e.Data) != "one\x00" {
		t.Errorf("got %+v", e)
	}
	say(websocket.MessageText, `{"type":"stdin","data":"dHdv"}`)
	if e := next(); string(e.Data) != "two" {
		t.Errorf("got %+v", e)
	}
	for text, code := range map[string]api.Code{`{"type":"dance"}`: api.CodeInvalidRequest, `{"typ":"stdin"}`: api.CodeUnknownField,
		`{`: api.CodeInvalidRequest, `{"type":"signal","signal":"SIGFOO"}`: api.CodeInvalidRequest} {
		say(websocket.MessageText, text)
		if e := next(); e.Type != "error" || e.Error.Code != code {
			t.Errorf("%s: got %+v", text, e)
		}
	}
	say(websocket.MessageText, `{"type":"close_stdin"}`)
	if e := next(); e.Type != "stderr" || string(e.Data) != "end\n" {
		t.Errorf("got %+v", e)
	}
	if e := next(); e.Type != "exit" || e.Result.ExitCode != 4 {
		t.Errorf("got %+v", e)
	}
	if _, _, err := conn.Read(ctx); websocket.CloseStatus(err) != websocket.StatusNormalClosure {
		t.Errorf("closed with %v", err)
	}

	for first, code := range map[string]api.Code{`{"type":"stdin"}`: api.CodeInvalidRequest, `{"type":"start","exec":{"cmd":"x","tty":1}}`: api.CodeUnknownField,
		`{"type":"start","exec":{"cmd":"true","user":"nobody-here"}}`: ""} {
		conn = dial(ctx, t, r, path)
		say(websocket.MessageText, first)
		e := next()
		if e.Type != "error" || code != "" && e.Error.Code != code {
			t.Errorf("%s: got %+v", first, e)
		}
		if _, _, err := conn.Read(ctx); websocket.CloseStatus(err) != websocket.StatusPolicyViolation {
			t.Errorf("%s: closed with %v", first, err)
		}
	}

	conn = dial(ctx, t, r, path)
	say(websocket.MessageText, `{"type":"start","exec":{"cmd":["sleep","1000"]}}`)
	next()
	say(websocket.MessageText, `{"type":"signal","signal":"SIGTERM"}`)
	if e := next(); e.Type != "exit" || e.Result.Signal != "SIGTERM" || e.Result.ExitCode != 143 {
		t.Errorf("got %+v", e)
	}
	conn = dial(ctx, t, r, path)
	say(websocket.MessageText, `{"type":"start","exec":{"cmd":["no-such-program"]}}`)
	next()
	if e := next(); string(e.Data) != "no-such-program: not found\n" {
		t.Errorf("got %+v", e)
	}
	if e := next(); e.Type != "exit" || e.Result.ExitCode != 127 {
		t.Errorf("got %+v", e)
	}
	r.do(426, "GET", path+"/exec/ws", nil, nil)
	r.do(404, "GET", "/v1/sandboxes/aaaaaaaaaaaaaaaaaaaa/exec/ws", nil, nil)
}

// testDisconnect: a command whose client leaves is killed, however it was
// called.
func testDisconnect(t *testing.T, r *running, id string) {
	r = r.with(t)
	path := "/v1/sandboxes/" + id
	gone := func(what string) {
		t.Helper()
		for range 100 {
			if !strings.Contains(r.sh(id, "ps"), what) {
				return
			}
			time.Sleep(100 * time.Millisecond)
		}
		t.Errorf("%s still runs", what)
	}
	there := func(what string) {
		t.Helper()
		for range 100 {
			if strings.Contains(r.sh(id, "ps"), what) {
				return
			}
			time.Sleep(100 * time.Millisecond)
		}
		t.Errorf("%s does not run", what)
	}
	for call, what := range map[string]string{"/exec": "sleep 7771", "/exec/stream": "sleep 7772"} {
		ctx, cancel := context.WithCancel(t.Context())
		left := make(chan struct{})
		go func() {
			defer close(left)
			if resp, err := r.try(ctx, "POST", path+call, map[string]any{"cmd": what + " & wait"}); err == nil {
				io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
			}
		}()
		there(what)
		cancel()
		<-left
		gone(what)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	conn := dial(ctx, t, r, path)
	if err := conn.Write(ctx, websocket.MessageText, []byte(`{"type":"start","exec":{"cmd":"sleep 7773 & wait"}}`)); err != nil {
		t.Fatal(err)
	}
	there("sleep 7773")
	conn.CloseNow()
	gone("sleep 7773")
}

func testLogs(t *testing.T, r *running, path string) {
	r = r.with(t)
	r.do(200, "POST", path+"/exec", map[string]any{"cmd": "echo first line; echo complaint >&2; echo last line"}, nil)
	if got := r.do(200, "GET", path+"/logs?stream=stdout&tail=2", nil, nil); got != "first line\nlast line\n" {
		t.Errorf("logs %q", got)
	}
	if got := r.do(200, "GET", path+"/logs?tail=3", nil, nil); !strings.Contains(got, "complaint\n") {
		t.Errorf("logs %q", got)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	resp, err := r.try(ctx, "GET", path+"/logs?follow=1&tail=1&stream=stdout", nil)
	if err != nil || resp.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("%v %v", resp, err)
	}
	defer resp.Body.Close()
	r.do(200, "POST", path+"/exec", map[string]any{"cmd": "echo followed"}, nil)
	in := bufio.NewScanner(resp.Body)
	for in.Scan() {
		var l api.LogLine
		if data, ok := strings.CutPrefix(in.Text(), "data: "); ok && json.Unmarshal([]byte(data), &l) == nil && l.Line == "followed" && l.Stream == "stdout" {
			return
		}
	}
	t.Errorf("the followed line did not come: %v", in.Err())
}

func testRecords(t *testing.T, r *running, path, id string) {
	r = r.with(t)
	var list api.SandboxList
	r.do(200, "GET", "/v1/sandboxes?metadata.k=v&state=running&template=base", nil, &list)
	if len(list.Sandboxes) != 1 || list.Sandboxes[0].ID != id {
		t.Errorf("list %+v", list)
	}
	r.do(200, "GET", "/v1/sandboxes?metadata=k:other", nil, &list)
	if len(list.Sandboxes) != 0 {
		t.Errorf("list %+v", list)
	}
	var events []api.Event
	r.do(200, "GET", path+"/events", nil, &events)
	if len(events) == 0 || events[0].Type != "sandbox.running" {
		t.Errorf("events %+v", events)
	}
	var m api.Metrics
	r.do(200, "GET", path+"/metrics", nil, &m)
	if m.PID == 0 || m.HostRSSBytes == 0 {
		t.Errorf("metrics %+v", m)
	}
	var l api.Lifecycle
	r.do(200, "PATCH", path+"/lifecycle", map[string]any{"ttl_seconds": 600}, &l)
	if l.TTLSeconds == nil || *l.TTLSeconds != 600 || l.ExpiresAt == nil {
		t.Errorf("lifecycle %+v", l)
	}
	var box api.Sandbox
	r.do(200, "POST", path+"/pause", nil, &box)
	if box.Status != api.StatusPaused {
		t.Errorf("paused %+v", box)
	}
	r.do(409, "POST", path+"/exec", map[string]any{"cmd": "true"}, nil)
	r.do(200, "POST", path+"/resume", nil, &box)
	r.sh(id, "true")
	r.do(404, "POST", "/v1/sandboxes", map[string]any{"template": "nope"}, nil)
	r.do(404, "POST", "/v1/sandboxes", map[string]any{"from_snapshot": "snap-1"}, nil)
	r.do(501, "POST", "/v1/sandboxes", map[string]any{"volumes": []map[string]any{{"name": "v"}}}, nil)
	page := r.do(200, "GET", "/metrics", nil, nil)
	for _, want := range []string{`pandastack_sandboxes{state="running"} 1`, `pandastack_sandbox_creates_total{boot_mode=`, `pandastack_execs_total{call="websocket",outcome="ok"}`} {
		if !strings.Contains(page, want) {
			t.Errorf("no %s in the metrics", want)
		}
	}
	var tok api.NewToken
	r.do(201, "POST", "/v1/me/tokens", map[string]any{"name": "ci"}, &tok)
	user := *r
	user.key = tok.Key
	user.do(200, "GET", "/v1/me", nil, nil)
	user.do(403, "POST", "/v1/me/tokens", map[string]any{"name": "more"}, nil)
	user.key = "e2b_" + strings.TrimPrefix(tok.Key, "pds_")
	user.do(200, "GET", path, nil, nil)
	r.do(204, "DELETE", "/v1/me/tokens/"+tok.Prefix, nil, nil)
	user.do(401, "GET", "/v1/me", nil, nil)
}

// TestStopEndsStreams: a stop is not held up by a client that follows, and the
// client is told why its stream ended. The sandbox goes on.
func TestStopEndsStreams(t *testing.T) {
	t.Parallel()
	cfg := sandboxConfig(t)
	r := start(t, cfg)
	box := r.create(nil)
	r.do(200, "POST", "/v1/sandboxes/"+box.ID+"/exec", map[string]any{"cmd": "sleep 4444", "background": true}, nil)
	resp, err := r.try(t.Context(), "GET", "/v1/sandboxes/"+box.ID+"/events?follow=1", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	conn := dial(t.Context(), t, r, "/v1/sandboxes/"+box.ID)
	if err := conn.Write(t.Context(), websocket.MessageText, []byte(`{"type":"start","exec":{"cmd":"sleep 5555"}}`)); err != nil {
		t.Fatal(err)
	}
	stopped := make(chan error, 1)
	go func() { stopped <- r.stop() }()
	data, err := io.ReadAll(resp.Body)
	if err != nil || !strings.Contains(string(data), "event: error") || !strings.Contains(string(data), "the server is stopping") {
		t.Errorf("the stream ended with %q (%v)", data, err)
	}
	select {
	case err := <-stopped:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Fatal("the server does not stop")
	}
	next := start(t, cfg)
	if ps := next.sh(box.ID, "ps"); !strings.Contains(ps, "sleep 4444") || strings.Contains(ps, "sleep 5555") {
		t.Errorf("after a stop and a start there run\n%s", ps)
	}
}

// TestKill: after kill -9 of the server a new one goes on with its sandboxes,
// and ends one whose time ran out meanwhile.
func TestKill(t *testing.T) {
	t.Parallel()
	cfg := sandboxConfig(t)
	r, kill := startChild(t, cfg)
	box := r.create(map[string]any{"persistent": true})
	short := r.create(map[string]any{"ttl_seconds": 2})
	r.sh(box.ID, "echo kept > notes; cat notes")
	r.do(200, "POST", "/v1/sandboxes/"+box.ID+"/exec", map[string]any{"cmd": "sleep 6666", "background": true}, nil)
	kill()
	time.Sleep(2 * time.Second) // the short one's time is over

	next := start(t, cfg)
	if got := next.sh(box.ID, "cat notes; ps"); !strings.HasPrefix(got, "kept") || !strings.Contains(got, "sleep 6666") {
		t.Errorf("after kill -9: %s", got)
	}
	for range 100 {
		resp, err := next.try(t.Context(), "GET", "/v1/sandboxes/"+short.ID, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode == 404 {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Error("the sandbox whose time ran out is still there")
}

// startChild runs a server in a process of its own.
func startChild(t *testing.T, cfg Config) (r *running, kill func()) {
	t.Helper()
	data, err := json.Marshal(cfg)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), childConfig+"="+string(data))
	cmd.Stderr = testWriter{t}
	cmd.WaitDelay = 10 * time.Second
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	killed := false
	kill = func() {
		if !killed {
			killed = true
			cmd.Process.Kill()
			cmd.Wait()
		}
	}
	t.Cleanup(kill)
	r = &running{t: t, dir: cfg.DataDir}
	r.readKey()
	var st state
	if data, err = os.ReadFile(statePath(cfg.DataDir)); err != nil || json.Unmarshal(data, &st) != nil {
		t.Fatalf("server.json: %s (%v)", data, err)
	}
	r.addr = st.Addr
	return r, kill
}
