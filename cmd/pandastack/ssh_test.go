//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/creack/pty"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/client"
)

// door is a server with SSH, a sandbox of it, and OpenSSH with a key that may.
type door struct {
	t    *testing.T
	s    *server
	sb   *client.Sandbox
	home string
	port string
	key  string // file
}

// newKey makes a key pair with OpenSSH.
func newKey(t *testing.T, dir, name string) string {
	t.Helper()
	file := filepath.Join(dir, name)
	if out, err := exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", file).CombinedOutput(); err != nil {
		t.Fatalf("ssh-keygen: %v\n%s", err, out)
	}
	return file
}

func (d *door) add(file string) string {
	d.t.Helper()
	line, err := os.ReadFile(file + ".pub")
	if err != nil {
		d.t.Fatal(err)
	}
	k, err := d.s.client().SSHKeys.Add(d.t.Context(), api.AddSSHKey{PublicKey: string(line)})
	if err != nil {
		d.t.Fatal(err)
	}
	return k.Fingerprint
}

func openDoor(t *testing.T, s *server) *door {
	t.Helper()
	for _, name := range []string{"ssh", "scp", "sftp", "ssh-keygen", "ssh-agent", "ssh-add"} {
		if _, err := exec.LookPath(name); err != nil {
			t.Fatalf("%s is not installed: apt-get install openssh-client", name)
		}
	}
	d := &door{t: t, s: s, home: t.TempDir(), sb: create(t, s, api.CreateSandbox{})}
	if err := os.Mkdir(filepath.Join(d.home, ".ssh"), 0o700); err != nil {
		t.Fatal(err)
	}
	d.key = newKey(t, filepath.Join(d.home, ".ssh"), "id_ed25519")
	d.add(d.key)
	var at struct {
		SSHAddr string `json:"ssh_addr"`
	}
	data, err := os.ReadFile(filepath.Join(s.dataDir, "server.json"))
	if err != nil || json.Unmarshal(data, &at) != nil || at.SSHAddr == "" {
		t.Fatalf("server.json has %s, %v", data, err)
	}
	_, d.port, _ = net.SplitHostPort(at.SSHAddr)
	info, err := d.sb.SSH(t.Context())
	if err != nil || strconv.Itoa(info.Port) != d.port || info.User != d.sb.ID || info.Host != "127.0.0.1" {
		t.Fatalf("%+v, %v", info, err)
	}
	known := fmt.Sprintf("[%s]:%d %s\n", info.Host, info.Port, info.HostKey)
	if err := os.WriteFile(filepath.Join(d.home, "known_hosts"), []byte(known), 0o600); err != nil {
		t.Fatal(err)
	}
	return d
}

// options are those of every OpenSSH program.
func (d *door) options(more ...string) []string {
	return append([]string{
		"-F", "none", "-o", "BatchMode=yes", "-o", "IdentitiesOnly=yes", "-o", "IdentityFile=" + d.key,
		"-o", "StrictHostKeyChecking=yes", "-o", "UserKnownHostsFile=" + filepath.Join(d.home, "known_hosts"),
		"-o", "ConnectTimeout=30", "-o", "ExitOnForwardFailure=yes", "-o", "Port=" + d.port,
	}, more...)
}

func (d *door) target() string { return d.sb.ID + "@127.0.0.1" }

// command is one OpenSSH program. It ends with the test.
func (d *door) command(name string, args ...string) *exec.Cmd {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	d.t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, name, d.options(args...)...)
	cmd.Env = []string{"HOME=" + d.home, "PATH=" + os.Getenv("PATH"), "LC_TIME=C", "SECRET=x"}
	return cmd
}

// ssh runs a line with what is given to it, and gives what it says and its exit
// code.
func (d *door) ssh(stdin string, args ...string) (out, errs string, code int) {
	d.t.Helper()
	cmd := d.command("ssh", args...)
	var o, e bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &o, &e
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		d.t.Fatal(err)
	}
	return o.String(), e.String(), cmd.ProcessState.ExitCode()
}

// until waits for something to become true.
func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !is(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("not in a minute: " + what)
		}
	}
}

// TestSSH uses a server with the ssh, scp and sftp that people have.
func TestSSH(t *testing.T) {
	t.Parallel()
	s := own(t, tempDir(t), "--ssh-listen", "127.0.0.1:0")
	for name, test := range map[string]func(*door){
		"Exec": (*door).testExec, "Terminal": (*door).testTerminal, "Files": (*door).testFiles, "Forward": (*door).testForward,
		"Reverse": (*door).testReverse, "Refused": (*door).testRefused, "Agent": (*door).testAgent, "Asleep": (*door).testAsleep,
		"Killed": (*door).testKilled, "Paused": (*door).testPaused, "CLI": (*door).testCLI,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(openDoor(t, s))
		})
	}
}

// tempDir is a directory for a server: t.TempDir has the test's name in it, which
// is too long for the sockets within.
func tempDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "pandastack-e2e-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func (d *door) testExec() {
	t := d.t
	out, errs, code := d.ssh("in\n", "-o", "SendEnv=LC_TIME SECRET", d.target(), "cat; echo err >&2; echo $LC_TIME$SECRET; id -un; pwd; exit 7")
	if out != "in\nC\nuser\n/home/user\n" || errs != "err\n" || code != 7 {
		t.Errorf("%q, %q, %d", out, errs, code)
	}
	if out, _, code := d.ssh(strings.Repeat("0123456789abcdef", 1<<20), d.target(), "wc -c"); strings.TrimSpace(out) != strconv.Itoa(16<<20) || code != 0 {
		t.Errorf("16 MiB in: %q, %d", out, code)
	}
	if out, _, code := d.ssh("", d.target(), "head -c 33554432 /dev/zero"); len(out) != 32<<20 || code != 0 {
		t.Errorf("32 MiB out: %d bytes, %d", len(out), code)
	}
	if _, _, code := d.ssh("", d.target(), "kill -KILL $$"); code != 255 {
		t.Errorf("a signal: %d", code)
	}
	if out, _, code := d.ssh("echo $0; shopt -q login_shell && echo login\n", "-T", d.target()); code != 0 || !strings.Contains(out, "login") {
		t.Errorf("a login shell: %q, %d", out, code)
	}
	if _, _, code := d.ssh("", d.target(), "no-such-program"); code != 127 {
		t.Errorf("no such program: %d", code)
	}
}

// screen collects what a terminal shows.
type screen struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p)
}

func (s *screen) shows(text string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Contains(s.text.String(), text)
}

func (d *door) testTerminal() {
	t := d.t
	cmd := d.command("ssh", "-tt", d.target())
	cmd.Env = append(cmd.Env, "TERM=xterm")
	tty, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 31, Cols: 91})
	if err != nil {
		t.Fatal(err)
	}
	defer tty.Close()
	seen := &screen{}
	read := make(chan struct{})
	go func() { defer close(read); _, _ = io.Copy(seen, tty) }()
	io.WriteString(tty, "stty size; echo $TERM-$((40+2))\n")
	until(t, "the terminal has its size", func() bool { return seen.shows("31 91") && seen.shows("xterm-42") })
	if err := pty.Setsize(tty, &pty.Winsize{Rows: 17, Cols: 57}); err != nil {
		t.Fatal(err)
	}
	io.WriteString(tty, "until [ \"$(stty size)\" = '17 57' ]; do sleep 0.2; done; echo resized-$((40+2))\n")
	until(t, "it changes", func() bool { return seen.shows("resized-42") })
	io.WriteString(tty, "sleep 600\n")
	time.Sleep(time.Second) // for sleep to be what the key interrupts; a key that comes before does no harm
	io.WriteString(tty, "\x03")
	io.WriteString(tty, "echo rc-$?; exit 9\n")
	err = cmd.Wait()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 9 {
		t.Errorf("%v", err)
	}
	<-read
}

func (d *door) testFiles() {
	t := d.t
	dir := t.TempDir()
	want := bytes.Repeat([]byte("panda\x00\xff"), 1<<20)
	if err := os.WriteFile(filepath.Join(dir, "a b"), want, 0o640); err != nil {
		t.Fatal(err)
	}
	run := func(cmd *exec.Cmd) string {
		t.Helper()
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %v\n%s", cmd.Args[len(cmd.Args)-2:], err, out)
		}
		return string(out)
	}
	run(d.command("scp", "-p", filepath.Join(dir, "a b"), d.target()+":there"))
	if got := sh(t, d.sb, "stat -c '%s %a %U' there"); got != fmt.Sprintf("%d 640 user", len(want)) {
		t.Error(got)
	}
	run(d.command("scp", d.target()+":there", filepath.Join(dir, "back")))
	if got, err := os.ReadFile(filepath.Join(dir, "back")); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%d bytes came back, %v", len(got), err)
	}
	sh(t, d.sb, "mkdir -p tree/sub; echo 1 > tree/one; echo 2 > tree/sub/two; ln -s one tree/link")
	run(d.command("scp", "-r", d.target()+":tree", dir))
	if got, err := os.ReadFile(filepath.Join(dir, "tree/sub/two")); err != nil || string(got) != "2\n" {
		t.Errorf("%q, %v", got, err)
	}
	batch := d.command("sftp", "-b", "-", d.target())
	batch.Stdin = strings.NewReader("ls -l tree\nrename tree/one tree/three\nchmod 600 tree/three\nmkdir tree/new\nln -s three tree/four\ndf\ncp tree/three tree/copy\nrm tree/link\nrmdir tree/new\npwd\n")
	out := run(batch)
	for _, text := range []string{"link", "-rw-r--r--    1 user     user            2", "/home/user"} {
		if !strings.Contains(out, text) {
			t.Errorf("%q is not in\n%s", text, out)
		}
	}
	if got := sh(t, d.sb, "cat tree/four tree/copy; ls tree | tr '\\n' ' '; stat -c %a tree/three"); got != "1\n1\ncopy four sub three 600" {
		t.Errorf("%q", got)
	}
	denied := d.command("sftp", "-b", "-", d.target())
	denied.Stdin = strings.NewReader("get /etc/shadow /dev/null\n")
	if out, err := denied.CombinedOutput(); err == nil || !strings.Contains(string(out), "Permission denied") {
		t.Errorf("%v\n%s", err, out)
	}
}

// start runs ssh in the background until the end of the test.
func (d *door) start(args ...string) *exec.Cmd {
	d.t.Helper()
	cmd := d.command("ssh", args...)
	log := &screen{}
	cmd.Stderr = log
	if err := cmd.Start(); err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if d.t.Failed() {
			d.t.Logf("ssh %v says:\n%s", args, log.text.String())
		}
	})
	return cmd
}

func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	return port
}

func (d *door) testForward() {
	t := d.t
	ctx := t.Context()
	for _, line := range []string{"cd /etc && exec python3 -m http.server 8001 --bind 127.0.0.1", "cd /etc && exec python3 -m http.server 8002 --bind 0.0.0.0"} {
		if _, err := d.sb.ExecWith(ctx, api.Exec{Cmd: client.Line(line), Background: true}); err != nil {
			t.Fatal(err)
		}
	}
	sh(t, d.sb, "for p in 8001 8002; do until curl -s -o /dev/null http://127.0.0.1:$p/; do sleep 0.2; done; done")
	one, two, three, four := freePort(t), freePort(t), freePort(t), freePort(t)
	d.start("-N", "-L", one+":localhost:8001", "-L", two+":"+d.sb.GuestIP+":8002", "-L", three+":169.254.169.254:80", "-L", four+":localhost:49983", d.target())
	get := func(port string) string {
		out, _ := exec.Command("curl", "-s", "-m", "20", "http://127.0.0.1:"+port+"/passwd").Output()
		return string(out)
	}
	until(t, "the loopback port is reached", func() bool { return strings.Contains(get(one), "/home/user") })
	until(t, "the other is reached", func() bool { return strings.Contains(get(two), "/home/user") })
	for _, port := range []string{three, four} {
		if out := get(port); out != "" {
			t.Errorf("what is not the sandbox's own was reached: %q", out)
		}
	}
}

func (d *door) testReverse() {
	t := d.t
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			io.WriteString(c, "from outside\n")
			c.Close()
		}
	}()
	cmd := d.start("-N", "-R", "9000:"+l.Addr().String(), d.target())
	sh(t, d.sb, "for i in $(seq 100); do [ \"$(bash -c 'cat </dev/tcp/127.0.0.1/9000')\" = 'from outside' ] && exit 0; sleep 0.2; done 2>/dev/null; exit 1")
	// Only the loopback address has the port: the sandbox's own has not.
	sh(t, d.sb, "! bash -c '</dev/tcp/"+d.sb.GuestIP+"/9000' 2>/dev/null")
	_ = cmd.Process.Kill()
	sh(t, d.sb, "for i in $(seq 300); do pgrep -f 'guest rela[y]' >/dev/null || exit 0; sleep 0.2; done; ps aux; exit 1")
}

func (d *door) testRefused() {
	t := d.t
	stranger := newKey(t, d.home, "stranger")
	unknown := "k3v9x0q2m7c1b8n4t6zd@127.0.0.1"
	var said []string
	for _, args := range [][]string{{"-o", "IdentityFile=" + stranger, d.target()}, {unknown}, {"root@127.0.0.1"}} {
		cmd := exec.Command("ssh", append(append([]string{"-F", "none", "-o", "BatchMode=yes", "-o", "IdentitiesOnly=yes",
			"-o", "StrictHostKeyChecking=yes", "-o", "UserKnownHostsFile=" + filepath.Join(d.home, "known_hosts"), "-o", "Port=" + d.port}, args...), "true")...)
		if len(args) == 1 {
			cmd.Args = append(cmd.Args[:1], append([]string{"-i", d.key}, cmd.Args[1:]...)...)
		}
		out, err := cmd.CombinedOutput()
		if err == nil {
			t.Errorf("%v was let in", args)
		}
		_, text, _ := strings.Cut(string(out), "@")
		said = append(said, text)
	}
	for _, text := range said {
		if text != said[0] || !strings.Contains(text, "Permission denied (publickey)") {
			t.Errorf("%q and %q", text, said[0])
		}
	}
	// A key that is deleted ends what it has opened.
	other := newKey(t, d.home, "other")
	print := d.add(other)
	d.key = other
	cmd := d.start(d.target(), "sleep 4713")
	sh(t, d.sb, "for i in $(seq 300); do pgrep -f '^sleep 471[3]' >/dev/null && exit 0; sleep 0.2; done; exit 1")
	if err := d.s.client().SSHKeys.Delete(t.Context(), strings.TrimPrefix(print, "SHA256:")); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err == nil {
		t.Error("it ended as if nothing were wrong")
	}
	sh(t, d.sb, "for i in $(seq 300); do pgrep -f '^sleep 471[3]' >/dev/null || exit 0; sleep 0.2; done; exit 1")
}

func (d *door) testAgent() {
	t := d.t
	sock := filepath.Join(d.home, "agent")
	agent := exec.Command("ssh-agent", "-D", "-a", sock)
	if err := agent.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = agent.Process.Kill()
		_ = agent.Wait()
	}()
	until(t, "the agent is there", func() bool { _, err := os.Stat(sock); return err == nil })
	add := exec.Command("ssh-add", d.key)
	add.Env = append(os.Environ(), "SSH_AUTH_SOCK="+sock)
	if out, err := add.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	cmd := d.command("ssh", "-A", d.target(), "echo \"[$SSH_AUTH_SOCK]\"")
	cmd.Env = append(cmd.Env, "SSH_AUTH_SOCK="+sock)
	if out, err := cmd.Output(); err != nil || string(out) != "[]\n" {
		t.Errorf("%q, %v", out, err)
	}
}

func (d *door) testAsleep() {
	t := d.t
	sh(t, d.sb, "echo kept > /home/user/memory")
	if err := d.sb.Hibernate(t.Context()); err != nil {
		t.Fatal(err)
	}
	if out, errs, code := d.ssh("", d.target(), "cat memory"); out != "kept\n" || code != 0 {
		t.Errorf("%q, %q, %d", out, errs, code)
	}
	if b, err := d.s.client().Sandboxes.Get(t.Context(), d.sb.ID); err != nil || b.Status != api.StatusRunning {
		t.Errorf("%v, %v", b.Status, err)
	}
	// A session that is open when it is put to sleep is told; the next wakes it.
	cmd := d.command("ssh", d.target(), "sleep 4714")
	var errs screen
	cmd.Stderr = &errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	sh(t, d.sb, "for i in $(seq 300); do pgrep -f '^sleep 471[4]' >/dev/null && exit 0; sleep 0.2; done; exit 1")
	if err := d.sb.Hibernate(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err == nil || !errs.shows("connecting again") {
		t.Errorf("%v, %q", err, errs.text.String())
	}
	if out, _, code := d.ssh("", d.target(), "cat memory"); out != "kept\n" || code != 0 {
		t.Errorf("%q, %d", out, code)
	}
}

func (d *door) testKilled() {
	t := d.t
	for i, args := range [][]string{{d.target(), "sleep 4715 & sleep 4715"}, {"-tt", d.target(), "sleep 4715 & sleep 4715"}, {d.target(), "trap '' HUP; sleep 4715 & sleep 4715"}} {
		cmd := d.start(args...)
		sh(t, d.sb, "for i in $(seq 300); do [ $(pgrep -fc '^sleep 471[5]') -ge 2 ] && exit 0; sleep 0.2; done; exit 1")
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		if got := sh(t, d.sb, "for i in $(seq 300); do pgrep -f 'sleep 471[5]' >/dev/null || { echo gone; exit 0; }; sleep 0.2; done; ps aux"); got != "gone" {
			t.Errorf("%d: %s", i, got)
		}
	}
	list, err := d.sb.Processes(t.Context(), false)
	if err != nil || len(list) != 0 {
		t.Errorf("%+v, %v", list, err)
	}
}

func (d *door) testPaused() {
	t := d.t
	if err := d.sb.Pause(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, errs, code := d.ssh("", d.target(), "true"); code != 255 || !strings.Contains(errs, "paused") || !strings.Contains(errs, "pandastack sandbox resume "+d.sb.ID) {
		t.Errorf("%q, %d", errs, code)
	}
	if err := d.sb.Resume(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, errs, code := d.ssh("", d.target(), "true"); code != 0 {
		t.Errorf("%q, %d", errs, code)
	}
	if _, err := create(t, sharedServer(t), api.CreateSandbox{}).SSH(t.Context()); api.CodeOf(err) != api.CodeUnsupported || !strings.Contains(api.AsError(err).Hint, "--ssh-listen") {
		t.Errorf("a server without SSH: %v", err)
	}
}

func (d *door) testCLI() {
	t := d.t
	run := func(args ...string) (string, error) {
		cmd := program(args...)
		cmd.Env = []string{"HOME=" + d.home, "PATH=" + os.Getenv("PATH"), api.EnvBaseURL + "=" + d.s.addr, api.EnvAPIKey + "=" + d.s.key}
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	// ssh finds keys in the home of the account, not in HOME.
	own := newKey(t, d.home, "cli")
	if out, err := run("ssh-key", "add", own+".pub", "--name", "of the test"); err != nil || !strings.HasPrefix(out, "SHA256:") {
		t.Fatalf("%v\n%s", err, out)
	}
	if out, err := run("ssh-key", "list"); err != nil || !strings.Contains(out, "of the test") || !strings.Contains(out, "ssh-ed25519") {
		t.Errorf("%v\n%s", err, out)
	}
	out, err := run("sandbox", "ssh", d.sb.ID, "--add-key", "--", "-F", "none", "-o", "IdentitiesOnly=yes", "-o", "BatchMode=yes", "-i", own, "echo $((6*7)); exit 4")
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 4 || out != "42\n" {
		t.Errorf("%v\n%s", err, out)
	}
	if out, err := run("ssh-key", "add", filepath.Join(d.home, "cli")); err == nil || !strings.Contains(out, "private key") {
		t.Errorf("%v\n%s", err, out)
	}
	if out, err := run("ssh-key", "delete", "SHA256:nothing"); !errors.As(err, &exit) || exit.ExitCode() != 3 {
		t.Errorf("%v\n%s", err, out)
	}
}
