//go:build linux

package guestd

import (
	"bufio"
	"fmt"
	"hash/fnv"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/guest"
)

const (
	portLook    = 500 * time.Millisecond // between two looks while somebody waits
	maxSockets  = 16 << 20               // bytes of one table of sockets that are read
	maxFDs      = 1 << 16                // that are looked at for the names of owners
	stateListen = "0A"
)

// ports answers GET /pandastack/ports: the TCP ports that something listens on.
// With a state it answers when what listens is no longer that, or after wait_ms.
//
// The kernel tells nobody of a new listener, so the daemon looks now and then,
// but only for as long as the question is open: a timer of its own would be due
// at once in every machine that is restored. While somebody follows the events of
// ports there is nearly always a question open, and so a timer of half a second:
// a machine that is captured then has it.
func (s *Server) ports(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	ms, _ := strconv.ParseInt(q.Get("wait_ms"), 10, 32) // what is no number is no wait
	late := time.Now().Add(min(time.Duration(max(ms, 0))*time.Millisecond, guest.MaxPortWait))
	sockets := listening()
	for stateOf(sockets) == q.Get("state") && time.Now().Before(late) {
		select {
		case <-time.After(portLook):
		case <-r.Context().Done():
			return
		case <-s.stopping:
			httpError(w, http.StatusServiceUnavailable, "the daemon is stopping")
			return
		}
		sockets = listening()
	}
	w.Header().Set("Cache-Control", "no-store")
	httpJSON(w, guest.Listeners{State: stateOf(sockets), Ports: named(sockets)})
}

// socket is one that listens.
type socket struct {
	port  int
	inode string
}

// listening gives the sockets that listen for what comes from outside of the
// machine: one for each port, the lowest ones.
func listening() []socket {
	var out []socket
	for _, path := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		f, err := os.Open(path)
		if err != nil {
			continue // a machine without that kind of address
		}
		out = append(out, listeners(f)...)
		f.Close()
	}
	slices.SortFunc(out, func(a, b socket) int {
		if a.port != b.port {
			return a.port - b.port
		}
		return strings.Compare(a.inode, b.inode)
	})
	out = slices.CompactFunc(out, func(a, b socket) bool { return a.port == b.port })
	return out[:min(len(out), guest.MaxListeners)]
}

// listeners reads one of the kernel's tables of TCP sockets. A port is kept once.
func listeners(table io.Reader) []socket {
	var out []socket
	seen := map[int]bool{}
	scan := bufio.NewScanner(io.LimitReader(table, maxSockets))
	scan.Buffer(make([]byte, 0, 4<<10), 4<<10)
	for scan.Scan() {
		f := strings.Fields(scan.Text())
		if len(f) < 10 || f[3] != stateListen {
			continue
		}
		addr, port, ok := strings.Cut(f[1], ":")
		n, err := strconv.ParseUint(port, 16, 16)
		if !ok || err != nil || n == 0 || n == api.InternalPort || loopback(addr) || seen[int(n)] {
			continue
		}
		seen[int(n)] = true
		out = append(out, socket{port: int(n), inode: strings.Clone(f[9])})
	}
	return out
}

// loopback reports whether a local address, in the hexadecimal words of the
// kernel's tables, is one that only the machine itself reaches.
func loopback(addr string) bool {
	const mapped = "0000000000000000FFFF0000"
	if len(addr) == 32 && strings.EqualFold(addr[:24], mapped) {
		addr = addr[24:]
	}
	if len(addr) == 8 {
		return strings.EqualFold(addr[6:], "7F")
	}
	return addr == "00000000000000000000000001000000"
}

// stateOf names a set of sockets.
func stateOf(sockets []socket) string {
	h := fnv.New64a()
	for _, s := range sockets {
		fmt.Fprintf(h, "%d %s\n", s.port, s.inode)
	}
	return strconv.FormatUint(h.Sum64(), 16)
}

// named gives the ports of sockets with the names of the processes that have them.
func named(sockets []socket) []guest.Listener {
	out := make([]guest.Listener, len(sockets))
	byLink := make(map[string]int, len(sockets))
	for i, s := range sockets {
		out[i].Port = s.port
		byLink["socket:["+s.inode+"]"] = i
	}
	if len(sockets) == 0 {
		return out
	}
	room := maxFDs
	procs, _ := filepath.Glob("/proc/[0-9]*") // the pattern is valid
	for _, proc := range procs {
		for _, link := range links(filepath.Join(proc, "fd"), &room) {
			i, ok := byLink[link]
			if ok && out[i].Process == "" {
				out[i].Process = shown(strings.TrimSpace(readBounded(filepath.Join(proc, "comm"), 64)), 64)
			}
		}
		if room <= 0 {
			break
		}
	}
	return out
}

// links reads the links in a directory, as many as there is room for.
func links(dir string, room *int) []string {
	f, err := os.Open(dir)
	if err != nil {
		return nil // the process has ended
	}
	defer f.Close()
	names, _ := f.Readdirnames(*room) // what came before an error is enough
	*room -= len(names)
	out := make([]string, 0, len(names))
	for _, name := range names {
		if link, err := os.Readlink(filepath.Join(dir, name)); err == nil {
			out = append(out, link)
		}
	}
	return out
}
