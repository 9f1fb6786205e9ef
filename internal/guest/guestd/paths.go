//go:build linux

package guestd

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"unicode/utf8"
)

// maxPath is the longest path the kernel takes.
const maxPath = 4096

// resolvePath makes a client's path absolute: ~ is the user's home, a relative
// path starts there, and an empty one is the working directory of the sandbox,
// or the home if it has none.
func resolvePath(path, home, workdir string) (string, error) {
	switch {
	case strings.ContainsRune(path, 0):
		return "", &fault{code: invalid("").code, reason: "EINVAL", text: "a path may not contain NUL bytes"}
	case len(path) >= maxPath:
		return "", &fault{code: invalid("").code, reason: "ENAMETOOLONG", text: "the path is too long"}
	case path == "" && workdir != "":
		return filepath.Clean("/" + workdir), nil
	case path == "" || path == "~":
		return filepath.Clean("/" + home), nil
	case strings.HasPrefix(path, "~/"):
		return filepath.Join("/", home, path[2:]), nil
	case strings.HasPrefix(path, "~"):
		return "", &fault{code: invalid("").code, reason: "EINVAL", text: "home directories of other users cannot be named with ~: " + printable(path, 64)}
	case filepath.IsAbs(path):
		return filepath.Clean(path), nil
	}
	return filepath.Join("/", home, path), nil
}

// resolve is resolvePath for a user name as it came from a client.
func (s *Server) resolve(path, username string) (string, user, error) {
	u, err := s.lookup(username)
	if err != nil {
		return "", u, err
	}
	p, err := resolvePath(path, u.home, s.defaultWorkdir())
	return p, u, err
}

// mkdirOwned makes a directory and its missing parents with mode 0755, each
// owned by the user. It reports whether the directory itself is new.
func mkdirOwned(path string, u user) (bool, error) {
	fi, err := os.Stat(path)
	if err == nil {
		if !fi.IsDir() {
			return false, &fault{code: invalid("").code, reason: "ENOTDIR", text: "path '" + path + "' is not a directory"}
		}
		return false, nil
	}
	if !os.IsNotExist(err) {
		return false, err
	}
	if _, err := mkdirOwned(filepath.Dir(path), u); err != nil {
		return false, err
	}
	if err := os.Mkdir(path, 0o755); err != nil {
		if os.IsExist(err) {
			// Somebody else made it meanwhile, or it is a broken link.
			if fi, e := os.Stat(path); e == nil && fi.IsDir() {
				return false, nil
			}
		}
		return false, err
	}
	return true, os.Lchown(path, int(u.uid), int(u.gid))
}

// readBounded reads at most max bytes of a file; what cannot be read is empty.
// Anything but a file, a named pipe above all, might wait for ever.
func readBounded(path string, max int64) string {
	f, _, err := openRegular(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	data, _ := io.ReadAll(io.LimitReader(f, max)) // what was read counts
	return string(data)
}

// printable bounds text that came from outside before it goes into a message.
func printable(s string, max int) string {
	if len(s) > max {
		s = s[:max] + "..."
	}
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == utf8.RuneError || r == 0x7f {
			return '?'
		}
		return r
	}, s)
}
