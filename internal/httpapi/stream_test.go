package httpapi

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/pandastack/pandastack/api"
)

// sse reads one event of a stream; comments are counted.
func sse(t *testing.T, r *bufio.Scanner, comments *int) (name, id, data string) {
	t.Helper()
	for r.Scan() {
		line := r.Text()
		switch {
		case line == "" && data != "":
			return
		case line == "":
		case strings.HasPrefix(line, ":"):
			*comments++
		case strings.HasPrefix(line, "event: "):
			name = line[7:]
		case strings.HasPrefix(line, "id: "):
			id = line[4:]
		case strings.HasPrefix(line, "data: "):
			data += line[6:]
		default:
			t.Fatalf("stray line %q", line)
		}
	}
	return
}

func TestExecStream(t *testing.T) {
	t.Parallel()
	goOn := make(chan struct{})
	b := serve(t, &wire{stream: func(ctx context.Context, emit func(api.ExecEvent) error) error {
		emit(api.ExecEvent{Type: "start", PID: 12})
		emit(api.ExecEvent{Type: "stdout", Data: []byte("\x00\xff\n\n")})
		<-goOn
		return emit(api.ExecEvent{Type: "exit", Result: &api.ExecResult{ExitCode: 2}})
	}})
	resp := b.do("POST", box+"/exec/stream", `{"cmd":"x"}`)
	if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("%d %v", resp.StatusCode, resp.Header)
	}
	in, comments := bufio.NewScanner(resp.Body), 0
	for _, want := range []string{`start {"type":"start","pid":12}`, `stdout {"type":"stdout","data":"AP8KCg=="}`} {
		name, _, data := sse(t, in, &comments)
		if name+" "+data != want {
			t.Errorf("got %s %s, want %s", name, data, want)
		}
	}
	// The first two events came while the command still ran; let it idle
	// until a keep-alive comment has come.
	for comments == 0 && in.Scan() {
		if strings.HasPrefix(in.Text(), ":") {
			comments++
		}
	}
	close(goOn)
	name, _, data := sse(t, in, &comments)
	var e api.ExecEvent
	if err := json.Unmarshal([]byte(data), &e); err != nil || name != "exit" || e.Result.ExitCode != 2 {
		t.Errorf("got %s %s (%v)", name, data, err)
	}
	if in.Scan() && in.Text() != "" {
		t.Errorf("after exit: %q", in.Text())
	}
}

func TestStreamFailures(t *testing.T) {
	t.Parallel()
	early := serve(t, &wire{err: api.Errorf(api.CodeSandboxNotFound, "none")})
	resp := early.do("POST", box+"/exec/stream", `{"cmd":"x"}`)
	if resp.StatusCode != 404 {
		t.Errorf("status %d", resp.StatusCode)
	}
	early.failure(resp, api.CodeSandboxNotFound)

	late := serve(t, &wire{stream: func(ctx context.Context, emit func(api.ExecEvent) error) error {
		emit(api.ExecEvent{Type: "start", PID: 12})
		return api.Errorf(api.CodeSandboxDied, "it died")
	}})
	resp = late.do("POST", box+"/exec/stream", `{"cmd":"x"}`)
	in, n := bufio.NewScanner(resp.Body), 0
	sse(t, in, &n)
	name, _, data := sse(t, in, &n)
	var e api.ExecEvent
	if err := json.Unmarshal([]byte(data), &e); err != nil || name != "error" || e.Type != "error" ||
		e.Error.Code != api.CodeSandboxDied || e.Error.RequestID != resp.Header.Get("X-Request-Id") {
		t.Errorf("got %s %s (%v)", name, data, err)
	}
}

// TestDisconnect: the work ends when the client leaves, also in calls that
// stream nothing.
func TestDisconnect(t *testing.T) {
	t.Parallel()
	ended := make(chan error, 1)
	started := make(chan struct{})
	b := serve(t, &wire{stream: func(ctx context.Context, emit func(api.ExecEvent) error) error {
		emit(api.ExecEvent{Type: "start", PID: 12})
		close(started)
		<-ctx.Done()
		ended <- ctx.Err()
		return ctx.Err()
	}})
	ctx, cancel := context.WithCancel(t.Context())
	req, _ := http.NewRequestWithContext(ctx, "POST", b.url+box+"/exec/stream", strings.NewReader(`{"cmd":"x"}`))
	req.Header.Set("Authorization", "Bearer "+userKey)
	req.Header.Set("Content-Type", "application/json")
	resp, err := transport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	<-started
	cancel()
	select {
	case <-ended:
	case <-time.After(30 * time.Second):
		t.Fatal("the work went on")
	}
}

func TestFollowEvents(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	f := &wire{
		events: []api.Event{{ID: 7, Type: "sandbox.running", Time: at}},
		follow: func(ctx context.Context, since int64, emit func(api.Event) error) error {
			if since != 7 {
				return api.Errorf(api.CodeInternal, "since %d", since)
			}
			emit(api.Event{ID: 8, Type: "sandbox.paused", Time: at})
			<-ctx.Done()
			return ctx.Err()
		},
	}
	b := serve(t, f)
	resp := b.do("GET", box+"/events?follow=1&tail=5", "", "Last-Event-ID", "3")
	in, n := bufio.NewScanner(resp.Body), 0
	for _, want := range []string{"ev 7 sandbox.running", "ev 8 sandbox.paused"} {
		name, id, data := sse(t, in, &n)
		var e api.Event
		if err := json.Unmarshal([]byte(data), &e); err != nil || name+" "+id+" "+e.Type != want {
			t.Errorf("got %s %s %s (%v), want %s", name, id, data, err, want)
		}
	}
	f.note(func() {
		if f.event.Since != 3 || f.event.Tail != 5 {
			t.Errorf("control got %+v", f.event)
		}
	})
	list := b.read(b.do("GET", box+"/events", ""))
	if !strings.HasPrefix(list, `[{"id":7,`) {
		t.Errorf("list %s", list)
	}
}

func TestSince(t *testing.T) {
	t.Parallel()
	for s, want := range map[string]int64{
		"0": 0, "42": 42, "1700000000": 1700000000e6, "1700000000123": 1700000000123e3,
		"1700000000123456": 1700000000123456, "2023-11-14T22:13:20Z": 1700000000e6, "2023-11-14T22:13:20.5+00:00": 1700000000500e3,
	} {
		if got, ok := parseSince(s); !ok || got != want {
			t.Errorf("%s: %d %v, want %d", s, got, ok, want)
		}
	}
	for _, s := range []string{"-1", "x", "2023-11-14", "99999999999999999999"} {
		if _, ok := parseSince(s); ok {
			t.Errorf("%s was taken", s)
		}
	}
}
