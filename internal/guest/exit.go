package guest

import (
	"strings"

	"github.com/pandastack/pandastack/internal/guest/envdpb"
)

// signals are the signals of Linux, by number from 1: the words a daemon of
// this protocol uses, and the name. Written out, because this side may run on
// another system.
var signals = [...]struct{ words, name string }{
	{"hangup", "SIGHUP"}, {"interrupt", "SIGINT"}, {"quit", "SIGQUIT"}, {"illegal instruction", "SIGILL"},
	{"trace/breakpoint trap", "SIGTRAP"}, {"aborted", "SIGABRT"}, {"bus error", "SIGBUS"}, {"floating point exception", "SIGFPE"},
	{"killed", "SIGKILL"}, {"user defined signal 1", "SIGUSR1"}, {"segmentation fault", "SIGSEGV"}, {"user defined signal 2", "SIGUSR2"},
	{"broken pipe", "SIGPIPE"}, {"alarm clock", "SIGALRM"}, {"terminated", "SIGTERM"}, {"stack fault", "SIGSTKFLT"},
	{"child exited", "SIGCHLD"}, {"continued", "SIGCONT"}, {"stopped (signal)", "SIGSTOP"}, {"stopped", "SIGTSTP"},
	{"stopped (tty input)", "SIGTTIN"}, {"stopped (tty output)", "SIGTTOU"}, {"urgent I/O condition", "SIGURG"}, {"CPU time limit exceeded", "SIGXCPU"},
	{"file size limit exceeded", "SIGXFSZ"}, {"virtual timer expired", "SIGVTALRM"}, {"profiling timer expired", "SIGPROF"}, {"window changed", "SIGWINCH"},
	{"I/O possible", "SIGIO"}, {"power failure", "SIGPWR"}, {"bad system call", "SIGSYS"},
}

// exitOf reads the end event of a process.
func exitOf(e *envdpb.ProcessEvent_EndEvent) *Exit {
	x := &Exit{Code: int(e.GetExitCode()) & 0xff, Status: clean(e.GetStatus())}
	if e.GetExited() {
		return x
	}
	words := strings.TrimSuffix(strings.TrimPrefix(x.Status, "signal: "), " (core dumped)")
	for i, s := range signals {
		if s.words == words {
			x.Code, x.Signal = 128+i+1, s.name
		}
	}
	return x
}
