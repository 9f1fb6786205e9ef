package blob

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	"golang.org/x/sync/errgroup"

	"github.com/pandastack/pandastack/api"
)

const (
	// partSize is what is sent in one request. A Put holds up to uploads+1 parts
	// in memory: one that failed is sent again, and a reader is read only once.
	partSize = 16 << 20
	uploads  = 3
	// maxUploadParts and maxObject are S3's own bounds.
	maxUploadParts = 10000
	maxObject      = 5 << 40

	// attempts bounds how often a request is made, and how often a broken
	// download is gone on with.
	attempts = 3

	// abandoned is the age at which an upload that never ended is taken for one
	// of a process that died.
	abandoned = 24 * time.Hour
	// cleanup bounds what is done for tidiness only.
	cleanup = 30 * time.Second
)

// defaultSilence is how long a server may say nothing, and take nothing, until a
// request is given up.
const defaultSilence = 20 * time.Second

// Credentials of a store that asks for some.
type Credentials struct {
	AccessKey    string
	SecretKey    string
	SessionToken string // of temporary credentials
}

// S3Config says where an S3-compatible store is.
type S3Config struct {
	Endpoint    string // http or https, host and port
	Region      string
	Bucket      string
	Prefix      string // of every key, without the slash after it; may be empty
	Credentials Credentials
	Silence     time.Duration // without a byte, until a request is given up; default 20 s
}

// S3 is a Store in a bucket. It addresses the bucket by path, asks only for what
// every compatible server has, and writes large objects in parts.
type S3 struct {
	config S3Config
	core   *minio.Core
	http   *http.Transport
	sweep  sync.Once
}

var _ Store = (*S3)(nil)

// NewS3 makes a store of a bucket, which must exist. The server is not asked
// until the store is used: List says whether it answers.
func NewS3(config S3Config) (*S3, error) {
	if err := config.check(); err != nil {
		return nil, err
	}
	if config.Silence == 0 {
		config.Silence = defaultSilence
	}
	config.Endpoint = strings.TrimRight(config.Endpoint, "/")
	endpoint, err := url.Parse(config.Endpoint)
	if err != nil {
		return nil, api.Wrap(api.CodeInternal, err, "the endpoint of the blob store was not checked")
	}
	s := &S3{config: config, http: transport(config.Silence)}
	c := config.Credentials
	s.core, err = minio.NewCore(endpoint.Host, &minio.Options{
		Creds:        credentials.NewStaticV4(c.AccessKey, c.SecretKey, c.SessionToken),
		Secure:       endpoint.Scheme == "https",
		Transport:    s.http,
		Region:       config.Region, // given, so that the server is not asked for it
		BucketLookup: minio.BucketLookupPath,
		MaxRetries:   attempts,
	})
	if err != nil {
		return nil, api.Errorf(api.CodeInvalidRequest, "the endpoint %q of the blob store is not valid: %v", config.Endpoint, err)
	}
	return s, nil
}

func (s *S3) name(key string) string {
	if s.config.Prefix == "" {
		return key
	}
	return s.config.Prefix + "/" + key
}

// Put implements Store.
func (s *S3) Put(ctx context.Context, key string, r io.Reader, size int64) error {
	if err := checkKey(key); err != nil {
		return err
	}
	if size > maxObject {
		return api.Errorf(api.CodeTooLarge, "%s has %d bytes, and S3 takes %d", key, size, int64(maxObject))
	}
	src := newSource(ctx, r, size)
	var err error
	if size > partSize {
		err = s.putParts(ctx, key, src, size)
	} else {
		err = s.putWhole(ctx, key, src, size)
	}
	if err == nil {
		return nil
	}
	if err := src.failed(key); err != nil {
		return err
	}
	return s.failure(ctx, "take "+key, key, err)
}

func (s *S3) putWhole(ctx context.Context, key string, src *source, size int64) error {
	if size < 0 {
		return src.err
	}
	content := make([]byte, size)
	if err := src.fill(content); err != nil {
		return err
	}
	if err := src.finish(); err != nil {
		return err
	}
	_, err := s.core.PutObject(ctx, s.config.Bucket, s.name(key), bytes.NewReader(content), size, "", s.digest(content),
		minio.PutObjectOptions{DisableContentSha256: true})
	return err
}

// putParts sends an object in parts, several at a time, and joins them at the
// end: until then it does not exist.
func (s *S3) putParts(ctx context.Context, key string, src *source, size int64) (err error) {
	s.sweep.Do(func() { s.abortAbandoned(ctx, time.Now().Add(-abandoned)) })
	id, err := s.core.NewMultipartUpload(ctx, s.config.Bucket, s.name(key), minio.PutObjectOptions{})
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			s.abort(ctx, s.name(key), id)
		}
	}()
	parts, err := s.sendParts(ctx, key, id, src, size)
	if err != nil {
		return err
	}
	_, err = s.core.CompleteMultipartUpload(ctx, s.config.Bucket, s.name(key), id, parts, minio.PutObjectOptions{})
	return err
}

func (s *S3) sendParts(ctx context.Context, key, id string, src *source, size int64) ([]minio.CompletePart, error) {
	length := max(partSize, (size+maxUploadParts-1)/maxUploadParts)
	parts := make([]minio.CompletePart, (size+length-1)/length)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	sending, sendCtx := errgroup.WithContext(ctx)
	sending.SetLimit(uploads)
	var failed error
	for i := range parts {
		content := make([]byte, min(length, size-int64(i)*length))
		if failed = src.fill(content); failed != nil || sendCtx.Err() != nil {
			break
		}
		sending.Go(func() error {
			part, err := s.core.PutObjectPart(sendCtx, s.config.Bucket, s.name(key), id, i+1,
				bytes.NewReader(content), int64(len(content)), minio.PutObjectPartOptions{Sha256Hex: s.digest(content), DisableContentSha256: true})
			parts[i] = minio.CompletePart{PartNumber: i + 1, ETag: part.ETag}
			return err
		})
	}
	if failed != nil {
		cancel()
	}
	if err := sending.Wait(); err != nil || failed != nil {
		return nil, cmp.Or(failed, err)
	}
	return parts, src.finish()
}

// digest is what a request says of its body. TLS protects the body as it is.
// Without it the library would sign the body piece by piece, which adds bytes to
// an empty one that not every server reads.
func (s *S3) digest(content []byte) string {
	if strings.HasPrefix(s.config.Endpoint, "https:") {
		return ""
	}
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}

// abort tells the server to forget an upload, also when the Put was given up.
func (s *S3) abort(ctx context.Context, name, id string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanup)
	defer cancel()
	_ = s.core.AbortMultipartUpload(ctx, s.config.Bucket, name, id) // else abortAbandoned will
}

// abortAbandoned ends uploads of processes that died. They cost space and are
// seen by nobody, so a server that cannot list them is no reason to fail.
func (s *S3) abortAbandoned(ctx context.Context, before time.Time) {
	ctx, cancel := context.WithTimeout(ctx, cleanup)
	defer cancel()
	prefix := ""
	if s.config.Prefix != "" {
		prefix = s.config.Prefix + "/"
	}
	page, err := s.core.ListMultipartUploads(ctx, s.config.Bucket, prefix, "", "", "", 1000)
	if err != nil {
		return
	}
	for _, u := range page.Uploads {
		if u.Initiated.Before(before) && strings.HasPrefix(u.Key, prefix) {
			s.abort(ctx, u.Key, u.UploadID)
		}
	}
}

// ReadAt implements Store.
func (s *S3) ReadAt(ctx context.Context, key string, p []byte, off int64) (int, error) {
	if len(p) == 0 {
		_, err := s.Stat(ctx, key)
		return 0, err
	}
	if off < 0 {
		return 0, negativeOffset(key, off)
	}
	d, err := s.open(ctx, key, off, off+int64(len(p)))
	if err != nil {
		return 0, err
	}
	defer d.Close()
	n, err := io.ReadFull(d, p)
	if errors.Is(err, io.ErrUnexpectedEOF) {
		err = io.EOF // the object's end
	}
	return n, err
}

// Get implements Store.
func (s *S3) Get(ctx context.Context, key string) (io.ReadCloser, error) {
	return s.open(ctx, key, 0, -1)
}

// Stat implements Store.
func (s *S3) Stat(ctx context.Context, key string) (Info, error) {
	if err := checkKey(key); err != nil {
		return Info{}, err
	}
	o, err := s.core.StatObject(ctx, s.config.Bucket, s.name(key), minio.StatObjectOptions{})
	if minio.ToErrorResponse(err).StatusCode == http.StatusNotFound {
		// The answer has no body, so what is not found may as well be the bucket
		// or the access key: Get's answer says.
		d, err := s.open(ctx, key, 0, -1)
		if err != nil {
			return Info{}, err
		}
		defer d.Close()
		return Info{Key: key, Size: d.end, Modified: d.modified}, nil
	}
	if err != nil {
		return Info{}, s.failure(ctx, "give "+key, key, err)
	}
	return Info{Key: key, Size: o.Size, Modified: o.LastModified}, nil
}

// Delete implements Store.
func (s *S3) Delete(ctx context.Context, key string) error {
	if err := checkKey(key); err != nil {
		return err
	}
	err := s.core.RemoveObject(ctx, s.config.Bucket, s.name(key), minio.RemoveObjectOptions{})
	if err == nil {
		return nil
	}
	if err := s.failure(ctx, "delete "+key, key, err); !errors.Is(err, ErrNotFound) {
		return err
	}
	return nil
}

// List implements Store. A server that gives keys in another order, and might
// do so without end, is not listed further.
func (s *S3) List(ctx context.Context, prefix string, each func(Info) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if !validPrefix(prefix) {
		return nil // of no key
	}
	// The page is left early when each fails: cancel ends the request then.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	no := false
	options := minio.ListObjectsOptions{Prefix: s.name(prefix), Recursive: true, FetchOwner: &no}
	last := ""
	for o := range s.core.ListObjectsIter(ctx, s.config.Bucket, options) {
		if o.Err != nil {
			return s.failure(ctx, "be listed", "", o.Err)
		}
		if o.Key <= last {
			return api.Errorf(api.CodeSnapshotStore, "the blob store at %s lists its objects out of order", s.config.Endpoint)
		}
		last = o.Key
		key, ours := strings.CutPrefix(o.Key, s.name(""))
		if !ours || !ValidKey(key) {
			continue
		}
		if err := each(Info{Key: key, Size: o.Size, Modified: o.LastModified}); err != nil {
			return err
		}
	}
	return ctx.Err() // which ends the listing without a word
}

// failure gives a code to what the server answered, or that it did not.
func (s *S3) failure(ctx context.Context, what, key string, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("blob %s: %w", key, ctx.Err())
	}
	var coded *api.Error
	if errors.As(err, &coded) {
		return err
	}
	var said minio.ErrorResponse
	if !errors.As(err, &said) {
		return api.Wrap(api.CodeSnapshotStore, err, "the blob store at %s does not answer, so it cannot %s", s.config.Endpoint, what)
	}
	switch {
	case said.Code == minio.NoSuchKey && key != "":
		return missing(key)
	case said.StatusCode == http.StatusInsufficientStorage, fullCodes[said.Code]:
		return api.Wrap(api.CodeSnapshotStoreFull, err, "the blob store at %s cannot %s: it is full (%.60q)", s.config.Endpoint, what, said.Code)
	case said.Code == minio.NoSuchBucket:
		return api.Wrap(api.CodeSnapshotStore, err, "the blob store at %s has no bucket %s", s.config.Endpoint, s.config.Bucket)
	case said.StatusCode == http.StatusForbidden:
		return api.Wrap(api.CodeSnapshotStore, err, "the blob store at %s does not let us use the bucket %s (%.60q)", s.config.Endpoint, s.config.Bucket, said.Code).
			WithHint("Check the access key, the secret key and the clock, and what the key may do with the bucket.")
	}
	return api.Wrap(api.CodeSnapshotStore, err, "the blob store at %s cannot %s (%.60q)", s.config.Endpoint, what, said.Code)
}

// fullCodes are what servers call it when there is no room.
var fullCodes = map[string]bool{
	"QuotaExceeded":                  true,
	"InsufficientStorage":            true,
	"XMinioStorageFull":              true,
	"XMinioAdminBucketQuotaExceeded": true,
}

// URL implements Store.
func (s *S3) URL() string {
	u := url.URL{Scheme: "s3", Host: s.config.Bucket, RawQuery: url.Values{"endpoint": {s.config.Endpoint}, "region": {s.config.Region}}.Encode()}
	if s.config.Prefix != "" {
		u.Path = "/" + s.config.Prefix
	}
	return u.String()
}

// Close implements Store. Downloads that are open go on.
func (s *S3) Close() error {
	s.http.CloseIdleConnections()
	return nil
}
