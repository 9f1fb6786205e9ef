package hold

import (
	"runtime/debug"
	"time"

	"gvisor.dev/gvisor/pkg/context"
	"gvisor.dev/gvisor/pkg/sentry/fsimpl/kernfs"
	"gvisor.dev/gvisor/pkg/sentry/kernel"
	"gvisor.dev/gvisor/pkg/sentry/kernel/auth"
	"gvisor.dev/gvisor/pkg/sentry/mm"
	"gvisor.dev/gvisor/pkg/sentry/socket/netstack"
	"gvisor.dev/gvisor/pkg/sentry/vfs"
	"gvisor.dev/gvisor/pkg/sync"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"

	"github.com/pandastack/pandastack/internal/driver/gvisor/holes"
)

// filesystem is what gVisor calls when a restore is complete. Nothing is in it and
// it is mounted nowhere; it exists while its socket does.
type filesystem struct {
	kernfs.Filesystem

	// Not saved: a restored guest is held by its own CompleteRestore.
	mu       sync.Mutex
	held     []*kernel.Task
	released chan struct{}  // closed by release; nil while nothing is held
	covered  *holes.Covered // during a checkpoint
	percent  int            // of the garbage collector before
}

func newFilesystem(vfsObj *vfs.VirtualFilesystem) *filesystem {
	fs := &filesystem{}
	fs.VFSFilesystem().Init(vfsObj, filesystemType{}, fs)
	return fs
}

// MountOptions implements vfs.FilesystemImpl.
func (*filesystem) MountOptions() string { return "" }

// saveGCPercent keeps the garbage collector from running while the guest stands
// still. What a checkpoint allocates is a few times the sentry's own heap.
const saveGCPercent = 800

// PrepareSave implements vfs.FilesystemImplSaveRestoreExtension. It is called when
// the kernel is paused and before its memory is looked at.
func (fs *filesystem) PrepareSave(ctx context.Context) error {
	fs.percent = debug.SetGCPercent(saveGCPercent)
	fs.covered = holes.Cover(kernel.KernelFromContext(ctx).MemoryFile())
	return nil
}

// BeforeResume implements vfs.FilesystemImplSaveRestoreExtension. It is called at
// the end of every checkpoint, be it a failed one, and before any task runs.
func (fs *filesystem) BeforeResume(context.Context) {
	if fs.covered != nil {
		debug.SetGCPercent(fs.percent)
		fs.covered.Uncover()
		fs.covered = nil
	}
}

// CompleteRestore implements vfs.FilesystemImplSaveRestoreExtension: it stops the
// tasks of a restored kernel before the first of them runs.
func (fs *filesystem) CompleteRestore(ctx context.Context, _ vfs.CompleteRestoreOptions) error {
	k := kernel.KernelFromContext(ctx)
	running.Store(k)
	program := k.GlobalInit()
	if program == nil {
		return nil
	}
	memory := memoryOf(program.Leader())
	fs.mu.Lock()
	defer fs.mu.Unlock()
	fs.released = make(chan struct{})
	for _, t := range k.RootPIDNamespace().Tasks() {
		switch {
		case t.ThreadGroup() == program:
		case memory != nil && memoryOf(t) == memory:
			go fs.holdAfterExec(t, memory, fs.released)
		default:
			fs.holdLocked(t)
		}
	}
	return nil
}

func (fs *filesystem) holdLocked(t *kernel.Task) {
	t.BeginExternalStop()
	fs.held = append(fs.held, t)
}

// holdAfterExec stops a task once its memory is no longer the guest program's.
func (fs *filesystem) holdAfterExec(t *kernel.Task, program *mm.MemoryManager, released <-chan struct{}) {
	const period = 100 * time.Microsecond // a new program takes longer to get going
	for memoryOf(t) == program {
		select {
		case <-released:
			return
		case <-time.After(period):
		}
	}
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if fs.released == released {
		fs.holdLocked(t)
	}
}

// release lets every task go on that was stopped. It is idempotent.
func (fs *filesystem) release() {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if fs.released == nil {
		return
	}
	close(fs.released)
	fs.released = nil
	dropClosed(running.Load())
	for _, t := range fs.held {
		t.EndExternalStop()
	}
	fs.held = nil
}

// dropClosed forgets the connections that both ends have closed.
func dropClosed(k *kernel.Kernel) {
	network, ok := k.RootNetworkNamespace().Stack().(*netstack.Stack)
	if !ok {
		return
	}
	for _, e := range network.Stack.RegisteredEndpoints() {
		if conn, ok := e.(*tcp.Endpoint); ok && conn.EndpointState() == tcp.StateTimeWait {
			conn.Abort()
		}
	}
}

// memoryOf gives a task's memory, nil once it has ended.
func memoryOf(t *kernel.Task) *mm.MemoryManager {
	var memory *mm.MemoryManager
	t.WithMuLocked(func(t *kernel.Task) { memory = t.MemoryManager() })
	return memory
}

// open reports whether a guest has its socket already.
func open(ctx context.Context, vfsObj *vfs.VirtualFilesystem) bool {
	found := false
	for _, fs := range vfsObj.GetFilesystems() {
		_, ours := fs.Impl().(*filesystem)
		found = found || ours
		fs.DecRef(ctx)
	}
	return found
}

// filesystemType names the file system inside the sentry.
type filesystemType struct{}

// Name implements vfs.FilesystemType.
func (filesystemType) Name() string { return "hold" }

// Release implements vfs.FilesystemType.
func (filesystemType) Release(context.Context) {}

// GetFilesystem implements vfs.FilesystemType. The type is not registered, so
// nobody can mount it.
func (filesystemType) GetFilesystem(context.Context, *vfs.VirtualFilesystem, *auth.Credentials, string, vfs.GetFilesystemOptions) (*vfs.Filesystem, *vfs.Dentry, error) {
	panic("hold: a file system of this type cannot be mounted")
}
