// Package pages lets a restored guest run before all of its memory has been read.
//
// gVisor can read a checkpoint through a server of files that it reaches over a
// socket, and then loads pages in the background, those first that the guest waits
// for. That server is written to be trusted, and it writes to the guest's memory
// file: in our own process a hostile sentry could crash it, and what it read would
// count as our memory and not as the guest's. So it runs inside the sentry, where
// Register puts it, and reads there from files that are handed to it (Source.File).
//
// Only what is not on this host yet (Source.At) crosses the border, over a stream
// socket on which the sentry sends requests of one fixed size and Session answers:
//
//	request: id, length uint32, offset uint64
//	answer:  id, count, status uint32, then count bytes
//
// All numbers are little-endian. Several requests may be under way, up to
// maxParallel; the answers come in any order. A request may not be longer than
// maxRead nor reach past the end of the file, and all together may not ask for
// more than twice the file. Who does otherwise is cut off. When the socket closes,
// reads fail inside the sentry, and a guest whose memory cannot be read is ended
// by it.
package pages
