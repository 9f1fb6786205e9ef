package lsp

import (
	"fmt"
	"slices"
	"strings"

	"github.com/pandastack/pandastack/api"
)

// Language is a language with the servers that are known for it.
type Language struct {
	ID      string
	Aliases []string
	Servers []Server // in order of preference
}

// Server is a program that is a language server on its standard streams.
type Server struct {
	Program string
	Args    []string
	Install string // how to get it
}

// Languages gives all languages.
func Languages() []Language {
	return []Language{
		{"go", []string{"golang"}, []Server{
			{"gopls", nil, "go install golang.org/x/tools/gopls@latest"},
		}},
		{"python", []string{"py"}, []Server{
			{"pylsp", nil, "pip install python-lsp-server"},
			{"pyright-langserver", []string{"--stdio"}, "npm install -g pyright"},
			{"basedpyright-langserver", []string{"--stdio"}, "pip install basedpyright"},
			{"jedi-language-server", nil, "pip install jedi-language-server"},
		}},
		{"typescript", []string{"javascript", "ts", "js"}, []Server{
			{"typescript-language-server", []string{"--stdio"}, "npm install -g typescript-language-server typescript@5"},
			{"vtsls", []string{"--stdio"}, "npm install -g @vtsls/language-server"},
		}},
	}
}

// Find gives a language by its id or another name (lsp.unknown_language).
func Find(name string) (Language, error) {
	for _, l := range Languages() {
		if strings.EqualFold(name, l.ID) || slices.Contains(l.Aliases, strings.ToLower(name)) {
			return l, nil
		}
	}
	return Language{}, api.Errorf(api.CodeLSPLanguage, "there is no language server for %.40q", name)
}

// searchPath is where programs are looked for after PATH: where installers of one
// user put them.
const searchPath = `$PATH:$HOME/.local/bin:$HOME/go/bin:$HOME/.npm-global/bin:$HOME/node_modules/.bin:/usr/local/go/bin:/usr/local/bin`

// LookUp is a line of shell that prints the number of the first server that is
// installed, and nothing if none is.
func (l Language) LookUp() string {
	var b strings.Builder
	fmt.Fprintf(&b, "PATH=%s; ", searchPath)
	for i, s := range l.Servers {
		fmt.Fprintf(&b, "command -v %s >/dev/null && { echo %d; exit; }; ", s.Program, i)
	}
	return b.String() + "true"
}

// Line is a line of shell that becomes the server.
func (s Server) Line() string {
	return fmt.Sprintf("PATH=%s; export PATH; exec %s", searchPath, strings.Join(append([]string{s.Program}, s.Args...), " "))
}

// NotInstalled says what to install.
func (l Language) NotInstalled() error {
	var how []string
	for _, s := range l.Servers {
		how = append(how, s.Install)
	}
	return api.Errorf(api.CodeLSPNotInstalled, "the sandbox has no language server for %s", l.ID).
		With("language", l.ID).
		WithHint("Install one in the sandbox or its template, such as with: " + strings.Join(how, ", or "))
}
