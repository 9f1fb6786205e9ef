package guest

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/pandastack/pandastack/api"
)

// maxProcessList bounds the list of processes as it is sent.
const maxProcessList = 16 << 20

// maxSignal is the last of the real-time signals.
const maxSignal = 64

// Processes describes the processes that were started through the daemon and run,
// with all also those that ended within the last hour.
func (c *Client) Processes(ctx context.Context, all bool) ([]api.Process, error) {
	target := "/processes"
	if all {
		target += "?all=1"
	}
	resp, err := c.doFor(ctx, areaProcess, http.MethodGet, target, nil, nil)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxProcessList+1))
	if err != nil {
		return nil, transportError(ctx, err)
	}
	list, ok := parseProcesses(data)
	if !ok {
		return nil, api.Errorf(api.CodeInternal, "the sandbox's daemon gave an answer that makes no sense")
	}
	return list, nil
}

// parseProcesses reads the body of /processes.
func parseProcesses(data []byte) ([]api.Process, bool) {
	var list api.ProcessList
	if len(data) > maxProcessList || json.Unmarshal(data, &list) != nil {
		return nil, false
	}
	out := make([]api.Process, 0, len(list.Processes))
	for _, p := range list.Processes {
		if p.PID <= 0 || !representable(p.StartedAt) || p.EndedAt != nil && !representable(*p.EndedAt) {
			return nil, false
		}
		if p.Args == nil {
			p.Args = []string{}
		}
		out = append(out, p)
	}
	return out, true
}

// representable reports whether JSON can carry a time.
func representable(t time.Time) bool {
	_, err := t.MarshalJSON()
	return err == nil
}

// Lookup describes the process that a name stands for: its number, or a tag. Of
// several with one tag it is the last that runs, or else the last.
func (c *Client) Lookup(ctx context.Context, name string) (api.Process, error) {
	list, err := c.Processes(ctx, true)
	if err != nil {
		return api.Process{}, err
	}
	number, err := strconv.Atoi(name)
	for _, p := range slices.Backward(list) { // running ones come last
		if err == nil && p.PID == number || err != nil && p.Tag == name {
			return p, nil
		}
	}
	return api.Process{}, api.Errorf(api.CodeProcessNotFound, "there is no process %q", clean(name))
}

// Find is Lookup for the number alone. A number is not looked up.
func (c *Client) Find(ctx context.Context, name string) (int, error) {
	if n, err := strconv.ParseInt(name, 10, 32); err == nil && n > 0 {
		return int(n), nil
	}
	p, err := c.Lookup(ctx, name)
	return p.PID, err
}

// Feed copies r to the standard input or the terminal of a process, at the pace at
// which that reads, and returns when the process has been given all of it, or has
// ended, or reads no more; taken is how many bytes it was given. With end, it is
// given end of file after that. A process that is not known, because it never ran
// or ended long ago, is process.not_found. A Read that is under way when the
// process ends is not waited for; the caller makes it return.
func (c *Client) Feed(ctx context.Context, pid int, r io.Reader, end bool) (taken int64, err error) {
	if _, err := selector(pid); err != nil {
		return 0, err
	}
	q := url.Values{"pid": {strconv.Itoa(pid)}}
	if end {
		q.Set("close", "1")
	}
	resp, err := c.doFor(ctx, areaProcess, http.MethodPost, "/processes/stdin?"+q.Encode(), r, nil)
	if err != nil {
		return 0, err
	}
	taken, _ = strconv.ParseInt(resp.Header.Get("X-Stdin-Taken"), 10, 64) // what is no number is 0
	return max(taken, 0), finish(resp)
}

// ParseSignal reads a signal: its name with or without SIG, or its number.
func ParseSignal(name string) (syscall.Signal, bool) {
	if n, err := strconv.Atoi(name); err == nil {
		return syscall.Signal(n), n >= 1 && n <= maxSignal
	}
	full := strings.ToUpper(name)
	if !strings.HasPrefix(full, "SIG") {
		full = "SIG" + full
	}
	for i, s := range signals {
		if s.name == full {
			return syscall.Signal(i + 1), true
		}
	}
	return 0, false
}
