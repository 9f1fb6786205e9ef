package httpapi

import (
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/pandastack/pandastack/api"
)

// permission is who may call a route.
type permission int

// Every route has one; the zero value is none of them, so that a row without
// a permission is seen by its test.
const (
	public  permission = iota + 1 // anybody
	anyKey                        // any valid key, for what belongs to its org
	adminly                       // a key with administrator rights
)

const bearerProtocol = "bearer." // WebSocket subprotocol that carries a key

// guard refuses a request before anything of its body is read.
func (a *API) guard(p permission) func(huma.Context, func(huma.Context)) {
	return func(ctx huma.Context, next func(huma.Context)) {
		r, w := humago.Unwrap(ctx)
		if err := a.authorize(r, p); err != nil {
			a.refuse(w, r, err)
			return
		}
		next(ctx)
	}
}

func (a *API) authorize(r *http.Request, p permission) error {
	if p == public {
		return nil
	}
	secret := keyOf(r)
	if secret == "" {
		return api.Errorf(api.CodeInvalidToken, "the request has no API key")
	}
	id, err := a.Keys.Authenticate(r.Context(), secret)
	if err != nil {
		return err
	}
	requestOf(r.Context()).identity = id
	if p == adminly && !id.Admin {
		return api.Errorf(api.CodeForbidden, "this needs an admin key")
	}
	return nil
}

// keyOf finds the key of a request. A browser's WebSocket cannot set headers,
// so there it may come as a subprotocol.
func keyOf(r *http.Request) string {
	if h := r.Header.Get("Authorization"); h != "" {
		scheme, key, ok := strings.Cut(h, " ")
		if ok && strings.EqualFold(scheme, "Bearer") {
			return strings.TrimSpace(key)
		}
		return h
	}
	if h := r.Header.Get("X-API-Key"); h != "" {
		return h
	}
	if key := protocolKey(r); key != "" && strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
		return key
	}
	return ""
}

func protocolKey(r *http.Request) string {
	for _, h := range r.Header.Values("Sec-WebSocket-Protocol") {
		for p := range strings.SplitSeq(h, ",") {
			if key, ok := strings.CutPrefix(strings.TrimSpace(p), bearerProtocol); ok {
				return key
			}
		}
	}
	return ""
}

// boundBody refuses a JSON body that says it is too large without reading it,
// and keeps the deadline that the framework sets for reading the body from
// outliving it: the connection is watched for the client's leaving while the
// handler runs, and a deadline that passes there would look like it.
func (a *API) boundBody(ctx huma.Context, next func(huma.Context)) {
	r, w := humago.Unwrap(ctx)
	if r.ContentLength > maxJSONBody {
		a.refuse(w, r, tooLarge())
		return
	}
	r.Body = &boundedBody{ReadCloser: r.Body, done: func() { _ = huma.SetReadDeadline(w, time.Time{}) }}
	next(ctx)
}

type boundedBody struct {
	io.ReadCloser
	done func()
}

// Close takes what is left of a body that was too large to be read, so that the
// client has sent it before it is told so.
func (b *boundedBody) Close() error {
	_, _ = io.CopyN(io.Discard, b.ReadCloser, lingerBytes)
	err := b.ReadCloser.Close()
	b.done()
	return err
}
