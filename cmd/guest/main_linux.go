package main

import (
	"context"
	"flag"
	"log/slog"
	"net"
	"os"

	"github.com/pandastack/pandastack/internal/guest/guestd"
)

func main() {
	listen := flag.String("listen", ":49983", "address to serve on")
	noInit := flag.Bool("no-init", false, "run as an ordinary process, not as the first one of a machine")
	localInit := flag.Bool("allow-local-init", false, "admit /init from this machine (tests)")
	root := flag.String("root", "", "put the system's files that /init renews under this directory (tests)")
	flag.Parse()
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	l, err := net.Listen("tcp", *listen)
	if err != nil {
		log.Error("listen", "err", err)
		os.Exit(1)
	}
	s := guestd.New(guestd.Options{First: !*noInit, LocalInit: *localInit, Root: *root, Environ: os.Environ(), Log: log})
	if err := s.Run(context.Background(), l); err != nil {
		log.Error("serve", "err", err)
		os.Exit(1)
	}
}
