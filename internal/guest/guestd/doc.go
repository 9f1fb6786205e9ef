// Package guestd is the daemon inside every sandbox: its first process, and
// the server of the envd protocol on api.InternalPort.
//
// # Processes
//
// The daemon alone waits for children, in one place (reaper), so that reaping
// what the sandbox's orphans leave never takes the exit status of a process
// that a client waits for. It therefore never uses os/exec. A process is one
// fork and exec, without a shell in between, and is leader of its own session.
// Its output is read by one pump for each stream, which waits for every
// attached subscriber: a slow reader slows the process down and costs no
// memory. With no subscriber the output goes on being read. The end of it is kept
// for whoever attaches later and asks for it (tail), bounded for each process and
// for all together, and that of pipes in the log as well.
//
// # Trust
//
// The daemon runs as root of the sandbox and guards nothing from root of the
// sandbox, which can read its memory. The token keeps other users and other
// machines out, and /init is refused from the machine's own addresses, so that
// unprivileged code cannot make itself another identity.
//
// # After a restore
//
// The daemon of a restored machine runs at once; where the runtime can, all
// other processes stand still until it lets them go (OpenHold), so that none sees
// the identity of the machine that the snapshot is of. The first /init with
// identity then, in this order: closes the connections that were made to the
// other machine, whose clients will never read; sets clock, randomness and
// names; writes the identity files; runs the programs of
// /etc/pandastack/on-restore.d; and lets the rest go on, whatever failed before.
// Until then it must wait for no other process, not even by way of a file, a
// pipe or a lock: see become.
//
// # Randomness after a restore
//
// A restored machine has a copy of its snapshot's memory. Nothing here relies on
// random state in user space: tokens, machine ids, generations and watcher ids
// come from crypto/rand, which asks the kernel, and a test of cmd/guest keeps
// other sources out. Go asks through the vDSO where the kernel offers getrandom
// there (Linux 6.11 and later), and that keeps a key in user memory. gVisor has no
// such vDSO call, so every read reaches the host's kernel. A Linux guest drops the
// key when the kernel is reseeded, which the VM generation id device does at a
// restore, and which /init with identity does again through RNDRESEEDCRNG. The
// daemon speaks no TLS, makes no temporary names, and sends no multipart body. The
// seeds of Go's maps and of its scheduler are cloned, and nothing that leaves the
// daemon depends on them.
//
// # Cost
//
// Nothing runs on a clock while the daemon is idle: there are no tickers, and
// timers exist only while a process, a stream or a request needs them.
package guestd
