package gateway

import (
	"net/http"
	"net/url"
	"strings"
	"time"
)

// Where a token may stand. None of them goes into the sandbox: what runs there
// is not to learn how others are admitted.
const (
	tokenHeader = "X-PandaStack-Preview-Token"
	tokenCookie = "ps_preview"
	tokenQuery  = "ps_token"
)

// maxTokens bounds the tokens of one request that are checked: cookies of a name
// can be many, since other sites of a domain may set them for all below it.
const maxTokens = 8

// credentials are the tokens of a request.
type credentials struct {
	tokens []string
	query  string // the one of a signed URL
}

// takeCredentials takes all tokens out of a request.
func takeCredentials(r *http.Request) credentials {
	var c credentials
	if h := r.Header.Values(tokenHeader); len(h) > 0 {
		c.tokens = append(c.tokens, h...)
		r.Header.Del(tokenHeader)
	}
	if lines := r.Header["Cookie"]; len(lines) > 0 {
		c.tokens = append(c.tokens, takeCookies(r.Header, lines)...)
	}
	if r.URL.RawQuery != "" {
		var found []string
		r.URL.RawQuery, found = takeQuery(r.URL.RawQuery)
		if len(found) > 0 {
			c.query = found[0]
			c.tokens = append(c.tokens, found...)
		}
	}
	c.tokens = c.tokens[:min(len(c.tokens), maxTokens)]
	return c
}

// takeCookies takes our cookies out of a request's and leaves the others as they
// were written.
func takeCookies(h http.Header, lines []string) (values []string) {
	var kept []string
	for _, line := range lines {
		var rest []string
		for part := range strings.SplitSeq(line, ";") {
			name, value, _ := strings.Cut(part, "=")
			if strings.TrimSpace(name) != tokenCookie {
				rest = append(rest, part)
				continue
			}
			values = append(values, strings.TrimSpace(value))
		}
		if line = strings.TrimSpace(strings.Join(rest, ";")); line != "" {
			kept = append(kept, line)
		}
	}
	if len(values) == 0 {
		return nil
	}
	if len(kept) == 0 {
		h.Del("Cookie")
	} else {
		h["Cookie"] = kept
	}
	return values
}

// takeQuery takes our parameter out of a query and leaves the others as they
// were written.
func takeQuery(query string) (rest string, values []string) {
	var kept []string
	for part := range strings.SplitSeq(query, "&") {
		name, value, _ := strings.Cut(part, "=")
		if plain, err := url.QueryUnescape(name); err != nil || plain != tokenQuery {
			kept = append(kept, part)
			continue
		}
		values = append(values, value) // a token has nothing to unescape
	}
	return strings.Join(kept, "&"), values
}

// admit reports whether a request may pass to a private preview, and when the
// token of its URL expires if that is what admits it.
func (g *Gateway) admit(c credentials, id string, port int, now time.Time) (expires time.Time, err error) {
	err = refused("this preview is private and the request has no preview token")
	for _, token := range c.tokens {
		var until time.Time
		if until, err = g.signer.check(token, id, port, now); err == nil {
			if token == c.query {
				expires = until
			}
			return expires, nil
		}
	}
	return time.Time{}, err
}

// welcome answers a browser that came by a signed URL: it is given a cookie with
// the token, and the address without it, so that the token stays out of the
// history and of what pages tell others of where they were come from.
func welcome(w http.ResponseWriter, r *http.Request, token string, expires time.Time, secure bool) {
	// A cookie without a domain is for this very host alone.
	http.SetCookie(w, &http.Cookie{
		Name: tokenCookie, Value: token, Path: "/", Expires: expires, MaxAge: max(int(time.Until(expires).Seconds()), 1),
		HttpOnly: true, Secure: secure, SameSite: http.SameSiteLaxMode,
	})
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("Referrer-Policy", "no-referrer")
	// Two slashes at the beginning would be another host.
	target := "/" + strings.TrimLeft(r.URL.EscapedPath(), `/\`)
	if r.URL.RawQuery != "" {
		target += "?" + r.URL.RawQuery
	}
	h.Set("Location", target)
	w.WriteHeader(http.StatusFound)
}

// navigates reports whether a person's browser asks for a page.
func navigates(r *http.Request) bool {
	return (r.Method == http.MethodGet || r.Method == http.MethodHead) && wantsPage(r) && r.Header.Get("Upgrade") == ""
}

func wantsPage(r *http.Request) bool {
	return strings.Contains(strings.ToLower(r.Header.Get("Accept")), "text/html")
}
