package bench

import (
	"context"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/client"
)

// linkMB is how much one sample sends.
const linkMB = 100

// openNetwork measures what the network adds to a create, what a change of rules
// costs, and how fast two linked sandboxes talk, beside the same bytes over the
// loopback of the machine that measures.
func openNetwork(ctx context.Context, t *target) (*session, error) {
	name := "bench-" + api.NewID()[:10]
	if _, err := t.Client.Networks.Create(ctx, name); err != nil {
		return nil, err
	}
	join := &api.Network{Join: []string{name}}
	server, err := t.create(ctx, api.CreateSandbox{Network: join})
	if err != nil {
		return nil, err
	}
	peer, err := t.create(ctx, api.CreateSandbox{Network: join})
	if err != nil {
		return nil, err
	}
	if err := drainInside(ctx, server); err != nil {
		return nil, err
	}
	s := &session{rounds: t.some(10)}
	slot, rules := s.row("slot, of a create", "ms").aim(1, 0), s.row("change rules", "ms")
	link, loopback := s.row("between linked sandboxes", "MB/s"), s.row("over the machine's loopback", "MB/s")
	s.round = func(ctx context.Context) error {
		sb, err := t.create(ctx, api.CreateSandbox{})
		if err != nil {
			return err
		}
		for _, step := range sb.BootSteps {
			if step.Name == "slot" {
				slot.add(step.MS)
			}
		}
		changeRules(ctx, sb, rules)
		if err := sb.Delete(ctx); err != nil {
			return err
		}
		sendOver(ctx, peer, server.ID+".internal", link)
		loopbackRate(ctx, loopback)
		return nil
	}
	s.end = func(ctx context.Context) error {
		for _, sb := range []*client.Sandbox{server, peer} {
			if err := sb.Delete(ctx); err != nil {
				return err
			}
		}
		return t.Client.Networks.Delete(ctx, name)
	}
	return s, nil
}

func changeRules(ctx context.Context, sb *client.Sandbox, r *row) {
	for i := range 5 {
		from := time.Now()
		deny := []string{fmt.Sprintf("203.0.113.%d", i)}
		if _, err := sb.SetNetwork(ctx, api.Network{NetworkRules: api.NetworkRules{Deny: deny}}); err != nil {
			r.fail(err)
			return
		}
		r.took(time.Since(from))
	}
}

// drainInside starts what takes bytes in a sandbox, and says when it has all.
func drainInside(ctx context.Context, sb *client.Sandbox) error {
	const program = `import socket
s = socket.create_server(("0.0.0.0", 7000))
open("/tmp/listening", "w")
buf = bytearray(1 << 20)
while True:
    c, _ = s.accept()
    while c.recv_into(buf):
        pass
    c.sendall(b"all")
    c.close()`
	if _, err := sb.ExecWith(ctx, api.Exec{Cmd: client.Argv("python3", "-c", program), Background: true}); err != nil {
		return err
	}
	res, err := sb.Exec(ctx, "sh", "-c", "for i in $(seq 200); do [ -e /tmp/listening ] && exit; sleep 0.1; done; exit 1")
	if err == nil && res.ExitCode != 0 {
		err = fmt.Errorf("nothing listens in the sandbox: %s", res.Stderr)
	}
	return err
}

// sendOver sends from a sandbox and measures there until all has arrived.
func sendOver(ctx context.Context, sb *client.Sandbox, to string, r *row) {
	program := fmt.Sprintf(`import socket, time
s = socket.create_connection(("%s", 7000))
data = bytes(1 << 20)
from_ = time.time()
for _ in range(%d):
    s.sendall(data)
s.shutdown(socket.SHUT_WR)
s.recv(3)
print(%d * 1.048576 / (time.time() - from_))`, to, linkMB, linkMB)
	res, err := sb.Exec(ctx, "python3", "-c", program)
	if err == nil && res.ExitCode != 0 {
		err = fmt.Errorf("sending between sandboxes: %s", res.Stderr)
	}
	if err != nil {
		r.fail(err)
		return
	}
	rate, err := strconv.ParseFloat(strings.TrimSpace(res.Stdout), 64)
	if err != nil {
		r.fail(err)
		return
	}
	r.add(rate)
}

// loopbackRate sends the same bytes from this program to itself.
func loopbackRate(ctx context.Context, r *row) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		r.fail(err)
		return
	}
	defer l.Close()
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		_, _ = io.Copy(io.Discard, c)
		_, _ = io.WriteString(c, "all")
	}()
	c, err := (&net.Dialer{}).DialContext(ctx, "tcp", l.Addr().String())
	if err != nil {
		r.fail(err)
		return
	}
	defer c.Close()
	data := make([]byte, 1<<20)
	from := time.Now()
	for range linkMB {
		if _, err := c.Write(data); err != nil {
			r.fail(err)
			return
		}
	}
	_ = c.(*net.TCPConn).CloseWrite()
	_, _ = io.ReadAll(c)
	r.add(linkMB * 1.048576 / time.Since(from).Seconds())
}
