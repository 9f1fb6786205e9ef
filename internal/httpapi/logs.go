package httpapi

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/guest"
)

type logsInput struct {
	SandboxPath
	Tail   int    `query:"tail" minimum:"0" maximum:"1000000" doc:"At most so many of the latest lines; 0 is all that are kept"`
	Stream string `query:"stream" enum:"stdout,stderr,both" default:"both"`
	Follow bool   `query:"follow" doc:"Go on with new lines as server-sent events"`
}

func (a *API) getLogs(ctx context.Context, in *logsInput) (*huma.StreamResponse, error) {
	lines, err := a.Control.Logs(ctx, who(ctx), in.ID, guest.LogOptions{Tail: in.Tail, Stream: in.Stream, Follow: in.Follow})
	if err != nil {
		return nil, err
	}
	return raw(func(w http.ResponseWriter, r *http.Request) {
		defer lines.Close()
		if in.Follow {
			a.followLogs(lines, w, r)
		} else {
			a.sendLogs(lines, w, r)
		}
	}), nil
}

// sendLogs answers with lines as they were written.
func (a *API) sendLogs(lines *guest.LogStream, w http.ResponseWriter, r *http.Request) {
	line, err := lines.Recv()
	if err != nil && !errors.Is(err, io.EOF) {
		a.fail(w, r, err)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(http.StatusOK)
	out := bufio.NewWriterSize(w, 32<<10)
	for ; err == nil; line, err = lines.Recv() {
		out.WriteString(line.Line)
		out.WriteByte('\n')
	}
	if flushed := out.Flush(); flushed != nil || !errors.Is(err, io.EOF) {
		requestOf(r.Context()).err = errors.Join(err, flushed)
		panic(http.ErrAbortHandler)
	}
}

func (a *API) followLogs(lines *guest.LogStream, w http.ResponseWriter, r *http.Request) {
	out := newEventStream(w)
	err := out.during(a.KeepAlive, func() error {
		err := out.open()
		for err == nil {
			var line api.LogLine
			if line, err = lines.Recv(); err == nil {
				err = out.send("log", 0, line)
			}
		}
		return err
	})
	if !errors.Is(err, io.EOF) {
		a.endStream(out, w, r, err, func(e *api.Error) any { return e })
	}
}
