package gateway

import (
	"net"
	"net/url"
	"strconv"
)

// Address says where previews are reached. The zero value has the domain
// localhost.
type Address struct {
	Domain string
	// TLSPort is the port of the server's own TLS listener; 0 without one.
	// Previews are then reached as the API is, which a proxy in front of the
	// server may serve over TLS.
	TLSPort int
}

// URL is the address of a port's preview for a client that has reached the API by
// a host, with or without a port, over TLS or not.
func (a Address) URL(host string, secure bool, id string, port int) url.URL {
	domain := a.Domain
	if domain == "" {
		domain = DefaultDomain
	}
	u := url.URL{Scheme: "http", Host: label(id, port) + "." + domain, Path: "/"}
	if a.TLSPort != 0 {
		u.Scheme = "https"
		if a.TLSPort != 443 {
			u.Host += ":" + strconv.Itoa(a.TLSPort)
		}
		return u
	}
	if secure {
		u.Scheme = "https"
	}
	if _, number, err := net.SplitHostPort(host); err == nil {
		if n, err := strconv.ParseUint(number, 10, 16); err == nil && n > 0 {
			u.Host += ":" + strconv.FormatUint(n, 10)
		}
	}
	return u
}

// Signed is a preview's address with a token.
func Signed(u url.URL, token string) string {
	u.RawQuery = url.Values{tokenQuery: {token}}.Encode()
	return u.String()
}
