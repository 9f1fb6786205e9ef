package egress

import "bytes"

// protocol is what a connection's first bytes say that it is.
type protocol int

const (
	undecided  protocol = iota // more bytes are needed
	speaksTLS                  // a TLS record
	speaksHTTP                 // a line that some server could take for HTTP
	speaksElse                 // neither, whatever follows
)

// maxBlank is how many bytes of empty lines and spaces may stand before a request:
// servers skip some.
const maxBlank = 64

// classify tells protocols apart by what a server could take the bytes for, not by
// what they should look like: what is called neither TLS nor HTTP is not checked
// by name.
func classify(b []byte) protocol {
	line := bytes.TrimLeft(b, "\r\n \t")
	switch {
	case len(line) == 0 && len(b) <= maxBlank:
		return undecided
	case len(b)-len(line) > maxBlank:
		return speaksHTTP
	case b[0] == recordHandshake:
		return speaksTLS
	}
	end := bytes.IndexByte(line, '\n')
	whole := end >= 0
	if whole {
		line = line[:end]
	}
	// No server takes for a method what is not made of the characters of one.
	method, _, spaced := bytes.Cut(line, []byte(" "))
	if cut := bytes.IndexByte(method, '\t'); cut >= 0 {
		method, spaced = method[:cut], true
	}
	for _, c := range bytes.TrimRight(method, "\r") {
		if !tokenByte(c) {
			return speaksElse
		}
	}
	switch {
	case bytes.Contains(bytes.ToUpper(line), []byte("HTTP/")), spaced && wellKnown(method), len(line) >= maxHead:
		return speaksHTTP
	case whole:
		return speaksElse
	}
	return undecided
}

// wellKnown reports whether a word is a method of HTTP, of whatever version: 0.9
// has no version in its line.
func wellKnown(method []byte) bool {
	switch string(bytes.ToUpper(method)) {
	case "GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "CONNECT", "PRI":
		return true
	}
	return false
}
