package store

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/pandastack/pandastack/api"
)

// Network is what a sandbox may reach, and the groups that it is a member of.
type Network struct {
	Rules api.NetworkRules `json:"rules"`
	Name  string           `json:"name,omitempty"` // in its groups
	Join  []Join           `json:"join,omitempty"`
}

// Join is one group that a sandbox is a member of.
type Join struct {
	ID   string `json:"id"`
	Name string `json:"name"` // of the group
}

func (n Network) empty() bool {
	r := n.Rules
	return r.Internet == nil && len(r.Allow) == 0 && len(r.Deny) == 0 && r.EgressMbps == 0 && n.Name == "" && len(n.Join) == 0
}

// NetworkGroup is the row of a group of sandboxes that reach each other.
type NetworkGroup struct {
	ID        string
	Org       string
	Name      string
	CreatedAt time.Time
	Members   []api.NetworkMember // of List and Get
}

// CreateNetwork adds a group. ErrConflict means that its name is taken.
func (s *Store) CreateNetwork(ctx context.Context, g *NetworkGroup, quota int) error {
	return s.tx(ctx, "create network", func(tx *sql.Tx) error {
		var n int
		if err := tx.QueryRowContext(ctx, `SELECT count(*) FROM networks WHERE org = $1`, g.Org).Scan(&n); err != nil {
			return err
		}
		if n >= quota {
			return api.Errorf(api.CodeQuotaNetworks, "there are %d networks and the quota is %d", n, quota).With("quota", quota)
		}
		_, err := tx.ExecContext(ctx, `INSERT INTO networks (id, org, name, created_at) VALUES ($1, $2, $3, $4)`,
			g.ID, g.Org, g.Name, micros(g.CreatedAt))
		return err
	})
}

// NetworkIDs finds groups of an org by name. A name that has none is left out.
func (s *Store) NetworkIDs(ctx context.Context, org string, names []string) ([]Join, error) {
	var out []Join
	for _, name := range names {
		j := Join{Name: name}
		err := s.fail("find network", s.read.QueryRowContext(ctx, `SELECT id FROM networks WHERE org = $1 AND name = $2`, org, name).Scan(&j.ID))
		if errors.Is(err, ErrNotFound) {
			continue
		}
		if err != nil {
			return nil, err
		}
		out = append(out, j)
	}
	return out, nil
}

// Networks lists the groups of an org by name, with their members. A name that
// is not empty selects that group.
func (s *Store) Networks(ctx context.Context, org, name string) (_ []NetworkGroup, err error) {
	defer func() { err = s.fail("list networks", err) }()
	rows, err := s.read.QueryContext(ctx, `SELECT n.id, n.name, n.created_at, coalesce(m.sandbox_id, ''), coalesce(m.name, ''), coalesce(b.guest_ip, ''),
			coalesce(b.status, '')
		FROM networks n LEFT JOIN network_members m ON m.network_id = n.id LEFT JOIN sandboxes b ON b.id = m.sandbox_id
		WHERE n.org = $1 AND ($2 = '' OR n.name = $2) ORDER BY n.name, m.sandbox_id`, org, name)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var out []NetworkGroup
	for rows.Next() {
		g := NetworkGroup{Org: org, Members: []api.NetworkMember{}}
		var m api.NetworkMember
		var created int64
		var status string
		if err := rows.Scan(&g.ID, &g.Name, &created, &m.SandboxID, &m.Name, &m.Address, &status); err != nil {
			return nil, err
		}
		g.CreatedAt = fromMicros(created)
		if len(out) == 0 || out[len(out)-1].ID != g.ID {
			out = append(out, g)
		}
		if m.SandboxID == "" {
			continue
		}
		if m.Name == m.SandboxID {
			m.Name = ""
		}
		if api.Status(status) != api.StatusRunning && api.Status(status) != api.StatusPaused {
			m.Address = ""
		}
		last := &out[len(out)-1]
		last.Members = append(last.Members, m)
	}
	return out, rows.Err()
}

// DeleteNetwork removes a group that has no members, else gives
// network.in_use. ErrNotFound means that there is none.
func (s *Store) DeleteNetwork(ctx context.Context, org, name string) error {
	return s.tx(ctx, "delete network", func(tx *sql.Tx) error {
		var id string
		if err := tx.QueryRowContext(ctx, `SELECT id FROM networks WHERE org = $1 AND name = $2`+s.forUpdate(), org, name).Scan(&id); err != nil {
			return err
		}
		var members int
		if err := tx.QueryRowContext(ctx, `SELECT count(*) FROM network_members WHERE network_id = $1`, id).Scan(&members); err != nil {
			return err
		}
		if members > 0 {
			return api.Errorf(api.CodeNetworkInUse, "network %s has %d members", name, members).With("members", members)
		}
		_, err := tx.ExecContext(ctx, `DELETE FROM networks WHERE id = $1`, id)
		return err
	})
}

// SetSandboxNetwork writes the network of a row, and its memberships.
// ErrNotFound means the row is gone; a name that is taken in a group gives
// network.name_taken.
func (s *Store) SetSandboxNetwork(ctx context.Context, b *Sandbox) error {
	text, err := toJSON(b.Network)
	if err != nil {
		return s.fail("set network", err)
	}
	return s.tx(ctx, "set network", func(tx *sql.Tx) error {
		res, err := tx.ExecContext(ctx, `UPDATE sandboxes SET network = $2, updated_at = $3 WHERE id = $1`, b.ID, text, micros(b.UpdatedAt))
		if err != nil {
			return err
		}
		if n, err := res.RowsAffected(); err != nil || n == 0 {
			return errors.Join(err, ErrNotFound)
		}
		if err := leaveNetworks(ctx, tx, b.ID); err != nil {
			return err
		}
		return s.joinNetworks(ctx, tx, b)
	})
}

func leaveNetworks(ctx context.Context, tx *sql.Tx, id string) error {
	_, err := tx.ExecContext(ctx, `DELETE FROM network_members WHERE sandbox_id = $1`, id)
	return err
}

// joinNetworks makes a sandbox a member of its groups. On PostgreSQL two that
// take one name at the same moment meet at the primary key.
func (s *Store) joinNetworks(ctx context.Context, tx *sql.Tx, b *Sandbox) error {
	name := b.Network.Name
	if name == "" {
		name = b.ID
	}
	for _, j := range b.Network.Join {
		var id string
		err := tx.QueryRowContext(ctx, `SELECT id FROM networks WHERE id = $1`+s.forUpdate(), j.ID).Scan(&id)
		if errors.Is(err, sql.ErrNoRows) {
			return api.Errorf(api.CodeNetworkNotFound, "network %s was deleted", j.Name).With("network", j.Name)
		}
		if err != nil {
			return err
		}
		var taken int
		if err := tx.QueryRowContext(ctx, `SELECT count(*) FROM network_members WHERE network_id = $1 AND name = $2`, j.ID, name).Scan(&taken); err != nil {
			return err
		}
		if taken > 0 {
			return api.Errorf(api.CodeNetworkName, "network %s has a member %s", j.Name, name).With("network", j.Name)
		}
		if _, err := tx.ExecContext(ctx, `INSERT INTO network_members (network_id, sandbox_id, name) VALUES ($1, $2, $3)`, j.ID, b.ID, name); err != nil {
			return err
		}
	}
	return nil
}

// forUpdate makes joining a network and deleting it take turns. A transaction of
// SQLite has the database to itself anyway.
func (s *Store) forUpdate() string {
	if s.engine == enginePostgres {
		return " FOR UPDATE"
	}
	return ""
}
