package image

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"strings"

	"github.com/BurntSushi/toml"

	"github.com/pandastack/pandastack/api"
)

// Recipe says how a template's root filesystem is made and how large its
// sandboxes are. It is the content of templates/<name>/template.toml.
type Recipe struct {
	Name        string  `toml:"name" json:"name"`
	Description string  `toml:"description" json:"description"`
	Debian      *Debian `toml:"debian" json:"debian"` // what it starts from
	Size        Size    `toml:"size" json:"-"`        // does not change the image
	Steps       []Step  `toml:"steps" json:"steps"`   // run in order, as root, in the new root
}

// Debian is a root filesystem of Debian packages.
type Debian struct {
	Suite    string   `toml:"suite" json:"suite"`       // bookworm, trixie, ...
	Packages []string `toml:"packages" json:"packages"` // beside the essential ones; recommendations are not followed
	Exclude  []string `toml:"exclude" json:"exclude"`   // paths that packages do not install, as shell patterns
	Include  []string `toml:"include" json:"include"`   // exceptions from Exclude

	// Mirror is the URL of a Debian archive, and SecurityMirror that of its
	// security updates. Without them the host's own archive is used where the
	// host is Debian, and otherwise the one that the tools know.
	Mirror         string `toml:"mirror" json:"mirror"`
	SecurityMirror string `toml:"security_mirror" json:"security_mirror"`
}

// Size is what a sandbox of the template gets unless its create says otherwise.
// Zero means the server's default.
type Size struct {
	CPU      float64 `toml:"cpu"`
	MemoryMB int     `toml:"memory_mb"`
	DiskMB   int     `toml:"disk_mb"`
}

// Step is one change to the root filesystem.
type Step struct {
	Name string `toml:"name" json:"name"` // shown while it runs
	Run  string `toml:"run" json:"run"`   // lines of a POSIX shell; the first that fails ends the build
}

// ParseRecipe reads a recipe. Errors are template.invalid and name the file, the
// line and the key.
func ParseRecipe(file string, data []byte) (Recipe, error) {
	var r Recipe
	md, err := toml.Decode(string(data), &r)
	if err != nil {
		return r, syntaxError(file, err)
	}
	if unknown := md.Undecoded(); len(unknown) > 0 {
		return r, invalid("%s:%d: unknown key %q", file, keyLine(data, unknown[0]), unknown[0])
	}
	if key, problem := r.problem(); problem != "" {
		return r, invalid("%s:%d: key %q %s", file, keyLine(data, strings.Split(key, ".")), key, problem)
	}
	return r, nil
}

// typeErrorPattern takes the error of a value of the wrong type apart, which
// the decoder gives as text only.
var typeErrorPattern = pattern(`^toml: line ([0-9]+) \(last key "([^"]+)"\): (?s)(.*)$`)

func syntaxError(file string, err error) *api.Error {
	var parse toml.ParseError
	if errors.As(err, &parse) {
		if parse.LastKey == "" {
			return invalid("%s:%d: %s", file, parse.Position.Line, parse.Message)
		}
		return invalid("%s:%d: key %q: %s", file, parse.Position.Line, parse.LastKey, parse.Message)
	}
	if m := typeErrorPattern().FindStringSubmatch(err.Error()); m != nil {
		return invalid("%s:%s: key %q: %s", file, m[1], m[2], m[3])
	}
	return invalid("%s: %v", file, err)
}

var (
	namePattern    = pattern(`^[a-z0-9][a-z0-9-]{0,62}$`)
	suitePattern   = pattern(`^[a-z][a-z0-9-]{0,31}$`)
	packagePattern = pattern(`^[a-z0-9][a-z0-9+.-]+(:[a-z0-9]+)?(=[A-Za-z0-9.+:~-]+)?$`)
	globPattern    = pattern(`^/[^\s'"]+$`)
	mirrorPattern  = pattern(`^https?://[^\s\[\]'"]+$`)
)

// problem finds the first key that no build could work with.
func (r Recipe) problem() (key, problem string) {
	switch {
	case !namePattern().MatchString(r.Name):
		return "name", "must be 1 to 63 of lower-case letters, digits and dashes"
	case r.Debian == nil:
		return "debian", "is missing: a recipe starts from [debian]"
	case r.Size.CPU < 0:
		return "size.cpu", "may not be negative"
	case r.Size.MemoryMB < 0:
		return "size.memory_mb", "may not be negative"
	case r.Size.DiskMB < 0:
		return "size.disk_mb", "may not be negative"
	}
	if key, problem := r.Debian.problem(); problem != "" {
		return "debian." + key, problem
	}
	for i, s := range r.Steps {
		if strings.TrimSpace(s.Run) == "" {
			return "steps", fmt.Sprintf("number %d has nothing to run", i+1)
		}
		if strings.ContainsRune(s.Run, 0) || strings.ContainsAny(s.Name, "\n\x00") {
			return "steps", fmt.Sprintf("number %d has a character that a shell cannot take", i+1)
		}
	}
	return "", ""
}

func (d *Debian) problem() (key, problem string) {
	if !suitePattern().MatchString(d.Suite) {
		return "suite", "must be the name of a Debian release, such as trixie"
	}
	for _, p := range d.Packages {
		if !packagePattern().MatchString(p) {
			return "packages", fmt.Sprintf("has %q, which is not the name of a package", p)
		}
	}
	for _, g := range d.Exclude {
		if !globPattern().MatchString(g) {
			return "exclude", fmt.Sprintf("has %q, which is not an absolute path or pattern", g)
		}
	}
	for _, g := range d.Include {
		if !globPattern().MatchString(g) {
			return "include", fmt.Sprintf("has %q, which is not an absolute path or pattern", g)
		}
	}
	if d.Mirror != "" && !mirrorPattern().MatchString(d.Mirror) {
		return "mirror", "must be an http or https URL"
	}
	if d.SecurityMirror != "" && !mirrorPattern().MatchString(d.SecurityMirror) {
		return "security_mirror", "must be an http or https URL"
	}
	return "", ""
}

// keyLine finds where a key is written, or the table that should have it.
func keyLine(data []byte, key []string) int {
	var table []string
	best, bestDepth := 1, 0
	for i, line := range strings.Split(string(data), "\n") {
		line = strings.TrimSpace(line)
		name := ""
		switch {
		case strings.HasPrefix(line, "["):
			table = splitKey(strings.Trim(strings.SplitN(line, "#", 2)[0], "[] \t"))
		case strings.Contains(line, "=") && !strings.HasPrefix(line, "#"):
			name = strings.SplitN(line, "=", 2)[0]
		default:
			continue
		}
		at := append([]string(nil), table...)
		if name != "" {
			at = append(at, splitKey(name)...)
		}
		if n := len(at); n > bestDepth && n <= len(key) && strings.Join(at, ".") == strings.Join(key[:n], ".") {
			best, bestDepth = i+1, n
		}
	}
	return best
}

func splitKey(s string) []string {
	parts := strings.Split(s, ".")
	for i := range parts {
		parts[i] = strings.Trim(strings.TrimSpace(parts[i]), `"'`)
	}
	return parts
}

// recipeFormat changes whenever the code would make another image of the same
// recipe.
const recipeFormat = 1

// key names everything that decides what the image of a recipe holds, except
// for the state of the package archive.
func (r Recipe) key(mirror string) string {
	b, err := json.Marshal(struct {
		Format       int
		Arch, Mirror string
		Recipe       Recipe
	}{recipeFormat, runtime.GOARCH, mirror, r})
	if err != nil {
		panic("image: a recipe is plain data: " + err.Error())
	}
	sum := sha256.Sum256(b)
	return "recipe-" + hex.EncodeToString(sum[:])
}

// Built gives the image that an earlier build of the recipe made here, or
// template.not_found.
func (s *Store) Built(r Recipe) (Image, error) {
	if img, ok := s.built(r.key(s.mirror)); ok {
		return img, nil
	}
	return Image{}, api.Errorf(api.CodeTemplateNotFound, "the image of template %q has not been built", r.Name)
}
