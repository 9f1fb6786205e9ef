package httpapi

import (
	"context"
	"testing"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/auth"
	"github.com/pandastack/pandastack/internal/guest"
)

func (f *wire) Series(_ context.Context, _ auth.Identity, id string, span, step time.Duration) (api.MetricsSeries, error) {
	f.note(func() { f.got = [2]time.Duration{span, step} })
	return api.MetricsSeries{SandboxID: id, StepSeconds: step.Seconds(), Samples: []api.MetricsSample{}}, f.err
}

func (f *wire) StartTerminal(ctx context.Context, _ auth.Identity, _ string, req api.Exec, size guest.Size) (*guest.Process, *guest.Client, error) {
	if f.err != nil {
		return nil, nil, f.err
	}
	f.note(func() { f.exec, f.got = req, size })
	p, err := f.start(ctx, req)
	return p, f.client, err
}

func (f *wire) Touch(string) {}

// TestTerminalMessages: only a whole message to the server is one; all else that
// comes as text is typed.
func TestTerminalMessages(t *testing.T) {
	t.Parallel()
	if m, ok := parseTerminalMessage([]byte(`{"type":"resize","rows":40,"cols":120}`)); !ok || m.Rows != 40 || m.Cols != 120 {
		t.Errorf("%+v, %v", m, ok)
	}
	for _, typed := range []string{"", "{", "a", "\x1b[A", `{"type":"exit"}`, `{"type":"resize","rows":-1,"cols":2}`, `{"type":"resize","rows":70000,"cols":2}`,
		`{"type":"resize","rows":1,"cols":2} `[1:], "x" + `{"type":"resize"}`, `{"type":"resize","rows":"1"}`} {
		if m, ok := parseTerminalMessage([]byte(typed)); ok {
			t.Errorf("%q is %+v", typed, m)
		}
	}
}

func FuzzTerminalMessage(f *testing.F) {
	f.Add([]byte(`{"type":"resize","rows":40,"cols":120}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if m, ok := parseTerminalMessage(data); ok && (m.Rows < 0 || m.Rows > maxTerminal || m.Cols < 0 || m.Cols > maxTerminal) {
			t.Errorf("%+v", m)
		}
	})
}

// TestTerminalRefuses: what is wrong is an ordinary answer, before the handshake.
func TestTerminalRefuses(t *testing.T) {
	t.Parallel()
	b := serve(t, &wire{err: api.Errorf(api.CodeSandboxNotFound, "none")})
	upgrade := []string{"Upgrade", "websocket", "Connection", "Upgrade", "Sec-WebSocket-Version", "13", "Sec-WebSocket-Key", "MDEyMzQ1Njc4OWFiY2RlZg=="}
	b.failure(b.do("GET", box+"/exec/pty", "", upgrade...), api.CodeSandboxNotFound)
	b.failure(b.do("GET", box+"/exec/pty?pid=7", "", upgrade...), api.CodeSandboxNotFound)
	if resp := b.do("GET", box+"/exec/pty", ""); resp.StatusCode != 426 {
		t.Errorf("without an upgrade: %d", resp.StatusCode)
	}
	for _, q := range []string{"rows=-1", "cols=65536", "rows=x", "term=a%20b", "pid=-2", "other=1"} {
		if resp := b.do("GET", box+"/exec/pty?"+q, "", upgrade...); resp.StatusCode < 400 || resp.StatusCode >= 500 || resp.StatusCode == 404 {
			t.Errorf("%s: %d", q, resp.StatusCode)
		}
	}
}

// TestSignalBodies reads a signal in each of its forms.
func TestSignalBodies(t *testing.T) {
	t.Parallel()
	b := serve(t, &wire{err: api.Errorf(api.CodeSandboxNotFound, "none")})
	path := box + "/processes/7/signal"
	for _, body := range []string{`{"signal":"SIGINT"}`, `{"signal":"usr1","tree":true}`, `{"signal":15}`, `{"signal":"9"}`} {
		b.failure(b.do("POST", path, body), api.CodeSandboxNotFound) // it was understood
	}
	for _, body := range []string{`{"signal":"SIGNO"}`, `{"signal":0}`, `{"signal":65}`, `{"signal":true}`, `{"signal":1.5}`, `{}`, `{"signal":null}`} {
		if resp := b.do("POST", path, body); resp.StatusCode < 400 || resp.StatusCode == 404 || resp.StatusCode >= 500 {
			t.Errorf("%s: %d", body, resp.StatusCode)
		}
	}
}

// TestSeriesQuery reads spans of time.
func TestSeriesQuery(t *testing.T) {
	t.Parallel()
	f := &wire{}
	b := serve(t, f)
	for q, want := range map[string][2]time.Duration{
		"": {time.Hour, 10 * time.Second}, "?range=15m&step=1m": {15 * time.Minute, time.Minute}, "?range=90": {90 * time.Second, 10 * time.Second}, "?range=1d": {24 * time.Hour, 10 * time.Second},
	} {
		if resp := b.do("GET", "/v1/metrics/sandbox/k3v9x0q2m7c1b8n4t6zd"+q, ""); resp.StatusCode != 200 {
			t.Errorf("%q: %d", q, resp.StatusCode)
		}
		f.note(func() {
			if f.got != want {
				t.Errorf("%q: %v", q, f.got)
			}
		})
	}
	for _, q := range []string{"?range=x", "?range=-1h", "?range=0", "?step=9999d", "?range=1h&other=1"} {
		if resp := b.do("GET", "/v1/metrics/sandbox/k3v9x0q2m7c1b8n4t6zd"+q, ""); resp.StatusCode < 400 || resp.StatusCode >= 500 {
			t.Errorf("%q: %d", q, resp.StatusCode)
		}
	}
}
