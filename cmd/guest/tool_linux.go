package main

import (
	"context"
	"fmt"
	"os"

	"github.com/pandastack/pandastack/internal/guest/relay"
	"github.com/pandastack/pandastack/internal/guest/sftpd"
)

// tools are what the program can be beside the first process: servers that the
// host starts inside a sandbox as one of its users, on standard input and output.
var tools = map[string]func() error{
	"sftp-server": func() error { return sftpd.Serve(os.Stdin, os.Stdout, os.Getenv("HOME")) },
	"relay":       func() error { return relay.Run(context.Background(), os.Stdin, os.Stdout) },
}

// runTool is a tool, if the arguments name one.
func runTool(args []string) {
	if len(args) != 2 || tools[args[1]] == nil {
		return
	}
	if err := tools[args[1]](); err != nil {
		fmt.Fprintln(os.Stderr, "guest "+args[1]+":", err)
		os.Exit(1)
	}
	os.Exit(0)
}
