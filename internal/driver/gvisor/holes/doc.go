// Package holes makes a checkpoint cheaper. It runs inside a sentry.
//
// gVisor gives a guest memory in large pieces of which few pages are ever used:
// 12 of 14 MB of an idle guest are holes in the memory file. A checkpoint reads
// every page of them to see that it is zero, and each read makes the page, which is
// then thrown away: some 3,000 page faults, with the guest standing still.
//
// Cover puts read-ready pages of zeros over the holes of the sentry's own mapping
// for the time of the checkpoint. Reading them makes nothing, and what gVisor sees
// is the same. It asks the file where its holes are (SEEK_HOLE), which is also
// right for pages in swap, and nothing may be written through the mapping until
// Uncover has put the file back: gVisor's kernel is paused meanwhile.
package holes
