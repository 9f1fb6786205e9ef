package pgtest

import "syscall"

// dieWithParent makes the server end when a test is killed.
func dieWithParent(attr *syscall.SysProcAttr) *syscall.SysProcAttr {
	a := *attr
	a.Pdeathsig = syscall.SIGQUIT
	return &a
}
