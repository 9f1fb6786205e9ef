package cli_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strconv"

	"github.com/rogpeppe/go-internal/testscript"
)

func exitCode(err error) string {
	var exit *exec.ExitError
	switch {
	case err == nil:
		return "0"
	case errors.As(err, &exit):
		return strconv.Itoa(exit.ExitCode())
	}
	return err.Error()
}

// fake starts something that is no PandaStack server, or a server that answers
// every request the same way, and names it in PANDASTACK_API:
// fake STATUS CONTENT-TYPE BODY.
func fake(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: fake STATUS CONTENT-TYPE BODY")
	}
	status, err := strconv.Atoi(args[0])
	ts.Check(err)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", args[1])
		w.WriteHeader(status)
		fmt.Fprint(w, args[2])
	}))
	ts.Defer(s.Close)
	ts.Setenv("PANDASTACK_API", s.URL)
}
