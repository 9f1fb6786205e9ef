package blob_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/blob"
)

var keys = blob.Credentials{AccessKey: "an-access-key", SecretKey: "hunter2"}

func TestOpen(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cases := []struct{ url, want string }{
		{dir, "dir:" + dir},
		{"dir:" + dir + "/a/b/", "dir:" + dir + "/a/b"},
		{"memory:", "memory:"},
		{"s3://bucket?endpoint=http://127.0.0.1:9000", "s3://bucket?endpoint=http%3A%2F%2F127.0.0.1%3A9000&region=us-east-1"},
		{"s3://bucket/a/b/?endpoint=https://s3.example.com/&region=eu-west-3", "s3://bucket/a/b?endpoint=https%3A%2F%2Fs3.example.com&region=eu-west-3"},
		{"s3://bucket/a?region=eu-west-3", "s3://bucket/a?endpoint=https%3A%2F%2Fs3.eu-west-3.amazonaws.com&region=eu-west-3"},
	}
	for _, c := range cases {
		s, err := blob.Open(t.Context(), c.url, keys)
		if err != nil {
			t.Errorf("%s: %v", c.url, err)
			continue
		}
		if got := s.URL(); got != c.want {
			t.Errorf("%s is at %s, want %s", c.url, got, c.want)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		// What a store says of itself opens it again.
		again, err := blob.Open(t.Context(), s.URL(), keys)
		if err != nil || again.URL() != s.URL() {
			t.Errorf("%s again: %v", s.URL(), err)
			continue
		}
		again.Close()
	}
}

func TestOpenSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	const server = "?endpoint=http://127.0.0.1:9000"
	cases := []struct {
		url, says string
		keys      blob.Credentials
	}{
		{"", "no blob store", keys},
		{"relative/path", "neither an absolute path nor a URL", keys},
		{"dir:relative", "no absolute path", keys},
		{"dir:", "no absolute path", keys},
		{"memory:x", "nothing after the colon", keys},
		{"ftp://user:hunter2@host/x", `"ftp"`, keys},
		{"s3:bucket", "not valid", keys},
		{"s3://", "name of a bucket", keys},
		{"s3://No_Bucket" + server, "name of a bucket", keys},
		{"s3://ab" + server, "name of a bucket", keys},
		{"s3://bucket/a b" + server, "prefix", keys},
		{"s3://bucket/../x" + server, "prefix", keys},
		{"s3://bucket/" + strings.Repeat("a/", 11) + server, "prefix", keys},
		{"s3://bucket" + server + "&colour=red", `"colour"`, keys},
		{"s3://bucket" + server + "&region=%20", "region", keys},
		{"s3://bucket?endpoint=127.0.0.1:9000", "endpoint", keys},
		{"s3://bucket?endpoint=ftp://host", "endpoint", keys},
		{"s3://bucket?endpoint=http://host/path", "endpoint", keys},
		{"s3://bucket?endpoint=http://u:hunter2@host", "endpoint", keys},
		{"s3://bucket?endpoint=%zz", "not valid", keys},
		{"s3://key:hunter2@bucket" + server, "credentials", keys},
		{"s3://bucket" + server, "access key", blob.Credentials{}},
		{"s3://bucket" + server, "secret key", blob.Credentials{AccessKey: "a"}},
		{"s3://bucket" + server, "access key", blob.Credentials{SecretKey: "hunter2"}},
	}
	for _, c := range cases {
		s, err := blob.Open(t.Context(), c.url, c.keys)
		var e *api.Error
		if !errors.As(err, &e) {
			t.Errorf("%s: %v, %v", c.url, s, err)
			continue
		}
		if e.Code != api.CodeInvalidRequest || !strings.Contains(e.Message, c.says) || e.Hint == "" {
			t.Errorf("%s: %+v, want a word of %s", c.url, e, c.says)
		}
		if strings.Contains(e.Error()+e.Hint, "hunter2") {
			t.Errorf("a secret shows: %v", e)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := blob.Open(ctx, "memory:", keys); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

func TestOpenNeedsADirectory(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"/proc/blobs", "/dev/null", "/dev/null/blobs"} {
		_, err := blob.Open(t.Context(), path, keys)
		if api.CodeOf(err) != api.CodeSnapshotStore || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", path, err)
		}
	}
}
