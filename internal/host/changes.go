package host

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"time"
)

// Changes implements Host. The channel is closed when ctx ends and also when the
// connection to the host is lost or silent: what happened meanwhile is not known
// then, so the caller lists the sandboxes after it has asked for changes again.
func (c *Client) Changes(ctx context.Context) (<-chan Change, error) {
	ctx, cancel := context.WithCancel(ctx)
	key, ok := c.track(cancel)
	if !ok {
		cancel()
		return nil, c.failure(ctx, http.ErrServerClosed)
	}
	resp, err := c.send(ctx, http.MethodGet, "changes", nil, nil)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = decodeAnswer(resp, nil)
		resp.Body.Close()
	}
	if err != nil {
		cancel()
		c.untrack(key)
		return nil, err
	}
	out := make(chan Change)
	go func() {
		defer c.untrack(key)
		defer close(out)
		defer resp.Body.Close()
		defer cancel()
		readChanges(ctx, cancel, resp, out)
	}()
	return out, nil
}

func readChanges(ctx context.Context, cancel context.CancelFunc, resp *http.Response, out chan<- Change) {
	silent := time.AfterFunc(staleAfter, cancel)
	defer silent.Stop()
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, maxLine)
	for lines.Scan() {
		var line changeLine
		if json.Unmarshal(lines.Bytes(), &line) != nil {
			return
		}
		// A reader that is slow is not a host that is silent.
		silent.Stop()
		if line.Change != nil {
			select {
			case out <- *line.Change:
			case <-ctx.Done():
				return
			}
		}
		silent.Reset(staleAfter)
	}
}

// track registers a stream, so that Close can end it and wait for it.
func (c *Client) track(cancel context.CancelFunc) (int, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return 0, false
	}
	c.next++
	c.cancels[c.next] = cancel
	c.streams.Add(1)
	return c.next, true
}

func (c *Client) untrack(key int) {
	c.mu.Lock()
	delete(c.cancels, key)
	c.mu.Unlock()
	c.streams.Done()
}
