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
)

// clockSlack is how far the clock may be off before it is set.
const clockSlack = time.Second

// renew makes this machine another one than its snapshot: clock, randomness,
// names. Each part is tried whatever became of the others; what failed is
// returned as sentences.
func (s *Server) renew(req *initRequest) []string {
	var warnings []string
	try := func(what string, err error) {
		if err != nil {
			warnings = append(warnings, what+": "+err.Error())
		}
	}
	if req.Timestamp != nil {
		setClock(*req.Timestamp) // where it fails the clock is the host's and right
	}
	if req.Identity {
		try("randomness", reseed(req.Entropy))
		try("identity", s.writeIdentity(req))
		if req.Hostname != "" {
			try("hostname", s.rename(req.Hostname))
		}
	}
	if len(req.Nameservers) > 0 {
		var b strings.Builder
		for _, a := range req.Nameservers {
			fmt.Fprintf(&b, "nameserver %s\n", a)
		}
		try("resolv.conf", s.put("/etc/resolv.conf", b.String(), 0o644))
	}
	return warnings
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
	f, err := os.OpenFile("/dev/urandom", os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := f.Write(entropy); err != nil {
		return err
	}
	// Kernels without the call renew themselves: gVisor asks the host's.
	_ = unix.IoctlSetInt(int(f.Fd()), unix.RNDRESEEDCRNG, 0)
	return nil
}

// rename gives the machine its name.
func (s *Server) rename(hostname string) error {
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

// writeIdentity writes the files that say which machine this is.
func (s *Server) writeIdentity(req *initRequest) error {
	var id [16]byte
	rand.Read(id[:])
	identity, err := json.Marshal(map[string]any{
		"id": req.ID, "template": req.Template, "hostname": req.Hostname, "time": time.Now().UTC(),
	})
	return errors.Join(err,
		s.put("/etc/machine-id", hex.EncodeToString(id[:])+"\n", 0o444),
		s.put("/run/pandastack/identity", string(identity)+"\n", 0o644),
		s.put("/run/e2b/.E2B_SANDBOX", "true", 0o644),
		s.put("/run/e2b/.E2B_SANDBOX_ID", req.ID, 0o644),
		s.put("/run/e2b/.E2B_TEMPLATE_ID", req.Template, 0o644),
	)
}

// put replaces the content of one of the system's files. A link is replaced
// itself: it may lead to a file of a service that does not run here.
func (s *Server) put(path, content string, mode os.FileMode) error {
	path = filepath.Join(s.opt.Root, path)
	fi, err := os.Lstat(path)
	if err == nil && fi.Mode()&os.ModeSymlink != 0 {
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
