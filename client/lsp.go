package client

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"

	"github.com/coder/websocket"

	"github.com/pandastack/pandastack/api"
)

// lspMessageLimit bounds one message of a language server, with its header.
const lspMessageLimit = 17 << 20

// Languages lists the languages that code contexts know.
func (c *Client) Languages(ctx context.Context) ([]string, error) {
	var out api.CodeLanguages
	err := c.call(ctx, request{method: http.MethodGet, path: []string{"v1", "repl", "languages"}}, &out)
	return out.Languages, err
}

// LSPLanguages lists the languages with the language servers that are known for
// them.
func (c *Client) LSPLanguages(ctx context.Context) ([]api.LSPLanguage, error) {
	var out api.LSPLanguageList
	err := c.call(ctx, request{method: http.MethodGet, path: []string{"v1", "lsp", "languages"}}, &out)
	return out.Languages, err
}

// LanguageServer is a connection to a language server of a sandbox: what it has
// on its standard output and input, messages with their headers. Read is for one
// goroutine, and gives io.EOF after the client has said exit. Other connections
// share the server, and closing this one does not end it.
type LanguageServer struct {
	c      *Client
	conn   *websocket.Conn
	ctx    context.Context // of the connection
	cancel context.CancelFunc
	rest   []byte // of the last message
	err    error  // of Read
	once   sync.Once
}

// LanguageServer connects to the sandbox's language server for a language, which
// is started if need be (lsp.unknown_language, lsp.not_installed).
func (s *Sandbox) LanguageServer(ctx context.Context, language string) (*LanguageServer, error) {
	conn, _, err := s.c.dialSocket(ctx, s.path("lsp", language), nil)
	if err != nil {
		return nil, err
	}
	conn.SetReadLimit(lspMessageLimit)
	l := &LanguageServer{c: s.c, conn: conn}
	l.ctx, l.cancel = context.WithCancel(context.WithoutCancel(ctx))
	return l, nil
}

// Read implements io.Reader.
func (l *LanguageServer) Read(p []byte) (int, error) {
	for len(l.rest) == 0 && l.err == nil {
		_, data, err := l.conn.Read(l.ctx)
		if l.rest = data; err != nil {
			l.err = l.ended(err)
		}
	}
	if len(l.rest) == 0 {
		return 0, l.err
	}
	n := copy(p, l.rest)
	l.rest = l.rest[n:]
	return n, nil
}

// ended is the error of a connection that is over. The server says why in the
// reason of the close: code and message.
func (l *LanguageServer) ended(err error) error {
	var closed websocket.CloseError
	if !errors.As(err, &closed) {
		return l.c.transportError(l.ctx, err)
	}
	code, message, ok := strings.Cut(closed.Reason, ": ")
	switch {
	case closed.Code == websocket.StatusNormalClosure:
		return io.EOF
	case ok && closed.Code == websocket.StatusPolicyViolation:
		return api.Errorf(api.Code(code), "%s", message)
	}
	return api.Wrap(api.CodeServerUnreachable, err, "the server closed the connection to the language server")
}

// Write implements io.Writer. It takes any piece of the stream.
func (l *LanguageServer) Write(p []byte) (int, error) {
	for rest := p; len(rest) > 0; {
		n := min(len(rest), stdinChunk)
		if err := l.conn.Write(l.ctx, websocket.MessageBinary, rest[:n]); err != nil {
			return len(p) - len(rest), l.c.transportError(l.ctx, err)
		}
		rest = rest[n:]
	}
	return len(p), nil
}

// Close ends the connection. What was written before is delivered.
func (l *LanguageServer) Close() error {
	l.once.Do(func() {
		_ = l.conn.Close(websocket.StatusNormalClosure, "") // the server may be gone
		l.cancel()
	})
	return nil
}
