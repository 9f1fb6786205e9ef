package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"
	"github.com/danielgtaylor/huma/v2"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/guest"
	"github.com/pandastack/pandastack/internal/lsp"
)

const (
	lspMessage    = 16<<20 + 4<<10   // bytes of one WebSocket message of a client
	lspWriteWait  = time.Minute      // for a client to take a message
	lspLookupWait = 10 * time.Second // for the sandbox to look for a program
	lspTag        = "lsp/"           // before the language, of a server's process
	lspUser       = "user"           // who runs it
)

type lspLanguagesOutput struct{ Body api.LSPLanguageList }

func (a *API) lspLanguages(context.Context, *struct{}) (*lspLanguagesOutput, error) {
	out := &lspLanguagesOutput{}
	for _, l := range lsp.Languages() {
		lang := api.LSPLanguage{ID: l.ID, Aliases: l.Aliases}
		for _, s := range l.Servers {
			lang.Servers = append(lang.Servers, api.LSPServer{Program: s.Program, Install: s.Install})
		}
		out.Body.Languages = append(out.Body.Languages, lang)
	}
	return out, nil
}

type lspInput struct {
	SandboxPath
	Lang string `path:"lang" maxLength:"64" doc:"Language, or another name of it" example:"python"`
}

// lspSocket joins a client to the language server of its sandbox. What is wrong
// before the handshake is an error answer.
func (a *API) lspSocket(_ context.Context, in *lspInput) (*huma.StreamResponse, error) {
	lang, err := lsp.Find(in.Lang)
	if err != nil {
		return nil, err
	}
	return raw(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		if !a.socketWanted(w, r, in.ID) {
			return
		}
		client, err := a.lsp.Join(ctx, lsp.Key{Sandbox: in.ID, Language: lang.ID}, func(ctx context.Context) (lsp.Process, error) {
			return a.startLanguageServer(ctx, in.ID, lang)
		})
		if err != nil {
			a.fail(w, r, err)
			return
		}
		defer client.Leave()
		conn, err := websocket.Accept(w, r, &websocket.AcceptOptions{
			InsecureSkipVerify: true, // as for exec/ws
			Subprotocols:       []string{"lsp", bearerProtocol + protocolKey(r)},
		})
		if err != nil {
			requestOf(ctx).err = err // the answer has been sent
			return
		}
		s := &lspSession{conn: conn, client: client, touch: a.toucher(in.ID)}
		if err := s.run(ctx, cancel, a.KeepAlive); err != nil {
			requestOf(ctx).err = err
		}
	}), nil
}

// lspSession is one client on its connection.
type lspSession struct {
	conn   *websocket.Conn
	client *lsp.Client
	touch  func()

	// Set with the client's first message, which comes before any to it.
	kind websocket.MessageType
	bare bool // messages come without a header, one in each WebSocket message
}

// run passes messages until the client or the server ends.
func (s *lspSession) run(ctx context.Context, cancel context.CancelFunc, keepAlive time.Duration) error {
	defer s.conn.CloseNow()
	s.conn.SetReadLimit(lspMessage)
	reader := make(chan error, 1)
	go func() {
		err := s.readAll(ctx)
		s.client.Leave() // ends the writer, after what it still has to say
		reader <- err
	}()
	pings := make(chan struct{})
	go func() { defer close(pings); (&socket{conn: s.conn}).ping(ctx, keepAlive) }()
	err := s.writeAll(ctx)
	left := errors.Is(err, io.EOF)
	if left {
		err = <-reader // it says why
	}
	s.refuse(ctx, err)
	cancel()
	if !left {
		<-reader
	}
	_ = s.conn.CloseNow()
	<-pings
	if errors.Is(err, io.EOF) || websocket.CloseStatus(err) != -1 {
		return nil
	}
	return err
}

// refuse closes the connection with the code of what went wrong, if anything did.
func (s *lspSession) refuse(ctx context.Context, err error) {
	if err == nil || errors.Is(err, io.EOF) {
		_ = s.conn.Close(websocket.StatusNormalClosure, "")
		return
	}
	if ctx.Err() != nil || websocket.CloseStatus(err) != -1 {
		return // the client has left
	}
	e := newEnvelope(ctx, err)
	_ = s.conn.Close(websocket.StatusPolicyViolation, closeReason(e.Failure))
}

// closeReason is the code and as much of the message as a close frame holds.
func closeReason(e *api.Error) string {
	text := string(e.Code) + ": " + e.Message
	return strings.ToValidUTF8(text[:min(len(text), 123)], "")
}

// readAll takes the client's messages until it leaves, which is io.EOF when it
// said exit.
func (s *lspSession) readAll(ctx context.Context) error {
	var d lsp.Decoder
	for first := true; ; first = false {
		kind, data, err := s.conn.Read(ctx)
		if err != nil {
			return err
		}
		s.touch()
		if first {
			s.kind = kind
			s.bare = bytes.HasPrefix(bytes.TrimSpace(data), []byte("{"))
		}
		if s.bare {
			if err := s.client.Receive(ctx, data); err != nil {
				return err
			}
			continue
		}
		d.Write(data)
		if err := s.receiveAll(ctx, &d); err != nil {
			return err
		}
	}
}

func (s *lspSession) receiveAll(ctx context.Context, d *lsp.Decoder) error {
	for {
		msg, err := d.Next()
		if msg == nil || err != nil {
			return err
		}
		if err := s.client.Receive(ctx, msg); err != nil {
			return err
		}
	}
}

// writeAll gives the client its messages until there are no more: io.EOF when it
// has left.
func (s *lspSession) writeAll(ctx context.Context) error {
	for {
		msg, err := s.client.Next(ctx)
		if err != nil {
			return err
		}
		if !s.bare {
			msg = lsp.Frame(msg)
		}
		wait, cancel := context.WithTimeout(ctx, lspWriteWait)
		err = s.conn.Write(wait, s.kind, msg)
		cancel()
		if err != nil {
			return err
		}
		s.touch()
	}
}

// startLanguageServer starts the first of a language's servers that the sandbox
// has.
func (a *API) startLanguageServer(ctx context.Context, id string, lang lsp.Language) (lsp.Process, error) {
	client, err := a.Control.Guest(ctx, who(ctx), id)
	if err != nil {
		return nil, err
	}
	tag := lspTag + lang.ID
	if err := endLeftOver(ctx, client, tag); err != nil {
		return nil, err
	}
	server, err := a.findLanguageServer(ctx, id, lang)
	if err != nil {
		return nil, err
	}
	// It outlives the request: others may join it.
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	proc, err := client.Start(ctx, guest.Command{
		Cmd: "/bin/sh", Args: []string{"-c", server.Line()}, User: lspUser, Tag: tag, Stdin: true,
	})
	if err != nil {
		cancel()
		return nil, err
	}
	return &lspProcess{client: client, proc: proc, ctx: ctx, cancel: cancel}, nil
}

// endLeftOver ends the servers that nobody talks to: a server process that died,
// or a fork or a snapshot of the sandbox, leaves them.
func endLeftOver(ctx context.Context, client *guest.Client, tag string) error {
	list, err := client.List(ctx)
	if err != nil {
		return err
	}
	for _, p := range list {
		if p.Tag == tag {
			_ = client.KillTree(ctx, p.PID) // it may just have ended
		}
	}
	return nil
}

func (a *API) findLanguageServer(ctx context.Context, id string, lang lsp.Language) (lsp.Server, error) {
	line, err := json.Marshal(lang.LookUp())
	if err != nil {
		return lsp.Server{}, err
	}
	res, err := a.Control.Exec(ctx, who(ctx), id, api.Exec{Cmd: line, User: lspUser, TimeoutSeconds: lspLookupWait.Seconds()})
	if err != nil {
		return lsp.Server{}, err
	}
	n, err := strconv.Atoi(strings.TrimSpace(res.Stdout))
	if err != nil || n < 0 || n >= len(lang.Servers) {
		return lsp.Server{}, lang.NotInstalled()
	}
	return lang.Servers[n], nil
}

// lspProcess is a language server in a sandbox.
type lspProcess struct {
	client *guest.Client
	proc   *guest.Process
	ctx    context.Context
	cancel context.CancelFunc
	kill   sync.Once
}

func (p *lspProcess) Send(ctx context.Context, data []byte) error {
	return p.client.SendInput(ctx, p.proc.PID(), data)
}

// Recv gives standard output. What a server writes to standard error is for its
// own developers and is dropped.
func (p *lspProcess) Recv() ([]byte, error) {
	for {
		e, err := p.proc.Recv()
		switch {
		case err != nil:
			return nil, err
		case e.Exit != nil:
			return nil, io.EOF
		case len(e.Stdout) > 0:
			return e.Stdout, nil
		}
	}
}

func (p *lspProcess) Kill() {
	p.kill.Do(func() {
		(&socket{proc: p.proc, client: p.client}).kill(p.ctx)
		p.proc.Close()
		p.cancel()
	})
}

func docLSPSocket(op *huma.Operation) {
	op.Description = "The Language Server Protocol, framed as on standard streams (Content-Length, an empty line, JSON); messages of the connection may hold " +
		"any piece of that stream. A client whose first message is JSON without a header goes on so and is answered so. " +
		"Clients of one sandbox and language share a server. Browsers may send the key as subprotocol `bearer.KEY` beside `lsp`."
	op.DefaultStatus = http.StatusSwitchingProtocols
	content(op, "101", "application/json", &huma.Schema{Type: huma.TypeObject}, "Switching to WebSocket")
	delete(op.Responses, "200")
}
