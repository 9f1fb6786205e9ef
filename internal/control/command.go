package control

import (
	"bytes"
	"encoding/json"
	"math"
	"strings"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/guest"
)

// Bounds of a command.
const (
	maxCommand     = 1 << 20 // program and arguments
	maxCwd         = 4096
	maxStdin       = 16 << 20
	maxTimeout     = 30 * 24 * 3600 // seconds
	maxStdinBehind = 64 << 10       // of a command in the background: what a pipe holds
	defaultUser    = "user"
)

// parseExec makes a command of a request. The forms of cmd: a string alone is a
// line for /bin/sh, which every image has; a string with args, or a list, is
// run directly.
func parseExec(req api.Exec) (guest.Command, error) {
	argv, err := parseCmd(req)
	if err != nil {
		return guest.Command{}, err
	}
	size := 0
	for _, a := range argv {
		size += len(a) + 1
		if strings.ContainsRune(a, 0) {
			return guest.Command{}, invalid("cmd", "cmd and args may not contain NUL")
		}
	}
	if size > maxCommand {
		return guest.Command{}, api.Errorf(api.CodeTooLarge, "the command has %d bytes and may have %d", size, maxCommand).
			With("field", "cmd").WithHint("Write the program to a file through the fs endpoint and run that.")
	}
	if err := checkEnv(req.Env); err != nil {
		return guest.Command{}, err
	}
	if err := checkExec(req); err != nil {
		return guest.Command{}, err
	}
	user := req.User
	if user == "" {
		user = defaultUser
	}
	return guest.Command{
		Cmd: argv[0], Args: argv[1:], Env: req.Env, Cwd: req.Cwd, User: user,
		Tag:     req.Tag,
		Stdin:   req.Stdin != nil || req.KeepStdin,
		Timeout: time.Duration(req.TimeoutSeconds * float64(time.Second)),
	}, nil
}

// parseCmd gives program and arguments.
func parseCmd(req api.Exec) ([]string, error) {
	raw := bytes.TrimSpace(req.Cmd)
	if len(raw) == 0 || bytes.Equal(raw, []byte("null")) {
		return nil, invalid("cmd", "cmd is missing")
	}
	if len(raw) > 8*maxCommand { // the longest JSON of a command that is not too long
		return nil, api.Errorf(api.CodeTooLarge, "the command may have %d bytes", maxCommand).With("field", "cmd")
	}
	switch raw[0] {
	case '"':
		var line string
		if err := json.Unmarshal(raw, &line); err != nil {
			return nil, invalid("cmd", "cmd is not valid JSON")
		}
		if strings.TrimSpace(line) == "" {
			return nil, invalid("cmd", "cmd is empty")
		}
		if len(req.Args) > 0 {
			return append([]string{line}, req.Args...), nil
		}
		return []string{"/bin/sh", "-c", line}, nil
	case '[':
		var list []*string
		if err := json.Unmarshal(raw, &list); err != nil {
			return nil, invalid("cmd", "cmd must be a string or a list of strings")
		}
		argv := make([]string, 0, len(list)+len(req.Args))
		for _, a := range list {
			if a == nil {
				return nil, invalid("cmd", "cmd must be a string or a list of strings")
			}
			argv = append(argv, *a)
		}
		if len(argv) == 0 || argv[0] == "" {
			return nil, invalid("cmd", "cmd is empty")
		}
		return append(argv, req.Args...), nil
	}
	return nil, invalid("cmd", "cmd must be a string or a list of strings")
}

func checkExec(req api.Exec) error {
	if len(req.Cwd) > maxCwd || strings.ContainsRune(req.Cwd, 0) {
		return invalid("cwd", "cwd must be a path of at most %d bytes without NUL", maxCwd)
	}
	if err := checkName("user", req.User); err != nil {
		return err
	}
	if err := checkTag(req.Tag); err != nil {
		return err
	}
	if t := req.TimeoutSeconds; math.IsNaN(t) || t < 0 || t > maxTimeout {
		return invalid("timeout_seconds", "timeout_seconds must be between 0 and %d", maxTimeout)
	}
	if req.Stdin == nil {
		return nil
	}
	if len(*req.Stdin) > maxStdin {
		return api.Errorf(api.CodeTooLarge, "stdin has %d bytes and may have %d", len(*req.Stdin), maxStdin).With("field", "stdin")
	}
	if req.Background && len(*req.Stdin) > maxStdinBehind {
		return api.Errorf(api.CodeTooLarge, "stdin of a command in the background may have %d bytes", maxStdinBehind).With("field", "stdin")
	}
	return nil
}
