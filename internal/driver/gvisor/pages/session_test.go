package pages

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// connect gives a session that serves content, and the sentry's end of it.
func connect(t testing.TB, content io.ReaderAt, size int64) (*Session, net.Conn) {
	t.Helper()
	near, far := net.Pipe()
	s := &Session{}
	s.serve("pages.img", size, content, near)
	t.Cleanup(func() {
		s.Close()
		far.Close()
	})
	far.SetDeadline(time.Now().Add(10 * time.Second))
	return s, far
}

func ask(t testing.TB, c net.Conn, r request) (answer, []byte) {
	t.Helper()
	if _, err := c.Write(r.encode()); err != nil {
		t.Fatal(err)
	}
	head := make([]byte, answerSize)
	if _, err := io.ReadFull(c, head); err != nil {
		t.Fatal(err)
	}
	a := decodeAnswer(head)
	body := make([]byte, a.count)
	if _, err := io.ReadFull(c, body); err != nil {
		t.Fatal(err)
	}
	return a, body
}

func TestSession(t *testing.T) {
	t.Parallel()
	content := bytes.Repeat([]byte("0123456789"), 1000)
	s, c := connect(t, bytes.NewReader(content), int64(len(content)))
	for i, r := range []request{{1, 10, 0}, {2, 1000, 5}, {3, 1, 9999}, {4, 10000, 0}} {
		a, body := ask(t, c, r)
		if a.id != r.id || a.status != statusOK || !bytes.Equal(body, content[r.offset:r.offset+uint64(r.length)]) {
			t.Errorf("request %d: %+v and %d bytes", i, a, len(body))
		}
	}
	if err := s.Err(); err != nil {
		t.Error(err)
	}
}

// TestHostile asks for what is not there, and for too much of what is.
func TestHostile(t *testing.T) {
	t.Parallel()
	const size = 4096
	for name, requests := range map[string][]request{
		"Behind":   {{1, 1, size}},
		"Over":     {{1, 2, size - 1}},
		"Nothing":  {{1, 0, 0}},
		"Huge":     {{1, maxRead + 1, 0}},
		"Overflow": {{1, 16, ^uint64(0) - 7}},
		"Negative": {{1, 16, 1 << 63}},
		"Again":    repeat(request{1, size, 0}, (2*size+maxRead)/size+1),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, c := connect(t, bytes.NewReader(make([]byte, size)), size)
			for _, r := range requests[:len(requests)-1] {
				ask(t, c, r)
			}
			c.Write(requests[len(requests)-1].encode())
			if n, err := c.Read(make([]byte, 1)); err == nil {
				t.Errorf("%d bytes of an answer", n)
			}
			if s.Err() == nil {
				t.Error("the session saw nothing wrong")
			}
		})
	}
}

func repeat(r request, n int) []request {
	all := make([]request, n)
	for i := range all {
		all[i] = r
	}
	return all
}

func TestFailure(t *testing.T) {
	t.Parallel()
	closed, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	s, c := connect(t, closed, 4096)
	if a, _ := ask(t, c, request{7, 16, 0}); a.id != 7 || a.status != statusFailed || a.count != 0 {
		t.Errorf("answer %+v of a file that cannot be read", a)
	}
	if !errors.Is(s.Err(), os.ErrClosed) {
		t.Errorf("Err = %v", s.Err())
	}
	s, c = connect(t, bytes.NewReader(make([]byte, 10)), 4096)
	if a, _ := ask(t, c, request{8, 16, 0}); a.status != statusFailed || !errors.Is(s.Err(), io.ErrUnexpectedEOF) {
		t.Errorf("answer %+v, %v, of a file that is too short", a, s.Err())
	}
}

// FuzzSession sends anything to a session: every answer is to a request that was
// allowed, and it always ends.
func FuzzSession(f *testing.F) {
	f.Add(request{1, 16, 0}.encode())
	f.Add(request{1, 4096, 4096}.encode())
	f.Add([]byte("short"))
	const size = 5000
	content := bytes.Repeat([]byte{7}, size)
	f.Fuzz(func(t *testing.T, sent []byte) {
		s, c := connect(t, bytes.NewReader(content), size)
		go func() {
			c.Write(sent)
			time.Sleep(time.Millisecond)
			c.Close()
		}()
		got, _ := io.ReadAll(c)
		for len(got) >= answerSize {
			a := decodeAnswer(got)
			if a.status != statusOK || a.count == 0 || a.count > size {
				t.Fatalf("answer %+v", a)
			}
			got = got[min(len(got), answerSize+int(a.count)):]
		}
		s.Close()
	})
}
