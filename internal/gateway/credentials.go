package gateway

import (
	"net/http"
	"net/url"
	"slices"
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

// credentials are the tokens of a request, by where they stood.
type credentials struct{ query, header, cookies []string }

// takeCredentials takes all tokens out of a request.
func takeCredentials(r *http.Request) credentials {
	var c credentials
	if r.URL.RawQuery != "" {
		r.URL.RawQuery, c.query = takeQuery(r.URL.RawQuery)
	}
	if h := r.Header.Values(tokenHeader); len(h) > 0 {
		c.header = h
		r.Header.Del(tokenHeader)
	}
	if lines := r.Header["Cookie"]; len(lines) > 0 {
		c.cookies = takeCookies(r.Header, lines)
	}
	if lines := r.Header["Referer"]; len(lines) > 0 {
		cleanReferer(r.Header, lines)
	}
	return c
}

// cleanReferer takes our parameter out of the address of the page that a request
// comes from: the first one may have been opened by a signed URL. A line in which
// it may stand after that is dropped.
func cleanReferer(h http.Header, lines []string) {
	var kept []string
	for _, line := range lines {
		address, query, asks := strings.Cut(line, "?")
		if asks {
			if rest, found := takeQuery(query); len(found) == 0 {
				address = line
			} else if rest != "" {
				address += "?" + rest
			}
		}
		plain, err := url.QueryUnescape(address)
		if err != nil {
			plain = address // what stands in it is in no address that a browser opened
		}
		if !strings.Contains(plain, tokenQuery) {
			kept = append(kept, address)
		}
	}
	if len(kept) == 0 {
		h.Del("Referer")
	} else {
		h["Referer"] = kept
	}
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

// admit reports whether a request may pass to a private preview. A token of the
// URL that admits it is given, with when it expires: it is asked first, so that
// the cookie of an older one does not outlive it. own says whether a cookie may
// admit it.
func (g *Gateway) admit(c credentials, own bool, id string, port int, now time.Time) (token string, expires time.Time, err error) {
	tokens := slices.Concat(c.query, c.header)
	if own {
		tokens = append(tokens, c.cookies...)
	} else if len(tokens) == 0 && len(c.cookies) > 0 {
		return "", time.Time{}, refused("the cookie of a private preview is good for requests of its own pages alone")
	}
	for i, token := range tokens[:min(len(tokens), maxTokens)] {
		until, wrong := g.signer.check(token, id, port, now)
		if wrong == nil && i < len(c.query) {
			return token, until, nil
		}
		if wrong == nil {
			return "", time.Time{}, nil
		}
		if err == nil {
			err = wrong
		}
	}
	if err == nil {
		err = refused("this preview is private and the request has no preview token")
	}
	return "", time.Time{}, err
}

// ownPage reports whether a request is one of the preview's own pages, or of a
// person who opens one, and not of a page of somebody else: all previews below a
// domain are one site, so that browsers send a cookie along, whatever its
// SameSite, when the page of another preview asks. Browsers that say nothing of
// where a request is from are old, and what is no browser has no page.
func (p peer) ownPage(r *http.Request) bool {
	site := r.Header.Get("Sec-Fetch-Site") // which no page can write
	if site == "same-origin" {
		return true
	}
	if r.Method == http.MethodGet && r.Header.Get("Sec-Fetch-Mode") == "navigate" && r.Header.Get("Sec-Fetch-Dest") == "document" {
		return true
	}
	if origins := r.Header["Origin"]; len(origins) > 0 { // as in every handshake of a WebSocket
		u, err := url.Parse(origins[0])
		return err == nil && len(origins) == 1 && u.Host != "" &&
			(strings.EqualFold(u.Host, r.Host) || strings.EqualFold(u.Host, p.host))
	}
	return site == "" || site == "none"
}

// welcome gives a browser that came by a signed URL a cookie with the token.
func welcome(w http.ResponseWriter, token string, expires time.Time, secure bool) {
	// A cookie without a domain is for this very host alone.
	http.SetCookie(w, &http.Cookie{
		Name: tokenCookie, Value: token, Path: "/", Expires: expires, MaxAge: max(int(time.Until(expires).Seconds()), 1),
		HttpOnly: true, Secure: secure, SameSite: http.SameSiteLaxMode,
	})
}

// sendOn sends a browser to the address without a token, so that the token stays
// out of the history and of what pages tell of where they were come from.
func sendOn(w http.ResponseWriter, r *http.Request) {
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
