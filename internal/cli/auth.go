package cli

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/client"
)

func newAuth(a *app) *cobra.Command {
	cmd := group("auth", "Keep the server's address and a key", "Keep the server's address and a key in ~/.config/pandastack/config.json.")
	cmd.Example = "  pandastack auth login --api https://sandboxes.example.com"
	cmd.AddCommand(newAuthLogin(a), newAuthLogout(a), newAuthWhoami(a))
	return cmd
}

func newAuthLogin(a *app) *cobra.Command {
	var keyFile string
	cmd := &cobra.Command{
		Use:   "login [flags]",
		Short: "Check a key and keep it",
		Long: `Check a key and keep it, with the server's address, in
~/.config/pandastack/config.json, which only its owner can read.

The key is asked for on a terminal, or read from standard input, or from the
file that --key-file names. It is no argument, so that it does not end up in the
shell's history.`,
		Example: `  sudo cat /var/lib/pandastack/admin.key | pandastack auth login
  pandastack auth login --api https://sandboxes.example.com`,
		Args: args(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error { return runAuthLogin(cmd, a, keyFile) },
	}
	cmd.Flags().StringVar(&keyFile, "key-file", "", "file that holds the key")
	return cmd
}

func runAuthLogin(cmd *cobra.Command, a *app, keyFile string) error {
	file, err := a.configFile()
	if err != nil {
		return err
	}
	o, err := a.options()
	if err != nil {
		return err
	}
	if o.APIKey, err = a.readKey(keyFile); err != nil {
		return err
	}
	if o.APIKey == "" {
		return usagef(cmd, "no key was given")
	}
	c, err := client.New(o)
	if err != nil {
		return err
	}
	me, err := c.Me(cmd.Context())
	if err != nil {
		return err
	}
	if err := writeConfig(file, client.Config{API: c.BaseURL(), APIKey: o.APIKey}); err != nil {
		return err
	}
	if a.output == "json" {
		return a.printJSON(me)
	}
	_, err = fmt.Fprintf(a.stdout, "logged in at %s as %s\n", c.BaseURL(), printable(me.Name))
	return err
}

// readKey reads the key from the file, a terminal without showing it, or a
// pipe.
func (a *app) readKey(file string) (string, error) {
	if file != "" {
		raw, err := os.ReadFile(file)
		if err != nil {
			return "", api.Wrap(api.CodeInvalidRequest, err, "the key file cannot be read: %s", err).WithHint("")
		}
		return strings.TrimSpace(string(raw)), nil
	}
	if in, ok := a.stdin.(*os.File); ok && isTerminal(in) {
		fmt.Fprint(a.stderr, "API key: ")
		raw, err := term.ReadPassword(int(in.Fd()))
		fmt.Fprintln(a.stderr)
		return strings.TrimSpace(string(raw)), err
	}
	line, err := bufio.NewReader(io.LimitReader(a.stdin, 4096)).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return "", err
	}
	return strings.TrimSpace(line), nil
}

// writeConfig replaces the config file at once, so that a crash leaves the old
// one.
func writeConfig(file string, c client.Config) error {
	raw, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return err
	}
	tmp, err := os.CreateTemp(filepath.Dir(file), ".config-*") // made 0600
	if err != nil {
		return err
	}
	_, err = tmp.Write(append(raw, '\n'))
	if e := tmp.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = os.Rename(tmp.Name(), file)
	}
	if err != nil {
		os.Remove(tmp.Name())
	}
	return err
}

func newAuthLogout(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "logout",
		Short:   "Forget the key",
		Long:    "Forget the key that `auth login` kept. It stays valid; `token revoke` ends it.",
		Example: "  pandastack auth logout",
		Args:    args(0, 0),
		RunE: func(*cobra.Command, []string) error {
			file, err := a.configFile()
			if err != nil {
				return err
			}
			if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
			return nil
		},
	}
}

func newAuthWhoami(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "whoami",
		Short:   "Show the server and who the key belongs to",
		Example: "  pandastack auth whoami",
		Args:    args(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.client()
			if err != nil {
				return err
			}
			me, err := c.Me(cmd.Context())
			if err != nil {
				return err
			}
			if a.output == "json" {
				return a.printJSON(me)
			}
			var f fields
			f.add("server", c.BaseURL())
			f.add("org", me.Org)
			f.add("name", me.Name)
			f.add("key", me.Prefix)
			f.add("admin", fmt.Sprint(me.Admin))
			return f.print(a)
		},
	}
}
