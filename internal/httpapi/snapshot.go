package httpapi

import (
	"bufio"
	"context"
	"errors"
	"io"
	"mime"
	"net/http"
	"os"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/control"
)

// importStall is how long an import waits for the next byte. How long the whole
// file takes is the client's own affair.
const importStall = 2 * time.Minute

const exportSuffix = ".pandasnap"

// SnapshotPath is the part of a request that names a snapshot. It is exported
// for the framework, as SandboxPath is.
type SnapshotPath struct {
	Snapshot string `path:"snapshot" maxLength:"128" doc:"Id or name of a snapshot" example:"snap-k3v9x0q2m7c1b8n4t6zd"`
}

// Paging is the part of a request that asks for one page of a list.
type Paging struct {
	Limit int    `query:"limit" minimum:"1" maximum:"1000" default:"100" doc:"Snapshots in a page"`
	Page  string `query:"page" maxLength:"512" doc:"next_page of the page before"`
}

type takeInput struct {
	SandboxPath
	Body *api.CreateSnapshot
}

type takenOutput struct {
	Location string `header:"Location" doc:"Path of the snapshot"`
	Body     api.Snapshot
}

func (a *API) taken(s api.Snapshot, err error) (*takenOutput, error) {
	if err != nil {
		return nil, err
	}
	a.metrics.captured(s)
	return &takenOutput{snapshots + "/" + s.ID, s}, nil
}

func (a *API) createSnapshot(ctx context.Context, in *takeInput) (*takenOutput, error) {
	return a.taken(a.Control.Snapshot(ctx, who(ctx), in.ID, orZero(in.Body)))
}

type snapshotOutput struct{ Body api.Snapshot }

func (a *API) getSnapshot(ctx context.Context, in *SnapshotPath) (*snapshotOutput, error) {
	s, err := a.Control.GetSnapshot(ctx, who(ctx), in.Snapshot)
	if err != nil {
		return nil, err
	}
	return &snapshotOutput{s}, nil
}

func (a *API) deleteSnapshot(ctx context.Context, in *SnapshotPath) (*nothing, error) {
	return nil, a.Control.DeleteSnapshot(ctx, who(ctx), in.Snapshot)
}

type snapshotsInput struct {
	SandboxID string           `query:"sandbox_id" maxLength:"64" doc:"Taken of this sandbox, which may be gone"`
	Kind      api.SnapshotKind `query:"kind" enum:"snapshot,checkpoint" doc:"Default: both kinds"`
	Paging
}

type snapshotsOutput struct{ Body api.SnapshotList }

func (a *API) listSnapshots(ctx context.Context, in *snapshotsInput) (*snapshotsOutput, error) {
	l, err := a.Control.Snapshots(ctx, who(ctx), control.SnapshotQuery{
		SandboxID: in.SandboxID, Kind: in.Kind, Limit: in.Limit, Page: in.Page,
	})
	if err != nil {
		return nil, err
	}
	if l.Snapshots == nil {
		l.Snapshots = []api.Snapshot{}
	}
	return &snapshotsOutput{l}, nil
}

type sandboxSnapshotsInput struct {
	SandboxPath
	Paging
}

// listSandboxSnapshots is the list for one sandbox, gone or not. Checkpoints
// have a list of their own.
func (a *API) listSandboxSnapshots(ctx context.Context, in *sandboxSnapshotsInput) (*snapshotsOutput, error) {
	return a.listSnapshots(ctx, &snapshotsInput{SandboxID: in.ID, Kind: api.KindSnapshot, Paging: in.Paging})
}

func (a *API) exportSnapshot(ctx context.Context, in *SnapshotPath) (*huma.StreamResponse, error) {
	s, file, err := a.Control.ExportSnapshot(ctx, who(ctx), in.Snapshot)
	if err != nil {
		return nil, err
	}
	return raw(func(w http.ResponseWriter, r *http.Request) {
		defer file.Close()
		body := bufio.NewReaderSize(file, 64<<10)
		if r.Method != http.MethodHead {
			// What fails before the first byte can still be an error answer.
			if _, err := body.Peek(1); err != nil && !errors.Is(err, io.EOF) {
				a.fail(w, r, err)
				return
			}
		}
		name := s.Name
		if name == "" {
			name = s.ID
		}
		w.Header().Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": name + exportSuffix}))
		w.Header().Set("X-Content-Type-Options", "nosniff")
		copyBody(w, r, http.StatusOK, body, -1)
	}), nil
}

type importInput struct {
	Name string `query:"name" maxLength:"128" doc:"Letters, digits, dots, dashes and underscores"`
}

func (a *API) importSnapshot(_ context.Context, in *importInput) (*huma.StreamResponse, error) {
	return raw(func(w http.ResponseWriter, r *http.Request) {
		file := &importFile{body: r.Body, deadline: http.NewResponseController(w).SetReadDeadline}
		s, err := a.Control.ImportSnapshot(r.Context(), who(r.Context()), in.Name, file)
		file.done()
		if err != nil {
			if file.err != nil {
				err = file.err // what the import made of it follows from this
			}
			a.refuse(w, r, err)
			return
		}
		w.Header().Set("Location", snapshots+"/"+s.ID)
		writeJSON(w, http.StatusCreated, s)
	}), nil
}

// importFile is the body of an import, of any length, as long as it goes on
// coming.
type importFile struct {
	body     io.Reader
	deadline func(time.Time) error
	err      error // why it could not be read to its end
}

func (f *importFile) Read(p []byte) (int, error) {
	_ = f.deadline(time.Now().Add(importStall)) // a connection without deadlines waits for its client
	n, err := f.body.Read(p)
	if err == nil || errors.Is(err, io.EOF) {
		if err != nil {
			f.done()
		}
		return n, err
	}
	f.err = api.Wrap(api.CodeInvalidRequest, err, "the request body could not be read to its end")
	if errors.Is(err, os.ErrDeadlineExceeded) {
		f.err = api.Wrap(api.CodeInvalidRequest, err, "no more of the request body came within %s", importStall)
	}
	return n, f.err
}

// done takes the deadline away. From the end of the body on the connection is
// watched for the client's leaving, and a deadline that passes would look like
// it.
func (f *importFile) done() { _ = f.deadline(time.Time{}) }

// orZero is a body that may be left out.
func orZero[T any](body *T) T {
	if body == nil {
		var zero T
		return zero
	}
	return *body
}
