package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/client"
)

func newSandboxSSH(a *app) *cobra.Command {
	addKey := false
	cmd := &cobra.Command{
		Use:   "ssh ID [flags] [-- ARG...]",
		Short: "Open a sandbox with this machine's ssh",
		Long: `Open a sandbox with this machine's ssh program, which learns the server's key
from the API, so that it never asks whether to trust it. What follows -- is for
ssh: options, a command, or both. It ends with the exit code of ssh.`,
		Example: `  pandastack sandbox ssh $id
  pandastack sandbox ssh $id --add-key -- uname -a
  pandastack sandbox ssh $id -- -N -L 8000:localhost:8000`,
		Args: args(1, -1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return runSandboxSSH(cmd.Context(), a, args[0], args[1:], addKey)
		},
	}
	cmd.Flags().BoolVar(&addKey, "add-key", false, "add the first of ~/.ssh/id_*.pub to the server's keys, if it has none of them")
	return cmd
}

func runSandboxSSH(ctx context.Context, a *app, id string, more []string, addKey bool) error {
	program, err := exec.LookPath("ssh")
	if err != nil {
		return api.Wrap(api.CodeUnsupported, err, "there is no ssh program here").
			WithHint("Install OpenSSH's client, or use `pandastack sandbox shell`.")
	}
	c, err := a.client()
	if err != nil {
		return err
	}
	info, err := c.Sandboxes.Handle(id).SSH(ctx)
	if err != nil {
		return err
	}
	if err := a.haveSSHKey(ctx, c, addKey); err != nil {
		return err
	}
	file, err := a.knowHost(info)
	if err != nil {
		return err
	}
	return a.runProgram(program, append([]string{
		"-p", strconv.Itoa(info.Port), "-o", `UserKnownHostsFile="` + file + `"`, "-o", "StrictHostKeyChecking=yes",
		"-o", "ForwardAgent=no", info.User + "@" + info.Host,
	}, more...))
}

// What a server says goes into a file of lines and onto a command line.
var (
	hostText = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9:][A-Za-z0-9.:_%-]{0,252}$`) })
	keyText  = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^[a-z0-9][a-z0-9@.-]{0,63} [A-Za-z0-9+/]+={0,3}$`)
	})
)

// knowHost writes the server's key where ssh finds it, and gives the file. Lines of
// other servers stay.
func (a *app) knowHost(info api.SSHInfo) (string, error) {
	if !hostText().MatchString(info.Host) || !keyText().MatchString(info.HostKey) || !api.ValidID(info.User) || info.Port < 1 || info.Port > 65535 {
		return "", api.Errorf(api.CodeNotAServer, "the server's answer makes no sense")
	}
	config, err := a.configFile()
	if err != nil {
		return "", err
	}
	file := filepath.Join(filepath.Dir(config), "known_hosts")
	if strings.ContainsAny(file, "\"\n") {
		return "", api.Errorf(api.CodeInvalidRequest, "the path %q cannot be given to ssh", file)
	}
	before, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	host := info.Host
	if info.Port != 22 {
		host = "[" + host + "]:" + strconv.Itoa(info.Port)
	} else if ip := net.ParseIP(host); ip != nil {
		host = ip.String()
	}
	line := host + " " + info.HostKey
	text := replaceHost(string(before), host, line)
	if text == string(before) {
		return file, nil
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return "", err
	}
	tmp := fmt.Sprintf("%s.%d", file, os.Getpid())
	if err := os.WriteFile(tmp, []byte(text), 0o600); err != nil {
		return "", err
	}
	return file, os.Rename(tmp, file)
}

// replaceHost gives a known_hosts file with one line for a host.
func replaceHost(text, host, line string) string {
	var out strings.Builder
	found := false
	for l := range strings.Lines(text) {
		l = strings.TrimRight(l, "\r\n")
		if name, _, _ := strings.Cut(l, " "); name == host {
			if found {
				continue
			}
			l, found = line, true
		}
		out.WriteString(l + "\n")
	}
	if !found {
		out.WriteString(line + "\n")
	}
	return out.String()
}

// runProgram runs a program on this one's terminal and ends with its exit code.
func (a *app) runProgram(program string, args []string) error {
	cmd := exec.Command(program, args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = a.stdin, a.stdout, a.stderr
	if err := cmd.Start(); err != nil {
		return api.Wrap(api.CodeInternal, err, "%s could not be run: %s", program, err).WithHint("")
	}
	defer a.signals.take(func(sig os.Signal) { _ = cmd.Process.Signal(sig) })() // it may have ended
	err := cmd.Wait()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		code := exit.ExitCode()
		if code < 0 {
			code = exitFailure // a signal ended it
		}
		return &client.ExitError{Result: api.ExecResult{ExitCode: code}}
	}
	return err
}
