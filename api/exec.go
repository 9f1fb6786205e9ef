package api

import (
	"encoding/json"
	"time"
)

// Command is what to run: a string for `sh -c`, a string with args, or a list.
type Command []string

// Exec is the body of POST /v1/sandboxes/{id}/exec and exec/stream. The
// command is cmd as a string (run by a shell), cmd with args (run directly),
// or cmd as a list (run directly).
type Exec struct {
	Cmd            json.RawMessage   `json:"cmd" doc:"Shell line as a string, or program and arguments as a list"`
	Args           []string          `json:"args,omitempty" doc:"With a string cmd: run it directly with these arguments"`
	Env            map[string]string `json:"env,omitempty"`
	Cwd            string            `json:"cwd,omitempty" doc:"Default: the user's home directory"`
	User           string            `json:"user,omitempty" doc:"Default: user"`
	Stdin          *string           `json:"stdin,omitempty" doc:"Written to the command, then closed"`
	KeepStdin      bool              `json:"keep_stdin,omitempty" doc:"Leave standard input open for processes/{pid}/stdin"`
	Tag            string            `json:"tag,omitempty" maxLength:"64" doc:"Name to find the process by, beside its number; not a number itself"`
	TimeoutSeconds float64           `json:"timeout_seconds,omitempty" minimum:"0" doc:"Kill it after this long; 0 is no limit"`
	Background     bool              `json:"background,omitempty" doc:"Answer as soon as it has started"`
}

// ExecResult is a finished command. Output beyond the limit of the buffered
// call (16 MiB a stream) is not kept and Truncated says so; the streaming
// calls have no limit.
type ExecResult struct {
	Stdout     string  `json:"stdout" doc:"Bytes that are not UTF-8 are replaced; the streaming calls give them as they are"`
	Stderr     string  `json:"stderr"`
	ExitCode   int     `json:"exit_code" doc:"128+n after signal n"`
	Signal     string  `json:"signal,omitempty" example:"SIGKILL"`
	DurationMS float64 `json:"duration_ms"`
	PID        int     `json:"pid,omitempty"`
	TimedOut   bool    `json:"timed_out,omitempty"`
	Truncated  bool    `json:"truncated,omitempty"`
}

// ExecEvent is one event of exec/stream (SSE, the event name is the type), of
// processes/{pid}, and of exec/ws (one JSON text message each).
type ExecEvent struct {
	Type    string      `json:"type" enum:"start,stdout,stderr,exit,error"`
	PID     int         `json:"pid,omitempty"`
	Skipped int64       `json:"skipped,omitempty" doc:"With start of a replay: bytes of earlier output that are not kept"`
	Data    []byte      `json:"data,omitempty" doc:"Output, base64"`
	Result  *ExecResult `json:"result,omitempty" doc:"With exit; stdout and stderr are empty"`
	Error   *Error      `json:"error,omitempty"`
}

// ExecInput is a text message from the client on exec/ws. The first one is
// start, or attach for a process that runs already; a binary message is standard
// input too.
type ExecInput struct {
	Type   string     `json:"type" enum:"start,attach,stdin,close_stdin,signal"`
	Exec   *Exec      `json:"exec,omitempty"`
	PID    int        `json:"pid,omitempty" doc:"With attach"`
	Data   []byte     `json:"data,omitempty" doc:"Standard input, base64"`
	Signal SignalName `json:"signal,omitempty" doc:"By name or number"`
}

// FileInfo is one entry of the sandbox's filesystem.
type FileInfo struct {
	Name     string    `json:"name"`
	Path     string    `json:"path"`
	Type     string    `json:"type" enum:"file,directory,symlink,other"`
	Size     int64     `json:"size"`
	Mode     string    `json:"mode" example:"-rw-r--r--"`
	Owner    string    `json:"owner"`
	Group    string    `json:"group"`
	Modified time.Time `json:"modified"`
	Target   string    `json:"target,omitempty" doc:"Where a symlink points"`
}

// DirList is the entries of a directory.
type DirList struct {
	Path    string     `json:"path"`
	Entries []FileInfo `json:"entries"`
}
