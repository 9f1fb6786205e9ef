package control

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/auth"
	"github.com/pandastack/pandastack/internal/guest"
)

// maxTag bounds the name of a process.
const maxTag = 64

// shells are what a terminal runs unless told otherwise: the first that exists.
var shells = [][]string{{"/bin/bash", "-l"}, {"/bin/sh", "-l"}}

// StartTerminal starts a command in a terminal; without a cmd the user's shell.
// When ctx ends, the process's events end and the process goes on.
func (s *Service) StartTerminal(ctx context.Context, who auth.Identity, id string, req api.Exec, size guest.Size) (*guest.Process, *guest.Client, error) {
	tries := []json.RawMessage{req.Cmd}
	if len(req.Cmd) == 0 {
		tries = tries[:0]
		for _, argv := range shells {
			raw, _ := json.Marshal(argv) // strings always encode
			tries = append(tries, raw)
		}
	}
	var client *guest.Client
	var failure error
	for _, raw := range tries {
		req.Cmd = raw
		cmd, err := parseExec(req)
		if err != nil {
			return nil, nil, err
		}
		if client == nil {
			if client, err = s.Guest(ctx, who, id); err != nil {
				return nil, nil, err
			}
		}
		cmd.PTY, cmd.Stdin = &size, true
		proc, _, err := startDetached(ctx, client, cmd)
		if err == nil {
			return proc, client, nil
		}
		failure = err
		var e *api.Error
		if !errors.As(err, &e) || e.Details["errno"] != "ENOENT" {
			break
		}
	}
	return nil, nil, failure
}

// checkTag refuses names of processes that could not be told from numbers, or
// not be written in a path.
func checkTag(tag string) error {
	if tag == "" {
		return nil
	}
	odd := func(r rune) bool { return unicode.IsControl(r) || unicode.IsSpace(r) || r == '/' }
	if len(tag) > maxTag || !utf8.ValidString(tag) || strings.ContainsFunc(tag, odd) || tag == "." || tag == ".." {
		return invalid("tag", "tag must be at most %d bytes of text without spaces and slashes", maxTag)
	}
	if _, err := strconv.Atoi(tag); err == nil {
		return invalid("tag", "tag may not be a number: processes have numbers of their own")
	}
	return nil
}
