//go:build !linux

package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "guest: sandboxes are Linux machines")
	os.Exit(1)
}
