package hosttest

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/host"
)

var fileChecks = []check{
	{"ExportAndImport", exportAndImport},
	{"ImportOfWhatIsNoSnapshot", importOfWhatIsNoSnapshot},
	{"ExportThatIsNotRead", exportThatIsNotRead},
}

// export writes a snapshot to a file, which may be as large as an image.
func (s *suite) export(t *testing.T, snapshot string) string {
	t.Helper()
	r, err := s.host.Export(deadline(t), snapshot)
	if err != nil {
		t.Fatalf("Export: %v", err)
	}
	path := filepath.Join(t.TempDir(), "snapshot")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	n, err := io.Copy(f, r)
	if err := errors.Join(err, r.Close(), f.Close()); err != nil || n == 0 {
		t.Fatalf("Export gave %d bytes, %v", n, err)
	}
	return path
}

// importFrom imports the first limit bytes of a file; a negative limit is for all.
func (s *suite) importFrom(t *testing.T, spec host.SnapshotSpec, path string, limit int64) (host.Snapshot, error) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var r io.Reader = f
	if limit >= 0 {
		r = io.LimitReader(f, limit)
	}
	return s.host.Import(deadline(t), spec, r)
}

func exportAndImport(t *testing.T, s *suite) {
	spec := s.spec()
	sb := s.create(t, spec)
	s.guest(t, spec).write(t, mark, "exported")
	for _, memory := range []bool{true, false} {
		snap := s.snapshot(t, spec.ID, memory)
		path := s.export(t, snap.ID)
		if err := s.host.DeleteSnapshot(deadline(t), snap.ID); err != nil {
			t.Fatal(err)
		}
		to := s.snapshotSpec(t, memory)
		got, err := s.importFrom(t, to, path, -1)
		if err != nil {
			t.Fatalf("Import: %v", err)
		}
		if got.ID != to.ID || got.Memory != memory || got.Driver != sb.Driver || got.MemoryMB != sb.MemoryMB || got.DiskMB != sb.DiskMB || got.SizeBytes <= 0 {
			t.Errorf("imported %+v of %+v", got, snap)
		}
		if !s.snapshotListed(t, to.ID) {
			t.Error("not in Snapshots")
		}
		_, err = s.importFrom(t, to, path, -1)
		wantCode(t, "Import under an id that exists", err, api.CodeSnapshotExists)
		from := s.from(to.ID)
		s.create(t, from)
		s.guest(t, from).wantFile(t, mark, "exported")
	}
}

func importOfWhatIsNoSnapshot(t *testing.T, s *suite) {
	spec := s.spec()
	s.create(t, spec)
	snap := s.snapshot(t, spec.ID, false)
	path := s.export(t, snap.ID)
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	refused := []api.Code{api.CodeSnapshotCorrupt, api.CodeInvalidRequest}
	for _, limit := range []int64{0, 1, info.Size() / 2, info.Size() - 1} {
		to := s.snapshotSpec(t, false)
		_, err := s.importFrom(t, to, path, limit)
		wantCode(t, "Import of a part of a file", err, refused...)
		s.wantNoSnapshot(t, to.ID)
	}
	for name, content := range map[string]io.Reader{
		"zeros": bytes.NewReader(make([]byte, 1<<20)),
		"text":  bytes.NewReader(bytes.Repeat([]byte("no snapshot at all\n"), 1000)),
	} {
		to := s.snapshotSpec(t, false)
		_, err := s.host.Import(deadline(t), to, content)
		wantCode(t, "Import of "+name, err, refused...)
		s.wantNoSnapshot(t, to.ID)
	}
	for _, id := range []string{"", "..", "snap-short"} {
		_, err := s.importFrom(t, host.SnapshotSpec{ID: id}, path, -1)
		wantCode(t, "Import under the id "+id, err, api.CodeInvalidRequest)
	}
}

// exportThatIsNotRead leaves an export after its first byte: the snapshot can be
// used and deleted like any other.
func exportThatIsNotRead(t *testing.T, s *suite) {
	spec := s.spec()
	s.create(t, spec)
	snap := s.snapshot(t, spec.ID, true)
	r, err := s.host.Export(deadline(t), snap.ID)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(r, make([]byte, 1)); err != nil {
		t.Error(err)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	from := s.from(snap.ID)
	s.create(t, from)
	s.guest(t, from).wantHealthy(t)
	if err := s.host.DeleteSnapshot(deadline(t), snap.ID); err != nil {
		t.Fatal(err)
	}
	s.wantNoSnapshot(t, snap.ID)
}
