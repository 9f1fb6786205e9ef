package httpapi

import (
	"net/http"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/validation"

	"github.com/pandastack/pandastack/api"
)

const (
	msgUnknownQuery = "unknown query parameter" // the framework's wording
	maxProblems     = 16                        // listed in one answer
)

// fromFramework gives the error behind a failure that the framework reports:
// the handler's own, or one of ours for a request that does not fit its
// schema.
func fromFramework(status int, msg string, errs []error) error {
	if status == http.StatusRequestEntityTooLarge {
		return tooLarge()
	}
	var problems []*huma.ErrorDetail
	for _, err := range errs {
		if d, ok := err.(*huma.ErrorDetail); ok && d != nil {
			problems = append(problems, d)
		} else if err != nil {
			if status >= http.StatusInternalServerError && msg == "cannot read request body" {
				return api.Wrap(api.CodeInvalidRequest, err, "the request body could not be read to its end")
			}
			return err
		}
	}
	switch {
	case len(problems) > 0:
		return invalid(status, problems)
	case status == http.StatusRequestTimeout:
		return api.Errorf(api.CodeInvalidRequest, "the request body did not arrive within %s", bodyReadTimeout)
	case status >= http.StatusInternalServerError:
		return api.Errorf(api.CodeInternal, "%s", msg)
	}
	return api.Errorf(api.CodeInvalidRequest, "%s", msg)
}

func tooLarge() error {
	return api.Errorf(api.CodeTooLarge, "the request body is larger than %d bytes", maxJSONBody)
}

// problem is one thing wrong with a request.
type problem struct {
	Field string `json:"field"`
	Rule  string `json:"rule"`
}

// invalid makes one error of everything a request has wrong. A field that does
// not exist comes first, since the other problems often follow from it.
func invalid(status int, details []*huma.ErrorDetail) error {
	if status == http.StatusUnsupportedMediaType {
		return api.Errorf(api.CodeInvalidRequest, "the body must be JSON, sent with Content-Type: application/json").
			With("field", "Content-Type")
	}
	var unknown, other []problem
	for _, d := range details {
		p := describe(d)
		if d.Message == validation.MsgUnexpectedProperty || d.Message == msgUnknownQuery {
			unknown = append(unknown, p)
		} else {
			other = append(other, p)
		}
	}
	byField := func(x, y problem) int { return strings.Compare(x.Field, y.Field) }
	slices.SortFunc(unknown, byField) // they come in the order of a map
	if len(unknown) > 0 {
		names := make([]string, 0, len(unknown))
		for _, p := range unknown[:min(len(unknown), maxProblems)] {
			names = append(names, `"`+p.Field+`"`)
		}
		noun := "unknown field "
		if len(names) > 1 {
			noun = "unknown fields "
		}
		return api.Errorf(api.CodeUnknownField, "%s%s", noun, strings.Join(names, ", ")).With("field", unknown[0].Field)
	}
	other = other[:min(len(other), maxProblems)]
	text := make([]string, len(other))
	for i, p := range other {
		text[i] = p.Rule
		if p.Field != "" {
			text[i] = p.Field + ": " + p.Rule
		}
	}
	return api.Errorf(api.CodeInvalidRequest, "%s", strings.Join(text, "; ")).
		With("field", other[0].Field).With("problems", other)
}

// describe names the field and the rule it breaks, in the words of the wire:
// the place where a value stood (body, query) is left out, and values are not
// repeated, since they may be secrets or large.
func describe(d *huma.ErrorDetail) problem {
	place, field, _ := strings.Cut(d.Location, ".")
	if place != "body" && place != "query" && place != "path" && place != "header" {
		field = d.Location
	}
	if len(field) > 200 {
		field = field[:200] + "..."
	}
	rule := d.Message
	if name, ok := requiredName(rule); ok {
		if field != "" {
			field += "."
		}
		return problem{field + name, "is required"}
	}
	switch {
	case rule == validation.MsgExpectedMatchExactlyOneSchema:
		// The only alternative in the schema is that of a command.
		rule = "expected a string or a list of strings"
	case strings.HasPrefix(rule, "required "):
		rule = "is required"
	case place == "body" && field == "" && !strings.HasPrefix(rule, "expected "):
		rule = "the body is not valid JSON: " + strings.TrimPrefix(rule, "json: ")
	}
	return problem{field, rule}
}

func requiredName(rule string) (string, bool) {
	before, after, _ := strings.Cut(validation.MsgExpectedRequiredProperty, "%s")
	name, ok := strings.CutPrefix(rule, before)
	if !ok {
		return "", false
	}
	return strings.CutSuffix(name, after)
}
