// Package snapshot keeps the bytes of snapshots: as directories that a driver
// starts machines from, and packed as chunks in a blob store.
//
// # Terms
//
// A snapshot is a flat directory of files that a driver wrote (driver.Machine's
// Snapshot or SaveDisk), with an Info. It has up to two forms. The raw form is that
// directory on this host's disk: what machines start from fastest. The packed form
// is a manifest in the blob store: the list of chunks that each file consists of.
// A chunk is a run of whole 4 KiB pages, cut where the content says so (so that a
// page inserted before it does not move the cut), named by its digest, and stored
// once however many snapshots have it; pages of zeros are not stored at all. New
// chunks of one snapshot are stored together, in packs, compressed with zstd.
//
// # Rules
//
// A staged directory becomes a snapshot with Keep, which is durable: its files and
// names are synced before it returns. Until then it is nothing, and swept at the
// next Open. An id may be kept again as soon as it was deleted, even while a Source
// of its former life is open. Packing follows in the background (Run) and writes its manifest last
// and atomically, so a crash leaves the raw form or both. The raw form of a packed
// snapshot is a cache: it may be evicted, least recently used first, when the cache
// is above its size; one that is open is not. Every chunk is verified against its
// digest before any byte of it is used; one that does not match, or is missing, is
// snapshot.corrupt, and harms nothing else.
//
// Collection removes packs that no manifest names. It is safe against packing in
// other processes: a pack is first marked, and removed only when it is still unused
// after Grace; packing never refers to a marked pack and gives up if it takes longer
// than half of Grace. Delete removes the raw form when the last Source of it is
// closed and the packed form with the next collection.
//
// Hosts may share a blob store. A host lists what it kept itself, and Open and Get
// find by its id what another has packed; from then on this one lists it too. A
// Source keeps the bytes from collection by its own process: whoever deletes a
// snapshot that another host has open for longer than Grace takes it away there.
//
// Files of a Source whose bytes are not local are served by range reads from the
// blob store, whole chunks at a time, with those read first by an earlier start of
// the same snapshot fetched ahead.
package snapshot

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"time"

	"github.com/pandastack/pandastack/internal/blob"
)

// Config is what a Store is made of. Zero values have defaults where noted.
type Config struct {
	Dir        string        // of this host: raw snapshots and scratch space, on one filesystem
	Blobs      blob.Store    // nil: snapshots stay raw and are never packed
	Prefix     string        // of keys in Blobs; default "snapshots/"
	Key        []byte        // 32 bytes: chunks and manifests are encrypted at rest; nil: they are not
	CacheBytes int64         // of raw forms that are packed as well; default 10 GiB
	PackAfter  time.Duration // how long a new snapshot stays raw only; default 2 s, negative: until Pack is called
	Grace      time.Duration // see the package's rules; default 1 h
	Log        *slog.Logger
	Fault      func(point string) error // tests only: asked at named points whether to go on
}

// Info describes a snapshot to those who keep it; the store only carries Data.
type Info struct {
	ID        string          `json:"id"`
	CreatedAt time.Time       `json:"created_at"`
	Data      json.RawMessage `json:"data"` // the keeper's own
}

// Record is a snapshot as the store has it.
type Record struct {
	Info
	SizeBytes   int64 `json:"size_bytes"`   // of its files
	StoredBytes int64 `json:"stored_bytes"` // that packing added to the blob store; 0 until packed
	Raw         bool  `json:"raw"`
	Packed      bool  `json:"packed"`
}

// Source is an open snapshot. Its bytes stay until Close.
type Source struct {
	Record Record
	Dir    string                 // holds the files that are local
	Files  map[string]io.ReaderAt // serves the others; nil when all are local
	files  []file                 // all, with their sizes
	close  func() error
}

// Close lets go of the snapshot.
func (s *Source) Close() error { return s.close() }

// Attachment is a file that Export puts beside a snapshot and Import gives back,
// for example the image that it needs.
type Attachment struct {
	Name string
	Size int64
	Open func() (io.ReadCloser, error)
}

// Packing says what a pack did.
type Packing struct {
	SizeBytes   int64 // of the files
	ZeroBytes   int64 // of them elided
	SharedBytes int64 // of them found in the store
	StoredBytes int64 // written
}

// Collection says what a collection did.
type Collection struct {
	Packs, Marked, Removed int
	RemovedBytes           int64
}

// Keeper is what the store offers; *Store implements it.
type Keeper interface {
	// Stage names a directory that does not exist yet, on the store's
	// filesystem, for a driver to write to.
	Stage(id string) string
	// Discard removes a staged directory, whether or not it exists.
	Discard(id string) error
	// Keep makes the staged directory of info.ID a snapshot. An id that exists
	// is refused with snapshot.exists.
	Keep(ctx context.Context, info Info) (Record, error)
	Get(ctx context.Context, id string) (Record, error)
	List(ctx context.Context) ([]Record, error)
	// Open gives a snapshot to start machines from. Unknown ids are
	// snapshot.not_found.
	Open(ctx context.Context, id string) (*Source, error)
	// Pack brings a snapshot into the blob store now, if it is not there.
	Pack(ctx context.Context, id string) (Packing, error)
	// Delete forgets a snapshot. Unknown ids are nil.
	Delete(ctx context.Context, id string) error
	// Collect removes what nothing refers to.
	Collect(ctx context.Context) (Collection, error)
	// Export writes a snapshot and attachments as one file.
	Export(ctx context.Context, id string, w io.Writer, with []Attachment) error
	// Import reads such a file and keeps the snapshot under id. It calls attach
	// for each attachment, in their order, before the snapshot's own files; its
	// content must be read to the end. adapt may change the Info's Data.
	Import(ctx context.Context, id string, r io.Reader, attach func(name string, size int64, content io.Reader) error,
		adapt func(json.RawMessage) (json.RawMessage, error)) (Record, error)
	// Run packs, evicts and collects until ctx ends.
	Run(ctx context.Context) error
}
