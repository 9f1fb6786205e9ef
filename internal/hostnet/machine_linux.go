package hostnet

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// state is what servers together changed on the machine and what it was before.
type state struct {
	NetnsMount bool              `json:"netns_mount"` // the directory of namespaces became a mount
	NetnsDir   bool              `json:"netns_dir"`   // and was made
	Forwarding map[string]string `json:"forwarding"`  // by interface, the earlier value
	Counting   map[string]string `json:"counting"`    // by setting, the earlier value
}

// readState reads what was changed; a file that is missing or unreadable says
// nothing was, since guessing would undo what others did.
func readState() state {
	s := state{}
	if text, err := os.ReadFile(stateFile); err == nil {
		_ = json.Unmarshal(text, &s)
	}
	if s.Forwarding == nil {
		s.Forwarding = map[string]string{}
	}
	if s.Counting == nil {
		s.Counting = map[string]string{}
	}
	return s
}

func (s state) save() error {
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	if err := os.WriteFile(stateFile+".new", text, 0o600); err != nil {
		return err
	}
	return os.Rename(stateFile+".new", stateFile)
}

// shareNetnsDir makes /run/netns a shared mount, as `ip netns` does: a process
// that copies the mount table must not keep namespaces alive with its copies,
// so unmounting has to spread to them.
func (l *machineLock) shareNetnsDir() error {
	s := readState()
	if err := os.Mkdir(netnsDir, 0o755); err == nil {
		s.NetnsDir = true
	} else if !errors.Is(err, fs.ErrExist) {
		return unavailable(err, "the directory of network namespaces cannot be made")
	}
	err := unix.Mount("", netnsDir, "", unix.MS_SHARED|unix.MS_REC, "")
	if errors.Is(err, unix.EINVAL) { // not a mount yet
		if err = unix.Mount(netnsDir, netnsDir, "", unix.MS_BIND|unix.MS_REC, ""); err == nil {
			s.NetnsMount = true
			err = unix.Mount("", netnsDir, "", unix.MS_SHARED|unix.MS_REC, "")
		}
	}
	if err != nil {
		return unavailable(err, "the directory of network namespaces cannot be shared")
	}
	if !s.NetnsDir && !s.NetnsMount {
		return nil
	}
	if err := s.save(); err != nil {
		return unavailable(err, "the state of sandbox networks cannot be written")
	}
	return nil
}

// forward lets the uplinks pass packets on, which answers to sandboxes need,
// and notes what to restore. The earlier value is kept from the first time.
func (l *machineLock) forward(ups []uplink) error {
	s := readState()
	changed := false
	for _, u := range ups {
		if getSysctl("ipv4", u.name, "forwarding") != "0" {
			continue
		}
		if _, known := s.Forwarding[u.name]; !known {
			s.Forwarding[u.name] = "0"
			changed = true
		}
	}
	if changed {
		if err := s.save(); err != nil {
			return unavailable(err, "the state of sandbox networks cannot be written")
		}
	}
	for _, u := range ups {
		if err := setSysctl("ipv4", u.name, "forwarding", "1"); err != nil {
			return unavailable(err, "forwarding on "+u.name+" cannot be turned on")
		}
	}
	return nil
}

// Settings of the kernel by which it counts the bytes of connections and keeps
// the times they began at.
var countingSettings = []string{"nf_conntrack_acct", "nf_conntrack_timestamp"}

func countingPath(name string) string { return "/proc/sys/net/netfilter/" + name }

// countConnections turns counting on. A host that does not let it is fine: the
// log of connections has no bytes then.
func (l *machineLock) countConnections() {
	s := readState()
	for _, name := range countingSettings {
		if v := readSetting(countingPath(name)); v == "0" {
			s.Counting[name] = v
		}
	}
	if len(s.Counting) == 0 || s.save() != nil {
		return
	}
	for name := range s.Counting {
		_ = writeSetting(countingPath(name), "1")
	}
}

// restoreMachine undoes what state says. A host that has since become a router
// for reasons of its own keeps forwarding.
func restoreMachine() error {
	s := readState()
	var errs []error
	if !routesAnyway() {
		for name, value := range s.Forwarding {
			if err := setSysctl("ipv4", name, "forwarding", value); err != nil && !errors.Is(err, fs.ErrNotExist) {
				errs = append(errs, err)
			}
		}
	}
	for name, value := range s.Counting {
		if err := writeSetting(countingPath(name), value); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	entries, err := os.ReadDir(netnsDir)
	if empty := err == nil && len(entries) == 0; empty {
		if s.NetnsMount {
			errs = append(errs, unix.Unmount(netnsDir, unix.MNT_DETACH))
		}
		if s.NetnsDir {
			errs = append(errs, os.Remove(netnsDir))
		}
	}
	return errors.Join(append(errs, removeRunFiles())...)
}

// routesAnyway reports whether the host forwards on all interfaces.
func routesAnyway() bool {
	text, err := os.ReadFile("/proc/sys/net/ipv4/ip_forward")
	return err == nil && len(text) > 0 && text[0] == '1'
}

func sysctlPath(family, link, name string) string {
	return "/proc/sys/net/" + family + "/conf/" + link + "/" + name
}

func getSysctl(family, link, name string) string {
	return readSetting(sysctlPath(family, link, name))
}

func setSysctl(family, link, name, value string) error {
	return writeSetting(sysctlPath(family, link, name), value)
}

// readSetting gives the first character; "" is a setting that is not there.
func readSetting(path string) string {
	text, err := os.ReadFile(path)
	if err != nil || len(text) == 0 {
		return ""
	}
	return string(text[:1])
}

func writeSetting(path, value string) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	return errors.Join(err, f.Close())
}

// disableIPv6 turns it off on an interface; a kernel without IPv6 is fine.
func disableIPv6(link string) error {
	if err := setSysctl("ipv6", link, "disable_ipv6", "1"); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
