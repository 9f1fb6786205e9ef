package holes

import (
	"errors"
	"sync"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/hostarch"
	"gvisor.dev/gvisor/pkg/log"
	"gvisor.dev/gvisor/pkg/sentry/memmap"
	"gvisor.dev/gvisor/pkg/sentry/pgalloc"
)

// Covered is what Uncover takes back.
type Covered struct {
	fd     int
	holes  []hole
	easing sync.WaitGroup
}

// hole is a part of the memory file without pages, and where it is mapped.
type hole struct {
	offset uint64
	addr   uintptr
	length uintptr
}

const (
	// smallest is the size of holes that are worth the system calls.
	smallest = 8 * hostarch.PageSize
	// large is the size from which most of a hole belongs to no guest memory at
	// all: the file grows by a gigabyte.
	large = 2 * hostarch.HugePageSize
)

// Cover covers the holes of a memory file whose kernel is paused. Holes that it
// cannot cover are left as they are.
func Cover(f *pgalloc.MemoryFile) *Covered {
	c := &Covered{fd: f.FD()}
	size := f.TotalSize()
	if f.IsAsyncLoading() || size == 0 {
		return c
	}
	mapping, err := f.MapInternal(memmap.FileRange{Start: 0, End: size}, hostarch.Read)
	if err != nil {
		return c
	}
	for offset := uint64(0); !mapping.IsEmpty(); mapping = mapping.Tail() {
		block := mapping.Head()
		c.coverRange(offset, offset+uint64(block.Len()), block.Addr())
		offset += uint64(block.Len())
	}
	c.easing.Go(func() {
		for _, h := range c.holes {
			h.ease()
		}
	})
	return c
}

// coverRange covers the holes of one contiguous mapping, but for what is behind
// the last page of the file: nobody reads that.
func (c *Covered) coverRange(start, end uint64, addr uintptr) {
	for at := start; at < end; {
		from, err := seek(c.fd, at, unix.SEEK_HOLE)
		if err != nil || from >= end {
			return
		}
		to, err := seek(c.fd, from, unix.SEEK_DATA)
		if err != nil {
			return // no data behind it
		}
		to = min(to, end)
		h := hole{offset: from, addr: addr + uintptr(from-start), length: uintptr(to - from)}
		if h.length >= smallest && h.cover() {
			c.holes = append(c.holes, h)
		}
		at = to
	}
}

func seek(fd int, offset uint64, whence int) (uint64, error) {
	n, err := unix.Seek(fd, int64(offset), whence)
	return uint64(n), err
}

// cover maps zeros in place of the file.
func (h hole) cover() bool {
	const flags = unix.MAP_PRIVATE | unix.MAP_ANONYMOUS | unix.MAP_FIXED
	return h.mmap(unix.PROT_READ|unix.PROT_WRITE, flags, -1, 0) == nil
}

// ease makes reading cheap: one system call in place of a page fault for each
// page, or, where most is never read, one fault for each two megabytes if the host
// allows that.
func (h hole) ease() {
	advice := uintptr(unix.MADV_POPULATE_READ)
	if h.length >= large {
		advice = unix.MADV_HUGEPAGE
	}
	unix.Syscall(unix.SYS_MADVISE, h.addr, h.length, advice)
}

// uncover maps the file again.
func (h hole) uncover(fd int) error {
	return h.mmap(unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_FIXED, fd, h.offset)
}

func (h hole) mmap(prot, flags uintptr, fd int, offset uint64) error {
	_, _, errno := unix.Syscall6(unix.SYS_MMAP, h.addr, h.length, prot, flags, uintptr(fd), uintptr(offset))
	if errno != 0 {
		return errno
	}
	return nil
}

// Uncover puts the memory file back. A sentry that cannot has lost memory of its
// guest, and must not go on.
func (c *Covered) Uncover() {
	c.easing.Wait()
	var errs []error
	for _, h := range c.holes {
		errs = append(errs, h.uncover(c.fd))
	}
	if err := errors.Join(errs...); err != nil {
		log.Warningf("holes: %v", err)
		panic("holes: the memory file cannot be mapped again")
	}
	c.holes = nil
}
