package blob

import (
	"context"
	"net/url"
	"path/filepath"
	"strings"

	"github.com/minio/minio-go/v7/pkg/s3utils"

	"github.com/pandastack/pandastack/api"
)

const urlForms = "write dir:/var/lib/blobs, s3://bucket/prefix?endpoint=https://host:port&region=us-east-1, or memory:"

// Open opens the store that a URL names:
//
//	dir:/path or /path                                        a directory
//	s3://bucket/prefix?endpoint=https://host:port&region=name an S3-compatible store
//	memory:                                                   nothing that lasts
//
// The prefix may be left out, the region is us-east-1 by default, and the
// endpoint Amazon's of the region. Credentials are never part of the URL.
func Open(ctx context.Context, rawURL string, c Credentials) (Store, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	scheme, rest, ok := strings.Cut(rawURL, ":")
	switch {
	case rawURL == "":
		return nil, badURL("no blob store is named")
	case rawURL[0] == '/':
		return NewDir(rawURL)
	case ok && scheme == "dir":
		if !filepath.IsAbs(rest) {
			return nil, badURL("the blob store %q has no absolute path", rawURL)
		}
		return NewDir(rest)
	case ok && scheme == "memory":
		if rest != "" {
			return nil, badURL("the blob store memory: takes nothing after the colon")
		}
		return NewMemory(), nil
	case ok && scheme == "s3":
		config, err := parseS3(rawURL, c)
		if err != nil {
			return nil, err
		}
		return NewS3(config)
	case !ok:
		return nil, badURL("the blob store %q is neither an absolute path nor a URL", rawURL)
	}
	return nil, badURL("there is no kind of blob store called %.40q", scheme) // not the rest, which may hold a secret
}

func badURL(format string, args ...any) *api.Error {
	return api.Errorf(api.CodeInvalidRequest, format, args...).WithHint("To name a blob store, " + urlForms + ".")
}

func parseS3(rawURL string, c Credentials) (S3Config, error) {
	u, err := url.Parse(rawURL)
	if err != nil {
		return S3Config{}, badURL("the blob store's s3: URL is not valid") // its text may hold a secret
	}
	if u.User != nil {
		return S3Config{}, badURL("the blob store's URL holds credentials, which would show in logs").
			WithHint("Leave them out of the URL; the access key and the secret key are settings of their own.")
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil || u.Fragment != "" || u.Opaque != "" {
		return S3Config{}, badURL("the blob store's s3: URL is not valid")
	}
	for name := range query {
		if name != "endpoint" && name != "region" {
			return S3Config{}, badURL("the blob store's URL has an unknown parameter %.40q: there are endpoint and region", name)
		}
	}
	config := S3Config{Bucket: u.Host, Prefix: strings.Trim(u.Path, "/"), Region: query.Get("region"), Endpoint: query.Get("endpoint"), Credentials: c}
	if config.Region == "" {
		config.Region = "us-east-1"
	}
	if config.Endpoint == "" {
		config.Endpoint = "https://s3." + config.Region + ".amazonaws.com"
	}
	return config, nil
}

// maxPrefix leaves room for a key in what S3 allows.
const maxPrefix = 200

// check says what is wrong with a configuration and what to write.
func (c S3Config) check() error {
	if err := s3utils.CheckValidBucketNameStrict(c.Bucket); err != nil {
		return badURL("%.80q is not the name of a bucket: %v", c.Bucket, err)
	}
	if c.Prefix != "" && (!ValidKey(c.Prefix) || len(c.Prefix) > maxPrefix) {
		return badURL("the prefix %.80q of the blob store is not one of letters, digits, dots, dashes and underscores between slashes, %d characters at most", c.Prefix, maxPrefix)
	}
	if c.Region == "" || !plain(c.Region) {
		return badURL("the region %.40q of the blob store is not one", c.Region)
	}
	e, err := url.Parse(c.Endpoint)
	if err != nil || e.Scheme != "http" && e.Scheme != "https" || e.Host == "" || e.User != nil ||
		strings.Trim(e.Path, "/") != "" || e.RawQuery != "" || e.Fragment != "" {
		return badURL("the endpoint of the blob store is not http:// or https:// with a host and a port, and nothing else")
	}
	if c.Credentials.AccessKey == "" || c.Credentials.SecretKey == "" {
		return badURL("the blob store s3://%s needs an access key and a secret key", c.Bucket).
			WithHint("Set both; a session token as well if the key is a temporary one.")
	}
	return nil
}
