package kernels

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"os"
	"sync"
	"time"
)

// event is one line of a driver, or a piece of output that was read here.
type event struct {
	kind string
	line []byte // with its newline
}

// run is one execution, as its kernel sees it.
type run struct {
	events   chan event
	over     chan struct{} // closed when nobody takes events any more
	detached chan struct{} // closed when its client is another machine's
	once     sync.Once
}

// kernel is one process of a driver.
type kernel struct {
	proc   *Process
	ready  chan struct{}
	ended  chan struct{} // closed when it has ended and its outputs were read
	outs   [2]*pump
	broken error // why it was killed from here; set before ended is closed

	mu      sync.Mutex
	running *run
	globals map[string]string // the environment that it was told last
}

func newKernel(p *Process, globals map[string]string) *kernel {
	k := &kernel{proc: p, ready: make(chan struct{}), ended: make(chan struct{}), globals: globals}
	k.outs = [2]*pump{newPump(p.Stdout, "stdout", k), newPump(p.Stderr, "stderr", k)}
	var reading sync.WaitGroup
	for _, out := range k.outs {
		reading.Go(out.run)
	}
	reading.Go(k.readEvents)
	go func() {
		<-p.Done
		// What holds its outputs open beyond its end is not waited for, but for
		// the events a moment: they may be in the pipe still.
		_ = p.Events.SetReadDeadline(time.Now().Add(lastEvents)) // fails only on a closed file, as below
		for _, f := range []*os.File{p.Stdout, p.Stderr} {
			_ = f.SetReadDeadline(time.Unix(1, 0))
		}
		reading.Wait()
		for _, f := range []*os.File{p.Stdout, p.Stderr, p.Events, p.Commands} {
			f.Close()
		}
		close(k.ended)
	}()
	return k
}

// readEvents reads the driver's lines until they end.
func (k *kernel) readEvents() {
	in := bufio.NewReaderSize(k.proc.Events, 16<<10)
	for first := true; ; {
		line, err := readLine(in)
		if err != nil {
			if !errors.Is(err, io.EOF) && !errors.Is(err, os.ErrDeadlineExceeded) {
				k.broken = err
			}
			if !isDone(k.proc.Done) {
				k.proc.Kill() // it can tell nothing any more
			}
			return
		}
		var head struct {
			Type string `json:"type"`
		}
		if json.Unmarshal(line, &head) != nil {
			continue // the code wrote to the driver's descriptor
		}
		switch head.Type {
		case "ready":
			if first {
				close(k.ready)
				first = false
			}
		case "sync":
			_, _ = k.proc.Commands.Write([]byte("\n")) // it waits for this; one that has ended does not
		case "stdout", "stderr", "result", "error", "done":
			k.drain() // what children wrote before it comes before it
			k.deliver(event{head.Type, line})
		}
	}
}

var errEvent = errors.New("the kernel sent an event that is too large")

// readLine reads a line of at most MaxEvent bytes.
func readLine(in *bufio.Reader) ([]byte, error) {
	var line []byte
	for {
		part, err := in.ReadSlice('\n')
		if len(line)+len(part) > MaxEvent {
			return nil, errEvent
		}
		line = append(line, part...)
		if err == nil {
			return line, nil
		}
		if err != bufio.ErrBufferFull {
			return nil, err
		}
	}
}

// deliver hands an event to the execution that runs, and waits until it is
// taken. With none the event is dropped, and its text is logged.
func (k *kernel) deliver(e event) {
	var text struct {
		Text string `json:"text"`
	}
	if e.kind == "stdout" || e.kind == "stderr" {
		if json.Unmarshal(e.line, &text) == nil {
			k.proc.Log(e.kind == "stderr", []byte(text.Text))
		}
	}
	k.mu.Lock()
	r := k.running
	k.mu.Unlock()
	if r == nil {
		return
	}
	select {
	case r.events <- e:
	case <-r.over:
	}
}

// begin makes r the execution that events are of, and gives the changes of the
// environment since the last one.
func (k *kernel) begin(r *run, globals map[string]string) map[string]*string {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.running = r
	changes := changesOf(k.globals, globals)
	k.globals = globals
	return changes
}

func (k *kernel) finish(r *run) {
	k.mu.Lock()
	k.running = nil
	k.mu.Unlock()
	close(r.over)
}

// detach says that the client of what runs is another machine's.
func (k *kernel) detach() {
	k.mu.Lock()
	r := k.running
	k.mu.Unlock()
	if r != nil {
		r.once.Do(func() { close(r.detached) })
	}
}

func (k *kernel) interruptRunning() {
	k.mu.Lock()
	busy := k.running != nil
	k.mu.Unlock()
	if busy && isDone(k.ready) {
		k.proc.Interrupt()
	}
}

// drain waits until what was written so far to the kernel's outputs was read.
func (k *kernel) drain() {
	for _, out := range k.outs {
		out.sync()
	}
}

func isDone(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// changesOf gives what leads from one environment to another.
func changesOf(old, now map[string]string) map[string]*string {
	out := map[string]*string{}
	for name, value := range now {
		if was, ok := old[name]; !ok || was != value {
			out[name] = &value
		}
	}
	for name := range old {
		if _, ok := now[name]; !ok {
			out[name] = nil
		}
	}
	return out
}

// merged is the environment of a kernel: that of all programs, then the
// context's own.
func merged(globals, own map[string]string) map[string]string {
	out := maps.Clone(globals)
	if out == nil {
		out = map[string]string{}
	}
	maps.Copy(out, own)
	return out
}

// textEvent is output that was read here, as a driver would send it.
func textEvent(kind string, data []byte, at time.Time) event {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(struct {
		Type      string  `json:"type"`
		Text      string  `json:"text"`
		Timestamp float64 `json:"timestamp"`
	}{kind, string(data), float64(at.UnixMicro()) / 1e6})
	if err != nil {
		panic("kernels: output is plain data: " + err.Error())
	}
	return event{kind, b.Bytes()}
}
