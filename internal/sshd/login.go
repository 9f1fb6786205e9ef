package sshd

import (
	"bytes"
	"context"
	"io"
	"path"
	"strings"
	"unicode/utf8"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/guest"
)

const (
	maxPasswd    = 1 << 20
	anyShell     = "/bin/sh"
	usualUser    = "user" // of our images
	passwdFields = 7
)

// account is the user of a sandbox that sessions are of.
type account struct{ name, home, shell string }

// account reads which user a login is and what their shell is. What a sandbox says
// of that matters to nothing but itself.
func (c *conn) account(ctx context.Context) (account, error) {
	client, err := c.s.Sandboxes.Guest(ctx, c.who, c.id)
	if err != nil {
		return account{}, err
	}
	f, _, err := client.ReadFile(ctx, "/etc/passwd", "root")
	if api.CodeOf(err) == api.CodeFileNotFound {
		return account{home: "/", shell: anyShell}, nil
	}
	if err != nil {
		return account{}, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxPasswd))
	if err != nil {
		return account{}, api.Wrap(api.CodeSandboxDied, err, "the sandbox stopped answering")
	}
	return parseAccount(data), nil
}

// parseAccount finds the usual user in a passwd file, or else root, or else whom
// the guest program takes for one.
func parseAccount(data []byte) account {
	out := account{home: "/", shell: anyShell}
	for line := range bytes.Lines(data) {
		f := strings.Split(strings.TrimRight(string(line), "\r\n"), ":")
		if len(f) < passwdFields || f[0] != usualUser && f[0] != "root" || f[0] == out.name {
			continue
		}
		if out.name == usualUser {
			break // the first line of a name counts
		}
		out = account{name: f[0], home: cleanPath(f[5], "/"), shell: cleanPath(f[6], anyShell)}
	}
	return out
}

func cleanPath(p, otherwise string) string {
	if !path.IsAbs(p) || !utf8.ValidString(p) || strings.ContainsRune(p, 0) {
		return otherwise
	}
	return path.Clean(p)
}

// tries are a command for an account, and what else may do when the shell or the
// home directory is not there.
func (a account) tries(cmd guest.Command, shell bool) []guest.Command {
	cmd.User, cmd.Cwd = a.name, a.home
	if shell {
		cmd.Cmd = a.shell
	}
	out := []guest.Command{cmd}
	if shell && a.shell != anyShell {
		cmd.Cmd = anyShell
		out = append(out, cmd)
	}
	if a.home != "/" {
		cmd.Cwd = "/"
		out = append(out, cmd)
	}
	return out
}

// start starts the first of some commands that can be started.
func (c *conn) start(ctx context.Context, tries []guest.Command) (p *guest.Process, client *guest.Client, err error) {
	for _, cmd := range tries {
		p, client, err = c.s.Sandboxes.StartProcess(ctx, c.who, c.id, cmd)
		if api.CodeOf(err) != api.CodeProcessInvalid {
			return p, client, err
		}
	}
	return nil, nil, err
}
