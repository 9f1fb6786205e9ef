package host_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/host"
)

func TestAnswersAreTheSameOverTheWire(t *testing.T) {
	t.Parallel()
	l := newLoopback()
	c := serve(t, l).client(t)
	spec := host.Spec{ID: api.NewID(), Template: "base", Token: "t", Env: map[string]string{"A": "b\n"}, CPU: 0.5}
	made, err := c.Create(ctx(t), spec)
	must(t, err)
	if !reflect.DeepEqual(l.specs[spec.ID], spec) {
		t.Errorf("the host got %+v", l.specs[spec.ID])
	}
	if want := l.sandbox(spec); !reflect.DeepEqual(made, want) {
		t.Errorf("%+v, want %+v", made, want)
	}
	same(t, l, c, func(h host.Host) (any, error) { return h.Info(ctx(t)) })
	same(t, l, c, func(h host.Host) (any, error) { return h.Get(ctx(t), spec.ID) })
	same(t, l, c, func(h host.Host) (any, error) { return h.List(ctx(t)) })
	same(t, l, c, func(h host.Host) (any, error) { return h.Usage(ctx(t), spec.ID) })
	same(t, l, c, func(h host.Host) (any, error) { return h.Usages(ctx(t)) })
	same(t, l, c, func(h host.Host) (any, error) { return h.Templates(ctx(t)) })
	must(t, c.Pause(ctx(t), spec.ID))
	must(t, c.Delete(ctx(t), spec.ID))
	same(t, l, c, func(h host.Host) (any, error) { return h.List(ctx(t)) })
}

func same(t *testing.T, local, remote host.Host, f func(host.Host) (any, error)) {
	t.Helper()
	want, err := f(local)
	must(t, err)
	got, err := f(remote)
	must(t, err)
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v over the wire, %+v without", got, want)
	}
}

func TestErrorsKeepTheirCode(t *testing.T) {
	t.Parallel()
	l := newLoopback()
	c := serve(t, l).client(t)
	spec := host.Spec{ID: api.NewID()}
	_, err := c.Create(ctx(t), spec)
	must(t, err)
	_, err = c.Create(ctx(t), spec)
	e := wantCode(t, err, api.CodeSandboxExists)
	if e.Message != spec.ID+" exists" || e.Hint == "" || e.Details["id"] != spec.ID {
		t.Errorf("%+v", e)
	}
	for _, id := range []string{"", "..", "a/b?c&id=" + spec.ID, "ü", "%00"} {
		_, err := c.Get(ctx(t), id)
		if e := wantCode(t, err, api.CodeSandboxNotFound); !strings.Contains(e.Message, strings.ToValidUTF8(id, "")) {
			t.Errorf("the host got another id than %q: %v", id, e)
		}
	}
	wantCode(t, c.Pause(ctx(t), "x"), api.CodeSandboxNotFound)

	l.fail = errors.New("password=hunter2 in a message that nobody meant to show")
	_, err = c.Info(ctx(t))
	e = wantCode(t, err, api.CodeInternal)
	if strings.Contains(e.Error(), "hunter2") || e.RequestID == "" {
		t.Errorf("%+v", e)
	}
	wantCode(t, c.Resume(ctx(t), "x"), api.CodeInternal) // panics there
	l.fail = context.DeadlineExceeded
	_, err = c.Info(ctx(t))
	wantCode(t, err, api.CodeTimeout)
}

func TestBadRequests(t *testing.T) {
	t.Parallel()
	l := newLoopback()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	w := start(t, l, listener, "") // without TLS, to send what Client would not
	cases := []struct {
		method, path, body string
		want               api.Code
	}{
		{"POST", "create", `{"id":"a","colour":"red"}`, api.CodeUnknownField},
		{"POST", "create", `{"id":`, api.CodeInvalidRequest},
		{"POST", "create", ``, api.CodeInvalidRequest},
		{"POST", "create", `{"id":7}`, api.CodeInvalidRequest},
		{"POST", "create", `{"id":"a"} {"id":"b"}`, api.CodeInvalidRequest},
		{"POST", "create", `{"id":"` + strings.Repeat("a", 5<<20) + `"}`, api.CodeTooLarge},
		{"POST", "create", `{"id":"a"}` + strings.Repeat(" ", 5<<20), api.CodeTooLarge},
		{"GET", "create", ``, api.CodeNotFound},
		{"GET", "nonsense", ``, api.CodeNotFound},
		{"GET", "dial?id=x&port=80", ``, api.CodeInvalidRequest},
	}
	hc := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for _, c := range cases {
		req, err := http.NewRequestWithContext(ctx(t), c.method, "http://"+w.addr+"/host/v1/"+c.path, strings.NewReader(c.body))
		must(t, err)
		resp, err := hc.Do(req)
		must(t, err)
		text, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		must(t, err)
		if !bytes.Contains(text, []byte(`"`+string(c.want)+`"`)) {
			t.Errorf("%s %s %.40s: %s", c.method, c.path, c.body, text)
		}
	}
	if len(l.specs) != 0 {
		t.Errorf("a bad request made %v", l.specs)
	}
	plain := client(t, w.addr, nil)
	for _, port := range []int{0, -1, 65536} {
		_, err := plain.Dial(ctx(t), "x", port)
		wantCode(t, err, api.CodeInvalidRequest)
	}
}

func TestCancelledCallsEndOnBothSides(t *testing.T) {
	t.Parallel()
	l := newLoopback()
	l.block = make(chan struct{})
	c := serve(t, l).client(t)
	_, err := c.Info(ctx(t)) // connects, so that the time is the call's
	must(t, err)
	cancelled := func() (context.Context, context.CancelFunc) {
		ctx, cancel := context.WithCancel(t.Context())
		go func() { <-l.began; cancel() }()
		return ctx, cancel
	}
	timedOut := func() (context.Context, context.CancelFunc) {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		go func() { <-l.began }()
		return ctx, cancel
	}
	for _, end := range []struct {
		want api.Code
		with func() (context.Context, context.CancelFunc)
	}{{api.CodeCanceled, cancelled}, {api.CodeTimeout, timedOut}} {
		call, cancel := end.with()
		_, err := c.Create(call, host.Spec{ID: api.NewID()})
		wantCode(t, err, end.want)
		if !errors.Is(err, call.Err()) {
			t.Errorf("%v does not wrap %v", err, call.Err())
		}
		cancel()
		select {
		case err := <-l.ended:
			if err == nil {
				t.Error("the host's call was not cancelled")
			}
		case <-time.After(time.Minute):
			t.Fatal("the host goes on with a call whose caller is gone")
		}
	}
}

func TestUnreachable(t *testing.T) {
	t.Parallel()
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	closed.Close()
	c := client(t, closed.Addr().String(), nil)
	_, err = c.Info(ctx(t))
	wantCode(t, err, api.CodeHostUnreachable)
	_, err = c.Dial(ctx(t), "x", 80)
	wantCode(t, err, api.CodeHostUnreachable)
	_, err = c.Changes(ctx(t))
	wantCode(t, err, api.CodeHostUnreachable)

	other, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	s := &http.Server{Handler: http.NotFoundHandler()}
	done := make(chan error, 1)
	go func() { done <- s.Serve(other) }()
	defer func() { s.Close(); <-done }()
	c = client(t, other.Addr().String(), nil)
	_, err = c.Info(ctx(t))
	wantCode(t, err, api.CodeHostUnreachable)
	_, err = c.Dial(ctx(t), "x", 80)
	wantCode(t, err, api.CodeHostUnreachable)

	// One that accepts and says nothing.
	port := listen(t, func(c *net.TCPConn) { _, _ = io.Copy(io.Discard, c) })
	c = client(t, net.JoinHostPort("127.0.0.1", itoa(port)), nil)
	short, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	_, err = c.Dial(short, "x", 80)
	wantCode(t, err, api.CodeTimeout)
	_, err = c.Info(short)
	wantCode(t, err, api.CodeTimeout)
}

func TestChanges(t *testing.T) {
	t.Parallel()
	l := newLoopback()
	c := serve(t, l).client(t)
	listening, cancel := context.WithCancel(ctx(t))
	changes, err := c.Changes(listening)
	must(t, err)
	want := host.Change{SandboxID: "a", State: host.StateFailed, Error: api.Errorf(api.CodeSandboxDied, "it died")}
	l.changes <- want
	if got := <-changes; got.SandboxID != "a" || got.State != want.State || got.Error.Code != api.CodeSandboxDied {
		t.Errorf("%+v", got)
	}
	cancel()
	for range changes {
		t.Error("a change that did not happen")
	}
	// The host's end of the stream is the reader's.
	changes, err = c.Changes(ctx(t))
	must(t, err)
	close(l.changes)
	for range changes {
		t.Error("a change that did not happen")
	}
}

func TestChangesEndWithTheClient(t *testing.T) {
	t.Parallel()
	c := serve(t, newLoopback()).client(t)
	changes, err := c.Changes(ctx(t))
	must(t, err)
	must(t, c.Close())
	if _, ok := <-changes; ok {
		t.Error("a change that did not happen")
	}
	_, err = c.Changes(ctx(t))
	if err == nil {
		t.Error("a closed client listens")
	}
}
