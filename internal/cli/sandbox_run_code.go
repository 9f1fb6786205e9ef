package cli

import (
	"encoding/base64"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/client"
)

// maxCodeFile bounds what is read as code.
const maxCodeFile = 8 << 20

type runCodeOptions struct {
	client.CodeOptions
	code  string
	env   []string
	limit duration
	save  string
}

func newSandboxRunCode(a *app) *cobra.Command {
	var o runCodeOptions
	cmd := &cobra.Command{
		Use:   "run-code ID [FILE]",
		Short: "Run code in a sandbox, in a context that keeps its state",
		Long: `Run code in a sandbox. What it defines is there for the next run: all runs of a
language share one interpreter unless --context names another.

The code is that of -c, of FILE, or with - or neither of standard input. Output
comes as it is written, and values are shown as text. Pictures and pages that the
code shows are written to the directory of --save. An error that the code raises
is shown, and the exit code is 1.`,
		Example: `  pandastack sandbox run-code $id -c 'x = 6 * 7'
  pandastack sandbox run-code $id -c 'x'
  pandastack sandbox run-code $id plot.py --save charts
  pandastack sandbox run-code $id --language javascript -c 'await fetch("https://example.com")' --timeout 10s`,
		Args: args(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error { return runSandboxCode(cmd, a, o, args) },
	}
	f := cmd.Flags()
	f.StringVarP(&o.code, "code", "c", "", "the code itself")
	f.StringVarP(&o.Language, "language", "l", "", "python, javascript, typescript or bash (default python)")
	f.StringVar(&o.Context, "context", "", "id of the context to run in")
	f.StringArrayVarP(&o.env, "env", "e", nil, "environment for this run as KEY=VALUE, or KEY to pass on this shell's; may be repeated")
	f.Var(&o.limit, "timeout", "interrupt the code after this long (default never)")
	f.StringVar(&o.save, "save", "", "directory for pictures and pages that the code shows")
	return cmd
}

func runSandboxCode(cmd *cobra.Command, a *app, o runCodeOptions, args []string) error {
	code, err := codeOf(cmd, a, o, args)
	if err != nil {
		return err
	}
	if o.Env, err = pairs(cmd, "env", o.env, a.getenv); err != nil {
		return err
	}
	o.Timeout = o.limit.Duration
	sb, err := a.handle(args[0])
	if err != nil {
		return err
	}
	if o.save != "" {
		if err := os.MkdirAll(o.save, 0o777); err != nil {
			return err
		}
	}
	shown := codeShown{app: a, save: o.save, stamp: time.Now().Format("20060102-150405")}
	for e, err := range sb.StreamCode(cmd.Context(), code, o.CodeOptions) {
		if err == nil {
			err = shown.event(e)
		}
		if err != nil {
			return err
		}
	}
	if shown.failed {
		return silentExit(exitFailure)
	}
	return nil
}

// codeOf gives the code that the command is to run.
func codeOf(cmd *cobra.Command, a *app, o runCodeOptions, args []string) (string, error) {
	named := cmd.Flags().Changed("code")
	switch {
	case named && len(args) > 1:
		return "", usagef(cmd, "the code is given twice: with -c and as a file")
	case named:
		return o.code, nil
	}
	in := a.stdin
	if len(args) > 1 && args[1] != "-" {
		f, err := os.Open(args[1])
		if err != nil {
			return "", err
		}
		defer f.Close()
		in = f
	}
	data, err := io.ReadAll(io.LimitReader(in, maxCodeFile+1))
	if err == nil && len(data) > maxCodeFile {
		err = api.Errorf(api.CodeTooLarge, "the code is longer than %d bytes", maxCodeFile)
	}
	return string(data), err
}

// codeShown shows the events of an execution.
type codeShown struct {
	app    *app
	save   string
	stamp  string // in the names of files
	saved  int
	failed bool
}

func (s *codeShown) event(e api.CodeEvent) error {
	if e.Type == "exception" {
		s.failed = true
	}
	if e.Result != nil {
		if err := s.keep(e.Result); err != nil {
			return err
		}
	}
	if s.app.output == "json" {
		return s.app.printJSONLine(e)
	}
	var err error
	switch {
	case e.Type == "stdout":
		_, err = io.WriteString(s.app.stdout, s.fit(s.app.stdout, e.Text))
	case e.Type == "stderr":
		_, err = io.WriteString(s.app.stderr, s.fit(s.app.stderr, e.Text))
	case e.Result != nil && e.Result.Text != "":
		_, err = fmt.Fprintln(s.app.stdout, s.fit(s.app.stdout, e.Result.Text))
	case e.Exception != nil:
		text := e.Exception.Traceback
		if text == "" {
			text = e.Exception.Name + ": " + e.Exception.Value
		}
		_, err = fmt.Fprintln(s.app.stderr, s.fit(s.app.stderr, strings.TrimRight(text, "\n")))
	}
	return err
}

// fit makes text of a sandbox fit for a terminal, if w is one.
func (s *codeShown) fit(w io.Writer, text string) string {
	if isTerminal(w) {
		return printable(text)
	}
	return text
}

// keep writes the forms of a result that are files to the directory for them.
func (s *codeShown) keep(r *api.CodeOutput) error {
	if s.save == "" {
		return nil
	}
	for _, form := range []struct {
		ext, data string
		base64    bool
	}{
		{"png", r.PNG, true}, {"jpeg", r.JPEG, true}, {"pdf", r.PDF, true}, {"svg", r.SVG, false}, {"html", r.HTML, false},
	} {
		if form.data == "" {
			continue
		}
		data := []byte(form.data)
		if form.base64 {
			var err error
			if data, err = base64.StdEncoding.DecodeString(strings.Join(strings.Fields(form.data), "")); err != nil {
				return api.Wrap(api.CodeInternal, err, "a %s of the sandbox is not base64", form.ext)
			}
		}
		s.saved++
		name := filepath.Join(s.save, "result-"+s.stamp+"-"+strconv.Itoa(s.saved)+"."+form.ext)
		if err := os.WriteFile(name, data, 0o666); err != nil {
			return err
		}
		if _, err := fmt.Fprintln(s.app.stderr, "saved "+name); err != nil {
			return err
		}
	}
	return nil
}
