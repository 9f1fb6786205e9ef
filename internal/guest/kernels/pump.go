package kernels

import (
	"errors"
	"os"
	"syscall"
	"time"
	"unicode/utf8"
)

const (
	pumpChunk = 32 << 10
	drainMax  = 1 << 20 // read for one sync, if something goes on writing
)

// pump reads one output of a kernel and makes events of it.
type pump struct {
	file   *os.File
	kind   string
	kernel *kernel
	asked  chan chan struct{} // sync requests; closed in answer
	ended  chan struct{}
	rest   []byte // bytes of a character that is not whole yet
}

func newPump(f *os.File, kind string, k *kernel) *pump {
	return &pump{file: f, kind: kind, kernel: k, asked: make(chan chan struct{}, 1), ended: make(chan struct{})}
}

// run reads until the output ends or the kernel does.
func (p *pump) run() {
	defer close(p.ended)
	buf := make([]byte, pumpChunk)
	for {
		n, err := p.file.Read(buf)
		p.take(buf[:n])
		if err == nil {
			continue
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			p.flush()
			return
		}
		// What is there already counts, whether the kernel has ended or an
		// execution has.
		done := isDone(p.kernel.proc.Done)
		if !done {
			_ = p.file.SetReadDeadline(time.Time{}) // fails only on a closed file
		}
		p.takeAll(buf)
		select {
		case answer := <-p.asked:
			close(answer)
		default:
		}
		if done || isDone(p.kernel.proc.Done) {
			return
		}
	}
}

// sync waits until the pump has read what is there.
func (p *pump) sync() {
	answer := make(chan struct{})
	select {
	case p.asked <- answer:
	case <-p.ended:
		return
	}
	_ = p.file.SetReadDeadline(time.Unix(1, 0)) // on a closed file the pump has ended
	select {
	case <-answer:
	case <-p.ended:
	}
}

// takeAll reads without waiting, until there is nothing.
func (p *pump) takeAll(buf []byte) {
	defer p.flush()
	raw, err := p.file.SyscallConn()
	if err != nil {
		return
	}
	for total := 0; total < drainMax; {
		n, rerr := 0, error(nil)
		err := raw.Control(func(fd uintptr) {
			for n, rerr = syscall.Read(int(fd), buf); rerr == syscall.EINTR; {
				n, rerr = syscall.Read(int(fd), buf)
			}
		})
		if err != nil || rerr != nil || n <= 0 {
			return
		}
		p.take(buf[:n])
		total += n
	}
}

// take makes an event of what was read, but for the beginning of a character.
func (p *pump) take(data []byte) {
	if len(data) == 0 {
		return
	}
	p.rest = append(p.rest, data...)
	whole := len(p.rest)
	for i := 1; i <= min(utf8.UTFMax-1, len(p.rest)); i++ {
		if b := p.rest[len(p.rest)-i]; utf8.RuneStart(b) {
			if !utf8.FullRune(p.rest[len(p.rest)-i:]) {
				whole -= i
			}
			break
		}
	}
	p.send(whole)
}

func (p *pump) flush() { p.send(len(p.rest)) }

func (p *pump) send(n int) {
	if n == 0 {
		return
	}
	p.kernel.deliver(textEvent(p.kind, p.rest[:n], time.Now()))
	p.rest = append(p.rest[:0], p.rest[n:]...)
}
