package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/auth"
	"github.com/pandastack/pandastack/internal/control"
	"github.com/pandastack/pandastack/internal/guest"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

// transport keeps no connections, so that none is left at the end.
var transport = &http.Transport{DisableKeepAlives: true}

// wire stands behind the API in tests of what happens on the wire. It has no
// rules: every answer is a field. Control and Keys themselves are tested where
// they live, and together with this package in internal/server.
type wire struct {
	onceKey string // of the last CreateOnce
	err     error  // answer of everything, if set
	sandbox api.Sandbox
	result  api.ExecResult
	stream  func(ctx context.Context, emit func(api.ExecEvent) error) error
	events  []api.Event
	follow  func(ctx context.Context, since int64, emit func(api.Event) error) error
	client  *guest.Client
	start   func(ctx context.Context, req api.Exec) (*guest.Process, error)
	panics  bool

	snapshot api.Snapshot
	page     api.SnapshotList
	timeline api.Timeline
	tree     api.ForkTree
	lineage  api.Tree
	export   io.ReadCloser

	mu     sync.Mutex
	create api.CreateSandbox
	exec   api.Exec
	list   control.ListQuery
	event  control.EventQuery
	life   api.Lifecycle
	got    any      // the request of the last of the other calls
	uses   []string // sandboxes whose use began
	using  int      // uses that have not ended
}

func (f *wire) note(fn func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	fn()
}

func (f *wire) CreateOnce(ctx context.Context, who auth.Identity, key string, req api.CreateSandbox) (api.Sandbox, error) {
	f.onceKey = key
	return f.Create(ctx, who, req)
}

func (f *wire) Create(_ context.Context, _ auth.Identity, req api.CreateSandbox) (api.Sandbox, error) {
	f.note(func() { f.create = req })
	return f.sandbox, f.err
}
func (f *wire) Get(context.Context, auth.Identity, string) (api.Sandbox, error) {
	if f.panics {
		panic("kaboom")
	}
	return f.sandbox, f.err
}
func (f *wire) List(_ context.Context, _ auth.Identity, q control.ListQuery) (api.SandboxList, error) {
	f.note(func() { f.list = q })
	return api.SandboxList{Sandboxes: []api.Sandbox{f.sandbox}}, f.err
}
func (f *wire) Delete(context.Context, auth.Identity, string) error { return f.err }
func (f *wire) Pause(context.Context, auth.Identity, string) (api.Sandbox, error) {
	return f.sandbox, f.err
}
func (f *wire) Resume(context.Context, auth.Identity, string) (api.Sandbox, error) {
	return f.sandbox, f.err
}
func (f *wire) Lifecycle(context.Context, auth.Identity, string) (api.Lifecycle, error) {
	return api.Lifecycle{}, f.err
}
func (f *wire) SetLifecycle(_ context.Context, _ auth.Identity, _ string, l api.Lifecycle) (api.Lifecycle, error) {
	f.note(func() { f.life = l })
	return l, f.err
}
func (f *wire) Hibernate(context.Context, auth.Identity, string) (api.Sandbox, error) {
	return f.sandbox, f.err
}
func (f *wire) Wake(context.Context, auth.Identity, string) (api.Sandbox, error) {
	return f.sandbox, f.err
}
func (f *wire) UseBy(_ context.Context, who auth.Identity, id string) func() {
	f.note(func() { f.uses = append(f.uses, who.Org+" "+id); f.using++ })
	return func() { f.note(func() { f.using-- }) }
}
func (f *wire) Snapshot(_ context.Context, _ auth.Identity, _ string, req api.CreateSnapshot) (api.Snapshot, error) {
	f.note(func() { f.got = req })
	return f.snapshot, f.err
}
func (f *wire) Snapshots(_ context.Context, _ auth.Identity, q control.SnapshotQuery) (api.SnapshotList, error) {
	f.note(func() { f.got = q })
	return f.page, f.err
}
func (f *wire) GetSnapshot(_ context.Context, _ auth.Identity, idOrName string) (api.Snapshot, error) {
	f.note(func() { f.got = idOrName })
	return f.snapshot, f.err
}
func (f *wire) DeleteSnapshot(_ context.Context, _ auth.Identity, idOrName string) error {
	f.note(func() { f.got = idOrName })
	return f.err
}
func (f *wire) ExportSnapshot(context.Context, auth.Identity, string) (api.Snapshot, io.ReadCloser, error) {
	return f.snapshot, f.export, f.err
}

// ImportSnapshot counts the bytes of the file in the record.
func (f *wire) ImportSnapshot(_ context.Context, _ auth.Identity, name string, file io.Reader) (api.Snapshot, error) {
	if f.err != nil {
		return api.Snapshot{}, f.err
	}
	n, err := io.Copy(io.Discard, file)
	if err != nil {
		return api.Snapshot{}, api.Wrap(api.CodeSnapshotCorrupt, err, "the file ends too early")
	}
	s := f.snapshot
	s.Name, s.SizeBytes = name, n
	return s, nil
}
func (f *wire) Checkpoint(_ context.Context, _ auth.Identity, _ string, req api.Checkpoint) (api.Snapshot, error) {
	f.note(func() { f.got = req })
	return f.snapshot, f.err
}
func (f *wire) Timeline(context.Context, auth.Identity, string) (api.Timeline, error) {
	return f.timeline, f.err
}
func (f *wire) Restore(_ context.Context, _ auth.Identity, _ string, req api.Restore) (api.Sandbox, error) {
	f.note(func() { f.got = req })
	return f.sandbox, f.err
}
func (f *wire) Fork(_ context.Context, _ auth.Identity, _ string, req api.Fork) (api.ForkTree, error) {
	f.note(func() { f.got = req })
	return f.tree, f.err
}
func (f *wire) Promote(_ context.Context, _ auth.Identity, _ string, req api.Promote) (api.Promoted, error) {
	f.note(func() { f.got = req })
	return api.Promoted{Sandbox: f.sandbox}, f.err
}
func (f *wire) Tree(context.Context, auth.Identity, string) (api.Tree, error) {
	return f.lineage, f.err
}
func (f *wire) Guest(context.Context, auth.Identity, string) (*guest.Client, error) {
	return f.client, f.err
}
func (f *wire) Exec(ctx context.Context, _ auth.Identity, _ string, req api.Exec) (api.ExecResult, error) {
	f.note(func() { f.exec = req })
	return f.result, f.err
}
func (f *wire) ExecStream(ctx context.Context, _ auth.Identity, _ string, req api.Exec, emit func(api.ExecEvent) error) error {
	f.note(func() { f.exec = req })
	if f.stream == nil {
		return f.err
	}
	return f.stream(ctx, emit)
}
func (f *wire) StartCommand(ctx context.Context, _ auth.Identity, _ string, req api.Exec) (*guest.Process, *guest.Client, error) {
	if f.err != nil {
		return nil, nil, f.err
	}
	p, err := f.start(ctx, req)
	return p, f.client, err
}
func (f *wire) Events(_ context.Context, _ auth.Identity, _ string, q control.EventQuery) ([]api.Event, error) {
	f.note(func() { f.event = q })
	return f.events, f.err
}
func (f *wire) FollowEvents(ctx context.Context, _ auth.Identity, _ string, since int64, emit func(api.Event) error) error {
	return f.follow(ctx, since, emit)
}
func (f *wire) Logs(ctx context.Context, _ auth.Identity, _ string, o guest.LogOptions) (*guest.LogStream, error) {
	if f.err != nil {
		return nil, f.err
	}
	return f.client.Logs(ctx, o)
}
func (f *wire) Metrics(context.Context, auth.Identity, string) (api.Metrics, error) {
	return api.Metrics{PID: 7}, f.err
}
func (f *wire) Templates(context.Context, auth.Identity) (api.TemplateList, error) {
	return api.TemplateList{Templates: []api.Template{{Name: "base", Status: "ready"}}}, f.err
}
func (f *wire) Template(_ context.Context, _ auth.Identity, name string) (api.Template, error) {
	return api.Template{Name: name, Status: "ready"}, f.err
}
func (f *wire) Ready(context.Context) api.Health {
	if f.err != nil {
		return api.Health{Status: "starting", Detail: "making the base image"}
	}
	return api.Health{Status: "ok"}
}

// wireKeys admits two keys.
type wireKeys struct{ Keys }

const (
	userKey  = "pds_user"
	adminKey = "pds_admin"
)

func (wireKeys) Authenticate(_ context.Context, secret string) (auth.Identity, error) {
	switch secret {
	case userKey:
		return auth.Identity{Org: "o", Name: "user", KeyPrefix: "pds_1"}, nil
	case adminKey:
		return auth.Identity{Org: "o", Name: "admin", KeyPrefix: "pds_2", Admin: true}, nil
	}
	return auth.Identity{}, api.Errorf(api.CodeInvalidToken, "the API key is not valid")
}

func (wireKeys) Create(_ context.Context, _ auth.Identity, req api.CreateToken) (api.NewToken, error) {
	return api.NewToken{Token: api.Token{Name: req.Name}, Key: "pds_new"}, nil
}

// logBuffer collects a log that goroutines write.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

type bench struct {
	*testing.T
	api *API
	url string
	log *logBuffer
}

// serve starts the API on a real connection.
func serve(t *testing.T, c Control) *bench {
	t.Helper()
	log := &logBuffer{}
	a := New(Deps{
		Control: c, Keys: wireKeys{}, Version: api.Version{Version: "test"},
		Log:       slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		KeepAlive: 50 * time.Millisecond,
		States:    func(context.Context) (map[string]int, error) { return map[string]int{"running": 3}, nil },
	})
	srv := httptest.NewServer(a)
	t.Cleanup(func() {
		srv.CloseClientConnections()
		srv.Close()
		if err := a.Wait(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return &bench{t, a, srv.URL, log}
}

// do sends a request with the user's key unless headers say otherwise; pairs
// of headers with an empty value are removed.
func (b *bench) do(method, path, body string, headers ...string) *http.Response {
	b.Helper()
	var rd io.Reader
	if body != "" {
		rd = strings.NewReader(body)
	}
	req, err := http.NewRequestWithContext(b.Context(), method, b.url+path, rd)
	if err != nil {
		b.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+userKey)
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i+1 < len(headers); i += 2 {
		if headers[i+1] == "" {
			req.Header.Del(headers[i])
		} else {
			req.Header.Set(headers[i], headers[i+1])
		}
	}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { resp.Body.Close() })
	return resp
}

func (b *bench) read(resp *http.Response) string {
	b.Helper()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		b.Fatal(err)
	}
	resp.Body.Close()
	return string(data)
}

// failure reads an error answer and checks what all of them share.
func (b *bench) failure(resp *http.Response, code api.Code) *api.Error {
	b.Helper()
	body := b.read(resp)
	dec := json.NewDecoder(strings.NewReader(body))
	dec.DisallowUnknownFields()
	var env api.Envelope
	if err := dec.Decode(&env); err != nil || env.Error == nil {
		b.Fatalf("not an envelope: %q (%v)", body, err)
	}
	if env.Error.Code != code {
		b.Errorf("code %s, want %s: %s", env.Error.Code, code, body)
	}
	if id := resp.Header.Get("X-Request-Id"); id == "" || id != env.Error.RequestID {
		b.Errorf("request id %q in the header, %q in the body", id, env.Error.RequestID)
	}
	if resp.Header.Get("Content-Type") != "application/json" {
		b.Errorf("content type %q", resp.Header.Get("Content-Type"))
	}
	if _, ok := env.Error.Details["retryable"].(bool); !ok {
		b.Errorf("details without retryable: %s", body)
	}
	return env.Error
}
