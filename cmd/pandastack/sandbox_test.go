//go:build linux

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/client"
	"github.com/pandastack/pandastack/internal/store/pgtest"
)

// TestBase looks at what people expect of the base template.
func TestBase(t *testing.T) {
	t.Parallel()
	sb := create(t, sharedServer(t), api.CreateSandbox{Env: map[string]string{"COLOUR": "blue"}})
	if sb.BootMode != api.BootRestore || sb.BootMS <= 0 || len(sb.BootSteps) == 0 || sb.Driver != "gvisor" {
		t.Errorf("boot: mode %s, %.1f ms, driver %s, steps %v", sb.BootMode, sb.BootMS, sb.Driver, sb.BootSteps)
	}
	for line, want := range map[string]string{
		"id -un; id -u":                    "user\n1000",
		"sudo id -u":                       "0",
		"pwd; echo $HOME":                  "/home/user\n/home/user",
		"echo $COLOUR":                     "blue",
		"python3 -c 'print(6*7)'":          "42",
		"node -p '6*7'":                    "42",
		"touch /workspace/x && echo ok":    "ok",
		"hostname":                         sb.ID[:12],
		"getent hosts $(hostname) | wc -l": "1",
		"git --version | cut -d' ' -f1":    "git",
		"echo 'int main(){return 7;}' > a.c && gcc a.c -o a && { ./a; echo $?; }":  "7",
		"python3 -m venv v && v/bin/python -c 'import sys; print(sys.prefix[-1])'": "v",
		"nproc > /dev/null && free -m | awk '/^Mem/{print $2}'":                    fmt.Sprint(sb.MemoryMB),
	} {
		if got := sh(t, sb, line); got != want {
			t.Errorf("%s\n\tgives %q, want %q", line, got, want)
		}
	}
}

// TestIdentity creates twice and compares what a snapshot could have copied.
func TestIdentity(t *testing.T) {
	t.Parallel()
	s := sharedServer(t)
	a, b := create(t, s, api.CreateSandbox{}), create(t, s, api.CreateSandbox{})
	for _, line := range []string{
		"cat /etc/machine-id", "hostname", "cat /run/pandastack/identity", "cat /proc/sys/kernel/random/uuid",
		"head -c 16 /dev/urandom | base64", "python3 -c 'import uuid; print(uuid.uuid4())'", "python3 -c 'import random; print(random.random())'",
	} {
		if x, y := sh(t, a, line), sh(t, b, line); x == y {
			t.Errorf("%s gives %q in both", line, x)
		}
	}
	for _, sb := range []*client.Sandbox{a, b} {
		var sec int64
		fmt.Sscan(sh(t, sb, "date +%s"), &sec)
		if off := time.Since(time.Unix(sec, 0)).Abs(); off > 5*time.Second {
			t.Errorf("the clock is off by %v", off)
		}
	}
}

// TestIsolation tries, from inside, to reach the other sandbox and the host by
// file, process and network.
func TestIsolation(t *testing.T) {
	t.Parallel()
	s := sharedServer(t)
	a, b := create(t, s, api.CreateSandbox{}), create(t, s, api.CreateSandbox{})
	background := func(sb *client.Sandbox, line string) {
		if _, err := sb.ExecWith(t.Context(), api.Exec{Cmd: client.Line(line), Background: true}); err != nil {
			t.Fatal(err)
		}
	}
	background(b, "exec python3 -m http.server 8000 --bind 0.0.0.0")
	background(b, "exec sleep 98765")
	sh(t, b, "echo secret > /tmp/secret; for i in $(seq 100); do curl -s -o /dev/null http://127.0.0.1:8000/ && break; sleep 0.1; done")

	if got := sh(t, a, "ls /tmp; ps aux | grep -c '[s]leep 98765' || true"); strings.Contains(got, "secret") || !strings.HasSuffix(got, "0") {
		t.Errorf("one sandbox sees the other: %q", got)
	}
	if got := sh(t, a, "ps aux; ls /; ls /var/lib"); strings.Contains(got, s.dataDir) || strings.Contains(got, "runsc") {
		t.Errorf("the host is seen from inside: %q", got)
	}
	if got := sh(t, a, "cat /proc/1/environ | tr '\\0' '\\n'; env"); strings.Contains(got, s.key) {
		t.Error("the server's key is seen from inside")
	}

	// A service of the host on every address it has.
	l, err := net.Listen("tcp", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	reached := make(chan string, 16)
	go http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { reached <- r.Host }))
	port := l.Addr().(*net.TCPAddr).Port
	targets := []string{b.GuestIP + ":8000", "169.254.169.254:80"}
	for _, ip := range hostAddresses(t) {
		targets = append(targets, fmt.Sprintf("%s:%d", ip, port))
	}
	gateway := netip.MustParseAddr(a.GuestIP).Prev()
	targets = append(targets, fmt.Sprintf("%s:%d", gateway, port), strings.TrimPrefix(s.addr, "http://"))
	for _, target := range targets {
		res, err := a.ExecWith(t.Context(), api.Exec{Cmd: client.Argv("curl", "-s", "-m", "3", "-o", "/dev/null", "http://"+target+"/"), TimeoutSeconds: 30})
		if err != nil {
			t.Fatal(err)
		}
		if res.ExitCode == 0 {
			t.Errorf("a sandbox reaches %s", target)
		}
	}
	select {
	case host := <-reached:
		t.Errorf("the host's service was reached as %s", host)
	default:
	}
}

// hostAddresses is every IPv4 address of the host but loopback's, which in a
// sandbox is its own.
func hostAddresses(t *testing.T) []string {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, a := range addrs {
		if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().Is4() && !p.Addr().IsLoopback() && !strings.HasPrefix(a.String(), "10.200.") {
			out = append(out, p.Addr().String())
		}
	}
	return out
}

// TestLimits runs into each limit.
func TestLimits(t *testing.T) {
	t.Parallel()
	s := sharedServer(t)
	t.Run("Disk", func(t *testing.T) {
		sb := create(t, s, api.CreateSandbox{DiskMB: 64})
		for _, dir := range []string{"/home/user", "/tmp"} {
			res, err := sb.Shell(t.Context(), "dd if=/dev/zero of="+dir+"/fill bs=1M count=200; rc=$?; rm -f "+dir+"/fill; exit $rc")
			if err != nil || res.ExitCode == 0 || !strings.Contains(res.Stderr, "No space left") {
				t.Errorf("200 MiB into %s of a disk of 64: %+v, %v", dir, res, err)
			}
		}
		err := sb.Files.Upload(t.Context(), "/home/user/big", io.LimitReader(zeros{}, 200<<20))
		if api.CodeOf(err) != api.CodeDiskFull {
			t.Errorf("uploading 200 MiB to a disk of 64: %v", err)
		}
	})
	t.Run("Memory", func(t *testing.T) {
		sb := create(t, s, api.CreateSandbox{MemoryMB: 256})
		ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
		defer cancel()
		res, err := sb.ExecWith(ctx, api.Exec{Cmd: client.Line("python3 -c 'x = bytearray(1500 << 20)'"), TimeoutSeconds: 60})
		if err == nil && res.ExitCode == 0 {
			t.Errorf("1.5 GB in a sandbox of 256 MiB: %+v", res)
		}
		if api.CodeOf(err) == api.CodeInternal && err != nil {
			t.Errorf("the error has no code of its own: %v", err)
		}
		rec, err := s.client().Sandboxes.Get(t.Context(), sb.ID)
		if err != nil {
			t.Fatal(err)
		}
		if rec.Status == api.StatusFailed && (rec.Error == nil || !strings.Contains(rec.Error.Message, "memory")) {
			t.Errorf("the record does not say that memory ran out: %+v", rec.Error)
		}
	})
	t.Run("ManyProcesses", func(t *testing.T) {
		sb := create(t, s, api.CreateSandbox{})
		ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
		defer cancel()
		sb.ExecWith(ctx, api.Exec{Cmd: client.Line("f() { f | f & }; f"), TimeoutSeconds: 5})
		// Whatever became of it, others go on.
		sh(t, create(t, s, api.CreateSandbox{}), "true")
	})
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// TestOutput streams a gigabyte, and bytes that are no text.
func TestOutput(t *testing.T) {
	t.Parallel()
	sb := create(t, sharedServer(t), api.CreateSandbox{})
	var n countingWriter
	cmd := sb.Command(t.Context(), "head", "-c", "1073741824", "/dev/zero")
	cmd.Stdout = &n
	if err := cmd.Run(); err != nil || n != 1<<30 {
		t.Errorf("%d of 1 GiB arrived: %v", n, err)
	}
	out, err := sb.Command(t.Context(), "printf", `\000\377\200x`).Output()
	if err != nil || string(out) != "\x00\xff\x80x" {
		t.Errorf("binary output = %q, %v", out, err)
	}
	res, err := sb.Shell(t.Context(), "head -c 100000000 /dev/zero | tr '\\0' x")
	if err != nil || !res.Truncated || len(res.Stdout) != 16<<20 {
		t.Errorf("buffered exec of 100 MB: truncated %v, %d bytes, %v", res.Truncated, len(res.Stdout), err)
	}
}

type countingWriter int64

func (n *countingWriter) Write(p []byte) (int, error) {
	*n += countingWriter(len(p))
	return len(p), nil
}

// TestBadCreates sends what no server should accept.
func TestBadCreates(t *testing.T) {
	t.Parallel()
	s := sharedServer(t)
	for body, want := range map[string][]api.Code{
		`{"template":"nope"}`:        {api.CodeTemplateNotFound},
		`{"template":"../etc"}`:      {api.CodeTemplateNotFound, api.CodeInvalidRequest},
		`{"ttl_seconds":-1}`:         {api.CodeInvalidRequest},
		`{"ttl_seconds":"soon"}`:     {api.CodeInvalidRequest},
		`{"memory_mb":-5}`:           {api.CodeInvalidRequest},
		`{"memory_mb":900000000}`:    {api.CodeInvalidRequest},
		`{"driver":"none"}`:          {api.CodeDriverUnavailable},
		`{"colour":"blue"}`:          {api.CodeUnknownField},
		`{"volumes":[{"name":"x"}]}`: {api.CodeUnsupported},
		`{"metadata":{"k":1}}`:       {api.CodeInvalidRequest},
		`not json`:                   {api.CodeInvalidRequest},
		`{"env":{"A=B":"c"}}`:        {api.CodeInvalidRequest},
		`{"metadata":{"k":"` + strings.Repeat("x", 10<<20) + `"}}`: {api.CodeTooLarge},
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.addr+"/v1/sandboxes", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+s.key)
		req.Header.Set("Content-Type", "application/json")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Errorf("%.40s: %v", body, err)
			continue
		}
		var e api.Envelope
		json.NewDecoder(io.LimitReader(resp.Body, 1<<20)).Decode(&e)
		resp.Body.Close()
		if e.Error == nil || !slices.Contains(want, e.Error.Code) || e.Error.Message == "" || e.Error.Hint == "" || e.Error.RequestID == "" {
			t.Errorf("%.40s: status %d, %+v, want one of %v", body, resp.StatusCode, e.Error, want)
		}
	}
}

// TestPostgreSQL runs a server whose rows are in PostgreSQL.
func TestPostgreSQL(t *testing.T) {
	t.Parallel()
	needRoot(t)
	db := pgtest.New(t)
	dsn, err := db.Database(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s := own(t, t.TempDir(), "--database", dsn)
	sb := create(t, s, api.CreateSandbox{Metadata: map[string]string{"db": "pg"}})
	if got := sh(t, sb, "echo hello"); got != "hello" {
		t.Errorf("echo = %q", got)
	}
	c := s.client()
	defer c.Close()
	n := 0
	for found, err := range c.Sandboxes.List(t.Context(), client.ListOptions{Metadata: map[string]string{"db": "pg"}}) {
		if err != nil {
			t.Fatal(err)
		}
		if found.ID == sb.ID {
			n++
		}
	}
	if n != 1 {
		t.Errorf("the list by metadata has it %d times", n)
	}
	if err := sb.Delete(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.stop(syscall.SIGINT); err != nil {
		t.Error(err)
	}
}
