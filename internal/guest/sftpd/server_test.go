//go:build linux

package sftpd

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/pkg/sftp"
	"golang.org/x/sys/unix"
)

// connect starts a session and gives a client of it.
func connect(t *testing.T) *sftp.Client {
	t.Helper()
	toServer, in := io.Pipe()
	out, fromServer := io.Pipe()
	served := make(chan error, 1)
	go func() {
		served <- Serve(toServer, fromServer, "/home/nobody")
		fromServer.Close()
	}()
	c, err := sftp.NewClientPipe(out, in, sftp.UseConcurrentReads(true), sftp.UseConcurrentWrites(true))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		if err := <-served; err != nil {
			t.Error(err)
		}
		c.Close()
	})
	return c
}

func TestTransfer(t *testing.T) {
	t.Parallel()
	c, dir := connect(t), t.TempDir()
	want := bytes.Repeat([]byte("0123456789abcde\x00"), 1<<18)
	f, err := c.OpenFile(filepath.Join(dir, "a"), os.O_RDWR|os.O_CREATE|os.O_EXCL)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := f.ReadFrom(bytes.NewReader(want)); n != int64(len(want)) || err != nil {
		t.Fatal(n, err)
	}
	if err := f.Chmod(0o640); err != nil {
		t.Error(err)
	}
	if err := f.Truncate(int64(len(want) - 1)); err != nil {
		t.Error(err)
	}
	if err := f.Sync(); err != nil {
		t.Error(err)
	}
	if st, err := f.Stat(); err != nil || st.Size() != int64(len(want)-1) || st.Mode() != 0o640 {
		t.Errorf("%+v, %v", st, err)
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		t.Fatal(err)
	}
	var got bytes.Buffer
	if _, err := f.WriteTo(&got); err != nil || !bytes.Equal(got.Bytes(), want[:len(want)-1]) {
		t.Errorf("%d bytes, %v", got.Len(), err)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	if _, err := c.OpenFile(filepath.Join(dir, "a"), os.O_RDWR|os.O_CREATE|os.O_EXCL); err == nil {
		t.Error("a file that exists was made anew")
	}
	for range 2 {
		f, err := c.OpenFile(filepath.Join(dir, "log"), os.O_WRONLY|os.O_CREATE|os.O_APPEND)
		if err != nil {
			t.Fatal(err)
		}
		f.Write([]byte("line\n"))
		f.Close()
	}
	if data, err := os.ReadFile(filepath.Join(dir, "log")); err != nil || string(data) != "line\nline\n" {
		t.Errorf("%q, %v", data, err)
	}
}

func TestNames(t *testing.T) {
	t.Parallel()
	c, dir := connect(t), t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	for i := range 250 {
		if err := os.WriteFile(at(strings.Repeat("n", i%200)+string(rune('a'+i%26))+strings.Repeat("x", i/26)), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	here, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	list, err := c.ReadDir(dir)
	if err != nil || len(list) != len(here) {
		t.Fatalf("%d of %d entries, %v", len(list), len(here), err)
	}
	when := time.Unix(1700000000, 0)
	for _, step := range []struct {
		what string
		err  error
	}{
		{"mkdir", c.Mkdir(at("d"))}, {"write", os.WriteFile(at("d/f"), []byte("x"), 0o600)}, {"rename", c.Rename(at("d/f"), at("d/g"))},
		{"symlink", c.Symlink("g", at("d/l"))}, {"link", c.Link(at("d/g"), at("d/h"))}, {"write", os.WriteFile(at("d/i"), []byte("y"), 0o600)},
		{"posix rename", c.PosixRename(at("d/i"), at("d/h"))}, {"truncate", c.Truncate(at("d/g"), 7)}, {"chmod", c.Chmod(at("d/g"), 0o751)},
		{"chtimes", c.Chtimes(at("d/g"), when, when)},
	} {
		if step.err != nil {
			t.Errorf("%s: %v", step.what, step.err)
		}
	}
	if err := os.WriteFile(at("other"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := c.Rename(at("other"), at("d/g")); err == nil {
		t.Error("a rename replaced a file")
	}
	if st, err := c.Stat(at("d/l")); err != nil || st.Size() != 7 || !st.ModTime().Equal(when) || st.Mode() != 0o751 {
		t.Errorf("%+v, %v", st, err)
	}
	if st, err := c.Lstat(at("d/l")); err != nil || st.Mode()&os.ModeSymlink == 0 {
		t.Errorf("%+v, %v", st, err)
	}
	if target, err := c.ReadLink(at("d/l")); err != nil || target != "g" {
		t.Errorf("%q, %v", target, err)
	}
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{at("d/l"): real + "/d/g", at("d/../none/x"): real + "/none/x", "/..": "/"} {
		if got, err := c.RealPath(path); err != nil || got != want {
			t.Errorf("%s: %q, %v", path, got, err)
		}
	}
	if st, err := c.StatVFS(dir); err != nil || st.Bsize == 0 || st.Blocks == 0 {
		t.Errorf("%+v, %v", st, err)
	}
	if _, err := c.Stat(at("none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v", err)
	}
	if err := c.RemoveDirectory(at("d")); err == nil {
		t.Error("a directory with files was removed")
	}
	for _, name := range []string{"d/l", "d/g", "d/h"} {
		if err := c.Remove(at(name)); err != nil {
			t.Error(err)
		}
	}
	if err := c.RemoveDirectory(at("d")); err != nil {
		t.Error(err)
	}
}

// What was removed while a directory is listed is not taken for its end.
func TestVanishingNames(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for i := range 2*maxNames + 30 { // which the kernel tells at once
		if err := os.WriteFile(filepath.Join(dir, strconv.Itoa(i)), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	open := func() *os.File {
		f, err := os.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}
	all, err := open().Readdirnames(-1)
	if err != nil {
		t.Fatal(err)
	}
	s := &server{handles: map[uint32]*handle{7: {f: open(), dir: true}}, names: &names{}}
	next := func() (uint32, error) {
		err := s.readdir(1, &reader{data: []byte{0, 0, 0, 4, 0, 0, 0, 7}})
		if err != nil {
			return 0, err
		}
		return binary.BigEndian.Uint32(s.reply.b[9:]), nil
	}
	if n, err := next(); n != maxNames || err != nil {
		t.Fatal(n, err)
	}
	for _, name := range all[maxNames : 2*maxNames] {
		if err := os.Remove(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if n, err := next(); n != 30 || err != nil {
		t.Errorf("%d names, %v", n, err)
	}
	if _, err := next(); err != io.EOF {
		t.Error(err)
	}
}

func TestManyFiles(t *testing.T) {
	t.Parallel()
	c, dir := connect(t), t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "a"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var open []*sftp.File
	for range maxHandles {
		f, err := c.Open(filepath.Join(dir, "a"))
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, f)
	}
	if _, err := c.Open(filepath.Join(dir, "a")); err == nil {
		t.Error("one file too many")
	}
	for _, f := range open {
		f.Close()
	}
	if f, err := c.Open(filepath.Join(dir, "a")); err != nil {
		t.Error(err)
	} else {
		f.Close()
	}
}

func TestModeText(t *testing.T) {
	t.Parallel()
	for mode, want := range map[uint32]string{
		unix.S_IFREG | 0o644: "-rw-r--r--", unix.S_IFDIR | 0o1777: "drwxrwxrwt", unix.S_IFLNK | 0o777: "lrwxrwxrwx",
		unix.S_IFREG | 0o4755: "-rwsr-xr-x", unix.S_IFREG | 0o2640: "-rw-r-S---", unix.S_IFCHR: "c---------",
	} {
		if got := modeText(mode); got != want {
			t.Errorf("%o: %s", mode, got)
		}
	}
}

// packet is one request as it is sent.
func packet(kind byte, id uint32, fields ...any) []byte {
	b := []byte{0, 0, 0, 0, kind}
	b = binary.BigEndian.AppendUint32(b, id)
	for _, f := range fields {
		switch f := f.(type) {
		case uint32:
			b = binary.BigEndian.AppendUint32(b, f)
		case uint64:
			b = binary.BigEndian.AppendUint64(b, f)
		case string:
			b = append(binary.BigEndian.AppendUint32(b, uint32(len(f))), f...)
		}
	}
	binary.BigEndian.PutUint32(b, uint32(len(b)-4))
	return b
}

// FuzzServe sends a session anything. What could change a file is aimed at a path
// that cannot be.
func FuzzServe(f *testing.F) {
	f.Add(packet(fxpInit, 3))
	f.Add(slices.Concat(packet(fxpInit, 3), packet(fxpOpen, 1, "/dev/null", uint32(flagRead), uint32(0)), packet(fxpRead, 2, "\x00\x00\x00\x01", uint64(0), uint32(100)), packet(fxpClose, 3, "\x00\x00\x00\x01")))
	f.Add(slices.Concat(packet(fxpOpendir, 1, "/dev"), packet(fxpReaddir, 2, "\x00\x00\x00\x01")))
	f.Add(packet(fxpStat, 1, "/"))
	f.Add(packet(fxpExtended, 1, "statvfs@openssh.com", "/"))
	f.Add(packet(fxpExtended, 1, "limits@openssh.com"))
	f.Add(packet(fxpRealpath, 1, "a/../b"))
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, kind := range packets(data) {
			switch kind {
			case fxpInit, fxpClose, fxpRead, fxpLstat, fxpStat, fxpFstat, fxpReaddir, fxpReadlink, fxpRealpath:
			default:
				return
			}
		}
		var out bytes.Buffer
		_ = Serve(bytes.NewReader(data), &out, "/")
		in := bufio.NewReader(&out)
		for {
			if _, err := readPacket(in, nil); err == io.EOF {
				return
			} else if err != nil {
				t.Fatalf("the answers are malformed: %v", err)
			}
		}
	})
}

// packets lists the kinds of the requests in a stream.
func packets(data []byte) (kinds []byte) {
	in := bufio.NewReader(bytes.NewReader(data))
	for {
		p, err := readPacket(in, nil)
		if err != nil {
			return kinds
		}
		kinds = append(kinds, p[0])
	}
}

func FuzzAttrs(f *testing.F) {
	f.Add(packet(0, attrSize|attrMode, uint64(1), uint32(0o644)))
	f.Add(packet(0, attrExtended, uint32(1<<31)))
	f.Fuzz(func(t *testing.T, data []byte) {
		r := &reader{data: data}
		if a := r.attrs(); a.mode&^0o7777 != 0 {
			t.Errorf("%+v", a)
		}
		_ = parseNames(data)
	})
}
