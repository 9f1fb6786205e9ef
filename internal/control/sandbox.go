package control

import (
	"context"
	"maps"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/auth"
	"github.com/pandastack/pandastack/internal/store"
)

// ListQuery selects sandboxes. Empty fields select all.
type ListQuery struct {
	Metadata map[string]string // all of these
	Status   []api.Status      // any of these
	Template string
	Limit    int    // sandboxes of a page: 1 to 1000, 0 is 100
	Page     string // NextPage of the page before
}

const (
	defaultPage = 100
	maxPage     = 1000
)

// Get gives the record of a sandbox.
func (s *Service) Get(ctx context.Context, who auth.Identity, id string) (api.Sandbox, error) {
	row, err := s.row(ctx, who, id)
	if err != nil {
		return api.Sandbox{}, err
	}
	return external(&row), nil
}

// List gives one page of the caller's sandboxes, newest first.
func (s *Service) List(ctx context.Context, who auth.Identity, q ListQuery) (api.SandboxList, error) {
	if q.Limit < 0 || q.Limit > maxPage {
		return api.SandboxList{}, invalid("limit", "limit must be between 1 and %d", maxPage)
	}
	if q.Limit == 0 {
		q.Limit = defaultPage
	}
	if len(q.Metadata) > maxLabels {
		return api.SandboxList{}, invalid("metadata", "a list may be filtered by at most %d labels", maxLabels)
	}
	if err := checkName("template", q.Template); err != nil {
		return api.SandboxList{}, err
	}
	for _, status := range q.Status {
		switch status {
		case api.StatusCreating, api.StatusRunning, api.StatusPaused, api.StatusHibernated, api.StatusDeleting, api.StatusFailed:
		default:
			return api.SandboxList{}, invalid("status", "there is no status %.40q", string(status))
		}
	}
	rows, next, err := s.store.ListSandboxes(ctx, store.SandboxQuery{
		Org: who.Org, Metadata: q.Metadata, Status: q.Status, Template: q.Template, Limit: q.Limit, Page: q.Page,
	})
	list := api.SandboxList{Sandboxes: make([]api.Sandbox, len(rows)), NextPage: next}
	for i := range rows {
		list.Sandboxes[i] = external(&rows[i])
	}
	return list, err
}

// external is a row as its owner sees it.
func external(row *store.Sandbox) api.Sandbox {
	b := api.Sandbox{
		ID: row.ID, Template: row.Template, Status: row.Status, Driver: row.Driver, Host: row.Host,
		CPU: row.Spec.CPU, MemoryMB: row.Spec.MemoryMB, DiskMB: row.Spec.DiskMB, GuestIP: row.GuestIP,
		BootMode: row.Boot.Mode, BootMS: row.Boot.MS, BootSteps: row.Boot.Steps,
		Metadata: maps.Clone(row.Metadata), Persistent: row.Persistent, TTLSeconds: row.TTLSeconds,
		CreatedAt: row.CreatedAt, Error: row.Error,
		ParentID: row.ParentID, TreeID: row.TreeID, SnapshotID: row.SnapshotID, Idle: row.Idle,
	}
	if b.Metadata == nil {
		b.Metadata = map[string]string{}
	}
	if !row.ExpiresAt.IsZero() {
		at := row.ExpiresAt
		b.ExpiresAt = &at
	}
	return b
}
