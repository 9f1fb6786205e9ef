//go:build linux

package guest_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/guest"
)

// hook makes a program of the directory of hooks.
func (d *daemon) hook(t *testing.T, name, script string, mode os.FileMode) string {
	t.Helper()
	dir := filepath.Join(d.root, "etc/pandastack/on-restore.d")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+script+"\n"), mode); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil { // whatever the umask
		t.Fatal(err)
	}
	return path
}

// become initialises the daemon and gives its warnings.
func (d *daemon) become(t *testing.T, in guest.Init) string {
	t.Helper()
	warned := ""
	in.Warn = func(s string) { warned = s }
	if err := d.Init(testContext(t), in); err != nil {
		t.Fatal(err)
	}
	return warned
}

func (d *daemon) read(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(d.root, path))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func (d *daemon) identity(t *testing.T) map[string]string {
	t.Helper()
	var id map[string]string
	if err := json.Unmarshal([]byte(d.read(t, "run/pandastack/identity")), &id); err != nil {
		t.Fatal(err)
	}
	return id
}

// holdFile is what stands for the runtime's socket.
func holdFile(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "hold")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func releases(t *testing.T, hold string) int {
	t.Helper()
	data, err := os.ReadFile(hold)
	if err != nil {
		t.Fatal(err)
	}
	n := strings.Count(string(data), guest.HoldRelease)
	if len(data) != n*len(guest.HoldRelease) {
		t.Fatalf("%q", data)
	}
	return n
}

// systemLog is the lines of the log that are of the daemon itself.
func (d *daemon) systemLog(t *testing.T) []string {
	t.Helper()
	s, err := d.Logs(testContext(t), guest.LogOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var out []string
	for {
		line, err := s.Recv()
		if err == io.EOF {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		if line.Stream == "system" {
			out = append(out, line.Line)
		}
	}
}

func TestHooks(t *testing.T) {
	t.Parallel()
	hold := holdFile(t)
	d := startDaemon(t, "-hold", hold)
	ran := filepath.Join(d.root, "ran")
	const note = `echo "${0##*/} $(id -u) $PWD $(wc -c <%s) $PANDASTACK_BOOT $PANDASTACK_SANDBOX_ID $PANDASTACK_PARENT_ID $PANDASTACK_SNAPSHOT_ID $K $IMAGE_VAR $HOME" >>%s`
	script := fmt.Sprintf(note, hold, ran)
	app, err := d.Start(testContext(t), guest.Command{Cmd: "/bin/sh", Args: []string{"-c", `trap "exit 7" USR1; echo ready; while :; do sleep 0.05; done`}})
	if err != nil {
		t.Fatal(err)
	}
	defer app.Close()
	if ev, err := app.Recv(); err != nil || string(ev.Stdout) != "ready\n" {
		t.Fatal(ev, err)
	}
	d.hook(t, "20-fails", script+"\necho gone wrong >&2; exit 3", 0o755)
	d.hook(t, "10-first", script+fmt.Sprintf("\necho of first; echo $PANDASTACK_GENERATION >%s/generation; kill -USR1 %d", d.root, app.PID()), 0o755)
	mine := d.hook(t, "30-of-user", script, 0o755)
	d.hook(t, ".hidden", script, 0o755)
	d.hook(t, "40-old~", script, 0o755)
	d.hook(t, "50-README", script, 0o644)
	d.hook(t, "60-anyone", script, 0o777)
	others := d.hook(t, "70-other", script, 0o755)
	broken := d.hook(t, "80-broken", "", 0o755)
	if err := os.WriteFile(broken, []byte("not a program"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(mine, filepath.Join(filepath.Dir(mine), "90-link")); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(filepath.Dir(mine), "95-dir"), 0o755); err != nil {
		t.Fatal(err)
	}
	const nobody = 65534
	if err := os.Chown(mine, nobody, nobody); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(others, 54321, 0); err != nil {
		t.Fatal(err)
	}
	in := guest.Init{
		ID: "child", Template: "base", Hostname: "child", ParentID: "parent", SnapshotID: "snap",
		EnvVars: map[string]string{"K": "v"}, DefaultUser: "nobody",
	}
	for _, quiet := range []guest.Init{{Identity: true}, {Identity: true, Boot: string(api.BootCold)}, {Boot: string(api.BootFork)}} {
		if w := d.become(t, quiet); w != "" {
			t.Fatal(w)
		}
	}
	if _, err := os.Stat(ran); !os.IsNotExist(err) {
		t.Fatal("hooks ran without a restore")
	}
	before := releases(t, hold)
	in.Identity, in.Boot = true, string(api.BootFork)
	warned := d.become(t, in)
	var want strings.Builder
	for _, name := range []string{"10-first", "20-fails", "30-of-user"} {
		fmt.Fprintf(&want, "%s 0 / %d fork child parent snap v of-image /root\n", name, before*len(guest.HoldRelease))
	}
	if got := d.read(t, "ran"); got != want.String() {
		t.Errorf("%s want\n%s", got, want.String())
	}
	if n := releases(t, hold); before != 2 || n != 3 {
		t.Error(before, n)
	}
	wantWarnings := []string{
		"hook 60-anyone: not run: everybody may write to it", "hook 70-other: not run: it belongs neither to root nor to the sandbox's user",
		"hook 20-fails: exit status 3", "hook 80-broken: exec format error",
	}
	if got := strings.Split(warned, "; "); !slices.Equal(got, wantWarnings) {
		t.Errorf("%q", got)
	}
	if id := d.identity(t); d.read(t, "generation") != id["generation"]+"\n" || len(id["generation"]) != 32 {
		t.Error(id)
	}
	eventually(t, "output and warnings are in the log", func() bool {
		log := d.systemLog(t)
		return len(log) == 3 && slices.Contains(log, "of first") && slices.Contains(log, "gone wrong") && slices.Contains(log, warned)
	})
	follow, err := d.Attach(testContext(t), app.PID()) // the restore cut the first stream
	if err != nil {
		t.Fatal(err)
	}
	defer follow.Close()
	if r := drain(follow); r.exit == nil || r.exit.Code != 7 {
		t.Errorf("%+v", r)
	}
}

func TestHooksEndInTime(t *testing.T) {
	t.Parallel()
	hold := holdFile(t)
	d := startDaemon(t, "-hold", hold)
	pids := filepath.Join(d.root, "pids")
	for i := range 4 {
		d.hook(t, fmt.Sprintf("%d0-waits", i), fmt.Sprintf("echo %d >&2; sleep 1000 & echo $! $$ >>%s; wait", i, pids), 0o755)
	}
	began := time.Now()
	warned := d.become(t, guest.Init{Identity: true, ID: "child", Boot: string(api.BootRestore)})
	if took := time.Since(began); took < 4*time.Second || took > 15*time.Second {
		t.Error(took)
	}
	for i := range 3 {
		if want := fmt.Sprintf("hook %d0-waits: it took too long and was killed", i); !strings.Contains(warned, want) {
			t.Errorf("%q, want %q", warned, want)
		}
	}
	if want := "1 hooks from 30-waits on were not run: those before took 5s"; !strings.HasSuffix(warned, want) {
		t.Errorf("%q, want %q", warned, want)
	}
	if n := releases(t, hold); n != 1 {
		t.Error(n)
	}
	left := strings.Fields(d.read(t, "pids"))
	if len(left) != 6 {
		t.Fatal(left)
	}
	eventually(t, "all that they started is gone", func() bool {
		return !slices.ContainsFunc(left, func(s string) bool {
			var pid int
			_, err := fmt.Sscan(s, &pid)
			return err != nil || alive(pid)
		})
	})
}

func TestTooManyHooks(t *testing.T) {
	t.Parallel()
	d := startDaemon(t)
	for i := range 66 {
		d.hook(t, fmt.Sprintf("%02d", i), "echo >>"+d.root+"/ran", 0o755)
	}
	if w := d.become(t, guest.Init{Identity: true, ID: "a", Boot: string(api.BootWake)}); w != "hooks: those from 64 on were not run, at most 64 are" {
		t.Error(w)
	}
	if n := len(d.read(t, "ran")); n != 64 {
		t.Error(n)
	}
	for i := range 1024 {
		d.hook(t, fmt.Sprintf("note-%d", i), "", 0o644)
	}
	if w := d.become(t, guest.Init{Identity: true, ID: "a", Boot: string(api.BootWake)}); w != "hooks: none was run, there are more than 1024 files" {
		t.Error(w)
	}
}

// A sandbox that was asleep is the machine that it was, and a child is another.
func TestNamesOfTheSameSandboxAreKept(t *testing.T) {
	t.Parallel()
	d := startDaemon(t)
	in := guest.Init{
		ID: "one", Template: "base", Hostname: "one", Identity: true, Boot: string(api.BootRestore),
		Nameservers: []netip.Addr{netip.MustParseAddr("10.0.0.1")},
	}
	if w := d.become(t, in); w != "" {
		t.Fatal(w)
	}
	machine, first := d.read(t, "etc/machine-id"), d.identity(t)
	hosts, resolv := filepath.Join(d.root, "etc/hosts"), filepath.Join(d.root, "etc/resolv.conf")
	if err := os.WriteFile(resolv, []byte("nameserver 9.9.9.9\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(hosts, []byte("127.0.0.1 localhost my-own\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	same := func(what string) {
		t.Helper()
		if d.read(t, "etc/machine-id") != machine || !strings.Contains(d.read(t, "etc/hosts"), "my-own") || d.read(t, "etc/hostname") != "one\n" {
			t.Errorf("%s: another machine", what)
		}
	}
	in.Boot, in.SnapshotID = string(api.BootWake), "snap"
	at := time.Now().Round(0)         // without the monotonic clock, which is never set
	in.Timestamp = at.Add(-time.Hour) // of a host whose clock is behind the one before
	if w := d.become(t, in); w != "" {
		t.Fatal(w)
	}
	if time.Now().Round(0).Before(at) {
		t.Error("a daemon in a test has set the clock of this machine")
	}
	same("wake")
	if got := d.read(t, "etc/resolv.conf"); got != "nameserver 9.9.9.9\n" {
		t.Errorf("%q", got)
	}
	in.Nameservers[0] = netip.MustParseAddr("10.0.0.2")
	d.become(t, in)
	if got := d.read(t, "etc/resolv.conf"); got != "nameserver 10.0.0.2\n" {
		t.Errorf("%q", got)
	}
	second := d.identity(t)
	if second["boot"] != "wake" || second["snapshot_id"] != "snap" || second["generation"] == first["generation"] || second["id"] != "one" || second["time"] == "" {
		t.Error(second)
	}
	// Another daemon on the same disk.
	again := startDaemon(t, "-root", d.root)
	in.Boot, in.Timestamp = string(api.BootCold), time.Time{}
	if w := again.become(t, in); w != "" {
		t.Fatal(w)
	}
	same("cold")
	// A named pipe that a process which stands still might have open.
	if err := os.Remove(hosts); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(hosts, 0o666); err != nil {
		t.Fatal(err)
	}
	in.ID, in.Hostname, in.ParentID, in.Boot = "two", "two", "one", string(api.BootFork)
	if w := again.become(t, in); w != "" {
		t.Fatal(w)
	}
	if d.read(t, "etc/machine-id") == machine || d.read(t, "etc/hostname") != "two\n" || !strings.Contains(d.read(t, "etc/hosts"), "\ttwo\n") {
		t.Error("the child is the same machine as its parent")
	}
	if id := d.identity(t); id["parent_id"] != "one" || id["id"] != "two" || id["boot"] != "fork" {
		t.Error(id)
	}
}

func TestReleaseWhateverFailed(t *testing.T) {
	t.Parallel()
	hold := holdFile(t)
	d := startDaemon(t, "-hold", hold)
	if w := d.become(t, guest.Init{ID: "a"}); w != "" || releases(t, hold) != 0 {
		t.Fatal("released without an identity", w)
	}
	if err := os.WriteFile(filepath.Join(d.root, "run"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(d.root, "etc"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	w := d.become(t, guest.Init{ID: "a", Hostname: "a", Identity: true, Boot: string(api.BootFork)})
	if !strings.Contains(w, "names: ") || !strings.Contains(w, "identity: ") || releases(t, hold) != 1 {
		t.Fatal(w, releases(t, hold))
	}
}

// frozen is a way to the daemon that stops without a word: as a connection does
// whose other end is not there in a restored machine.
type frozen struct {
	stop chan struct{}

	mu    sync.Mutex
	conns []net.Conn // on the daemon's side
}

func (f *frozen) dial(d *daemon) guest.Dialer {
	return func(ctx context.Context, _ int) (net.Conn, error) {
		var nd net.Dialer
		conn, err := nd.DialContext(ctx, "tcp", d.addr)
		if err != nil {
			return nil, err
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		f.conns = append(f.conns, conn)
		ours, theirs := net.Pipe()
		go func() { _, _ = io.Copy(conn, theirs) }()
		go func() {
			buf := make([]byte, 32<<10)
			for {
				select {
				case <-f.stop:
					return
				default:
				}
				n, err := conn.Read(buf)
				if _, werr := theirs.Write(buf[:n]); err != nil || werr != nil {
					theirs.Close()
					return
				}
			}
		}()
		return ours, nil
	}
}

// cut reports whether the daemon has closed all connections.
func (f *frozen) cut(t *testing.T) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, conn := range f.conns {
		if err := conn.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
			t.Fatal(err)
		}
		_, err := io.Copy(io.Discard, conn)
		if ne, ok := err.(net.Error); ok && ne.Timeout() {
			return false
		}
	}
	return true
}

// A program whose reader has gone silent is held up, in the machine where the
// reader may come back. In one that was made of it, it goes on.
func TestConnectionsOfAnotherMachineAreCut(t *testing.T) {
	t.Parallel()
	d := startDaemon(t)
	ctx := testContext(t)
	f := &frozen{stop: make(chan struct{})}
	old := guest.NewClient(f.dial(d), "")
	done := filepath.Join(t.TempDir(), "done")
	p, err := old.Start(ctx, guest.Command{Cmd: "/bin/sh", User: "root", Stdin: true, Args: []string{"-c",
		"head -c 100000000 /dev/zero | tr '\\0' '\\n'; echo last; touch " + done + "; read x; echo got $x; sleep 1000"}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Recv(); err != nil {
		t.Fatal(err)
	}
	close(f.stop)
	time.Sleep(time.Second)
	d.become(t, guest.Init{ID: "same", Identity: true}) // no restore
	if _, err := os.Stat(done); !os.IsNotExist(err) {
		t.Fatal("output was not held back")
	}
	d.become(t, guest.Init{ID: "child", Identity: true, Boot: string(api.BootFork)})
	eventually(t, "the program goes on", func() bool { _, err := os.Stat(done); return err == nil })
	if !f.cut(t) {
		t.Error("an old connection is open")
	}
	list, err := d.List(ctx)
	if err != nil || len(list) != 1 || list[0].PID != p.PID() {
		t.Fatal(list, err)
	}
	follow, err := d.Attach(ctx, list[0].PID)
	if err != nil {
		t.Fatal(err)
	}
	defer follow.Close()
	if err := d.SendInput(ctx, p.PID(), []byte("input\n")); err != nil {
		t.Fatal(err)
	}
	if ev, err := follow.Recv(); err != nil || string(ev.Stdout) != "got input\n" {
		t.Fatalf("%q %v", ev.Stdout, err)
	}
	s, err := d.Logs(ctx, guest.LogOptions{Tail: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if line, err := s.Recv(); err != nil || line.Line != "last" {
		t.Errorf("%+v %v", line, err)
	}
	// The next restore cuts this one too, and not the one that tells of it.
	d.become(t, guest.Init{ID: "child", Identity: true, Boot: string(api.BootWake)})
	if _, err := follow.Recv(); err == nil {
		t.Error("a stream outlived the restore")
	}
	if err := d.KillTree(ctx, p.PID()); err != nil {
		t.Fatal(err)
	}
	p.Close()
	old.Close()
	for _, conn := range f.conns {
		conn.Close()
	}
}
