// Package hold keeps the processes of a restored guest standing still until the
// guest program says that they may go on.
//
// gVisor resumes every task at once at a restore. A process would then run for a
// moment with the host name, the identity and the random numbers of the machine it
// was copied from. So the sentry has a private socket family, guest.HoldFamily,
// that the guest program opens once. The socket is part of every checkpoint, and
// so is a file system without files whose only purpose is that gVisor calls it
// when a restore is complete and no task runs yet. It then stops every task but
// the guest program's own. A write to the socket, or its end, lets them go on.
//
// A stop is not visible to the guest: it is no signal, and clocks go on. Tasks
// that the guest program starts meanwhile run. A task that is killed while it is
// stopped ends when it may go on. A checkpoint of a guest that stands still is
// one like any other: its restores stand still as well.
//
// A process on its way from fork to exec shares its memory with the guest program,
// which waits for it inside vfork and could not release anything if it stood
// still. It is stopped as soon as it has memory of its own.
//
// Pause stops every task, the guest program's too, for as long as a socket is open
// whose other end is in the process that asked for it: when that process dies, the
// guest goes on. Freeze stops them for good, until Thaw.
//
// The cgroup freezer of the host is not used for either: what it does to the
// processes that gVisor runs a guest in ends some of them after a few rounds.
//
// Connections of before a restore that wait for late packets (TIME_WAIT) are
// dropped with the release. gVisor would keep them for another minute after every
// restore, and chooses sequence numbers anew at each, so that half of the new
// connections between the same ports would be taken for late packets, and hang.
package hold
