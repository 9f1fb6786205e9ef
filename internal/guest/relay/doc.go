// Package relay is the part of port forwarding that is inside a sandbox. The
// guest program runs it as the user that logged in, for one SSH connection: it
// connects to services that only the sandbox's own loopback address reaches, and
// listens on that address for what is to be carried to the SSH client.
//
// # Protocol
//
// The first line on standard output is "relay PORT SECRET". The host connects to
// PORT once for every thing it wants, and begins with one line, "SECRET VERB ...".
// The answer is one line too, "ok ..." or "no REASON".
//
//   - hold: keeps the relay alive. When this connection ends the relay ends with
//     all it has, also where its host vanished without a word: the kernel's own
//     keepalive sees that, in a fork of the sandbox as well, whose copy of the relay
//     nobody knows. The end of standard input ends it too.
//   - dial PORT: connects to PORT on the loopback address. After ok the connection
//     carries the bytes of that one.
//   - listen PORT: listens on PORT of the loopback address; 0 takes a free one. The
//     answer is "ok PORT", and after it comes one line "TOKEN ADDRESS PORT" for
//     every connection that was accepted, with where it came from. The end of this
//     connection is the end of the listener.
//   - take TOKEN: after ok the connection carries the bytes of the accepted one. To
//     refuse it, the host takes and closes it.
//
// So bytes flow over plain connections, each with the flow control of TCP, and
// there is no framing to get wrong.
//
// # Bounds
//
// A line has at most 128 bytes. There are at most 256 connections of the host, 16
// of which have not shown the secret yet (the oldest goes), and 32 accepted
// connections of one listener that wait to be taken; more wait in its queue. There
// are no timers: those would all be due at once after a restore.
package relay
