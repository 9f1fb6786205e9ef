package cli

import (
	"strings"
	"testing"
	"time"

	"github.com/pandastack/pandastack/api"
)

// lineage is a root with two forks, of which one has a child of its own.
func lineage(now time.Time) api.Tree {
	node := func(id, parent string, age time.Duration, status api.Status) api.TreeNode {
		return api.TreeNode{ID: id, ParentID: parent, Template: "base", Status: status, CreatedAt: now.Add(-age)}
	}
	ended := now.Add(-2 * time.Minute)
	root := node("root", "", 3*time.Hour, api.StatusDeleted)
	root.EndedAt, root.SnapshotID = &ended, "snap-k3v9x0q2m7c1b8n4t6zd"
	best := node("left", "root", time.Hour, api.StatusRunning)
	best.Promoted = true
	return api.Tree{RootID: "root", Nodes: []api.TreeNode{
		root, best, node("right", "root", time.Hour, api.StatusHibernated),
		node("leftmost", "left", 90*time.Second, api.StatusPaused),
		node("lefter", "left", 30*time.Second, api.StatusRunning),
	}}
}

func drawn(t *testing.T, tree api.Tree, d drawing) string {
	t.Helper()
	var b strings.Builder
	if err := d.draw(&b, tree); err != nil {
		t.Fatal(err)
	}
	return "\n" + b.String()
}

func TestTree(t *testing.T) {
	t.Parallel()
	now := time.Now()
	got := drawn(t, lineage(now), drawing{lines: boxLines, self: "lefter", now: now})
	if want := `
root                  deleted     base  ended 2m ago  from snap-k3v9x0q2m7c1b8n4t6zd
├── left              running     base  1h            promoted
│   ├── leftmost      paused      base  1m
│   └── lefter *      running     base  30s
└── right             hibernated  base  1h
`; !sameButSpace(got, want) {
		t.Errorf("it is drawn as%swant%s", got, want)
	}
	got = drawn(t, lineage(now), drawing{lines: asciiLines, self: "root", now: now})
	if want := "\n" + "root *            deleted     base  ended 2m ago  from snap-k3v9x0q2m7c1b8n4t6zd\n" +
		"|-- left          running     base  1h            promoted\n" +
		"|   |-- leftmost  paused      base  1m\n" +
		"|   `-- lefter    running     base  30s\n" +
		"`-- right         hibernated  base  1h\n"; got != want {
		t.Errorf("in ASCII it is drawn as%swant%s", got, want)
	}
}

// sameButSpace compares without the number of spaces between columns.
func sameButSpace(a, b string) bool {
	return strings.Join(strings.Fields(a), " ") == strings.Join(strings.Fields(b), " ")
}

// TestTreeOfAnything draws what no server should send: every node once, and no
// control characters.
func TestTreeOfAnything(t *testing.T) {
	t.Parallel()
	tree := api.Tree{Nodes: []api.TreeNode{
		{ID: "a", ParentID: "b"}, {ID: "b", ParentID: "a"}, {ID: "self", ParentID: "self"},
		{ID: "orphan", ParentID: "gone", Status: "\x1b[31mred"}, {ID: "orphan"},
	}}
	got := drawn(t, tree, drawing{lines: asciiLines, now: time.Now()})
	if n := strings.Count(got, "\n"); n != 5 || strings.Contains(got, "\x1b") {
		t.Errorf("%d lines:%s", n-1, got)
	}
	if got := drawn(t, api.Tree{}, drawing{lines: boxLines}); got != "\n" {
		t.Errorf("an empty tree is drawn as %q", got)
	}
}

func TestUnicode(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		env  map[string]string
		want bool
	}{
		{nil, false},
		{map[string]string{"LANG": "C"}, false},
		{map[string]string{"LANG": "en_GB.UTF-8"}, true},
		{map[string]string{"LANG": "C.utf8"}, true},
		{map[string]string{"LANG": "en_GB.UTF-8", "LC_ALL": "C"}, false},
		{map[string]string{"LANG": "C", "LC_CTYPE": "C.UTF-8"}, true},
	} {
		a := &app{getenv: func(name string) string { return c.env[name] }}
		if a.unicode() != c.want {
			t.Errorf("%v: %v", c.env, !c.want)
		}
	}
}
