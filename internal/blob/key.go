package blob

import (
	"fmt"
	"io/fs"
	"strings"

	"github.com/pandastack/pandastack/api"
)

// Bounds of a key. A store may put something before it: S3 allows 1024
// characters in all.
const (
	maxParts = 10
	maxPart  = 200
	maxKey   = 800
)

// ValidKey reports whether a key has the form that the package's rules ask for.
func ValidKey(key string) bool {
	if len(key) > maxKey {
		return false
	}
	parts := strings.Split(key, "/")
	for _, p := range parts {
		if !validPart(p) {
			return false
		}
	}
	return len(parts) <= maxParts
}

func validPart(p string) bool {
	return p != "" && len(p) <= maxPart && p != "." && p != ".." && plain(p)
}

// validPrefix reports whether a key may begin like this.
func validPrefix(prefix string) bool {
	dir, last := splitPrefix(prefix)
	whole := len(last) < len(prefix) // parts of it, which then must be some
	return (!whole || ValidKey(dir)) && len(last) <= maxPart && plain(last)
}

// splitPrefix gives the parts of a prefix that are whole, "." for none, and what
// the next one begins with.
func splitPrefix(prefix string) (dir, last string) {
	i := strings.LastIndexByte(prefix, '/')
	if i < 0 {
		return ".", prefix
	}
	return prefix[:i], prefix[i+1:]
}

func plain(s string) bool {
	for i := range len(s) {
		c := s[i]
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '.' || c == '_' || c == '-') {
			return false
		}
	}
	return true
}

func checkKey(key string) error {
	if ValidKey(key) {
		return nil
	}
	return api.Errorf(api.CodeInvalidRequest, "%.100q is not a key of a blob store", key)
}

// missing is the error for a key that does not exist.
func missing(key string) error { return fmt.Errorf("blob %s: %w", key, missingError{}) }

// missingError is ErrNotFound, and fs.ErrNotExist as well for those who read
// files and objects alike.
type missingError struct{}

func (missingError) Error() string { return ErrNotFound.Error() }

func (missingError) Is(target error) bool { return target == ErrNotFound || target == fs.ErrNotExist }

func negativeOffset(key string, off int64) error {
	return api.Errorf(api.CodeInvalidRequest, "%d is not an offset in %s", off, key)
}
