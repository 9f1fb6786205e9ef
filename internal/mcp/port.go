package mcp

import (
	"context"
	"fmt"
	"strings"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/pandastack/pandastack/api"
)

// maxPreview is how long a signed URL works at most.
const maxPreview = 7 * 24 * 60 * 60 // seconds

type portOutput struct {
	Port       int    `json:"port"`
	Listening  bool   `json:"listening" jsonschema:"Something listens on it now"`
	Process    string `json:"process,omitempty" jsonschema:"Name of the process that listens"`
	Visibility string `json:"visibility" jsonschema:"Who may open its preview: public, private (with a signed URL) or closed"`
	URL        string `json:"url" jsonschema:"Address of its preview"`
}

type portsOutput struct {
	Ports   []portOutput `json:"ports"`
	Omitted int          `json:"omitted_ports,omitempty"`
}

type previewInput struct {
	Port int `json:"port" jsonschema:"Port that a service in the sandbox listens on"`
	TTL  int `json:"ttl_seconds,omitempty" jsonschema:"Give a signed URL that works for so many seconds, at most 604800, and opens a private preview too"`
}

type previewHere struct {
	SandboxID string `json:"sandbox_id" jsonschema:"Id of the sandbox"`
	previewInput
}

func (in previewHere) parts() (string, previewInput) { return in.SandboxID, in.previewInput }

type previewOutput struct {
	Port       int    `json:"port"`
	URL        string `json:"url"`
	Visibility string `json:"visibility,omitempty" jsonschema:"Who may open the plain URL: public, private or closed"`
	ExpiresAt  string `json:"expires_at,omitempty" jsonschema:"When a signed URL ends"`
}

// addPorts adds the tools for what listens in a sandbox.
func (t *toolbox) addPorts() {
	addIn[sandboxInput](t, &sdk.Tool{
		Name: "list_ports", Title: "List ports",
		Description: `List the TCP ports that something in the sandbox listens on, with the addresses of their previews, at most 200. A service must listen on all addresses (0.0.0.0) to have a preview.`,
		Annotations: &sdk.ToolAnnotations{ReadOnlyHint: true, OpenWorldHint: no()},
	}, listPorts)
	addIn[previewHere](t, &sdk.Tool{
		Name: "preview_url", Title: "Get the URL of a service",
		Description: `Give the URL at which a service in the sandbox can be opened from outside, in a browser too. With ttl_seconds it is a signed one that opens a private preview.
Example: {"port": 8000}`,
		Annotations: &sdk.ToolAnnotations{ReadOnlyHint: true, OpenWorldHint: no()},
	}, previewURL)
}

func listPorts(ctx context.Context, c Caller, id string, _ noInput) (portsOutput, string, error) {
	list, err := c.Platform.Ports(ctx, id)
	if err != nil {
		return portsOutput{}, "", err
	}
	out := portsOutput{Ports: []portOutput{}, Omitted: max(len(list)-maxListed, 0)}
	var text strings.Builder
	for _, p := range list[:len(list)-out.Omitted] {
		o := portOutput{p.Port, p.Listening, clipValid(p.Process), string(p.Visibility), p.URL}
		out.Ports = append(out.Ports, o)
		fmt.Fprintln(&text, o)
	}
	return out, endList(&text, len(list), out.Omitted), nil
}

// String is one line about a port.
func (o portOutput) String() string {
	line := fmt.Sprintf("%d %s, %s", o.Port, o.Visibility, o.URL)
	switch {
	case !o.Listening:
		line += ", nothing listens"
	case o.Process != "":
		line += ", " + o.Process
	}
	return line
}

func previewURL(ctx context.Context, c Caller, id string, in previewInput) (previewOutput, string, error) {
	switch {
	case in.Port < 1 || in.Port > 65535:
		return previewOutput{}, "", api.Errorf(api.CodeInvalidRequest, "port is between 1 and 65535").With("field", "port")
	case in.TTL < 0 || in.TTL > maxPreview:
		return previewOutput{}, "", api.Errorf(api.CodeInvalidRequest, "ttl_seconds is at most %d", maxPreview).With("field", "ttl_seconds")
	case in.TTL > 0:
		s, err := c.Platform.SignPreview(ctx, id, api.PreviewRequest{Port: in.Port, TTLSeconds: in.TTL})
		if err != nil {
			return previewOutput{}, "", err
		}
		ends := s.ExpiresAt.UTC().Format(time.RFC3339)
		return previewOutput{Port: in.Port, URL: s.URL, ExpiresAt: ends}, s.URL + " until " + ends, nil
	}
	p, err := c.Platform.Preview(ctx, id, in.Port)
	if err != nil {
		return previewOutput{}, "", err
	}
	return previewOutput{Port: p.Port, URL: p.URL, Visibility: string(p.Visibility)}, fmt.Sprintf("%s (%s)", p.URL, p.Visibility), nil
}
