package cli

import (
	"context"
	"io"
	"sync/atomic"

	"github.com/spf13/cobra"
)

func newSandboxLSP(a *app) *cobra.Command {
	return inSandbox(a, doc{
		use:   "lsp ID LANGUAGE",
		short: "Be a language server of a sandbox, for an editor",
		long: `Be a language server on standard input and output, for an editor that starts one
as a program: what it says goes to the server in the sandbox, and back. Editors
of one sandbox and language share a server. "languages" lists the languages.

Files have their paths in the sandbox, so the editor must see them under the same.
When the input ends the connection does; the server stays for some minutes.`,
		example: `  pandastack sandbox lsp $id python
  nvim --cmd "lua vim.lsp.config('py', {cmd = {'pandastack', 'sandbox', 'lsp', '$id', 'python'}, filetypes = {'python'}}); vim.lsp.enable('py')"`,
	}, runSandboxLSP)
}

func runSandboxLSP(c call) error {
	server, err := c.sb.LanguageServer(c.ctx, c.args[0])
	if err != nil {
		return err
	}
	defer server.Close()
	var left atomic.Bool
	leave := func() { left.Store(true); server.Close() }
	defer context.AfterFunc(c.ctx, leave)()
	go func() { // it ends with the program: a read of a pipe cannot be given up
		if _, err := io.Copy(server, c.app.stdin); err == nil {
			leave() // the editor has closed its end; any other failure the reader sees too
		}
	}()
	_, err = io.Copy(c.app.stdout, server)
	switch {
	case c.ctx.Err() != nil:
		return c.ctx.Err()
	case left.Load():
		return nil
	}
	return err
}
