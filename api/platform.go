package api

import "time"

// Me is the caller.
type Me struct {
	Org    string `json:"org"`
	Name   string `json:"name" doc:"Name of the key"`
	Prefix string `json:"prefix" doc:"First characters of the key"`
	Admin  bool   `json:"admin"`
}

// Token is a key without its secret part.
type Token struct {
	Prefix    string     `json:"prefix" example:"pds_1a2b3c4d"`
	Name      string     `json:"name"`
	Admin     bool       `json:"admin"`
	CreatedAt time.Time  `json:"created_at"`
	LastUsed  *time.Time `json:"last_used,omitempty"`
}

// CreateToken is the body of POST /v1/me/tokens.
type CreateToken struct {
	Name  string `json:"name" minLength:"1" maxLength:"128"`
	Admin bool   `json:"admin,omitempty"`
}

// NewToken is a key at the only time its secret is shown.
type NewToken struct {
	Token
	Key string `json:"token" doc:"The key itself; it is stored hashed and cannot be shown again"`
}

// TokenList is the caller's keys.
type TokenList struct {
	Tokens []Token `json:"tokens"`
}

// Template is an image that sandboxes start from.
type Template struct {
	Name      string     `json:"name" example:"base"`
	Aliases   []string   `json:"aliases,omitempty" doc:"More names that a create may use"`
	Digest    string     `json:"digest,omitempty" example:"sha256:9f86d0..."`
	Status    string     `json:"status" enum:"building,ready,failed,on_demand" doc:"on_demand is built by the first create that names it"`
	SizeBytes int64      `json:"size_bytes,omitempty"`
	CPU       float64    `json:"cpu,omitempty"`
	MemoryMB  int        `json:"memory_mb,omitempty"`
	DiskMB    int        `json:"disk_mb,omitempty"`
	CreatedAt *time.Time `json:"created_at,omitempty"`
	Snapshots []string   `json:"snapshots,omitempty" doc:"Drivers whose memory snapshot is baked on this host"`
	Progress  string     `json:"progress,omitempty" doc:"What a build is doing"`
	Percent   float64    `json:"percent,omitempty" doc:"How far a build is, 0 to 100"`
	Error     *Error     `json:"error,omitempty"`
}

// TemplateList is every template of the server.
type TemplateList struct {
	Templates []Template `json:"templates"`
}

// Version is what runs.
type Version struct {
	Version string `json:"version"`
	Commit  string `json:"commit,omitempty"`
	Go      string `json:"go"`
	Runtime string `json:"runtime" doc:"Build of the gVisor runtime; snapshots restore only into the same one"`
}

// Health is the answer of /healthz and /readyz.
type Health struct {
	Status string `json:"status" enum:"ok,starting,failed"`
	Detail string `json:"detail,omitempty" doc:"What it waits for"`
}
