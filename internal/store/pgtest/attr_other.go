//go:build !linux

package pgtest

import "syscall"

func dieWithParent(attr *syscall.SysProcAttr) *syscall.SysProcAttr { return attr }
