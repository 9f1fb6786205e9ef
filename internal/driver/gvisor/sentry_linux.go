package gvisor

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/runsc/boot"
	"gvisor.dev/gvisor/runsc/cgroup"
	"gvisor.dev/gvisor/runsc/config"
	"gvisor.dev/gvisor/runsc/sandbox"
	"gvisor.dev/gvisor/runsc/specutils"

	"github.com/pandastack/pandastack/internal/driver"
)

// Names of what a sentry keeps in its directory.
const (
	upperFile   = "upper"       // pages of files that the guest wrote
	consoleFile = "console.log" // what the guest program printed
	stdinFile   = "stdin"       // empty
	panicFile   = "panic.log"   // why the sentry died, if it had time to say
	specFile    = "config.json" // gVisor's description of the guest
)

// sentry is one runtime process. Until start or restore it is a shell.
type sentry struct {
	id      string // 20 characters; names the control socket and the cgroup
	dir     string
	pid     int
	started uint64 // start time of pid in clock ticks: tells it from a later process with the same pid
	socket  string // control socket
	conf    *config.Config
	limits  driver.Limits
	upper   string // path of the upper file
}

// starting is held while gVisor starts a process. It takes the guest's standard
// streams from variables of the process that calls it (os.Stdin and so on).
var starting sync.Mutex

// newSentry starts a runtime process in dir and waits until it takes orders. On
// failure nothing is left but dir's content.
func (d *Driver) newSentry(ctx context.Context, id, dir string, spec driver.Spec) (_ *sentry, err error) {
	conf := *d.conf
	conf.PanicLog = filepath.Join(dir, panicFile)
	root, err := d.writeSpec(dir, spec.Hostname)
	if err != nil {
		return nil, err
	}
	oci, err := specutils.ReadSpec(dir, &conf)
	if err != nil {
		return nil, fmt.Errorf("read spec in %s: %w", root, err)
	}
	if spec.Disk != "" {
		// Only here and not in the file: a later checkpoint has to fit sentries
		// that know nothing of it.
		oci.Annotations = map[string]string{specutils.AnnotationRootfsUpperTar: spec.Disk}
	}
	cg, err := newCgroup(d.tag, id, spec.Limits)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			removeCgroup(d.tag, id)
		}
	}()

	args := &sandbox.Args{
		ID:        id,
		Spec:      oci,
		BundleDir: dir,
		Cgroup:    cg,
		MountHints: &boot.PodMountHints{
			Mounts: map[string]*boot.MountHint{},
		},
		// The first entry is the root, the second the mount of the guest
		// program; the sizes are those of the overlay.
		GoferMountConfs: specutils.GoferMountConfFlags{
			{Lower: specutils.Erofs, Upper: specutils.AnonOverlay, Size: strconv.FormatInt(spec.Limits.DiskBytes, 10)},
			{Lower: specutils.Erofs, Upper: specutils.NoOverlay},
		},
	}
	if cgroup.IsOnlyV2() {
		if args.CloneIntoCgroupFD, err = cg.CloneIntoCgroup(); err != nil {
			return nil, fmt.Errorf("open the sandbox's cgroup: %w", err)
		}
		defer args.CloneIntoCgroupFD.Close()
	}
	if err := openSentryFiles(args, dir, spec.Image.Path, d.cfg.GuestImage); err != nil {
		return nil, err
	}
	sb, err := d.startJoining(ctx, &conf, args, dir)
	if err != nil {
		return nil, bootError(dir, err)
	}
	s := &sentry{id: id, dir: dir, pid: sb.Pid.Load(), socket: sb.ControlSocketPath, conf: &conf, limits: spec.Limits, upper: filepath.Join(dir, upperFile)}
	defer func() {
		if err != nil {
			s.kill(context.WithoutCancel(ctx))
		}
	}()
	if s.started, err = startTime(s.pid); err != nil {
		return nil, err
	}
	if !cgroup.IsOnlyV2() {
		if err := addToCgroup(d.tag, id, s.pid); err != nil {
			return nil, err
		}
	}
	return s, ctx.Err()
}

// writeSpec puts the description of the guest where gVisor reads it.
func (d *Driver) writeSpec(dir, hostname string) (string, error) {
	path := filepath.Join(dir, specFile)
	b, err := json.Marshal(ociSpec(hostname, d.cfg.GuestImage, emptyDir(d.cfg.StateDir)))
	if err != nil {
		return path, err
	}
	return path, os.WriteFile(path, b, 0o600)
}

// openSentryFiles opens everything the sentry will ever hold of the host's
// filesystem. gVisor closes them.
func openSentryFiles(args *sandbox.Args, dir, image, guest string) error {
	for _, path := range []string{image, guest} {
		f, err := os.Open(path)
		if err != nil {
			closeAll(args.IOFiles)
			return fmt.Errorf("open image: %w", err)
		}
		args.IOFiles = append(args.IOFiles, f)
	}
	upper, err := os.OpenFile(filepath.Join(dir, upperFile), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		closeAll(args.IOFiles)
		return fmt.Errorf("create upper layer: %w", err)
	}
	args.GoferFilestoreFiles = []*os.File{upper}
	return nil
}

func closeAll(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}

// startJoining starts the process and puts it into its cgroup at the same time.
func (d *Driver) startJoining(ctx context.Context, conf *config.Config, args *sandbox.Args, dir string) (*sandbox.Sandbox, error) {
	starting.Lock() // one at a time: see there
	defer starting.Unlock()
	if args.CloneIntoCgroupFD != nil {
		return startSandbox(conf, args, dir)
	}
	joining, stop := context.WithCancel(ctx)
	joined := make(chan struct{})
	go func() {
		defer close(joined)
		joinEarly(joining, d.tag, args.ID)
	}()
	sb, err := startSandbox(conf, args, dir)
	stop()
	<-joined
	return sb, err
}

// startSandbox calls into gVisor with the guest's output going to a file. A
// panic in the library becomes an error: one bad start may not end the others.
func startSandbox(conf *config.Config, args *sandbox.Args, dir string) (sb *sandbox.Sandbox, err error) {
	console, err := os.OpenFile(filepath.Join(dir, consoleFile), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer console.Close()
	// An empty file of its own: gVisor gives the streams to the sentry's user,
	// which the host's /dev/null may not become.
	empty, err := os.OpenFile(filepath.Join(dir, stdinFile), os.O_RDONLY|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	defer empty.Close()
	defer func() {
		if p := recover(); p != nil {
			sb, err = nil, fmt.Errorf("gVisor panicked: %v", p)
		}
	}()
	stdin, stdout, stderr := os.Stdin, os.Stdout, os.Stderr
	os.Stdin, os.Stdout, os.Stderr = empty, console, console
	defer func() { os.Stdin, os.Stdout, os.Stderr = stdin, stdout, stderr }()
	return sandbox.New(conf, args)
}

// start boots the guest cold.
func (s *sentry) start(ctx context.Context, n driver.Network) error {
	link, err := linkArgs(s.conf, n, false)
	if err != nil {
		return err
	}
	defer closeAll(link.FilePayload.Files)
	if err := call(ctx, s.socket, boot.ContMgrSetNetworkArgs, link, link.FilePayload.Files); err != nil {
		return fmt.Errorf("set network: %w", err)
	}
	if err := call(ctx, s.socket, boot.ContMgrRootContainerStart, &s.id, nil); err != nil {
		return fmt.Errorf("start guest: %w", err)
	}
	return nil
}

// moved notes that the sentry's directory has a new name.
func (s *sentry) moved(dir string) {
	s.dir = dir
	s.upper = filepath.Join(dir, upperFile)
}

// signalKill sends the signal that cannot be refused, to this process only.
func (s *sentry) signalKill() {
	if sameProcess(s.pid, s.started) {
		unix.Kill(s.pid, unix.SIGKILL)
	}
}

// kill ends the process, waits for it and removes its control socket. It is
// idempotent.
func (s *sentry) kill(ctx context.Context) {
	s.signalKill()
	s.wait(ctx)
	if s.socket != "" {
		os.Remove(s.socket)
	}
}

// wait returns when the process has ended, with its exit status where
// that is known (it is known once, to its parent) and -1 where it is not.
func (s *sentry) wait(ctx context.Context) (int, error) {
	for running(s.pid, s.started) {
		if err := waitExit(ctx, s.pid); err != nil {
			return 0, err
		}
	}
	var ws unix.WaitStatus
	pid, err := unix.Wait4(s.pid, &ws, unix.WNOHANG, nil)
	switch {
	case err != nil || pid != s.pid:
		return -1, nil
	case ws.Exited():
		return ws.ExitStatus(), nil
	}
	return 128 + int(ws.Signal()), nil
}
