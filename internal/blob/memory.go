package blob

import (
	"bytes"
	"context"
	"io"
	"slices"
	"strings"
	"sync"
	"time"
)

// Memory is a Store that ends with its process.
type Memory struct {
	mu      sync.RWMutex
	objects map[string]memoryObject
}

type memoryObject struct {
	content  []byte // never written to again
	modified time.Time
}

var _ Store = (*Memory)(nil)

// NewMemory makes an empty store.
func NewMemory() *Memory { return &Memory{objects: map[string]memoryObject{}} }

// Put implements Store.
func (m *Memory) Put(ctx context.Context, key string, r io.Reader, size int64) error {
	if err := checkKey(key); err != nil {
		return err
	}
	var content bytes.Buffer // grows with what comes, not with what was announced
	src := newSource(ctx, r, size)
	if _, err := content.ReadFrom(src); err != nil {
		return src.failed(key)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.objects[key] = memoryObject{content.Bytes(), time.Now()}
	return nil
}

// ReadAt implements Store.
func (m *Memory) ReadAt(ctx context.Context, key string, p []byte, off int64) (int, error) {
	o, err := m.object(ctx, key)
	if err != nil {
		return 0, err
	}
	return readAt(bytes.NewReader(o.content), key, p, off)
}

// readAt is ReadAt of an open object.
func readAt(r io.ReaderAt, key string, p []byte, off int64) (int, error) {
	if off < 0 {
		return 0, negativeOffset(key, off)
	}
	if len(p) == 0 {
		return 0, nil
	}
	return r.ReadAt(p, off)
}

// Get implements Store.
func (m *Memory) Get(ctx context.Context, key string) (io.ReadCloser, error) {
	o, err := m.object(ctx, key)
	if err != nil {
		return nil, err
	}
	return io.NopCloser(bytes.NewReader(o.content)), nil
}

// Stat implements Store.
func (m *Memory) Stat(ctx context.Context, key string) (Info, error) {
	o, err := m.object(ctx, key)
	if err != nil {
		return Info{}, err
	}
	return o.info(key), nil
}

func (m *Memory) object(ctx context.Context, key string) (memoryObject, error) {
	if err := checkKey(key); err != nil {
		return memoryObject{}, err
	}
	if err := ctx.Err(); err != nil {
		return memoryObject{}, err
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	o, ok := m.objects[key]
	if !ok {
		return memoryObject{}, missing(key)
	}
	return o, nil
}

func (o memoryObject) info(key string) Info {
	return Info{Key: key, Size: int64(len(o.content)), Modified: o.modified}
}

// Delete implements Store.
func (m *Memory) Delete(ctx context.Context, key string) error {
	if err := checkKey(key); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.objects, key)
	return nil
}

// List implements Store.
func (m *Memory) List(ctx context.Context, prefix string, each func(Info) error) error {
	for _, info := range m.under(prefix) {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := each(info); err != nil {
			return err
		}
	}
	return ctx.Err()
}

func (m *Memory) under(prefix string) []Info {
	m.mu.RLock()
	defer m.mu.RUnlock()
	var out []Info
	for key, o := range m.objects {
		if strings.HasPrefix(key, prefix) {
			out = append(out, o.info(key))
		}
	}
	slices.SortFunc(out, func(a, b Info) int { return strings.Compare(a.Key, b.Key) })
	return out
}

// URL implements Store.
func (m *Memory) URL() string { return "memory:" }

// Close implements Store.
func (m *Memory) Close() error { return nil }
