package api

import (
	"errors"
	"fmt"
	"net/http"
)

// Code is the stable name of a failure. Codes are part of the public API: a
// code is never renamed, and clients branch on it rather than on text.
type Code string

// Family is the kind of a failure: what a program can do about it, where the
// code says what exactly failed. Every code belongs to one, and every SDK has
// one error for each. It is an error itself, so that errors.Is(err,
// api.FamilyNotFound) asks for all the codes of a family.
type Family string

func (f Family) Error() string { return string(f) }

// The families.
const (
	FamilyAuth       Family = "auth"        // the key is missing, wrong, revoked, or may not do this
	FamilyNotFound   Family = "not_found"   // there is no such sandbox, file, snapshot, key or endpoint
	FamilyBadRequest Family = "bad_request" // the request is wrong, or asks for what this server cannot do
	FamilyConflict   Family = "conflict"    // what it is about is in another state, or its name is taken
	FamilyQuota      Family = "quota"       // a limit of the caller's is reached, or too many requests
	FamilyCapacity   Family = "capacity"    // no room now: on a host, a disk or in the blob store
	FamilyTimeout    Family = "timeout"     // it took longer than was allowed
	FamilyServer     Family = "server"      // the server or something it needs failed
	FamilyConnection Family = "connection"  // no server answers, or what answers is none
)

// Families lists every family in a fixed order.
func Families() []Family {
	return []Family{
		FamilyAuth, FamilyNotFound, FamilyBadRequest, FamilyConflict, FamilyQuota,
		FamilyCapacity, FamilyTimeout, FamilyServer, FamilyConnection,
	}
}

// Info is what the catalogue knows about a code: the HTTP status it travels
// under, whether trying the same request again can help, the family it belongs
// to, and advice for the person who reads it. Every code has a hint.
type Info struct {
	Code      Code
	Status    int
	Retryable bool
	Family    Family
	Hint      string
}

// The codes. The table below and docs/errors.md list the same set; a test
// compares them.
const (
	CodeInternal           Code = "internal"
	CodeInvalidRequest     Code = "request.invalid"
	CodeUnknownField       Code = "request.unknown_field"
	CodeTooLarge           Code = "request.too_large"
	CodeNotFound           Code = "request.not_found"
	CodeMethodNotAllowed   Code = "request.method_not_allowed"
	CodeCanceled           Code = "request.canceled"
	CodeTimeout            Code = "request.timeout"
	CodeUnsupported        Code = "request.unsupported"
	CodeKeyReused          Code = "request.key_reused"
	CodeInvalidToken       Code = "auth.invalid_token"
	CodeTokenRevoked       Code = "auth.token_revoked"
	CodeForbidden          Code = "auth.forbidden"
	CodeWorkspaceMismatch  Code = "auth.workspace_mismatch"
	CodeTokenNotFound      Code = "token.not_found"
	CodeSandboxNotFound    Code = "sandbox.not_found"
	CodeSandboxState       Code = "sandbox.invalid_state"
	CodeSandboxExists      Code = "sandbox.exists"
	CodeSandboxDied        Code = "sandbox.died"
	CodeBootFailed         Code = "sandbox.boot_failed"
	CodeTemplateNotFound   Code = "template.not_found"
	CodeTemplateBuild      Code = "template.build_failed"
	CodeTemplateInvalid    Code = "template.invalid"
	CodeFileNotFound       Code = "file.not_found"
	CodeFileExists         Code = "file.exists"
	CodeFileIsDirectory    Code = "file.is_directory"
	CodeFileNotDirectory   Code = "file.not_directory"
	CodeFilePermission     Code = "file.permission_denied"
	CodeFileInvalidPath    Code = "file.invalid_path"
	CodeDiskFull           Code = "file.no_space"
	CodeProcessNotFound    Code = "process.not_found"
	CodeProcessInvalid     Code = "process.invalid"
	CodeContextNotFound    Code = "context.not_found"
	CodeGitAuth            Code = "git.auth_failed"
	CodeGitNotFound        Code = "git.not_found"
	CodeGitNoRepository    Code = "git.not_a_repository"
	CodeGitConflict        Code = "git.conflict"
	CodeGitNothing         Code = "git.nothing_to_commit"
	CodeGitUnreachable     Code = "git.remote_unreachable"
	CodeGitFailed          Code = "git.failed"
	CodeMCPSession         Code = "mcp.session_not_found"
	CodeLSPLanguage        Code = "lsp.unknown_language"
	CodeLSPNotInstalled    Code = "lsp.not_installed"
	CodeDriverUnavailable  Code = "driver.unavailable"
	CodePreviewUnreachable Code = "preview.unreachable"
	CodeSnapshotMismatch   Code = "snapshot.incompatible"
	CodeSnapshotCorrupt    Code = "snapshot.corrupt"
	CodeSnapshotNotFound   Code = "snapshot.not_found"
	CodeSnapshotExists     Code = "snapshot.exists"
	CodeSnapshotInUse      Code = "snapshot.in_use"
	CodeSnapshotStore      Code = "snapshot.store_unavailable"
	CodeSnapshotStoreFull  Code = "snapshot.store_full"
	CodeSSHKeyNotFound     Code = "ssh_key.not_found"
	CodeQuotaSSHKeys       Code = "quota.ssh_keys_exceeded"
	CodeQuotaSandboxes     Code = "quota.sandboxes_exceeded"
	CodeQuotaVCPU          Code = "quota.vcpu_exceeded"
	CodeQuotaNetworks      Code = "quota.networks_exceeded"
	CodeNetworkNotFound    Code = "network.not_found"
	CodeNetworkExists      Code = "network.exists"
	CodeNetworkInUse       Code = "network.in_use"
	CodeNetworkName        Code = "network.name_taken"
	CodeCapacity           Code = "capacity.unavailable"
	CodeHostUnreachable    Code = "host.unreachable"
	CodeHostSetup          Code = "host.setup_incomplete"
	CodeDataDirLocked      Code = "server.data_dir_locked"
	CodeStoreUnavailable   Code = "server.store_unavailable"
	CodeStoreCorrupt       Code = "server.store_corrupt"
	CodePortInUse          Code = "server.port_in_use"
	CodeServerUnreachable  Code = "client.server_unreachable"
	CodeNotAServer         Code = "client.not_a_pandastack_server"
	CodeRateLimited        Code = "rate_limit.api"
	CodeNotRoot            Code = "host.not_root"
	CodeKernelFeature      Code = "host.kernel_feature_missing"
	CodeNetworkUnavailable Code = "host.network_unavailable"
)

var catalogue = []Info{
	{CodeInternal, http.StatusInternalServerError, true, FamilyServer, "This is a fault of the server. Its log has the cause under the request id."},
	{CodeInvalidRequest, http.StatusBadRequest, false, FamilyBadRequest, "Correct the field named in the message; /openapi.json has the schema."},
	{CodeUnknownField, http.StatusBadRequest, false, FamilyBadRequest, "Remove or correct the field; /openapi.json lists the fields that exist."},
	{CodeTooLarge, http.StatusRequestEntityTooLarge, false, FamilyBadRequest, "Send less; files of any size go through the fs endpoint as a stream."},
	{CodeNotFound, http.StatusNotFound, false, FamilyNotFound, "Check the path; /openapi.json lists every endpoint."},
	{CodeMethodNotAllowed, http.StatusMethodNotAllowed, false, FamilyBadRequest, "Use a method that this path has; /openapi.json lists them."},
	{CodeCanceled, 499, true, FamilyConnection, "The client closed the connection before the answer was ready."},
	{CodeTimeout, http.StatusGatewayTimeout, true, FamilyTimeout, "Allow more time (timeout_seconds), or run the command in the background."},
	{CodeUnsupported, http.StatusNotImplemented, false, FamilyBadRequest, "This host or driver cannot do it; `pandastack doctor` shows what it can."},
	{CodeKeyReused, http.StatusConflict, false, FamilyConflict, "Use a new Idempotency-Key for every new request; repeat one only with the same body."},
	{CodeInvalidToken, http.StatusUnauthorized, false, FamilyAuth, "Send `Authorization: Bearer pds_...`; the first key is in admin.key of the server's data directory."},
	{CodeTokenRevoked, http.StatusUnauthorized, false, FamilyAuth, "The key was revoked; create another with `pandastack token create`."},
	{CodeForbidden, http.StatusForbidden, false, FamilyAuth, "The key is valid but may not do this; use an admin key."},
	{CodeWorkspaceMismatch, http.StatusForbidden, false, FamilyAuth, "The key belongs to another workspace."},
	{CodeTokenNotFound, http.StatusNotFound, false, FamilyNotFound, "List the keys with `pandastack token list`."},
	{CodeSandboxNotFound, http.StatusNotFound, false, FamilyNotFound, "It was deleted, its time to live ran out, or it belongs to another key; list with `pandastack sandbox list`."},
	{CodeSandboxState, http.StatusConflict, false, FamilyConflict, "Look at the sandbox's status first (`pandastack sandbox get`)."},
	{CodeSandboxExists, http.StatusConflict, false, FamilyConflict, "Choose another id or use the sandbox that exists."},
	{CodeSandboxDied, http.StatusConflict, false, FamilyConflict, "The sandbox stopped by itself; its logs and events say why (a common cause is its memory limit)."},
	{CodeBootFailed, http.StatusInternalServerError, true, FamilyServer, "The sandbox did not start; the server's log has the console output under the sandbox id."},
	{CodeTemplateNotFound, http.StatusNotFound, false, FamilyNotFound, "List the templates with `pandastack template list`."},
	{CodeTemplateBuild, http.StatusInternalServerError, false, FamilyServer, "The log of the build says which step failed."},
	{CodeTemplateInvalid, http.StatusBadRequest, false, FamilyBadRequest, "A template is a directory or tar of a root filesystem, or a recipe; see docs/templates.md."},
	{CodeFileNotFound, http.StatusNotFound, false, FamilyNotFound, "Check the path; relative paths start in the user's home directory."},
	{CodeFileExists, http.StatusConflict, false, FamilyConflict, "Remove it first or choose another path."},
	{CodeFileIsDirectory, http.StatusBadRequest, false, FamilyBadRequest, "The path is a directory; use the directory endpoint."},
	{CodeFileNotDirectory, http.StatusBadRequest, false, FamilyBadRequest, "The path is not a directory."},
	{CodeFilePermission, http.StatusForbidden, false, FamilyBadRequest, "The sandbox's own file permissions refuse this; run as root or change the mode."},
	{CodeFileInvalidPath, http.StatusBadRequest, false, FamilyBadRequest, "A path may not be empty or contain NUL bytes."},
	{CodeDiskFull, http.StatusInsufficientStorage, false, FamilyCapacity, "The sandbox's disk is full; delete files or create it with a larger disk_mb."},
	{CodeProcessNotFound, http.StatusNotFound, false, FamilyNotFound, "The process has ended or was never started here."},
	{CodeProcessInvalid, http.StatusBadRequest, false, FamilyBadRequest, "Check the command, the working directory and the user."},
	{CodeContextNotFound, http.StatusNotFound, false, FamilyNotFound, "The code context was deleted, or the id is of another sandbox; list with GET /v1/sandboxes/{id}/contexts."},
	{CodeGitAuth, http.StatusForbidden, false, FamilyAuth, "The remote refused the name and password, or none were given; send auth with a valid token."},
	{CodeGitNotFound, http.StatusNotFound, false, FamilyNotFound, "Check the names of repository, branch, commit and file."},
	{CodeGitNoRepository, http.StatusNotFound, false, FamilyNotFound, "Name the directory of a repository in path, or clone one first."},
	{CodeGitConflict, http.StatusConflict, false, FamilyConflict, "Git's own message says what stands in the way: commit or stash changes, resolve conflicts, or pull first."},
	{CodeGitNothing, http.StatusConflict, false, FamilyConflict, "Stage changes first (add), or set all; allow_empty makes a commit without any."},
	{CodeGitUnreachable, http.StatusBadGateway, true, FamilyServer, "The remote does not answer from inside the sandbox; check its address and the sandbox's network."},
	{CodeGitFailed, http.StatusBadRequest, false, FamilyBadRequest, "Git's own message says why."},
	{CodeMCPSession, http.StatusNotFound, false, FamilyNotFound, "It ended or was begun with another key; begin a new one by sending initialize without a session id."},
	{CodeLSPLanguage, http.StatusNotFound, false, FamilyNotFound, "GET /v1/lsp/languages lists the languages."},
	{CodeLSPNotInstalled, http.StatusConflict, false, FamilyConflict, "Install a language server in the sandbox or its template; GET /v1/lsp/languages says which ones are known and how."},
	{CodeDriverUnavailable, http.StatusBadRequest, false, FamilyBadRequest, "`pandastack doctor` says which drivers this host has, and why not the others."},
	{CodePreviewUnreachable, http.StatusBadGateway, true, FamilyServer, "Start a server on this port inside the sandbox; it must listen on 0.0.0.0 or ::, not on 127.0.0.1 alone."},
	{CodeSnapshotMismatch, http.StatusConflict, false, FamilyConflict, "The snapshot was made by another runtime build, CPU or kernel; start it on a host like the one it was made on, or use a snapshot without memory, which starts anywhere."},
	{CodeSnapshotCorrupt, http.StatusInternalServerError, false, FamilyServer, "The bytes do not match their checksum; delete the snapshot and make it again."},
	{CodeSnapshotNotFound, http.StatusNotFound, false, FamilyNotFound, "It was deleted, or it belongs to another key; list with `pandastack snapshot list`."},
	{CodeSnapshotExists, http.StatusConflict, false, FamilyConflict, "Choose another name, or delete the snapshot that has it."},
	{CodeSnapshotInUse, http.StatusConflict, true, FamilyConflict, "Something is being made from it; try again when that is done."},
	{CodeSnapshotStore, http.StatusServiceUnavailable, true, FamilyServer, "The blob store does not answer; what was stored before is unharmed."},
	{CodeSnapshotStoreFull, http.StatusInsufficientStorage, false, FamilyCapacity, "Free space in the blob store or on the host's disk, or delete snapshots; nothing that was stored before is harmed."},
	{CodeSSHKeyNotFound, http.StatusNotFound, false, FamilyNotFound, "List the keys with `pandastack ssh-key list`."},
	{CodeQuotaSSHKeys, http.StatusTooManyRequests, false, FamilyQuota, "Delete SSH keys that are not needed (`pandastack ssh-key delete`)."},
	{CodeQuotaSandboxes, http.StatusTooManyRequests, false, FamilyQuota, "Delete sandboxes that are not needed or raise the quota."},
	{CodeQuotaVCPU, http.StatusTooManyRequests, false, FamilyQuota, "Ask for fewer CPUs or raise the quota."},
	{CodeQuotaNetworks, http.StatusTooManyRequests, false, FamilyQuota, "Delete networks that are not needed or raise the quota."},
	{CodeNetworkNotFound, http.StatusNotFound, false, FamilyNotFound, "Make it first with `pandastack network create`; `pandastack network list` shows those there are."},
	{CodeNetworkExists, http.StatusConflict, false, FamilyConflict, "Use the network that exists, or choose another name."},
	{CodeNetworkInUse, http.StatusConflict, false, FamilyConflict, "Delete its members, or let them leave it (`pandastack sandbox network set`), first."},
	{CodeNetworkName, http.StatusConflict, false, FamilyConflict, "Choose another network.name, or leave it out: a member is always <id>.internal."},
	{CodeCapacity, http.StatusServiceUnavailable, true, FamilyCapacity, "No host has room now; try again or add a host."},
	{CodeHostUnreachable, http.StatusServiceUnavailable, true, FamilyCapacity, "The host that runs this sandbox does not answer."},
	{CodeHostSetup, http.StatusServiceUnavailable, false, FamilyServer, "Something this needs is not installed; `pandastack doctor` says what and how to install it."},
	{CodeDataDirLocked, http.StatusConflict, false, FamilyServer, "Another server uses this data directory; stop it or give this one another --data-dir."},
	{CodeStoreUnavailable, http.StatusServiceUnavailable, true, FamilyServer, "The database does not answer."},
	{CodeStoreCorrupt, http.StatusInternalServerError, false, FamilyServer, "The database file is damaged; restore it from a backup or move it away to start empty. Nothing was changed."},
	{CodePortInUse, http.StatusConflict, false, FamilyServer, "Another program listens there; choose another --listen."},
	{CodeServerUnreachable, http.StatusBadGateway, true, FamilyConnection, "Is the server running, and is PANDASTACK_API right? Start one with `pandastack server`."},
	{CodeNotAServer, http.StatusBadGateway, false, FamilyConnection, "Something else answers at this address; check PANDASTACK_API."},
	{CodeRateLimited, http.StatusTooManyRequests, true, FamilyQuota, "Wait for the time in Retry-After."},
	{CodeNotRoot, http.StatusForbidden, false, FamilyServer, "Run it as root (sudo): namespaces, mounts and cgroups need it. Sandboxed code never runs as root of the host."},
	{CodeKernelFeature, http.StatusNotImplemented, false, FamilyServer, "`pandastack doctor` lists what the kernel must offer."},
	{CodeNetworkUnavailable, http.StatusServiceUnavailable, false, FamilyServer, "The host cannot make sandbox networks; `pandastack doctor` says why."},
}

var byCode = func() map[Code]Info {
	m := make(map[Code]Info, len(catalogue))
	for _, i := range catalogue {
		m[i.Code] = i
	}
	return m
}()

// Catalogue lists every code in a fixed order.
func Catalogue() []Info { return append([]Info(nil), catalogue...) }

// Error is the one error type from the store to the SDKs. Message is safe to
// show to any caller. The wrapped cause is for logs and is never serialised.
type Error struct {
	Code      Code           `json:"code" doc:"Stable name of the failure" example:"sandbox.not_found"`
	Message   string         `json:"message" doc:"What happened, for people"`
	Hint      string         `json:"hint,omitempty" doc:"What to do about it"`
	RequestID string         `json:"request_id,omitempty" doc:"Names this request in the server's log" example:"req_3f9c2a"`
	Details   map[string]any `json:"details,omitempty" doc:"More, by code: retryable, retry_after_sec, field, ..."`
	cause     error
}

// Envelope is the body of every failed request.
type Envelope struct {
	Error *Error `json:"error"`
}

// Errorf makes an error with a code. A %w verb wraps a cause, whose text does
// become part of the message: use Wrap where the cause may not be shown.
func Errorf(code Code, format string, args ...any) *Error {
	err := fmt.Errorf(format, args...)
	return &Error{Code: code, Message: err.Error(), Hint: byCode[code].Hint, cause: errors.Unwrap(err)}
}

// Wrap makes an error with a code whose cause is kept for the log only.
func Wrap(code Code, cause error, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...), Hint: byCode[code].Hint, cause: cause}
}

// With returns a copy of the error with one more detail.
func (e *Error) With(key string, value any) *Error {
	c := *e
	c.Details = make(map[string]any, len(e.Details)+1)
	for k, v := range e.Details {
		c.Details[k] = v
	}
	c.Details[key] = value
	return &c
}

// WithHint returns a copy of the error whose advice replaces the catalogue's.
func (e *Error) WithHint(hint string) *Error {
	c := *e
	c.Hint = hint
	return &c
}

func (e *Error) Error() string {
	if e.cause != nil {
		if msg := e.cause.Error(); msg != e.Message {
			return fmt.Sprintf("%s: %s: %s", e.Code, e.Message, msg)
		}
	}
	return fmt.Sprintf("%s: %s", e.Code, e.Message)
}

// Unwrap gives the cause, which stays on this side of the wire.
func (e *Error) Unwrap() error { return e.cause }

// Is reports whether target is the error's family or an *Error with the same
// code, so that errors.Is(err, &api.Error{Code: c}) works.
func (e *Error) Is(target error) bool {
	if f, ok := target.(Family); ok {
		return f == e.Family()
	}
	t, ok := target.(*Error)
	return ok && t.Code == e.Code && t.Message == ""
}

// Family is the family of the error's code. A code that this version does not
// know, from a newer server, is a failure of the server.
func (e *Error) Family() Family {
	if i, ok := byCode[e.Code]; ok {
		return i.Family
	}
	return FamilyServer
}

// Status is the HTTP status the error travels under.
func (e *Error) Status() int {
	if i, ok := byCode[e.Code]; ok {
		return i.Status
	}
	return http.StatusInternalServerError
}

// CodeOf gives the code of an error, or CodeInternal for one that has none.
func CodeOf(err error) Code {
	var e *Error
	if errors.As(err, &e) {
		return e.Code
	}
	return CodeInternal
}

// AsError gives the coded error within err. An error without a code becomes
// CodeInternal with a message that says nothing of its cause.
func AsError(err error) *Error {
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	return Wrap(CodeInternal, err, "something went wrong on the server")
}
