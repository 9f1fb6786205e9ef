//go:build linux

package guest_test

import (
	"context"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/guest"
	pb "github.com/pandastack/pandastack/internal/guest/envdpb"
)

// Clients count the events of an upload.
func TestWatchSeesAnUploadAsThreeEvents(t *testing.T) {
	t.Parallel()
	d := startDaemon(t)
	ctx, cancel := context.WithCancel(testContext(t))
	defer cancel()
	tr := &http.Transport{}
	defer tr.CloseIdleConnections()
	c := pb.NewFilesystemClient(&http.Client{Transport: tr}, "http://"+d.addr, connect.WithProtoJSON())
	dir := t.TempDir()
	if err := os.Mkdir(dir+"/nested", 0o755); err != nil {
		t.Fatal(err)
	}
	stream, err := c.WatchDir(ctx, connect.NewRequest(&pb.WatchDirRequest{Path: dir, Recursive: true, IncludeEntry: true}))
	if err != nil {
		t.Fatal(err)
	}
	if !stream.Receive() || stream.Msg().GetStart() == nil {
		t.Fatal(stream.Err())
	}
	polled, err := c.CreateWatcher(ctx, connect.NewRequest(&pb.CreateWatcherRequest{Path: dir + "/nested"}))
	if err != nil {
		t.Fatal(err)
	}
	if err := d.WriteFile(ctx, dir+"/nested/file", "", strings.NewReader("small")); err != nil {
		t.Fatal(err)
	}
	if _, err := d.MakeDir(ctx, dir+"/later/deep", ""); err != nil {
		t.Fatal(err)
	}
	var got []string
	for len(got) < 5 && stream.Receive() {
		ev := stream.Msg().GetFilesystem()
		if strings.HasPrefix(ev.GetName(), "later") && ev.GetType() != pb.EventType_EVENT_TYPE_CREATE {
			continue // the owner of a directory is set after it is made
		}
		got = append(got, ev.GetName()+" "+strings.TrimPrefix(ev.GetType().String(), "EVENT_TYPE_"))
		if ev.GetEntry().GetPath() != dir+"/"+ev.GetName() {
			t.Errorf("entry of %s: %v", ev.GetName(), ev.GetEntry())
		}
	}
	want := "nested/file CREATE, nested/file CHMOD, nested/file WRITE, later CREATE, later/deep CREATE"
	if s := strings.Join(got, ", "); s != want {
		t.Fatalf("%s, want %s: %v", s, want, stream.Err())
	}
	cancel()
	_ = stream.Close()
	ctx = testContext(t)
	id := polled.Msg.GetWatcherId()
	var events []*pb.FilesystemEvent
	eventually(t, "three events polled", func() bool {
		resp, err := c.GetWatcherEvents(ctx, connect.NewRequest(&pb.GetWatcherEventsRequest{WatcherId: id}))
		if err != nil {
			t.Fatal(err)
		}
		events = append(events, resp.Msg.GetEvents()...)
		return len(events) >= 3
	})
	if len(events) != 3 || !strings.HasPrefix(id, "w") || events[0].GetName() != "file" {
		t.Fatal(id, events)
	}
	if _, err := c.RemoveWatcher(ctx, connect.NewRequest(&pb.RemoveWatcherRequest{WatcherId: id})); err != nil {
		t.Fatal(err)
	}
	_, err = c.GetWatcherEvents(ctx, connect.NewRequest(&pb.GetWatcherEventsRequest{WatcherId: id}))
	if connect.CodeOf(err) != connect.CodeNotFound {
		t.Fatal(err)
	}
	_, err = c.CreateWatcher(ctx, connect.NewRequest(&pb.CreateWatcherRequest{Path: dir + "/nested/file"}))
	if connect.CodeOf(err) != connect.CodeInvalidArgument {
		t.Fatal(err)
	}
}

func TestLogs(t *testing.T) {
	t.Parallel()
	d := startDaemon(t)
	ctx := testContext(t)
	read := func(o guest.LogOptions) string {
		s, err := d.Logs(ctx, o)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		var out []string
		for {
			line, err := s.Recv()
			if err == io.EOF {
				return strings.Join(out, ",")
			}
			if err != nil {
				t.Fatal(err)
			}
			if line.PID <= 0 || time.Since(line.Time) > time.Hour {
				t.Errorf("%+v", line)
			}
			out = append(out, line.Stream+":"+line.Line)
		}
	}
	if got := read(guest.LogOptions{}); got != "" {
		t.Fatal(got)
	}
	d.sh(t, "echo one; printf 'two\\r\\nthree'")
	d.sh(t, "echo bad >&2")
	if got := read(guest.LogOptions{}); got != "stdout:one,stdout:two,stdout:three,stderr:bad" {
		t.Fatal(got)
	}
	if got := read(guest.LogOptions{Tail: 2}); got != "stdout:three,stderr:bad" {
		t.Fatal(got)
	}
	if got := read(guest.LogOptions{Stream: "stderr"}); got != "stderr:bad" {
		t.Fatal(got)
	}
	follow, cancel := context.WithCancel(ctx)
	s, err := d.Logs(follow, guest.LogOptions{Tail: 1, Follow: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"bad", "new", "end"} {
		line, err := s.Recv()
		if err != nil || line.Line != want {
			t.Fatal(line, err)
		}
		if want == "bad" {
			d.sh(t, "echo new; printf end")
		}
	}
	cancel()
	_, err = s.Recv()
	wantCode(t, err, api.CodeCanceled)
	s.Close()
	// The log is bounded, and lines of any length come out of it.
	d.sh(t, "head -c 3000000 /dev/zero | tr '\\0' x; seq 100000")
	all := read(guest.LogOptions{})
	if len(all) > 700<<10 || !strings.HasSuffix(all, "stdout:100000") {
		t.Fatal(len(all))
	}
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	d := startDaemon(t)
	m, err := d.Metrics(testContext(t))
	if err != nil || m.CPUs < 1 || m.MemTotal == 0 || m.MemUsed > m.MemTotal || m.DiskTotal == 0 {
		t.Fatalf("%+v %v", m, err)
	}
}

// TestIdleMemory holds what the daemon has resident when it is new and idle: all of
// it, and what is its own, beside pages of the program that every sandbox shares.
func TestIdleMemory(t *testing.T) {
	t.Parallel()
	d := startDaemon(t)
	if err := d.Health(testContext(t)); err != nil {
		t.Fatal(err)
	}
	all, own := d.rssKB(t), d.statusKB(t, "RssAnon:")
	t.Logf("idle daemon: %d KB resident, %d KB of them its own", all, own)
	if all > 12<<10 || own > 4<<10 {
		t.Errorf("the idle daemon has %d KB resident, %d KB of its own; at most 12288 and 4096 are wanted", all, own)
	}
}
