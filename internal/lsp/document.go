package lsp

import (
	"encoding/json"

	"github.com/pandastack/pandastack/api"
)

type documentParams struct {
	TextDocument struct {
		URI     string `json:"uri"`
		Version int64  `json:"version"`
		Text    string `json:"text"`
	} `json:"textDocument"`
	Changes json.RawMessage `json:"contentChanges"`
}

// didOpen opens a document in the server for its first client. Another one that
// opens it says what its text is now.
func (h *Hub) didOpen(c *Client, m *message) error {
	var p documentParams
	if json.Unmarshal(m.Params, &p) != nil {
		return nil
	}
	uri := p.TextDocument.URI
	if len(uri) > maxURI {
		return api.Errorf(api.CodeTooLarge, "the URI of a document may have %d bytes", maxURI)
	}
	if len(c.docs) >= maxDocuments {
		return api.Errorf(api.CodeTooLarge, "a client may have %d documents open", maxDocuments)
	}
	c.docs[uri] = struct{}{}
	d := h.docs[uri]
	if d == nil {
		h.docs[uri] = &document{version: p.TextDocument.Version, clients: map[*Client]struct{}{c: {}}}
		h.send(message{Method: m.Method, Params: m.Params}.encode())
		return nil
	}
	d.clients[c] = struct{}{}
	d.version++
	d.skewed = true
	h.send(notify("textDocument/didChange", map[string]any{
		"textDocument":   map[string]any{"uri": uri, "version": d.version},
		"contentChanges": []any{map[string]string{"text": p.TextDocument.Text}},
	}))
	return nil
}

// didChange passes a change on with a version that grows, whoever it is from.
func (h *Hub) didChange(c *Client, m *message) {
	var p documentParams
	if json.Unmarshal(m.Params, &p) != nil {
		return
	}
	uri := p.TextDocument.URI
	d := h.docs[uri]
	if _, open := c.docs[uri]; !open || d == nil {
		return
	}
	if version := p.TextDocument.Version; version > d.version && !d.skewed {
		d.version = version
		h.send(message{Method: m.Method, Params: m.Params}.encode())
		return
	}
	d.version++
	d.skewed = true
	h.send(notify(m.Method, map[string]any{
		"textDocument":   map[string]any{"uri": uri, "version": d.version},
		"contentChanges": p.Changes,
	}))
}

func (h *Hub) didClose(c *Client, m *message) {
	var p documentParams
	if json.Unmarshal(m.Params, &p) == nil {
		h.release(c, p.TextDocument.URI)
	}
}

// release closes a document for a client, and in the server after the last one.
func (h *Hub) release(c *Client, uri string) {
	d := h.docs[uri]
	if _, open := c.docs[uri]; !open || d == nil {
		return
	}
	delete(c.docs, uri)
	delete(d.clients, c)
	if len(d.clients) == 0 {
		delete(h.docs, uri)
		h.send(notify("textDocument/didClose", map[string]any{"textDocument": map[string]string{"uri": uri}}))
	}
}
