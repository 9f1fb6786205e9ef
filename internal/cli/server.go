package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pandastack/pandastack/internal/server"
)

// serverOptions are the flags of a server. Zero values take the server's own
// defaults.
type serverOptions struct {
	dataDir       string
	listen        string
	database      string
	driver        string
	images        []string // NAME=PATH
	mirror        string
	imageCache    string
	network       string
	networkPass   []string
	shells        int
	blobs         string
	snapshotKey   string
	snapshotCache int // MB
	corsOrigins   string
	previews      server.Previews
	sshListen     string
	sshHost       string
	logLevel      string
	logFormat     string
}

func newServer(a *app) *cobra.Command {
	var o serverOptions
	cmd := &cobra.Command{
		Use:   "server [flags]",
		Short: "Start a server",
		Long: `Start a server: API, control plane and the sandboxes of this machine in one
process. It needs root.

The first start writes an admin key to admin.key in the data directory and makes
the base image. The server answers at once; /readyz says when creates are fast.
Sandboxes outlive the server: the next one on the same data directory goes on
with them.

Flags that are not given come from PANDASTACK_DATA_DIR, PANDASTACK_LISTEN,
PANDASTACK_DATABASE_URL, PANDASTACK_DRIVER, PANDASTACK_MIRROR,
PANDASTACK_IMAGE_CACHE, PANDASTACK_NETWORK_PREFIX, PANDASTACK_NETWORK_PASS,
PANDASTACK_SHELLS,
PANDASTACK_BLOBS, PANDASTACK_SNAPSHOT_KEY_FILE, PANDASTACK_SNAPSHOT_CACHE_MB,
PANDASTACK_CORS_ORIGINS, PANDASTACK_SSH_LISTEN, PANDASTACK_SSH_HOST,
PANDASTACK_PREVIEW_DOMAIN, PANDASTACK_TLS_LISTEN, PANDASTACK_TLS_CERT,
PANDASTACK_TLS_KEY, PANDASTACK_ACME_EMAIL, PANDASTACK_ACME_CA,
PANDASTACK_ACME_ROOT and PANDASTACK_TRUSTED_PROXIES.
The keys of an S3 store are PANDASTACK_BLOBS_ACCESS_KEY and
PANDASTACK_BLOBS_SECRET_KEY.`,
		Example: `  sudo pandastack server
  sudo pandastack server --data-dir /srv/pandastack --listen 0.0.0.0:8080
  sudo pandastack server --database postgres://pandastack@db/pandastack
  sudo pandastack server --image python=/srv/images/python.tar
  sudo pandastack server --blobs 's3://bucket/prefix?endpoint=https://s3.example.com&region=eu-1'`,
		Args: args(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error { return runServer(cmd, a, o) },
	}
	o.addFlags(cmd)
	f := cmd.Flags()
	f.StringVar(&o.listen, "listen", server.DefaultListen, "address to listen on; port 0 takes a free one")
	f.StringVar(&o.database, "database", "", "postgres:// or sqlite: address; one with a password belongs in PANDASTACK_DATABASE_URL (default: SQLite in the data directory)")
	f.StringVar(&o.blobs, "blobs", "", "where packed snapshots go: a directory, or s3://bucket/prefix?endpoint=URL&region=NAME (default: blobs in the data directory)")
	f.StringVar(&o.snapshotKey, "snapshot-key-file", "", "file with 32 bytes, or as many in hex, that packed snapshots are encrypted with (default: they are not)")
	f.IntVar(&o.snapshotCache, "snapshot-cache", 0, "MB of packed snapshots that are also kept unpacked (default 10240)")
	f.StringVar(&o.corsOrigins, "cors-origins", "", "origins of web pages that may call the API from a browser, with commas between them; * is all (default: none)")
	addPreviewFlags(cmd, &o.previews)
	f.StringVar(&o.sshListen, "ssh-listen", "", "address to serve SSH on, such as 0.0.0.0:2222; port 0 takes a free one (default: SSH is not served)")
	f.StringVar(&o.sshHost, "ssh-host", "", "name or address that people reach SSH by (default: that of --ssh-listen, or of the API)")
	f.StringVar(&o.logLevel, "log-level", "info", "debug, info, warn or error")
	f.StringVar(&o.logFormat, "log-format", "text", "text or json")
	return cmd
}

// addFlags adds the flags that doctor has too.
func (o *serverOptions) addFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&o.dataDir, "data-dir", server.DefaultDataDir, "where everything is kept")
	f.StringVar(&o.driver, "driver", "", "isolation driver for sandboxes that name none (default: the best that works here)")
	f.StringArrayVar(&o.images, "image", nil, "template from a root filesystem, as NAME=PATH of a directory or tar; may be repeated")
	f.StringVar(&o.mirror, "mirror", "", "package mirror that the base image is made from")
	f.StringVar(&o.imageCache, "image-cache", "", "directory of images that servers share (default: in the data directory)")
	f.StringVar(&o.network, "network", "", "IPv4 range of sandboxes (default 10.200.0.0/16)")
	f.StringSliceVar(&o.networkPass, "network-pass", nil, "private IPv4 range that sandboxes may reach all the same; may be repeated (default: none)")
	f.IntVar(&o.shells, "shells", -1, "empty runtimes started ahead; -1 lets the server choose")
}

// imagePaths takes the --image flags apart.
func (o *serverOptions) imagePaths(cmd *cobra.Command) (map[string]string, error) {
	out := make(map[string]string, len(o.images))
	for _, s := range o.images {
		name, path, ok := strings.Cut(s, "=")
		if !ok || name == "" || path == "" {
			return nil, usagef(cmd, "--image takes NAME=PATH, not %q", s)
		}
		out[name] = path
	}
	return out, nil
}

func runServer(cmd *cobra.Command, a *app, o serverOptions) error {
	c, err := o.config(cmd, a)
	if err != nil {
		return err
	}
	return serve(cmd.Context(), c, func(addr string) {
		if !isTerminal(a.stderr) {
			return
		}
		fmt.Fprintf(a.stderr, "PandaStack answers at http://%s. Use it from another terminal:\n"+
			"  export PANDASTACK_API=http://%s PANDASTACK_API_KEY=$(cat %s)\n  pandastack sandbox create\n",
			addr, addr, adminKeyFile(c.DataDir))
	})
}
