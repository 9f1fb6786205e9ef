package api

import "time"

// Process is a process that was started through the API, or a client of the
// sandbox's daemon, and all that is known of it.
type Process struct {
	PID       int        `json:"pid" doc:"In the sandbox"`
	Tag       string     `json:"tag,omitempty" doc:"Name given at its start"`
	Cmd       string     `json:"cmd"`
	Args      []string   `json:"args"`
	ArgsCut   bool       `json:"args_cut,omitempty" doc:"More arguments follow than are shown"`
	Cwd       string     `json:"cwd" doc:"Where it was started"`
	User      string     `json:"user"`
	Terminal  bool       `json:"terminal" doc:"It runs in a terminal"`
	StartedAt time.Time  `json:"started_at"`
	EndedAt   *time.Time `json:"ended_at,omitempty"`
	ExitCode  *int       `json:"exit_code,omitempty" doc:"Once it has ended; 128+n after signal n"`
	Signal    string     `json:"signal,omitempty" doc:"That ended it" example:"SIGKILL"`
}

// ProcessList is the answer of GET /v1/sandboxes/{id}/processes.
type ProcessList struct {
	Processes []Process `json:"processes" doc:"Running ones in order of start, after those that have ended"`
}

// SignalName is a signal by name, with or without SIG, or by number.
type SignalName string

// UnmarshalJSON takes a string or a number.
func (s *SignalName) UnmarshalJSON(raw []byte) error {
	if len(raw) > 1 && raw[0] == '"' && raw[len(raw)-1] == '"' {
		raw = raw[1 : len(raw)-1]
	}
	*s = SignalName(raw)
	return nil
}

// SendSignal is the body of POST /v1/sandboxes/{id}/processes/{pid}/signal.
type SendSignal struct {
	Signal SignalName `json:"signal"`
	Tree   bool       `json:"tree,omitempty" doc:"Also to all that descends from the process"`
}

// TerminalMessage is a text message of exec/pty. The client sends resize; the
// server sends exit, or error, before it closes. All else is the terminal's bytes.
type TerminalMessage struct {
	Type   string `json:"type" enum:"resize,exit,error"`
	Rows   int    `json:"rows,omitempty"`
	Cols   int    `json:"cols,omitempty"`
	Code   *int   `json:"code,omitempty" doc:"With exit; 128+n after signal n"`
	Signal string `json:"signal,omitempty"`
	Error  *Error `json:"error,omitempty"`
}

// MetricsSeries is what a sandbox used over a while, as its server measured it.
// It is kept in memory for an hour, and a restart of the server begins it anew.
type MetricsSeries struct {
	SandboxID   string          `json:"sandbox_id"`
	StepSeconds float64         `json:"step_seconds"`
	Samples     []MetricsSample `json:"samples" doc:"Oldest first; none while it was asleep"`
}

// MetricsSample is one step of a series.
type MetricsSample struct {
	Time          time.Time `json:"time" doc:"End of the step"`
	CPUPercent    float64   `json:"cpu_percent" doc:"During the step, 100 is one CPU"`
	MemoryBytes   int64     `json:"memory_bytes" doc:"Largest of the step"`
	MemoryLimit   int64     `json:"memory_limit_bytes"`
	DiskUsedBytes int64     `json:"disk_used_bytes"`
	RxBytes       int64     `json:"rx_bytes" doc:"Received during the step"`
	TxBytes       int64     `json:"tx_bytes" doc:"Sent during the step"`
}
