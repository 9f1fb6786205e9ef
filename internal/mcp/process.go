package mcp

import (
	"context"
	"fmt"
	"strings"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/pandastack/pandastack/api"
)

type processesInput struct {
	All bool `json:"all,omitempty" jsonschema:"Also those that ended within the last hour"`
}

type processesHere struct {
	SandboxID string `json:"sandbox_id" jsonschema:"Id of the sandbox"`
	processesInput
}

func (in processesHere) parts() (string, processesInput) { return in.SandboxID, in.processesInput }

type processName struct {
	Process string `json:"process" jsonschema:"Number of the process, or its tag"`
}

type processNameHere struct {
	SandboxID string `json:"sandbox_id" jsonschema:"Id of the sandbox"`
	processName
}

func (in processNameHere) parts() (string, processName) { return in.SandboxID, in.processName }

type processOutput struct {
	PID       int    `json:"pid"`
	Tag       string `json:"tag,omitempty"`
	Command   string `json:"command" jsonschema:"Program and arguments, of a long line the beginning"`
	User      string `json:"user"`
	StartedAt string `json:"started_at"`
	Running   bool   `json:"running"`
	ExitCode  *int   `json:"exit_code,omitempty"`
	Signal    string `json:"signal,omitempty" jsonschema:"Signal that ended it"`
}

type processesOutput struct {
	Processes []processOutput `json:"processes"`
	Omitted   int             `json:"omitted_processes,omitempty"`
}

type killedOutput struct {
	Process string `json:"process"`
	Killed  bool   `json:"killed"`
}

// addProcesses adds the tools for what runs in the background.
func (t *toolbox) addProcesses() {
	addIn[processesHere](t, &sdk.Tool{
		Name: "list_processes", Title: "List processes",
		Description: `List the processes of the sandbox that were started through the platform, such as commands in the background, at most 200 of them. What those started themselves is not among them: ps in a command shows that.`,
		Annotations: &sdk.ToolAnnotations{ReadOnlyHint: true, OpenWorldHint: no()},
	}, listProcesses)
	addIn[processNameHere](t, &sdk.Tool{
		Name: "kill_process", Title: "Kill a process",
		Description: `End a process of list_processes and all that it started, at once. For a gentler end send a signal with kill in a command.`,
		Annotations: &sdk.ToolAnnotations{DestructiveHint: yes(), OpenWorldHint: no()},
	}, func(ctx context.Context, c Caller, id string, in processName) (killedOutput, string, error) {
		if err := c.Platform.Kill(ctx, id, in.Process); err != nil {
			return killedOutput{}, "", err
		}
		return killedOutput{in.Process, true}, "killed " + in.Process, nil
	})
}

func listProcesses(ctx context.Context, c Caller, id string, in processesInput) (processesOutput, string, error) {
	list, err := c.Platform.Processes(ctx, id, in.All)
	if err != nil {
		return processesOutput{}, "", err
	}
	// Those that run are at the end of the list.
	out := processesOutput{Processes: []processOutput{}, Omitted: max(len(list)-maxListed, 0)}
	var text strings.Builder
	for _, p := range list[out.Omitted:] {
		o := processOf(p)
		out.Processes = append(out.Processes, o)
		fmt.Fprintln(&text, o)
	}
	return out, endList(&text, len(list), out.Omitted), nil
}

func processOf(p api.Process) processOutput {
	return processOutput{
		PID: p.PID, Tag: clipValid(p.Tag), User: clipValid(p.User), Command: clipValid(strings.Join(append([]string{p.Cmd}, p.Args...), " ")),
		StartedAt: p.StartedAt.UTC().Format(time.RFC3339), Running: p.EndedAt == nil, ExitCode: p.ExitCode, Signal: clipValid(p.Signal),
	}
}

// String is one line about a process.
func (o processOutput) String() string {
	state := "running"
	switch {
	case o.Signal != "":
		state = "ended by " + o.Signal
	case o.ExitCode != nil:
		state = fmt.Sprintf("ended with exit code %d", *o.ExitCode)
	case !o.Running:
		state = "ended"
	}
	line := fmt.Sprintf("%d %s, %s: %s", o.PID, state, o.User, o.Command)
	if o.Tag != "" {
		line += " (" + o.Tag + ")"
	}
	return line
}
