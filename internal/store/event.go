package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"slices"
	"time"
)

// Event is something that happened to a sandbox. It outlives the sandbox.
type Event struct {
	ID        int64 // grows in the order of writing; about the microsecond of it
	Org       string
	SandboxID string
	Type      string
	At        time.Time
	Data      map[string]string
}

// maxEvents bounds the answer of one query.
const maxEvents = 1000

// loadLastEvent finds where the numbering of events goes on.
func (s *Store) loadLastEvent(ctx context.Context) error {
	var last sql.NullInt64
	err := s.read.QueryRowContext(ctx, `SELECT max(id) FROM events`).Scan(&last)
	s.lastEvent = max(s.lastEvent, last.Int64)
	return s.fail("last event", err)
}

// AddEvents writes events in order, all or none, and sets their ids. An id is
// the microsecond of writing, or one more than the last if that is not larger:
// both engines can do that, and ids of one process grow as they become visible.
// Where two processes share a database, the later one to write moves on.
func (s *Store) AddEvents(ctx context.Context, events []Event) error {
	s.eventMu.Lock()
	defer s.eventMu.Unlock()
	const tries = 5
	for try := 1; ; try++ {
		last := s.lastEvent
		err := s.tx(ctx, "add events", func(tx *sql.Tx) error {
			for i := range events {
				last = max(last+1, time.Now().UnixMicro())
				events[i].ID = last
				if err := insertEvent(ctx, tx, &events[i]); err != nil {
					return err
				}
			}
			return nil
		})
		if err == nil {
			s.lastEvent = last
			return nil
		}
		if !errors.Is(err, ErrConflict) || try == tries {
			return err
		}
		if err := s.loadLastEvent(ctx); err != nil {
			return err
		}
	}
}

func insertEvent(ctx context.Context, tx *sql.Tx, e *Event) error {
	data, err := toJSON(e.Data)
	if err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, `INSERT INTO events (id, org, sandbox_id, type, at, data) VALUES ($1, $2, $3, $4, $5, $6)`,
		e.ID, e.Org, e.SandboxID, e.Type, micros(e.At), data)
	return err
}

// Events gives events of one sandbox of an org with ids above since, oldest
// first: the last tail of them, or the first 1000 when tail is 0.
func (s *Store) Events(ctx context.Context, org, sandboxID string, since int64, tail int) ([]Event, error) {
	order, limit := "ASC", maxEvents
	if tail > 0 {
		order, limit = "DESC", min(tail, maxEvents)
	}
	rows, err := s.read.QueryContext(ctx, `SELECT id, org, sandbox_id, type, at, data FROM events
		WHERE sandbox_id = $1 AND org = $2 AND id > $3 ORDER BY id `+order+` LIMIT $4`, sandboxID, org, since, limit)
	if err != nil {
		return nil, s.fail("list events", err)
	}
	defer rows.Close()
	var out []Event
	for rows.Next() {
		var e Event
		var at int64
		var data string
		if err := rows.Scan(&e.ID, &e.Org, &e.SandboxID, &e.Type, &at, &data); err != nil {
			return nil, s.fail("list events", err)
		}
		e.At = fromMicros(at)
		if data != "" {
			if err := json.Unmarshal([]byte(data), &e.Data); err != nil {
				return nil, s.fail("list events", err)
			}
		}
		out = append(out, e)
	}
	if tail > 0 {
		slices.Reverse(out)
	}
	return out, s.fail("list events", rows.Err())
}

// PruneEvents removes the events of sandboxes that are gone which are older
// than gone, and those of any sandbox which are older than all.
func (s *Store) PruneEvents(ctx context.Context, gone, all time.Time) (int64, error) {
	return s.exec(ctx, "prune events", `DELETE FROM events WHERE id < $1 AND (id < $2 OR NOT EXISTS
		(SELECT 1 FROM sandboxes WHERE sandboxes.id = events.sandbox_id))`, micros(gone), micros(all))
}
