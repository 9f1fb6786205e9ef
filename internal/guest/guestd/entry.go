//go:build linux

package guestd

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/pandastack/pandastack/internal/guest/envdpb"
)

// xattrPrefix is where the metadata of a file is kept.
const xattrPrefix = "user.e2b."

// entry describes what is at path. A symbolic link has the type and mode of
// what it leads to, its own size, and where it leads.
func (s *Server) entry(path string) (*pb.EntryInfo, error) {
	fi, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}
	return s.describe(path, fi), nil
}

func (s *Server) describe(path string, fi fs.FileInfo) *pb.EntryInfo {
	path = strings.ToValidUTF8(path, "\uFFFD") // text of a message must be UTF-8
	e := &pb.EntryInfo{
		Name:         filepath.Base(path),
		Path:         path,
		Type:         fileType(fi.Mode()),
		Size:         fi.Size(),
		Mode:         uint32(fi.Mode().Perm()),
		Permissions:  fi.Mode().String(),
		ModifiedTime: timestamppb.New(fi.ModTime()),
	}
	if st, ok := fi.Sys().(*syscall.Stat_t); ok {
		a := s.users.get()
		e.Owner, e.Group = a.owner(st.Uid), a.groupName(st.Gid)
	}
	switch {
	case fi.Mode().IsRegular():
		e.Metadata = readMetadata(path)
	case fi.Mode()&fs.ModeSymlink != 0:
		target := linkTarget(path)
		e.SymlinkTarget = &target
		if tfi, err := os.Stat(path); err == nil {
			e.Type = fileType(tfi.Mode())
			e.Mode = uint32(tfi.Mode().Perm())
			e.Permissions = tfi.Mode().String()
		}
	}
	return e
}

func fileType(m fs.FileMode) pb.FileType {
	switch {
	case m.IsRegular():
		return pb.FileType_FILE_TYPE_FILE
	case m.IsDir():
		return pb.FileType_FILE_TYPE_DIRECTORY
	case m&fs.ModeSymlink != 0:
		return pb.FileType_FILE_TYPE_SYMLINK
	}
	return pb.FileType_FILE_TYPE_UNSPECIFIED
}

// linkTarget is where a link leads at last; for a broken one, what it says.
func linkTarget(path string) string {
	target, err := filepath.EvalSymlinks(path)
	if err != nil {
		if target, err = os.Readlink(path); err == nil && !filepath.IsAbs(target) {
			target = filepath.Join(filepath.Dir(path), target)
		}
	}
	return strings.ToValidUTF8(target, "\uFFFD")
}

// readMetadata gives the metadata of a file, nil if it has none.
func readMetadata(path string) map[string]string {
	var buf [1024]byte
	names := buf[:]
	n, err := unix.Llistxattr(path, names)
	if err == unix.ERANGE {
		names = make([]byte, 64<<10)
		n, err = unix.Llistxattr(path, names)
	}
	if err != nil || n == 0 {
		return nil
	}
	var out map[string]string
	for name := range strings.SplitSeq(string(names[:n]), "\x00") {
		key, ok := strings.CutPrefix(name, xattrPrefix)
		if !ok {
			continue
		}
		value := make([]byte, maxMetadata)
		n, err := unix.Lgetxattr(path, name, value)
		if err != nil {
			continue
		}
		if out == nil {
			out = map[string]string{}
		}
		out[strings.ToValidUTF8(key, "\uFFFD")] = strings.ToValidUTF8(string(value[:n]), "\uFFFD")
	}
	return out
}

// replaceMetadata makes the metadata of an open file exactly m.
func replaceMetadata(f *os.File, m map[string]string) error {
	fd := int(f.Fd())
	buf := make([]byte, 64<<10)
	n, err := unix.Flistxattr(fd, buf)
	if err != nil && len(m) == 0 {
		return nil // a filesystem without attributes holds none
	}
	if err == nil {
		for name := range strings.SplitSeq(string(buf[:n]), "\x00") {
			if key, ok := strings.CutPrefix(name, xattrPrefix); ok {
				if _, stays := m[key]; !stays {
					if err := unix.Fremovexattr(fd, name); err != nil {
						return err
					}
				}
			}
		}
	}
	for k, v := range m {
		if err := unix.Fsetxattr(fd, xattrPrefix+k, []byte(v), 0); err != nil {
			return err
		}
	}
	return nil
}
