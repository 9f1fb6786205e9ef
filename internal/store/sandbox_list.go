package store

import (
	"context"
	"database/sql"
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/pandastack/pandastack/api"
)

// SandboxQuery selects sandboxes of one org. Empty fields select all.
type SandboxQuery struct {
	Org      string
	Metadata map[string]string // all of these
	Status   []api.Status      // any of these
	Template string
	Limit    int    // rows of a page, at least 1
	Page     string // NextPage of the page before
}

// ListSandboxes gives one page, newest first, and the token of the next one,
// which is empty on the last. A token that is not ours gives request.invalid.
func (s *Store) ListSandboxes(ctx context.Context, q SandboxQuery) (page []Sandbox, next string, err error) {
	var where strings.Builder
	args := []any{q.Org}
	arg := func(v any) string {
		args = append(args, v)
		return "$" + strconv.Itoa(len(args))
	}
	where.WriteString("org = $1")
	if q.Page != "" {
		at, id, err := decodePage(q.Page, api.ValidID)
		if err != nil {
			return nil, "", err
		}
		fmt.Fprintf(&where, " AND (created_at, id) < (%s, %s)", arg(at), arg(id))
	}
	if q.Template != "" {
		where.WriteString(" AND template = " + arg(q.Template))
	}
	if len(q.Status) > 0 {
		marks := make([]string, len(q.Status))
		for i, st := range q.Status {
			marks[i] = arg(string(st))
		}
		where.WriteString(" AND status IN (" + strings.Join(marks, ", ") + ")")
	}
	for k, v := range q.Metadata {
		where.WriteString(" AND id IN (SELECT sandbox_id FROM sandbox_metadata WHERE label = " + arg(label(q.Org, k, v)) + ")")
	}
	// One row more than the page tells whether there is another page.
	page, err = s.selectSandboxes(ctx, "list sandboxes",
		where.String()+` ORDER BY created_at DESC, id DESC LIMIT `+arg(q.Limit+1), args...)
	if err == nil && len(page) > q.Limit {
		page = page[:q.Limit]
		last := page[q.Limit-1]
		next = encodePage(micros(last.CreatedAt), last.ID)
	}
	return page, next, err
}

// Siblings gives the rows of an org that came from one fork.
func (s *Store) Siblings(ctx context.Context, org, treeID string) ([]Sandbox, error) {
	return s.selectSandboxes(ctx, "siblings", `tree_id = $1 AND tree_id <> '' AND org = $2 ORDER BY created_at, id`, treeID, org)
}

// AllSandboxes gives every row of every org.
func (s *Store) AllSandboxes(ctx context.Context) ([]Sandbox, error) {
	return s.selectSandboxes(ctx, "all sandboxes", `1 = 1 ORDER BY created_at`)
}

// notExpiring are the states in which the end of a lifetime changes nothing.
const notExpiring = `status NOT IN ('creating', 'deleting')`

// ExpiredSandboxes gives at most limit rows whose lifetime ended by now.
func (s *Store) ExpiredSandboxes(ctx context.Context, now time.Time, limit int) ([]Sandbox, error) {
	return s.selectSandboxes(ctx, "expired sandboxes",
		`expires_at > 0 AND expires_at <= $1 AND `+notExpiring+` ORDER BY expires_at LIMIT $2`, micros(now), limit)
}

// NextExpiry is when the next lifetime ends; zero when none does.
func (s *Store) NextExpiry(ctx context.Context) (time.Time, error) {
	var at sql.NullInt64
	err := s.read.QueryRowContext(ctx, `SELECT min(expires_at) FROM sandboxes WHERE expires_at > 0 AND `+notExpiring).Scan(&at)
	return fromMicros(at.Int64), s.fail("next expiry", err)
}

func (s *Store) selectSandboxes(ctx context.Context, op, where string, args ...any) ([]Sandbox, error) {
	rows, err := s.read.QueryContext(ctx, `SELECT `+sandboxColumns+` FROM sandboxes WHERE `+where, args...)
	if err != nil {
		return nil, s.fail(op, err)
	}
	defer rows.Close()
	var out []Sandbox
	for rows.Next() {
		b, err := scanSandbox(rows)
		if err != nil {
			return nil, s.fail(op, err)
		}
		out = append(out, b)
	}
	return out, s.fail(op, rows.Err())
}

func encodePage(at int64, id string) string {
	return base64.RawURLEncoding.EncodeToString([]byte(strconv.FormatInt(at, 36) + "." + id))
}

func decodePage(token string, valid func(id string) bool) (at int64, id string, err error) {
	raw, err := base64.RawURLEncoding.DecodeString(token)
	if err == nil {
		first, rest, _ := strings.Cut(string(raw), ".")
		if at, err = strconv.ParseInt(first, 36, 64); err == nil && at > 0 && valid(rest) {
			return at, rest, nil
		}
	}
	return 0, "", api.Errorf(api.CodeInvalidRequest, "page is not a token that a list gave as next_page").With("field", "page")
}
