//go:build linux

package sshd

import (
	"net"
	"path"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/crypto/ssh"
)

// mute is a connection whose reader can be made to get nothing more.
type mute struct {
	net.Conn
	deaf   atomic.Bool
	closed chan struct{}
}

func (m *mute) Read(p []byte) (int, error) {
	n, err := m.Conn.Read(p)
	if m.deaf.Load() {
		<-m.closed
		return 0, net.ErrClosed
	}
	return n, err
}

func (m *mute) Close() error {
	select {
	case <-m.closed:
	default:
		close(m.closed)
	}
	return m.Conn.Close()
}

func TestParseAccount(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]account{
		"": {home: "/", shell: "/bin/sh"},
		"root:x:0:0:root:/root:/bin/bash\nuser:x:1000:1000::/home/user:/bin/zsh\n": {"user", "/home/user", "/bin/zsh"},
		"user:x:1000:1000::/home/user:/bin/zsh\nroot:x:0:0:root:/root:/bin/bash\n": {"user", "/home/user", "/bin/zsh"},
		"user:x:1:1::/a:/b\nuser:x:2:2::/c:/d\n":                                   {"user", "/a", "/b"},
		"root:x:0:0:root::\nnobody:x:1:1::/:/bin/x":                                {"root", "/", "/bin/sh"},
		"root:x:0:0:root:relative:bash\n":                                          {"root", "/", "/bin/sh"},
		"user:x:1000":                                                              {home: "/", shell: "/bin/sh"},
	} {
		if got := parseAccount([]byte(text)); got != want {
			t.Errorf("%q: %+v", text, got)
		}
	}
}

func FuzzParseAccount(f *testing.F) {
	f.Add([]byte("root:x:0:0:root:/root:/bin/bash\nuser:x:1000:1000::/home/user:/bin/zsh\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		a := parseAccount(data)
		if !path.IsAbs(a.home) || !path.IsAbs(a.shell) || strings.ContainsRune(a.home+a.shell, 0) || a.name != "" && a.name != "user" && a.name != "root" {
			t.Errorf("%+v", a)
		}
	})
}

func FuzzRelayLines(f *testing.F) {
	f.Add("relay 40000 ABCDEFGHIJKLMNOPQRSTUVWXYZ")
	f.Add("ABCDEFGHIJKLMNOPQRSTUVWXYZ 127.0.0.1 4711")
	f.Add("ABCDEFGHIJKLMNOPQRSTUVWXYZ fe80::1%eth0 4711")
	f.Fuzz(func(t *testing.T, line string) {
		if port, secret, ok := parseHello(line); ok && (port < 1 || port > 65535 || strings.ContainsAny(secret, " \n")) {
			t.Errorf("%d %q", port, secret)
		}
		if token, from, ok := parseAccepted(line); ok && (strings.ContainsAny(token, " \n") || !from.IsValid()) {
			t.Errorf("%q %v", token, from)
		}
	})
}

func FuzzRequests(f *testing.F) {
	f.Add("pty-req", ssh.Marshal(ptyRequest{Term: "xterm", Cols: 80, Rows: 24}))
	f.Add("env", ssh.Marshal(envRequest{"LC_ALL", "C"}))
	f.Add("window-change", ssh.Marshal(windowChange{Cols: 80, Rows: 24}))
	f.Add("signal", ssh.Marshal(oneString{"TERM"}))
	f.Fuzz(func(t *testing.T, kind string, payload []byte) {
		if kind == "shell" || kind == "exec" || kind == "subsystem" {
			return // they need a sandbox
		}
		s := &session{env: map[string]string{}}
		s.request(t.Context(), &ssh.Request{Type: kind, Payload: payload})
		for name, value := range s.env {
			if name != "TERM" && !passed(name) || len(value) > maxEnvBytes {
				t.Errorf("%q=%q", name, value)
			}
		}
	})
}

func TestPassed(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]bool{"LANG": true, "LC_TIME": true, "LC_": true, "LC_x": false, "PATH": false, "LD_PRELOAD": false, "LC_A=B": false} {
		if passed(name) != want {
			t.Error(name)
		}
	}
	for name, want := range map[string]string{"screen": "screen", "../x": "xterm-256color", "": "xterm-256color", "a\x00": "xterm-256color"} {
		if got := terminalKind(name); got != want {
			t.Errorf("%q: %q", name, got)
		}
	}
}
