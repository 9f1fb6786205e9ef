package cli

import (
	"context"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/pandastack/pandastack/internal/server"
)

// setting is text of a configuration that a flag sets.
type setting struct {
	to   *string
	flag string
	v    string
}

// config makes the server's configuration: flags that were given, else the
// environment, else the server's defaults.
func (o *serverOptions) config(cmd *cobra.Command, a *app) (server.Config, error) {
	c, err := server.FromEnv()
	if err != nil {
		return c, err
	}
	for _, f := range append(previewSettings(&c.Previews, &o.previews), []setting{
		{&c.DataDir, "data-dir", o.dataDir}, {&c.Listen, "listen", o.listen},
		{&c.DatabaseURL, "database", o.database}, {&c.Driver, "driver", o.driver},
		{&c.Mirror, "mirror", o.mirror}, {&c.ImageCache, "image-cache", o.imageCache},
		{&c.NetworkPrefix, "network", o.network},
		{&c.Blobs, "blobs", o.blobs}, {&c.SnapshotKeyFile, "snapshot-key-file", o.snapshotKey},
		{&c.SSHListen, "ssh-listen", o.sshListen}, {&c.SSHHost, "ssh-host", o.sshHost},
	}...) {
		if given := cmd.Flags().Lookup(f.flag); f.v != "" && (*f.to == "" || given == nil || given.Changed) {
			*f.to = f.v
		}
	}
	if o.shells >= 0 {
		c.Shells = &o.shells
	}
	if o.snapshotCache > 0 {
		c.SnapshotCacheMB = o.snapshotCache
	}
	if o.corsOrigins != "" {
		c.CORSOrigins = server.Origins(o.corsOrigins)
	}
	if len(o.networkPass) > 0 {
		c.NetworkPass = o.networkPass
	}
	if c.Images, err = o.imagePaths(cmd); err != nil {
		return c, err
	}
	c.Log, err = o.logger(cmd, a)
	return c, err
}

func (o *serverOptions) logger(cmd *cobra.Command, a *app) (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(o.logLevel)); err != nil {
		return nil, usagef(cmd, "--log-level is debug, info, warn or error, not %q", o.logLevel)
	}
	options := &slog.HandlerOptions{Level: level}
	switch o.logFormat {
	case "text":
		return slog.New(slog.NewTextHandler(a.stderr, options)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(a.stderr, options)), nil
	}
	return nil, usagef(cmd, "--log-format is text or json, not %q", o.logFormat)
}

// serve runs a server until ctx ends and calls listening with its address once
// it answers /healthz; what else it is asked waits until it can be answered.
func serve(ctx context.Context, c server.Config, listening func(addr string)) error {
	c.OnListen = listening
	return server.Run(ctx, c)
}
