package blob_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/pandastack/pandastack/internal/blob"
	"github.com/pandastack/pandastack/internal/blob/blobtest"
	"github.com/pandastack/pandastack/internal/blob/s3test"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestMemory(t *testing.T) {
	t.Parallel()
	blobtest.Run(t, func(*testing.T) blob.Store { return blob.NewMemory() })
}

func TestDir(t *testing.T) {
	t.Parallel()
	blobtest.Run(t, func(t *testing.T) blob.Store { return openDir(t, t.TempDir()) })
}

func TestS3(t *testing.T) {
	t.Parallel()
	server := s3test.New(t)
	// The checks of the suite are over before the server is stopped.
	t.Run("suite", func(t *testing.T) {
		blobtest.Run(t, func(t *testing.T) blob.Store {
			s, err := blob.Open(t.Context(), server.URL(t.Name()), server.Credentials)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { s.Close() })
			return s
		})
	})
}

func openDir(t *testing.T, path string) *blob.Dir {
	t.Helper()
	d, err := blob.NewDir(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}
