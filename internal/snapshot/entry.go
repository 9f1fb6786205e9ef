package snapshot

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"regexp"
	"sync"
	"time"
)

var (
	idPattern         = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-z0-9-]{1,64}$`) })
	generationPattern = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[0-9a-f]{20}$`) })
	// A name may not begin with a dot: those are the store's own.
	fileNamePattern = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}$`) })
)

func validID(id string) bool           { return idPattern().MatchString(id) }
func validGeneration(gen string) bool  { return generationPattern().MatchString(gen) }
func validFileName(name string) bool   { return fileNamePattern().MatchString(name) }
func validFileSize(n int64) bool       { return n >= 0 && n <= maxFileSize }
func generationAt(t time.Time) string  { return fmt.Sprintf("%016x", uint64(t.UnixNano())) }
func generationTime(gen string) string { return gen[:16] }

// newGeneration makes a generation that sorts after those of earlier moments and
// differs from those that other hosts make in the same one.
func newGeneration() string {
	var b [2]byte
	rand.Read(b[:])
	return generationAt(time.Now()) + hex.EncodeToString(b[:])
}

// Bounds on what a snapshot may be made of. They are far above what drivers
// write; they keep a hostile file or blob from asking for more.
const (
	maxFiles    = 1024
	maxFileSize = 1 << 40
	maxSize     = 4 << 40
	maxInfo     = 1 << 20
)

// recordFile and filesDir are names in a snapshot's own directories.
const (
	recordFile   = ".record.json"
	manifestFile = "manifest"
	filesDir     = "files"
)

// metaVersion changes when an older store could misread a record.
const metaVersion = 1

// meta is what is written down of a snapshot, beside its raw form and at the head
// of its manifest.
type meta struct {
	Version int     `json:"version"`
	Info    Info    `json:"info"`
	Files   []file  `json:"files"`
	Packing Packing `json:"packing,omitzero"`
}

type file struct {
	Name string `json:"name"`
	Size int64  `json:"size"`
}

func (m meta) size() int64 {
	var n int64
	for _, f := range m.Files {
		n += f.Size
	}
	return n
}

// check refuses what no store wrote.
func (m meta) check() error {
	if m.Version != metaVersion {
		return fmt.Errorf("version %d of a snapshot's record is not known", m.Version)
	}
	if !validID(m.Info.ID) {
		return fmt.Errorf("%q is no id of a snapshot", m.Info.ID)
	}
	return checkFiles(m.Files)
}

// checkFiles refuses names that could lead anywhere, and sizes beyond bounds.
func checkFiles(files []file) error {
	if len(files) > maxFiles {
		return fmt.Errorf("%d files are more than a snapshot may have", len(files))
	}
	seen := make(map[string]bool, len(files))
	var total int64
	for _, f := range files {
		if !validFileName(f.Name) || seen[f.Name] {
			return fmt.Errorf("%q is no name of a snapshot's file", f.Name)
		}
		if total += f.Size; !validFileSize(f.Size) || total > maxSize {
			return fmt.Errorf("file %q is larger than a snapshot's may be", f.Name)
		}
		seen[f.Name] = true
	}
	return nil
}

func (m meta) encode() ([]byte, error) {
	data, err := json.Marshal(m)
	if err == nil && len(data) > maxInfo {
		err = fmt.Errorf("the record of snapshot %s has %d bytes, more than %d", m.Info.ID, len(data), maxInfo)
	}
	return data, err
}

// entry is one generation of a snapshot. The store's mutex guards its fields but
// those that never change; opening is held to make or end what remote names.
type entry struct {
	id, gen string
	opening lock

	meta       meta
	raw        bool
	rawBytes   int64 // on the disk
	packed     bool
	localBytes int64 // of files taken out of the packed form
	refs       int   // sources and packs that need its bytes
	gone       bool  // deleted; removed with the last of refs
	used, kept time.Time
	notBefore  time.Time // Run packs it no sooner
	remote     *reader   // of the sources that read the packed form
	readers    int       // those sources
}

func (e *entry) name() string { return e.id + "." + e.gen }

func (e *entry) record() Record {
	r := Record{Info: e.meta.Info, SizeBytes: e.meta.size(), Raw: e.raw, Packed: e.packed}
	if e.packed {
		r.StoredBytes = e.meta.Packing.StoredBytes
	}
	return r
}

// lock is a mutex that a context can stop the wait for.
type lock chan struct{}

func newLock() lock { return make(lock, 1) }

func (l lock) take(ctx context.Context) error {
	select {
	case l <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (l lock) release() { <-l }
