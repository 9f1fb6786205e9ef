package server

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pandastack/pandastack/api"
)

// errNoMachine ends a run where its host would be made, which is after
// everything that these tests look at.
var errNoMachine = errors.New("no machine")

func noMachine(context.Context, Config) (Machine, error) { return nil, errNoMachine }

func anyHost() error { return nil }

func TestRefusals(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { taken.Close() })
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	corrupt := t.TempDir()
	if err := os.WriteFile(filepath.Join(corrupt, "pandastack.db"), []byte(strings.Repeat("not a database ", 1000)), 0o600); err != nil {
		t.Fatal(err)
	}
	locked := t.TempDir()
	unlock, err := lockDataDir(locked)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(unlock)
	thousand := 5000
	for _, tt := range []struct {
		name  string
		cfg   Config
		check func() error
		code  api.Code
		says  string
	}{
		{"port in use", Config{Listen: taken.Addr().String()}, anyHost, api.CodePortInUse, taken.Addr().String()},
		{"not an address", Config{Listen: "8080"}, anyHost, api.CodeInvalidRequest, "host:port"},
		{"not our address", Config{Listen: "192.0.2.7:0"}, anyHost, api.CodeInvalidRequest, "192.0.2.7"},
		{"locked", Config{DataDir: locked}, anyHost, api.CodeDataDirLocked, "process"},
		{"data dir is a file", Config{DataDir: file}, anyHost, api.CodeHostSetup, file},
		{"corrupt database", Config{DataDir: corrupt}, anyHost, api.CodeStoreCorrupt, ""},
		{"no database", Config{DatabaseURL: "postgres://nobody:s3cret@127.0.0.1:1/none?connect_timeout=2"}, anyHost, api.CodeStoreUnavailable, ""},
		{"no root", Config{}, func() error { return api.Errorf(api.CodeNotRoot, "a server needs root") }, api.CodeNotRoot, "root"},
		{"shells", Config{Shells: &thousand}, anyHost, api.CodeInvalidRequest, "shells"},
		{"network", Config{NetworkPrefix: "fd00::/8"}, anyHost, api.CodeInvalidRequest, "IPv4"},
		{"template name", Config{Images: map[string]string{"../x": "/"}}, anyHost, api.CodeInvalidRequest, "image"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if tt.cfg.DataDir == "" {
				tt.cfg.DataDir = t.TempDir()
			}
			if tt.cfg.Listen == "" {
				tt.cfg.Listen = "127.0.0.1:0"
			}
			err := run(t.Context(), tt.cfg, tt.check, noMachine)
			if api.CodeOf(err) != tt.code || !strings.Contains(err.Error(), tt.says) || strings.Contains(err.Error(), "s3cret") {
				t.Errorf("got %v, want %s that says %q", err, tt.code, tt.says)
			}
			if _, err := os.Stat(filepath.Join(tt.cfg.DataDir, "server.json")); err == nil {
				t.Error("server.json is left")
			}
		})
	}
}

// TestFailedStartFreesEverything: after a start that failed late, the same
// directory and port can be had again, and the key of the first start is kept.
func TestFailedStartFreesEverything(t *testing.T) {
	t.Parallel()
	cfg := Config{DataDir: t.TempDir(), Listen: "127.0.0.1:0"}
	var key []byte
	for range 2 {
		cfg.OnListen = func(addr string) { cfg.Listen = addr }
		if err := run(t.Context(), cfg, anyHost, noMachine); !errors.Is(err, errNoMachine) {
			t.Fatal(err)
		}
		again, err := os.ReadFile(filepath.Join(cfg.DataDir, "admin.key"))
		if err != nil || key != nil && string(key) != string(again) {
			t.Errorf("admin.key: %q, then %q (%v)", key, again, err)
		}
		key = again
	}
	info, err := os.Stat(filepath.Join(cfg.DataDir, "admin.key"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("admin.key: %v %v", info, err)
	}
}

// TestUnknownDriver is refused by the part that knows the drivers.
func TestUnknownDriver(t *testing.T) {
	t.Parallel()
	needSandboxes(t)
	err := Run(t.Context(), Config{DataDir: t.TempDir(), Listen: "127.0.0.1:0", Driver: "teleport"})
	if api.CodeOf(err) != api.CodeDriverUnavailable {
		t.Errorf("got %v", err)
	}
	cfg := sandboxConfig(t)
	cfg.Images = map[string]string{"base": "/no/such/root"}
	err = Run(t.Context(), cfg)
	if api.CodeOf(err) != api.CodeTemplateInvalid {
		t.Errorf("got %v", err)
	}
}
