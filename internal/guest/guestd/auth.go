//go:build linux

package guestd

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"time"
)

// headerToken carries the access token.
const headerToken = "X-Access-Token"

const unauthorized = "unauthorized access, please provide a valid access token or method signing if supported"

// same compares secrets without telling how much of them is right.
func same(a, b string) bool {
	x, y := sha256.Sum256([]byte(a)), sha256.Sum256([]byte(b))
	return subtle.ConstantTimeCompare(x[:], y[:]) == 1
}

// authorize lets a request through that needs no token or has it. /files may
// have a signature instead, and /init looks for itself.
func (s *Server) authorize(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		cors(w, r)
		if r.Method == http.MethodOptions {
			w.WriteHeader(http.StatusNoContent)
			return
		}
		token := s.accessToken()
		get := r.Method == http.MethodGet || r.Method == http.MethodHead
		switch {
		case token == "", r.URL.Path == "/health" && get, r.URL.Path == "/init" && r.Method == http.MethodPost:
		case r.URL.Path == "/files" && (get || r.Method == http.MethodPost):
			if msg := checkFiles(r, token, get, time.Now()); msg != "" {
				httpError(w, http.StatusUnauthorized, msg)
				return
			}
		case !same(r.Header.Get(headerToken), token):
			httpError(w, http.StatusUnauthorized, unauthorized)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// cors lets web pages of any origin call: what protects the daemon is its token.
func cors(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Origin") == "" {
		return
	}
	h := w.Header()
	h.Set("Access-Control-Allow-Origin", "*")
	h.Set("Access-Control-Expose-Headers", "Grpc-Status, Grpc-Message, Grpc-Status-Details-Bin, Location, Cache-Control, X-Content-Type-Options")
	if r.Method == http.MethodOptions {
		h.Set("Access-Control-Allow-Methods", "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS")
		if asked := r.Header.Get("Access-Control-Request-Headers"); asked != "" {
			h.Set("Access-Control-Allow-Headers", asked)
		}
		h.Set("Access-Control-Max-Age", "7200")
	}
}

// checkFiles says why a request to /files may not pass; empty is that it may.
func checkFiles(r *http.Request, token string, read bool, now time.Time) string {
	if got := r.Header.Get(headerToken); got != "" {
		if same(got, token) {
			return ""
		}
		return "access token present in header but does not match"
	}
	q := r.URL.Query()
	sig := q.Get("signature")
	if sig == "" {
		return "missing signature query parameter"
	}
	op := "write"
	if read {
		op = "read"
	}
	expiry := q.Get("signature_expiration")
	if !same(sig, sign(q.Get("path"), op, q.Get("username"), token, expiry)) {
		return "invalid signature"
	}
	if expiry != "" {
		if at, err := strconv.ParseInt(expiry, 10, 64); err != nil || at < now.Unix() {
			return "signature is already expired"
		}
	}
	return ""
}

// sign is the signature that lets whoever has it do one operation on one path.
// Expiry is unix seconds as text, or empty.
func sign(path, operation, username, token, expiry string) string {
	text := path + ":" + operation + ":" + username + ":" + token
	if expiry != "" {
		text += ":" + expiry
	}
	sum := sha256.Sum256([]byte(text))
	return "v1_" + base64.RawStdEncoding.EncodeToString(sum[:])
}

// fromOutside reports whether a request comes from another machine than this
// one. What cannot be told is taken for inside.
func fromOutside(remote string) bool {
	ap, err := netip.ParseAddrPort(remote)
	if err != nil {
		return false
	}
	peer := ap.Addr().Unmap().WithZone("")
	if peer.IsLoopback() || peer.IsUnspecified() {
		return false
	}
	own, err := net.InterfaceAddrs()
	if err != nil {
		return false
	}
	for _, a := range own {
		if n, ok := a.(*net.IPNet); ok {
			if addr, ok := netip.AddrFromSlice(n.IP); ok && addr.Unmap() == peer {
				return false
			}
		}
	}
	return true
}
