//go:build linux

package sftpd

import (
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// extended does what the protocol itself does not have. Each is described in
// OpenSSH's PROTOCOL file, and copy-data in draft-ietf-secsh-filexfer-extensions.
func (s *server) extended(id uint32, r *reader) error {
	switch r.string() {
	case "posix-rename@openssh.com":
		from, to := r.string(), r.string()
		return good(r, func() error { return unix.Rename(from, to) })
	case "hardlink@openssh.com":
		from, to := r.string(), r.string()
		return good(r, func() error { return unix.Link(from, to) })
	case "lsetstat@openssh.com":
		path, at := r.string(), r.attrs()
		return good(r, func() error { return at.apply(path, false) })
	case "expand-path@openssh.com":
		return s.realpath(id, s.expand(r.string()), r)
	case "fsync@openssh.com":
		_, h := s.handleOf(r)
		if h == nil {
			return unix.EBADF
		}
		return h.f.Sync()
	case "statvfs@openssh.com":
		path := r.string()
		return good(r, func() error {
			var st unix.Statfs_t
			if err := unix.Statfs(path, &st); err != nil {
				return err
			}
			s.statvfs(id, &st)
			return nil
		})
	case "fstatvfs@openssh.com":
		_, h := s.handleOf(r)
		if h == nil {
			return unix.EBADF
		}
		var st unix.Statfs_t
		if err := unix.Fstatfs(int(h.f.Fd()), &st); err != nil {
			return err
		}
		s.statvfs(id, &st)
		return nil
	case "limits@openssh.com":
		s.reply.begin(fxpExtendedReply, id)
		for _, n := range []uint64{maxPacket, maxData, maxData, maxHandles} {
			s.reply.uint64(n)
		}
		return nil
	case "copy-data":
		return s.copyData(r)
	}
	return errUnsupported
}

func (s *server) statvfs(id uint32, st *unix.Statfs_t) {
	var flags uint64
	if st.Flags&unix.ST_RDONLY != 0 {
		flags |= 1
	}
	if st.Flags&unix.ST_NOSUID != 0 {
		flags |= 2
	}
	s.reply.begin(fxpExtendedReply, id)
	for _, n := range []uint64{
		uint64(st.Bsize), uint64(st.Frsize), st.Blocks, st.Bfree, st.Bavail, st.Files, st.Ffree, st.Ffree,
		uint64(uint32(st.Fsid.Val[0])), flags, uint64(st.Namelen),
	} {
		s.reply.uint64(n)
	}
}

// expand makes a path of one that may begin with ~ or ~/.
func (s *server) expand(path string) string {
	if rest, ok := strings.CutPrefix(path, "~"); ok && (rest == "" || rest[0] == '/') {
		return filepath.Join(s.home, rest)
	}
	return path
}

// realpath answers with the path without links, . and .. . The last part, and
// what is behind a part that is not there, need not exist.
func (s *server) realpath(id uint32, path string, r *reader) error {
	if r.bad {
		return errBad
	}
	if len(path) > unix.PathMax {
		return unix.ENAMETOOLONG
	}
	full, err := filepath.Abs(path)
	if err != nil {
		return err
	}
	for dir, rest := full, ""; ; dir, rest = filepath.Dir(dir), filepath.Join(filepath.Base(dir), rest) {
		if real, err := filepath.EvalSymlinks(dir); err == nil {
			s.name(id, filepath.Join(real, rest))
			return nil
		}
		if dir == "/" {
			s.name(id, full)
			return nil
		}
	}
}

// copyData copies within the sandbox, from one open file to another.
func (s *server) copyData(r *reader) error {
	_, from := s.handleOf(r)
	at, n := r.uint64(), r.uint64()
	_, to := s.handleOf(r)
	toAt := r.uint64()
	if r.bad {
		return errBad
	}
	if from == nil || to == nil || from == to || from.dir || to.dir {
		return unix.EBADF
	}
	if at > 1<<62 || toAt > 1<<62 || n > 1<<62 {
		return unix.EINVAL
	}
	if n == 0 {
		n = 1 << 62 // to the end
	}
	dst := io.Writer(io.NewOffsetWriter(to.f, int64(toAt)))
	if to.append {
		dst = onlyWriter{to.f}
	}
	_, err := io.Copy(dst, io.NewSectionReader(from.f, int64(at), int64(n)))
	return err
}

type onlyWriter struct{ f *os.File }

func (w onlyWriter) Write(p []byte) (int, error) { return w.f.Write(p) }
