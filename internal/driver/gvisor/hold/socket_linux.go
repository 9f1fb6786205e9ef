package hold

import (
	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/context"
	"gvisor.dev/gvisor/pkg/errors/linuxerr"
	"gvisor.dev/gvisor/pkg/hostarch"
	"gvisor.dev/gvisor/pkg/marshal"
	"gvisor.dev/gvisor/pkg/sentry/fsimpl/sockfs"
	"gvisor.dev/gvisor/pkg/sentry/kernel"
	"gvisor.dev/gvisor/pkg/sentry/ktime"
	"gvisor.dev/gvisor/pkg/sentry/seccheck"
	"gvisor.dev/gvisor/pkg/sentry/socket"
	"gvisor.dev/gvisor/pkg/sentry/vfs"
	"gvisor.dev/gvisor/pkg/syserr"
	"gvisor.dev/gvisor/pkg/usermem"

	"github.com/pandastack/pandastack/internal/guest"
)

// Register makes the family and what may be created in a sentry known to this process's kernel. A sentry
// calls it before anything of gVisor runs.
func Register() {
	socket.RegisterProvider(guest.HoldFamily, provider{})
	seccheck.RegisterSink(seccheck.SinkDesc{Name: sinkName, New: pause})
	seccheck.RegisterSink(seccheck.SinkDesc{Name: freezeName, New: freeze})
	seccheck.RegisterSink(seccheck.SinkDesc{Name: thawName, New: thaw})
	seccheck.RegisterSink(seccheck.SinkDesc{Name: collectName, New: collect})
}

// provider makes the guest program's socket.
type provider struct{}

// Socket implements socket.Provider. For everybody but the guest program the
// family does not exist, and there is one socket in a machine.
func (provider) Socket(t *kernel.Task, stype linux.SockType, protocol int) (*vfs.FileDescription, *syserr.Error) {
	if t.ThreadGroup() != t.Kernel().GlobalInit() || stype != linux.SOCK_STREAM || protocol != 0 {
		return nil, nil
	}
	vfsObj := t.Kernel().VFS()
	running.Store(t.Kernel())
	if open(t, vfsObj) {
		return nil, syserr.ErrBusy
	}
	s := &holdSocket{fs: newFilesystem(vfsObj)}
	mount := t.Kernel().SocketMount()
	d := sockfs.NewDentry(t, mount)
	defer d.DecRef(t)
	if err := s.vfsfd.Init(s, linux.O_RDWR, t.Credentials(), mount, d, &vfs.FileDescriptionOptions{
		DenyPRead:         true,
		DenyPWrite:        true,
		UseDentryMetadata: true,
	}); err != nil {
		s.fs.VFSFilesystem().DecRef(t)
		return nil, syserr.FromError(err)
	}
	return &s.vfsfd, nil
}

// Pair implements socket.Provider.
func (provider) Pair(*kernel.Task, linux.SockType, int) (*vfs.FileDescription, *vfs.FileDescription, *syserr.Error) {
	return nil, nil, nil
}

// holdSocket is the guest program's socket. gVisor keeps all sockets in one table
// whose readers expect every method of one; it answers none but Write.
type holdSocket struct {
	vfsfd vfs.FileDescription
	vfs.FileDescriptionDefaultImpl
	vfs.DentryMetadataFileDescriptionImpl
	vfs.NoLockFD
	socket.SendReceiveTimeout

	fs *filesystem // holds a reference
}

var _ socket.Socket = (*holdSocket)(nil)

// Release implements vfs.FileDescriptionImpl. Nobody is left to release what
// stands still, and a machine whose guest program has ended must be able to end.
func (s *holdSocket) Release(ctx context.Context) {
	s.fs.release()
	kernel.KernelFromContext(ctx).DeleteSocket(&s.vfsfd)
	s.fs.VFSFilesystem().DecRef(ctx)
}

// Write implements vfs.FileDescriptionImpl.
func (s *holdSocket) Write(ctx context.Context, src usermem.IOSequence, _ vfs.WriteOptions) (int64, error) {
	if src.NumBytes() != int64(len(guest.HoldRelease)) {
		return 0, linuxerr.EINVAL
	}
	word := make([]byte, len(guest.HoldRelease))
	if _, err := src.CopyIn(ctx, word); err != nil {
		return 0, err
	}
	if string(word) != guest.HoldRelease {
		return 0, linuxerr.EINVAL
	}
	s.fs.release()
	return int64(len(word)), nil
}

// Type implements socket.Socket.
func (*holdSocket) Type() (int, linux.SockType, int) {
	return guest.HoldFamily, linux.SOCK_STREAM, 0
}

// State implements socket.Socket.
func (*holdSocket) State() uint32 { return 0 }

// Connect implements socket.Socket.
func (*holdSocket) Connect(*kernel.Task, []byte, bool) *syserr.Error { return syserr.ErrNotSupported }

// Accept implements socket.Socket.
func (*holdSocket) Accept(*kernel.Task, bool, int, bool) (int32, linux.SockAddr, uint32, *syserr.Error) {
	return 0, nil, 0, syserr.ErrNotSupported
}

// Bind implements socket.Socket.
func (*holdSocket) Bind(*kernel.Task, []byte) *syserr.Error { return syserr.ErrNotSupported }

// Listen implements socket.Socket.
func (*holdSocket) Listen(*kernel.Task, int) *syserr.Error { return syserr.ErrNotSupported }

// Shutdown implements socket.Socket.
func (*holdSocket) Shutdown(*kernel.Task, int) *syserr.Error { return syserr.ErrNotSupported }

// GetSockOpt implements socket.Socket.
func (*holdSocket) GetSockOpt(*kernel.Task, int, int, hostarch.Addr, int) (marshal.Marshallable, *syserr.Error) {
	return nil, syserr.ErrNotSupported
}

// SetSockOpt implements socket.Socket.
func (*holdSocket) SetSockOpt(*kernel.Task, int, int, []byte) *syserr.Error {
	return syserr.ErrNotSupported
}

// GetSockName implements socket.Socket.
func (*holdSocket) GetSockName(*kernel.Task) (linux.SockAddr, uint32, *syserr.Error) {
	return nil, 0, syserr.ErrNotSupported
}

// GetPeerName implements socket.Socket.
func (*holdSocket) GetPeerName(*kernel.Task) (linux.SockAddr, uint32, *syserr.Error) {
	return nil, 0, syserr.ErrNotSupported
}

// GetPeerCreds implements socket.Socket.
func (*holdSocket) GetPeerCreds(*kernel.Task) (marshal.Marshallable, *syserr.Error) {
	return nil, syserr.ErrNotSupported
}

// RecvMsg implements socket.Socket.
func (*holdSocket) RecvMsg(*kernel.Task, usermem.IOSequence, int, bool, ktime.Time, bool, uint64) (int, int, linux.SockAddr, uint32, socket.ControlMessages, *syserr.Error) {
	return 0, 0, nil, 0, socket.ControlMessages{}, syserr.ErrNotSupported
}

// SendMsg implements socket.Socket.
func (*holdSocket) SendMsg(*kernel.Task, usermem.IOSequence, []byte, int, bool, ktime.Time, socket.ControlMessages) (int, *syserr.Error) {
	return 0, syserr.ErrNotSupported
}
