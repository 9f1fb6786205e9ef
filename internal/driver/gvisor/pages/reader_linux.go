package pages

import (
	"fmt"
	"io"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/fd"
	"gvisor.dev/gvisor/pkg/sentry/memmap"
	"gvisor.dev/gvisor/pkg/sentry/state/stateio"
	"gvisor.dev/gvisor/pkg/sync"
)

// localRead is the size of reads from a file. A page that the guest waits for is
// read when the read that is under way has ended, so they are short.
const localRead = 256 << 10

// maxRanges is how many places of the memory file one read may fill.
const maxRanges = 256

// reader implements stateio.AsyncReader. Data goes through a buffer and is written
// to the memory file, not copied into a mapping of it: a page that is written
// whole need not be cleared and mapped first, which costs more than the copy.
type reader struct {
	src    source
	closed func()
	reads  chan read
	done   chan stateio.Completion
	wg     sync.WaitGroup
	files  []*fd.FD
}

type read struct {
	id    int
	off   int64
	total uint64
	dst   *fd.FD
	parts []memmap.FileRange
}

func newReader(src source, closed func()) *reader {
	r := &reader{src: src, closed: closed, reads: make(chan read, src.parallel), done: make(chan stateio.Completion, src.parallel)}
	r.wg.Add(src.parallel)
	for range src.parallel {
		go r.work()
	}
	return r
}

// Close implements stateio.AsyncReader.
func (r *reader) Close() error {
	close(r.reads)
	if c, ok := r.src.at.(io.Closer); ok {
		c.Close() // ends reads that are under way
	}
	r.wg.Wait()
	for _, f := range r.files {
		f.Close()
	}
	r.closed()
	return nil
}

// MaxReadBytes implements stateio.AsyncReader.
func (r *reader) MaxReadBytes() uint64 {
	if _, ok := r.src.at.(*remote); ok {
		return maxRead
	}
	return localRead
}

// MaxRanges implements stateio.AsyncReader.
func (r *reader) MaxRanges() int { return maxRanges }

// MaxParallel implements stateio.AsyncReader.
func (r *reader) MaxParallel() int { return r.src.parallel }

// NeedRegisterDestinationFD implements stateio.AsyncReader.
func (r *reader) NeedRegisterDestinationFD() bool { return true }

// RegisterDestinationFD implements stateio.AsyncReader.
func (r *reader) RegisterDestinationFD(file int32, _ uint64, _ []stateio.ClientFileRangeSetting) (stateio.DestinationFile, error) {
	own, err := unix.Dup(int(file))
	if err != nil {
		return nil, fmt.Errorf("keep the memory file: %w", err)
	}
	f := fd.New(own)
	r.files = append(r.files, f)
	return f, nil
}

// AddRead implements stateio.AsyncReader.
func (r *reader) AddRead(id int, off int64, dst stateio.DestinationFile, part memmap.FileRange, _ []byte) {
	r.reads <- read{id: id, off: off, total: part.Length(), dst: dst.(*fd.FD), parts: []memmap.FileRange{part}}
}

// AddReadv implements stateio.AsyncReader.
func (r *reader) AddReadv(id int, off int64, total uint64, dst stateio.DestinationFile, parts []memmap.FileRange, _ []unix.Iovec) {
	r.reads <- read{id: id, off: off, total: total, dst: dst.(*fd.FD), parts: parts}
}

// Wait implements stateio.AsyncReader.
func (r *reader) Wait(cs []stateio.Completion, least int) ([]stateio.Completion, error) {
	return stateio.CompletionChanWait(r.done, cs, least)
}

func (r *reader) work() {
	defer r.wg.Done()
	var buf []byte
	for op := range r.reads {
		if need := int(min(op.total, uint64(max(r.src.size-op.off, 0)))); len(buf) < need {
			buf = make([]byte, need)
		}
		n, err := r.fill(op, buf)
		r.done <- stateio.Completion{ID: op.id, N: uint64(n), Err: err}
	}
}

// fill does one read. Past the end of the file it says io.EOF.
func (r *reader) fill(op read, buf []byte) (int, error) {
	want := int(min(op.total, uint64(max(r.src.size-op.off, 0))))
	buf = buf[:want]
	if want > 0 {
		if n, err := r.src.at.ReadAt(buf, op.off); n < want {
			return 0, fmt.Errorf("read: %w", err)
		}
	}
	for _, part := range op.parts {
		n := min(len(buf), int(part.Length()))
		if n == 0 {
			break
		}
		if _, err := op.dst.WriteAt(buf[:n], int64(part.Start)); err != nil {
			return 0, err
		}
		buf = buf[n:]
	}
	if uint64(want) < op.total {
		return want, io.EOF
	}
	return want, nil
}
