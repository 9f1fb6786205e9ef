package pandastack

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/pandastack/pandastack/internal/cli"
)

var update = flag.Bool("update", false, "write docs/parity.md from sdk/parity.json")

// surfaces are the ways to use the API, in the order of the table.
var surfaces = []struct{ key, title string }{
	{"go", "Go"}, {"python", "Python"}, {"typescript", "TypeScript"}, {"cli", "`pandastack`"},
}

// noName begins what stands in the place of a name where there is none, before
// the reason. An operation whose row is only `all` has none anywhere.
const noName = "none: "

// operation is one of the API's, from api/openapi.json.
type operation struct {
	id, method, path, tag string
}

// TestParity holds sdk/parity.json, which names for every operation of the API
// what the SDKs and the command line call it, to all of them: no operation is
// without a row, and every name exists. docs/parity.md is made from it.
func TestParity(t *testing.T) {
	t.Parallel()
	ops := readOperations(t)
	rows := map[string]map[string]string{}
	readJSON(t, "sdk/parity.json", &rows)
	names := map[string]map[string]bool{"go": goNames(t), "python": pythonNames(t), "typescript": typescriptNames(t)}
	for _, op := range ops {
		row := rows[op.id]
		if row == nil {
			t.Errorf("%s (%s %s) has no row in sdk/parity.json: add its names, or the reason why it needs none", op.id, op.method, op.path)
		}
		delete(rows, op.id)
		if strings.HasPrefix(row["all"], noName) {
			continue
		}
		for _, s := range surfaces {
			if name := row[s.key]; row != nil && !strings.HasPrefix(name, noName) && !exists(t, names[s.key], s.key, name) {
				t.Errorf("%s: there is no %s in %s", op.id, name, s.title)
			}
		}
	}
	for id := range rows {
		t.Errorf("sdk/parity.json has a row for %s, which is no operation of api/openapi.json", id)
	}
	if t.Failed() {
		return
	}
	readJSON(t, "sdk/parity.json", &rows)
	page := parityPage(ops, rows)
	if *update {
		if err := os.WriteFile("docs/parity.md", page, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if there, err := os.ReadFile("docs/parity.md"); err != nil || !bytes.Equal(there, page) {
		t.Error("docs/parity.md is not current; run: go test . -run Parity -update")
	}
}

// TestSchemasOfOperations: no operation refers to a schema that the document
// does not have.
func TestSchemasOfOperations(t *testing.T) {
	t.Parallel()
	var doc struct {
		Components struct{ Schemas map[string]any }
	}
	readJSON(t, "api/openapi.json", &doc)
	raw, err := os.ReadFile("api/openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`"#/components/schemas/(\w+)"`).FindAllSubmatch(raw, -1) {
		if doc.Components.Schemas[string(m[1])] == nil {
			t.Errorf("api/openapi.json refers to %s, which it does not have", m[1])
		}
	}
}

func readJSON(t *testing.T, path string, v any) {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(raw, v)
	}
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}

// readOperations gives the operations by path.
func readOperations(t *testing.T) []operation {
	t.Helper()
	var doc struct {
		Paths map[string]map[string]struct {
			OperationID string
			Tags        []string
		}
	}
	readJSON(t, "api/openapi.json", &doc)
	var ops []operation
	for path, methods := range doc.Paths {
		for method, o := range methods {
			ops = append(ops, operation{o.OperationID, strings.ToUpper(method), path, o.Tags[0]})
		}
	}
	slices.SortFunc(ops, func(a, b operation) int {
		return strings.Compare(a.tag+" "+a.path+" "+a.method, b.tag+" "+b.path+" "+b.method)
	})
	return ops
}

// exists reports whether a surface has a name. Those of SDKs are Class.method.
func exists(t *testing.T, names map[string]bool, surface, name string) bool {
	t.Helper()
	if surface != "cli" {
		return names[name]
	}
	var help, complaints bytes.Buffer
	args := append(strings.Fields(name), "--help")
	code := cli.Main(t.Context(), args, strings.NewReader(""), &help, &complaints, func(string) string { return "" })
	usage := regexp.MustCompile(`(?m)^  pandastack ` + regexp.QuoteMeta(name) + `( |$)`)
	return name != "" && code == 0 && usage.Match(help.Bytes())
}

// goNames is the exported methods of package client.
func goNames(t *testing.T) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	files, err := filepath.Glob("client/*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range files {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || f.Recv == nil || !f.Name.IsExported() {
				continue
			}
			kind := f.Recv.List[0].Type
			if star, ok := kind.(*ast.StarExpr); ok {
				kind = star.X
			}
			if id, ok := kind.(*ast.Ident); ok {
				names[id.Name+"."+f.Name.Name] = true
			}
		}
	}
	return names
}

// pythonNames is the public methods of the asynchronous classes, from which the
// others are made, under the names of those.
func pythonNames(t *testing.T) map[string]bool {
	t.Helper()
	return methodsIn(t, "sdk/python/src/pandastack/_async", ".py",
		regexp.MustCompile(`^class (?:Async)?(\w+)`), regexp.MustCompile(`^    (?:async )?def ([a-z]\w*)\(`))
}

// typescriptNames is the public methods of the exported classes.
func typescriptNames(t *testing.T) map[string]bool {
	t.Helper()
	return methodsIn(t, "sdk/typescript/src", ".ts",
		regexp.MustCompile(`^export (?:abstract )?class (\w+)`), regexp.MustCompile(`^  (?:static )?(?:async )?([a-z]\w*)[(<]`))
}

// methodsIn finds methods in the files below a folder, by the lines that begin a
// class and a method.
func methodsIn(t *testing.T, root, suffix string, class, method *regexp.Regexp) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, suffix) {
			return err
		}
		src, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		current := ""
		for line := range strings.Lines(string(src)) {
			if m := class.FindStringSubmatch(line); m != nil {
				current = m[1]
			} else if m := method.FindStringSubmatch(line); m != nil {
				names[current+"."+m[1]] = true
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// parityPage is docs/parity.md.
func parityPage(ops []operation, rows map[string]map[string]string) []byte {
	var out bytes.Buffer
	out.WriteString("# Parity\n\nMade from `sdk/parity.json` by `go test . -run Parity -update`; do not edit. The same test fails when an\n" +
		"operation of `api/openapi.json` has no row, or a name that stands here does not exist.\n\n" +
		"Names of SDKs are those of the class and the method; in Python every class has an `Async` twin. A dash has its\n" +
		"reason below the table.\n")
	tag := ""
	var reasons []string
	flush := func() {
		if len(reasons) > 0 {
			out.WriteString("\n" + strings.Join(reasons, "\n") + "\n")
		}
		reasons = nil
	}
	for _, op := range ops {
		if op.tag != tag {
			flush()
			tag = op.tag
			title := strings.ToUpper(tag[:1]) + tag[1:]
			if slices.Contains([]string{"mcp", "lsp", "ssh"}, tag) {
				title = strings.ToUpper(tag)
			}
			fmt.Fprintf(&out, "\n## %s\n\n| Operation |", title)
			for _, s := range surfaces {
				out.WriteString(" " + s.title + " |")
			}
			out.WriteString("\n|" + strings.Repeat(" --- |", len(surfaces)+1) + "\n")
		}
		row := rows[op.id]
		fmt.Fprintf(&out, "| `%s %s` |", op.method, op.path)
		for _, s := range surfaces {
			name := row[s.key]
			if row["all"] != "" {
				name = row["all"]
			}
			if reason, ok := strings.CutPrefix(name, noName); ok {
				name = "-"
				if row["all"] == "" {
					reasons = append(reasons, fmt.Sprintf("- `%s`, %s: %s", op.id, s.title, reason))
				}
			} else {
				name = "`" + name + "`"
			}
			out.WriteString(" " + name + " |")
		}
		if all, ok := strings.CutPrefix(row["all"], noName); ok {
			reasons = append(reasons, fmt.Sprintf("- `%s`: %s", op.id, all))
		}
		out.WriteString("\n")
	}
	flush()
	return out.Bytes()
}
