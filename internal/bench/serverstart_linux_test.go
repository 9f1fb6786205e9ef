package bench

import (
	"context"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestMain also plays the programs that tests start: this binary with the name
// of the program as its first argument.
func TestMain(m *testing.M) {
	role := ""
	if len(os.Args) > 1 {
		role = os.Args[1]
	}
	switch role {
	case "server":
		playServer(os.Args[2:])
	case "neighbours":
		playNeighbours(os.Args[2], os.Args[3])
	default:
		os.Exit(m.Run())
	}
}

const broken = "--broken"

// playServer is healthy at the second request and ends on SIGTERM; with broken
// it ends at once.
func playServer(args []string) {
	if slices.Contains(args, broken) {
		os.Stderr.WriteString("the port is taken")
		os.Exit(3)
	}
	value := func(flag string) string { return args[slices.Index(args, flag)+1] }
	if err := os.Mkdir(value("--data-dir"), 0o700); err != nil {
		panic(err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	requests := 0
	s := &http.Server{Addr: value("--listen"), Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if requests++; r.URL.Path != "/healthz" || requests == 1 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})}
	context.AfterFunc(ctx, func() { s.Close() })
	s.ListenAndServe()
}

func TestServerStart(t *testing.T) {
	t.Parallel()
	r := ServerStart(t.Context(), 3, os.Args[0])
	if r.N != 3 || r.Errors > 0 || r.P50 <= 0 || r.Unit != "ms" || r.Scenario != "server" {
		t.Errorf("%+v", r)
	}
}

func TestServerStartFails(t *testing.T) {
	t.Parallel()
	r := ServerStart(t.Context(), 3, os.Args[0], broken)
	if r.N != 0 || r.Errors != 1 || !strings.Contains(r.FirstErr, "exit status 3") || !strings.Contains(r.FirstErr, "the port is taken") {
		t.Errorf("a server that ends at once: %+v", r)
	}
	r = ServerStart(t.Context(), 3, "/does/not/exist")
	if r.N != 0 || r.Errors != 1 {
		t.Errorf("a program that does not exist: %+v", r)
	}
}

func TestServerStartStopped(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(300*time.Millisecond, cancel)
	from := time.Now()
	r := ServerStart(ctx, 1e6, os.Args[0])
	if !strings.Contains(r.FirstErr, context.Canceled.Error()) || time.Since(from) > 20*time.Second {
		t.Errorf("after %s: %+v", time.Since(from), r)
	}
}
