//go:build linux

package guestd

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A snapshot may be taken while the daemon waits for a child, and the child may
// stand still in what is made of it.
func TestHooksDoNotWaitForAStartForEver(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	dir := filepath.Join(root, hooksDir)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "hook"), []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	var hold strings.Builder
	s := New(Options{Root: root, Hold: &hold, Log: slog.New(slog.NewTextHandler(io.Discard, nil))})
	<-s.reaper.turn
	began := time.Now()
	warnings := s.become(t.Context(), &initRequest{Identity: true, Boot: "fork", ID: "child"})
	if len(warnings) != 1 || !strings.Contains(warnings[0], "another program was being started") || hold.String() != "release" {
		t.Fatal(warnings, hold.String())
	}
	if took := time.Since(began); took > 20*time.Second {
		t.Fatal(took)
	}
}

// Both ends of a connection from this machine are in the same snapshot.
func TestOwnConnectionsAreNotCut(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var d net.Dialer
	conn, err := d.DialContext(t.Context(), "tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if !fromLoopback(conn) {
		t.Fatal(conn.RemoteAddr())
	}
	if fromLoopback(fromElsewhere{conn}) {
		t.Fatal("another machine is taken for this one")
	}
	c := conns{open: map[net.Conn]struct{}{conn: {}}}
	c.cutOthers(context.WithValue(t.Context(), connKey{}, conn))
	if _, err := conn.Write([]byte("x")); err != nil {
		t.Fatal("the request's own connection was cut", err)
	}
	c.cutOthers(t.Context())
	if _, err := conn.Write([]byte("x")); err == nil {
		t.Fatal("the connection is open")
	}
}

type fromElsewhere struct{ net.Conn }

func (fromElsewhere) RemoteAddr() net.Addr {
	return net.TCPAddrFromAddrPort(netip.MustParseAddrPort("10.1.2.3:4"))
}
