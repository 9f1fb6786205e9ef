//go:build linux

package sftpd

import (
	"bufio"
	"errors"
	"io"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// Kinds of packets.
const (
	fxpInit          = 1
	fxpVersion       = 2
	fxpOpen          = 3
	fxpClose         = 4
	fxpRead          = 5
	fxpWrite         = 6
	fxpLstat         = 7
	fxpFstat         = 8
	fxpSetstat       = 9
	fxpFsetstat      = 10
	fxpOpendir       = 11
	fxpReaddir       = 12
	fxpRemove        = 13
	fxpMkdir         = 14
	fxpRmdir         = 15
	fxpRealpath      = 16
	fxpStat          = 17
	fxpRename        = 18
	fxpReadlink      = 19
	fxpSymlink       = 20
	fxpStatus        = 101
	fxpHandle        = 102
	fxpData          = 103
	fxpName          = 104
	fxpAttrs         = 105
	fxpExtended      = 200
	fxpExtendedReply = 201
)

// Outcomes of a request.
const (
	fxOK          = 0
	fxEOF         = 1
	fxNoSuchFile  = 2
	fxPermission  = 3
	fxFailure     = 4
	fxBadMessage  = 5
	fxUnsupported = 8
)

// errUnsupported is a request that this server does not know.
var errUnsupported = errors.New("operation unsupported")

// server is one session.
type server struct {
	in      *bufio.Reader
	out     *bufio.Writer
	handles map[uint32]*handle
	next    uint32
	names   *names
	home    string
	reply   answer
	data    []byte // of a read
}

// handle is an open file or directory.
type handle struct {
	f      *os.File
	dir    bool
	append bool
}

// Serve answers the requests of in on out until in ends. Relative paths start in
// the current directory; home is what ~ stands for.
func Serve(in io.Reader, out io.Writer, home string) error {
	s := &server{
		in: bufio.NewReaderSize(in, 64<<10), out: bufio.NewWriterSize(out, 64<<10),
		handles: map[uint32]*handle{}, names: &names{}, home: home,
	}
	defer func() {
		for _, h := range s.handles {
			h.f.Close()
		}
	}()
	var packet []byte
	for {
		// What is answered goes out when there is nothing more to answer.
		if s.in.Buffered() == 0 {
			if err := s.out.Flush(); err != nil {
				return err
			}
		}
		var err error
		if packet, err = readPacket(s.in, packet); err != nil {
			if errors.Is(err, io.EOF) {
				return s.out.Flush()
			}
			return err
		}
		if err := s.serve(&reader{data: packet}); err != nil {
			return errors.Join(err, s.out.Flush())
		}
	}
}

// serve answers one request.
func (s *server) serve(r *reader) error {
	kind := r.byte()
	if kind == fxpInit {
		if r.uint32(); r.bad {
			return errBad
		}
		s.version()
		return s.send()
	}
	id := r.uint32()
	if r.bad {
		return errBad
	}
	s.reply.b = s.reply.b[:0]
	err := s.handle(kind, id, r)
	if r.bad {
		return errBad
	}
	if err != nil || len(s.reply.b) == 0 {
		s.status(id, err)
	}
	return s.send()
}

func (s *server) send() error {
	_, err := s.out.Write(s.reply.finish())
	return err
}

// version says which protocol is spoken, and the extensions.
func (s *server) version() {
	s.reply.begin(fxpVersion, 3)
	for _, e := range [][2]string{
		{"posix-rename@openssh.com", "1"}, {"statvfs@openssh.com", "2"}, {"fstatvfs@openssh.com", "2"},
		{"hardlink@openssh.com", "1"}, {"fsync@openssh.com", "1"}, {"lsetstat@openssh.com", "1"},
		{"limits@openssh.com", "1"}, {"expand-path@openssh.com", "1"}, {"copy-data", "1"},
	} {
		s.reply.string(e[0])
		s.reply.string(e[1])
	}
}

// handle does one request. It makes the answer, or leaves it empty for a status.
func (s *server) handle(kind byte, id uint32, r *reader) error {
	switch kind {
	case fxpOpen:
		return s.open(id, r)
	case fxpClose:
		return s.close(r)
	case fxpRead:
		return s.read(id, r)
	case fxpWrite:
		return s.write(r)
	case fxpLstat, fxpStat:
		return s.stat(id, r, kind == fxpStat)
	case fxpFstat:
		return s.fstat(id, r)
	case fxpSetstat:
		path, at := r.string(), r.attrs()
		return good(r, func() error { return at.apply(path, true) })
	case fxpFsetstat:
		return s.fsetstat(r)
	case fxpOpendir:
		return s.opendir(id, r)
	case fxpReaddir:
		return s.readdir(id, r)
	case fxpRemove:
		path := r.string()
		return good(r, func() error { return unix.Unlink(path) })
	case fxpMkdir:
		path, at := r.string(), r.attrs()
		return good(r, func() error { return unix.Mkdir(path, at.modeOr(0o777)) })
	case fxpRmdir:
		path := r.string()
		return good(r, func() error { return unix.Rmdir(path) })
	case fxpRealpath:
		return s.realpath(id, r.string(), r)
	case fxpRename:
		from, to := r.string(), r.string()
		return good(r, func() error { return rename(from, to) })
	case fxpReadlink:
		return s.readlink(id, r)
	case fxpSymlink: // OpenSSH sends what it points to first
		target, link := r.string(), r.string()
		return good(r, func() error { return os.Symlink(target, link) })
	case fxpExtended:
		return s.extended(id, r)
	}
	return errUnsupported
}

// good does something if the request was whole.
func good(r *reader, do func() error) error {
	if r.bad {
		return errBad
	}
	return do()
}

// status makes the answer of a request that gives nothing but its outcome.
func (s *server) status(id uint32, err error) {
	code, text := outcome(err)
	s.reply.begin(fxpStatus, id)
	s.reply.uint32(code)
	s.reply.string(text)
	s.reply.string("en")
}

func outcome(err error) (uint32, string) {
	var no syscall.Errno
	switch {
	case err == nil:
		return fxOK, "Success"
	case errors.Is(err, io.EOF):
		return fxEOF, "End of file"
	case errors.Is(err, errUnsupported):
		return fxUnsupported, "Operation unsupported"
	case errors.Is(err, errBad):
		return fxBadMessage, "Bad message"
	case errors.As(err, &no):
		switch no {
		case syscall.ENOENT, syscall.ENOTDIR, syscall.ELOOP:
			return fxNoSuchFile, no.Error()
		case syscall.EACCES, syscall.EPERM, syscall.EROFS:
			return fxPermission, no.Error()
		case syscall.ENOSYS, syscall.EOPNOTSUPP:
			return fxUnsupported, no.Error()
		}
		return fxFailure, no.Error()
	}
	return fxFailure, err.Error()
}

// rename moves a file where none is yet.
func rename(from, to string) error {
	err := unix.Renameat2(unix.AT_FDCWD, from, unix.AT_FDCWD, to, unix.RENAME_NOREPLACE)
	if err != unix.EINVAL && err != unix.ENOSYS {
		return err
	}
	// A file system that cannot do it in one step.
	var st unix.Stat_t
	if unix.Lstat(to, &st) == nil {
		return unix.EEXIST
	}
	return unix.Rename(from, to)
}
