package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"

	"golang.org/x/term"
)

// Colours, as the parameters of a terminal's SGR sequence.
const (
	red    = "31"
	green  = "32"
	yellow = "33"
	bold   = "1"
)

// isTerminal reports whether a stream is a terminal.
func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// paint colours text where the stream shows colours.
func (a *app) paint(w io.Writer, colour, text string) string {
	if a.noColor || a.getenv("NO_COLOR") != "" || a.getenv("TERM") == "dumb" || !isTerminal(w) {
		return text
	}
	return "\x1b[" + colour + "m" + text + "\x1b[0m"
}

// printJSON writes a result as JSON.
func (a *app) printJSON(v any) error {
	enc := json.NewEncoder(a.stdout)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// printJSONLine writes one of a stream of results as a line of JSON.
func (a *app) printJSONLine(v any) error {
	enc := json.NewEncoder(a.stdout)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// table is rows under headings.
type table struct {
	headings []string
	rows     [][]string
}

func (t *table) add(cells ...string) { t.rows = append(t.rows, cells) }

// print writes a table on a terminal, tab-separated lines elsewhere.
func (t *table) print(a *app) error {
	if !isTerminal(a.stdout) {
		return a.printRows(t.rows...)
	}
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, strings.Join(t.headings, "\t"))
	for _, row := range t.rows {
		fmt.Fprintln(w, strings.Join(cleanCells(row), "\t"))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	// Colour comes last: the columns are aligned by what can be seen.
	head, body, _ := strings.Cut(b.String(), "\n")
	_, err := fmt.Fprintf(a.stdout, "%s\n%s", a.paint(a.stdout, bold, head), body)
	return err
}

// printRows writes tab-separated lines.
func (a *app) printRows(rows ...[]string) error {
	for _, row := range rows {
		if _, err := fmt.Fprintln(a.stdout, strings.Join(cleanCells(row), "\t")); err != nil {
			return err
		}
	}
	return nil
}

func cleanCells(row []string) []string {
	out := make([]string, len(row))
	for i, c := range row {
		out[i] = strings.NewReplacer("\t", " ", "\n", " ").Replace(printable(c))
	}
	return out
}

// fields is one thing as names and values, a line each.
type fields [][2]string

func (f *fields) add(name, value string) {
	if value != "" {
		*f = append(*f, [2]string{name, value})
	}
}

func (f fields) print(a *app) error {
	if !isTerminal(a.stdout) {
		for _, row := range f {
			if err := a.printRows(row[:]); err != nil {
				return err
			}
		}
		return nil
	}
	w := tabwriter.NewWriter(a.stdout, 0, 0, 2, ' ', 0)
	for _, row := range f {
		cells := cleanCells(row[:])
		fmt.Fprintf(w, "%s:\t%s\n", cells[0], cells[1])
	}
	return w.Flush()
}
