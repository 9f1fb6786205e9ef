package httpapi

import (
	"context"
	"net"
	"net/http"
	"strconv"

	"github.com/danielgtaylor/huma/v2"

	"github.com/pandastack/pandastack/api"
)

// SSH is how the server's SSH is reached.
type SSH struct {
	Host        string // empty: the one that the client reached the API by
	Port        int
	HostKey     string // as in known_hosts, without the host
	Fingerprint string // of the host key
}

type sshKeysOutput struct{ Body api.SSHKeyList }

func (a *API) listSSHKeys(ctx context.Context, _ *nothing) (*sshKeysOutput, error) {
	list, err := a.Control.SSHKeys(ctx, who(ctx))
	if err != nil {
		return nil, err
	}
	return &sshKeysOutput{list}, nil
}

type (
	addSSHKeyInput struct{ Body api.AddSSHKey }
	sshKeyOutput   struct{ Body api.SSHKey }
)

func (a *API) addSSHKey(ctx context.Context, in *addSSHKeyInput) (*sshKeyOutput, error) {
	key, err := a.Control.AddSSHKey(ctx, who(ctx), in.Body)
	if err != nil {
		return nil, err
	}
	return &sshKeyOutput{key}, nil
}

type fingerprintInput struct {
	Fingerprint string `path:"fingerprint" maxLength:"80" doc:"As listed, with or without SHA256:; - and _ may stand for + and /" example:"Zk5S3Zl0nJH0b2l1V9cX7m2W0gqk4o8sF3pT6yQeRdA"`
}

func (a *API) deleteSSHKey(ctx context.Context, in *fingerprintInput) (*nothing, error) {
	return nil, a.Control.DeleteSSHKey(ctx, who(ctx), in.Fingerprint)
}

type sshInfoInput struct {
	SandboxPath
	host string
}

// Resolve notes by which name the client reached the server.
func (in *sshInfoInput) Resolve(ctx huma.Context) []error {
	in.host = ctx.Host()
	if host, _, err := net.SplitHostPort(in.host); err == nil {
		in.host = host
	}
	return nil
}

type sshInfoOutput struct{ Body api.SSHInfo }

func (a *API) sshInfo(ctx context.Context, in *sshInfoInput) (*sshInfoOutput, error) {
	if _, err := a.Control.Get(ctx, who(ctx), in.ID); err != nil {
		return nil, err
	}
	if a.SSH == nil {
		return nil, api.Errorf(api.CodeUnsupported, "this server does not serve SSH").
			WithHint("Start it with --ssh-listen, such as --ssh-listen 0.0.0.0:2222.")
	}
	info := api.SSHInfo{Host: a.SSH.Host, Port: a.SSH.Port, User: in.ID, HostKey: a.SSH.HostKey, Fingerprint: a.SSH.Fingerprint}
	if info.Host == "" {
		info.Host = in.host
	}
	info.Command = "ssh -p " + strconv.Itoa(info.Port) + " " + info.User + "@" + info.Host
	return &sshInfoOutput{info}, nil
}

// sshRoutes are the keys of people and the way in.
func (a *API) sshRoutes() []route {
	const path = "/v1/ssh-keys"
	return []route{
		{http.MethodGet, path, anyKey, "listSSHKeys", "ssh", "List SSH keys", typed(a.listSSHKeys), nil},
		{http.MethodPost, path, anyKey, "addSSHKey", "ssh", "Add an SSH key", typed(a.addSSHKey), docAddSSHKey},
		{http.MethodDelete, path + "/{fingerprint}", anyKey, "deleteSSHKey", "ssh", "Delete an SSH key", typed(a.deleteSSHKey), docDeleteSSHKey},
		{http.MethodGet, sandbox + "/ssh", anyKey, "getSSHInfo", "ssh", "How to reach a sandbox by SSH", typed(a.sshInfo), nil},
	}
}

func docAddSSHKey(op *huma.Operation) {
	op.Description = "The holder of the key may open shells in every sandbox of the owner, as long as the API key that added it is valid. " +
		"Adding a key that is there already changes its name, and leaves it with the API key that added it first."
	op.DefaultStatus = http.StatusCreated
}

func docDeleteSSHKey(op *huma.Operation) {
	op.Description = "Connections that were made with the key end within a minute."
}
