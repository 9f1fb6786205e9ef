package guest

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"time"

	"github.com/pandastack/pandastack/api"
)

// GitRun is one run of git in a sandbox.
type GitRun struct {
	Args      []string          `json:"args"`
	Dir       string            `json:"dir,omitempty"`
	User      string            `json:"user,omitempty"`
	Env       map[string]string `json:"env,omitempty"`
	TimeoutMS int64             `json:"timeoutMs"`
	Auth      *GitSecret        `json:"auth,omitempty"`
}

// GitSecret is what git may ask for, once, for one protocol and host.
type GitSecret struct {
	Protocol string `json:"protocol"`
	Host     string `json:"host"`
	Username string `json:"username"`
	Password string `json:"password"`
}

// GitFrame is one line of the answer to a run: a piece of output, or the end.
type GitFrame struct {
	Out      []byte `json:"out,omitempty"`
	Err      []byte `json:"err,omitempty"`
	Done     bool   `json:"done,omitempty"`
	Exit     int    `json:"exit,omitempty"`
	TimedOut bool   `json:"timedOut,omitempty"`
}

// GitOutput is how a run of git ended.
type GitOutput struct {
	Stdout    []byte
	Stderr    []byte // its end
	Exit      int
	TimedOut  bool
	Truncated bool // there was more of Stdout
}

// Bounds of what is kept of a run of git.
const (
	maxGitStdout = 4 << 20
	maxGitStderr = 16 << 10
)

// Git runs git and waits for it. The end of ctx kills it.
func (c *Client) Git(ctx context.Context, run GitRun) (GitOutput, error) {
	var out GitOutput
	ctx, cancel := context.WithTimeout(ctx, time.Duration(run.TimeoutMS)*time.Millisecond+timeoutGrace)
	defer cancel()
	data, err := json.Marshal(run)
	if err != nil {
		return out, api.Wrap(api.CodeInvalidRequest, err, "the request cannot be encoded")
	}
	resp, err := c.do(ctx, http.MethodPost, "/pandastack/git", bytes.NewReader(data), http.Header{"Content-Type": {"application/json"}})
	if err != nil {
		if api.CodeOf(err) == api.CodeFileNotFound || api.CodeOf(err) == api.CodeFileInvalidPath {
			return out, api.Wrap(api.CodeProcessInvalid, err, "git cannot be run: %s", api.AsError(err).Message)
		}
		return out, err
	}
	defer resp.Body.Close()
	dec := json.NewDecoder(resp.Body)
	for {
		var f GitFrame
		if err := dec.Decode(&f); err == io.EOF {
			return out, api.Errorf(api.CodeSandboxDied, "the sandbox's answer broke off")
		} else if err != nil {
			return out, transportError(ctx, err)
		}
		if f.Done {
			out.Exit, out.TimedOut = f.Exit, f.TimedOut
			_, _ = io.CopyN(io.Discard, resp.Body, 64) // so that the connection can be used again
			return out, nil
		}
		out.take(f)
	}
}

// take keeps the start of standard output and the end of standard error.
func (o *GitOutput) take(f GitFrame) {
	room := max(0, maxGitStdout-len(o.Stdout))
	o.Truncated = o.Truncated || len(f.Out) > room
	o.Stdout = append(o.Stdout, f.Out[:min(room, len(f.Out))]...)
	o.Stderr = append(o.Stderr, f.Err...)
	if over := len(o.Stderr) - maxGitStderr; over > 0 {
		o.Stderr = append(o.Stderr[:0], o.Stderr[over:]...)
	}
}
