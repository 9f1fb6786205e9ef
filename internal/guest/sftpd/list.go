//go:build linux

package sftpd

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// maxNames is how many entries of a directory go into one answer: a name has at
// most 255 bytes and is there twice.
const maxNames = 100

func (s *server) readdir(id uint32, r *reader) error {
	_, h := s.handleOf(r)
	if r.bad {
		return errBad
	}
	if h == nil || !h.dir {
		return unix.EBADF
	}
	s.reply.begin(fxpName, id)
	at := uint32(len(s.reply.b))
	s.reply.uint32(0)
	n := uint32(0)
	for n == 0 { // clients take an answer without names for the end of the directory
		list, err := h.f.Readdirnames(maxNames)
		if len(list) == 0 {
			if err == nil {
				err = io.EOF
			}
			return err
		}
		n = s.entries(h.f, list)
	}
	s.reply.set(at, n)
	return nil
}

// entries adds files of a directory to the answer and counts them: those that were
// removed this moment are none.
func (s *server) entries(dir *os.File, list []string) (n uint32) {
	for _, name := range list {
		var st unix.Stat_t
		if unix.Fstatat(int(dir.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
			continue
		}
		s.reply.string(name)
		s.reply.string(s.names.line(name, &st))
		s.reply.attrs(&st)
		n++
	}
	return n
}

// names are those of users and groups, read when the first is needed.
type names struct {
	users, groups map[uint32]string
}

// maxNamesFile bounds what is read of /etc/passwd and /etc/group.
const maxNamesFile = 1 << 20

func (n *names) load() {
	if n.users == nil {
		n.users, n.groups = parseNames(readStart("/etc/passwd")), parseNames(readStart("/etc/group"))
	}
}

func readStart(path string) []byte {
	f, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxNamesFile))
	if err != nil {
		return nil
	}
	return data
}

// parseNames reads the first and third field of each line.
func parseNames(data []byte) map[uint32]string {
	out := map[uint32]string{}
	for line := range bytes.Lines(data) {
		f := strings.SplitN(string(line), ":", 4)
		if len(f) < 4 || f[0] == "" {
			continue
		}
		id, err := strconv.ParseUint(f[2], 10, 32)
		if err != nil {
			continue
		}
		if _, ok := out[uint32(id)]; !ok {
			out[uint32(id)] = f[0]
		}
	}
	return out
}

// line is an entry as `ls -l` shows it, which clients show to people.
func (n *names) line(name string, st *unix.Stat_t) string {
	n.load()
	when := time.Unix(st.Mtim.Sec, 0)
	form := "Jan _2 15:04"
	if age := time.Since(when); age > 180*24*time.Hour || age < -24*time.Hour {
		form = "Jan _2  2006"
	}
	return fmt.Sprintf("%s %4d %-8s %-8s %8d %s %s", modeText(st.Mode), st.Nlink,
		nameOf(n.users, st.Uid), nameOf(n.groups, st.Gid), st.Size, when.Format(form), name)
}

func nameOf(names map[uint32]string, id uint32) string {
	if name, ok := names[id]; ok {
		return name
	}
	return strconv.FormatUint(uint64(id), 10)
}

// modeText is a mode as `ls -l` writes it.
func modeText(mode uint32) string {
	out := []byte("?rwxrwxrwx")
	for kind, c := range map[uint32]byte{
		unix.S_IFREG: '-', unix.S_IFDIR: 'd', unix.S_IFLNK: 'l', unix.S_IFIFO: 'p',
		unix.S_IFSOCK: 's', unix.S_IFCHR: 'c', unix.S_IFBLK: 'b',
	} {
		if mode&unix.S_IFMT == kind {
			out[0] = c
		}
	}
	for i := range 9 {
		if mode&(1<<(8-i)) == 0 {
			out[1+i] = '-'
		}
	}
	for _, b := range []struct {
		bit uint32
		at  int
		c   byte // in upper case where there is no right to execute
	}{{unix.S_ISUID, 3, 's'}, {unix.S_ISGID, 6, 's'}, {unix.S_ISVTX, 9, 't'}} {
		if mode&b.bit == 0 {
			continue
		}
		if out[b.at] == 'x' {
			out[b.at] = b.c
		} else {
			out[b.at] = b.c - 'a' + 'A'
		}
	}
	return string(out)
}
