package image

import (
	"errors"
	"fmt"
	"path"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// userName is whom code in a sandbox runs as unless told otherwise.
const userName = "user"

// firstID is the user's number where it is free.
const firstID = 1000

// account is a line of /etc/passwd.
type account struct {
	uid, gid int
	home     string
}

// ensureUser finds the user in /etc/passwd or adds it, and makes its home.
func (t *tree) ensureUser() (account, error) {
	passwd, err := t.lines("/etc/passwd")
	if err != nil {
		return account{}, err
	}
	if len(passwd) == 0 {
		passwd = []string{"root:x:0:0:root:/root:/bin/sh"}
	}
	u, ok := findAccount(passwd, userName)
	if !ok {
		if u, err = t.addUser(passwd); err != nil {
			return u, err
		}
	}
	if t.exists(u.home) {
		return u, nil
	}
	if err := t.ensureDirOf(u.home, u); err != nil {
		return u, err
	}
	return u, t.copySkeleton(u)
}

func findAccount(passwd []string, name string) (account, bool) {
	for _, line := range passwd {
		f := strings.Split(line, ":")
		if len(f) < 6 || f[0] != name {
			continue
		}
		uid, err1 := strconv.Atoi(f[2])
		gid, err2 := strconv.Atoi(f[3])
		home := path.Clean("/" + f[5])
		if err1 == nil && err2 == nil && validID(uid) && validID(gid) {
			return account{uid, gid, home}, true
		}
	}
	return account{}, false
}

// addUser writes the user and a group of its own to the account files.
func (t *tree) addUser(passwd []string) (account, error) {
	group, err := t.lines("/etc/group")
	if err != nil {
		return account{}, err
	}
	if len(group) == 0 {
		group = []string{"root:x:0:"}
	}
	taken := idsOf(passwd)
	for id := range idsOf(group) {
		taken[id] = true
	}
	u := account{uid: firstID, gid: firstID, home: "/home/" + userName}
	for taken[u.uid] {
		u.uid++
	}
	u.gid = u.uid
	shell := "/bin/sh"
	if t.exists("/bin/bash") {
		shell = "/bin/bash"
	}
	passwd = append(passwd, fmt.Sprintf("%s:x:%d:%d::%s:%s", userName, u.uid, u.gid, u.home, shell))
	group = withMember(group, "sudo", userName)
	group = append(group, fmt.Sprintf("%s:x:%d:", userName, u.gid))
	if err := t.writeLines("/etc/passwd", passwd, 0o644); err != nil {
		return u, err
	}
	if err := t.writeLines("/etc/group", group, 0o644); err != nil {
		return u, err
	}
	// The day is any in the past: a password that was never changed would
	// make login programs ask for a new one. The password itself is locked.
	if err := t.appendLine("/etc/shadow", userName+":!:19000:0:99999:7:::"); err != nil {
		return u, err
	}
	return u, t.appendLine("/etc/gshadow", userName+":!::")
}

// idsOf gives the numbers that a passwd or group file uses.
func idsOf(lines []string) map[int]bool {
	ids := make(map[int]bool)
	for _, line := range lines {
		if f := strings.Split(line, ":"); len(f) >= 3 {
			if id, err := strconv.Atoi(f[2]); err == nil {
				ids[id] = true
			}
		}
	}
	return ids
}

// withMember adds a member to a group where the group exists.
func withMember(group []string, name, member string) []string {
	for i, line := range group {
		f := strings.Split(line, ":")
		if len(f) != 4 || f[0] != name {
			continue
		}
		if f[3] != "" {
			member = f[3] + "," + member
		}
		group[i] = strings.Join(append(f[:3], member), ":")
	}
	return group
}

// appendLine adds a line to a file that exists, keeping its owner and mode.
func (t *tree) appendLine(name, line string) error {
	st, err := t.stat(name)
	if errors.Is(err, unix.ENOENT) {
		return nil
	} else if err != nil {
		return err
	}
	lines, err := t.lines(name)
	if err != nil {
		return err
	}
	text := strings.Join(append(lines, line), "\n") + "\n"
	return t.writeFile(name, []byte(text), owner{int(st.Uid), int(st.Gid), st.Mode & 0o7777})
}

func (t *tree) writeLines(name string, lines []string, mode uint32) error {
	return t.writeFile(name, []byte(strings.Join(lines, "\n")+"\n"), owner{mode: mode})
}

// lines reads a text file; one that is missing has none.
func (t *tree) lines(name string) ([]string, error) {
	b, err := t.readFile(name, textLimit)
	if errors.Is(err, unix.ENOENT) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	var out []string
	for line := range strings.SplitSeq(string(b), "\n") {
		if line != "" {
			out = append(out, line)
		}
	}
	return out, nil
}

// skeleton is what a new home directory gets where the image has it.
var skeleton = []string{".bashrc", ".profile", ".bash_logout"}

func (t *tree) copySkeleton(u account) error {
	for _, name := range skeleton {
		b, err := t.readFile(path.Join("/etc/skel", name), textLimit)
		if errors.Is(err, unix.ENOENT) {
			continue
		} else if err != nil {
			return err
		}
		if err := t.writeFile(path.Join(u.home, name), b, owner{u.uid, u.gid, 0o644}); err != nil {
			return err
		}
	}
	return nil
}
