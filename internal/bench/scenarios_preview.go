package bench

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/client"
)

const (
	previewPort  = 8000
	previewBytes = 100 << 20 // of one large answer
	smallAsks    = 10        // small requests of each kind in one round
)

// previewProgram answers GET /N with N bytes, over connections that are kept.
const previewProgram = `
import http.server
block = bytes(1 << 20)
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = 1 << 16
    disable_nagle_algorithm = True
    def do_GET(self):
        left = int(self.path[1:])
        self.send_response(200); self.send_header("Content-Length", str(left)); self.end_headers(); self.wfile.flush()
        while left > 0:
            self.connection.sendall(block[:left]); left -= min(left, len(block))
    def log_message(self, *_): pass
http.server.ThreadingHTTPServer(("0.0.0.0", 8000), Handler).serve_forever()
`

// asker asks what listens in a sandbox, by one of two ways.
type asker struct {
	http *http.Client
	url  string
	host string
}

// openPreviews measures what the way through the server adds to a request, and
// how much of the bytes gets through, beside the same without it, which only this
// very machine can go. The requests of both ways take turns.
func openPreviews(ctx context.Context, t *target) (*session, error) {
	sb, err := t.create(ctx, api.CreateSandbox{})
	if err != nil {
		return nil, err
	}
	preview, direct, err := t.askers(ctx, sb)
	if err != nil {
		return nil, err
	}
	s := &session{rounds: t.some(20), warm: 2}
	through, small := s.row("small request to a preview", "ms"), s.row("the same without the server", "ms")
	adds := s.row("what the server adds", "ms").aim(0.5, 0)
	rate, plain := s.row("100 MiB from a preview", "MB/s"), s.row("the same without the server", "MB/s")
	share := s.row("of what it is without the server", "%")
	s.round = func(ctx context.Context) error {
		for range smallAsks {
			a, err := preview.ask(ctx, 100)
			if err != nil {
				return err
			}
			through.took(a)
			if direct == nil {
				continue
			}
			b, err := direct.ask(ctx, 100)
			if err != nil {
				return err
			}
			small.took(b)
			adds.add(milliseconds(a) - milliseconds(b))
		}
		a, err := preview.rate(ctx)
		if err != nil {
			return err
		}
		rate.add(a)
		if direct == nil {
			return nil
		}
		b, err := direct.rate(ctx)
		if err != nil {
			return err
		}
		plain.add(b)
		share.add(100 * a / b)
		return nil
	}
	s.end = func(context.Context) error {
		preview.http.CloseIdleConnections()
		if direct != nil {
			direct.http.CloseIdleConnections()
		}
		return nil
	}
	return s, nil
}

// askers starts the program in a sandbox and waits until it answers. direct is nil
// where the server is another machine.
func (t *target) askers(ctx context.Context, sb *client.Sandbox) (preview, direct *asker, err error) {
	if err := sb.WriteFile(ctx, "/home/user/preview.py", []byte(previewProgram)); err != nil {
		return nil, nil, err
	}
	if _, err := sb.ExecWith(ctx, api.Exec{Cmd: client.Argv("python3", "/home/user/preview.py"), Background: true}); err != nil {
		return nil, nil, err
	}
	at, err := sb.Preview(ctx, previewPort)
	if err != nil {
		return nil, nil, err
	}
	u, err := url.Parse(at.URL)
	if err != nil {
		return nil, nil, err
	}
	// The name may not be known here: the server is where its API is.
	preview = &asker{http: &http.Client{Transport: &http.Transport{}}, url: t.BaseURL() + "/", host: u.Host}
	if t.local() {
		direct = &asker{http: &http.Client{Transport: &http.Transport{}}, url: "http://" + net.JoinHostPort(sb.GuestIP, strconv.Itoa(previewPort)) + "/"}
	}
	for deadline := time.Now().Add(callLimit); ; {
		if _, err = preview.ask(ctx, 1); err == nil {
			return preview, direct, nil
		}
		if time.Now().After(deadline) || !pause(ctx, rest) {
			return nil, nil, fmt.Errorf("the server in the sandbox does not answer: %w", err)
		}
	}
}

// ask reads an answer of so many bytes and says how long that took.
func (a *asker) ask(ctx context.Context, size int) (time.Duration, error) {
	from := time.Now()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, a.url+strconv.Itoa(size), nil)
	if err != nil {
		return 0, err
	}
	if a.host != "" {
		r.Host = a.host
	}
	resp, err := a.http.Do(r)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	n, err := io.Copy(io.Discard, resp.Body)
	if err == nil && (resp.StatusCode != http.StatusOK || n != int64(size)) {
		err = fmt.Errorf("status %d, %d bytes of %d", resp.StatusCode, n, size)
	}
	return time.Since(from), err
}

// rate reads a large answer and gives megabytes a second.
func (a *asker) rate(ctx context.Context) (float64, error) {
	took, err := a.ask(ctx, previewBytes)
	return previewBytes / 1e6 / took.Seconds(), err
}
