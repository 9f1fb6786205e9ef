//go:build linux

package guestd

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pandastack/pandastack/api"
)

// clockSlack is how far the clock may be off before it is set.
const clockSlack = time.Second

// identity says which machine this is, for the programs in it.
type identity struct {
	ID         string       `json:"id"`
	Template   string       `json:"template"`
	Hostname   string       `json:"hostname"`
	Boot       api.BootMode `json:"boot"`
	ParentID   string       `json:"parent_id"`
	SnapshotID string       `json:"snapshot_id"`
	Generation string       `json:"generation"` // another one after every restore
	Time       time.Time    `json:"time"`
}

// identityFile is where programs find it.
const identityFile = "/run/pandastack/identity"

// environ is what hooks are told.
func (i identity) environ() map[string]string {
	return map[string]string{
		"PANDASTACK_BOOT":        string(i.Boot),
		"PANDASTACK_SANDBOX_ID":  i.ID,
		"PANDASTACK_PARENT_ID":   i.ParentID,
		"PANDASTACK_SNAPSHOT_ID": i.SnapshotID,
		"PANDASTACK_GENERATION":  i.Generation,
	}
}

// renew makes this machine another one than its snapshot: clock, randomness,
// names. Each part is tried whatever became of the others; what failed is
// returned as sentences. Randomness comes first: the rest draws on it.
func (s *Server) renew(req *initRequest) (identity, []string) {
	var warnings []string
	try := func(what string, err error) {
		if err != nil {
			warnings = append(warnings, what+": "+strings.ReplaceAll(err.Error(), "\n", ", "))
		}
	}
	if req.Timestamp != nil && s.opt.Root == "" {
		setClock(*req.Timestamp) // where it fails the clock is the host's and right
	}
	var id identity
	if req.Identity {
		try("randomness", reseed(req.Entropy))
		id = s.identity(req)
		try("names", s.rename(id))
		try("identity", s.writeIdentity(id))
	}
	if len(req.Nameservers) > 0 {
		var b strings.Builder
		for _, a := range req.Nameservers {
			fmt.Fprintf(&b, "nameserver %s\n", a)
		}
		try("resolv.conf", s.put("/etc/resolv.conf", b.String(), 0o644))
	}
	return id, warnings
}

// setClock sets the clock if it is off.
func setClock(now time.Time) {
	if off := time.Since(now); off < clockSlack && off > -clockSlack {
		return
	}
	ts := unix.NsecToTimespec(now.UnixNano())
	_ = unix.ClockSettime(unix.CLOCK_REALTIME, &ts)
}

// reseed mixes random bytes of the host into the kernel's pool and makes the
// kernel, and all that keep a key of it, begin anew.
func reseed(entropy []byte) error {
	f, err := os.OpenFile("/dev/urandom", os.O_WRONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	if fi, err := f.Stat(); err != nil || fi.Mode()&os.ModeCharDevice == 0 {
		return errors.New("/dev/urandom is not a device")
	}
	if _, err := f.Write(entropy); err != nil {
		return err
	}
	// Kernels without the call renew themselves: gVisor asks the host's.
	_ = unix.IoctlSetInt(int(f.Fd()), unix.RNDRESEEDCRNG, 0)
	return nil
}

// rename gives a machine that is another sandbox now the names of its own. One
// that was asleep or rolled back keeps those it has, with what was done to them.
func (s *Server) rename(id identity) error {
	if id.ID != "" && id.ID == s.renewed {
		return nil
	}
	var machine [16]byte
	rand.Read(machine[:])
	err := s.put("/etc/machine-id", hex.EncodeToString(machine[:])+"\n", 0o444)
	if id.Hostname != "" {
		err = errors.Join(err, s.setHostname(id.Hostname))
	}
	if err == nil {
		s.renewed = id.ID
	}
	return err
}

// lastID is the sandbox that the disk is of; empty if it never was one's.
func lastID(root string) string {
	var last identity
	_ = json.Unmarshal([]byte(readBounded(filepath.Join(root, identityFile), 64<<10)), &last) // the owner's own file by now
	return last.ID
}

// setHostname gives the machine its name.
func (s *Server) setHostname(hostname string) error {
	if len(hostname) > 64 || strings.Trim(hostname, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-.") != "" {
		return errors.New("not a hostname")
	}
	err := s.put("/etc/hostname", hostname+"\n", 0o644)
	hosts := "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n127.0.1.1\t" + hostname + "\n"
	err = errors.Join(err, s.put("/etc/hosts", hosts, 0o644))
	if s.opt.Root == "" {
		err = errors.Join(err, unix.Sethostname([]byte(hostname)))
	}
	return err
}

// identity is who this machine is from now on.
func (s *Server) identity(req *initRequest) identity {
	var generation [16]byte
	rand.Read(generation[:])
	s.mu.Lock()
	defer s.mu.Unlock()
	return identity{
		ID: s.settings.id, Template: s.settings.template, Hostname: req.Hostname,
		Boot: req.Boot, ParentID: req.ParentID, SnapshotID: req.SnapshotID,
		Generation: hex.EncodeToString(generation[:]), Time: time.Now().UTC(),
	}
}

// writeIdentity writes the files that say which machine this is.
func (s *Server) writeIdentity(id identity) error {
	data, err := json.Marshal(id)
	return errors.Join(err,
		s.put(identityFile, string(data)+"\n", 0o644),
		s.put("/run/e2b/.E2B_SANDBOX", "true", 0o644),
		s.put("/run/e2b/.E2B_SANDBOX_ID", id.ID, 0o644),
		s.put("/run/e2b/.E2B_TEMPLATE_ID", id.Template, 0o644),
	)
}

// put replaces the content of one of the system's files. What is no file is
// replaced itself: a link may lead to a file of a service that does not run here,
// and a named pipe would wait for a reader. What was written last time is not
// written again: that takes time, and would undo what the sandbox did to it.
func (s *Server) put(path, content string, mode os.FileMode) error {
	if s.written[path] == content {
		return nil
	}
	if err := replace(filepath.Join(s.opt.Root, path), content, mode); err != nil {
		return err
	}
	s.written[path] = content
	return nil
}

func replace(path, content string, mode os.FileMode) error {
	fi, err := os.Lstat(path)
	if err == nil && !fi.Mode().IsRegular() {
		if err := os.Remove(path); err != nil {
			return err
		}
	}
	if os.IsNotExist(err) {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
	}
	return os.WriteFile(path, []byte(content), mode)
}
