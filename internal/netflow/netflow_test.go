package netflow

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/pandastack/pandastack/api"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func denial(name string) api.Connection {
	return api.Connection{Protocol: "tcp", Name: name, Address: "203.0.113.7", Port: 443, Verdict: api.VerdictDenied, Reason: "the rules"}
}

func allowed(port int) api.Connection {
	return api.Connection{Protocol: "tcp", Address: "203.0.113.7", Port: port, Verdict: api.VerdictAllowed, Sent: 10, Received: 20, Seconds: 1.5}
}

func read(t *testing.T, l *Log, id string, since int64, limit int) api.ConnectionLog {
	t.Helper()
	out, err := l.Read(id, since, limit)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// age makes the denials that are held look a minute older.
func age(l *Log) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, b := range l.books {
		for _, n := range b.lines {
			n.begun = n.begun.Add(-mergeWindow)
		}
	}
}

func TestMerge(t *testing.T) {
	t.Parallel()
	l := Open(t.TempDir())
	for range 5 {
		l.Record("s1", denial("a.com"))
	}
	l.Record("s1", denial("b.com"))
	l.Record("s2", denial("a.com"))
	l.Record("s1", allowed(1))
	l.Record("s1", allowed(1))
	check := func() {
		t.Helper()
		got := read(t, l, "s1", 0, 0)
		if len(got.Connections) != 4 || got.Connections[0].Count != 5 || got.Connections[1].Count != 0 || got.Dropped != 0 {
			t.Fatalf("%+v", got)
		}
		if c := got.Connections[2]; c.Port != 1 || c.Sent != 10 || c.Received != 20 || c.Seconds != 1.5 || c.Time.IsZero() {
			t.Fatalf("%+v", c)
		}
		for i, c := range got.Connections[1:] {
			if c.ID <= got.Connections[i].ID {
				t.Fatalf("numbers do not grow: %+v", got)
			}
		}
	}
	check()
	l.write(false) // denials stay in memory
	check()
	age(l)
	l.Record("s1", denial("a.com")) // a minute later: a line of its own
	l.write(false)
	got := read(t, l, "s1", 0, 0)
	if n := len(got.Connections); n != 5 || got.Connections[0].Count != 5 || got.Connections[4].Count != 0 {
		t.Fatalf("%+v", got)
	}
	if l.memory != 1 {
		t.Errorf("%d lines in memory", l.memory)
	}
	l.write(true)
	if again := read(t, Open(l.dir), "s1", 0, 0); len(again.Connections) != 5 {
		t.Errorf("after a restart: %+v", again)
	}
	if len(read(t, l, "s2", 0, 0).Connections) != 1 || len(read(t, l, "s3", 0, 0).Connections) != 0 {
		t.Error("another sandbox's log")
	}
}

func TestPages(t *testing.T) {
	t.Parallel()
	l := Open(t.TempDir())
	for i := range 10 {
		l.Record("s", allowed(i))
	}
	newest := read(t, l, "s", 0, 3).Connections
	if len(newest) != 3 || newest[0].Port != 7 || newest[2].Port != 9 {
		t.Fatalf("newest: %+v", newest)
	}
	l.write(false)
	first := read(t, l, "s", 0, 0).Connections[0]
	next := read(t, l, "s", first.ID, 3).Connections
	if len(next) != 3 || next[0].Port != 1 || next[2].Port != 3 {
		t.Fatalf("next: %+v", next)
	}
	if rest := read(t, l, "s", newest[2].ID, 0).Connections; len(rest) != 0 {
		t.Fatalf("after the last: %+v", rest)
	}
}

func TestBounds(t *testing.T) {
	t.Parallel()
	l := Open(t.TempDir())
	total := 0
	for round := range 60 {
		for i := range maxWaiting + 50 {
			c := allowed(i)
			c.Name = strings.Repeat("n", 1000)
			l.Record("s", c)
			total++
		}
		if n := len(l.books["s"].lines); n > maxWaiting {
			t.Fatalf("%d lines in memory", n)
		}
		l.write(false)
		if round == 0 {
			if got := read(t, l, "s", 0, 0); got.Dropped != 50 || len(got.Connections) != maxWaiting {
				t.Fatalf("dropped %d of %d", got.Dropped, total)
			}
		}
	}
	var size int64
	files, err := os.ReadDir(l.dir)
	if err != nil || len(files) != 2 {
		t.Fatal(files, err)
	}
	for _, f := range files {
		info, err := f.Info()
		if err != nil {
			t.Fatal(err)
		}
		size += info.Size()
	}
	if size > 2*FileSize {
		t.Errorf("%d bytes on disk", size)
	}
	got := read(t, l, "s", 0, 0)
	if int(got.Dropped)+len(got.Connections) != total {
		t.Errorf("%d lines and %d dropped, of %d", len(got.Connections), got.Dropped, total)
	}
}

func TestManyTargets(t *testing.T) {
	t.Parallel()
	l := Open(t.TempDir())
	heard := 0
	l.Denied = func(string, api.Connection) { heard++ }
	for i := range 2000 {
		l.Record("s", denial(fmt.Sprintf("n%d.com", i%1000)))
	}
	l.tell()
	if heard != maxEvents {
		t.Errorf("heard of %d refusals", heard)
	}
	if b := l.books["s"]; len(b.merged) > maxMerged || len(b.lines) > maxWaiting {
		t.Errorf("%d open of %d lines", len(b.merged), len(b.lines))
	}
}

func TestAllSandboxesTogether(t *testing.T) {
	t.Parallel()
	l := Open(t.TempDir())
	for i := range maxMemory/maxWaiting + 10 {
		for j := range maxWaiting {
			l.Record(fmt.Sprintf("s%d", i), allowed(j))
		}
	}
	if l.memory != maxMemory {
		t.Errorf("%d lines in memory", l.memory)
	}
}

func TestTornLine(t *testing.T) {
	t.Parallel()
	l := Open(t.TempDir())
	l.Record("s", allowed(1))
	l.write(true)
	f, err := os.OpenFile(l.path("s", newer), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprint(f, "not json\n\x00\xff\n[]\n"+`{"id":12,"proto`)
	f.Close()
	l.Record("s", allowed(2))
	l.write(true)
	got := read(t, l, "s", 0, 0).Connections
	ports := []int{}
	for _, c := range got {
		if c.Port != 0 {
			ports = append(ports, c.Port)
		}
	}
	if fmt.Sprint(ports) != "[1 2]" {
		t.Errorf("%+v", got)
	}
}

func TestForgetAndSweep(t *testing.T) {
	t.Parallel()
	l := Open(filepath.Join(t.TempDir(), "logs"))
	l.Sweep(nil) // there is no directory yet
	for _, id := range []string{"a", "b", "c", "../evil", "", "a/b"} {
		l.Record(id, allowed(1))
	}
	l.write(true)
	l.Record("a", allowed(2))
	l.Forget("a")
	l.Record("a", allowed(3)) // its connections are cut now, and say so
	l.Sweep([]string{"b"})
	l.write(true)
	files, err := os.ReadDir(l.dir)
	if err != nil || len(files) != 1 || files[0].Name() != "b.jsonl" {
		t.Errorf("%v, %v", files, err)
	}
	if n := len(read(t, l, "a", 0, 0).Connections); n != 0 {
		t.Errorf("%d lines of a forgotten sandbox", n)
	}
}

func TestDiskThatFails(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(dir, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	l := Open(dir)
	l.Record("s", allowed(1))
	l.write(false)
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	l.Record("s", allowed(2))
	l.write(false)
	if got := read(t, l, "s", 0, 0); got.Dropped != 1 || len(got.Connections) != 1 {
		t.Errorf("%+v", got)
	}
}

// TestOthersDoNotWait works on a sandbox's log while another's is held, and on a log
// that somebody still reads.
func TestOthersDoNotWait(t *testing.T) {
	t.Parallel()
	l := Open(t.TempDir())
	for _, id := range []string{"a", "b"} {
		l.Record(id, allowed(1))
	}
	l.write(true)
	release := l.hold("a")
	done := make(chan struct{})
	go func() {
		defer close(done)
		l.Record("a", allowed(2))
		l.Record("b", allowed(2))
		l.writeOne("b", false)
		if n := len(read(t, l, "b", 0, 0).Connections); n != 2 {
			t.Errorf("%d lines", n)
		}
		l.Forget("b")
	}()
	select {
	case <-done:
	case <-time.After(30 * time.Second):
		t.Error("one sandbox waits for another")
	}
	release()
	<-done
	v, err := l.view("a")
	if err != nil {
		t.Fatal(err)
	}
	l.Record("a", allowed(3))
	l.write(true)
	l.Forget("a")
	n := 0
	if err := v.each(func(c api.Connection, _ tally) {
		if n++; c.Port != n {
			t.Errorf("line %d is %+v", n, c)
		}
	}); err != nil || n != 2 {
		t.Errorf("%d lines, %v", n, err)
	}
	if len(l.locks) != 0 {
		t.Errorf("%d locks are kept", len(l.locks))
	}
}

// TestUntilForget records lines of a sandbox that has ended and is not yet
// forgotten: its last connections are cut then.
func TestUntilForget(t *testing.T) {
	t.Parallel()
	l := Open(t.TempDir())
	l.Record("s", allowed(1))
	l.write(true)
	l.Record("s", allowed(2))
	if n := len(read(t, l, "s", 0, 0).Connections); n != 2 {
		t.Errorf("%d lines", n)
	}
	l.Forget("s")
	l.Record("s", allowed(3))
	if n := len(read(t, l, "s", 0, 0).Connections); n != 0 {
		t.Errorf("%d lines after it was forgotten", n)
	}
}

// TestRun records from many goroutines while the log is written, read and swept.
func TestRun(t *testing.T) {
	t.Parallel()
	l := Open(t.TempDir())
	heard := make(chan string, 1000)
	l.Denied = func(id string, _ api.Connection) { heard <- id }
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- l.Run(ctx) }()
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			id := fmt.Sprintf("s%d", i)
			for j := range 200 {
				l.Record(id, allowed(j))
				l.Record(id, denial("same.com"))
				if j%50 == 0 {
					if _, err := l.Read(id, 0, 10); err != nil {
						t.Error(err)
					}
					l.Sweep([]string{"s0", "s1", "s2", "s3", "s4", "s5", "s6", "s7"})
				}
			}
		})
	}
	all.Wait()
	for range 8 {
		select {
		case <-heard:
		case <-time.After(30 * time.Second):
			t.Fatal("a refusal was not heard of")
		}
	}
	stop()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	for i := range 8 {
		got := read(t, Open(l.dir), fmt.Sprintf("s%d", i), 0, 0)
		count := 0
		for _, c := range got.Connections {
			if c.Verdict == api.VerdictDenied {
				count += max(c.Count, 1)
			}
		}
		if count != 200 || len(got.Connections)+int(got.Dropped) != 201 {
			t.Errorf("s%d: %d refusals, %d lines, %d dropped", i, count, len(got.Connections), got.Dropped)
		}
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte(`{"id":1,"time":"2026-01-01T00:00:00Z","protocol":"tcp","verdict":"denied"}` + "\n"))
	f.Add([]byte(`{"dropped":3}` + "\n" + `{"dropped":-1}`))
	f.Add([]byte("\n\n{}\n[1]\nnull\n\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		l := Open(t.TempDir())
		if err := os.WriteFile(l.path("s", newer), b, 0o600); err != nil {
			t.Fatal(err)
		}
		_, _ = l.Read("s", 0, 0)
		l.Record("s", allowed(7))
		l.write(true)
		got, err := l.Read("s", 0, 0)
		if err != nil && len(b) < FileSize {
			t.Fatal(err)
		}
		n := 0
		for _, c := range got.Connections {
			if c.Port == 7 {
				n++
			}
		}
		if err == nil && n == 0 {
			t.Fatal("the line after it is lost")
		}
	})
}

func BenchmarkRecord(b *testing.B) {
	l := Open(b.TempDir())
	b.ReportAllocs()
	for b.Loop() {
		l.Record("s", denial("a.com"))
	}
}
