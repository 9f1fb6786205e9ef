package egress

import (
	"errors"

	"golang.org/x/crypto/cryptobyte"

	"github.com/pandastack/pandastack/internal/netrule"
)

// Bounds of a TLS ClientHello. A hello with keys for the time after today's has
// about 2 KiB.
const (
	maxHello      = 16 << 10 // bytes of the message
	maxHelloBytes = 32 << 10 // with the headers of the records that it comes in
)

// errMore says that what was read so far is the beginning of something that is
// not complete.
var errMore = errors.New("more bytes are needed")

// refusal is why something was refused, as the log and the sandbox read it.
type refusal string

func (r refusal) Error() string { return string(r) }

const (
	errHello     refusal = "the TLS hello is malformed"
	errHelloLong refusal = "the TLS hello is too long"
	errHelloTwo  refusal = "more than one TLS hello"
	errHelloName refusal = "the TLS hello does not name one host"
	errHelloECH  refusal = "the TLS hello hides its name (encrypted_client_hello)"
)

// Extensions of a ClientHello.
const (
	extServerName = 0
	extESNI       = 0xffce // an early form of ECH
	extECH        = 0xfe0d
	extECHDraft   = 0xfe08 // to extECH-1: drafts
)

// parseHello reads the name in the first bytes of a TLS connection, "" where the
// hello has none. It gives errMore until the hello is complete, and a refusal
// where the bytes are no hello or could be read in more than one way.
func parseHello(b []byte) (string, error) {
	msg, rest, err := helloMessage(b)
	if err != nil {
		return "", err
	}
	// A client waits for the server now. What a hello is followed by, if anything,
	// is early data or a compatibility message.
	if len(rest) > 0 && rest[0] == recordHandshake {
		return "", errHelloTwo
	}
	return helloName(msg)
}

const (
	recordHandshake = 22
	clientHello     = 1
)

// records finds in bytes that come a few at a time where a hello is complete. It
// looks at each of them once, so that a hello is put together once.
type records struct {
	seen   int     // bytes that were looked at
	header [5]byte // of this record
	at     int     // bytes of header that there are
	left   int     // bytes of this record that there are not
	start  [4]byte // of the message: what it is, and its size
	got    int     // bytes of the message that there are
}

// complete reports whether b, which begins with the bytes of the last call, is
// enough for parseHello to decide: it has a whole hello, or is none.
func (r *records) complete(b []byte) bool {
	for done := false; r.seen < len(b); {
		c := b[r.seen]
		r.seen++
		if r.at < len(r.header) {
			done = r.head(c)
		} else {
			done = r.body(c)
		}
		if done {
			return true
		}
	}
	return false
}

// head takes a byte of the header of a record.
func (r *records) head(c byte) (done bool) {
	r.header[r.at] = c
	switch r.at++; r.at {
	case 1:
		return c != recordHandshake
	case 2:
		return c != 3
	case len(r.header):
		r.left = int(r.header[3])<<8 | int(r.header[4])
		return r.left == 0 || r.left > maxHello
	}
	return false
}

// body takes a byte of the message.
func (r *records) body(c byte) (done bool) {
	if r.got < len(r.start) {
		r.start[r.got] = c
	}
	r.got++
	if r.left--; r.left == 0 {
		r.at = 0
	}
	if r.got < len(r.start) {
		return r.start[0] != clientHello
	}
	size := len(r.start) + (int(r.start[1])<<16 | int(r.start[2])<<8 | int(r.start[3]))
	return r.start[0] != clientHello || size > maxHello || r.got > size || r.got == size && r.left == 0
}

// helloMessage puts together the ClientHello, which may come in several records,
// and gives what follows the last of them.
func helloMessage(b []byte) (msg, rest []byte, err error) {
	const header = 5
	for rest = b; ; {
		if len(rest) > 0 && rest[0] != recordHandshake || len(rest) > 1 && rest[1] != 3 {
			return nil, nil, errHello
		}
		if len(rest) < header {
			return nil, nil, orTooLong(b)
		}
		n := int(rest[3])<<8 | int(rest[4])
		if n == 0 || n > maxHello {
			return nil, nil, errHello
		}
		part := rest[header:min(len(rest), header+n)]
		msg = append(msg, part...)
		if len(msg) > 0 && msg[0] != clientHello {
			return nil, nil, errHello
		}
		if len(msg) >= 4 {
			size := 4 + (int(msg[1])<<16 | int(msg[2])<<8 | int(msg[3]))
			switch {
			case size > maxHello:
				return nil, nil, errHelloLong
			case len(msg) > size:
				return nil, nil, errHelloTwo
			case len(msg) == size && len(part) == n:
				return msg[4:], rest[header+n:], nil
			}
		}
		if len(part) < n {
			return nil, nil, orTooLong(b)
		}
		rest = rest[header+n:]
	}
}

func orTooLong(b []byte) error {
	if len(b) >= maxHelloBytes {
		return errHelloLong
	}
	return errMore
}

// helloName reads the body of a ClientHello.
func helloName(body []byte) (string, error) {
	s := cryptobyte.String(body)
	var session, suites, compressions, extensions cryptobyte.String
	if !s.Skip(2+32) || !s.ReadUint8LengthPrefixed(&session) || !s.ReadUint16LengthPrefixed(&suites) ||
		!s.ReadUint8LengthPrefixed(&compressions) {
		return "", errHello
	}
	if s.Empty() {
		return "", nil
	}
	if !s.ReadUint16LengthPrefixed(&extensions) || !s.Empty() {
		return "", errHello
	}
	name, named := "", false
	for !extensions.Empty() {
		var kind uint16
		var data cryptobyte.String
		if !extensions.ReadUint16(&kind) || !extensions.ReadUint16LengthPrefixed(&data) {
			return "", errHello
		}
		switch {
		case kind == extESNI, kind >= extECHDraft && kind <= extECH:
			return "", errHelloECH
		case kind == extServerName && named:
			return "", errHelloName
		case kind == extServerName:
			var ok bool
			if name, ok = serverName(data); !ok {
				return "", errHelloName
			}
			named = true
		}
	}
	return name, nil
}

// serverName reads the extension, which must have one entry that is the name of a
// host: servers differ in which of several they take.
func serverName(data cryptobyte.String) (string, bool) {
	const hostName = 0
	var list, host cryptobyte.String
	var kind uint8
	if !data.ReadUint16LengthPrefixed(&list) || !data.Empty() ||
		!list.ReadUint8(&kind) || kind != hostName || !list.ReadUint16LengthPrefixed(&host) || !list.Empty() {
		return "", false
	}
	return netrule.Name(string(host))
}
