//go:build linux

package guestd

import "syscall"

// A write to a file costs the runtime the same whatever its size, and more than
// its bytes do, so that long uploads go through wide buffers. These are memory of
// their own, given back when the upload ends: the daemon stays small.
const (
	wideBuffer = 1 << 20
	wideMost   = 4 // at once; other uploads go on in pieces of copyBuffer
)

var wideTurns = make(chan struct{}, wideMost)

// takeWide gives a wide buffer, or nil where there is none.
func takeWide() []byte {
	select {
	case wideTurns <- struct{}{}:
	default:
		return nil
	}
	buf, err := syscall.Mmap(-1, 0, wideBuffer, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_PRIVATE|syscall.MAP_ANON)
	if err != nil {
		<-wideTurns
		return nil
	}
	return buf
}

func giveWide(buf []byte) {
	_ = syscall.Munmap(buf) // it is a whole mapping
	<-wideTurns
}
