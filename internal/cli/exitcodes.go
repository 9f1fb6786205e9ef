package cli

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/client"
)

// Exit codes of the program. The table below is the only place that says what
// they mean.
const (
	exitOK          = 0
	exitFailure     = 1
	exitUsage       = 2
	exitNotFound    = 3
	exitAuth        = 4
	exitUnreachable = 5
	exitTimeout     = 124
	exitInterrupted = 130
)

var exitCodes = []struct {
	code    int
	meaning string
}{
	{exitOK, "it worked"},
	{exitFailure, "it failed"},
	{exitUsage, "the command line is wrong"},
	{exitNotFound, "a sandbox, snapshot, file, template or key that was named does not exist"},
	{exitAuth, "the key is missing, wrong or revoked, or may not do this"},
	{exitUnreachable, "no PandaStack server answers at the address"},
	{exitTimeout, "it did not end in the time allowed"},
	{exitInterrupted, "it was interrupted"},
}

func newExitCodes() *cobra.Command {
	var b strings.Builder
	b.WriteString("Every command ends with one of these codes:\n\n")
	for _, c := range exitCodes {
		fmt.Fprintf(&b, "  %3d  %s\n", c.code, c.meaning)
	}
	b.WriteString(`
"sandbox exec", "sandbox shell", "sandbox ssh", "sandbox process attach" and
"run" end with the code of the command that they ran: 127 if it does not exist, 126 if it is no program, 128+n if signal n ended it, 124 if
its --timeout did. When they fail themselves they print a line that begins with
"error:" and end with a code from the table. "sandbox fs grep" ends with 1 when
nothing was found, "status" while the server is not ready, and "sandbox run-code"
when the code raised an error.`)
	return &cobra.Command{Use: "exit-codes", Short: "What the exit codes mean", Long: b.String()}
}

// usageError is a command line that is wrong.
type usageError struct {
	cmd *cobra.Command
	err error
}

func (e usageError) Error() string { return e.err.Error() }
func (e usageError) Unwrap() error { return e.err }

func usagef(cmd *cobra.Command, format string, args ...any) error {
	return usageError{cmd, fmt.Errorf(format, args...)}
}

// silentExit ends the program with a code and says nothing more.
type silentExit int

func (e silentExit) Error() string { return fmt.Sprintf("exit status %d", int(e)) }

// exitCodeOf gives the code that an error ends the program with.
func exitCodeOf(ctx context.Context, err error) int {
	var silent silentExit
	var usage usageError
	var exit *client.ExitError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &silent):
		return int(silent)
	case errors.As(err, &exit):
		return exit.ExitCode()
	case errors.As(err, &usage):
		return exitUsage
	case ctx.Err() != nil:
		return exitInterrupted
	}
	switch code := api.CodeOf(err); code {
	case api.CodeTimeout:
		return exitTimeout
	case api.CodeServerUnreachable, api.CodeNotAServer:
		return exitUnreachable
	case api.CodeNotRoot:
		return exitFailure // of this machine, not of a key
	default:
		if i := strings.IndexByte(string(code), '.'); i > 0 && code[:i] == "auth" {
			return exitAuth
		}
	}
	var coded *api.Error
	if errors.As(err, &coded) && coded.Status() == http.StatusNotFound && coded.Code != api.CodeNotFound {
		return exitNotFound
	}
	return exitFailure
}
