package cli

import (
	"github.com/spf13/cobra"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/client"
)

func newSandboxContext(a *app) *cobra.Command {
	cmd := group("context", "Manage the code contexts of a sandbox", `Manage the code contexts of a sandbox: interpreters that keep what code defines,
for "sandbox run-code --context". Code that names none runs in the one that the
sandbox shares for its language.`)
	cmd.Aliases = []string{"contexts"}
	cmd.Example = `  ctx=$(pandastack sandbox context create $id --language python --cwd /workspace)
  pandastack sandbox run-code $id --context $ctx -c 'x = 1'
  pandastack sandbox context delete $id $ctx`
	cmd.AddCommand(newContextCreate(a), ask(a, doc{
		use: "list ID", aliases: []string{"ls"},
		short:   "List code contexts, oldest first",
		example: "  pandastack sandbox context list $id",
	}, func(c call) (api.ContextList, error) {
		list, err := c.sb.Contexts(c.ctx)
		return api.ContextList{Contexts: list}, err
	}, func(a *app, l api.ContextList) error {
		t := table{headings: []string{"ID", "LANGUAGE", "DIRECTORY"}}
		for _, x := range l.Contexts {
			t.add(x.ID, x.Language, x.Cwd)
		}
		return t.print(a)
	}))
	for _, x := range []struct {
		use, short string
		aliases    []string
		do         func(*client.Sandbox, call, string) error
	}{
		{"delete ID CONTEXT...", "End code contexts with what they run", []string{"rm"},
			func(sb *client.Sandbox, c call, name string) error { return sb.DeleteContext(c.ctx, name) }},
		{"restart ID CONTEXT...", "Give code contexts new interpreters, without any state", nil,
			func(sb *client.Sandbox, c call, name string) error { return sb.RestartContext(c.ctx, name) }},
		{"interrupt ID CONTEXT...", "Stop what code contexts run, and keep their state", nil,
			func(sb *client.Sandbox, c call, name string) error { return sb.InterruptContext(c.ctx, name) }},
	} {
		sub := forEach(a, doc{use: x.use, short: x.short, aliases: x.aliases}, "id", 0,
			func(c call, name string) error { return x.do(c.sb, c, name) })
		sub.Example = "  pandastack sandbox context " + sub.Name() + " $id $ctx"
		cmd.AddCommand(sub)
	}
	return cmd
}

func newContextCreate(a *app) *cobra.Command {
	var in api.CreateContext
	var env []string
	cmd := ask(a, doc{
		use:     "create ID [flags]",
		short:   "Make a code context and print its id",
		example: "  ctx=$(pandastack sandbox context create $id --language javascript --cwd /workspace --env MODE=test)",
	}, func(c call) (*api.CodeContext, error) {
		var err error
		if in.Env, err = pairs(c.cmd, "env", env, a.getenv); err != nil {
			return nil, err
		}
		return c.sb.CreateContext(c.ctx, in)
	}, func(a *app, x *api.CodeContext) error { return a.printLine(x.ID) })
	f := cmd.Flags()
	f.StringVarP(&in.Language, "language", "l", "", "python, javascript, typescript or bash (default python)")
	f.StringVarP(&in.Cwd, "cwd", "w", "", "directory that its code runs in (default: the user's home)")
	f.StringArrayVarP(&env, "env", "e", nil, "environment as KEY=VALUE, or KEY to pass on this shell's; may be repeated")
	return cmd
}
