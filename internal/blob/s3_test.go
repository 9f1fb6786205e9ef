package blob_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/blob"
	"github.com/pandastack/pandastack/internal/blob/s3test"
)

// calls is everything that a store can be asked for.
func calls(s blob.Store) map[string]func(context.Context) error {
	return map[string]func(context.Context) error{
		"Put": func(ctx context.Context) error { return s.Put(ctx, "k", strings.NewReader("x"), 1) },
		"Put in parts": func(ctx context.Context) error {
			return s.Put(ctx, "k", bytes.NewReader(make([]byte, 20<<20)), 20<<20)
		},
		"Get":    func(ctx context.Context) error { _, err := s.Get(ctx, "k"); return err },
		"Stat":   func(ctx context.Context) error { _, err := s.Stat(ctx, "k"); return err },
		"ReadAt": func(ctx context.Context) error { _, err := s.ReadAt(ctx, "k", make([]byte, 1), 0); return err },
		"Delete": func(ctx context.Context) error { return s.Delete(ctx, "k") },
		"List":   func(ctx context.Context) error { return s.List(ctx, "", func(blob.Info) error { return nil }) },
	}
}

func wantUnavailable(t *testing.T, s blob.Store) {
	t.Helper()
	var wg sync.WaitGroup
	for name, call := range calls(s) {
		wg.Go(func() {
			if err := call(t.Context()); api.CodeOf(err) != api.CodeSnapshotStore || errors.Is(err, blob.ErrNotFound) {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
	wg.Wait()
}

func TestS3ThatIsAway(t *testing.T) {
	t.Parallel()
	server := s3test.New(t)
	s := server.Open("p")
	put(t, s, "k", "content")
	server.Stop()
	wantUnavailable(t, s)
	server.Start()
	wantKeys(t, s, "k")
	// A Put whose server dies in the middle, in its first request and in a later.
	for _, size := range []int64{1 << 20, 40 << 20} {
		content := newSlow(strings.Repeat("x", int(size)))
		done := make(chan error, 1)
		go func() { done <- s.Put(t.Context(), "large", content, size) }()
		<-content.asked
		server.Stop()
		close(content.goOn)
		if err := <-done; api.CodeOf(err) != api.CodeSnapshotStore {
			t.Errorf("Put of %d bytes whose server died: %v", size, err)
		}
		server.Start()
		wantKeys(t, s, "k")
	}
}

// TestS3ThatDiesDuringAnUpload takes the server away between two parts.
func TestS3ThatDiesDuringAnUpload(t *testing.T) {
	t.Parallel()
	server := s3test.New(t)
	s := server.Open("p")
	const size = 64 << 20
	content := &counting{Reader: bytes.NewReader(make([]byte, size)), at: 40 << 20, then: server.Stop}
	if err := s.Put(t.Context(), "large", content, size); api.CodeOf(err) != api.CodeSnapshotStore {
		t.Errorf("Put whose server died after two parts: %v", err)
	}
	server.Start()
	wantKeys(t, s)
}

// counting does something once, when so many bytes were read.
type counting struct {
	io.Reader
	n, at int
	then  func()
}

func (c *counting) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	if c.n < c.at && c.n+n >= c.at {
		c.then()
	}
	c.n += n
	return n, err
}

// listen accepts connections and gives them to f until the end of the test, which
// ends the context.
func listen(t *testing.T, f func(ctx context.Context, c net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	var wg sync.WaitGroup
	ctx, cancel := context.WithCancel(context.Background())
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			stop := context.AfterFunc(ctx, func() { c.Close() })
			wg.Go(func() {
				defer stop()
				defer c.Close()
				f(ctx, c)
			})
		}
	})
	t.Cleanup(func() { cancel(); l.Close(); wg.Wait() })
	return "http://" + l.Addr().String()
}

func newS3(t *testing.T, config blob.S3Config) *blob.S3 {
	t.Helper()
	if config.Region == "" {
		config.Region, config.Bucket, config.Credentials = "us-east-1", "blobs", keys
	}
	s, err := blob.NewS3(config)
	must(t, err)
	t.Cleanup(func() { must(t, s.Close()) })
	return s
}

// TestS3ThatIsSilent asks a server that takes everything and answers nothing, and
// one that takes nothing.
func TestS3ThatIsSilent(t *testing.T) {
	t.Parallel()
	for name, f := range map[string]func(context.Context, net.Conn){
		"says nothing":  func(_ context.Context, c net.Conn) { _, _ = io.Copy(io.Discard, c) },
		"takes nothing": func(ctx context.Context, _ net.Conn) { <-ctx.Done() },
		"stops in the middle": func(ctx context.Context, c net.Conn) {
			_, _ = c.Read(make([]byte, 4096))
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n")
			<-ctx.Done()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			wantUnavailable(t, newS3(t, blob.S3Config{Endpoint: listen(t, f), Silence: 300 * time.Millisecond}))
		})
	}
}

// TestS3EndsWithItsContext gives up calls that wait for a silent server.
func TestS3EndsWithItsContext(t *testing.T) {
	t.Parallel()
	s := newS3(t, blob.S3Config{Endpoint: listen(t, func(_ context.Context, c net.Conn) { _, _ = io.Copy(io.Discard, c) })})
	for name, call := range calls(s) {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		if err := call(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v", name, err)
		}
		cancel()
	}
}

func TestS3ThatIsNone(t *testing.T) {
	t.Parallel()
	for _, answer := range []string{
		"nonsense\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
		"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n",
		"HTTP/1.1 418 no\r\nContent-Length: 5\r\n\r\n<xml>",
		"HTTP/1.1 500 no\r\nContent-Length: 0\r\n\r\n",
		"HTTP/1.1 403 no\r\nContent-Length: 0\r\n\r\n",
	} {
		s := newS3(t, blob.S3Config{Silence: 2 * time.Second, Endpoint: listen(t, func(_ context.Context, c net.Conn) {
			_, _ = c.Read(make([]byte, 4096))
			_, _ = io.WriteString(c, answer)
			_ = c.(*net.TCPConn).CloseWrite()
			_, _ = io.Copy(io.Discard, c)
		})})
		for _, name := range []string{"List", "Get", "Put in parts"} {
			if err := calls(s)[name](t.Context()); err == nil && !strings.Contains(answer, "hello") {
				t.Errorf("%s answered by %.20q passes", name, answer)
			} else if err != nil && api.CodeOf(err) != api.CodeSnapshotStore {
				t.Errorf("%s answered by %.20q: %v", name, answer, err)
			}
		}
	}
}

// cutting passes connections on to a server and cuts off those that have brought
// more than some bytes, as long as it has cuts left.
func cutting(t *testing.T, server *s3test.Server, after int64, cuts *atomic.Int32) string {
	t.Helper()
	return listen(t, func(_ context.Context, c net.Conn) {
		up, err := net.Dial("tcp", strings.TrimPrefix(server.Endpoint, "http://"))
		if err != nil {
			return
		}
		defer up.Close()
		var wg sync.WaitGroup
		wg.Go(func() { _, _ = io.Copy(up, c); up.(*net.TCPConn).CloseWrite() })
		if _, err := io.CopyN(c, up, after); err == nil && cuts.Add(-1) < 0 {
			_, _ = io.Copy(c, up)
		}
		c.Close()
		up.Close()
		wg.Wait()
	})
}

// TestS3GoesOnWithADownload breaks the connection while an object is read.
func TestS3GoesOnWithADownload(t *testing.T) {
	t.Parallel()
	server := s3test.New(t)
	direct := server.Open("p")
	const size = 8 << 20
	content := make([]byte, size)
	for i := range content {
		content[i] = byte(i >> 12)
	}
	put(t, direct, "k", string(content))
	through := func(after int64, cuts int32) *blob.S3 {
		left := new(atomic.Int32)
		left.Store(cuts)
		return newS3(t, blob.S3Config{Endpoint: cutting(t, server, after, left), Region: server.Region, Bucket: server.Bucket, Prefix: "p", Credentials: server.Credentials})
	}
	get := func(s blob.Store) ([]byte, error) {
		r, err := s.Get(t.Context(), "k")
		must(t, err)
		defer r.Close()
		return io.ReadAll(r)
	}
	got, err := get(through(3<<20, 2))
	if err != nil || !bytes.Equal(got, content) {
		t.Errorf("%d bytes of %d, or others: %v", len(got), size, err)
	}
	p := make([]byte, size)
	n, err := through(3<<20, 2).ReadAt(t.Context(), "k", p, 100)
	if n != size-100 || err != io.EOF || !bytes.Equal(p[:n], content[100:]) {
		t.Errorf("ReadAt: %d, %v", n, err)
	}
	// It does not try for ever.
	got, err = get(through(1<<20, 1000))
	if api.CodeOf(err) != api.CodeSnapshotStore || !bytes.HasPrefix(content, got) {
		t.Errorf("over a line that breaks again and again: %d bytes, %v", len(got), err)
	}
	// Another version is not gone on with.
	r, err := through(6<<20, 1).Get(t.Context(), "k")
	must(t, err)
	defer r.Close()
	half := make([]byte, 1<<20)
	_, err = io.ReadFull(r, half)
	must(t, err)
	put(t, direct, "k", strings.Repeat("y", size))
	rest, err := io.ReadAll(r)
	if api.CodeOf(err) != api.CodeSnapshotStore || !bytes.HasPrefix(content, append(half, rest...)) {
		t.Errorf("%d bytes after it was replaced, %v", len(rest), err)
	}
}

func TestS3ThatDoesNotLetUs(t *testing.T) {
	t.Parallel()
	server := s3test.New(t)
	config := blob.S3Config{Endpoint: server.Endpoint, Region: server.Region, Bucket: "no-such-bucket", Credentials: server.Credentials}
	s := newS3(t, config)
	err := s.List(t.Context(), "", func(blob.Info) error { return nil })
	if api.CodeOf(err) != api.CodeSnapshotStore || !strings.Contains(err.Error(), "no bucket no-such-bucket") {
		t.Errorf("a bucket that is not there: %v", err)
	}
	for _, name := range []string{"Get", "Stat", "ReadAt"} {
		if err := calls(s)[name](t.Context()); api.CodeOf(err) != api.CodeSnapshotStore || errors.Is(err, blob.ErrNotFound) {
			t.Errorf("%s in a bucket that is not there: %v", name, err)
		}
	}
	config.Bucket = server.Bucket
	for _, c := range []blob.Credentials{
		{AccessKey: "someone-else", SecretKey: "hunter2-secret"},
		{AccessKey: server.Credentials.AccessKey, SecretKey: "hunter2-secret"},
	} {
		config.Credentials = c
		s := newS3(t, config)
		for name, call := range calls(s) {
			err := call(t.Context())
			if api.CodeOf(err) != api.CodeSnapshotStore || errors.Is(err, blob.ErrNotFound) || strings.Contains(err.Error(), "hunter2") {
				t.Errorf("%s with the key of another: %v", name, err)
			}
		}
	}
}

// raw is the bucket without our rules.
func raw(t *testing.T, server *s3test.Server) *minio.Core {
	t.Helper()
	c, err := minio.NewCore(strings.TrimPrefix(server.Endpoint, "http://"), &minio.Options{
		Creds: credentials.NewStaticV4(server.Credentials.AccessKey, server.Credentials.SecretKey, ""), Region: server.Region, BucketLookup: minio.BucketLookupPath,
	})
	must(t, err)
	return c
}

// TestS3SharesItsBucket puts two stores and foreign objects side by side.
func TestS3SharesItsBucket(t *testing.T) {
	t.Parallel()
	server := s3test.New(t)
	a, b := server.Open("a"), server.Open("a-b/c")
	put(t, a, "x", "of a")
	put(t, b, "x", "of b")
	core := raw(t, server)
	for _, name := range []string{"a/with space", "a/dir/", "ax", "a-b/c~", "a-b/cx", "other"} {
		_, err := core.PutObject(t.Context(), server.Bucket, name, strings.NewReader(""), 0, "", "", minio.PutObjectOptions{DisableContentSha256: true})
		must(t, err)
	}
	wantKeys(t, a, "x")
	wantKeys(t, b, "x")
	must(t, a.Delete(t.Context(), "x"))
	wantKeys(t, b, "x")
	wantKeys(t, server.Open(""), "a-b/c/x", "a-b/cx", "ax", "other")
}

// TestS3EndsAbandonedUploads leaves an upload as a process that died does.
func TestS3EndsAbandonedUploads(t *testing.T) {
	t.Parallel()
	server := s3test.New(t)
	core := raw(t, server)
	for _, name := range []string{"p/dead", "other/dead"} {
		id, err := core.NewMultipartUpload(t.Context(), server.Bucket, name, minio.PutObjectOptions{})
		must(t, err)
		_, err = core.PutObjectPart(t.Context(), server.Bucket, name, id, 1, strings.NewReader("x"), 1, minio.PutObjectPartOptions{})
		must(t, err)
	}
	uploads := func() string {
		page, err := core.ListMultipartUploads(t.Context(), server.Bucket, "", "", "", "", 100)
		must(t, err)
		var names []string
		for _, u := range page.Uploads {
			names = append(names, u.Key)
		}
		return fmt.Sprint(names)
	}
	s := server.Open("p").(*blob.S3)
	wantKeys(t, s)
	s.AbortAbandoned(t.Context(), time.Now().Add(-time.Hour))
	if got := uploads(); got != "[other/dead p/dead]" {
		t.Errorf("young uploads are left alone: %s", got)
	}
	s.AbortAbandoned(t.Context(), time.Now().Add(time.Hour))
	if got := uploads(); got != "[other/dead]" {
		t.Errorf("after the end of the old ones: %s", got)
	}
	// And a Put that fails ends its own.
	err := s.Put(t.Context(), "k", io.LimitReader(neverEnding{}, 30<<20), 40<<20)
	if got := uploads(); !errors.Is(err, blob.ErrSize) || got != "[other/dead]" {
		t.Errorf("after a Put that failed: %s, %v", got, err)
	}
}

type neverEnding struct{}

func (neverEnding) Read(p []byte) (int, error) { return len(p), nil }

func TestS3WithLatency(t *testing.T) {
	t.Parallel()
	const latency = 30 * time.Millisecond
	server := s3test.New(t, s3test.WithLatency(latency))
	s := server.Open("p")
	put(t, s, "k", "content")
	for range 3 {
		begin := time.Now()
		p := make([]byte, 7)
		if n, err := s.ReadAt(t.Context(), "k", p, 0); n != 7 || err != nil && err != io.EOF {
			t.Errorf("%d, %v", n, err)
		}
		if took := time.Since(begin); took < latency {
			t.Errorf("a read took %v", took)
		}
	}
	server.Stop()
	if _, err := s.Stat(t.Context(), "k"); api.CodeOf(err) != api.CodeSnapshotStore {
		t.Errorf("%v", err)
	}
	server.Start()
	wantKeys(t, s, "k")
}
