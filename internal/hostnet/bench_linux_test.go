package hostnet

import (
	"context"
	"flag"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Benchmarks are run by hand, on a machine that does nothing else:
//
//	go test ./internal/hostnet -run '^$' -bench . -benchtime 200x

// onMachineBench runs a benchmark on a machine of its own and shows what it says.
func onMachineBench(b *testing.B, bench func(b *testing.B)) {
	b.Helper()
	if os.Getenv(machineEnv) == b.Name() {
		if b.N == 1 { // a first try of the framework, as dear to set up as the rest
			return
		}
		becomeMachine(b)
		bench(b)
		return
	}
	if os.Getenv(machineEnv) != "" || os.Geteuid() != 0 {
		b.Skip("needs root")
	}
	if b.N > 1 { // the machine has run all rounds already
		return
	}
	cmd := exec.CommandContext(b.Context(), os.Args[0], "-test.run=^$", "-test.bench=^"+b.Name()+"$", "-test.benchtime="+benchTime())
	cmd.Env = append(os.Environ(), machineEnv+"="+b.Name())
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNET | unix.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	out, err := cmd.CombinedOutput()
	if err != nil {
		b.Fatalf("%v\n%s", err, out)
	}
	for line := range strings.Lines(string(out)) {
		if strings.HasPrefix(line, "Benchmark") {
			b.Log(strings.TrimSpace(line))
		}
	}
}

func benchTime() string {
	if f := flag.Lookup("test.benchtime"); f != nil {
		return f.Value.String()
	}
	return "200x"
}

func benchManager(b *testing.B, cfg Config) *Manager {
	b.Helper()
	cfg.Owner = "testowna"
	m := New(cfg, slog.New(slog.NewTextHandler(io.Discard, nil)))
	must(b, m.Setup(b.Context()))
	b.Cleanup(func() { must(b, m.Close(context.WithoutCancel(b.Context()))) })
	return m
}

func benchSlots(b *testing.B, m *Manager, n int, r Rules) []Slot {
	b.Helper()
	var out []Slot
	for range n {
		s, err := m.Take(b.Context())
		must(b, err)
		must(b, m.Apply(b.Context(), s, r))
		out = append(out, s)
	}
	b.Cleanup(func() {
		for _, s := range out {
			must(b, m.Release(context.WithoutCancel(b.Context()), s))
		}
	})
	return out
}

// BenchmarkTake is the share of the network in a create: a slot made ahead.
func BenchmarkTake(b *testing.B) {
	onMachineBench(b, func(b *testing.B) {
		m := benchManager(b, Config{Ahead: 64})
		ctx, stop := context.WithCancel(b.Context())
		ran := make(chan error, 1)
		go func() { ran <- m.Run(ctx) }()
		var slots []Slot
		b.ResetTimer()
		for range b.N {
			b.StopTimer()
			for m.Ready() == 0 {
				time.Sleep(time.Millisecond)
			}
			b.StartTimer()
			s, err := m.Take(b.Context())
			if err == nil {
				err = m.Apply(b.Context(), s, DefaultRules())
			}
			must(b, err)
			slots = append(slots, s)
		}
		b.StopTimer()
		for _, s := range slots {
			must(b, m.Release(b.Context(), s))
		}
		stop()
		must(b, <-ran)
	})
}

func BenchmarkMake(b *testing.B) {
	for _, present := range []int{0, 1000} {
		b.Run(strconv.Itoa(present), func(b *testing.B) {
			onMachineBench(b, func(b *testing.B) {
				m := benchManager(b, Config{})
				benchSlots(b, m, present, Rules{Allow: ranges("1.2.3.0/24")})
				b.ResetTimer()
				for range b.N {
					s, err := m.Take(b.Context())
					must(b, err)
					b.StopTimer()
					must(b, m.Release(b.Context(), s))
					b.StartTimer()
				}
			})
		})
	}
}

func BenchmarkRelease(b *testing.B) {
	onMachineBench(b, func(b *testing.B) {
		m := benchManager(b, Config{})
		for range b.N {
			b.StopTimer()
			s, err := m.Take(b.Context())
			must(b, err)
			b.StartTimer()
			must(b, m.Release(b.Context(), s))
		}
	})
}

func BenchmarkApply(b *testing.B) {
	long := func() (out []Range) {
		for i := range 1000 {
			out = append(out, Range{Prefix: netip.PrefixFrom(netip.AddrFrom4([4]byte{203, byte(i >> 8), byte(i), 1}), 32), First: uint16(80 + i%10), Last: uint16(80 + i%10)})
		}
		return out
	}()
	for _, c := range []struct {
		name    string
		present int
		a, b    Rules
	}{
		{"lists", 0, Rules{Allow: ranges("1.2.3.0/24", "4.5.6.7/32 443-443")}, Rules{Allow: ranges("1.2.3.0/25")}},
		{"lists among 1000", 1000, Rules{Allow: ranges("1.2.3.0/24", "4.5.6.7/32 443-443")}, Rules{Allow: ranges("1.2.3.0/25")}},
		{"1000 entries", 0, Rules{Allow: long}, Rules{Deny: long, Default: true}},
		{"kinds", 0, Rules{ByName: true}, Rules{Offline: true}},
		{"caps", 0, Rules{Default: true, Mbps: 10}, Rules{Default: true, Mbps: 20}},
		{"groups", 0, Rules{Default: true, Groups: []string{"a"}}, Rules{Default: true, Groups: []string{"b"}}},
	} {
		b.Run(c.name, func(b *testing.B) {
			onMachineBench(b, func(b *testing.B) {
				m := benchManager(b, Config{})
				benchSlots(b, m, c.present, Rules{Allow: ranges("1.2.3.0/24")})
				s := benchSlots(b, m, 1, DefaultRules())[0]
				b.ResetTimer()
				for i := range b.N {
					r := c.a
					if i%2 == 1 {
						r = c.b
					}
					must(b, m.Apply(b.Context(), s, r))
				}
			})
		})
	}
}

// BenchmarkThroughput sends to the world: from a slot under rules, and from the
// same pair of interfaces without any table.
func BenchmarkThroughput(b *testing.B) {
	const chunk = 64 << 10
	for _, name := range []string{"no table", "default", "1000 entries"} {
		b.Run(name, func(b *testing.B) {
			onMachineBench(b, func(b *testing.B) {
				w := newWorld(b)
				m := benchManager(b, Config{})
				s := benchSlots(b, m, 1, DefaultRules())[0]
				g := guest(b, s)
				var l net.Listener
				must(b, w.ns.in(func() (err error) { l, err = net.Listen("tcp4", webPublic+":80"); return err }))
				go func() {
					for {
						c, err := l.Accept()
						if err != nil {
							return
						}
						_, _ = io.Copy(io.Discard, c)
						c.Close()
					}
				}()
				b.Cleanup(func() { l.Close() })
				switch name {
				case "no table": // the world knows the way back to the slot
					must(b, removeRules())
				case "1000 entries":
					r := Rules{Default: true}
					for i := range 1000 {
						r.Deny = append(r.Deny, Range{Prefix: netip.PrefixFrom(netip.AddrFrom4([4]byte{203, byte(i >> 8), byte(i), 1}), 32)})
					}
					must(b, m.Apply(b.Context(), s, r))
				}
				c, err := g.dial("tcp4", webPublic+":80")
				must(b, err)
				b.Cleanup(func() { c.Close() })
				data := make([]byte, chunk)
				b.SetBytes(chunk)
				b.ResetTimer()
				for range b.N {
					_, err := c.Write(data)
					must(b, err)
				}
			})
		})
	}
}
