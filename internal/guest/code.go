package guest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"

	"github.com/pandastack/pandastack/api"
)

// Bounds of what a code context may send.
const (
	maxCodeEvent = 16 << 20
	maxContexts  = 1 << 20 // the list of them
)

// codePrefix is where the daemon serves contexts to us.
const codePrefix = "/pandastack/code"

// CodeStream is the events of one execution. Recv is for one goroutine.
type CodeStream struct {
	ctx  context.Context
	body io.ReadCloser
	r    *bufio.Reader
	over bool
}

// RunCode begins to run code in a context. The end of ctx, or Close before the
// end, interrupts it. A context that is not there is context.not_found, a
// language that the machine lacks request.invalid.
func (c *Client) RunCode(ctx context.Context, in api.RunCode) (*CodeStream, error) {
	body := map[string]any{"code": in.Code, "timeout_ms": in.TimeoutMS}
	if in.ContextID != "" {
		body["context_id"] = in.ContextID
	}
	if in.Language != "" {
		body["language"] = in.Language
	}
	if len(in.Env) > 0 {
		body["env_vars"] = in.Env
	}
	resp, err := c.codeCall(ctx, http.MethodPost, "/execute", body)
	if err != nil {
		return nil, err
	}
	return &CodeStream{ctx: ctx, body: resp.Body, r: bufio.NewReaderSize(resp.Body, 32<<10)}, nil
}

// codeCall sends a request about contexts. The answer is a success; its body is
// the caller's to close.
func (c *Client) codeCall(ctx context.Context, method, path string, body any) (*http.Response, error) {
	var data []byte
	if body != nil {
		var err error
		if data, err = json.Marshal(body); err != nil {
			return nil, api.Wrap(api.CodeInvalidRequest, err, "the request to the sandbox cannot be encoded")
		}
	}
	req, err := http.NewRequestWithContext(ctx, method, base+codePrefix+path, bytes.NewReader(data))
	if err != nil {
		return nil, api.Wrap(api.CodeInvalidRequest, err, "the request to the sandbox cannot be made")
	}
	req.Header.Set(headerToken, *c.token.Load())
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, transportError(ctx, err)
	}
	if resp.StatusCode >= 200 && resp.StatusCode < 300 {
		return resp, nil
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(resp.Body, 4<<10)) // what came is enough for a message
	switch resp.StatusCode {
	case http.StatusBadRequest, http.StatusTooManyRequests:
		return nil, api.Errorf(api.CodeInvalidRequest, "%s", clean(string(text)))
	case http.StatusNotFound:
		return nil, api.Errorf(api.CodeContextNotFound, "there is no such code context in the sandbox")
	}
	return nil, statusError(resp.StatusCode, "", nil, areaProcess)
}

// wireEvent is any line of an execution.
type wireEvent struct {
	Type      string  `json:"type"`
	Count     int     `json:"execution_count"`
	Text      string  `json:"text"`
	Timestamp float64 `json:"timestamp"`
	Name      string  `json:"name"`
	Value     string  `json:"value"`
	Traceback string  `json:"traceback"`
	TimedOut  bool    `json:"timed_out"`
}

// Recv gives the next event; io.EOF after the end. A stream that stops before it
// is sandbox.died.
func (s *CodeStream) Recv() (api.CodeEvent, error) {
	for !s.over {
		line, err := s.line()
		if err != nil {
			return api.CodeEvent{}, err
		}
		ev, known, err := parseCodeEvent(line)
		if err != nil {
			return api.CodeEvent{}, err
		}
		s.over = ev.Type == "end"
		if known {
			return ev, nil
		}
	}
	return api.CodeEvent{}, io.EOF
}

// line reads one line of bounded length.
func (s *CodeStream) line() ([]byte, error) {
	var line []byte
	for {
		part, err := s.r.ReadSlice('\n')
		if len(line)+len(part) > maxCodeEvent {
			return nil, api.Errorf(api.CodeTooLarge, "the code context sent an event of more than %d bytes", maxCodeEvent)
		}
		line = append(line, part...)
		switch {
		case err == nil:
			return line, nil
		case err == bufio.ErrBufferFull:
		case err == io.EOF && s.ctx.Err() == nil:
			return nil, api.Errorf(api.CodeSandboxDied, "the sandbox ended before the code did")
		default:
			return nil, transportError(s.ctx, err)
		}
	}
}

// parseCodeEvent reads one line. known is false for what clients need not hear.
func parseCodeEvent(line []byte) (ev api.CodeEvent, known bool, err error) {
	bad := api.Errorf(api.CodeInternal, "the code context sent an event that makes no sense")
	var head struct {
		Type string `json:"type"`
	}
	if json.Unmarshal(line, &head) != nil {
		return ev, false, bad
	}
	if head.Type == "result" {
		out := &api.CodeOutput{}
		if json.Unmarshal(line, out) != nil {
			return ev, false, nil // a form with a value of another type than its own
		}
		return api.CodeEvent{Type: "result", Result: out}, true, nil
	}
	var w wireEvent
	if json.Unmarshal(line, &w) != nil {
		return ev, false, bad
	}
	switch w.Type {
	case "number_of_executions":
		return api.CodeEvent{Type: "start", ExecutionCount: w.Count}, true, nil
	case "stdout", "stderr":
		return api.CodeEvent{Type: w.Type, Text: w.Text, Timestamp: w.Timestamp}, true, nil
	case "error":
		return api.CodeEvent{Type: "exception", Exception: &api.CodeError{Name: w.Name, Value: w.Value, Traceback: w.Traceback}}, true, nil
	case "end_of_execution":
		return api.CodeEvent{Type: "end", TimedOut: w.TimedOut}, true, nil
	}
	return ev, false, nil
}

// Close ends the stream, and interrupts the code if it still runs.
func (s *CodeStream) Close() error {
	if s.over {
		_, _ = io.Copy(io.Discard, io.LimitReader(s.r, maxBody)) // so that the connection can be used again
	}
	return s.body.Close()
}

// CreateContext makes a code context.
func (c *Client) CreateContext(ctx context.Context, in api.CreateContext) (api.CodeContext, error) {
	body := map[string]any{"language": in.Language, "cwd": in.Cwd, "env_vars": in.Env}
	var out api.CodeContext
	err := c.codeAnswer(ctx, http.MethodPost, "/contexts", body, &out)
	return out, err
}

// Contexts lists the code contexts.
func (c *Client) Contexts(ctx context.Context) ([]api.CodeContext, error) {
	out := []api.CodeContext{}
	err := c.codeAnswer(ctx, http.MethodGet, "/contexts", nil, &out)
	return out, err
}

// DeleteContext ends a context with what it runs.
func (c *Client) DeleteContext(ctx context.Context, id string) error {
	return c.codeAnswer(ctx, http.MethodDelete, "/contexts/"+url.PathEscape(id), nil, nil)
}

// RestartContext gives a context a new kernel, without any state.
func (c *Client) RestartContext(ctx context.Context, id string) error {
	return c.codeAnswer(ctx, http.MethodPost, "/contexts/"+url.PathEscape(id)+"/restart", nil, nil)
}

// InterruptContext stops the code that a context runs, if any does.
func (c *Client) InterruptContext(ctx context.Context, id string) error {
	return c.codeAnswer(ctx, http.MethodPost, "/contexts/"+url.PathEscape(id)+"/interrupt", nil, nil)
}

// CodeLanguages lists the languages whose programs the machine has.
func (c *Client) CodeLanguages(ctx context.Context) ([]string, error) {
	out := []string{}
	err := c.codeAnswer(ctx, http.MethodGet, "/languages", nil, &out)
	return out, err
}

// WarmCode waits until the contexts that the image asks for can run code.
func (c *Client) WarmCode(ctx context.Context) error {
	return c.codeAnswer(ctx, http.MethodGet, "/warm", nil, nil)
}

// codeAnswer makes a call whose answer, if out is not nil, is JSON.
func (c *Client) codeAnswer(ctx context.Context, method, path string, body, out any) error {
	resp, err := c.codeCall(ctx, method, path, body)
	if err != nil {
		return err
	}
	if out == nil {
		return finish(resp)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxContexts))
	if err != nil {
		return transportError(ctx, err)
	}
	if err := json.Unmarshal(data, out); err != nil {
		return api.Wrap(api.CodeInternal, err, "the sandbox's daemon gave an answer that makes no sense")
	}
	return nil
}
