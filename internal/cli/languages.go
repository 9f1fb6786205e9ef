package cli

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/pandastack/pandastack/api"
)

// languageList is what `languages` gives with -o json.
type languageList struct {
	Code []string          `json:"code"`
	LSP  []api.LSPLanguage `json:"lsp,omitempty"`
}

func newLanguages(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "languages [ID]",
		Short: "List the languages of code contexts and of language servers",
		Long: `List the languages that "sandbox run-code" knows, and those that "sandbox lsp" does
with the programs that serve them. With ID only the languages that code can have in
this sandbox, which are those whose programs its template has.`,
		Example: `  pandastack languages
  pandastack languages $id`,
		Args: args(0, 1),
		RunE: func(cmd *cobra.Command, args []string) error { return runLanguages(cmd, a, args) },
	}
}

func runLanguages(cmd *cobra.Command, a *app, args []string) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	var out languageList
	if len(args) > 0 {
		out.Code, err = c.Sandboxes.Handle(args[0]).CodeLanguages(cmd.Context())
	} else if out.Code, err = c.Languages(cmd.Context()); err == nil {
		out.LSP, err = c.LSPLanguages(cmd.Context())
	}
	if err != nil {
		return err
	}
	if a.output == "json" {
		return a.printJSON(out)
	}
	t := table{headings: []string{"FOR", "LANGUAGE", "OTHER NAMES", "PROGRAMS"}}
	for _, name := range out.Code {
		t.add("code", name, "", "")
	}
	for _, l := range out.LSP {
		var programs []string
		for _, s := range l.Servers {
			programs = append(programs, s.Program)
		}
		t.add("lsp", l.ID, strings.Join(l.Aliases, ","), strings.Join(programs, ","))
	}
	return t.print(a)
}
