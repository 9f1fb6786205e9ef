package guest

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"unicode/utf8"

	"connectrpc.com/connect"

	"github.com/pandastack/pandastack/api"
)

// headerErrno names the system's error behind a failure in the sandbox.
const headerErrno = "X-Errno"

// area says what a call was about, which decides what a code means.
type area int

const (
	areaFile area = iota
	areaProcess
)

// rpcError is the coded form of an error of a service call.
func rpcError(ctx context.Context, err error, a area) error {
	if err == nil {
		return nil
	}
	var ce *connect.Error
	if !errors.As(err, &ce) || !connect.IsWireError(err) {
		if ce != nil && ctx.Err() == nil && ce.Code() == connect.CodeResourceExhausted {
			return api.Wrap(api.CodeTooLarge, err, "the sandbox's answer is larger than %d MiB", maxMessage>>20)
		}
		if ce != nil && ce.Code() == connect.CodeUnauthenticated {
			return refused(err)
		}
		return transportError(ctx, err)
	}
	return coded(ce.Code(), ce.Meta().Get(headerErrno), clean(ce.Message()), a, err)
}

// transportError is the coded form of an error that the daemon did not send.
func transportError(ctx context.Context, err error) error {
	var ae *api.Error
	var ne net.Error
	switch {
	case errors.As(err, &ae):
		return ae // from the dialer
	case errors.Is(ctx.Err(), context.DeadlineExceeded), errors.Is(err, context.DeadlineExceeded):
		return api.Wrap(api.CodeTimeout, err, "the sandbox did not answer in time")
	case ctx.Err() != nil, errors.Is(err, context.Canceled):
		return api.Wrap(api.CodeCanceled, err, "the call was given up")
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, net.ErrClosed),
		errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE),
		errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH), errors.As(err, &ne),
		errors.Is(err, syscall.ENOENT), connect.CodeOf(err) == connect.CodeUnavailable:
		return api.Wrap(api.CodeSandboxDied, err, "the sandbox does not answer any more")
	}
	return api.Wrap(api.CodeInternal, err, "the sandbox's daemon gave an answer that makes no sense")
}

func refused(err error) error {
	return api.Wrap(api.CodeInternal, err, "the sandbox's daemon refused the server's token")
}

// coded translates a failure that the daemon reported.
func coded(code connect.Code, errno, text string, a area, cause error) error {
	if c := byErrno(errno, a); c != "" {
		e := api.Wrap(c, cause, "%s", text)
		if errno != "NOUSER" && errno != "NOCWD" {
			e = e.With("errno", errno)
		}
		return e
	}
	pick := func(file, process api.Code) error {
		if a == areaFile {
			return api.Wrap(file, cause, "%s", text)
		}
		return api.Wrap(process, cause, "%s", text)
	}
	switch code {
	case connect.CodeNotFound:
		return pick(api.CodeFileNotFound, api.CodeProcessNotFound)
	case connect.CodeAlreadyExists:
		return pick(api.CodeFileExists, api.CodeProcessInvalid)
	case connect.CodePermissionDenied:
		return pick(api.CodeFilePermission, api.CodeProcessInvalid)
	case connect.CodeInvalidArgument:
		return pick(api.CodeFileInvalidPath, api.CodeProcessInvalid)
	case connect.CodeResourceExhausted:
		return pick(api.CodeTooLarge, api.CodeProcessInvalid)
	case connect.CodeInternal:
		return pick(api.CodeInternal, api.CodeProcessInvalid)
	case connect.CodeDeadlineExceeded:
		return api.Wrap(api.CodeTimeout, cause, "%s", text)
	case connect.CodeCanceled:
		return api.Wrap(api.CodeCanceled, cause, "%s", text)
	case connect.CodeUnavailable:
		return api.Wrap(api.CodeSandboxDied, cause, "the sandbox is stopping")
	case connect.CodeUnimplemented:
		return api.Wrap(api.CodeUnsupported, cause, "%s", text)
	case connect.CodeUnauthenticated:
		return refused(cause)
	}
	return api.Wrap(api.CodeInternal, cause, "the sandbox could not do it: %s", text)
}

// byErrno gives the code of a system error; empty is unknown.
func byErrno(errno string, a area) api.Code {
	switch {
	case errno == "":
		return ""
	case a == areaProcess:
		if len(errno) > 16 || !strings.HasPrefix(errno, "E") && errno != "NOUSER" && errno != "NOCWD" {
			return ""
		}
		if errno == "ESRCH" {
			return api.CodeProcessNotFound
		}
		return api.CodeProcessInvalid
	}
	switch errno {
	case "ENOENT":
		return api.CodeFileNotFound
	case "EEXIST", "ENOTEMPTY":
		return api.CodeFileExists
	case "EISDIR":
		return api.CodeFileIsDirectory
	case "ENOTDIR":
		return api.CodeFileNotDirectory
	case "EACCES", "EPERM", "EROFS":
		return api.CodeFilePermission
	case "EINVAL", "ENAMETOOLONG", "ELOOP", "EXDEV":
		return api.CodeFileInvalidPath
	case "ENOSPC", "EDQUOT":
		return api.CodeDiskFull
	case "NOUSER":
		return api.CodeInvalidRequest
	}
	return ""
}

// statusError is the coded form of a failed plain request.
func statusError(status int, errno string, body []byte, a area) error {
	var b struct {
		Message string `json:"message"`
	}
	text := http.StatusText(status)
	if json.Unmarshal(body, &b) == nil && b.Message != "" {
		text = b.Message
	}
	code := connect.CodeUnknown
	switch status {
	case http.StatusBadRequest:
		code = connect.CodeInvalidArgument
	case http.StatusUnauthorized, http.StatusForbidden:
		code = connect.CodeUnauthenticated
		if errno == "EACCES" || errno == "EPERM" || errno == "EROFS" {
			code = connect.CodePermissionDenied
		}
	case http.StatusNotFound:
		code = connect.CodeNotFound
	case http.StatusInsufficientStorage:
		errno = "ENOSPC"
	case http.StatusRequestedRangeNotSatisfiable:
		return api.Errorf(api.CodeInvalidRequest, "the file has no bytes in this range")
	}
	return coded(code, errno, clean(text), a, errors.New(http.StatusText(status)))
}

// clean makes text of a guest fit for a message: one line, bounded, valid.
func clean(s string) string {
	const most = 512
	if len(s) > most {
		s = s[:most]
	}
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == utf8.RuneError {
			return ' '
		}
		return r
	}, s)
}

// checkText refuses text that the protocol cannot carry.
func checkText(code api.Code, what string, values ...string) error {
	for _, v := range values {
		if !utf8.ValidString(v) || strings.ContainsRune(v, 0) {
			return api.Errorf(code, "%s is not UTF-8 or contains a NUL byte", what)
		}
	}
	return nil
}
