package client

import (
	"context"
	"net/http"

	"github.com/pandastack/pandastack/api"
)

// SSHKeys manages the public keys that may open shells in the owner's sandboxes.
type SSHKeys struct{ c *Client }

// Add adds a key, one line as in authorized_keys (request.invalid,
// quota.ssh_keys_exceeded). It counts as long as this client's API key is valid.
func (k *SSHKeys) Add(ctx context.Context, in api.AddSSHKey) (api.SSHKey, error) {
	var out api.SSHKey
	err := k.c.call(ctx, request{method: http.MethodPost, path: []string{"v1", "ssh-keys"}, in: in}, &out)
	return out, err
}

// List gives every key, oldest first.
func (k *SSHKeys) List(ctx context.Context) ([]api.SSHKey, error) {
	var out api.SSHKeyList
	err := k.c.call(ctx, request{method: http.MethodGet, path: []string{"v1", "ssh-keys"}}, &out)
	return out.Keys, err
}

// Delete removes a key, named by its fingerprint with or without SHA256:
// (ssh_key.not_found). Connections that were made with it end within a minute.
func (k *SSHKeys) Delete(ctx context.Context, fingerprint string) error {
	return k.c.call(ctx, request{method: http.MethodDelete, path: []string{"v1", "ssh-keys", fingerprint}}, nil)
}

// SSH says how to reach the sandbox by SSH; request.unsupported where the server
// does not serve it.
func (s *Sandbox) SSH(ctx context.Context) (api.SSHInfo, error) {
	var out api.SSHInfo
	err := s.c.call(ctx, request{method: http.MethodGet, path: []string{"v1", "sandboxes", s.ID, "ssh"}}, &out)
	return out, err
}
