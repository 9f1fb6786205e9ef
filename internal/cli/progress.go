package cli

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

const (
	barWidth     = 24
	barInterval  = 100 * time.Millisecond // between two drawings of the same step
	lineInterval = 10 * time.Second       // between two lines about the same step elsewhere
)

// progress shows how far something is: a bar on a terminal, a line for each
// step elsewhere. A nil one shows nothing.
type progress struct {
	w        io.Writer
	terminal bool

	mu    sync.Mutex
	step  string
	drawn time.Time
}

func (a *app) newProgress() *progress {
	return &progress{w: a.stderr, terminal: isTerminal(a.stderr)}
}

// show draws the state: a step in words, and a fraction of 1 that is done, or
// less than 0 when that is not known.
func (p *progress) show(step string, fraction float64) { p.draw(step, step, fraction) }

// draw is show with a text that may change within a step.
func (p *progress) draw(step, text string, fraction float64) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	interval := lineInterval
	if p.terminal {
		interval = barInterval
	}
	if step == p.step && time.Since(p.drawn) < interval {
		return
	}
	p.step, p.drawn = step, time.Now()
	switch {
	case !p.terminal && fraction < 0:
		fmt.Fprintf(p.w, "%s\n", printable(text))
	case !p.terminal:
		fmt.Fprintf(p.w, "%3.0f%% %s\n", 100*fraction, printable(text))
	case fraction < 0:
		fmt.Fprintf(p.w, "\r\x1b[K%s", clip(printable(text)))
	default:
		full := min(barWidth, int(fraction*barWidth))
		bar := strings.Repeat("#", full) + strings.Repeat("-", barWidth-full)
		fmt.Fprintf(p.w, "\r\x1b[K[%s] %3.0f%% %s", bar, 100*fraction, clip(printable(text)))
	}
}

// clip keeps a line of progress on one line of any terminal in use.
func clip(s string) string {
	if r := []rune(s); len(r) > 44 {
		return string(r[:41]) + "..."
	}
	return s
}

// end removes the bar.
func (p *progress) end() {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.terminal && !p.drawn.IsZero() {
		fmt.Fprint(p.w, "\r\x1b[K")
	}
}

// reader counts what is read of r and shows it as a part of total bytes, or
// without a bar when total is negative.
func (p *progress) reader(r io.Reader, name string, total int64) io.Reader {
	if p == nil || !p.terminal {
		return r
	}
	return &progressReader{r: r, p: p, name: name, total: total}
}

// readerFrom is reader for what goes on after so many bytes.
func (p *progress) readerFrom(r io.Reader, name string, done, total int64) io.Reader {
	out := p.reader(r, name, total)
	if counting, ok := out.(*progressReader); ok {
		counting.read = done
	}
	return out
}

type progressReader struct {
	r           io.Reader
	p           *progress
	name        string
	read, total int64
}

func (r *progressReader) Read(b []byte) (int, error) {
	n, err := r.r.Read(b)
	r.read += int64(n)
	r.p.bytes(r.name, r.read, r.total)
	return n, err
}

// writer counts what is written to w, as reader does.
func (p *progress) writer(w io.Writer, name string, total int64) io.Writer {
	if p == nil || !p.terminal {
		return w
	}
	return &progressWriter{w: w, p: p, name: name, total: total}
}

type progressWriter struct {
	w              io.Writer
	p              *progress
	name           string
	written, total int64
}

func (w *progressWriter) Write(b []byte) (int, error) {
	n, err := w.w.Write(b)
	w.written += int64(n)
	w.p.bytes(w.name, w.written, w.total)
	return n, err
}

// bytes shows how many of total bytes are done. Of a total that turns out too
// small, as an estimate may, no part can be told.
func (p *progress) bytes(name string, n, total int64) {
	if total > 0 && n <= total {
		p.show(name, float64(n)/float64(total))
		return
	}
	p.draw(name, name+" "+bytesText(n), -1)
}
