package image

import (
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// textLimit bounds what is read of a text file of a root filesystem.
const textLimit = 4 << 20

// check refuses what is not a root filesystem that this host can run.
func (t *tree) check() error {
	var found string
	for _, sh := range []string{"/bin/sh", "/usr/bin/sh"} {
		if st, err := t.stat(sh); err == nil && st.Mode&unix.S_IFMT == unix.S_IFREG && st.Mode&0o111 != 0 {
			found = sh
			break
		}
	}
	if found == "" {
		return invalid("this is not a root filesystem: it has no executable /bin/sh or /usr/bin/sh")
	}
	head, err := t.head(found, 20)
	if err != nil {
		return fmt.Errorf("look at %s: %w", found, err)
	}
	if machine, ok := elfMachine(head); ok && machine != hostMachine() {
		return invalid("the root filesystem is for another processor: %s is for %s, this host has %s", found, machine, hostMachine())
	}
	return nil
}

func (t *tree) head(name string, n int) ([]byte, error) {
	fd, err := t.open(name, unix.O_RDONLY|unix.O_NONBLOCK)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	b := make([]byte, n)
	got, err := unix.Pread(fd, b, 0)
	return b[:max(got, 0)], err
}

func elfMachine(head []byte) (elf.Machine, bool) {
	if len(head) < 20 || string(head[:4]) != elf.ELFMAG {
		return 0, false
	}
	if elf.Data(head[elf.EI_DATA]) == elf.ELFDATA2MSB {
		return elf.Machine(binary.BigEndian.Uint16(head[18:])), true
	}
	return elf.Machine(binary.LittleEndian.Uint16(head[18:])), true
}

func hostMachine() elf.Machine {
	switch runtime.GOARCH {
	case "arm64":
		return elf.EM_AARCH64
	case "riscv64":
		return elf.EM_RISCV
	case "386":
		return elf.EM_386
	}
	return elf.EM_X86_64
}

// finish makes a root filesystem bootable as a sandbox: the places that are
// mounted over exist, the files that the guest program rewrites are plain, and
// there is a user to run code as.
func (t *tree) finish() error {
	for _, d := range []struct {
		name string
		mode uint32
	}{
		{"/proc", 0o555}, {"/sys", 0o555}, {"/dev", 0o755}, {"/run", 0o755}, {"/etc", 0o755},
		{"/tmp", 0o1777}, {"/var/tmp", 0o1777}, {"/root", 0o700}, {"/home", 0o755}, {"/mnt", 0o755},
	} {
		if err := t.mkdirAll(d.name, d.mode); err != nil {
			return finishError(d.name, err)
		}
	}
	if err := t.openTmp(); err != nil {
		return finishError("/tmp", err)
	}
	for _, f := range []struct{ name, text string }{
		{"/etc/resolv.conf", ""},
		{"/etc/hostname", "sandbox\n"},
		{"/etc/hosts", "127.0.0.1\tlocalhost sandbox\n::1\tlocalhost ip6-localhost ip6-loopback\n"},
	} {
		if err := t.plainFile(f.name, f.text); err != nil {
			return finishError(f.name, err)
		}
	}
	u, err := t.ensureUser()
	if err != nil {
		return finishError("/etc/passwd", err)
	}
	if err := t.ensureDirOf("/workspace", u); err != nil {
		return finishError("/workspace", err)
	}
	return t.ensureSudo()
}

// openTmp lets everyone write to /tmp also where an archive says otherwise.
func (t *tree) openTmp() error {
	fd, err := t.open("/tmp", unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Fchmod(fd, 0o1777)
}

// plainFile puts an empty or given text in place of a file that is missing or
// is a link, such as the one to a resolver of the image's own.
func (t *tree) plainFile(name, text string) error {
	st, err := t.lstat(name)
	if err == nil && st.Mode&unix.S_IFMT == unix.S_IFREG {
		return nil
	}
	return t.writeFile(name, []byte(text), owner{mode: 0o644})
}

// ensureDirOf makes a directory that belongs to a user.
func (t *tree) ensureDirOf(name string, u account) error {
	if t.exists(name) {
		return nil
	}
	if err := t.mkdirAll(name, 0o755); err != nil {
		return err
	}
	fd, err := t.open(name, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Fchown(fd, u.uid, u.gid)
}

// ensureSudo lets the user become root without a password where sudo is
// installed: a sandbox has no secrets from the code that runs in it.
func (t *tree) ensureSudo() error {
	const rule = "/etc/sudoers.d/90-" + userName
	if !t.exists("/usr/bin/sudo") || t.exists(rule) {
		return nil
	}
	if err := t.mkdirAll("/etc/sudoers.d", 0o750); err != nil {
		return finishError("/etc/sudoers.d", err)
	}
	err := t.writeFile(rule, []byte(userName+" ALL=(ALL:ALL) NOPASSWD:ALL\n"), owner{mode: 0o440})
	return finishError(rule, err)
}

func finishError(name string, err error) error {
	if err == nil {
		return nil
	}
	if e := entryError(name, err); errors.Is(err, unix.ENOSPC) {
		return e
	}
	return invalid("the root filesystem cannot be completed: %s: %w", name, err)
}

// dropDevices removes device nodes from a directory tree that this process
// copied or made. Sandboxes have their own /dev.
func dropDevices(dir string) error {
	return filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.Type()&os.ModeDevice == 0 {
			return nil
		}
		if rel := strings.TrimPrefix(path, dir); !strings.HasPrefix(rel, "/dev/") {
			return invalid("the root filesystem has a device node outside /dev: %q", shorten(rel))
		}
		return os.Remove(path)
	})
}
