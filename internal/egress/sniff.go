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

// sniffer tells protocols apart by what a server could take the bytes for, not by
// what they should look like: what is called neither TLS nor HTTP is not checked by
// name. It looks at each byte once.
type sniffer struct {
	seen    int  // bytes that were looked at
	blank   int  // of these, empty lines and spaces before the first line
	spaced  bool // whether the first word of the line has ended
	returns bool // whether that word has a carriage return, which may only end it
	matched int  // bytes of version that the line has just had
}

// version is in the line of every request but those of HTTP/0.9.
const version = "HTTP/"

// classify goes on with b, which begins with the bytes of the last call.
func (s *sniffer) classify(b []byte) protocol {
	for s.seen < len(b) {
		c := b[s.seen]
		s.seen++
		if p := s.step(c, b); p != undecided {
			return p
		}
	}
	return undecided
}

// step takes the byte c, the last that was looked at in b.
func (s *sniffer) step(c byte, b []byte) protocol {
	if s.blank == s.seen-1 && (c == '\r' || c == '\n' || c == ' ' || c == '\t') {
		if s.blank++; s.blank > maxBlank {
			return speaksHTTP
		}
		return undecided
	}
	switch {
	case s.seen == 1 && c == recordHandshake:
		return speaksTLS
	case c == '\n':
		return speaksElse
	}
	if !s.spaced {
		if p := s.word(c, b[s.blank:s.seen-1]); p != undecided {
			return p
		}
	}
	switch {
	case upper(c) == version[s.matched]:
		s.matched++
	case upper(c) == version[0]:
		s.matched = 1
	default:
		s.matched = 0
	}
	if s.matched == len(version) || s.seen-s.blank >= maxHead {
		return speaksHTTP
	}
	return undecided
}

// word takes a byte of the first word of the line, or its end. No server takes for
// a method what is not made of the characters of one.
func (s *sniffer) word(c byte, method []byte) protocol {
	switch {
	case c == ' ' || c == '\t':
		if s.spaced = true; !s.returns && wellKnown(method) {
			return speaksHTTP
		}
	case c == '\r':
		s.returns = true
	case s.returns || !tokenByte(c):
		return speaksElse
	}
	return undecided
}

func upper(c byte) byte {
	if 'a' <= c && c <= 'z' {
		c -= 'a' - 'A'
	}
	return c
}

// wellKnown reports whether a word is a method of HTTP, of whatever version: 0.9
// has no version in its line.
func wellKnown(method []byte) bool {
	if len(method) > len("OPTIONS") {
		return false
	}
	switch string(bytes.ToUpper(method)) {
	case "GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "CONNECT", "PRI":
		return true
	}
	return false
}
