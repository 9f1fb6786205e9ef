//go:build !linux

package hostnet

import (
	"context"
	"net/netip"
	"runtime"
	"time"

	"github.com/pandastack/pandastack/api"
)

// kernel refuses everything: slots are made of Linux namespaces.
type kernel struct{}

func errNotLinux() error {
	return api.Errorf(api.CodeUnsupported, "sandbox networks need Linux; this is %s", runtime.GOOS)
}

func (*kernel) setup(context.Context, Config) (int, error)      { return 0, errNotLinux() }
func (*kernel) create(int) (Slot, error)                        { return Slot{}, errNotLinux() }
func (*kernel) adopt(int) (Slot, error)                         { return Slot{}, errNotLinux() }
func (*kernel) remove(int) error                                { return errNotLinux() }
func (*kernel) removeLate(context.Context, int) error           { return errNotLinux() }
func (*kernel) cutReleased(map[int]time.Time) error             { return errNotLinux() }
func (*kernel) disown(int)                                      {}
func (*kernel) leftover() ([]int, error)                        { return nil, errNotLinux() }
func (*kernel) ensureRules(context.Context) (bool, error)       { return false, errNotLinux() }
func (*kernel) refresh(context.Context) error                   { return errNotLinux() }
func (*kernel) close(context.Context) error                     { return nil }
func (*kernel) isLocal(netip.Addr) bool                         { return false }
func (*kernel) leadsOut(netip.Addr) bool                        { return false }
func (*kernel) apply(context.Context, int, Rules, bool) error   { return errNotLinux() }
func (*kernel) watch(context.Context, func(Flow), func()) error { return errNotLinux() }
func (*kernel) checks(_ context.Context, _ Config) []Check {
	return []Check{{Name: "linux", Detail: errNotLinux().Error()}}
}
