//go:build linux

package relay

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

// run starts a relay and gives its port, its secret, what ends its input, and a
// channel that is closed when it has ended.
func run(t *testing.T) (port, secret string, in io.Closer, ended chan struct{}) {
	t.Helper()
	stdin, in := io.Pipe()
	out, stdout := io.Pipe()
	ended = make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		defer close(ended)
		if err := Run(ctx, stdin, stdout); err != nil {
			t.Error(err)
		}
	}()
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Sscanf(line, "relay %s %s\n", &port, &secret); err != nil {
		t.Fatalf("%q: %v", line, err)
	}
	t.Cleanup(func() {
		cancel()
		<-ended
		in.Close()
	})
	return port, secret, in, ended
}

// ask sends one line and gives the connection and the answer.
func ask(t *testing.T, port, line string) (*net.TCPConn, string) {
	t.Helper()
	c, err := net.Dial("tcp", "127.0.0.1:"+port)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	io.WriteString(c, line+"\n")
	answer, _ := readLine(c)
	return c.(*net.TCPConn), answer
}

func TestDialAndListen(t *testing.T) {
	t.Parallel()
	port, secret, _, _ := run(t)
	feed, answer := ask(t, port, secret+" listen 0")
	var at string
	if _, err := fmt.Sscanf(answer, "ok %s", &at); err != nil {
		t.Fatalf("%q", answer)
	}
	outside, answer := ask(t, port, secret+" dial "+at)
	if answer != "ok" {
		t.Fatalf("%q", answer)
	}
	line, err := readLine(feed)
	f := strings.Fields(line)
	if err != nil || len(f) != 3 || f[1] != "127.0.0.1" {
		t.Fatalf("%q, %v", line, err)
	}
	inside, answer := ask(t, port, secret+" take "+f[0])
	if answer != "ok" {
		t.Fatalf("%q", answer)
	}
	go func() {
		io.WriteString(outside, "ping")
		outside.CloseWrite()
	}()
	if got, err := io.ReadAll(inside); err != nil || string(got) != "ping" {
		t.Errorf("%q, %v", got, err)
	}
	io.WriteString(inside, "pong")
	inside.Close()
	if got, err := io.ReadAll(outside); err != nil || string(got) != "pong" {
		t.Errorf("%q, %v", got, err)
	}
	if _, answer := ask(t, port, secret+" take "+f[0]); answer != "no such connection" {
		t.Errorf("twice: %q", answer)
	}
	if _, answer := ask(t, port, secret+" listen "+at); !strings.HasPrefix(answer, "no ") {
		t.Errorf("a port in use: %q", answer)
	}
	// The end of the feed is the end of the listener, and of what was not taken.
	waiting, err := net.Dial("tcp", "127.0.0.1:"+at)
	if err != nil {
		t.Fatal(err)
	}
	defer waiting.Close()
	if _, err := readLine(feed); err != nil {
		t.Fatal(err)
	}
	feed.Close()
	_ = waiting.SetReadDeadline(time.Now().Add(time.Minute))
	if _, err := io.ReadAll(waiting); err != nil {
		t.Errorf("what was not taken was not closed: %v", err)
	}
	if _, answer := ask(t, port, secret+" dial "+at); !strings.HasPrefix(answer, "no ") {
		t.Errorf("it still listens: %q", answer)
	}
}

func TestRefuses(t *testing.T) {
	t.Parallel()
	port, secret, _, _ := run(t)
	for line, want := range map[string]string{
		"": "", "wrong dial 80": "", secret[1:] + " dial 80": "", strings.Repeat("x", 4*maxLine): "",
		secret + " dial 0": "no such port", secret + " dial 99999": "no such port", secret + " dial x": "no such port",
		secret + " listen -1": "no such port", secret + " fly": "no such verb", secret: "no such verb",
		secret + " take " + secret: "no such connection",
	} {
		if _, got := ask(t, port, line); got != want {
			t.Errorf("%q: %q, want %q", line, got, want)
		}
	}
	// Those who say nothing do not keep the others out.
	for range 3 * maxStrange {
		c, err := net.Dial("tcp", "127.0.0.1:"+port)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	if _, got := ask(t, port, secret+" fly"); got != "no such verb" {
		t.Errorf("%q", got)
	}
}

func TestEnds(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(hold *net.TCPConn, in io.Closer){
		"hold":  func(hold *net.TCPConn, _ io.Closer) { hold.Close() },
		"input": func(_ *net.TCPConn, in io.Closer) { in.Close() },
	} {
		port, secret, in, ended := run(t)
		hold, answer := ask(t, port, secret+" hold")
		if answer != "ok" {
			t.Fatalf("%q", answer)
		}
		feed, _ := ask(t, port, secret+" listen 0")
		end(hold, in)
		select {
		case <-ended:
		case <-time.After(time.Minute):
			t.Errorf("%s: it goes on", name)
		}
		if _, err := io.ReadAll(feed); err != nil {
			t.Logf("%s: the feed ended with %v", name, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("SECRET dial 80")
	f.Add("SECRET listen 0\nrest")
	f.Fuzz(func(t *testing.T, text string) {
		r := strings.NewReader(text)
		line, err := readLine(r)
		if err == nil && (strings.Contains(line, "\n") || len(text)-r.Len() != len(line)+1) {
			t.Errorf("%q of %q", line, text)
		}
		if _, _, arg := parse(line); validPort(arg, 0) && len(arg) > maxLine {
			t.Errorf("%q", arg)
		}
	})
}
