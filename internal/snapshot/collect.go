package snapshot

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pandastack/pandastack/internal/blob"
)

// # How collection is safe
//
// Let a packer read the list of marks at T. It shares a pack only if that is not
// in the list, and if the pack exists when it asks after T. It writes its manifest
// before T + Grace/2 or gives up. A pack that it shares was therefore not marked at
// T; a collector that marks it later removes it no sooner than Grace after that,
// when the manifest is long there to be seen: a collector lists the manifests
// after it has read how old the marks are. Marks are never taken back, since a
// slow collector could still act on one: a pack that is marked and used is merely
// not shared any more.
//
// Packs that a packer has just written are named by no manifest yet. They are not
// marked before they are Grace/2 old, when their packer has finished or given up.
//
// All times are the blob store's own: clocks of hosts may differ.

// Collect removes what nothing refers to.
func (s *Store) Collect(ctx context.Context) (Collection, error) {
	if err := s.collecting.take(ctx); err != nil {
		return Collection{}, err
	}
	defer s.collecting.release()
	if err := s.removeDead(); err != nil || s.cfg.Blobs == nil {
		return Collection{}, err
	}
	c := collector{s: s, ctx: ctx}
	if err := c.run(); err != nil {
		return c.done, fmt.Errorf("collect what no snapshot uses: %w", err)
	}
	return c.done, nil
}

// removeDead removes what a delete that failed has left on this host.
func (s *Store) removeDead() error {
	s.mu.Lock()
	var dead []*entry
	for e := range s.dying {
		if e.refs == 0 {
			dead = append(dead, e)
		}
	}
	s.mu.Unlock()
	for _, e := range dead {
		if err := s.remove(e); err != nil {
			return err
		}
	}
	return nil
}

// collector is one collection.
type collector struct {
	s     *Store
	ctx   context.Context
	now   time.Time            // by the blob store's clock
	marks map[packID]time.Time // when they were made
	packs map[packID]blob.Info
	done  Collection
}

func (c *collector) run() error {
	if err := c.dropDeleted(); err != nil {
		return err
	}
	if err := c.look(); err != nil {
		return err
	}
	used, err := c.used()
	if err != nil {
		return err
	}
	c.done.Packs = len(c.packs)
	for id, info := range c.packs {
		if !used[id] {
			if err := c.unused(id, info); err != nil {
				return err
			}
		}
	}
	for id := range c.marks {
		if _, ok := c.packs[id]; ok {
			continue
		}
		// Its collector died between the two deletes.
		if err := c.s.cfg.Blobs.Delete(c.ctx, c.s.markKey(id)); err != nil {
			return storeError(err, "remove the mark of a pack")
		}
	}
	return nil
}

// dropDeleted removes the manifests of snapshots that this host has deleted, and
// then the notes of that. One that is still open waits.
func (c *collector) dropDeleted() error {
	s := c.s
	s.mu.Lock()
	notes := map[string]string{}
	for id, gen := range s.deleted {
		notes[id] = gen
	}
	for e := range s.dying {
		delete(notes, e.id)
	}
	s.mu.Unlock()
	if len(notes) == 0 {
		return nil
	}
	var drop []string
	err := s.cfg.Blobs.List(c.ctx, s.cfg.Prefix+"manifests/", func(i blob.Info) error {
		if id, gen, ok := s.splitManifestKey(i.Key); ok && gen <= notes[id] {
			drop = append(drop, i.Key)
		}
		return nil
	})
	if err != nil {
		return storeError(err, "list the manifests")
	}
	for _, key := range drop {
		err := s.step("collect.manifest", func() error { return s.cfg.Blobs.Delete(c.ctx, key) })
		if err != nil {
			return storeError(err, "remove a manifest")
		}
	}
	return s.eachEntry(c.ctx, deletedDir, func(id, gen string) error {
		if gen > notes[id] {
			return nil
		}
		return s.step("collect.note", func() error { return s.forget(id, gen) })
	})
}

// look reads the clock, the marks and the packs, in this order.
func (c *collector) look() error {
	s := c.s
	clock := s.cfg.Prefix + "clock"
	if err := s.cfg.Blobs.Put(c.ctx, clock, bytes.NewReader(nil), 0); err != nil {
		return storeError(err, "ask for its time")
	}
	info, err := s.cfg.Blobs.Stat(c.ctx, clock)
	if err != nil {
		return storeError(err, "ask for its time")
	}
	c.now = info.Modified
	c.marks, c.packs = map[packID]time.Time{}, map[packID]blob.Info{}
	err = s.cfg.Blobs.List(c.ctx, s.cfg.Prefix+"gc/", func(i blob.Info) error {
		if id, ok := packOf(i.Key); ok {
			c.marks[id] = i.Modified
		}
		return nil
	})
	if err != nil {
		return storeError(err, "list the marks of packs")
	}
	err = s.cfg.Blobs.List(c.ctx, s.cfg.Prefix+"packs/", func(i blob.Info) error {
		if id, ok := packOf(i.Key); ok {
			c.packs[id] = i
		}
		return nil
	})
	return storeError(err, "list the packs")
}

// used gives the packs that some manifest names.
func (c *collector) used() (map[packID]bool, error) {
	manifests, damage, err := c.s.refresh(c.ctx)
	if err = errors.Join(err, damage); err != nil {
		return nil, err
	}
	used := map[packID]bool{}
	for _, m := range manifests {
		for _, p := range m.packs {
			used[p] = true
		}
	}
	return used, nil
}

// unused marks a pack, or removes it if it was marked long enough ago.
func (c *collector) unused(id packID, info blob.Info) error {
	s := c.s
	marked, ok := c.marks[id]
	switch {
	case !ok && c.now.Sub(info.Modified) < s.cfg.Grace/2:
		return nil // its packer may be at work
	case !ok:
		c.done.Marked++
		err := s.step("collect.mark", func() error {
			return s.cfg.Blobs.Put(c.ctx, s.markKey(id), bytes.NewReader(nil), 0)
		})
		s.index.bury([]packID{id})
		return storeError(err, "mark a pack")
	case c.now.Sub(marked) < s.cfg.Grace:
		return nil
	}
	s.index.bury([]packID{id})
	err := s.step("collect.remove", func() error { return s.cfg.Blobs.Delete(c.ctx, s.packKey(id)) })
	if err != nil {
		return storeError(err, "remove a pack")
	}
	c.done.Removed++
	c.done.RemovedBytes += info.Size
	err = s.step("collect.unmark", func() error { return s.cfg.Blobs.Delete(c.ctx, s.markKey(id)) })
	return storeError(err, "remove the mark of a pack")
}
