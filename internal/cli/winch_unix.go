//go:build unix

package cli

import (
	"os"
	"os/signal"
	"sync"
	"syscall"
)

// watchSize calls changed whenever the terminal's size changes, until stop is
// called.
func watchSize(changed func()) (stop func()) {
	ch := make(chan os.Signal, 1)
	signal.Notify(ch, syscall.SIGWINCH)
	var done sync.WaitGroup
	done.Go(func() {
		for range ch {
			changed()
		}
	})
	return func() {
		signal.Stop(ch)
		close(ch)
		done.Wait()
	}
}
