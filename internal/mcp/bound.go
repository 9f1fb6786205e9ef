package mcp

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// What a model is given at most.
const (
	keepOutput = 16 << 10 // bytes of each end of each stream of a command
	maxText    = 64 << 10 // bytes of a file that is text
	maxBinary  = 32 << 10 // bytes of a file that is not, which grow by a third
	maxEntries = 500      // of a directory
	maxPage    = 100      // of a list
	maxWrite   = 1 << 20  // bytes of a file that is written
	maxForm    = 4 << 10  // bytes of each end of one form of a value
	maxForms   = 64 << 10 // bytes of all forms of all values
	maxResults = 50       // values that code shows
	maxImage   = 1 << 20  // bytes of a picture
	maxImages  = 4 << 20  // bytes of all pictures
	maxListed  = 200      // processes or contexts
	maxLine    = 512      // bytes of a command line in a list
)

// ends keeps the beginning and the end of what is written to it.
type ends struct {
	keep       int // bytes of each; default keepOutput
	head, tail []byte
	omitted    int64 // bytes between them
}

// Write implements io.Writer and never fails.
func (e *ends) Write(p []byte) (int, error) {
	n, keep := len(p), keepOutput
	if e.keep > 0 {
		keep = e.keep
	}
	if room := keep - len(e.head); room > 0 {
		taken := min(room, len(p))
		e.head = append(e.head, p[:taken]...)
		p = p[taken:]
	}
	e.tail = append(e.tail, p...)
	if over := len(e.tail) - keep; over > 0 {
		e.omitted += int64(over)
		e.tail = append(e.tail[:0], e.tail[over:]...)
	}
	return n, nil
}

// text gives both ends, and between them how much is missing.
func (e *ends) text() string {
	if e.omitted == 0 {
		return valid(append(e.head[:len(e.head):len(e.head)], e.tail...))
	}
	head, tail := wholeEnd(e.head), wholeStart(e.tail)
	cut := e.omitted + int64(len(e.head)-len(head)+len(e.tail)-len(tail))
	e.head, e.tail, e.omitted = head, tail, cut
	return valid(head) + fmt.Sprintf("\n[... %d bytes left out ...]\n", cut) + valid(tail)
}

// middleOut is a text without its middle if it is long.
func middleOut(s string, keep int) string {
	e := ends{keep: keep}
	_, _ = e.Write([]byte(s)) // it never fails
	return e.text()
}

func valid(p []byte) string { return strings.ToValidUTF8(string(p), "\uFFFD") }

// wholeEnd drops the beginning of a character that is cut off at the end of p.
func wholeEnd(p []byte) []byte {
	for i := len(p) - 1; i >= 0 && i > len(p)-utf8.UTFMax; i-- {
		if utf8.RuneStart(p[i]) {
			if !utf8.FullRune(p[i:]) {
				return p[:i]
			}
			break
		}
	}
	return p
}

// wholeStart drops the end of a character whose beginning is cut off.
func wholeStart(p []byte) []byte {
	for i := range min(len(p), utf8.UTFMax-1) {
		if utf8.RuneStart(p[i]) {
			return p[i:]
		}
	}
	return p
}
