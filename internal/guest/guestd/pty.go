//go:build linux

package guestd

import (
	"errors"
	"os"
	"syscall"

	"connectrpc.com/connect"
	"github.com/creack/pty"
	"golang.org/x/sys/unix"

	pb "github.com/pandastack/pandastack/internal/guest/envdpb"
)

// openPTY makes a terminal of the given size the program's standard streams.
func (p *process) openPTY(l *launch, size *pb.PTY_Size) ([]int, error) {
	master, slave, err := pty.Open()
	if err != nil {
		return nil, err
	}
	defer master.Close()
	defer slave.Close()
	// Fd puts a file into blocking mode, so the master that is read here is a
	// copy that Fd is never called on.
	copyFD, err := unix.FcntlInt(master.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	theirs, err := unix.FcntlInt(slave.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		syscall.Close(copyFD)
		return nil, err
	}
	p.pty = ours(copyFD)
	p.outs = []*os.File{p.pty}
	p.stdin = newInput(p.pty)
	l.attr.Sys.Setctty = true // Ctty 0: standard input, which is the terminal
	l.attr.Files = []uintptr{uintptr(theirs), uintptr(theirs), uintptr(theirs)}
	return []int{theirs}, p.resize(size)
}

// resize sets the size of the terminal; its foreground processes get SIGWINCH.
func (p *process) resize(size *pb.PTY_Size) error {
	if p.pty == nil {
		return connect.NewError(connect.CodeInternal, errors.New("the process has no terminal"))
	}
	if size == nil {
		return nil
	}
	if size.GetCols() > 0xffff || size.GetRows() > 0xffff {
		return invalid("a terminal has at most 65535 columns and rows")
	}
	raw, err := p.pty.SyscallConn()
	if err != nil {
		return err
	}
	ws := &unix.Winsize{Col: uint16(size.GetCols()), Row: uint16(size.GetRows())}
	if cerr := raw.Control(func(fd uintptr) { err = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, ws) }); cerr != nil {
		return cerr
	}
	return err
}
