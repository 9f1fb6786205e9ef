package guest

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"net/http"
	"net/netip"
	"time"

	"github.com/pandastack/pandastack/api"
)

// Init is who a sandbox is, told to its daemon after a start or a restore.
type Init struct {
	AccessToken    string            // from now on; the client uses it too
	EnvVars        map[string]string // of every process; replaces what was set before. nil leaves it
	ID, Template   string
	Hostname       string
	Timestamp      time.Time // zero is now; a later one than the last is needed
	DefaultUser    string
	DefaultWorkdir string
	Nameservers    []netip.Addr
	Boot           string // how it came up: an api.BootMode
	ParentID       string // of a fork: the sandbox it was forked from
	SnapshotID     string // that it was started from
	// Identity renews what a snapshot's machines would share: machine-id, the
	// kernel's random pool, hostname, /etc/hosts and the identity files. Names
	// stay as they are when ID is the one from before. After a restore (Boot)
	// it also cuts the daemon's older connections, runs the hooks of the image,
	// and then lets the processes of the machine go on.
	Identity bool
	// Warn, if set, gets what could not be renewed, as one line from the guest.
	Warn func(string)
}

// Init tells the daemon who its sandbox is. The client's token must be the one
// set before, if one was.
func (c *Client) Init(ctx context.Context, in Init) error {
	body := map[string]any{}
	put := func(key, value string) {
		if value != "" {
			body[key] = value
		}
	}
	put("accessToken", in.AccessToken)
	put("id", in.ID)
	put("template", in.Template)
	put("hostname", in.Hostname)
	put("defaultUser", in.DefaultUser)
	put("defaultWorkdir", in.DefaultWorkdir)
	put("boot", in.Boot)
	put("parentId", in.ParentID)
	put("snapshotId", in.SnapshotID)
	if in.EnvVars != nil {
		body["envVars"] = in.EnvVars
	}
	if in.Timestamp.IsZero() {
		in.Timestamp = time.Now()
	}
	body["timestamp"] = in.Timestamp.UTC()
	if len(in.Nameservers) > 0 {
		body["nameservers"] = in.Nameservers
	}
	if in.Identity {
		entropy := make([]byte, 32)
		rand.Read(entropy)
		body["identity"], body["entropy"] = true, entropy
	}
	data, err := json.Marshal(body)
	if err != nil {
		return api.Wrap(api.CodeInternal, err, "the sandbox's settings cannot be encoded")
	}
	resp, err := c.do(ctx, http.MethodPost, "/init", bytes.NewReader(data), http.Header{"Content-Type": {"application/json"}})
	if err != nil {
		return err
	}
	stale, warnings := resp.Header.Get("X-Init-Stale"), resp.Header.Get("X-Init-Warnings")
	if err := finish(resp); err != nil {
		return transportError(ctx, err)
	}
	if stale != "" {
		return api.Errorf(api.CodeSandboxState, "the sandbox was initialised by a later call; nothing was changed")
	}
	if in.AccessToken != "" {
		c.token.Store(&in.AccessToken)
	}
	if warnings != "" && in.Warn != nil {
		in.Warn(clean(warnings))
	}
	return nil
}
