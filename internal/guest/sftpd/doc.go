// Package sftpd is the file transfer server of the guest program: version 3 of
// the SFTP protocol, as OpenSSH speaks it, on a pair of streams.
//
// The guest program runs it inside the sandbox as the user that logged in, so
// what may be read and written is for the sandbox's kernel to say: nothing here
// looks at a path to refuse it, and nothing of a path is ever seen by the host's
// file system. Requests are served one after another, in the order in which they
// came. One that makes no sense ends the session, as OpenSSH does.
//
// It is written out rather than taken from a library, because those libraries
// carry a whole SSH client, and with it cryptography and random state of their
// own, into the first process of every sandbox.
//
// # Bounds
//
// A packet has at most 256 KiB and 1 KiB, a read or write 255 KiB, a name 4 KiB
// (the kernel's own limit), and 256 files are open at a time. There are no timers.
package sftpd
