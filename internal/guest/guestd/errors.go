//go:build linux

package guestd

import (
	"encoding/json"
	"errors"
	"net/http"
	"syscall"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"
)

// headerErrno names the system's error behind a failure, so that a client need
// not read the text: a name such as ENOENT, or reasonUser.
const headerErrno = "X-Errno"

// reasonUser stands in headerErrno for a user that does not exist.
const reasonUser = "NOUSER"

// fault is a failure on its way to a client of either dialect.
type fault struct {
	code   connect.Code
	reason string // value of headerErrno
	text   string
}

func (f *fault) Error() string { return f.text }

func invalid(text string) *fault { return &fault{code: connect.CodeInvalidArgument, text: text} }

// asFault gives the client's view of an error: system errors by their number.
func asFault(err error) *fault {
	var f *fault
	if errors.As(err, &f) {
		return f
	}
	var ce *connect.Error
	if errors.As(err, &ce) {
		return &fault{code: ce.Code(), text: ce.Message()}
	}
	var no syscall.Errno
	if !errors.As(err, &no) {
		return &fault{code: connect.CodeInternal, text: err.Error()}
	}
	code := connect.CodeInternal
	switch no {
	case syscall.ENOENT:
		code = connect.CodeNotFound
	case syscall.EEXIST, syscall.ENOTEMPTY:
		code = connect.CodeAlreadyExists
	case syscall.EACCES, syscall.EPERM, syscall.EROFS:
		code = connect.CodePermissionDenied
	case syscall.ENOTDIR, syscall.EISDIR, syscall.ELOOP, syscall.ENAMETOOLONG, syscall.EINVAL, syscall.EXDEV:
		code = connect.CodeInvalidArgument
	case syscall.ENOSPC, syscall.EDQUOT, syscall.EMFILE, syscall.ENFILE, syscall.EAGAIN, syscall.ENOMEM:
		code = connect.CodeResourceExhausted
	}
	return &fault{code: code, reason: unix.ErrnoName(no), text: err.Error()}
}

// rpcError is the Connect form of an error.
func rpcError(err error) error {
	if err == nil {
		return nil
	}
	f := asFault(err)
	ce := connect.NewError(f.code, errors.New(f.text))
	if f.reason != "" {
		ce.Meta().Set(headerErrno, f.reason)
	}
	return ce
}

// httpStatus is the status of the plain HTTP routes for an error.
func (f *fault) httpStatus() int {
	switch f.reason {
	case "ENOSPC", "EDQUOT":
		return http.StatusInsufficientStorage
	}
	switch f.code {
	case connect.CodeInvalidArgument, connect.CodeAlreadyExists:
		return http.StatusBadRequest
	case connect.CodeUnauthenticated:
		return http.StatusUnauthorized
	case connect.CodePermissionDenied:
		return http.StatusForbidden
	case connect.CodeNotFound:
		return http.StatusNotFound
	case connect.CodeResourceExhausted:
		return http.StatusTooManyRequests
	}
	return http.StatusInternalServerError
}

// httpFail answers a plain HTTP request with an error.
func httpFail(w http.ResponseWriter, err error) {
	f := asFault(err)
	if f.reason != "" {
		w.Header().Set(headerErrno, f.reason)
	}
	httpError(w, f.httpStatus(), f.text)
}

// httpError writes the error body that every client of the protocol parses.
func httpError(w http.ResponseWriter, status int, text string) {
	h := w.Header()
	h.Del("Content-Length")
	h.Del("Content-Encoding")
	h.Set("Content-Type", "application/json")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	body, _ := json.Marshal(struct { // a struct of an int and a string always encodes
		Code    int    `json:"code"`
		Message string `json:"message"`
	}{status, text})
	_, _ = w.Write(body) // the client may be gone; there is nobody else to tell
}

// httpJSON answers 200 with a value that always encodes.
func httpJSON(w http.ResponseWriter, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		httpError(w, http.StatusInternalServerError, err.Error())
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(body)
}
