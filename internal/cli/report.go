package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/client"
)

// exit prints what went wrong, if anything, and gives the exit code.
func (a *app) exit(ctx context.Context, err error) int {
	code := exitCodeOf(ctx, err)
	var silent silentExit
	var exit *client.ExitError
	if err == nil || errors.As(err, &silent) || errors.As(err, &exit) {
		return code
	}
	e := a.describe(ctx, err)
	if a.output == "json" {
		_ = json.NewEncoder(a.stderr).Encode(api.Envelope{Error: e})
		return code
	}
	if code == exitInterrupted {
		return code // whoever interrupted it knows
	}
	fmt.Fprintf(a.stderr, "%s %s\n", a.paint(a.stderr, red, "error:"), printable(e.Message))
	if e.Hint != "" {
		fmt.Fprintf(a.stderr, "%s %s\n", a.paint(a.stderr, yellow, "hint:"), printable(e.Hint))
	}
	if e.RequestID != "" && e.Status() >= 500 {
		fmt.Fprintf(a.stderr, "request: %s\n", printable(e.RequestID))
	}
	return code
}

// describe makes an error for the person at the keyboard. Unlike in a server's
// answer the text of an error without a code is shown: it is from here.
func (a *app) describe(ctx context.Context, err error) *api.Error {
	var usage usageError
	var coded *api.Error
	switch {
	case errors.As(err, &usage):
		e := api.Errorf(api.CodeInvalidRequest, "%s", usage.Error())
		return e.WithHint("Run `" + usage.cmd.CommandPath() + " --help`.")
	case ctx.Err() != nil:
		return api.Errorf(api.CodeCanceled, "interrupted").WithHint("")
	case errors.As(err, &coded):
		return coded
	}
	return api.Errorf(api.CodeInternal, "%s", err).WithHint("")
}

// printable makes text from elsewhere safe for a terminal: control characters,
// which can move the cursor or recolour what follows, are shown instead, and so
// are bytes that are no text.
func printable(s string) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	clean := func(r rune) bool { return r < ' ' && r != '\n' && r != '\t' || r >= 0x7f && r < 0xa0 }
	if !strings.ContainsFunc(s, clean) {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if clean(r) {
			fmt.Fprintf(&b, "\\x%02x", r)
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}
