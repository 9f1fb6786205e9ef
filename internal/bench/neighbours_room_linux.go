package bench

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// sampleLimit is how long one command may take before it counts as failed.
const sampleLimit = 30 * time.Second

// stateDirs are where runtimes keep state and locks, and leave some, wherever
// they are told to. The image, runsc and the working directory cannot be there.
func stateDirs() []string { return []string{"/run", "/dev/shm"} }

// roomInit is the first process of a room. It gives the room its /proc, and
// reaps what daemons leave.
const roomInit = `mount -t proc proc /proc || exit 1; echo ready; while :; do sleep 3600 & wait; done`

// room is a mount and a process namespace with the image's root in it. It is a
// property of the thread that entered it: what that thread starts runs inside,
// and the rest of this process stays outside. When the room's first process
// ends, which it does at the latest when this process does, the kernel kills all
// others in it, and with the last of them the mounts and files are gone.
type room struct {
	ctx  context.Context // ends with the caller's, or when leaving
	dir  string          // a tmpfs
	root string          // the image, mounted read-only
	img  string          // the image's file
	cgs  string          // name of the cgroup that holds those of all containers

	init   *exec.Cmd
	cancel func()
}

// onOwnThread runs f on a thread that no other code has used or will use, and
// waits. f may change what belongs to a thread.
func onOwnThread(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		// Never unlocked: the thread ends with this goroutine.
		runtime.LockOSThread()
		if unix.Gettid() != unix.Getpid() {
			f()
			return
		}
		// The first thread stands for the process in /proc, so it is left
		// alone; while it is taken by this goroutine, another one is found.
		onOwnThread(f)
		runtime.UnlockOSThread()
	}()
	<-done
}

// enterRoom makes a room and moves the calling thread into it.
func enterRoom(ctx context.Context, workDir, image string) (*room, error) {
	image, err := filepath.Abs(image)
	if err != nil {
		return nil, fmt.Errorf("bench: image: %w", err)
	}
	if _, err := os.Stat(image); err != nil {
		return nil, fmt.Errorf("bench: image: %w", err)
	}
	sweepCgroups()
	dir, err := os.MkdirTemp(workDir, "pandastack-bench-")
	if err != nil {
		return nil, fmt.Errorf("bench: make a working directory: %w", err)
	}
	r := &room{dir: dir, root: filepath.Join(dir, "root"), img: image, cgs: fmt.Sprintf("%s%d", cgroupPrefix, os.Getpid())}
	r.ctx, r.cancel = context.WithCancel(ctx)
	if err := r.enter(); err != nil {
		return nil, errors.Join(fmt.Errorf("bench: make a place for other runtimes: %w", err), r.leave())
	}
	return r, nil
}

func (r *room) enter() error {
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("unshare mounts: %w", err)
	}
	// Mounts made here stay here; those that the host removes go here too.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	for _, dir := range append(stateDirs(), r.dir) {
		if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "mode=755"); err != nil {
			return fmt.Errorf("mount tmpfs on %s: %w", dir, err)
		}
	}
	if err := os.Mkdir(r.root, 0o755); err != nil {
		return err
	}
	if err := r.startInit(); err != nil {
		return fmt.Errorf("start the first process: %w", err)
	}
	_, err := r.run("mount", "-t", "erofs", "-o", "ro,loop", r.img, r.root)
	return err
}

// startInit starts the room's first process and makes what this thread starts
// later its neighbours.
func (r *room) startInit() error {
	pidfd := -1
	r.init = exec.CommandContext(r.ctx, "/bin/sh", "-c", roomInit)
	r.init.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID, Pdeathsig: syscall.SIGKILL, Setpgid: true, PidFD: &pidfd}
	out, err := r.init.StdoutPipe()
	if err != nil {
		return err
	}
	var stderr bytes.Buffer
	r.init.Stderr = &stderr
	if err := r.init.Start(); err != nil {
		r.init = nil
		return err
	}
	if pidfd < 0 {
		return errors.New("the kernel gives no handles of processes (Linux 5.4 or newer does)")
	}
	defer unix.Close(pidfd)
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		return fmt.Errorf("answered %q: %w", line, err)
	}
	if err := unix.Setns(pidfd, unix.CLONE_NEWPID); err != nil {
		return fmt.Errorf("join its namespace: %w", err)
	}
	return nil
}

// leave ends everything in the room and removes it. The thread is of no use
// afterwards.
func (r *room) leave() error {
	r.cancel()
	if r.init != nil {
		r.init.Wait() // always an error: it was killed. All others are gone when it returns.
	}
	var errs []error
	// With what runtimes mounted below it. Nothing uses it any more, so detached
	// is gone. EINVAL: it was not mounted.
	if err := unix.Unmount(r.dir, unix.MNT_DETACH); err != nil && err != unix.EINVAL {
		errs = append(errs, fmt.Errorf("bench: unmount %s: %w", r.dir, err))
	}
	if err := os.Remove(r.dir); err != nil {
		errs = append(errs, fmt.Errorf("bench: remove the working directory: %w", err))
	}
	return errors.Join(append(errs, removeCgroups(r.cgs))...)
}

// command is a command in the room. What it starts holds no pipe of this
// process open unless the caller gives it one.
func (r *room) command(ctx context.Context, argv []string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir = r.dir
	cmd.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=" + r.dir, "XDG_RUNTIME_DIR=" + r.dir}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // an interrupt of the terminal is for us to handle
	return cmd
}

// run runs a command and gives the time until it ended.
func (r *room) run(argv ...string) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(r.ctx, sampleLimit)
	defer cancel()
	cmd := r.command(ctx, argv)
	stderr, err := r.stderr(cmd)
	if err != nil {
		return 0, err
	}
	defer stderr.Close()
	from := time.Now()
	err = cmd.Run()
	took := time.Since(from)
	return took, r.explain(argv, err, stderr)
}

// hello runs a command that prints hello, and gives the time until it did.
func (r *room) hello(argv ...string) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(r.ctx, sampleLimit)
	defer cancel()
	cmd := r.command(ctx, argv)
	stderr, err := r.stderr(cmd)
	if err != nil {
		return 0, err
	}
	defer stderr.Close()
	out, in, err := os.Pipe()
	if err != nil {
		return 0, err
	}
	defer out.Close()
	cmd.Stdout = in
	from := time.Now()
	err = cmd.Start()
	in.Close()
	if err != nil {
		return 0, fmt.Errorf("%s: %w", argv[0], err)
	}
	out.SetReadDeadline(from.Add(sampleLimit)) // a container that outlives the command may hold the pipe open
	line, readErr := bufio.NewReaderSize(out, 64).ReadSlice('\n')
	took := time.Since(from)
	if err := r.explain(argv, cmd.Wait(), stderr); err != nil {
		return 0, err
	}
	if readErr != nil || string(bytes.TrimSpace(line)) != "hello" {
		return 0, fmt.Errorf("%s printed %q, want hello (%v)", r.summary(argv), line, readErr)
	}
	return took, nil
}

// stderr sends what a command says to a file, which unlike a pipe may stay open
// in a container.
func (r *room) stderr(cmd *exec.Cmd) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(r.dir, "stderr"), os.O_RDWR|os.O_CREATE|os.O_TRUNC|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	cmd.Stderr = f
	return f, nil
}

// explain adds to err which command it was and what the command said.
func (r *room) explain(argv []string, err error, stderr io.ReaderAt) error {
	if err == nil {
		return nil
	}
	said, _ := io.ReadAll(io.NewSectionReader(stderr, 0, 2000))
	return fmt.Errorf("%s: %w: %s", r.summary(argv), err, bytes.TrimSpace(said))
}

// summary is a command line with paths as seen from the room's directory.
func (r *room) summary(argv []string) string {
	line := filepath.Base(argv[0]) + " " + strings.Join(argv[1:], " ")
	return strings.ReplaceAll(line, r.dir+"/", "")
}
