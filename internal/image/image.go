// Package image turns root filesystems into read-only images that every
// isolation driver can boot: one EROFS file, named by the SHA-256 of its bytes.
// A root comes from a directory, a tar archive or a Debian recipe.
//
// A Store is a directory that several processes may share:
//
//	<64 hex>.erofs   an image, complete: it is renamed into place after fsync
//	<64 hex>.json    where it came from
//	tags.json        names for digests, replaced as a whole
//	builds/          which digest a recipe or guest program gave, and a lock for each
//	tmp/             work in progress, each under a lock that its maker holds
//
// What a crash leaves in tmp is removed by the next Sweep. The same content
// gives the same digest: times of files that a build itself writes are set back
// to the newest time the content brought along.
package image

import (
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/pandastack/pandastack/api"
)

// Image is one file of the store.
type Image struct {
	Digest  string    `json:"digest"` // sha256:<64 hex>
	Path    string    `json:"-"`      // of the EROFS file
	Size    int64     `json:"size"`   // bytes of the file
	Created time.Time `json:"created"`
	Source  string    `json:"source"` // what it was made from, for people
	Tool    string    `json:"tool"`   // version of the program that wrote it
}

// Progress hears how far a build is: what it does now and the part of the whole
// that is done, from 0 to 1. It is called from one goroutine at a time and may
// be nil.
type Progress func(step string, fraction float64)

func (p Progress) report(step string, fraction float64) {
	if p != nil {
		p(step, min(max(fraction, 0), 1))
	}
}

// within gives a Progress for a part of the whole, from lo to hi.
func (p Progress) within(lo, hi float64) Progress {
	if p == nil {
		return nil
	}
	return func(step string, f float64) { p(step, lo+(hi-lo)*min(max(f, 0), 1)) }
}

const digestPrefix = "sha256:"

var (
	hexPattern = pattern(`^[0-9a-f]{64}$`)
	tagPattern = pattern(`^[a-z0-9][a-z0-9._-]{0,127}$`)
)

// pattern compiles a regular expression at its first use: this program is
// started for every sandbox, where none of them is needed.
func pattern(expr string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expr) })
}

// parseDigest accepts sha256:<64 hex> and <64 hex>, and gives the digits.
func parseDigest(s string) (hex string, ok bool) {
	hex = strings.TrimPrefix(s, digestPrefix)
	return hex, hexPattern().MatchString(hex)
}

func invalid(format string, args ...any) *api.Error {
	return api.Errorf(api.CodeTemplateInvalid, format, args...)
}
