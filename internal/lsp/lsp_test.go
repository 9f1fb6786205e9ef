package lsp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/pandastack/pandastack/api"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// script is a language server whose answers the test gives: what it is sent comes
// out of in, and what is put into say is what it writes.
type script struct {
	in     chan *message
	say    chan []byte
	killed chan struct{}
	once   sync.Once
	input  Decoder
}

func newScript() *script {
	return &script{in: make(chan *message, 100), say: make(chan []byte, 100), killed: make(chan struct{})}
}

func (s *script) Send(_ context.Context, p []byte) error {
	s.input.Write(p)
	for {
		msg, err := s.input.Next()
		if msg == nil || err != nil {
			return err
		}
		s.in <- decode(msg)
	}
}

func (s *script) Recv() ([]byte, error) {
	select {
	case p := <-s.say:
		return p, nil
	case <-s.killed:
		return nil, io.EOF
	}
}

func (s *script) Kill() { s.once.Do(func() { close(s.killed) }) }

// next is what the server is sent next.
func (s *script) next(t *testing.T) *message {
	t.Helper()
	select {
	case m := <-s.in:
		return m
	case <-time.After(30 * time.Second):
		t.Fatal("the server is sent nothing")
		return nil
	}
}

func (s *script) expect(t *testing.T, method string) *message {
	t.Helper()
	m := s.next(t)
	if m.Method != method {
		t.Fatalf("the server is sent %s, want %s", m.encode(), method)
	}
	return m
}

// tell lets the server write a message, in two pieces.
func (s *script) tell(text string) {
	p := Frame([]byte(text))
	s.say <- p[:len(p)/2]
	s.say <- p[len(p)/2:]
}

// quiet is an error if the server was sent something.
func (s *script) quiet(t *testing.T) {
	t.Helper()
	select {
	case m := <-s.in:
		t.Errorf("the server is sent %s", m.encode())
	default:
	}
}

type editor struct {
	*testing.T
	*Client
}

func join(t *testing.T, h *Hub) *editor {
	t.Helper()
	c, err := h.Join()
	if err != nil {
		t.Fatal(err)
	}
	return &editor{t, c}
}

func (e *editor) say(text string) {
	e.Helper()
	if err := e.Receive(e.Context(), []byte(text)); err != nil {
		e.Fatal(err)
	}
}

func (e *editor) hear() *message {
	e.Helper()
	ctx, cancel := context.WithTimeout(e.Context(), 30*time.Second)
	defer cancel()
	p, err := e.Next(ctx)
	if err != nil {
		e.Fatal(err)
	}
	return decode(p)
}

func (e *editor) expect(want string) {
	e.Helper()
	if got := string(e.hear().encode()); got != want {
		e.Fatalf("the client hears %s\nwant %s", got, want)
	}
}

// begun gives a hub with a server that one client has initialized.
func begun(t *testing.T, idle time.Duration) (*Hub, *script, *editor) {
	t.Helper()
	s := newScript()
	h := New(t.Context(), s, idle)
	t.Cleanup(h.Close)
	e := join(t, h)
	e.say(`{"jsonrpc":"2.0","id":"init","method":"initialize","params":{"processId":77,"rootUri":"file:///w"}}`)
	m := s.expect(t, "initialize")
	if string(m.ID) != "1" || string(m.Params) != `{"processId":null,"rootUri":"file:///w"}` {
		t.Fatalf("the server is sent %s", m.encode())
	}
	s.tell(`{"jsonrpc":"2.0","id":1,"result":{"capabilities":{"hoverProvider":true}}}`)
	e.expect(`{"jsonrpc":"2.0","id":"init","result":{"capabilities":{"hoverProvider":true}}}`)
	e.say(`{"jsonrpc":"2.0","method":"initialized","params":{}}`)
	s.expect(t, "initialized")
	return h, s, e
}

// second is another client of a server that is ready: what it is told does not
// come from the server.
func second(t *testing.T, h *Hub, s *script) *editor {
	t.Helper()
	e := join(t, h)
	e.say(`{"jsonrpc":"2.0","id":0,"method":"textDocument/hover"}`)
	if m := e.hear(); !bytes.Contains(m.Error, []byte("-32002")) {
		t.Errorf("before initialize: %s", m.encode())
	}
	e.say(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{}}`)
	e.expect(`{"jsonrpc":"2.0","id":0,"result":{"capabilities":{"hoverProvider":true}}}`)
	e.say(`{"jsonrpc":"2.0","method":"initialized","params":{}}`)
	s.quiet(t)
	return e
}

func TestSharing(t *testing.T) {
	t.Parallel()
	h, s, a := begun(t, 0)
	b := second(t, h, s)
	// Both use the id 1; the answers come in the other order.
	a.say(`{"jsonrpc":"2.0","id":1,"method":"textDocument/hover","params":{"from":"a"}}`)
	b.say(`{"jsonrpc":"2.0","id":1,"method":"textDocument/hover","params":{"from":"b"}}`)
	first, then := s.expect(t, "textDocument/hover"), s.expect(t, "textDocument/hover")
	if !strings.Contains(string(first.Params), `"a"`) || string(first.ID) == string(then.ID) {
		t.Fatalf("the server is sent %s and %s", first.encode(), then.encode())
	}
	s.tell(`{"jsonrpc":"2.0","id":` + string(then.ID) + `,"result":"for b"}`)
	s.tell(`{"jsonrpc":"2.0","id":` + string(first.ID) + `,"error":{"code":-1,"message":"for a"}}`)
	b.expect(`{"jsonrpc":"2.0","id":1,"result":"for b"}`)
	a.expect(`{"jsonrpc":"2.0","id":1,"error":{"code":-1,"message":"for a"}}`)

	// Notifications of the server are for all.
	s.tell(`{"jsonrpc":"2.0","method":"window/logMessage","params":{"type":1}}`)
	a.expect(`{"jsonrpc":"2.0","method":"window/logMessage","params":{"type":1}}`)
	b.expect(`{"jsonrpc":"2.0","method":"window/logMessage","params":{"type":1}}`)

	// shutdown and exit end one client.
	b.say(`{"jsonrpc":"2.0","id":2,"method":"shutdown"}`)
	b.expect(`{"jsonrpc":"2.0","id":2,"result":null}`)
	if err := b.Receive(t.Context(), []byte(`{"jsonrpc":"2.0","method":"exit"}`)); !errors.Is(err, io.EOF) {
		t.Errorf("exit: %v", err)
	}
	b.Leave()
	s.quiet(t)
	a.say(`{"jsonrpc":"2.0","id":3,"method":"textDocument/hover"}`)
	s.expect(t, "textDocument/hover")
}

func TestCancelAndLeave(t *testing.T) {
	t.Parallel()
	h, s, a := begun(t, 0)
	b := second(t, h, s)
	b.say(`{"jsonrpc":"2.0","id":"x","method":"textDocument/hover"}`)
	m := s.expect(t, "textDocument/hover")
	a.say(`{"jsonrpc":"2.0","method":"$/cancelRequest","params":{"id":"x"}}`) // not its own
	s.quiet(t)
	b.say(`{"jsonrpc":"2.0","method":"$/cancelRequest","params":{"id":"x"}}`)
	if c := s.expect(t, "$/cancelRequest"); string(c.Params) != `{"id":`+string(m.ID)+`}` {
		t.Errorf("the server is sent %s", c.encode())
	}
	b.Leave()
	s.expect(t, "$/cancelRequest")
	s.tell(`{"jsonrpc":"2.0","id":` + string(m.ID) + `,"result":null}`) // for nobody
	s.tell(`{"jsonrpc":"2.0","method":"telemetry/event"}`)
	a.expect(`{"jsonrpc":"2.0","method":"telemetry/event"}`)
}

func TestDocuments(t *testing.T) {
	t.Parallel()
	h, s, a := begun(t, 0)
	b := second(t, h, s)
	open := `{"jsonrpc":"2.0","method":"textDocument/didOpen","params":{"textDocument":{"uri":"file:///a","languageId":"x","version":1,"text":"%s"}}}`
	change := `{"jsonrpc":"2.0","method":"textDocument/didChange","params":{"textDocument":{"uri":"file:///a","version":%d},"contentChanges":[{"text":"%s"}]}}`
	closed := `{"jsonrpc":"2.0","method":"textDocument/didClose","params":{"textDocument":{"uri":"file:///a"}}}`
	b.say(fmt.Sprintf(change, 2, "not open"))
	a.say(fmt.Sprintf(open, "one"))
	s.expect(t, "textDocument/didOpen")
	a.say(fmt.Sprintf(change, 5, "two"))
	if m := s.expect(t, "textDocument/didChange"); !strings.Contains(string(m.Params), `"version":5`) {
		t.Errorf("%s", m.encode())
	}
	b.say(fmt.Sprintf(open, "three"))
	if m := s.expect(t, "textDocument/didChange"); string(m.Params) != `{"contentChanges":[{"text":"three"}],"textDocument":{"uri":"file:///a","version":6}}` {
		t.Errorf("a second open: %s", m.encode())
	}
	b.say(fmt.Sprintf(change, 2, "four"))
	if m := s.expect(t, "textDocument/didChange"); !strings.Contains(string(m.Params), `"version":7`) {
		t.Errorf("%s", m.encode())
	}
	s.tell(`{"jsonrpc":"2.0","method":"textDocument/publishDiagnostics","params":{"diagnostics":[],"uri":"file:///a","version":7}}`)
	for _, e := range []*editor{a, b} {
		e.expect(`{"jsonrpc":"2.0","method":"textDocument/publishDiagnostics","params":{"diagnostics":[],"uri":"file:///a"}}`)
	}
	a.say(closed)
	a.say(closed)
	s.quiet(t)
	b.Leave()
	if m := s.expect(t, "textDocument/didClose"); string(m.Params) != `{"textDocument":{"uri":"file:///a"}}` {
		t.Errorf("%s", m.encode())
	}
}

// TestAsks: requests of the server are answered once, by who is there.
func TestAsks(t *testing.T) {
	t.Parallel()
	h, s, a := begun(t, 0)
	s.tell(`{"jsonrpc":"2.0","id":"reg","method":"client/registerCapability","params":{"registrations":[{"id":"w","method":"m"}]}}`)
	a.expect(`{"jsonrpc":"2.0","id":"reg","method":"client/registerCapability","params":{"registrations":[{"id":"w","method":"m"}]}}`)
	a.say(`{"jsonrpc":"2.0","id":"reg","result":null}`)
	if m := s.next(t); string(m.encode()) != `{"jsonrpc":"2.0","id":"reg","result":null}` {
		t.Errorf("the server is sent %s", m.encode())
	}
	b := second(t, h, s)
	if m := b.hear(); m.Method != "client/registerCapability" || !strings.Contains(string(m.Params), `"w"`) {
		t.Errorf("one that comes later hears %s", m.encode())
	}
	b.say(`{"jsonrpc":"2.0","id":"pandastack/registrations","result":null}`)

	s.tell(`{"jsonrpc":"2.0","id":7,"method":"workspace/configuration","params":{"items":[{}]}}`)
	a.expect(`{"jsonrpc":"2.0","id":7,"method":"workspace/configuration","params":{"items":[{}]}}`)
	b.say(`{"jsonrpc":"2.0","id":7,"result":["forged"]}`) // it was not asked
	s.quiet(t)
	a.Leave() // the question goes to the next
	b.expect(`{"jsonrpc":"2.0","id":7,"method":"workspace/configuration","params":{"items":[{}]}}`)
	b.Leave()
	if m := s.next(t); string(m.encode()) != `{"jsonrpc":"2.0","id":7,"result":[null]}` {
		t.Errorf("without clients the server is sent %s", m.encode())
	}

	c, d := second(t, h, s), second(t, h, s)
	c.hear()
	d.hear()
	d.say(`{"jsonrpc":"2.0","id":1,"method":"workspace/executeCommand","params":{}}`)
	s.expect(t, "workspace/executeCommand")
	s.tell(`{"jsonrpc":"2.0","id":8,"method":"workspace/applyEdit","params":{}}`)
	d.expect(`{"jsonrpc":"2.0","id":8,"method":"workspace/applyEdit","params":{}}`)

	s.tell(`{"jsonrpc":"2.0","id":9,"method":"window/workDoneProgress/create","params":{"token":"t"}}`)
	c.hear()
	d.hear()
	c.say(`{"jsonrpc":"2.0","id":9,"error":{"code":1,"message":"no"}}`)
	s.quiet(t)
	d.say(`{"jsonrpc":"2.0","id":9,"result":null}`)
	if m := s.next(t); string(m.encode()) != `{"jsonrpc":"2.0","id":9,"result":null}` {
		t.Errorf("the server is sent %s", m.encode())
	}
}

func TestProgress(t *testing.T) {
	t.Parallel()
	h, s, a := begun(t, 0)
	b := second(t, h, s)
	b.say(`{"jsonrpc":"2.0","id":1,"method":"workspace/symbol","params":{"query":"q","workDoneToken":1}}`)
	m := s.expect(t, "workspace/symbol")
	var p struct{ WorkDoneToken string }
	if json.Unmarshal(m.Params, &p) != nil || p.WorkDoneToken == "" {
		t.Fatalf("the server is sent %s", m.encode())
	}
	s.tell(`{"jsonrpc":"2.0","method":"$/progress","params":{"token":"` + p.WorkDoneToken + `","value":1}}`)
	b.expect(`{"jsonrpc":"2.0","method":"$/progress","params":{"token":1,"value":1}}`)
	s.tell(`{"jsonrpc":"2.0","id":` + string(m.ID) + `,"result":null}`)
	b.expect(`{"jsonrpc":"2.0","id":1,"result":null}`)
	s.tell(`{"jsonrpc":"2.0","method":"$/progress","params":{"token":"` + p.WorkDoneToken + `","value":2}}`) // too late
	s.tell(`{"jsonrpc":"2.0","method":"$/progress","params":{"token":"its own","value":3}}`)
	a.expect(`{"jsonrpc":"2.0","method":"$/progress","params":{"token":"its own","value":3}}`)
	b.expect(`{"jsonrpc":"2.0","method":"$/progress","params":{"token":"its own","value":3}}`)
}

// TestFirstLeaves: initialize goes on for the others when the first client has
// left, and after an error the next may try.
func TestFirstLeaves(t *testing.T) {
	t.Parallel()
	s := newScript()
	h := New(t.Context(), s, 0)
	t.Cleanup(h.Close)
	a, b := join(t, h), join(t, h)
	a.say(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}`)
	s.expect(t, "initialize")
	b.say(`{"jsonrpc":"2.0","id":2,"method":"initialize","params":{}}`)
	a.Leave()
	s.tell(`{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"no"}}`)
	b.expect(`{"jsonrpc":"2.0","id":2,"error":{"code":1,"message":"no"}}`)
	b.say(`{"jsonrpc":"2.0","id":3,"method":"initialize","params":{}}`)
	s.expect(t, "initialize")
	s.tell(`{"jsonrpc":"2.0","id":2,"result":{}}`)
	b.expect(`{"jsonrpc":"2.0","id":3,"result":{}}`)
}

// TestIdle: the server is asked to end some time after its last client, and a
// new client within that time finds it as it was.
func TestIdle(t *testing.T) {
	t.Parallel()
	h, s, a := begun(t, time.Hour)
	a.Leave()
	b := second(t, h, s)
	h.mu.Lock()
	h.idle = time.Millisecond
	h.mu.Unlock()
	b.Leave()
	m := s.expect(t, "shutdown")
	if _, err := h.Join(); err != error(errEnded) {
		t.Errorf("join: %v", err)
	}
	s.tell(`{"jsonrpc":"2.0","id":` + string(m.ID) + `,"result":null}`)
	s.expect(t, "exit")
	s.Kill()
	<-h.Done()
}

// TestServerEnds: clients are told.
func TestServerEnds(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*script){
		"exits":   func(s *script) { s.Kill() },
		"babbles": func(s *script) { s.say <- []byte("Traceback (most recent call last):\r\n\r\n") },
	} {
		h, s, a := begun(t, 0)
		a.say(`{"jsonrpc":"2.0","id":1,"method":"textDocument/hover"}`)
		s.expect(t, "textDocument/hover")
		end(s)
		if p, err := a.Next(t.Context()); err == nil || errors.Is(err, io.EOF) {
			t.Errorf("%s: %q, %v", name, p, err)
		}
		<-h.Done()
		<-s.killed
		a.Leave()
	}
}

// TestSlowClient: one that does not read is dropped, and the others go on.
func TestSlowClient(t *testing.T) {
	t.Parallel()
	h, s, a := begun(t, 0)
	second(t, h, s)
	msg := `{"jsonrpc":"2.0","method":"window/logMessage","params":"` + strings.Repeat("x", 1<<20) + `"}`
	for range 80 {
		s.tell(msg)
		a.hear()
	}
	last := h.clients[1]
	for {
		if _, err := last.Next(t.Context()); err != nil {
			if api.CodeOf(err) != api.CodeTooLarge {
				t.Errorf("%v", err)
			}
			break
		}
	}
}

func TestPool(t *testing.T) {
	t.Parallel()
	var p Pool
	var mu sync.Mutex
	var scripts []*script
	start := func(context.Context) (Process, error) {
		mu.Lock()
		defer mu.Unlock()
		scripts = append(scripts, newScript())
		return scripts[len(scripts)-1], nil
	}
	var wg sync.WaitGroup
	for range 10 {
		for _, lang := range []string{"a", "b"} {
			wg.Go(func() {
				if _, err := p.Join(t.Context(), Key{"s", lang}, start); err != nil {
					t.Error(err)
				}
			})
		}
	}
	wg.Wait()
	if len(scripts) != 2 {
		t.Errorf("%d servers", len(scripts))
	}
	scripts[0].Kill() // the next client finds a new one
	for {
		if _, err := p.Join(t.Context(), Key{"s", "a"}, start); err == nil && len(scripts) == 3 {
			break
		}
		if _, err := p.Join(t.Context(), Key{"s", "b"}, start); err == nil && len(scripts) == 3 {
			break
		}
	}
	failed := errors.New("cannot start")
	if _, err := p.Join(t.Context(), Key{"s", "c"}, func(context.Context) (Process, error) { return nil, failed }); err != failed {
		t.Errorf("%v", err)
	}
	p.Close()
	if _, err := p.Join(t.Context(), Key{"s", "d"}, start); err == nil {
		t.Error("joined a closed pool")
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		p.mu.Lock()
		n := len(p.slots)
		p.mu.Unlock()
		if n == 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d slots are left", n)
		}
	}
}

func TestFrames(t *testing.T) {
	t.Parallel()
	stream := append(Frame([]byte(`{"a":1}`)), "content-length : 2\r\nContent-Type: x\r\n\r\n{}"...)
	for size := 1; size <= len(stream); size++ {
		var d Decoder
		var got []string
		for piece := range slices.Chunk(stream, size) {
			d.Write(piece)
			for {
				msg, err := d.Next()
				if err != nil {
					t.Fatal(err)
				}
				if msg == nil {
					break
				}
				got = append(got, string(msg))
			}
		}
		if !slices.Equal(got, []string{`{"a":1}`, `{}`}) {
			t.Fatalf("in pieces of %d: %q", size, got)
		}
	}
	for _, bad := range []string{
		"Content-Length: -1\r\n\r\n", "Content-Length: 99999999\r\n\r\n", "Content-Length: 2\r\nContent-Length: 3\r\n\r\n",
		"Content-Type: x\r\n\r\n", "hello\r\n\r\n", strings.Repeat("a", maxHeader), "Content-Length: 0x2\r\n\r\n",
	} {
		var d Decoder
		d.Write([]byte(bad))
		if msg, err := d.Next(); err == nil {
			t.Errorf("%.40q: %q", bad, msg)
		}
	}
}

func FuzzDecoder(f *testing.F) {
	f.Add([]byte("Content-Length: 2\r\n\r\n{}Content-Length: 1\r\n\r\n1"), 3)
	f.Add([]byte("Content-Length: 99999999999999999999\r\n\r\n"), 1)
	f.Add([]byte("\r\n\r\n"), 2)
	f.Fuzz(func(t *testing.T, stream []byte, size int) {
		whole, wholeErr := decodeAll(stream, len(stream))
		pieces, piecesErr := decodeAll(stream, size)
		if !slices.Equal(whole, pieces) || (wholeErr == nil) != (piecesErr == nil) {
			t.Errorf("whole %q %v, in pieces %q %v", whole, wholeErr, pieces, piecesErr)
		}
		for _, m := range whole {
			var d Decoder
			d.Write(Frame([]byte(m)))
			if again, err := d.Next(); err != nil || string(again) != m {
				t.Errorf("%q again: %q, %v", m, again, err)
			}
		}
	})
}

func decodeAll(stream []byte, size int) (out []string, err error) {
	var d Decoder
	for piece := range slices.Chunk(stream, max(1, size)) {
		d.Write(piece)
		for {
			msg, err := d.Next()
			if err != nil {
				return out, err
			}
			if msg == nil {
				break
			}
			out = append(out, string(msg))
		}
	}
	return out, nil
}

// FuzzHub: whatever the two sides say, nothing panics or hangs.
func FuzzHub(f *testing.F) {
	f.Add([]byte(`{"id":1,"method":"initialize","params":{"workDoneToken":1}}`), []byte(`{"id":1,"result":{}}`), []byte(`{"id":1,"method":"shutdown"}`))
	f.Add([]byte(`{"method":"textDocument/didOpen","params":{"textDocument":{"uri":"a"}}}`), []byte(`{"id":2,"method":"client/registerCapability","params":{"registrations":[{"id":"a"}]}}`), []byte(`{"id":2,"error":{}}`))
	f.Fuzz(func(t *testing.T, one, server, two []byte) {
		s := newScript()
		h := New(t.Context(), s, time.Hour)
		defer h.Close()
		a, _ := h.Join()
		b, _ := h.Join()
		a.Receive(t.Context(), []byte(`{"id":"i","method":"initialize","params":{}}`))
		h.fromServer([]byte(`{"id":1,"result":{}}`))
		for _, c := range []*Client{a, b} {
			c.Receive(t.Context(), one)
			h.fromServer(server)
			c.Receive(t.Context(), []byte(`{"method":"initialized"}`))
			c.Receive(t.Context(), two)
			h.fromServer(server)
		}
		a.Leave()
		h.fromServer(server)
		b.Receive(t.Context(), two)
		h.fail(errEnded)
		h.fromServer(server)
		b.Leave()
	})
}
