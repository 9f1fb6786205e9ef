// Package api holds the names on the wire: the types of the public HTTP API
// and its error codes. Servers, the Go SDK and the CLI share it; it depends on
// nothing of ours.
package api

import (
	"crypto/rand"
	"regexp"
	"sync"
)

// InternalPort is the port of the daemon inside every sandbox. It is never
// reachable from outside except through the API.
const InternalPort = 49983

// Environment variables of clients, in order of preference, and the file read
// after them.
const (
	EnvAPIKey  = "PANDASTACK_API_KEY"
	EnvToken   = "PANDASTACK_TOKEN"
	EnvBaseURL = "PANDASTACK_API"
)

const idAlphabet = "abcdefghijklmnopqrstuvwxyz0123456789"

var idPattern = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-z0-9]{20}$`) })

// NewID makes an identifier of 20 characters of [a-z0-9] (103 bits), which
// fits a DNS label.
func NewID() string {
	out := make([]byte, 0, 20)
	var buf [32]byte
	for len(out) < 20 {
		rand.Read(buf[:])
		for _, b := range buf {
			// 252 is the largest multiple of 36 in a byte: what lies
			// above would make some letters likelier.
			if b < 252 && len(out) < 20 {
				out = append(out, idAlphabet[b%36])
			}
		}
	}
	return string(out)
}

// ValidID reports whether s has the form of a sandbox id.
func ValidID(s string) bool { return idPattern().MatchString(s) }
