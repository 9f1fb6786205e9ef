//go:build linux

package guestd

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"

	"connectrpc.com/connect"
)

// maxUserFile bounds what is read of /etc/passwd and /etc/group.
const maxUserFile = 4 << 20

// user is an account of the sandbox.
type user struct {
	name     string
	uid, gid uint32
	home     string
	groups   []uint32 // supplementary
}

// group is one line of /etc/group.
type group struct {
	name    string
	gid     uint32
	members []string
}

// parsePasswd reads the accounts of a passwd file. Lines it cannot read are
// left out, as the C library does.
func parsePasswd(data string) []user {
	var out []user
	for line := range strings.Lines(data) {
		f := strings.Split(strings.TrimRight(line, "\r\n"), ":")
		if len(f) < 6 || f[0] == "" || strings.HasPrefix(f[0], "#") {
			continue
		}
		uid, err1 := strconv.ParseUint(f[2], 10, 32)
		gid, err2 := strconv.ParseUint(f[3], 10, 32)
		if err1 != nil || err2 != nil {
			continue
		}
		home := f[5]
		if !strings.HasPrefix(home, "/") || strings.ContainsRune(home, 0) {
			home = "/"
		}
		out = append(out, user{name: f[0], uid: uint32(uid), gid: uint32(gid), home: home})
	}
	return out
}

// parseGroup reads the groups of a group file.
func parseGroup(data string) []group {
	var out []group
	for line := range strings.Lines(data) {
		f := strings.Split(strings.TrimRight(line, "\r\n"), ":")
		if len(f) < 4 || f[0] == "" || strings.HasPrefix(f[0], "#") {
			continue
		}
		gid, err := strconv.ParseUint(f[2], 10, 32)
		if err != nil {
			continue
		}
		out = append(out, group{name: f[0], gid: uint32(gid), members: strings.FieldsFunc(f[3], func(r rune) bool { return r == ',' })})
	}
	return out
}

// accounts is what the two files say, joined.
type accounts struct {
	byName map[string]user
	users  map[uint32]string
	groups map[uint32]string
}

func newAccounts(passwd, groups string) *accounts {
	a := &accounts{byName: map[string]user{}, users: map[uint32]string{}, groups: map[uint32]string{}}
	member := map[string][]uint32{}
	for _, g := range parseGroup(groups) {
		if _, ok := a.groups[g.gid]; !ok {
			a.groups[g.gid] = g.name
		}
		for _, m := range g.members {
			member[m] = append(member[m], g.gid)
		}
	}
	for _, u := range parsePasswd(passwd) {
		if _, ok := a.byName[u.name]; ok {
			continue // the first line of a name counts
		}
		u.groups = append([]uint32{u.gid}, member[u.name]...)
		a.byName[u.name] = u
		if _, ok := a.users[u.uid]; !ok {
			a.users[u.uid] = u.name
		}
	}
	if _, ok := a.byName["root"]; !ok {
		a.byName["root"] = user{name: "root", home: "/root", groups: []uint32{0}}
	}
	return a
}

// owner and groupName give the name of an id, or the number as text.
func (a *accounts) owner(uid uint32) string     { return nameOf(a.users, uid) }
func (a *accounts) groupName(gid uint32) string { return nameOf(a.groups, gid) }

func nameOf(names map[uint32]string, id uint32) string {
	if n, ok := names[id]; ok {
		return n
	}
	return strconv.FormatUint(uint64(id), 10)
}

// userFiles keeps the accounts in memory and reads them again when a file
// changed. cgo's lookup is not there, and os/user reads the file every time.
type userFiles struct {
	passwd, group string

	mu    sync.Mutex
	stamp string
	cur   *accounts
}

func (u *userFiles) get() *accounts {
	stamp := fileStamp(u.passwd) + fileStamp(u.group)
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.cur == nil || u.stamp != stamp {
		u.cur = newAccounts(readBounded(u.passwd, maxUserFile), readBounded(u.group, maxUserFile))
		u.stamp = stamp
	}
	return u.cur
}

func fileStamp(path string) string {
	fi, err := os.Stat(path)
	if err != nil {
		return "-"
	}
	return fmt.Sprintf("%d.%d;", fi.Size(), fi.ModTime().UnixNano())
}

// lookup finds an account by name; the empty name is the default user.
func (s *Server) lookup(name string) (user, error) {
	a := s.users.get()
	if name == "" {
		name = s.defaultUser()
		if name == "" {
			// An image without our usual account still runs programs.
			if u, ok := a.byName["user"]; ok {
				return u, nil
			}
			name = "root"
		}
	}
	u, ok := a.byName[name]
	if !ok {
		return user{}, &fault{code: connect.CodeUnauthenticated, reason: reasonUser, text: fmt.Sprintf("invalid username: '%s'", printable(name, 64))}
	}
	return u, nil
}
