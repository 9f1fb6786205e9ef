// Command pandastack is the server, the agent and the command line in one
// binary. gVisor starts the same binary again for every sandbox.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/pandastack/pandastack/internal/cli"
)

func main() {
	runSandboxRole() // does not return in a process that gVisor started
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := cli.Main(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr, os.Getenv)
	stop()
	os.Exit(code)
}
