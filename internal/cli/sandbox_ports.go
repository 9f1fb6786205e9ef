package cli

import (
	"strconv"

	"github.com/spf13/cobra"

	"github.com/pandastack/pandastack/api"
)

type portsOptions struct{ public, private, closed []int }

func newSandboxPorts(a *app) *cobra.Command {
	var o portsOptions
	cmd := ask(a, doc{
		use:   "ports ID [flags]",
		short: "Show the ports of a sandbox, and say who may open their previews",
		long: `Show the TCP ports that something in a sandbox listens on, with the addresses of
their previews. A sleeping sandbox is not woken.

A port is public unless something else was said: whoever knows its address may
open it. A private one is opened with a URL of "sandbox preview-url --ttl", and a
closed one by nobody. Forks start with what was said of their parent.`,
		example: `  pandastack sandbox ports k3v9x0q2m7c1b8n4t6zd
  pandastack sandbox ports k3v9x0q2m7c1b8n4t6zd --private 8000
  pandastack sandbox ports k3v9x0q2m7c1b8n4t6zd --close 8000`,
	}, o.run, showPorts)
	cmd.Flags().IntSliceVar(&o.public, "public", nil, "from now on open to who knows the address; may be repeated")
	cmd.Flags().IntSliceVar(&o.private, "private", nil, "from now on open to who has a token; may be repeated")
	cmd.Flags().IntSliceVar(&o.closed, "close", nil, "from now on open to nobody; may be repeated")
	return cmd
}

func (o *portsOptions) run(c call) (api.PortList, error) {
	for _, set := range []struct {
		ports      []int
		visibility api.Visibility
	}{{o.public, api.PreviewPublic}, {o.private, api.PreviewPrivate}} {
		for _, port := range set.ports {
			if _, err := c.sb.ExposePort(c.ctx, port, set.visibility); err != nil {
				return api.PortList{}, err
			}
		}
	}
	for _, port := range o.closed {
		if err := c.sb.ClosePort(c.ctx, port); err != nil {
			return api.PortList{}, err
		}
	}
	ports, err := c.sb.Ports(c.ctx)
	return api.PortList{Ports: ports}, err
}

func showPorts(a *app, list api.PortList) error {
	t := table{headings: []string{"PORT", "LISTENING", "PROCESS", "VISIBILITY", "URL"}}
	for _, p := range list.Ports {
		listening := "no"
		if p.Listening {
			listening = "yes"
		}
		t.add(strconv.Itoa(p.Port), listening, printable(p.Process), string(p.Visibility), p.URL)
	}
	return t.print(a)
}
