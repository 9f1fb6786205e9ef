package cli

import (
	"context"
	"errors"
	"io"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/spf13/cobra"

	"github.com/pandastack/pandastack/internal/mcp"
)

func newMCP(a *app) *cobra.Command {
	var sandbox string
	cmd := &cobra.Command{
		Use:   "mcp [flags]",
		Short: "Serve sandboxes as tools to a language model",
		Long: `Serve sandboxes as tools to a language model: the Model Context Protocol on
standard input and output, for programs that start it themselves.

The tools act on the server and with the key of this program's configuration.
With --sandbox they are those of one sandbox. Clients that speak HTTP need no
program: the server has the same tools at /mcp and /v1/sandboxes/ID/mcp.

A desktop client takes this into its configuration:

  {
    "mcpServers": {
      "pandastack": {
        "command": "pandastack",
        "args": ["mcp"],
        "env": {
          "PANDASTACK_API": "http://127.0.0.1:8080",
          "PANDASTACK_API_KEY": "pds_..."
        }
      }
    }
  }`,
		Example: `  pandastack mcp
  pandastack mcp --sandbox $id`,
		Args: args(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error { return runMCP(cmd.Context(), a, sandbox) },
	}
	cmd.Flags().StringVar(&sandbox, "sandbox", "", "id of the only sandbox to work in")
	return cmd
}

// runMCP serves until the client closes its end.
func runMCP(ctx context.Context, a *app, sandbox string) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	defer c.Close()
	// A client that has closed its end can be told nothing any more: what it was
	// waiting for ends with it.
	calls, hangUp := context.WithCancel(ctx)
	defer hangUp()
	o := mcp.Options{
		Version: version(),
		Begin: func(ctx context.Context, _ *sdk.RequestExtra) mcp.Caller {
			ctx, cancel := context.WithCancel(ctx)
			stop := context.AfterFunc(calls, cancel)
			return mcp.Caller{
				Platform: mcpPlatform{c}, Sandbox: sandbox, Context: ctx,
				Done: func() { stop(); cancel() },
			}
		},
	}
	server := mcp.NewPlatform(o)
	if sandbox != "" {
		if _, err := c.Sandboxes.Get(ctx, sandbox); err != nil {
			return err
		}
		server = mcp.NewSandbox(o)
	}
	err = server.Run(ctx, &sdk.IOTransport{Reader: &mcpInput{a.stdin, hangUp}, Writer: unclosed{a.stdout}})
	if ctx.Err() != nil || errors.Is(err, io.EOF) {
		return nil // being told to stop is the usual end
	}
	return err
}

// mcpInput says when the client has closed its end.
type mcpInput struct {
	io.Reader
	ended func()
}

// Read implements io.Reader.
func (in *mcpInput) Read(p []byte) (int, error) {
	n, err := in.Reader.Read(p)
	if err != nil {
		in.ended()
	}
	return n, err
}

// Close closes what can be closed.
func (in *mcpInput) Close() error {
	if c, ok := in.Reader.(io.Closer); ok {
		return c.Close()
	}
	return nil
}

// unclosed is a stream that is not the server's to close.
type unclosed struct{ io.Writer }

// Close implements io.Closer.
func (unclosed) Close() error { return nil }
