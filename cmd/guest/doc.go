// Command guest is the first process inside every sandbox. It serves the envd
// protocol; see internal/guest/guestd. Its dependencies are listed in deps.txt,
// because every byte of it is part of every sandbox.
package main
