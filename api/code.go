package api

import "errors"

// JSON is a value of any kind, as it was written.
type JSON []byte

// MarshalJSON gives the value as it is.
func (j JSON) MarshalJSON() ([]byte, error) {
	if len(j) == 0 {
		return []byte("null"), nil
	}
	return j, nil
}

// UnmarshalJSON keeps a copy of the value.
func (j *JSON) UnmarshalJSON(data []byte) error {
	if j == nil {
		return errors.New("api.JSON: UnmarshalJSON on a nil pointer")
	}
	*j = append((*j)[:0], data...)
	return nil
}

// RunCode is the body of POST /v1/sandboxes/{id}/code.
type RunCode struct {
	Code      string            `json:"code" maxLength:"8388608"`
	Language  string            `json:"language,omitempty" maxLength:"32" doc:"python, javascript, typescript or bash; default python. The code runs in the context that the sandbox shares for the language" example:"python"`
	ContextID string            `json:"context_id,omitempty" maxLength:"64" doc:"Run in this context instead; its language counts"`
	Env       map[string]string `json:"env,omitempty" doc:"For this code only"`
	TimeoutMS int64             `json:"timeout_ms,omitempty" minimum:"0" doc:"Interrupt it after this long; 0 is no limit. The context keeps its state"`
	Stream    bool              `json:"stream,omitempty" doc:"Answer with server-sent events as it runs"`
}

// CodeRun is a finished execution. That the code raised an error is no error of
// the call.
type CodeRun struct {
	Stdout         string       `json:"stdout"`
	Stderr         string       `json:"stderr"`
	Text           string       `json:"text,omitempty" doc:"Value of the last expression, as text"`
	Results        []CodeOutput `json:"results" doc:"Everything that was shown, in order"`
	Error          *CodeError   `json:"error,omitempty"`
	ExecutionCount int          `json:"execution_count" doc:"Number of this execution in its context"`
	DurationMS     float64      `json:"duration_ms"`
	TimedOut       bool         `json:"timed_out,omitempty"`
	Truncated      bool         `json:"truncated,omitempty" doc:"More came than the buffered call keeps; the streaming one has no limit"`
}

// CodeOutput is one value in every form that it was shown in.
type CodeOutput struct {
	IsMain     bool   `json:"is_main_result" doc:"It is the value of the last expression"`
	Text       string `json:"text,omitempty"`
	HTML       string `json:"html,omitempty"`
	Markdown   string `json:"markdown,omitempty"`
	SVG        string `json:"svg,omitempty"`
	PNG        string `json:"png,omitempty" doc:"Base64, as are jpeg and pdf"`
	JPEG       string `json:"jpeg,omitempty"`
	PDF        string `json:"pdf,omitempty"`
	LaTeX      string `json:"latex,omitempty"`
	JavaScript string `json:"javascript,omitempty"`
	JSON       JSON   `json:"json,omitempty"`
	Data       JSON   `json:"data,omitempty" doc:"A table, as lists by column"`
	Chart      JSON   `json:"chart,omitempty" doc:"A chart as data: type, title, elements, axes"`
	Extra      JSON   `json:"extra,omitempty" doc:"Other forms, by media type"`
}

// CodeError is an error that the code raised, or its interruption.
type CodeError struct {
	Name      string `json:"name" example:"ZeroDivisionError"`
	Value     string `json:"value" example:"division by zero"`
	Traceback string `json:"traceback"`
}

// CodeEvent is one event of an execution that is streamed (SSE, the event name is
// the type).
type CodeEvent struct {
	Type           string      `json:"type" enum:"start,stdout,stderr,result,exception,end,error"`
	ExecutionCount int         `json:"execution_count,omitempty" doc:"With start"`
	Text           string      `json:"text,omitempty" doc:"With stdout and stderr"`
	Timestamp      float64     `json:"timestamp,omitempty" doc:"With stdout and stderr: seconds since 1970"`
	Result         *CodeOutput `json:"result,omitempty"`
	Exception      *CodeError  `json:"exception,omitempty" doc:"What the code raised"`
	DurationMS     float64     `json:"duration_ms,omitempty" doc:"With end"`
	TimedOut       bool        `json:"timed_out,omitempty" doc:"With end"`
	Error          *Error      `json:"error,omitempty" doc:"Why the stream broke off; the last event"`
}

// CreateContext is the body of POST /v1/sandboxes/{id}/contexts.
type CreateContext struct {
	Language string            `json:"language,omitempty" maxLength:"32" doc:"Default: python" example:"python"`
	Cwd      string            `json:"cwd,omitempty" maxLength:"4096" doc:"Default: the user's home directory"`
	Env      map[string]string `json:"env,omitempty" doc:"Beside the sandbox's own"`
}

// CodeContext is an interpreter that keeps its state between executions.
type CodeContext struct {
	ID       string `json:"id" example:"0b0c3c0e-5d8e-4a3f-8f0e-2b1d3c4e5f60"`
	Language string `json:"language" example:"python"`
	Cwd      string `json:"cwd" example:"/home/user"`
}

// ContextList is the contexts of a sandbox, oldest first.
type ContextList struct {
	Contexts []CodeContext `json:"contexts"`
}

// Repl is the body of POST /v1/sandboxes/{id}/repl.
type Repl struct {
	Language  string `json:"language,omitempty" maxLength:"32" doc:"Default: python"`
	Code      string `json:"code" maxLength:"8388608"`
	TimeoutMS int64  `json:"timeout_ms,omitempty" minimum:"0"`
}

// ReplRun is the body of POST /v1/sandboxes/{id}/repl/sessions/{sid}/run.
type ReplRun struct {
	Code      string `json:"code" maxLength:"8388608"`
	TimeoutMS int64  `json:"timeout_ms,omitempty" minimum:"0"`
}

// SessionList is the contexts of a sandbox under their name in the REPL calls.
type SessionList struct {
	Sessions []CodeContext `json:"sessions"`
}

// CodeLanguages is what contexts can run.
type CodeLanguages struct {
	Languages []string `json:"languages" example:"[\"python\",\"javascript\"]"`
}

// Languages that contexts know. A sandbox runs those whose programs its template
// has.
var Languages = []string{"python", "javascript", "typescript", "bash"}
