package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/client"
)

const (
	// runSlots is how many `run` may go on at once, each on a data directory
	// of its own.
	runSlots = 16
	// runLabel marks sandboxes that belong to a `run`. One that is found when
	// a data directory is opened was left by a run that was killed.
	runLabel = "pandastack.run"
	// cleanUpWait bounds deleting the sandbox at the end.
	cleanUpWait  = 15 * time.Second
	progressPoll = 250 * time.Millisecond
)

type runOptions struct {
	create  createOptions
	exec    execOptions
	server  serverOptions
	verbose bool
}

func newRun(a *app) *cobra.Command {
	var o runOptions
	cmd := &cobra.Command{
		Use:   "run [flags] -- COMMAND [ARG...]",
		Short: "Run a command in a new sandbox, without a server",
		Long: `Run a command in a new sandbox, delete the sandbox, and end with the command's
exit code. It needs root and no server: one is started for as long as it takes.

A COMMAND with arguments is run as it is; one alone is a line for the shell. The
first run makes the base image, which takes minutes; later ones find it in the
image cache.`,
		Example: `  sudo pandastack run -- python3 -c 'print(6*7)'
  sudo pandastack run --memory-mb 256 --timeout 10s -- 'curl -s https://example.com | wc -c'
  sudo pandastack run -- python3 - <script.py`,
		Args: args(0, -1),
		RunE: func(cmd *cobra.Command, args []string) error {
			argv, err := commandLine(cmd, args, 0)
			if err != nil {
				return err
			}
			return runRun(cmd, a, o, argv)
		},
	}
	o.create.addFlags(cmd)
	f := cmd.Flags()
	f.Lookup("ttl").Hidden = true
	o.exec.addFlags(cmd)
	f.StringVar(&o.server.dataDir, "data-dir", "", "where the server keeps its state (default: one of its own, kept for the next run)")
	f.StringVar(&o.server.imageCache, "image-cache", "", "directory of images (default: /var/cache/pandastack/images)")
	f.StringArrayVar(&o.server.images, "image", nil, "template from a root filesystem, as NAME=PATH of a directory or tar; may be repeated")
	f.StringVar(&o.server.mirror, "mirror", "", "package mirror that the base image is made from")
	f.StringVar(&o.server.network, "network", "", "IPv4 range of sandboxes (default 10.200.0.0/16)")
	f.BoolVarP(&o.verbose, "verbose", "v", false, "show the server's log")
	return cmd
}

// fill chooses what the flags leave open and gives the data directories to try.
func (o *runOptions) fill(cmd *cobra.Command, a *app) ([]string, error) {
	o.server.listen, o.server.logFormat, o.server.logLevel = "127.0.0.1:0", "text", "error"
	if o.verbose {
		o.server.logLevel = "debug"
	}
	// One sandbox needs no runtimes started ahead.
	o.server.shells = 0
	o.server.driver = o.create.driver
	state, cache := "/var/lib/pandastack/run", "/var/cache/pandastack/images"
	if os.Geteuid() != 0 {
		home := a.getenv("HOME")
		if home == "" {
			return nil, usagef(cmd, "HOME is not set; use --data-dir and --image-cache")
		}
		cache = filepath.Join(home, ".cache", "pandastack", "images")
		state = filepath.Join(home, ".cache", "pandastack", "run")
	}
	if o.server.imageCache == "" {
		o.server.imageCache = cache
	}
	if o.server.dataDir != "" {
		return []string{o.server.dataDir}, nil
	}
	var dirs []string
	for i := range runSlots {
		dirs = append(dirs, filepath.Join(state, fmt.Sprint(i)))
	}
	return dirs, nil
}

func runRun(cmd *cobra.Command, a *app, o runOptions, argv []string) error {
	in, err := o.create.request(cmd, a)
	if err != nil {
		return err
	}
	dirs, err := o.fill(cmd, a)
	if err != nil {
		return err
	}
	config, err := o.server.config(cmd, a)
	if err != nil {
		return err
	}
	srv, err := startAny(cmd.Context(), config, dirs)
	if err != nil {
		return err
	}
	err = a.runIn(cmd, srv, o, in, argv)
	failed := srv.ctx.Err() != nil // then that is why the rest failed too
	switch e := srv.stop(); {
	case e == nil:
		return err
	case failed, err == nil:
		return e
	default:
		fmt.Fprintf(a.stderr, "%s %s\n", a.paint(a.stderr, yellow, "warning:"), printable(a.describe(cmd.Context(), e).Message))
		return err
	}
}

// runIn does the work of `run` against a server that answers.
func (a *app) runIn(cmd *cobra.Command, srv *ownServer, o runOptions, in api.CreateSandbox, argv []string) error {
	// The end of the server is the end of all that waits for it.
	ctx, cancel := context.WithCancelCause(cmd.Context())
	defer cancel(nil)
	defer context.AfterFunc(srv.ctx, func() { cancel(errors.New("the server ended")) })()
	c, err := srv.client(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := deleteLeftovers(ctx, c); err != nil {
		return err
	}
	in.Metadata = map[string]string{runLabel: "1"}
	in.Persistent, in.TTLSeconds = true, nil
	sb, err := a.createShowingProgress(ctx, c, in)
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUpWait)
		defer cancel()
		if err := sb.Delete(ctx); err != nil && !client.IsNotFound(err) {
			fmt.Fprintf(a.stderr, "%s the sandbox was not deleted: %s\n", a.paint(a.stderr, yellow, "warning:"), api.AsError(err).Message)
		}
	}()
	cmd.SetContext(ctx)
	return a.execute(cmd, sb, o.exec, argv)
}

func deleteLeftovers(ctx context.Context, c *client.Client) error {
	for sb, err := range c.Sandboxes.List(ctx, client.ListOptions{Metadata: map[string]string{runLabel: "1"}}) {
		if err != nil {
			return err
		}
		if err := sb.Delete(ctx); err != nil && !client.IsNotFound(err) {
			return err
		}
	}
	return nil
}

// createShowingProgress creates a sandbox and meanwhile shows how far its
// template is, which it waits for.
func (a *app) createShowingProgress(ctx context.Context, c *client.Client, in api.CreateSandbox) (*client.Sandbox, error) {
	watch, stop := context.WithCancel(ctx)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		a.watchTemplate(watch, c, in.Template)
	}()
	sb, err := c.Sandboxes.Create(ctx, in)
	stop()
	<-watched
	return sb, err
}

func (a *app) watchTemplate(ctx context.Context, c *client.Client, name string) {
	var bar *progress
	tick := time.NewTicker(progressPoll)
	defer tick.Stop()
	defer func() { bar.end() }()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		t, err := c.Templates.Get(ctx, name)
		if err != nil || t.Status != "building" {
			continue // the create says what is wrong
		}
		if bar == nil {
			bar = a.newProgress()
		}
		step := strings.TrimSpace("making image " + t.Name + ": " + t.Progress)
		bar.show(step, t.Percent/100)
	}
}
