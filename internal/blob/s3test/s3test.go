// Package s3test runs a real S3 server for tests and benchmarks: versitygw, in
// the version that tools/go.mod names, over a directory. Only tests import it.
package s3test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/pandastack/pandastack/internal/blob"
	"github.com/pandastack/pandastack/internal/toolserver"
)

// patience bounds how long a call of a server that starts may take.
const patience = time.Minute

// Server is a running S3 server with one empty bucket.
type Server struct {
	Endpoint    string // what clients are to use
	Region      string
	Bucket      string
	Credentials blob.Credentials

	tb      testing.TB
	binary  string
	dir     string // of the server; buckets are below data
	data    string
	address string // that the server itself listens on
	latency time.Duration
	proc    *toolserver.Process // nil while stopped
}

// Option changes what New starts.
type Option func(*Server)

// WithLatency puts something before the server that holds every request for d
// before it passes it on, as a network would.
func WithLatency(d time.Duration) Option { return func(s *Server) { s.latency = d } }

// WithDir has the server keep its buckets in an existing directory, which must
// take user extended attributes.
func WithDir(dir string) Option { return func(s *Server) { s.data = dir } }

// New starts a server on a free port of the loopback interface and stops it at
// the end of the test. The first use builds the server, which takes a minute.
func New(tb testing.TB, options ...Option) *Server {
	tb.Helper()
	s := &Server{
		Region: "us-east-1", Bucket: "blobs", Credentials: blob.Credentials{AccessKey: "test-access-key", SecretKey: "test-secret-key"},
		tb: tb, dir: tb.TempDir(),
	}
	s.data = filepath.Join(s.dir, "data")
	s.must(os.Mkdir(s.data, 0o700))
	for _, o := range options {
		o(s)
	}
	s.binary = toolserver.Build(tb, "versitygw")
	tb.Cleanup(s.Stop)
	s.must(toolserver.Anywhere(func(addr string) error {
		s.address, s.Endpoint = addr, "http://"+addr
		return s.start()
	}))
	if s.latency > 0 {
		s.Endpoint = s.slow()
	}
	s.must(s.makeBucket())
	return s
}

// URL names the server's bucket for blob.Open, with a prefix that may be empty.
func (s *Server) URL(prefix string) string {
	u := url.URL{Scheme: "s3", Host: s.Bucket, RawQuery: url.Values{"endpoint": {s.Endpoint}, "region": {s.Region}}.Encode()}
	if prefix != "" {
		u.Path = "/" + prefix
	}
	return u.String()
}

// Open opens a store in the bucket, which the end of the test closes.
func (s *Server) Open(prefix string) blob.Store {
	s.tb.Helper()
	store, err := blob.Open(s.tb.Context(), s.URL(prefix), s.Credentials)
	s.must(err)
	s.tb.Cleanup(func() { s.must(store.Close()) })
	return store
}

// Stop kills the server. Its objects stay.
func (s *Server) Stop() {
	if s.proc != nil {
		s.proc.Stop()
		s.proc = nil
	}
}

// Start brings a server that was stopped back, at the same address.
func (s *Server) Start() {
	s.tb.Helper()
	if s.proc == nil {
		s.must(s.start())
	}
}

func (s *Server) must(err error) {
	s.tb.Helper()
	if err != nil {
		s.tb.Fatal(err)
	}
}

// start starts the process at the server's address and waits until it answers.
func (s *Server) start() (err error) {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: patience}
	s.proc, err = toolserver.Start(toolserver.Spec{
		Binary: s.binary, Dir: s.dir,
		Args: []string{"--port", s.address, "--region", s.Region, "--keep-alive", "--quiet",
			"--access", s.Credentials.AccessKey, "--secret", s.Credentials.SecretKey, "--health", "/health", "posix", s.data},
		Ready: func() error {
			resp, err := client.Get("http://" + s.address + "/health")
			if err != nil {
				return err
			}
			resp.Body.Close()
			if resp.StatusCode != http.StatusOK {
				return errors.New(resp.Status)
			}
			return nil
		},
	})
	return err
}

func (s *Server) makeBucket() error {
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	c, err := minio.New(s.address, &minio.Options{
		Creds:  credentials.NewStaticV4(s.Credentials.AccessKey, s.Credentials.SecretKey, ""),
		Region: s.Region, Transport: transport, BucketLookup: minio.BucketLookupPath,
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(s.tb.Context(), patience)
	defer cancel()
	return c.MakeBucket(ctx, s.Bucket, minio.MakeBucketOptions{Region: s.Region})
}

// slow starts what delays requests and gives its address.
func (s *Server) slow() string {
	s.tb.Helper()
	transport := &http.Transport{MaxIdleConnsPerHost: 64, DisableCompression: true}
	proxy := &httputil.ReverseProxy{
		Transport: transport,
		Rewrite: func(r *httputil.ProxyRequest) {
			// The request's signature covers the name it was sent to.
			r.Out.URL.Scheme, r.Out.URL.Host, r.Out.Host = "http", s.address, r.In.Host
		},
		// A server that is away answers nothing, here as there.
		ErrorHandler:  func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
		FlushInterval: -1,
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	s.must(err)
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-time.After(s.latency):
			proxy.ServeHTTP(w, r)
		case <-r.Context().Done():
		}
	})}
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(listener) }) // ends with Close
	s.tb.Cleanup(func() {
		server.Close()
		serving.Wait()
		transport.CloseIdleConnections()
	})
	return "http://" + listener.Addr().String()
}
