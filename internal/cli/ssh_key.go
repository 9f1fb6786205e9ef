package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/client"
)

// maxPublicKey bounds what is read of a file that should hold one public key.
const maxPublicKey = 16 << 10

func newSSHKey(a *app) *cobra.Command {
	cmd := group("ssh-key", "Say whose SSH keys may open sandboxes", "Say whose SSH keys may open shells in your sandboxes.")
	cmd.Aliases = []string{"ssh-keys"}
	cmd.Example = "  pandastack ssh-key add\n  pandastack sandbox ssh $id"
	cmd.AddCommand(newSSHKeyAdd(a), newSSHKeyList(a), newSSHKeyDelete(a))
	return cmd
}

func newSSHKeyAdd(a *app) *cobra.Command {
	var in api.AddSSHKey
	cmd := &cobra.Command{
		Use:   "add [FILE] [flags]",
		Short: "Add a public key",
		Long: `Add a public key: that of FILE, of standard input with -, or else the first of
~/.ssh/id_*.pub. Whoever has the private key can then open shells in all of your
sandboxes, as long as the API key that you add it with is valid.`,
		Example: `  pandastack ssh-key add
  pandastack ssh-key add ~/.ssh/work.pub --name work
  ssh-add -L | head -1 | pandastack ssh-key add -`,
		Args: args(0, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var err error
			if in.PublicKey, err = a.publicKey(args); err != nil {
				return err
			}
			return runSSHKeyAdd(cmd.Context(), a, in)
		},
	}
	cmd.Flags().StringVar(&in.Name, "name", "", "name to list it by (default: the comment of the key)")
	return cmd
}

func runSSHKeyAdd(ctx context.Context, a *app, in api.AddSSHKey) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	key, err := c.SSHKeys.Add(ctx, in)
	if err != nil {
		return err
	}
	if a.output == "json" {
		return a.printJSON(key)
	}
	_, err = fmt.Fprintln(a.stdout, key.Fingerprint)
	return err
}

// publicKey reads the key that the arguments name.
func (a *app) publicKey(args []string) (string, error) {
	if len(args) == 1 && args[0] == "-" {
		data, err := io.ReadAll(io.LimitReader(a.stdin, maxPublicKey))
		return string(data), err
	}
	if len(args) == 1 {
		return readPublicKey(args[0])
	}
	files := a.publicKeyFiles()
	if len(files) == 0 {
		return "", api.Errorf(api.CodeInvalidRequest, "there is no public key in ~/.ssh").
			WithHint("Make one with `ssh-keygen -t ed25519`, or name the file of yours.")
	}
	return readPublicKey(files[0])
}

func readPublicKey(file string) (string, error) {
	f, err := os.Open(file)
	if err != nil {
		return "", api.Wrap(api.CodeInvalidRequest, err, "%s", err).WithHint("")
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxPublicKey))
	if err != nil {
		return "", api.Wrap(api.CodeInvalidRequest, err, "%s", err).WithHint("")
	}
	return string(data), nil
}

// publicKeyFiles lists the public keys in the usual place, those that ssh prefers
// first.
func (a *app) publicKeyFiles() []string {
	home := a.getenv("HOME")
	if home == "" {
		return nil
	}
	files, err := filepath.Glob(filepath.Join(home, ".ssh", "id_*.pub"))
	if err != nil {
		return nil // a home that is a pattern
	}
	order := []string{"id_ed25519.pub", "id_ed25519_sk.pub", "id_ecdsa.pub", "id_ecdsa_sk.pub", "id_rsa.pub"}
	rank := func(file string) int {
		if i := slices.Index(order, filepath.Base(file)); i >= 0 {
			return i
		}
		return len(order)
	}
	slices.SortStableFunc(files, func(x, y string) int { return rank(x) - rank(y) })
	return files
}

func newSSHKeyList(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "list", Aliases: []string{"ls"},
		Short:   "List SSH keys",
		Example: "  pandastack ssh-key list",
		Args:    args(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.client()
			if err != nil {
				return err
			}
			keys, err := c.SSHKeys.List(cmd.Context())
			if err != nil {
				return err
			}
			if a.output == "json" {
				return a.printJSON(api.SSHKeyList{Keys: keys})
			}
			t := table{headings: []string{"FINGERPRINT", "TYPE", "NAME", "CREATED"}}
			for _, k := range keys {
				kind, _, _ := strings.Cut(k.PublicKey, " ")
				t.add(k.Fingerprint, kind, k.Name, k.CreatedAt.UTC().Format(time.RFC3339))
			}
			return t.print(a)
		},
	}
}

func newSSHKeyDelete(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "delete FINGERPRINT...", Aliases: []string{"rm"},
		Short:   "Delete SSH keys",
		Long:    "Delete SSH keys. What was opened with them ends within a minute.",
		Example: "  pandastack ssh-key delete SHA256:Zk5S3Zl0nJH0b2l1V9cX7m2W0gqk4o8sF3pT6yQeRdA",
		Args:    args(1, -1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.client()
			if err != nil {
				return err
			}
			return a.eachOf(cmd.Context(), "fingerprint", args, func(name string) error {
				return c.SSHKeys.Delete(cmd.Context(), name)
			})
		},
	}
}

// haveSSHKey sees to it that the server knows a key of this person's; with add, it
// is told one.
func (a *app) haveSSHKey(ctx context.Context, c *client.Client, add bool) error {
	known, err := c.SSHKeys.List(ctx)
	if err != nil {
		return err
	}
	if !add {
		if len(known) == 0 {
			return api.Errorf(api.CodeSSHKeyNotFound, "the server knows no SSH key of yours").
				WithHint("Add one with `pandastack ssh-key add`, or use --add-key.")
		}
		return nil
	}
	for _, file := range a.publicKeyFiles() {
		if line, err := readPublicKey(file); err == nil && slices.ContainsFunc(known, func(k api.SSHKey) bool { return sameKey(k.PublicKey, line) }) {
			return nil
		}
	}
	line, err := a.publicKey(nil)
	if err != nil {
		return err
	}
	key, err := c.SSHKeys.Add(ctx, api.AddSSHKey{PublicKey: line})
	if err == nil {
		fmt.Fprintf(a.stderr, "added the SSH key %s (%s)\n", key.Fingerprint, printable(key.Name))
	}
	return err
}

// sameKey compares two lines of authorized_keys without their comments.
func sameKey(x, y string) bool {
	f, g := strings.Fields(x), strings.Fields(y)
	return len(f) >= 2 && len(g) >= 2 && f[0] == g[0] && f[1] == g[1]
}
