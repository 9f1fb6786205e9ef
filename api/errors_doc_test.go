package api_test

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"testing"

	"github.com/pandastack/pandastack/api"
)

// TestErrorsDoc holds docs/errors.md to the catalogue: the same codes in the
// same order, with the status, whether to try again, the family and
// the hint.
func TestErrorsDoc(t *testing.T) {
	t.Parallel()
	doc, err := os.ReadFile("../docs/errors.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := regexp.MustCompile("(?m)^\\| `[^`]+` \\|.*\\|$").FindAllString(string(doc), -1)
	catalogue := api.Catalogue()
	for i, info := range catalogue {
		retry := "no"
		if info.Retryable {
			retry = "yes"
		}
		want := fmt.Sprintf("| `%s` | %d | %s | %s | %s |", info.Code, info.Status, retry, info.Family, info.Hint)
		if i >= len(rows) {
			t.Errorf("docs/errors.md lacks the row\n%s", want)
			continue
		}
		if rows[i] != want {
			t.Errorf("docs/errors.md has\n%s\nwhere the catalogue says\n%s", rows[i], want)
		}
	}
	for _, extra := range rows[min(len(rows), len(catalogue)):] {
		t.Errorf("docs/errors.md has a row that the catalogue does not:\n%s", extra)
	}
}

func TestCatalogueIsComplete(t *testing.T) {
	t.Parallel()
	seen := map[api.Code]bool{}
	for _, i := range api.Catalogue() {
		if seen[i.Code] {
			t.Errorf("%s is there twice", i.Code)
		}
		seen[i.Code] = true
		if i.Hint == "" || i.Status < 400 || i.Status > 599 || !slices.Contains(api.Families(), i.Family) {
			t.Errorf("%s: status %d, family %q, hint %q", i.Code, i.Status, i.Family, i.Hint)
		}
	}
	src, err := os.ReadFile("errors.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`(?m)^\tCode\w+\s+Code = "([^"]+)"$`).FindAllStringSubmatch(string(src), -1) {
		if !seen[api.Code(m[1])] {
			t.Errorf("%s is declared but not in the catalogue", m[1])
		}
	}
}

// TestFamilies checks that a family stands for its codes, however an error of
// one is wrapped.
func TestFamilies(t *testing.T) {
	t.Parallel()
	for _, i := range api.Catalogue() {
		err := fmt.Errorf("while testing: %w", api.Errorf(i.Code, "it failed"))
		for _, f := range api.Families() {
			if got := errors.Is(err, f); got != (f == i.Family) {
				t.Errorf("errors.Is(%s, %s) is %v", i.Code, f, got)
			}
		}
	}
	if f := (&api.Error{Code: "from.the_future"}).Family(); f != api.FamilyServer {
		t.Errorf("an unknown code is of the family %s", f)
	}
}
