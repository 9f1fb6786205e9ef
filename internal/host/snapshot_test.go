package host_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/host"
)

func (l *loopback) ask(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.asked = append(l.asked, fmt.Sprintf(format, args...))
}

func (l *loopback) Fork(ctx context.Context, parent string, children []host.Spec) ([]host.Sandbox, error) {
	l.ask("fork %s %d", parent, len(children))
	if _, err := l.Get(ctx, parent); err != nil {
		return nil, err
	}
	var out []host.Sandbox
	for _, spec := range children {
		sb, err := l.Create(ctx, spec)
		if err != nil {
			return nil, err
		}
		out = append(out, sb)
	}
	return out, nil
}

func (l *loopback) Hibernate(ctx context.Context, id string) error {
	l.ask("hibernate %s", id)
	_, err := l.Get(ctx, id)
	return err
}

func (l *loopback) Wake(ctx context.Context, id string) (host.Sandbox, error) {
	l.ask("wake %s", id)
	return l.Get(ctx, id)
}

func (l *loopback) Rollback(ctx context.Context, id, snapshot string) (host.Sandbox, error) {
	l.ask("rollback %s %s", id, snapshot)
	if _, err := l.GetSnapshot(ctx, snapshot); err != nil {
		return host.Sandbox{}, err
	}
	return l.Get(ctx, id)
}

func (l *loopback) Snapshot(ctx context.Context, id string, spec host.SnapshotSpec) (host.Snapshot, error) {
	l.ask("snapshot %s", id)
	if _, err := l.Get(ctx, id); err != nil {
		return host.Snapshot{}, err
	}
	return l.keep(host.Snapshot{ID: spec.ID, SandboxID: id, Memory: spec.Memory, Template: "base", SizeBytes: 1 << 40, PauseMS: 1.5, CreatedAt: time.Unix(1e9, 42).UTC()})
}

func (l *loopback) keep(s host.Snapshot) (host.Snapshot, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, ok := l.snapshots[s.ID]; ok {
		return host.Snapshot{}, api.Errorf(api.CodeSnapshotExists, "%s exists", s.ID)
	}
	l.snapshots[s.ID] = s
	return s, nil
}

func (l *loopback) GetSnapshot(_ context.Context, snapshot string) (host.Snapshot, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s, ok := l.snapshots[snapshot]
	if !ok {
		return s, api.Errorf(api.CodeSnapshotNotFound, "no snapshot %q", snapshot)
	}
	return s, nil
}

func (l *loopback) Snapshots(context.Context) ([]host.Snapshot, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Collect(maps.Values(l.snapshots)), nil
}

func (l *loopback) DeleteSnapshot(_ context.Context, snapshot string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.snapshots, snapshot)
	return nil
}

func (l *loopback) Export(ctx context.Context, snapshot string) (io.ReadCloser, error) {
	if _, err := l.GetSnapshot(ctx, snapshot); err != nil {
		return nil, err
	}
	return l.export(ctx), nil
}

func (l *loopback) Import(ctx context.Context, spec host.SnapshotSpec, r io.Reader) (host.Snapshot, error) {
	if _, err := l.GetSnapshot(ctx, spec.ID); err == nil {
		return host.Snapshot{}, api.Errorf(api.CodeSnapshotExists, "%s exists", spec.ID)
	}
	if err := l.importing(ctx, r); err != nil {
		return host.Snapshot{}, err
	}
	return l.keep(host.Snapshot{ID: spec.ID, Memory: spec.Memory})
}

func TestSnapshotCallsAreTheSameOverTheWire(t *testing.T) {
	t.Parallel()
	l := newLoopback()
	c := serve(t, l).client(t)
	id := sandboxed(t, l)
	spec := host.SnapshotSpec{ID: api.NewSnapshotID(), Memory: true}
	made, err := c.Snapshot(ctx(t), id, spec)
	must(t, err)
	if made != l.snapshots[spec.ID] || !made.Memory || made.SandboxID != id {
		t.Errorf("%+v", made)
	}
	same(t, l, c, func(h host.Host) (any, error) { return h.GetSnapshot(ctx(t), spec.ID) })
	same(t, l, c, func(h host.Host) (any, error) { return h.Snapshots(ctx(t)) })
	same(t, l, c, func(h host.Host) (any, error) { return h.Wake(ctx(t), id) })
	same(t, l, c, func(h host.Host) (any, error) { return h.Rollback(ctx(t), id, spec.ID) })
	must(t, c.Hibernate(ctx(t), id))

	children := []host.Spec{{ID: api.NewID(), Token: "a", Env: map[string]string{"A": "b\n"}}, {ID: api.NewID(), Token: "b", Snapshot: spec.ID}}
	forked, err := c.Fork(ctx(t), id, children)
	must(t, err)
	for i, child := range children {
		if !reflect.DeepEqual(l.specs[child.ID], child) || forked[i].ID != child.ID {
			t.Errorf("child %d: the host got %+v and made %+v", i, l.specs[child.ID], forked[i])
		}
	}
	for _, want := range []string{"fork " + id + " 2", "hibernate " + id, "rollback " + id + " " + spec.ID} {
		if !slices.Contains(l.asked, want) {
			t.Errorf("the host was not asked for %q but for %q", want, l.asked)
		}
	}
	for range 2 {
		must(t, c.DeleteSnapshot(ctx(t), spec.ID))
	}
	_, err = c.GetSnapshot(ctx(t), spec.ID)
	wantCode(t, err, api.CodeSnapshotNotFound)
}

func TestSnapshotErrorsKeepTheirCode(t *testing.T) {
	t.Parallel()
	l := newLoopback()
	c := serve(t, l).client(t)
	id := sandboxed(t, l)
	_, err := c.Fork(ctx(t), "x", nil)
	wantCode(t, err, api.CodeSandboxNotFound)
	_, err = c.Fork(ctx(t), id, []host.Spec{{ID: id}})
	wantCode(t, err, api.CodeSandboxExists)
	wantCode(t, c.Hibernate(ctx(t), "x"), api.CodeSandboxNotFound)
	_, err = c.Wake(ctx(t), "x")
	wantCode(t, err, api.CodeSandboxNotFound)
	_, err = c.Rollback(ctx(t), id, "a&b=c")
	wantCode(t, err, api.CodeSnapshotNotFound)
	_, err = c.Snapshot(ctx(t), "x", host.SnapshotSpec{})
	wantCode(t, err, api.CodeSandboxNotFound)
	_, err = c.Export(ctx(t), "x")
	wantCode(t, err, api.CodeSnapshotNotFound)
}

// snapshotted is a host with one snapshot.
func snapshotted(t *testing.T) (*loopback, string) {
	t.Helper()
	l := newLoopback()
	s, err := l.keep(host.Snapshot{ID: api.NewSnapshotID()})
	must(t, err)
	return l, s.ID
}

func randomBytes(n int) []byte {
	b := make([]byte, n)
	rand.Read(b)
	return b
}

// closing reports its Close.
type closing struct {
	io.Reader
	closed chan struct{}
}

func (c closing) Close() error { close(c.closed); return nil }

func TestExportStreams(t *testing.T) {
	t.Parallel()
	l, id := snapshotted(t)
	c := serve(t, l).client(t)
	for _, size := range []int{0, 1, 33 << 20} {
		want, file := randomBytes(size), closing{closed: make(chan struct{})}
		file.Reader = bytes.NewReader(want)
		l.export = func(context.Context) io.ReadCloser { return file }
		r, err := c.Export(ctx(t), id)
		must(t, err)
		got, err := io.ReadAll(r)
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%d bytes of %d, %v", len(got), size, err)
		}
		must(t, r.Close())
		<-file.closed
	}
	// The connection is good for other calls, also when the deadlines of the
	// export are over.
	_, err := c.Info(ctx(t))
	must(t, err)
}

// panicking is a file that is a fault of the host.
type panicking struct{}

func (panicking) Read([]byte) (int, error) { panic("a fault of the host") }

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// TestExportThatFails has the file fail where the answer has long begun.
func TestExportThatFails(t *testing.T) {
	t.Parallel()
	l, id := snapshotted(t)
	c := serve(t, l).client(t)
	corrupt := api.Errorf(api.CodeSnapshotCorrupt, "chunk \"7\"\r\nis nöt what it was").With("chunk", 7.0)
	for _, f := range []struct {
		end  io.Reader
		want api.Code
	}{
		{failing{corrupt}, api.CodeSnapshotCorrupt},
		{failing{errors.New("hunter2")}, api.CodeInternal},
		{panicking{}, api.CodeInternal},
		{failing{api.Errorf(api.CodeSnapshotStore, "%s", strings.Repeat("long ", 1<<20))}, api.CodeSnapshotStore},
	} {
		for _, size := range []int{0, 1, 5 << 20} {
			want := randomBytes(size)
			l.export = func(context.Context) io.ReadCloser {
				return io.NopCloser(io.MultiReader(bytes.NewReader(want), f.end))
			}
			r, err := c.Export(ctx(t), id)
			must(t, err)
			got, err := io.ReadAll(r)
			e := wantCode(t, err, f.want)
			if !bytes.Equal(got, want) {
				t.Errorf("%d bytes of %d before the error, or others", len(got), size)
			}
			if strings.Contains(e.Error(), "hunter2") || f.want == api.CodeInternal && e.RequestID == "" {
				t.Errorf("%+v", e)
			}
			if f.want == api.CodeSnapshotCorrupt && (e.Message != corrupt.Message || e.Details["chunk"] != 7.0 || e.Hint == "") {
				t.Errorf("%+v", e)
			}
			must(t, r.Close())
		}
	}
}

// endless is a file without end that counts what was taken.
type endless struct {
	ctx   context.Context
	taken *atomic.Int64
	ended chan struct{}
}

func (e endless) Read(p []byte) (int, error) {
	if e.ctx.Err() != nil {
		return 0, e.ctx.Err()
	}
	e.taken.Add(int64(len(p)))
	return len(p), nil
}

func (e endless) Close() error { close(e.ended); return nil }

func endlessExport(l *loopback) endless {
	e := endless{taken: new(atomic.Int64), ended: make(chan struct{})}
	l.export = func(ctx context.Context) io.ReadCloser { e.ctx = ctx; return e }
	return e
}

func within(t *testing.T, what string, done <-chan struct{}) {
	t.Helper()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Fatal(what)
	}
}

func TestExportEndsOnBothSides(t *testing.T) {
	t.Parallel()
	l, id := snapshotted(t)
	w := serve(t, l)
	c := w.client(t)

	e := endlessExport(l)
	r, err := c.Export(ctx(t), id)
	must(t, err)
	_, err = io.ReadFull(r, make([]byte, 1<<20))
	must(t, err)
	must(t, r.Close())
	within(t, "the host goes on with an export that nobody reads", e.ended)

	e = endlessExport(l)
	call, cancel := context.WithCancel(t.Context())
	r, err = c.Export(call, id)
	must(t, err)
	cancel()
	_, err = io.Copy(io.Discard, r)
	wantCode(t, err, api.CodeCanceled)
	must(t, r.Close())
	within(t, "the host goes on with an export that was given up", e.ended)

	// A host that dies does not end a file.
	e = endlessExport(l)
	r, err = c.Export(ctx(t), id)
	must(t, err)
	defer r.Close()
	_, err = io.ReadFull(r, make([]byte, 1<<20))
	must(t, err)
	w.server.Close()
	_, err = io.Copy(io.Discard, r)
	wantCode(t, err, api.CodeHostUnreachable)
	within(t, "the host goes on after its end", e.ended)
}

// TestExportWithoutAnOutcome reads from a server that ends the file properly and
// says nothing of it.
func TestExportWithoutAnOutcome(t *testing.T) {
	t.Parallel()
	for _, answer := range []string{
		"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: Pandastack-Outcome\r\n\r\n5\r\nhello\r\n0\r\nPandastack-Outcome: x\r\n\r\n",
	} {
		port := listen(t, func(c *net.TCPConn) {
			_, _ = c.Read(make([]byte, 4096))
			_, _ = io.WriteString(c, answer)
		})
		r, err := client(t, net.JoinHostPort("127.0.0.1", itoa(port)), nil).Export(ctx(t), "x")
		must(t, err)
		_, err = io.ReadAll(r)
		wantCode(t, err, api.CodeHostUnreachable)
		must(t, r.Close())
	}
}

func TestImportStreams(t *testing.T) {
	t.Parallel()
	l := newLoopback()
	c := serve(t, l).client(t)
	for _, size := range []int{0, 1, 70 << 20} { // more than any other request or answer may have
		want := randomBytes(size)
		l.importing = func(_ context.Context, r io.Reader) error {
			got, err := io.ReadAll(r)
			if !bytes.Equal(got, want) {
				t.Errorf("%d bytes of %d, %v", len(got), size, err)
			}
			return err
		}
		spec := host.SnapshotSpec{ID: api.NewSnapshotID(), Memory: size > 0}
		s, err := c.Import(ctx(t), spec, struct{ io.Reader }{bytes.NewReader(want)})
		if err != nil || s.ID != spec.ID || s.Memory != spec.Memory {
			t.Errorf("%+v, %v", s, err)
		}
	}
}

// TestImportDoesNotBuffer sends each byte only when the host has the one before.
func TestImportDoesNotBuffer(t *testing.T) {
	t.Parallel()
	l := newLoopback()
	c := serve(t, l).client(t)
	file, write := io.Pipe()
	arrived := make(chan struct{})
	l.importing = func(_ context.Context, r io.Reader) error {
		defer close(arrived)
		for {
			if _, err := io.ReadFull(r, make([]byte, 1)); err != nil {
				return ignoreEOF(err)
			}
			arrived <- struct{}{}
		}
	}
	go func() {
		for range 20 {
			_, _ = write.Write([]byte{1}) // fails when nobody reads, which Import tells
			<-arrived
		}
		write.Close()
	}()
	_, err := c.Import(ctx(t), host.SnapshotSpec{ID: "a"}, file)
	must(t, err)
}

// TestImportThatIsRefused has the host answer before it has read the file.
func TestImportThatIsRefused(t *testing.T) {
	t.Parallel()
	l, id := snapshotted(t)
	c := serve(t, l).client(t)
	file := &counted{Reader: endless{ctx: t.Context(), taken: new(atomic.Int64)}}
	_, err := c.Import(ctx(t), host.SnapshotSpec{ID: id}, file)
	wantCode(t, err, api.CodeSnapshotExists)
	if n := file.n.Load(); n != 0 {
		t.Errorf("%d bytes of a file were sent that the host did not want", n)
	}
	for _, after := range []int64{1, 1 << 20, 20 << 20} {
		l.importing = func(_ context.Context, r io.Reader) error {
			if _, err := io.CopyN(io.Discard, r, after); err != nil {
				return err
			}
			return api.Errorf(api.CodeSnapshotCorrupt, "that is not a snapshot")
		}
		file := &counted{Reader: endless{ctx: t.Context(), taken: new(atomic.Int64)}}
		_, err := c.Import(ctx(t), host.SnapshotSpec{ID: "b"}, file)
		wantCode(t, err, api.CodeSnapshotCorrupt)
		n := file.n.Load()
		time.Sleep(10 * time.Millisecond)
		if file.n.Load() != n {
			t.Error("the file is read after Import has returned")
		}
	}
}

func ignoreEOF(err error) error {
	if err == io.EOF {
		return nil
	}
	return err
}

type counted struct {
	io.Reader
	n atomic.Int64
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.n.Add(int64(n))
	return n, err
}

// TestImportThatFails has the file fail on the client's side.
func TestImportThatFails(t *testing.T) {
	t.Parallel()
	l := newLoopback()
	c := serve(t, l).client(t)
	for _, f := range []struct {
		err  error
		want api.Code
	}{
		{errors.New("a disk's own trouble"), api.CodeInvalidRequest},
		{api.Errorf(api.CodeTooLarge, "too large"), api.CodeTooLarge},
		{io.ErrUnexpectedEOF, api.CodeInvalidRequest},
	} {
		ended := make(chan struct{})
		l.importing = func(ctx context.Context, r io.Reader) error {
			defer close(ended)
			_, err := io.Copy(io.Discard, r)
			if err == nil || ctx.Err() == nil {
				t.Errorf("a file that failed has an end: %v, context %v", err, ctx.Err())
			}
			return err
		}
		_, err := c.Import(ctx(t), host.SnapshotSpec{ID: "a"}, io.MultiReader(bytes.NewReader(randomBytes(1<<20)), failing{f.err}))
		wantCode(t, err, f.want)
		if !errors.Is(err, f.err) {
			t.Errorf("%v does not wrap %v", err, f.err)
		}
		within(t, "the host goes on with a file that failed", ended)
	}
	if len(l.snapshots) != 0 {
		t.Errorf("kept: %v", l.snapshots)
	}
}

func TestImportEndsOnBothSides(t *testing.T) {
	t.Parallel()
	l := newLoopback()
	w := serve(t, l)
	c := w.client(t)
	began, ended := make(chan struct{}, 1), make(chan struct{}, 1)
	l.importing = func(ctx context.Context, r io.Reader) error {
		_, err := io.CopyN(io.Discard, r, 1<<20)
		began <- struct{}{}
		if err == nil {
			_, err = io.Copy(io.Discard, r)
		}
		<-ctx.Done() // what is not reading must hear of it as well
		ended <- struct{}{}
		return err
	}
	ender := func(how func()) func() { return func() { <-began; how() } }
	call, cancel := context.WithCancel(t.Context())
	go ender(cancel)()
	_, err := c.Import(call, host.SnapshotSpec{ID: "a"}, endless{ctx: t.Context(), taken: new(atomic.Int64)})
	wantCode(t, err, api.CodeCanceled)
	within(t, "the host goes on with a file whose sender is gone", ended)

	go ender(func() { w.server.Close() })()
	_, err = c.Import(ctx(t), host.SnapshotSpec{ID: "a"}, endless{ctx: t.Context(), taken: new(atomic.Int64)})
	wantCode(t, err, api.CodeHostUnreachable)
	within(t, "the host goes on after its end", ended)
	if len(l.snapshots) != 0 {
		t.Errorf("kept: %v", l.snapshots)
	}
}

func TestBadSnapshotRequests(t *testing.T) {
	t.Parallel()
	l, id := snapshotted(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	w := start(t, l, listener, "")
	l.importing = func(context.Context, io.Reader) error { t.Error("imported"); return nil }
	hc := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for _, c := range []struct {
		method, path, body string
		want               api.Code
	}{
		{"POST", "fork?id=x", `[{"id":"a","colour":"red"}]`, api.CodeUnknownField},
		{"POST", "fork?id=x", `{"id":"a"}`, api.CodeInvalidRequest},
		{"POST", "fork?id=x", ``, api.CodeInvalidRequest},
		{"POST", "snapshot?id=x", `{"id":"a","name":"b"}`, api.CodeUnknownField},
		{"POST", "snapshot?id=x", `{"id":"a"} {}`, api.CodeInvalidRequest},
		{"POST", "import?id=a", `x`, api.CodeInvalidRequest},
		{"POST", "import?id=a&memory=perhaps", `x`, api.CodeInvalidRequest},
		{"POST", "import?id=" + id + "&memory=true", `x`, api.CodeSnapshotExists},
		{"GET", "fork?id=x", ``, api.CodeNotFound},
		{"POST", "export?id=x", ``, api.CodeNotFound},
		{"GET", "export?id=x", ``, api.CodeSnapshotNotFound},
	} {
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
	if len(l.specs) != 0 || len(l.snapshots) != 1 {
		t.Errorf("a bad request made %v %v", l.specs, l.snapshots)
	}
}
