//go:build linux

package sftpd

import (
	"encoding/binary"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// Flags of an open.
const (
	flagRead   = 0x01
	flagWrite  = 0x02
	flagAppend = 0x04
	flagCreate = 0x08
	flagTrunc  = 0x10
	flagExcl   = 0x20
)

func (s *server) open(id uint32, r *reader) error {
	path, flags, at := r.string(), r.uint32(), r.attrs()
	if r.bad {
		return errBad
	}
	mode := 0
	switch {
	case flags&flagRead != 0 && flags&flagWrite != 0:
		mode = unix.O_RDWR
	case flags&flagWrite != 0:
		mode = unix.O_WRONLY
	}
	for _, f := range []struct{ theirs, ours int }{
		{flagAppend, unix.O_APPEND}, {flagCreate, unix.O_CREAT}, {flagTrunc, unix.O_TRUNC}, {flagExcl, unix.O_EXCL},
	} {
		if flags&uint32(f.theirs) != 0 {
			mode |= f.ours
		}
	}
	return s.keep(id, path, mode, at.modeOr(0o666), handle{append: flags&flagAppend != 0})
}

func (s *server) opendir(id uint32, r *reader) error {
	path := r.string()
	if r.bad {
		return errBad
	}
	return s.keep(id, path, unix.O_RDONLY|unix.O_DIRECTORY, 0, handle{dir: true})
}

// keep opens a file and answers with its handle.
func (s *server) keep(id uint32, path string, mode int, perm uint32, h handle) error {
	if len(s.handles) >= maxHandles {
		return unix.EMFILE
	}
	fd, err := unix.Open(path, mode|unix.O_CLOEXEC|unix.O_NOCTTY, perm)
	if err != nil {
		return err
	}
	h.f = os.NewFile(uintptr(fd), path)
	s.next++
	s.handles[s.next] = &h
	s.reply.begin(fxpHandle, id)
	s.reply.uint32(4)
	s.reply.uint32(s.next)
	return nil
}

// handleOf reads a handle; nil is one that is not open.
func (s *server) handleOf(r *reader) (uint32, *handle) {
	b := r.bytes()
	if len(b) != 4 {
		return 0, nil
	}
	n := binary.BigEndian.Uint32(b)
	return n, s.handles[n]
}

func (s *server) close(r *reader) error {
	n, h := s.handleOf(r)
	if h == nil {
		return unix.EBADF
	}
	delete(s.handles, n)
	return h.f.Close()
}

func (s *server) read(id uint32, r *reader) error {
	_, h := s.handleOf(r)
	at, n := r.uint64(), r.uint32()
	if r.bad {
		return errBad
	}
	if h == nil || h.dir {
		return unix.EBADF
	}
	if s.data == nil {
		s.data = make([]byte, maxData)
	}
	got, err := unix.Pread(int(h.f.Fd()), s.data[:min(n, maxData)], int64(at))
	if err != nil {
		return err
	}
	if got == 0 && n > 0 {
		return io.EOF
	}
	s.reply.begin(fxpData, id)
	s.reply.uint32(uint32(got))
	s.reply.b = append(s.reply.b, s.data[:got]...)
	return nil
}

func (s *server) write(r *reader) error {
	_, h := s.handleOf(r)
	at, data := r.uint64(), r.bytes()
	if r.bad {
		return errBad
	}
	if h == nil || h.dir {
		return unix.EBADF
	}
	for len(data) > 0 {
		var n int
		var err error
		if h.append {
			n, err = unix.Write(int(h.f.Fd()), data)
		} else {
			n, err = unix.Pwrite(int(h.f.Fd()), data, int64(at))
		}
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return err
		}
		data, at = data[n:], at+uint64(n)
	}
	return nil
}

func (s *server) stat(id uint32, r *reader, follow bool) error {
	path := r.string()
	if r.bad {
		return errBad
	}
	var st unix.Stat_t
	call := unix.Lstat
	if follow {
		call = unix.Stat
	}
	if err := call(path, &st); err != nil {
		return err
	}
	s.reply.begin(fxpAttrs, id)
	s.reply.attrs(&st)
	return nil
}

func (s *server) fstat(id uint32, r *reader) error {
	_, h := s.handleOf(r)
	if h == nil {
		return unix.EBADF
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(h.f.Fd()), &st); err != nil {
		return err
	}
	s.reply.begin(fxpAttrs, id)
	s.reply.attrs(&st)
	return nil
}

func (s *server) fsetstat(r *reader) error {
	_, h := s.handleOf(r)
	at := r.attrs()
	if r.bad {
		return errBad
	}
	if h == nil {
		return unix.EBADF
	}
	return at.applyTo(int(h.f.Fd()))
}

func (s *server) readlink(id uint32, r *reader) error {
	path := r.string()
	if r.bad {
		return errBad
	}
	target, err := os.Readlink(path)
	if err != nil {
		return err
	}
	s.name(id, target)
	return nil
}

// name answers with one name alone.
func (s *server) name(id uint32, name string) {
	s.reply.begin(fxpName, id)
	s.reply.uint32(1)
	s.reply.string(name)
	s.reply.string(name)
	s.reply.uint32(0) // no attributes
}
