package image

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/pandastack/pandastack/api"
)

// tagWait bounds how long a tag waits for another process that writes one.
const tagWait = 10 * time.Second

func (s *Store) tagsPath() string { return filepath.Join(s.dir, "tags.json") }

// Tags gives the names that images have: name to digest.
func (s *Store) Tags() (map[string]string, error) {
	tags := make(map[string]string)
	b, err := os.ReadFile(s.tagsPath())
	if gone(err) {
		return tags, nil
	} else if err != nil {
		return nil, fmt.Errorf("read image tags: %w", err)
	}
	if err := json.Unmarshal(b, &tags); err != nil {
		return nil, fmt.Errorf("read image tags: %s: %w", s.tagsPath(), err)
	}
	return tags, nil
}

// Tag gives an image of the store a name, which an earlier image may lose. A
// name is up to 128 of [a-z0-9._-] and is not a digest.
func (s *Store) Tag(name, digest string) error {
	if !tagPattern().MatchString(name) || hexPattern().MatchString(name) {
		return invalid("%q is not a name for an image: use lower-case letters, digits, dot, dash and underscore", name)
	}
	img, err := s.Get(digest)
	if err != nil {
		return err
	}
	return s.changeTags(func(t map[string]string) { t[name] = img.Digest })
}

// Untag takes a name away. A name that is not there is no error.
func (s *Store) Untag(name string) error {
	return s.changeTags(func(t map[string]string) { delete(t, name) })
}

func (s *Store) changeTags(change func(map[string]string)) error {
	if err := s.prepare(); err != nil {
		return err
	}
	l, err := lockWithin(tagWait, s.lockPath())
	if err != nil {
		return fmt.Errorf("write image tags: %w", err)
	}
	defer l.unlock()
	tags, err := s.Tags()
	if err != nil {
		return err
	}
	change(tags)
	return s.writeJSON(s.tagsPath(), tags)
}

// Resolve finds an image by tag, by sha256:<64 hex>, or by the 64 digits alone.
// An unknown name is template.not_found.
func (s *Store) Resolve(name string) (Image, error) {
	if _, ok := parseDigest(name); ok {
		return s.Get(name)
	}
	tags, err := s.Tags()
	if err != nil {
		return Image{}, err
	}
	digest, ok := tags[name]
	if !ok {
		return Image{}, api.Errorf(api.CodeTemplateNotFound, "there is no template %q", name)
	}
	return s.Get(digest)
}
