package server

import (
	"cmp"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/control"
	"github.com/pandastack/pandastack/internal/gateway"
	"github.com/pandastack/pandastack/internal/httpapi"
)

// Defaults of a Config.
const (
	DefaultDataDir = "/var/lib/pandastack"
	DefaultListen  = "127.0.0.1:8080"
	defaultGrace   = 5 * time.Second

	defaultSnapshotCacheMB = 10 << 10
)

// Config is everything that a server can be told. The zero value is a server
// with its defaults.
type Config struct {
	// DataDir is where everything is kept; one server at a time uses it.
	// Default DefaultDataDir. PANDASTACK_DATA_DIR
	DataDir string
	// Listen is the address of the API, as host:port; port 0 takes a free
	// one. Default DefaultListen. PANDASTACK_LISTEN
	Listen string
	// DatabaseURL is postgres://... or sqlite:/path. Default: SQLite in the
	// data directory. PANDASTACK_DATABASE_URL
	DatabaseURL string
	// Driver isolates sandboxes that name none. Default: the best that this
	// host can run. PANDASTACK_DRIVER
	Driver string
	// Images are templates beside base: a directory or tar of a root
	// filesystem by name. One named base takes the place of the built-in.
	Images map[string]string
	// Mirror is the package mirror that base is made from. Default: that of
	// the recipe. PANDASTACK_MIRROR
	Mirror string
	// ImageCache is a directory of images, which servers may share. Default:
	// images in the data directory. PANDASTACK_IMAGE_CACHE
	ImageCache string
	// Blobs is the address of the store for packed snapshots: a directory, or
	// s3://bucket/prefix?endpoint=https://host&region=name. Default: blobs in the
	// data directory. PANDASTACK_BLOBS
	Blobs string
	// BlobsAccessKey and BlobsSecretKey open an S3 store.
	// PANDASTACK_BLOBS_ACCESS_KEY or AWS_ACCESS_KEY_ID,
	// PANDASTACK_BLOBS_SECRET_KEY or AWS_SECRET_ACCESS_KEY,
	// PANDASTACK_BLOBS_SESSION_TOKEN or AWS_SESSION_TOKEN
	BlobsAccessKey, BlobsSecretKey, BlobsSessionToken string `json:"-"`
	// SnapshotKeyFile holds 32 bytes, raw or as 64 hex digits: packed snapshots
	// are then encrypted at rest. Default: they are not. PANDASTACK_SNAPSHOT_KEY_FILE
	SnapshotKeyFile string
	// SnapshotCacheMB bounds the unpacked forms that are kept of packed
	// snapshots. Default 10240. PANDASTACK_SNAPSHOT_CACHE_MB
	SnapshotCacheMB int
	// Shells is how many empty runtimes are started ahead for a template; nil
	// lets the server choose. PANDASTACK_SHELLS
	Shells *int
	// GuestProgram is a file to use instead of the guest program that the
	// build embedded. PANDASTACK_GUEST_PROGRAM
	GuestProgram string
	// NetworkPrefix is the IPv4 range of sandboxes. Default 10.200.0.0/16.
	// PANDASTACK_NETWORK_PREFIX
	NetworkPrefix string
	// NetworkPass are private ranges that sandboxes may reach all the same, such
	// as that of a package mirror. PANDASTACK_NETWORK_PASS, divided by commas
	NetworkPass []string
	// CORSOrigins are the origins of web pages that may call the API from a
	// browser, such as https://app.example.com; * is all. Default: none.
	// PANDASTACK_CORS_ORIGINS, with commas between them
	CORSOrigins []string
	// Previews says where user traffic comes in.
	Previews Previews
	// SSHListen is the address of the SSH server, as host:port; port 0 takes a
	// free one. Default: none, SSH is not served. PANDASTACK_SSH_LISTEN
	SSHListen string
	// SSHHost is the name that clients reach it by. Default: its address, or the
	// name that a client reaches the API by. PANDASTACK_SSH_HOST
	SSHHost string
	// Limits bounds what callers may ask for.
	Limits control.Limits
	// Grace is how long a stopping server waits for requests before it ends
	// them. Default 5 s.
	Grace time.Duration

	// OnListen is called with the address once /healthz answers.
	OnListen func(addr string) `json:"-"`
	// Log takes what happens. Default: nothing is logged.
	Log *slog.Logger `json:"-"`
	// Registry takes the metrics that /metrics shows. Default: a new one.
	Registry *prometheus.Registry `json:"-"`
}

// FromEnv reads the settings that have an environment variable.
func FromEnv() (Config, error) {
	c := Config{
		DataDir:       os.Getenv("PANDASTACK_DATA_DIR"),
		Listen:        os.Getenv("PANDASTACK_LISTEN"),
		DatabaseURL:   os.Getenv("PANDASTACK_DATABASE_URL"),
		Driver:        os.Getenv("PANDASTACK_DRIVER"),
		Mirror:        os.Getenv("PANDASTACK_MIRROR"),
		ImageCache:    os.Getenv("PANDASTACK_IMAGE_CACHE"),
		GuestProgram:  os.Getenv("PANDASTACK_GUEST_PROGRAM"),
		NetworkPrefix: os.Getenv("PANDASTACK_NETWORK_PREFIX"),

		Blobs:             os.Getenv("PANDASTACK_BLOBS"),
		BlobsAccessKey:    cmp.Or(os.Getenv("PANDASTACK_BLOBS_ACCESS_KEY"), os.Getenv("AWS_ACCESS_KEY_ID")),
		BlobsSecretKey:    cmp.Or(os.Getenv("PANDASTACK_BLOBS_SECRET_KEY"), os.Getenv("AWS_SECRET_ACCESS_KEY")),
		BlobsSessionToken: cmp.Or(os.Getenv("PANDASTACK_BLOBS_SESSION_TOKEN"), os.Getenv("AWS_SESSION_TOKEN")),
		SnapshotKeyFile:   os.Getenv("PANDASTACK_SNAPSHOT_KEY_FILE"),

		CORSOrigins: Origins(os.Getenv("PANDASTACK_CORS_ORIGINS")),
		Previews: Previews{
			Domain:    os.Getenv("PANDASTACK_PREVIEW_DOMAIN"),
			TLSListen: os.Getenv("PANDASTACK_TLS_LISTEN"),
			TLSCert:   os.Getenv("PANDASTACK_TLS_CERT"),
			TLSKey:    os.Getenv("PANDASTACK_TLS_KEY"),
			ACMEEmail: os.Getenv("PANDASTACK_ACME_EMAIL"),
			ACMECA:    os.Getenv("PANDASTACK_ACME_CA"),
			ACMERoot:  os.Getenv("PANDASTACK_ACME_ROOT"),

			TrustedProxies: os.Getenv("PANDASTACK_TRUSTED_PROXIES"),
		},
		SSHListen: os.Getenv("PANDASTACK_SSH_LISTEN"),
		SSHHost:   os.Getenv("PANDASTACK_SSH_HOST"),
	}
	if pass := os.Getenv("PANDASTACK_NETWORK_PASS"); pass != "" {
		c.NetworkPass = strings.Split(pass, ",")
	}
	shells, err := numberFromEnv("PANDASTACK_SHELLS")
	if err != nil {
		return c, err
	}
	c.Shells = shells
	cache, err := numberFromEnv("PANDASTACK_SNAPSHOT_CACHE_MB")
	if cache != nil {
		c.SnapshotCacheMB = *cache
	}
	return c, err
}

// Origins takes a list of origins with commas between them apart.
func Origins(list string) []string {
	var out []string
	for o := range strings.SplitSeq(list, ",") {
		if o = strings.TrimSuffix(strings.TrimSpace(o), "/"); o != "" {
			out = append(out, o)
		}
	}
	return out
}

// checkOrigin refuses what no browser sends: an origin has a scheme, a host and a
// port that is not the scheme's own, and nothing else.
func checkOrigin(origin string) error {
	u, err := url.Parse(origin)
	if origin != httpapi.AnyOrigin && (err != nil || u.Scheme == "" || u.Host == "" || u.Scheme+"://"+u.Host != origin) {
		return invalid("cors origins", "%q is not an origin such as https://app.example.com", origin)
	}
	return nil
}

// numberFromEnv reads a whole number; nil when the variable is empty.
func numberFromEnv(name string) (*int, error) {
	v := os.Getenv(name)
	if v == "" {
		return nil, nil
	}
	n, err := strconv.Atoi(v)
	if err != nil {
		return nil, invalid(name, "%q is not a number", v)
	}
	return &n, nil
}

var templateName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,62}$`) })

// Validate says what is wrong with a configuration. It looks at nothing but
// the values.
func (c Config) Validate() error {
	if c.Listen != "" {
		if _, port, err := net.SplitHostPort(c.Listen); err != nil || port == "" {
			return invalid("listen", "%q is not host:port", c.Listen)
		}
	}
	if c.Shells != nil && (*c.Shells < 0 || *c.Shells > 1000) {
		return invalid("shells", "%d is not between 0 and 1000", *c.Shells)
	}
	if c.NetworkPrefix != "" {
		if p, err := netip.ParsePrefix(c.NetworkPrefix); err != nil || !p.Addr().Is4() {
			return invalid("network prefix", "%q is not an IPv4 range such as 10.200.0.0/16", c.NetworkPrefix)
		}
	}
	for _, text := range c.NetworkPass {
		if p, err := netip.ParsePrefix(text); err != nil || !p.Addr().Is4() {
			return invalid("network pass", "%q is not an IPv4 range such as 10.20.0.0/16", text)
		}
	}
	for name, path := range c.Images {
		if !templateName().MatchString(name) {
			return invalid("image", "%q is not a template name: a to z, 0 to 9, and . _ - inside", name)
		}
		if path == "" {
			return invalid("image", "%s has no path", name)
		}
	}
	for _, origin := range c.CORSOrigins {
		if err := checkOrigin(origin); err != nil {
			return err
		}
	}
	if err := c.checkPreviews(); err != nil {
		return err
	}
	if err := c.checkSSH(); err != nil {
		return err
	}
	if c.SnapshotCacheMB < 0 {
		return invalid("snapshot cache", "%d MB is negative", c.SnapshotCacheMB)
	}
	if c.Grace < 0 {
		return invalid("grace", "%s is negative", c.Grace)
	}
	return nil
}

func invalid(field, format string, args ...any) error {
	return api.Errorf(api.CodeInvalidRequest, "%s: %s", field, fmt.Sprintf(format, args...)).With("field", field).
		WithHint("Correct the flag, or the environment variable of the same name.")
}

// complete validates a configuration and fills in the defaults.
func (c Config) complete() (Config, error) {
	if err := c.Validate(); err != nil {
		return c, err
	}
	if c.DataDir == "" {
		c.DataDir = DefaultDataDir
	}
	dir, err := filepath.Abs(c.DataDir)
	if err != nil {
		return c, api.Wrap(api.CodeInvalidRequest, err, "data directory: %s", err)
	}
	c.DataDir = dir
	if c.Listen == "" {
		c.Listen = DefaultListen
	}
	if c.Previews.Domain == "" {
		c.Previews.Domain = gateway.DefaultDomain
	}
	if c.ImageCache == "" {
		c.ImageCache = c.path("images")
	}
	if c.Blobs == "" {
		c.Blobs = c.path("blobs")
	}
	if c.SnapshotCacheMB == 0 {
		c.SnapshotCacheMB = defaultSnapshotCacheMB
	}
	if c.Grace == 0 {
		c.Grace = defaultGrace
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c, nil
}

// path is a file in the data directory.
func (c Config) path(name string) string { return filepath.Join(c.DataDir, name) }

// database is the DSN. It may hold a password and is never logged.
func (c Config) database() string {
	if c.DatabaseURL != "" {
		return c.DatabaseURL
	}
	return "sqlite:" + c.path("pandastack.db")
}
