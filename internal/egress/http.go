package egress

import (
	"bytes"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/pandastack/pandastack/api"
)

// http passes on the requests of a connection, each after its Host was checked.
// All go where the first went. What the server sends is passed on as it comes.
//
// The first request may ask for a WebSocket. Nothing of the client is then passed
// on until the server has answered, and everything after it has agreed.
func (f *flow) http() error {
	r, err := f.in.request(true)
	if err != nil {
		return asRefusal(err, errHead)
	}
	f.setName(r.host)
	how, targets, err := f.targets(r.host)
	if err != nil {
		return err
	}
	if err := f.connect(r.host, how, targets); err != nil {
		return err
	}
	f.decided()
	f.in.until(time.Time{})
	var down sync.WaitGroup
	switched, webSocket := make(chan bool, 1), r.webSocket
	down.Go(func() {
		if webSocket {
			switched <- f.switches()
		}
		f.relayDown()
	})
	err = f.requests(r, switched)
	var why refusal
	if errors.As(err, &why) {
		f.laterRefused(why)
	}
	f.ended(f.up, err)
	down.Wait()
	return nil
}

// requests passes on requests, beginning with r, until the client ends.
func (f *flow) requests(r request, switched <-chan bool) error {
	for {
		n, err := f.up.Write(r.head)
		f.sent.Add(int64(n))
		if err != nil {
			return err
		}
		r.head = nil // the body may take long
		k, err := f.in.body(f.up, r)
		f.sent.Add(k)
		if err != nil {
			return err
		}
		if r.webSocket && <-switched {
			k, err := f.in.copyAll(f.up)
			f.sent.Add(k)
			return err
		}
		if r, err = f.in.later(); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		rules, err := f.rules()
		if err != nil {
			return err
		}
		f.setName(r.host)
		if !f.stillAllowed(rules) {
			return errRules
		}
	}
}

// laterRefused writes a line about a request that was not the first of its
// connection, which has a line of its own.
func (f *flow) laterRefused(why refusal) {
	f.mu.Lock()
	c := api.Connection{
		Time: time.Now(), Protocol: "tcp", Name: f.name, Address: f.dialled.Addr().String(), Port: int(f.dialled.Port()),
		Verdict: api.VerdictDenied, Reason: string(why),
	}
	f.mu.Unlock()
	f.s.record(f.g.id, c)
}

// switches passes on the head of the server's answer and reports whether it agrees
// to speak another protocol from here on. The server may take any time to begin to
// answer; what it leaves half said is no agreement.
func (f *flow) switches() bool {
	up := inlet{conn: f.up}
	defer func() {
		up.until(time.Time{})
		n, _ := f.client.Write(up.buf)
		f.received.Add(int64(n))
	}()
	const blank = "\r\n\r\n"
	checked, begun := 0, false
	for {
		end := bytes.Index(up.buf[checked:], []byte(blank))
		if end < 0 {
			if len(up.buf) > 0 && !begun {
				begun = true
				up.until(time.Now().Add(helloTimeout))
			}
			checked = max(0, len(up.buf)-len(blank)+1)
			if up.fill(maxHead) != nil {
				return false
			}
			continue
		}
		end += checked
		checked, begun = 0, false
		status := up.buf[:min(end, len("HTTP/1.1 101"))]
		switch {
		case bytes.Equal(status, []byte("HTTP/1.1 101")):
			return true
		case !bytes.HasPrefix(status, []byte("HTTP/1.1 1")):
			return false
		}
		up.until(time.Time{})
		n, err := f.client.Write(up.take(end + len(blank))) // 100 and 103 come before the answer
		f.received.Add(int64(n))
		if err != nil {
			return false
		}
	}
}
