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
	runTool(os.Args)
	listen := flag.String("listen", ":49983", "address to serve on")
	noInit := flag.Bool("no-init", false, "run as an ordinary process, not as the first one of a machine")
	localInit := flag.Bool("allow-local-init", false, "admit /init from this machine (tests)")
	root := flag.String("root", "", "put the system's files that /init renews under this directory (tests)")
	hold := flag.String("hold", "", "file to write releases to, instead of telling the runtime (tests)")
	flag.Parse()
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	opt := guestd.Options{First: !*noInit, LocalInit: *localInit, Root: *root, Environ: os.Environ(), Log: log}
	// Before there is an address: a snapshot may be taken from then on.
	if f := openHold(*hold); f != nil {
		opt.Hold = f
	}
	l, err := net.Listen("tcp", *listen)
	if err != nil {
		log.Error("listen", "err", err)
		os.Exit(1)
	}
	if err := guestd.New(opt).Run(context.Background(), l); err != nil {
		log.Error("serve", "err", err)
		os.Exit(1)
	}
}

// openHold opens what lets held processes go on; nil if none are ever held.
func openHold(path string) *os.File {
	if path == "" {
		return guestd.OpenHold()
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return nil
	}
	return f
}
