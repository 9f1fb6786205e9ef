package lsp

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
)

// fromServer takes a message of the server.
func (h *Hub) fromServer(data []byte) {
	m := decode(data)
	if m == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.err != nil {
		return
	}
	switch {
	case m.isAnswer():
		h.answer(m)
	case m.isCall():
		h.ask(m)
	default:
		h.announce(m)
	}
}

// answer gives an answer of the server to the client that asked.
func (h *Hub) answer(m *message) {
	n, err := strconv.ParseInt(string(m.ID), 10, 64)
	k := h.calls[n]
	if err != nil || k == nil {
		return
	}
	delete(h.calls, n)
	h.dropTokens(k)
	if k.done != nil {
		close(k.done)
	}
	if k.client != nil {
		delete(k.client.calls, keyOf(k.id))
	}
	switch {
	case k.method == "initialize":
		h.begin(m)
	case k.client != nil:
		m.ID = k.id
		k.client.put(m.encode())
	}
}

// begin answers all who wait for initialize. After an error the next client may
// try again.
func (h *Hub) begin(m *message) {
	waiting := h.waiting
	h.waiting = nil
	if m.Error != nil {
		h.state = fresh
	} else {
		h.state, h.initResult = ready, m.Result
	}
	for _, w := range waiting {
		w.client.ready = m.Error == nil
		w.client.begun = w.client.ready
		m.ID = w.id
		w.client.put(m.encode())
	}
}

// announce gives a notification of the server to all, or progress to the one
// whose it is.
func (h *Hub) announce(m *message) {
	switch m.Method {
	case "$/progress":
		if h.progress(m) {
			return
		}
	case "textDocument/publishDiagnostics":
		m.Params = h.diagnostics(m.Params)
	}
	msg := m.encode()
	for _, c := range h.clients {
		if c.ready || h.state == initializing && h.isWaiting(c) {
			c.put(msg)
		}
	}
}

func (h *Hub) isWaiting(c *Client) bool {
	return slices.ContainsFunc(h.waiting, func(w waiter) bool { return w.client == c })
}

// progress gives a report on a client's request to that client.
func (h *Hub) progress(m *message) bool {
	var p map[string]json.RawMessage
	var name string
	if json.Unmarshal(m.Params, &p) != nil || json.Unmarshal(p["token"], &name) != nil {
		return false
	}
	t, ok := h.tokens[name]
	if !ok {
		return strings.HasPrefix(name, "pandastack/") // of a request that is over
	}
	p["token"] = t.raw
	m.Params, _ = json.Marshal(p) // JSON already
	t.client.put(m.encode())
	return true
}

// diagnostics takes the version off diagnostics where it is not that of the
// clients.
func (h *Hub) diagnostics(params json.RawMessage) json.RawMessage {
	var p map[string]json.RawMessage
	var uri string
	if json.Unmarshal(params, &p) != nil || json.Unmarshal(p["uri"], &uri) != nil {
		return params
	}
	if d := h.docs[uri]; d == nil || !d.skewed || p["version"] == nil {
		return params
	}
	delete(p, "version")
	out, err := json.Marshal(p)
	if err != nil {
		return params
	}
	return out
}

// ask gives a request of the server to those who are to answer it.
func (h *Hub) ask(m *message) {
	targets := h.targets(m)
	key := keyOf(m.ID)
	switch {
	case len(h.asks) >= maxPending:
		h.send(failure(m.ID, codeInternal, "too many requests are under way"))
		return
	case len(targets) == 0:
		h.send(unattended(m))
		return
	}
	h.asks[key] = &ask{m, targets}
	msg := m.encode()
	for _, c := range slices.Clone(targets) {
		c.put(msg)
	}
}

// targets chooses who answers a request of the server.
func (h *Hub) targets(m *message) []*Client {
	var all []*Client
	for _, c := range h.clients {
		if c.live && !c.closed {
			all = append(all, c)
		}
	}
	switch {
	case m.Method == "client/registerCapability":
		h.register(m.Params)
		return all
	case m.Method == "client/unregisterCapability":
		h.unregister(m.Params)
		return all
	case m.Method == "window/workDoneProgress/create", strings.HasSuffix(m.Method, "/refresh"), len(all) == 0:
		return all
	case m.Method == "workspace/applyEdit":
		if c := h.commander(); c != nil {
			return []*Client{c}
		}
	}
	return all[:1]
}

// commander is the client whose command the server has got last and carries out.
func (h *Hub) commander() *Client {
	var last int64
	var who *Client
	for n, k := range h.calls {
		if k.method == "workspace/executeCommand" && k.client != nil && n > last {
			last, who = n, k.client
		}
	}
	return who
}

// unattended answers a request of the server for which there is no client: as a
// client without settings would.
func unattended(m *message) []byte {
	switch {
	case m.Method == "workspace/configuration":
		var p struct {
			Items []json.RawMessage `json:"items"`
		}
		if json.Unmarshal(m.Params, &p) == nil && len(p.Items) <= maxRegistered {
			result, _ := json.Marshal(make([]any, len(p.Items))) // nulls
			return answer(m.ID, result)
		}
	case strings.HasPrefix(m.Method, "client/"), m.Method == "window/workDoneProgress/create", strings.HasSuffix(m.Method, "/refresh"):
		return answer(m.ID, nil)
	}
	return failure(m.ID, codeRequestFailed, "no client is connected")
}

type registration struct {
	ID string `json:"id"`
}

func (h *Hub) register(params json.RawMessage) {
	var p struct {
		Registrations []json.RawMessage `json:"registrations"`
	}
	if json.Unmarshal(params, &p) != nil {
		return
	}
	for _, raw := range p.Registrations {
		var r registration
		if json.Unmarshal(raw, &r) == nil && len(h.registrations) < maxRegistered {
			h.registrations[r.ID] = raw
		}
	}
}

func (h *Hub) unregister(params json.RawMessage) {
	var p struct {
		List []registration `json:"unregisterations"` // the protocol's spelling
	}
	if json.Unmarshal(params, &p) != nil {
		return
	}
	for _, r := range p.List {
		delete(h.registrations, r.ID)
	}
}

// answered passes a client's answer on to the server: the first that is no error,
// or the last.
func (h *Hub) answered(c *Client, m *message) {
	key := keyOf(m.ID)
	a := h.asks[key]
	if a == nil {
		return
	}
	i := slices.Index(a.targets, c)
	if i < 0 {
		return
	}
	a.targets = slices.Delete(a.targets, i, i+1)
	if m.Error != nil && len(a.targets) > 0 {
		return
	}
	delete(h.asks, key)
	m.ID = a.msg.ID
	h.send(message{ID: m.ID, Result: m.Result, Error: m.Error}.encode())
}
