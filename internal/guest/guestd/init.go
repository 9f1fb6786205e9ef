//go:build linux

package guestd

import (
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/netip"
	"strings"
	"time"
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
	Identity    bool         `json:"identity"`
	Nameservers []netip.Addr `json:"nameservers"`
	Entropy     []byte       `json:"entropy"` // random bytes of the host
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
	if warnings := s.renew(&req); len(warnings) > 0 {
		text := printable(strings.Join(warnings, "; "), 2000)
		s.opt.Log.Warn("init", "warnings", text)
		w.Header().Set(headerWarnings, text)
	}
	w.WriteHeader(http.StatusNoContent)
}

// apply takes the values of a request, unless a later one came before it.
func (s *Server) apply(req *initRequest) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := &s.settings
	if req.Timestamp != nil {
		if req.Timestamp.Before(st.last) {
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
