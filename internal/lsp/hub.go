package lsp

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/pandastack/pandastack/api"
)

// Process is a running language server.
type Process interface {
	// Send writes to its standard input and returns when that is taken.
	Send(ctx context.Context, p []byte) error
	// Recv gives the next piece of its standard output. It ends with an error,
	// io.EOF if the process ended.
	Recv() ([]byte, error)
	// Kill ends it and makes Recv end. It may be called more than once.
	Kill()
}

// initState is how far the server has come.
type initState int

const (
	fresh initState = iota
	initializing
	ready
)

// Hub is one language server with its clients.
type Hub struct {
	proc     Process
	idle     time.Duration
	cancel   context.CancelFunc
	toServer *queue
	done     chan struct{} // closed when the server has ended and all is let go
	workers  sync.WaitGroup

	mu            sync.Mutex
	clients       []*Client // in the order in which they came
	state         initState
	initResult    json.RawMessage
	waiting       []waiter // for the result of initialize
	initialized   bool     // the server was told
	nextID        int64
	calls         map[int64]*call
	asks          map[string]*ask
	tokens        map[string]token
	docs          map[string]*document
	registrations map[string]json.RawMessage
	retiring      bool
	timer         *time.Timer
	err           error // why it ended
}

// waiter is a client whose initialize is not answered yet.
type waiter struct {
	client *Client
	id     json.RawMessage
}

// call is a request to the server that has no answer yet.
type call struct {
	client *Client // nil: nobody waits any more
	id     json.RawMessage
	method string
	tokens []string
	done   chan struct{} // of a request of the hub's own
}

// ask is a request of the server that has no answer yet.
type ask struct {
	msg     *message
	targets []*Client
}

// token is a progress token of one client under a name that no other has.
type token struct {
	client *Client
	raw    json.RawMessage
}

// document is one that some client has open.
type document struct {
	version int64
	skewed  bool // the server's version is not the clients'
	clients map[*Client]struct{}
}

// New begins to serve a language server. It lives until it ends by itself, Close is
// called, or it had no client for idle (0 is some minutes); the end of ctx is Close.
func New(ctx context.Context, proc Process, idle time.Duration) *Hub {
	if idle <= 0 {
		idle = defaultIdle
	}
	h := &Hub{
		proc: proc, idle: idle, toServer: newQueue(), done: make(chan struct{}),
		calls: map[int64]*call{}, asks: map[string]*ask{}, tokens: map[string]token{},
		docs: map[string]*document{}, registrations: map[string]json.RawMessage{},
	}
	ctx, h.cancel = context.WithCancel(ctx)
	h.timer = time.AfterFunc(idle, h.retire)
	stop := context.AfterFunc(ctx, proc.Kill)
	h.workers.Go(h.read)
	h.workers.Go(func() { h.write(ctx) })
	go func() {
		h.workers.Wait()
		stop()
		h.timer.Stop()
		close(h.done)
	}()
	return h
}

// Done is closed when the server has ended.
func (h *Hub) Done() <-chan struct{} { return h.done }

// Close ends the server at once and waits for that.
func (h *Hub) Close() {
	h.fail(errEnded)
	<-h.done
}

var errEnded = api.Errorf(api.CodeSandboxDied, "the language server ended").WithHint("Connect again; a new one is started.")

// read takes what the server says until it ends.
func (h *Hub) read() {
	var d Decoder
	for {
		p, err := h.proc.Recv()
		if errors.Is(err, io.EOF) {
			err = errEnded
		}
		if err != nil {
			h.fail(err)
			return
		}
		d.Write(p)
		for {
			msg, err := d.Next()
			if err != nil {
				h.fail(err)
				return
			}
			if msg == nil {
				break
			}
			h.fromServer(msg)
		}
	}
}

// write hands the server what waits for it.
func (h *Hub) write(ctx context.Context) {
	for {
		msg, err := h.toServer.take(ctx)
		if err == nil {
			err = h.proc.Send(ctx, Frame(msg))
		}
		if err != nil {
			h.fail(err)
			return
		}
	}
}

// fail ends the server and lets its clients go with the reason.
func (h *Hub) fail(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.err != nil {
		return
	}
	h.err = err
	h.toServer.close(err)
	for _, c := range h.clients {
		c.out.close(err)
		clear(c.calls)
	}
	for _, k := range h.calls {
		if k.done != nil {
			close(k.done)
		}
	}
	clear(h.calls)
	h.cancel() // kills the process
}

// send puts a message for the server. One that takes nothing for so long has
// failed.
func (h *Hub) send(msg []byte) {
	if !h.toServer.put(msg) {
		go h.fail(api.Errorf(api.CodeSandboxDied, "the language server does not read its input"))
	}
}

// Join makes a new client, or fails when the server is about to end or has too
// many.
func (h *Hub) Join() (*Client, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.err != nil || h.retiring {
		return nil, errEnded
	}
	if len(h.clients) >= maxClients {
		return nil, api.Errorf(api.CodeRateLimited, "the language server has %d clients already", maxClients)
	}
	h.timer.Stop()
	c := &Client{hub: h, out: newQueue(), calls: map[string]int64{}, docs: map[string]struct{}{}}
	h.clients = append(h.clients, c)
	return c, nil
}

// retire ends the server in the protocol's way after it had no client for a
// while, and kills it if it does not end.
func (h *Hub) retire() {
	h.mu.Lock()
	if len(h.clients) > 0 || h.err != nil || h.retiring {
		h.mu.Unlock()
		return
	}
	h.retiring = true
	asked := make(chan struct{})
	if h.state == ready {
		h.nextID++
		h.calls[h.nextID] = &call{method: "shutdown", done: asked}
		h.send(message{ID: number(h.nextID), Method: "shutdown"}.encode())
	} else {
		close(asked)
	}
	h.mu.Unlock()
	if within(asked, exitWait) {
		h.send(notify("exit", nil))
		within(h.done, exitWait)
	}
	h.fail(errEnded)
}

// within reports whether something happened in time.
func within(happened <-chan struct{}, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-happened:
		return true
	case <-t.C:
		return false
	}
}

// leave takes a client out: its requests, documents and answers.
func (h *Hub) leave(c *Client) {
	h.mu.Lock()
	defer h.mu.Unlock()
	at := slices.Index(h.clients, c)
	if at < 0 {
		return
	}
	h.clients = slices.Delete(h.clients, at, at+1)
	c.out.close(io.EOF)
	for _, n := range c.calls {
		k := h.calls[n]
		k.client = nil
		h.dropTokens(k)
		if k.method != "initialize" { // others may wait for that
			h.send(notify("$/cancelRequest", map[string]int64{"id": n}))
		}
	}
	for uri := range c.docs {
		h.release(c, uri)
	}
	h.waiting = slices.DeleteFunc(h.waiting, func(w waiter) bool { return w.client == c })
	for key, a := range h.asks {
		if i := slices.Index(a.targets, c); i >= 0 {
			a.targets = slices.Delete(a.targets, i, i+1)
			if len(a.targets) == 0 {
				delete(h.asks, key)
				h.ask(a.msg)
			}
		}
	}
	if len(h.clients) == 0 && h.err == nil {
		h.timer.Reset(h.idle)
	}
}
