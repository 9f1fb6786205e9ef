package blob

import (
	"context"
	"net"
	"net/http"
	"time"
)

// transport makes connections that give up a server that is silent: one that
// neither sends nor takes a byte for as long as silence. Nothing is said of how
// long a request may last while bytes move.
func transport(silence time.Duration) *http.Transport {
	dialer := &net.Dialer{Timeout: min(silence, 10*time.Second)}
	return &http.Transport{
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := dialer.DialContext(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			return &patient{conn, silence}, nil
		},
		TLSHandshakeTimeout: min(silence, 10*time.Second),
		MaxIdleConnsPerHost: 64,
		IdleConnTimeout:     silence / 2, // before its patience ends by itself
		DisableCompression:  true,        // a range of what is compressed is not a range of the object
	}
}

// patient is a connection whose patience ends after silence, and begins anew
// with every byte in either direction: the answer to a large body comes only
// after all of it was taken.
type patient struct {
	net.Conn
	silence time.Duration
}

func (p *patient) Read(b []byte) (int, error) {
	if err := p.wait(); err != nil {
		return 0, err
	}
	return p.Conn.Read(b)
}

// writeStep is small enough that one step moves within a silence on any line.
const writeStep = 64 << 10

func (p *patient) Write(b []byte) (n int, err error) {
	for {
		if err := p.wait(); err != nil {
			return n, err
		}
		m, err := p.Conn.Write(b[n:min(n+writeStep, len(b))])
		n += m
		if err != nil || n == len(b) {
			return n, err
		}
	}
}

func (p *patient) wait() error { return p.SetDeadline(time.Now().Add(p.silence)) }
