package api

import "time"

// Visibility says who may open a port's preview.
type Visibility string

// A public preview is open to who knows its address, which has the sandbox's id
// in it. A private one asks for a preview token, as a header or in a signed URL.
// A closed one is open to nobody. A port that nothing was said about is public.
const (
	PreviewPublic  Visibility = "public"
	PreviewPrivate Visibility = "private"
	PreviewClosed  Visibility = "closed"
)

// Port is a TCP port that something in a sandbox listens on, or that was
// exposed by name.
type Port struct {
	Port       int        `json:"port" minimum:"1" maximum:"65535"`
	Listening  bool       `json:"listening" doc:"Something listens on it now"`
	Process    string     `json:"process,omitempty" doc:"Name of the process that listens"`
	Visibility Visibility `json:"visibility" enum:"public,private,closed"`
	URL        string     `json:"url" doc:"Of its preview" example:"http://8000-k3v9x0q2m7c1b8n4t6zd.localhost:8080/"`
}

// PortList is the ports of a sandbox in ascending order.
type PortList struct {
	Ports []Port `json:"ports"`
}

// ExposePort is the body of POST /v1/sandboxes/{id}/ports: it sets who may open
// the preview of a port, whether or not anything listens yet.
type ExposePort struct {
	Port       int        `json:"port" minimum:"1" maximum:"65535"`
	Visibility Visibility `json:"visibility,omitempty" enum:"public,private" doc:"Default public"`
}

// PreviewPort is the body of POST /v1/sandboxes/{id}/preview.
type PreviewPort struct {
	Port int `json:"port" minimum:"1" maximum:"65535"`
}

// PreviewRequest is the body of POST /v1/sandboxes/{id}/preview-token.
type PreviewRequest struct {
	Port       int `json:"port" minimum:"1" maximum:"65535"`
	TTLSeconds int `json:"ttl_seconds,omitempty" minimum:"1" maximum:"604800" doc:"How long the URL is valid; default 3600"`
}

// PreviewURL is a signed URL of a preview.
type PreviewURL struct {
	URL       string    `json:"url" doc:"Opens the preview until it expires; a browser is given a cookie and may go on from there" example:"http://8000-k3v9x0q2m7c1b8n4t6zd.localhost:8080/?ps_token=..."`
	Token     string    `json:"token" doc:"The same as a value of the header X-PandaStack-Preview-Token"`
	ExpiresAt time.Time `json:"expires_at"`
}

// Preview is the answer of POST /v1/sandboxes/{id}/preview: the plain address of
// a port's preview.
type Preview struct {
	Port       int        `json:"port"`
	URL        string     `json:"url" example:"http://8000-k3v9x0q2m7c1b8n4t6zd.localhost:8080/"`
	Visibility Visibility `json:"visibility" enum:"public,private,closed"`
}
