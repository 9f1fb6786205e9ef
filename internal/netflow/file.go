package netflow

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/pandastack/pandastack/api"
)

// The two files of a sandbox. A line of a file is an api.Connection, or a tally.
const (
	newer = ".jsonl"
	older = ".1.jsonl"
)

// tally is a line that says how many were lost where it stands. Those of both
// files add up to all that were.
type tally struct {
	Dropped int64 `json:"dropped"`
}

func (l *Log) path(id, which string) string { return filepath.Join(l.dir, id+which) }

// batch is what is written of one sandbox in one go.
type batch struct {
	id      string
	lines   []*line
	dropped int64
}

// write brings to disk what waits, but for refusals that others may still be merged
// into, unless it is the last time. A book that has nothing left goes.
func (l *Log) write(last bool) {
	for _, id := range l.waiting() {
		l.writeOne(id, last)
	}
}

// waiting lists the sandboxes that have a book, and forgets old graves.
func (l *Log) waiting() []string {
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	for id, at := range l.graves {
		if now.Sub(at) >= graveTime {
			delete(l.graves, id)
		}
	}
	return slices.Collect(maps.Keys(l.books))
}

func (l *Log) writeOne(id string, last bool) {
	defer l.hold(id)()
	b := l.due(id, last)
	if len(b.lines) == 0 && b.dropped == 0 {
		return
	}
	if err := l.append(b); err != nil {
		l.lost(b)
	}
}

// due takes what is to be written of a sandbox out of memory.
func (l *Log) due(id string, last bool) batch {
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	b := l.books[id]
	if b == nil {
		return batch{}
	}
	for key, n := range b.merged {
		if last || now.Sub(n.begun) >= mergeWindow {
			n.merges = false
			delete(b.merged, key)
		}
	}
	d := batch{id: id, dropped: b.dropped}
	keep := b.lines[:0:0]
	for _, n := range b.lines {
		if n.merges {
			keep = append(keep, n)
		} else {
			d.lines = append(d.lines, n)
		}
	}
	b.lines, b.dropped = keep, 0
	l.memory -= len(d.lines)
	if len(keep) == 0 && now.Sub(b.since) >= time.Minute {
		delete(l.books, id)
	}
	return d
}

// lost counts what could not be written, to be written when that works again.
func (l *Log) lost(b batch) {
	l.mu.Lock()
	defer l.mu.Unlock()
	k := l.books[b.id]
	if k == nil {
		k = &book{merged: map[target]*line{}}
		l.books[b.id] = k
	}
	k.dropped += b.dropped + int64(len(b.lines))
}

// append writes to the newer file, and makes it the older one first where it is
// full.
func (l *Log) append(b batch) error {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	if b.dropped > 0 {
		_ = enc.Encode(tally{b.dropped}) // a buffer takes everything
	}
	for _, n := range b.lines {
		if err := enc.Encode(n.Connection); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(l.dir, 0o700); err != nil {
		return err
	}
	info, err := os.Stat(l.path(b.id, newer))
	if err == nil && info.Size() > 0 && info.Size()+int64(buf.Len()) > FileSize {
		if err := l.rotate(b.id); err != nil {
			return err
		}
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return appendTo(l.path(b.id, newer), buf.Bytes())
}

// rotate gives up the older file for the newer one, and begins a newer one with how
// many lines were given up.
func (l *Log) rotate(id string) error {
	var gone tally
	old, err := openPart(l.path(id, older))
	if err != nil {
		return err
	}
	err = old.each(func(_ api.Connection, t tally) {
		if gone.Dropped += t.Dropped; t.Dropped == 0 {
			gone.Dropped++
		}
	})
	if err != nil {
		return err
	}
	if err := os.Rename(l.path(id, newer), l.path(id, older)); err != nil {
		return err
	}
	if gone.Dropped == 0 {
		return nil
	}
	text, err := json.Marshal(gone)
	if err != nil {
		return err
	}
	return appendTo(l.path(id, newer), append(text, '\n'))
}

// appendTo adds to a file. What a crash left of a line is ended first.
func appendTo(path string, text []byte) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	end, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	last := []byte{'\n'}
	if end > 0 {
		if _, err := f.ReadAt(last, end-1); err != nil {
			return err
		}
	}
	if last[0] != '\n' {
		text = append([]byte{'\n'}, text...)
	}
	if _, err := f.Write(text); err != nil {
		// Half a line would be read as none, and half a batch counted as lost.
		return errors.Join(err, f.Truncate(end))
	}
	return f.Close()
}

// part is a file as it was when it was opened: what is added later is not of it.
type part struct {
	file *os.File // nil where there is none
	size int64
}

func openPart(path string) (part, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return part{}, nil
	}
	if err != nil {
		return part{}, err
	}
	info, err := f.Stat()
	if err != nil {
		f.Close()
		return part{}, err
	}
	return part{f, info.Size()}, nil
}

func (p part) close() {
	if p.file != nil {
		p.file.Close()
	}
}

// each visits the lines and closes the file; a line that cannot be read is left out.
func (p part) each(visit func(api.Connection, tally)) error {
	if p.file == nil {
		return nil
	}
	defer p.file.Close()
	s := bufio.NewScanner(io.LimitReader(p.file, p.size))
	s.Buffer(nil, FileSize+1)
	for s.Scan() {
		var both struct {
			api.Connection
			tally
		}
		if len(s.Bytes()) > 0 && json.Unmarshal(s.Bytes(), &both) == nil {
			visit(both.Connection, both.tally)
		}
	}
	return s.Err()
}

// view is the log of a sandbox at one moment. Whoever has one holds no lock: it
// stays what it is while lines are added, files are turned over and the log is
// forgotten.
type view struct {
	older, newer part
	lines        []api.Connection // not yet on disk
	dropped      int64            // likewise
}

func (l *Log) view(id string) (v view, err error) {
	defer l.hold(id)()
	if v.older, err = openPart(l.path(id, older)); err != nil {
		return view{}, err
	}
	if v.newer, err = openPart(l.path(id, newer)); err != nil {
		v.older.close()
		return view{}, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if b := l.books[id]; b != nil {
		v.dropped = b.dropped
		for _, n := range b.lines {
			v.lines = append(v.lines, n.Connection)
		}
	}
	return v, nil
}

// each visits all lines and closes the files.
func (v view) each(visit func(api.Connection, tally)) error {
	defer v.newer.close()
	if err := v.older.each(visit); err != nil {
		return err
	}
	if err := v.newer.each(visit); err != nil {
		return err
	}
	for _, c := range v.lines {
		visit(c, tally{})
	}
	if v.dropped > 0 {
		visit(api.Connection{}, tally{v.dropped})
	}
	return nil
}

// Read gives a part of a sandbox's log, oldest first: after the line numbered
// since, the next ones; with since 0, the newest. limit bounds how many; 0 is all
// there are. A sandbox without a log has an empty one.
func (l *Log) Read(id string, since int64, limit int) (api.ConnectionLog, error) {
	out := api.ConnectionLog{Connections: []api.Connection{}}
	if !idPattern().MatchString(id) {
		return out, nil
	}
	v, err := l.view(id)
	if err == nil {
		err = v.each(func(c api.Connection, t tally) {
			if out.Dropped += t.Dropped; t.Dropped == 0 && c.ID > since {
				out.Connections = append(out.Connections, c)
			}
		})
	}
	if err != nil {
		return api.ConnectionLog{}, api.Wrap(api.CodeInternal, err, "the connection log of %s cannot be read", id)
	}
	slices.SortFunc(out.Connections, func(a, b api.Connection) int { return cmp.Compare(a.ID, b.ID) })
	if extra := len(out.Connections) - limit; limit > 0 && extra > 0 {
		if since > 0 {
			out.Connections = out.Connections[:limit]
		} else {
			out.Connections = out.Connections[extra:]
		}
	}
	return out, nil
}

// remove removes the files of a sandbox. A file that stays is swept later.
func (l *Log) remove(id string) {
	if idPattern().MatchString(id) {
		_ = os.Remove(l.path(id, newer))
		_ = os.Remove(l.path(id, older))
	}
}

// Sweep removes the logs of all sandboxes but those in keep.
func (l *Log) Sweep(keep []string) {
	entries, err := os.ReadDir(l.dir)
	if err != nil {
		return // there are no logs yet, or none that can be listed
	}
	for _, e := range entries {
		id, ok := strings.CutSuffix(e.Name(), newer)
		if !ok {
			continue
		}
		id = strings.TrimSuffix(id, strings.TrimSuffix(older, newer))
		if !slices.Contains(keep, id) {
			l.sweep(id)
		}
	}
}

func (l *Log) sweep(id string) {
	defer l.hold(id)()
	l.mu.Lock()
	l.discard(id)
	l.mu.Unlock()
	l.remove(id)
}
