package lsp

import (
	"bytes"
	"context"
	"encoding/json"
	"io"

	"github.com/pandastack/pandastack/api"
)

// Client is one editor at a language server. Receive is for one goroutine, and
// Next for another.
type Client struct {
	hub *Hub
	out *queue

	// Guarded by the hub's lock.
	ready  bool             // its initialize was answered
	live   bool             // it said that it has seen the answer
	begun  bool             // it has sent initialize
	closed bool             // it has sent shutdown
	calls  map[string]int64 // its requests under way
	docs   map[string]struct{}
}

// Next waits for a message for the editor. It ends with the reason when the
// server has ended, or the client has read too slowly.
func (c *Client) Next(ctx context.Context) ([]byte, error) { return c.out.take(ctx) }

// Leave ends the client.
func (c *Client) Leave() { c.hub.leave(c) }

// Receive takes a message of the editor. It waits while the server is busy, and
// gives io.EOF when the editor says exit.
func (c *Client) Receive(ctx context.Context, data []byte) error {
	if err := c.hub.toServer.room(ctx); err != nil {
		return err
	}
	m := decode(data)
	if m == nil {
		return api.Errorf(api.CodeInvalidRequest, "this is no message of the language server protocol")
	}
	h := c.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.err != nil {
		return h.err
	}
	switch {
	case m.isAnswer():
		h.answered(c, m)
		return nil
	case m.isCall():
		c.request(m)
		return nil
	}
	return c.notification(m)
}

// put hands a message to the editor, or gives up on one that does not read.
func (c *Client) put(msg []byte) {
	if !c.out.put(msg) {
		c.out.close(api.Errorf(api.CodeTooLarge, "the client does not read what the language server says"))
	}
}

// request passes a request on, but for those that are the hub's own affair.
func (c *Client) request(m *message) {
	switch {
	case c.closed:
		c.put(failure(m.ID, codeInvalidRequest, "the client has shut down"))
	case m.Method == "initialize":
		c.initialize(m)
	case !c.ready:
		c.put(failure(m.ID, codeNotInitialized, "initialize comes first"))
	case m.Method == "shutdown":
		c.closed = true
		c.put(answer(m.ID, nil))
	case len(c.calls) >= maxPending:
		c.put(failure(m.ID, codeRequestFailed, "too many requests are under way"))
	default:
		c.call(m)
	}
}

// initialize begins the server for its first client, and gives the others what
// that was answered.
func (c *Client) initialize(m *message) {
	h := c.hub
	if c.begun {
		c.put(failure(m.ID, codeInvalidRequest, "initialize comes once"))
		return
	}
	c.begun = true
	switch h.state {
	case ready:
		c.ready = true
		c.put(answer(m.ID, h.initResult))
	case initializing:
		h.waiting = append(h.waiting, waiter{c, m.ID})
	case fresh:
		h.state = initializing
		h.waiting = append(h.waiting, waiter{c, m.ID})
		var params map[string]json.RawMessage
		if json.Unmarshal(m.Params, &params) == nil && params != nil {
			// A server ends when this process does, and looks for it where
			// the editor is not.
			params["processId"] = json.RawMessage("null")
			m.Params, _ = json.Marshal(params) // it was JSON before
		}
		c.call(m)
	}
}

// call sends a request under an id of the hub.
func (c *Client) call(m *message) {
	h := c.hub
	key := keyOf(m.ID)
	if _, ok := c.calls[key]; ok {
		c.put(failure(m.ID, codeInvalidRequest, "a request with this id is under way"))
		return
	}
	h.nextID++
	k := &call{client: c, id: m.ID, method: m.Method}
	c.calls[key] = h.nextID
	h.calls[h.nextID] = k
	h.send(message{ID: number(h.nextID), Method: m.Method, Params: h.ownTokens(c, k, m.Params)}.encode())
}

// notification passes a notification on, but for those that are the hub's own
// affair.
func (c *Client) notification(m *message) error {
	h := c.hub
	if m.Method == "exit" {
		return io.EOF
	}
	if !c.ready || c.closed {
		return nil // the protocol says to drop it
	}
	switch m.Method {
	case "initialized":
		c.initialized(m)
	case "$/cancelRequest":
		c.cancel(m)
	case "textDocument/didOpen":
		return h.didOpen(c, m)
	case "textDocument/didChange":
		h.didChange(c, m)
	case "textDocument/didClose":
		h.didClose(c, m)
	default:
		h.send(message{Method: m.Method, Params: m.Params}.encode())
	}
	return nil
}

// initialized is passed on once; a client that comes later gets the
// registrations that the others have.
func (c *Client) initialized(m *message) {
	h := c.hub
	if c.live {
		return
	}
	c.live = true
	if !h.initialized {
		h.initialized = true
		h.send(message{Method: m.Method, Params: m.Params}.encode())
		return
	}
	if len(h.registrations) == 0 {
		return
	}
	all := make([]json.RawMessage, 0, len(h.registrations))
	for _, r := range h.registrations {
		all = append(all, r)
	}
	params, _ := json.Marshal(map[string]any{"registrations": all}) // JSON already
	// Its answer is for nobody: the server has had one.
	c.put(message{ID: json.RawMessage(`"pandastack/registrations"`), Method: "client/registerCapability", Params: params}.encode())
}

func (c *Client) cancel(m *message) {
	var p struct {
		ID json.RawMessage `json:"id"`
	}
	if json.Unmarshal(m.Params, &p) != nil {
		return
	}
	if n, ok := c.calls[keyOf(p.ID)]; ok {
		c.hub.send(notify(m.Method, map[string]int64{"id": n}))
	}
}

// ownTokens gives the progress tokens of a request names that no other client
// uses.
func (h *Hub) ownTokens(c *Client, k *call, params json.RawMessage) json.RawMessage {
	if !bytes.Contains(params, []byte(`Token"`)) {
		return params
	}
	var p map[string]json.RawMessage
	if json.Unmarshal(params, &p) != nil {
		return params
	}
	for _, field := range []string{"workDoneToken", "partialResultToken"} {
		raw := p[field]
		if len(raw) == 0 || len(raw) > maxID || string(raw) == "null" {
			continue
		}
		name := "pandastack/" + string(number(h.nextID)) + "/" + field
		h.tokens[name] = token{c, raw}
		k.tokens = append(k.tokens, name)
		p[field], _ = json.Marshal(name) // a string
	}
	out, err := json.Marshal(p)
	if err != nil {
		return params
	}
	return out
}

func (h *Hub) dropTokens(k *call) {
	for _, name := range k.tokens {
		delete(h.tokens, name)
	}
	k.tokens = nil
}
