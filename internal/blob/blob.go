// Package blob keeps objects by key: in a directory, in an S3-compatible store,
// or in memory.
//
// # Rules
//
// A key is one to ten parts of [A-Za-z0-9._-] joined by slashes; no part is "."
// or "..". No part has more than 200 characters and no key more than 800. No key
// is another's and a slash more (a and a/b): a filesystem cannot hold both, so
// such a Put may be refused. Objects are immutable: Put of a key that exists
// replaces the whole object or nothing of it, and a reader sees one version. An
// object is visible only once it is whole and durable: a Put that failed, or
// whose process died, leaves nothing that Get, Stat or List shows. One exception
// is a network's: where the answer to a Put is lost, the object may be there, and
// is whole then. Delete of a key that does not exist is nil. List gives every key
// under a prefix in ascending order; keys put or deleted meanwhile may or may not
// be in it. What is in the place of a store and is not an object of it is never
// listed.
//
// Errors carry api codes: snapshot.store_unavailable where the store does not
// answer, snapshot.store_full where it has no room, request.invalid for an odd
// key. ErrNotFound stands for a key that does not exist, ErrSize for content that
// is not as long as was said; an error of the content's own reader is given back
// as it is, and so is a context's. Every method honours its context.
package blob

import (
	"context"
	"errors"
	"io"
	"time"
)

// ErrNotFound is in the chain of errors for a key that does not exist.
var ErrNotFound = errors.New("no such object")

// ErrSize is in the chain of errors for content that is not as long as Put was
// told.
var ErrSize = errors.New("the content does not have the size that was announced")

// Store keeps objects. Its methods may be called concurrently, also by several
// processes.
type Store interface {
	// Put stores size bytes of r. It reads r once, to its end, which must be
	// there.
	Put(ctx context.Context, key string, r io.Reader, size int64) error
	// ReadAt fills p from the object beginning at off; like io.ReaderAt, a short
	// read gives an error, io.EOF where the object ends.
	ReadAt(ctx context.Context, key string, p []byte, off int64) (int, error)
	// Get streams the object.
	Get(ctx context.Context, key string) (io.ReadCloser, error)
	Stat(ctx context.Context, key string) (Info, error)
	Delete(ctx context.Context, key string) error
	// List calls each for every object whose key begins with prefix.
	List(ctx context.Context, prefix string, each func(Info) error) error
	// URL says where the objects are, without credentials.
	URL() string
	Close() error
}

// Info describes one object.
type Info struct {
	Key      string
	Size     int64
	Modified time.Time // by the store's clock
}
