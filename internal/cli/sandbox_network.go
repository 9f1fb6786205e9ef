package cli

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pandastack/pandastack/api"
)

// networkFlags say what a sandbox may reach, in create, run, fork and set.
type networkFlags struct {
	internet    bool
	noInternet  bool
	allow, deny []string
	mbps        int
	join        []string
	name        string
}

func (n *networkFlags) add(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringArrayVar(&n.allow, "allow", nil, "may be reached: address, range, name or *.name, with :port or :first-last behind it; may be repeated")
	f.StringArrayVar(&n.deny, "deny", nil, "may not be reached, in the same forms; may be repeated")
	f.BoolVar(&n.internet, "internet", false, "what no --allow or --deny names may be reached (default without --allow)")
	f.BoolVar(&n.noInternet, "no-internet", false, "what no --allow names may not be reached")
	f.IntVar(&n.mbps, "egress-mbps", 0, "cap of outgoing bandwidth in Mbit/s (default none)")
	f.StringArrayVar(&n.join, "join", nil, "network whose members it reaches; may be repeated")
	f.StringVar(&n.name, "name", "", "its name in those networks: members find it as NAME.internal")
	cmd.MarkFlagsMutuallyExclusive("internet", "no-internet")
}

// value is what the flags ask for; nil when none was given.
func (n *networkFlags) value(cmd *cobra.Command) *api.Network {
	given := false
	for _, name := range []string{"allow", "deny", "internet", "no-internet", "egress-mbps", "join", "name"} {
		given = given || cmd.Flags().Changed(name)
	}
	if !given {
		return nil
	}
	out := &api.Network{NetworkRules: api.NetworkRules{Allow: n.allow, Deny: n.deny, EgressMbps: n.mbps}, Join: n.join, Name: n.name}
	if cmd.Flags().Changed("internet") || cmd.Flags().Changed("no-internet") {
		internet := n.internet && !n.noInternet
		out.Internet = &internet
	}
	return out
}

func newSandboxNetwork(a *app) *cobra.Command {
	cmd := group("network", "What a sandbox may reach",
		`Show and change what a sandbox may reach, and read what it has contacted.

A sandbox reaches the public internet unless it is told otherwise, and never the
host, other sandboxes or private ranges, except the members of networks that it
joined.`)
	cmd.Example = "  pandastack sandbox network get $id"
	cmd.AddCommand(newSandboxNetworkGet(a), newSandboxNetworkSet(a), newSandboxNetworkLog(a))
	return cmd
}

func newSandboxNetworkGet(a *app) *cobra.Command {
	return ask(a, doc{
		use:   "get ID",
		short: "Show what a sandbox may reach",
		long:  "Show what a sandbox may reach and the networks that it is in.",
		example: `  pandastack sandbox network get k3v9x0q2m7c1b8n4t6zd
  pandastack sandbox network get k3v9x0q2m7c1b8n4t6zd -o json`,
	}, func(c call) (*api.Network, error) { return c.sb.Network(c.ctx) }, (*app).showNetwork)
}

func newSandboxNetworkSet(a *app) *cobra.Command {
	var flags networkFlags
	cmd := ask(a, doc{
		use:   "set ID [flags]",
		short: "Change what a sandbox may reach",
		long: `Change what a sandbox may reach. The flags replace all that held before: without
any it is the default again. Connections that are no longer allowed are cut at
once.

With --allow only what it names may be reached, unless --internet is given as
well: then --allow gives back of what --deny takes away.`,
		example: `  pandastack sandbox network set k3v9x0q2m7c1b8n4t6zd --allow packages.example.com --allow '*.files.example.com:443'
  pandastack sandbox network set k3v9x0q2m7c1b8n4t6zd --deny 203.0.113.0/24 --egress-mbps 20
  pandastack sandbox network set k3v9x0q2m7c1b8n4t6zd --no-internet --join backend --name db`,
	}, func(c call) (*api.Network, error) {
		var want api.Network
		if n := flags.value(c.cmd); n != nil {
			want = *n
		}
		return c.sb.SetNetwork(c.ctx, want)
	}, (*app).showNetwork)
	flags.add(cmd)
	return cmd
}

func (a *app) showNetwork(n *api.Network) error {
	var f fields
	f.add("internet", internetText(n.NetworkRules))
	f.add("allow", strings.Join(n.Allow, " "))
	f.add("deny", strings.Join(n.Deny, " "))
	if n.EgressMbps > 0 {
		f.add("egress", fmt.Sprintf("at most %d Mbit/s", n.EgressMbps))
	}
	f.add("networks", strings.Join(n.Join, " "))
	if n.Name != "" {
		f.add("name", n.Name+".internal")
	}
	return f.print(a)
}

// internetText says what becomes of what no entry names.
func internetText(r api.NetworkRules) string {
	open := len(r.Allow) == 0
	if r.Internet != nil {
		open = *r.Internet
	}
	switch {
	case open && len(r.Deny) > 0:
		return "yes, but what is denied"
	case open:
		return "yes"
	case len(r.Allow) > 0:
		return "only what is allowed"
	}
	return "no"
}

func newSandboxNetworkLog(a *app) *cobra.Command {
	var since int64
	var limit int
	var denied bool
	cmd := ask(a, doc{
		use:   "log ID [flags]",
		short: "Show what a sandbox has contacted",
		long: `Show what a sandbox has contacted: every connection when it ended, and every
refusal. Repeated refusals of one target within a minute are one line.`,
		example: `  pandastack sandbox network log k3v9x0q2m7c1b8n4t6zd
  pandastack sandbox network log k3v9x0q2m7c1b8n4t6zd --denied -o json | jq -r .connections[].name`,
	}, func(c call) (*api.ConnectionLog, error) {
		log, err := c.sb.NetworkLog(c.ctx, since, limit)
		if err == nil && denied {
			log.Connections = onlyDenied(log.Connections)
		}
		return log, err
	}, (*app).showConnections)
	f := cmd.Flags()
	f.Int64Var(&since, "since", 0, "only lines with greater ids")
	f.IntVarP(&limit, "limit", "n", 0, "at most so many of the latest (default 1000)")
	f.BoolVar(&denied, "denied", false, "only what was refused")
	return cmd
}

func onlyDenied(list []api.Connection) []api.Connection {
	out := []api.Connection{}
	for _, c := range list {
		if c.Verdict == api.VerdictDenied {
			out = append(out, c)
		}
	}
	return out
}

func (a *app) showConnections(log *api.ConnectionLog) error {
	t := table{headings: []string{"TIME", "PROTOCOL", "NAME", "ADDRESS", "PORT", "VERDICT", "SENT", "RECEIVED", "REASON"}}
	for _, c := range log.Connections {
		port, verdict := "", string(c.Verdict)
		if c.Port != 0 {
			port = strconv.Itoa(c.Port)
		}
		if c.Count > 1 {
			verdict += fmt.Sprintf(" (%d times)", c.Count)
		}
		t.add(c.Time.Local().Format(time.DateTime), c.Protocol, c.Name, c.Address, port, verdict, bytesText(c.Sent), bytesText(c.Received), c.Reason)
	}
	return t.print(a)
}
