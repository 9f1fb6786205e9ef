package api

import "time"

// NetworkRules says what a sandbox may reach. An absent field is the default:
// the public internet, nothing else, at full speed.
//
// An entry of Allow and Deny is `what`, `what:port` or `what:first-last`, where
// what is an IPv4 address, a range (203.0.113.0/24), a name (packages.example.com) or all
// names below one (*.files.example.com). Names are matched without regard to
// case. 0.0.0.0/0 is everything.
//
// What neither list names is allowed or not by Internet; where Internet is absent
// it is allowed unless Allow has entries. Where the default is to allow, Deny
// takes away from it and Allow gives back of what Deny took; where it is not,
// Allow gives and Deny takes back of what Allow gave. No rule opens what is closed
// to all sandboxes: the host, other sandboxes, private and link-local ranges.
type NetworkRules struct {
	Internet   *bool    `json:"internet,omitempty" doc:"Whether what no entry names may be reached; default true, or false when allow has entries"`
	Allow      []string `json:"allow,omitempty" doc:"Addresses, ranges, names and *.names with optional ports that may be reached" example:"[\"packages.example.com\",\"*.files.example.com:443\"]"`
	Deny       []string `json:"deny,omitempty" doc:"The same that may not be reached"`
	EgressMbps int      `json:"egress_mbps,omitempty" minimum:"0" maximum:"100000" doc:"Cap of outgoing bandwidth, megabits per second; 0 is none"`
}

// Network is the network of one sandbox: its rules and its links.
type Network struct {
	NetworkRules
	Join []string `json:"join,omitempty" doc:"Networks, by name, whose members it reaches and is reached by; at most 8"`
	Name string   `json:"name,omitempty" doc:"Its name in those networks: members find it as <name>.internal. It is always <id>.internal" example:"web"`
}

// NetworkGroup is a network that links sandboxes of one owner.
type NetworkGroup struct {
	Name      string          `json:"name" example:"backend"`
	CreatedAt time.Time       `json:"created_at"`
	Members   []NetworkMember `json:"members" doc:"Sandboxes that have joined it"`
}

// NetworkMember is a sandbox in a network.
type NetworkMember struct {
	SandboxID string `json:"sandbox_id"`
	Name      string `json:"name,omitempty" doc:"Its own choice; it is also <sandbox_id>.internal"`
	Address   string `json:"address,omitempty" doc:"IPv4; absent while it sleeps"`
}

// CreateNetwork is the body of POST /v1/networks.
type CreateNetwork struct {
	Name string `json:"name" doc:"1 to 40 of a-z, 0-9 and -, not at the ends" example:"backend"`
}

// NetworkGroupList is every network of an owner, by name.
type NetworkGroupList struct {
	Networks []NetworkGroup `json:"networks"`
}

// Verdict is what became of a connection.
type Verdict string

// The verdicts.
const (
	VerdictAllowed Verdict = "allowed"
	VerdictDenied  Verdict = "denied"
)

// Connection is one line of a sandbox's connection log: an attempt to reach
// something, when it ended, or when it was refused. Repeated refusals of one
// target within a minute are one line.
type Connection struct {
	ID       int64     `json:"id" doc:"Grows with time; pass as since= to go on from here"`
	Time     time.Time `json:"time" doc:"When it began"`
	Protocol string    `json:"protocol" enum:"tcp,udp,dns,icmp,other"`
	Name     string    `json:"name,omitempty" doc:"Name that was asked for, where one is known: from TLS, HTTP or DNS"`
	Address  string    `json:"address,omitempty" doc:"IPv4 address"`
	Port     int       `json:"port,omitempty"`
	Verdict  Verdict   `json:"verdict" enum:"allowed,denied"`
	Reason   string    `json:"reason,omitempty" doc:"Why it was denied, or could not be made"`
	Count    int       `json:"count,omitempty" doc:"Attempts that this line stands for, when more than one"`
	Sent     int64     `json:"sent_bytes" doc:"By the sandbox"`
	Received int64     `json:"received_bytes"`
	Seconds  float64   `json:"seconds,omitempty" doc:"How long it lasted"`
}

// ConnectionLog is the newest part of a sandbox's connection log, oldest first.
type ConnectionLog struct {
	Connections []Connection `json:"connections"`
	Dropped     int64        `json:"dropped,omitempty" doc:"Lines lost since the sandbox was made, because there were too many"`
}
