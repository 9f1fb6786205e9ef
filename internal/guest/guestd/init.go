//go:build linux

package guestd

import (
	"context"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/guest"
)

// Version is the version of the envd protocol that is served here. Clients
// choose features by it.
const Version = "0.6.13"

// Headers of the answer to /init.
const (
	headerVersion  = "X-Envd-Version"
	headerStale    = "X-Init-Stale"    // 1: a later /init came before; nothing was done
	headerWarnings = "X-Init-Warnings" // what could not be renewed
)

// maxInit bounds the body of /init.
const maxInit = 4 << 20

// initRequest is the body of /init. The fields after DefaultWorkdir are ours.
// Absent fields leave what was set.
type initRequest struct {
	AccessToken    *string            `json:"accessToken"`
	EnvVars        *map[string]string `json:"envVars"`
	Timestamp      *time.Time         `json:"timestamp"`
	DefaultUser    *string            `json:"defaultUser"`
	DefaultWorkdir *string            `json:"defaultWorkdir"`

	ID          string       `json:"id"`
	Template    string       `json:"template"`
	Hostname    string       `json:"hostname"`
	Boot        api.BootMode `json:"boot"`
	ParentID    string       `json:"parentId"`
	SnapshotID  string       `json:"snapshotId"`
	Identity    bool         `json:"identity"`
	Nameservers []netip.Addr `json:"nameservers"`
	Entropy     []byte       `json:"entropy"` // random bytes of the host
}

// afterRestore reports whether the request is the first one of a machine that
// was made of another's memory.
func (r *initRequest) afterRestore() bool {
	if !r.Identity {
		return false
	}
	switch r.Boot {
	case api.BootRestore, api.BootFork, api.BootWake:
		return true
	}
	return false
}

// settings is what /init sets.
type settings struct {
	last     time.Time
	token    string
	env      map[string]string
	ids      map[string]string
	user     string
	workdir  string
	id       string
	template string
}

// init answers POST /init: who this sandbox is, and who may talk to it.
func (s *Server) init(w http.ResponseWriter, r *http.Request) {
	if !s.opt.LocalInit && !fromOutside(r.RemoteAddr) {
		httpError(w, http.StatusForbidden, "the sandbox cannot initialise itself")
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxInit))
	if err != nil {
		httpError(w, http.StatusBadRequest, "the body could not be read or is too large")
		return
	}
	s.initMu.Lock() // one at a time, from the check of the token to the end
	defer s.initMu.Unlock()
	if token := s.accessToken(); token != "" && !same(r.Header.Get(headerToken), token) {
		httpError(w, http.StatusUnauthorized, unauthorized)
		return
	}
	var req initRequest
	if len(body) > 0 {
		if err := json.Unmarshal(body, &req); err != nil {
			httpError(w, http.StatusBadRequest, "the body is not the JSON of an init request")
			return
		}
	}
	w.Header().Set(headerVersion, Version)
	w.Header().Set("Cache-Control", "no-store")
	if !s.apply(&req) {
		w.Header().Set(headerStale, "1")
		w.WriteHeader(http.StatusNoContent)
		return
	}
	if warnings := s.become(r.Context(), &req); len(warnings) > 0 {
		text := printable(strings.Join(warnings, "; "), 2000)
		s.opt.Log.Warn("init", "warnings", text)
		s.logLine(text)
		w.Header().Set(headerWarnings, text)
	}
	w.WriteHeader(http.StatusNoContent)
}

// become makes this machine the one of the request and lets its processes go
// on, and says what could not be done. Nothing here may wait for a process that
// stands still: what it reads and writes are regular files, and no lock that it
// takes is held while anything waits.
func (s *Server) become(ctx context.Context, req *initRequest) (warnings []string) {
	ctx = context.WithoutCancel(ctx) // the machine goes on even if nobody hears of it
	if req.Identity && s.opt.Hold != nil {
		defer func() { // whatever happens before
			if _, err := io.WriteString(s.opt.Hold, guest.HoldRelease); err != nil {
				warnings = append(warnings, "the other processes stand still: "+err.Error())
			}
		}()
	}
	if req.afterRestore() {
		s.code.Detach() // before its clients seem to leave
		s.conns.cutOthers(ctx)
	}
	id, warnings := s.renew(req)
	if req.afterRestore() {
		warnings = append(warnings, s.runHooks(ctx, id.environ())...)
		s.code.Renew() // the signal is the first that a kernel sees when it goes on
	}
	return warnings
}

// apply takes the values of a request, unless a later one came before it. The
// clock of the machine that a snapshot is of does not count for what is made of
// it: it may have been another host's.
func (s *Server) apply(req *initRequest) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := &s.settings
	if req.Timestamp != nil {
		if req.Timestamp.Before(st.last) && !req.afterRestore() {
			return false
		}
		st.last = *req.Timestamp
	}
	if req.AccessToken != nil && *req.AccessToken != "" {
		st.token = *req.AccessToken
	}
	if req.EnvVars != nil {
		st.env = usableEnv(*req.EnvVars)
	}
	if req.DefaultUser != nil {
		st.user = *req.DefaultUser
	}
	if req.DefaultWorkdir != nil {
		st.workdir = *req.DefaultWorkdir
	}
	if req.ID != "" {
		st.id = req.ID
	}
	if req.Template != "" {
		st.template = req.Template
	}
	if st.id != "" {
		st.ids = map[string]string{"E2B_SANDBOX": "true", "E2B_SANDBOX_ID": st.id, "E2B_TEMPLATE_ID": st.template}
	}
	return true
}

// usableEnv leaves out what no process could be started with.
func usableEnv(in map[string]string) map[string]string {
	out := make(map[string]string, len(in))
	for k, v := range in {
		if k != "" && !strings.ContainsAny(k, "=\x00") && !strings.ContainsRune(v, 0) {
			out[k] = v
		}
	}
	return out
}

func (s *Server) accessToken() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.settings.token
}

func (s *Server) defaultUser() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.settings.user
}

func (s *Server) defaultWorkdir() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.settings.workdir
}

// globalEnv is what every process gets: the image's variables, what /init gave,
// and the names of this sandbox.
func (s *Server) globalEnv() map[string]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := maps.Clone(s.base)
	maps.Copy(out, s.settings.env)
	maps.Copy(out, s.settings.ids)
	return out
}

// baseEnv is the daemon's own environment, which the runtime made of the
// image's, without what only concerns the daemon.
func baseEnv(environ []string) map[string]string {
	out := map[string]string{}
	for _, kv := range environ {
		k, v, ok := strings.Cut(kv, "=")
		switch {
		case !ok || k == "", k == "HOME", k == "USER", k == "LOGNAME", k == "PWD", k == "SHLVL", k == "_":
		case strings.HasPrefix(k, "GO") && strings.ToUpper(k) == k:
		default:
			out[k] = v
		}
	}
	return out
}
