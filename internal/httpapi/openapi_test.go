package httpapi

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write api/openapi.json from the code")

const golden = "../../api/openapi.json"

// TestOpenAPI holds api/openapi.json to the code.
func TestOpenAPI(t *testing.T) {
	t.Parallel()
	b := serve(t, &wire{})
	served := b.read(b.do("GET", "/openapi.json", "", "Authorization", ""))
	var doc map[string]any
	if err := json.Unmarshal([]byte(served), &doc); err != nil {
		t.Fatal(err)
	}
	doc["info"].(map[string]any)["version"] = "0" // differs by build
	var got bytes.Buffer
	enc := json.NewEncoder(&got)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(doc); err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(golden, got.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got.Bytes(), want) {
		t.Error("api/openapi.json is not what the code serves; run: go test ./internal/httpapi -run TestOpenAPI -update")
	}
}

// TestRoutes: every route has a permission, a place in the document with a
// summary, a tag and its errors, and refuses a caller without a key unless it
// is public.
func TestRoutes(t *testing.T) {
	t.Parallel()
	b := serve(t, &wire{})
	var doc struct {
		OpenAPI string
		Paths   map[string]map[string]struct {
			OperationID string
			Summary     string
			Tags        []string
			Security    []any
			Responses   map[string]any
		}
	}
	if err := json.Unmarshal([]byte(b.read(b.do("GET", "/openapi.json", ""))), &doc); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(doc.OpenAPI, "3.1") {
		t.Errorf("OpenAPI %s", doc.OpenAPI)
	}
	ids := map[string]bool{}
	documented := 0
	for _, p := range doc.Paths {
		documented += len(p)
	}
	routes := b.api.routes()
	if documented != len(routes) {
		t.Errorf("%d operations documented, %d routes", documented, len(routes))
	}
	for _, r := range routes {
		name := r.method + " " + r.path
		op, ok := doc.Paths[r.path][strings.ToLower(r.method)]
		if !ok {
			t.Errorf("%s is not documented", name)
			continue
		}
		if r.permission < public || r.permission > adminly {
			t.Errorf("%s has no permission", name)
		}
		if op.OperationID == "" || ids[op.OperationID] || op.Summary == "" || len(op.Tags) == 0 {
			t.Errorf("%s: id %q, summary %q, tags %v", name, op.OperationID, op.Summary, op.Tags)
		}
		ids[op.OperationID] = true
		if _, ok := op.Responses["default"]; !ok {
			t.Errorf("%s does not document its errors", name)
		}
		if (r.permission == public) == (len(op.Security) > 0) {
			t.Errorf("%s: permission %d, security %v", name, r.permission, op.Security)
		}
		if r.permission != public {
			path := strings.NewReplacer("{id}", "x", "{name}", "x", "{prefix}", "x", "{snapshot}", "x", "{checkpoint}", "x", "{pid}", "7").Replace(r.path)
			if resp := b.do(r.method, path, "", "Authorization", ""); resp.StatusCode != 401 {
				t.Errorf("%s without a key: %d", name, resp.StatusCode)
			}
		}
	}
	if v30 := b.read(b.do("GET", "/openapi-3.0.json", "")); !strings.Contains(v30, `"3.0.`) {
		t.Error("no OpenAPI 3.0")
	}
}

func TestCommandSchema(t *testing.T) {
	t.Parallel()
	b := serve(t, &wire{})
	var doc struct {
		Components struct {
			Schemas map[string]struct {
				Properties map[string]struct {
					OneOf []struct{ Type string }
				}
			}
		}
	}
	if err := json.Unmarshal([]byte(b.read(b.do("GET", "/openapi.json", ""))), &doc); err != nil {
		t.Fatal(err)
	}
	one := doc.Components.Schemas["Exec"].Properties["cmd"].OneOf
	if len(one) != 2 || one[0].Type != "string" || one[1].Type != "array" {
		t.Errorf("cmd is %+v", one)
	}
}
