package httpapi

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/control"
)

const labelPrefix = "metadata."

type listInput struct {
	Metadata []string     `query:"metadata,explode" doc:"Label as key:value (may repeat), or a JSON object of labels"`
	State    []api.Status `query:"state" enum:"creating,running,paused,hibernated,deleting,failed" doc:"States, separated by commas"`
	Status   []api.Status `query:"status" enum:"creating,running,paused,hibernated,deleting,failed" doc:"The same as state"`
	Template string       `query:"template" doc:"Template name"`
	Limit    int          `query:"limit" minimum:"1" maximum:"1000" default:"100" doc:"Sandboxes in a page"`
	Page     string       `query:"page" maxLength:"512" doc:"next_page of the page before"`

	labels map[string]string // every label asked for, in either form
}

// Resolve gathers the labels, whose parameter names are the caller's own, and
// refuses parameters that do not exist.
func (in *listInput) Resolve(ctx huma.Context) []error {
	u := ctx.URL()
	var errs []error
	for name, values := range u.Query() {
		switch name {
		case "metadata", "state", "status", "template", "limit", "page":
			continue
		}
		key, ok := strings.CutPrefix(name, labelPrefix)
		if !ok || key == "" {
			errs = append(errs, &huma.ErrorDetail{Location: "query." + name, Message: msgUnknownQuery})
			continue
		}
		in.label(key, values[len(values)-1])
	}
	for _, m := range in.Metadata {
		if !in.parseLabels(m) {
			errs = append(errs, &huma.ErrorDetail{Location: "query.metadata", Message: "expected key:value or a JSON object of strings"})
		}
	}
	return errs
}

func (in *listInput) label(key, value string) {
	if in.labels == nil {
		in.labels = make(map[string]string)
	}
	in.labels[key] = value
}

func (in *listInput) parseLabels(s string) bool {
	if strings.HasPrefix(s, "{") {
		var m map[string]string
		if json.Unmarshal([]byte(s), &m) != nil {
			return false
		}
		for k, v := range m {
			in.label(k, v)
		}
		return true
	}
	key, value, ok := strings.Cut(s, ":")
	if ok && key != "" {
		in.label(key, value)
	}
	return ok && key != ""
}

type listOutput struct{ Body api.SandboxList }

func (a *API) listSandboxes(ctx context.Context, in *listInput) (*listOutput, error) {
	l, err := a.Control.List(ctx, who(ctx), control.ListQuery{
		Metadata: in.labels,
		Status:   append(in.State, in.Status...),
		Template: in.Template,
		Limit:    in.Limit,
		Page:     in.Page,
	})
	if err != nil {
		return nil, err
	}
	if l.Sandboxes == nil {
		l.Sandboxes = []api.Sandbox{}
	}
	return &listOutput{l}, nil
}
