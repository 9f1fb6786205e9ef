package control

import "golang.org/x/crypto/ssh"

// ReadSSHKey is the reading of a key alone, for tests.
func ReadSSHKey(line string) (string, error) {
	key, _, err := parseSSHKey(line)
	if err != nil {
		return "", err
	}
	b := ssh.MarshalAuthorizedKey(key)
	return string(b[:len(b)-1]), nil
}
