package httpapi

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/control"
)

type eventsInput struct {
	SandboxPath
	Tail   int    `query:"tail" minimum:"0" maximum:"10000" doc:"At most so many of the latest; 0 is all"`
	Since  string `query:"since" maxLength:"64" doc:"Only what came after: id of an event, or a time (RFC 3339 or Unix seconds)" example:"42"`
	Follow bool   `query:"follow" doc:"Go on with new events as server-sent events"`
	LastID int64  `header:"Last-Event-ID" minimum:"0" doc:"With follow: the same as since, sent by browsers that reconnect"`

	id int64
}

// Resolve reads since in its forms.
func (in *eventsInput) Resolve(huma.Context) []error {
	in.id = in.LastID
	if in.Since == "" {
		return nil
	}
	id, ok := parseSince(in.Since)
	if !ok {
		return []error{&huma.ErrorDetail{Location: "query.since", Message: "expected the id of an event, an RFC 3339 time or Unix seconds"}}
	}
	in.id = id
	return nil
}

// parseSince gives the event id that a caller means. An id is the microsecond
// in which its event was written, so a time is an id too, and a number of the
// size of Unix seconds or milliseconds is a time.
func parseSince(s string) (int64, bool) {
	n, err := strconv.ParseInt(s, 10, 64)
	switch {
	case err != nil:
		t, err := time.Parse(time.RFC3339Nano, s)
		return t.UnixMicro(), err == nil
	case n < 0:
		return 0, false
	case n >= 1e9 && n < 1e11:
		return n * 1e6, true
	case n >= 1e11 && n < 1e14:
		return n * 1e3, true
	}
	return n, true
}

func (a *API) getEvents(ctx context.Context, in *eventsInput) (*huma.StreamResponse, error) {
	events, err := a.Control.Events(ctx, who(ctx), in.ID, control.EventQuery{Since: in.id, Tail: in.Tail})
	if err != nil {
		return nil, err
	}
	last := in.id
	if events == nil {
		events = []api.Event{} // a list, never null
	} else if n := len(events); n > 0 {
		last = events[n-1].ID
	}
	return raw(func(w http.ResponseWriter, r *http.Request) {
		if !in.Follow {
			writeJSON(w, http.StatusOK, events)
			return
		}
		a.followEvents(ctx, in.ID, events, last, w, r)
	}), nil
}

func (a *API) followEvents(ctx context.Context, id string, first []api.Event, last int64, w http.ResponseWriter, r *http.Request) {
	out := newEventStream(w)
	emit := func(e api.Event) error { return out.send("ev", e.ID, e) }
	err := out.during(a.KeepAlive, func() error {
		if err := out.open(); err != nil {
			return err
		}
		for _, e := range first {
			if err := emit(e); err != nil {
				return err
			}
		}
		return a.Control.FollowEvents(ctx, who(ctx), id, last, emit)
	})
	if err != nil {
		a.endStream(out, w, r, err, func(e *api.Error) any { return e })
	}
}
