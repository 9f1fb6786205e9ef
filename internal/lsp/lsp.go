// Package lsp lets several editors use one language server. The protocol knows
// one client a server; a Hub stands between and is that client.
//
// # Rules
//
// Ids of requests are rewritten on their way to the server, so that clients
// cannot collide, and answers find the client that asked. The first initialize
// goes to the server; later ones are answered with its result, so what the first
// client said of itself and of its folders holds for all. A client's shutdown and
// exit end that client only. What the server says by itself goes to all, and what
// it asks to one of them: the one whose command it carries out, else the oldest;
// registrations of capabilities go to all, and are repeated to those who come
// later. A document is open in the server while any client has it open. A second
// client that opens it replaces its text there; clients that edit one document at
// the same time must keep their copies the same.
//
// When a client leaves, its requests are cancelled and its documents closed. When
// the last has left the server goes on for a while, so that an editor that
// connects again finds it warm, and is then ended.
//
// Both sides are bounded: the size of a message, what waits for a client that does
// not read (it is dropped), and what waits for the server (its clients wait). Both
// are hostile: nothing that one of them says is trusted beyond its own messages.
package lsp

import (
	"encoding/json"
	"strconv"
	"time"
)

// Bounds.
const (
	maxMessage    = 16 << 20 // bytes of one message
	maxHeader     = 4 << 10  // bytes before it
	maxID         = 256      // bytes of an id or a token
	maxClients    = 32       // of one server
	maxPending    = 1024     // requests of one side without an answer
	maxDocuments  = 4096     // open in one client
	maxURI        = 8 << 10  // bytes of a document's name
	maxRegistered = 1024     // capabilities
	queueMessages = 8192     // that wait for one side
	queueBytes    = 64 << 20
	queueHigh     = 4 << 20 // bytes that wait for the server from which on clients wait
)

// How long an end may take.
const (
	defaultIdle = 5 * time.Minute // from the last client's leaving
	exitWait    = 5 * time.Second // for the server to end when it is asked to
)

// Codes of errors in answers, which the protocol defines.
const (
	codeInvalidRequest = -32600
	codeInternal       = -32603
	codeNotInitialized = -32002
	codeRequestFailed  = -32803
)

// message is one JSON-RPC message of either side.
type message struct {
	Version string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id,omitempty"`
	Method  string          `json:"method,omitempty"`
	Params  json.RawMessage `json:"params,omitempty"`
	Result  json.RawMessage `json:"result,omitempty"`
	Error   json.RawMessage `json:"error,omitempty"`
}

func (m *message) isCall() bool   { return m.Method != "" && len(m.ID) > 0 }
func (m *message) isAnswer() bool { return m.Method == "" && len(m.ID) > 0 }

// encode writes a message. Its parts are JSON already.
func (m message) encode() []byte {
	m.Version = "2.0"
	if m.Method == "" && m.Result == nil && m.Error == nil {
		m.Result = json.RawMessage("null")
	}
	data, err := json.Marshal(m)
	if err != nil { // a part that is no JSON, which decoding refuses
		return []byte(`{"jsonrpc":"2.0","method":"$/invalid"}`)
	}
	return data
}

// decode reads a message. What is none is nil.
func decode(data []byte) *message {
	var m message
	if json.Unmarshal(data, &m) != nil || len(m.ID) > maxID {
		return nil
	}
	if string(m.ID) == "null" {
		m.ID = nil
	}
	if m.Method == "" && m.ID == nil {
		return nil
	}
	return &m
}

// keyOf makes an id or a token comparable: 1 and "1" differ, two spellings of one
// string do not.
func keyOf(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return "s" + s
	}
	return "n" + string(raw)
}

func number(n int64) json.RawMessage { return strconv.AppendInt(nil, n, 10) }

func failure(id json.RawMessage, code int, text string) []byte {
	e, _ := json.Marshal(map[string]any{"code": code, "message": text}) // cannot fail
	return message{ID: id, Error: e}.encode()
}

func answer(id, result json.RawMessage) []byte { return message{ID: id, Result: result}.encode() }

func notify(method string, params any) []byte {
	p, _ := json.Marshal(params) // values of ours, which are JSON
	return message{Method: method, Params: p}.encode()
}
