// Package pandastack holds the tests that keep the repository in the shape that
// docs/architecture.md describes.
package pandastack

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/pandastack/pandastack"

// importRules says who may not import whom, and why. Paths are folders of this
// repository; a rule for a folder covers what is below it.
var importRules = []struct {
	from   []string
	deny   []string
	except []string
	reason string
}{
	{
		from: []string{"api"}, deny: []string{"client", "internal", "cmd"},
		reason: "api is the names on the wire: anyone may depend on it, so it depends on nothing of ours",
	},
	{
		from: []string{"client"}, deny: []string{"internal", "cmd"},
		reason: "client is a public SDK: it may use only what its users can import",
	},
	{
		from: []string{"internal/driver"}, deny: []string{"internal/agent", "internal/control", "internal/host", "internal/hostnet", "internal/image", "internal/httpapi", "internal/server", "internal/store"},
		except: []string{"internal/driver/drivertest"},
		reason: "a driver meets the rest in plain data (driver.Spec), so that a new one needs no other package",
	},
	{
		from: []string{"internal/control", "internal/httpapi", "internal/auth", "internal/store"}, deny: []string{"internal/agent", "internal/driver", "internal/hostnet", "internal/image", "internal/snapshot", "internal/blob"},
		reason: "rules and machines meet only at host.Host, so that a host may be another machine",
	},
	{
		from: []string{"internal/agent", "internal/hostnet", "internal/image"}, deny: []string{"internal/control", "internal/httpapi", "internal/store", "internal/auth"},
		reason: "a host knows nothing of owners, keys and quotas",
	},
	{
		from: []string{"internal/snapshot", "internal/blob"}, deny: []string{"internal/agent", "internal/driver", "internal/control", "internal/host", "internal/httpapi", "internal/store", "internal/image"},
		reason: "the store of snapshots carries bytes and does not know what starts from them",
	},
	{
		from: []string{"internal/netrule", "internal/egress", "internal/netflow"}, deny: []string{"internal/agent", "internal/control", "internal/host", "internal/hostnet", "internal/edge", "internal/httpapi", "internal/store", "internal/driver", "internal/server", "internal/auth", "cmd"},
		reason: "rules, the proxy and the log work on plain data, whoever leads the packets to them and whoever owns the sandboxes",
	},
	{
		from: []string{"internal/gateway", "internal/sshd"}, deny: []string{"client", "internal/control", "internal/httpapi", "internal/agent", "internal/store", "internal/server"},
		reason: "user traffic meets the rules at a small interface, which the gateway and the SSH server state themselves",
	},
	{
		from: []string{"internal/edge"}, deny: []string{"internal/agent", "internal/driver", "internal/control", "internal/httpapi", "internal/store", "internal/server"},
		reason: "the edge joins slots, rules and names for the agent, and knows no machines and no owners",
	},
	{
		from: []string{"internal/mcp", "internal/lsp"}, deny: []string{"client", "internal/control", "internal/httpapi", "internal/agent", "internal/store", "internal/server"},
		reason: "tools and language servers are written once over a small interface, which server and command line both have",
	},
	{
		from: []string{"internal/guest", "cmd/guest"}, deny: []string{"internal/agent", "internal/control", "internal/driver", "internal/host", "internal/httpapi", "internal/image", "internal/server", "internal/store", "internal/hostnet", "internal/auth"},
		reason: "the guest program is small and runs among hostile code; it shares only the protocol",
	},
	{
		from: []string{"internal"}, deny: []string{"client"}, except: []string{"internal/cli", "internal/bench"},
		reason: "the server calls its own packages; only the CLI is a client of the API",
	},
}

// bannedNames tell nothing of what is in a package.
var bannedNames = []string{"util", "utils", "common", "helpers", "types", "models", "misc", "shared"}

func TestImports(t *testing.T) {
	t.Parallel()
	eachGoFile(t, func(path string, f *ast.File) {
		dir := filepath.ToSlash(filepath.Dir(path))
		if strings.HasSuffix(path, "_test.go") {
			return // tests may build the world they need
		}
		for _, imp := range f.Imports {
			target, err := strconv.Unquote(imp.Path.Value)
			if err != nil {
				t.Fatal(err)
			}
			target, ours := strings.CutPrefix(target, module+"/")
			if !ours {
				continue
			}
			for _, r := range importRules {
				if below(dir, r.from) && !below(dir, r.except) && below(target, r.deny) && !below(target, []string{dir}) {
					t.Errorf("%s imports %s: %s", path, target, r.reason)
				}
			}
		}
	})
}

// TestEnvironment keeps settings in one place.
func TestEnvironment(t *testing.T) {
	t.Parallel()
	allowed := []string{"internal/cli", "cmd"}
	eachCall(t, "os", []string{"Getenv", "LookupEnv"}, func(path string) {
		if !below(filepath.ToSlash(filepath.Dir(path)), allowed) && filepath.ToSlash(path) != "internal/server/config.go" {
			t.Errorf("%s reads the environment: settings come in through server/config.go and cli", path)
		}
	})
}

// TestContext keeps every call cancellable from the top.
func TestContext(t *testing.T) {
	t.Parallel()
	eachCall(t, "context", []string{"Background", "TODO"}, func(path string) {
		if !below(filepath.ToSlash(filepath.Dir(path)), []string{"cmd"}) {
			t.Errorf("%s makes a context of its own: a context comes from the caller, so that it can end the work", path)
		}
	})
}

// TestPackages asks one comment of every package, and a name that says something.
func TestPackages(t *testing.T) {
	t.Parallel()
	comments := map[string][]string{}
	eachGoFile(t, func(path string, f *ast.File) {
		if strings.HasSuffix(f.Name.Name, "_test") {
			return
		}
		dir := filepath.ToSlash(filepath.Dir(path))
		if _, ok := comments[dir]; !ok {
			comments[dir] = nil
		}
		if f.Doc != nil && !strings.HasPrefix(f.Doc.Text(), "Code generated") {
			comments[dir] = append(comments[dir], path)
		}
		if slices.Contains(bannedNames, f.Name.Name) {
			t.Errorf("%s: package %s says nothing of what it holds", path, f.Name.Name)
		}
	})
	for dir, files := range comments {
		if len(files) != 1 {
			t.Errorf("package in %s has %d package comments %v, want exactly one", dir, len(files), files)
		}
	}
}

// below reports whether path is one of dirs or inside one.
func below(path string, dirs []string) bool {
	return slices.ContainsFunc(dirs, func(d string) bool { return path == d || strings.HasPrefix(path, d+"/") })
}

func eachGoFile(t *testing.T, visit func(path string, f *ast.File)) {
	t.Helper()
	err := filepath.WalkDir(".", func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if e.IsDir() && (strings.HasPrefix(e.Name(), ".") && path != "." || e.Name() == "testdata" || e.Name() == "node_modules" || e.Name() == "tools") {
			return filepath.SkipDir
		}
		if !strings.HasSuffix(path, ".go") {
			return nil
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments)
		if err != nil {
			return err
		}
		visit(path, f)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// eachCall visits product files that call one of a package's functions.
func eachCall(t *testing.T, pkg string, names []string, visit func(path string)) {
	t.Helper()
	eachGoFile(t, func(path string, f *ast.File) {
		if strings.HasSuffix(path, "_test.go") || strings.HasSuffix(filepath.Dir(path), "test") {
			return
		}
		ast.Inspect(f, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			if sel, ok := call.Fun.(*ast.SelectorExpr); ok {
				if id, ok := sel.X.(*ast.Ident); ok && id.Name == pkg && slices.Contains(names, sel.Sel.Name) {
					visit(path)
				}
			}
			return true
		})
	})
}

// TestGVisorVersion keeps the version that snapshots are stamped with equal to
// the version that is linked.
func TestGVisorVersion(t *testing.T) {
	t.Parallel()
	mod, err := os.ReadFile("go.mod")
	if err != nil {
		t.Fatal(err)
	}
	src, err := os.ReadFile("internal/driver/gvisor/reexec_linux.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range strings.Split(string(mod), "\n") {
		f := strings.Fields(line)
		if len(f) >= 2 && f[0] == "gvisor.dev/gvisor" {
			if !strings.Contains(string(src), strconv.Quote(f[1])) {
				t.Errorf("go.mod has gVisor %s, internal/driver/gvisor/reexec_linux.go another: read docs/gvisor-upgrade.md", f[1])
			}
			return
		}
	}
	t.Error("go.mod does not require gvisor.dev/gvisor")
}
