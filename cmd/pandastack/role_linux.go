package main

import "github.com/pandastack/pandastack/internal/driver/gvisor"

func runSandboxRole() {
	if gvisor.IsReexec() {
		gvisor.Main()
	}
}
