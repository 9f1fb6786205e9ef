package guest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strconv"

	"github.com/pandastack/pandastack/api"
)

// maxLogRecord bounds one record of the log as it is sent.
const maxLogRecord = 64 << 10

// LogOptions chooses lines of the log.
type LogOptions struct {
	Tail   int    // at most so many of what is there already; 0 is all
	Stream string // stdout, stderr, or both (also when empty)
	Follow bool   // go on with what comes
}

// LogStream is lines of the log. Recv is for one goroutine.
type LogStream struct {
	ctx  context.Context
	body io.ReadCloser
	r    *bufio.Reader
}

// Logs reads the last output of all processes of the sandbox.
func (c *Client) Logs(ctx context.Context, o LogOptions) (*LogStream, error) {
	q := url.Values{}
	if o.Tail > 0 {
		q.Set("tail", strconv.Itoa(o.Tail))
	}
	switch o.Stream {
	case "", "both":
	case "stdout", "stderr":
		q.Set("stream", o.Stream)
	default:
		return nil, api.Errorf(api.CodeInvalidRequest, "stream is stdout, stderr or both")
	}
	if o.Follow {
		q.Set("follow", "1")
	}
	resp, err := c.do(ctx, http.MethodGet, "/logs?"+q.Encode(), nil, nil)
	if err != nil {
		return nil, err
	}
	return &LogStream{ctx: ctx, body: resp.Body, r: bufio.NewReaderSize(resp.Body, maxLogRecord)}, nil
}

// Recv gives the next line; io.EOF after the last.
func (s *LogStream) Recv() (api.LogLine, error) {
	record, err := s.r.ReadSlice('\n')
	if err == io.EOF && len(bytes.TrimSpace(record)) == 0 {
		return api.LogLine{}, io.EOF
	}
	if err != nil && err != io.EOF && err != bufio.ErrBufferFull {
		return api.LogLine{}, transportError(s.ctx, err)
	}
	line, ok := parseLogLine(record)
	if err == bufio.ErrBufferFull || !ok {
		return api.LogLine{}, api.Errorf(api.CodeInternal, "the sandbox's daemon sent a log line that makes no sense")
	}
	return line, nil
}

// Close ends the stream.
func (s *LogStream) Close() error { return s.body.Close() }

// parseLogLine reads one record of the log.
func parseLogLine(record []byte) (api.LogLine, bool) {
	var line api.LogLine
	if json.Unmarshal(record, &line) != nil || line.PID < 0 {
		return api.LogLine{}, false
	}
	switch line.Stream {
	case "stdout", "stderr", "system":
		return line, true
	}
	return api.LogLine{}, false
}
