package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/host"
)

// childVariable turns the test binary into an agent that does one job and kills
// itself at one point of it.
const childVariable = "AGENT_TEST_CHILD"

// childMain is that agent. It ends with SIGKILL, or with status 3 when it never
// came to its point.
func childMain() {
	var s setting
	if err := json.Unmarshal([]byte(os.Getenv(childVariable)), &s); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	err := runChild(s)
	fmt.Fprintln(os.Stderr, "the child was not killed:", err)
	os.Exit(3)
}

func runChild(s setting) error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	cfg, _, err := s.parts(slog.New(slog.NewTextHandler(os.Stderr, nil)))
	if err != nil {
		return err
	}
	cfg.Fault = func(point string) error {
		if point == s.Kill {
			syscall.Kill(os.Getpid(), syscall.SIGKILL)
		}
		return nil
	}
	a := New(cfg)
	go a.Run(ctx)
	spec := specFor(s.ID)
	if _, err := a.Create(ctx, spec); err != nil {
		return err
	}
	if err := a.cfg.Fault("work"); err != nil {
		return err
	}
	if _, err := shell(ctx, a, s.ID, "echo before > /home/user/file; sleep 10000 >/dev/null 2>&1 & echo $! > /home/user/pid"); err != nil {
		return err
	}
	if err := a.cfg.Fault("worked"); err != nil {
		return err
	}
	return s.work(ctx, a)
}

// work is what the child does to its sandbox last.
func (s setting) work(ctx context.Context, a *Agent) error {
	picture := func() error {
		_, err := a.Snapshot(ctx, s.ID, host.SnapshotSpec{ID: s.Snap, Memory: true})
		return err
	}
	var err error
	switch s.Job {
	case "snapshot":
		return picture()
	case "fork":
		_, err = a.Fork(ctx, s.ID, []host.Spec{specFor(api.NewID()), specFor(api.NewID())})
	case "hibernate":
		err = a.Hibernate(ctx, s.ID)
	case "wake":
		if err = a.Hibernate(ctx, s.ID); err == nil {
			_, err = a.Wake(ctx, s.ID)
		}
		time.Sleep(20 * time.Second) // for what goes on in the background
	case "rollback":
		if err = picture(); err != nil {
			return err
		}
		if _, err = shell(ctx, a, s.ID, "echo after > /home/user/file"); err == nil {
			_, err = a.Rollback(ctx, s.ID, s.Snap)
		}
		time.Sleep(20 * time.Second) // for what goes on in the background
	default:
		return a.Delete(ctx, s.ID)
	}
	return err
}

// die runs the child until it has killed itself.
func (s setting) die(t *testing.T) {
	t.Helper()
	data, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "/proc/self/exe")
	cmd.Env = append(os.Environ(), childVariable+"="+string(data))
	log, err := os.CreateTemp(t.TempDir(), "child")
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd.Stderr = log // a file: sandboxes that go on must not hold a pipe open
	err = cmd.Run()
	var status syscall.WaitStatus
	if cmd.ProcessState != nil {
		status = cmd.ProcessState.Sys().(syscall.WaitStatus)
	}
	if !status.Signaled() || status.Signal() != syscall.SIGKILL {
		text, _ := os.ReadFile(log.Name())
		t.Fatalf("the child ended with %v instead of killing itself at %s:\n%s", err, s.Kill, text)
	}
}

// TestKillAtEveryStep kills an agent before and after each step of a create, of
// a bake and of a delete. The next agent finds either nothing or a whole
// sandbox, and when it has gone nothing is left on the machine.
func TestKillAtEveryStep(t *testing.T) {
	t.Parallel()
	sharedDir(t)
	a := New(Config{})
	all := slices.Concat(
		points("bake", a.catalogue.bakeSteps()),
		points("create", a.createSteps()),
		[]string{"worked"},
		[]string{
			"delete.forget.before", "delete.forget.after", "delete.release.before",
			"delete.release.after", "delete.sleep.before", "delete.sleep.after",
			"delete.remove.before", "delete.remove.after",
		},
	)
	whole := []string{"create.publish.after", "worked", "delete.forget.before"}
	for _, point := range all {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			s := newSetting(t)
			s.Kill, s.ID = point, api.NewID()
			if strings.HasPrefix(point, "bake.") {
				s.Shells = 1
			}
			s.die(t)
			s.Kill = ""
			w := start(t, s)
			list, err := w.List(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if slices.Contains(whole, point) {
				if len(list) != 1 || list[0].ID != s.ID || list[0].State != "running" {
					t.Fatalf("the next agent has %+v, want the sandbox running", list)
				}
				if point == "worked" {
					w.sh(s.ID, `test "$(cat /home/user/file)" = before && kill -0 $(cat /home/user/pid)`)
					if got := w.sh(s.ID, `cat /home/user/file; kill -0 $(cat /home/user/pid) && echo alive`); got != "before\nalive" {
						t.Errorf("in the adopted sandbox: %q", got)
					}
				}
				if got := w.sh(s.ID, "echo hello"); got != "hello" {
					t.Errorf("in the adopted sandbox: %q", got)
				}
			} else if len(list) != 0 {
				t.Fatalf("the next agent has %+v, want nothing", list)
			}
			w.create() // it serves
			w.deleteAll()
			w.stop()
			if left := append(s.leftovers(t), s.sandboxDirs()...); len(left) != 0 {
				t.Errorf("left behind:\n%s", strings.Join(left, "\n"))
			}
		})
	}
}
