package api

import "time"

// SSHKey is a public key that may open shells in the sandboxes of its owner.
type SSHKey struct {
	Fingerprint string    `json:"fingerprint" example:"SHA256:Zk5S3Zl0..."`
	Name        string    `json:"name"`
	PublicKey   string    `json:"public_key" doc:"In the form of authorized_keys, without its comment"`
	CreatedAt   time.Time `json:"created_at"`
}

// AddSSHKey is the body of POST /v1/ssh-keys.
type AddSSHKey struct {
	Name      string `json:"name,omitempty" doc:"Default: the comment of the key"`
	PublicKey string `json:"public_key" doc:"One line as in authorized_keys" example:"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAA... me@laptop"`
}

// SSHKeyList is every key of an owner, oldest first.
type SSHKeyList struct {
	Keys []SSHKey `json:"keys"`
}

// SSHInfo says how to reach a sandbox by SSH.
type SSHInfo struct {
	Host        string `json:"host" doc:"Of the server, as far as it knows"`
	Port        int    `json:"port"`
	User        string `json:"user" doc:"The sandbox's id"`
	HostKey     string `json:"host_key" doc:"The server's public key in the form of known_hosts, without the host" example:"ssh-ed25519 AAAA..."`
	Fingerprint string `json:"fingerprint" doc:"Of the host key"`
	Command     string `json:"command" example:"ssh -p 2222 k3v9x0q2m7c1b8n4t6zd@localhost"`
}
