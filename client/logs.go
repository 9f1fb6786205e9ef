package client

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"iter"
	"mime"
	"net/http"
	"net/url"
	"strconv"

	"github.com/pandastack/pandastack/api"
)

// LogOptions choose lines of a sandbox's log. The zero value is all that the
// sandbox keeps.
type LogOptions struct {
	Tail   int    // only the last so many lines; 0 is all
	Stream string // stdout, stderr, or both; empty is both
	Follow bool   // go on with new lines until ctx ends or the sandbox does
}

// Logs gives what processes in the sandbox wrote. Without Follow only Line is
// set: the server sends plain text. It ends after the first error.
func (s *Sandbox) Logs(ctx context.Context, o LogOptions) iter.Seq2[api.LogLine, error] {
	q := url.Values{}
	if o.Tail > 0 {
		q.Set("tail", strconv.Itoa(o.Tail))
	}
	if o.Stream != "" {
		q.Set("stream", o.Stream)
	}
	r := request{method: http.MethodGet, path: s.path("logs"), query: q, accept: "text/plain"}
	if !o.Follow {
		return func(yield func(api.LogLine, error) bool) { s.c.textLines(ctx, r, yield) }
	}
	q.Set("follow", "1")
	return follow[api.LogLine](ctx, s.c, r)
}

// textLines gives a plain-text answer line by line.
func (c *Client) textLines(ctx context.Context, r request, yield func(api.LogLine, error) bool) {
	resp, err := c.send(ctx, r)
	if err != nil {
		yield(api.LogLine{}, err)
		return
	}
	defer resp.Body.Close()
	if kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); kind != "text/plain" {
		yield(api.LogLine{}, c.notAServer(resp))
		return
	}
	scan := bufio.NewScanner(resp.Body)
	scan.Buffer(nil, sseLineLimit)
	for scan.Scan() {
		if !yield(api.LogLine{Line: scan.Text()}, nil) {
			return
		}
	}
	if err := scan.Err(); err != nil {
		yield(api.LogLine{}, c.transportError(ctx, err))
	}
}

// EventOptions choose events of a sandbox.
type EventOptions struct {
	Tail   int   // only the last so many; 0 is all
	Since  int64 // only those after this event's ID
	Follow bool  // go on with new events until ctx ends or the sandbox does
}

// Events gives what happened to the sandbox, oldest first. It ends after the
// first error.
func (s *Sandbox) Events(ctx context.Context, o EventOptions) iter.Seq2[api.Event, error] {
	q := url.Values{}
	if o.Tail > 0 {
		q.Set("tail", strconv.Itoa(o.Tail))
	}
	if o.Since > 0 {
		q.Set("since", strconv.FormatInt(o.Since, 10))
	}
	r := request{method: http.MethodGet, path: s.path("events"), query: q}
	if o.Follow {
		q.Set("follow", "1")
		return follow[api.Event](ctx, s.c, r)
	}
	return func(yield func(api.Event, error) bool) {
		var list []api.Event
		if err := s.c.call(ctx, r, &list); err != nil {
			yield(api.Event{}, err)
			return
		}
		for _, ev := range list {
			if !yield(ev, nil) {
				return
			}
		}
	}
}

// follow gives each server-sent event of an answer, decoded from JSON. An
// event named error is the end, and its data the error, bare or in its
// envelope.
func follow[T any](ctx context.Context, c *Client, r request) iter.Seq2[T, error] {
	r.accept = "text/event-stream"
	return func(yield func(T, error) bool) {
		var zero T
		resp, err := c.send(ctx, r)
		if err != nil {
			yield(zero, err)
			return
		}
		defer resp.Body.Close()
		if kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); kind != "text/event-stream" {
			yield(zero, c.notAServer(resp))
			return
		}
		events := newSSEReader(resp.Body)
		for {
			ev, err := events.next()
			if errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
				return
			}
			if err != nil {
				yield(zero, c.transportError(ctx, err))
				return
			}
			v, err := decodeEvent[T](ev)
			if !yield(v, err) || err != nil {
				return
			}
		}
	}
}

func decodeEvent[T any](ev sseEvent) (T, error) {
	var v T
	if ev.name == "error" {
		var env struct {
			api.Error
			Wrapped *api.Error `json:"error"`
		}
		if json.Unmarshal(ev.data, &env) == nil {
			if env.Wrapped != nil {
				return v, env.Wrapped
			}
			if env.Code != "" {
				return v, &env.Error
			}
		}
		return v, api.Errorf(api.CodeInternal, "the server ended the stream with an error")
	}
	if err := json.Unmarshal(ev.data, &v); err != nil {
		return v, api.Wrap(api.CodeNotAServer, err, "the server sent an event that is not what this version of the client knows")
	}
	return v, nil
}
