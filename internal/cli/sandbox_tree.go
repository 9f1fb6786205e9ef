package cli

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/pandastack/pandastack/api"
)

func newSandboxTree(a *app) *cobra.Command {
	var ascii bool
	cmd := &cobra.Command{
		Use:   "tree ID [flags]",
		Short: "Draw what a sandbox descends from and what descends from it",
		Long: `Draw the lineage of a sandbox: all forks of its oldest ancestor, each with its
status, its age, the mark of promote, and the snapshot it was created from. The
sandbox that was asked for is marked with *.

Lines are drawn with box characters where the locale is UTF-8.`,
		Example: `  pandastack sandbox tree k3v9x0q2m7c1b8n4t6zd
  pandastack sandbox tree k3v9x0q2m7c1b8n4t6zd -o json | jq -r '.nodes[] | select(.promoted) | .id'`,
		Args: args(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			sb, err := a.handle(args[0])
			if err != nil {
				return err
			}
			tree, err := sb.Tree(cmd.Context())
			if err != nil {
				return err
			}
			if a.output == "json" {
				return a.printJSON(tree)
			}
			d := drawing{lines: boxLines, self: args[0], now: time.Now()}
			if ascii || !a.unicode() {
				d.lines = asciiLines
			}
			return d.draw(a.stdout, tree)
		},
	}
	cmd.Flags().BoolVar(&ascii, "ascii", false, "draw with ASCII only")
	return cmd
}

// unicode reports whether the locale can show more than ASCII.
func (a *app) unicode() bool {
	locale := strings.ToLower(cmp.Or(a.getenv("LC_ALL"), a.getenv("LC_CTYPE"), a.getenv("LANG")))
	return strings.Contains(locale, "utf-8") || strings.Contains(locale, "utf8")
}

// treeLines are the parts that a tree is drawn with.
type treeLines struct{ child, last, below, none string }

var (
	boxLines   = treeLines{"├── ", "└── ", "│   ", "    "}
	asciiLines = treeLines{"|-- ", "`-- ", "|   ", "    "}
)

// drawing draws one lineage.
type drawing struct {
	lines treeLines
	self  string // sandbox that was asked for
	now   time.Time

	children map[string][]api.TreeNode
	drawn    map[string]bool
	w        io.Writer
}

// draw writes a line for each node, columns aligned. A node whose parent is not
// in the tree is a root; so is one of a circle, which no server should send.
func (d *drawing) draw(w io.Writer, tree api.Tree) error {
	known := map[string]bool{}
	for _, n := range tree.Nodes {
		known[n.ID] = true
	}
	d.children, d.drawn = map[string][]api.TreeNode{}, map[string]bool{}
	var roots []api.TreeNode
	for _, n := range tree.Nodes {
		if n.ParentID == "" || !known[n.ParentID] {
			roots = append(roots, n)
		} else {
			d.children[n.ParentID] = append(d.children[n.ParentID], n)
		}
	}
	columns := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	d.w = columns
	for _, n := range append(roots, tree.Nodes...) {
		d.node(n, "", "")
	}
	return columns.Flush()
}

// node draws a node and all below it: first stands before its own line, rest
// before those of its children.
func (d *drawing) node(n api.TreeNode, first, rest string) {
	if d.drawn[n.ID] {
		return
	}
	d.drawn[n.ID] = true
	mark := ""
	if n.ID == d.self {
		mark = " *"
	}
	cells := cleanCells([]string{first + n.ID + mark, string(n.Status), n.Template, d.age(n), treeNotes(n)})
	fmt.Fprintln(d.w, strings.TrimRight(strings.Join(cells, "\t"), "\t"))
	children := d.children[n.ID]
	for i, c := range children {
		if i < len(children)-1 {
			d.node(c, rest+d.lines.child, rest+d.lines.below)
		} else {
			d.node(c, rest+d.lines.last, rest+d.lines.none)
		}
	}
}

// age is for how long a sandbox has been there, or since when it is gone.
func (d *drawing) age(n api.TreeNode) string {
	if n.EndedAt != nil {
		return "ended " + span(d.now.Sub(*n.EndedAt)) + " ago"
	}
	return span(d.now.Sub(n.CreatedAt))
}

func treeNotes(n api.TreeNode) string {
	var notes []string
	if n.Promoted {
		notes = append(notes, "promoted")
	}
	if n.SnapshotID != "" {
		notes = append(notes, "from "+n.SnapshotID)
	}
	return strings.Join(notes, ", ")
}
