package toolserver

import "syscall"

// dieWithParent makes the server end when a test is killed.
func dieWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
