package httpapi

import (
	"context"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/pandastack/pandastack/api"
)

type seriesInput struct {
	SandboxPath
	Range string `query:"range" maxLength:"32" default:"1h" doc:"How far back, such as 15m, 1h or a number of seconds" example:"15m"`
	Step  string `query:"step" maxLength:"32" default:"10s" doc:"Time between two samples, in steps of ten seconds" example:"1m"`
}

type seriesOutput struct{ Body api.MetricsSeries }

func (a *API) getSeries(ctx context.Context, in *seriesInput) (*seriesOutput, error) {
	span, err := duration("range", in.Range)
	if err != nil {
		return nil, err
	}
	step, err := duration("step", in.Step)
	if err != nil {
		return nil, err
	}
	out, err := a.Control.Series(ctx, who(ctx), in.ID, span, step)
	if err != nil {
		return nil, err
	}
	return &seriesOutput{out}, nil
}

// duration reads a time span: as Go writes it, with d for days, or as seconds.
func duration(field, text string) (time.Duration, error) {
	const most = 366 * 24 * time.Hour
	d, err := time.ParseDuration(text)
	if n, e := strconv.ParseUint(text, 10, 31); e == nil {
		d, err = time.Duration(n)*time.Second, nil
	}
	if n := len(text) - 1; n > 0 && text[n] == 'd' {
		if days, e := strconv.ParseUint(text[:n], 10, 16); e == nil {
			d, err = time.Duration(days)*24*time.Hour, nil
		}
	}
	if err != nil || d <= 0 || d > most {
		return 0, api.Errorf(api.CodeInvalidRequest, "%s must be a time span such as 15m or 1h", field).With("field", field)
	}
	return d, nil
}

func docSeries(op *huma.Operation) {
	op.Description = "Measured every ten seconds and kept in memory for an hour: a longer range gives what there is, and a restart of the server begins anew. " +
		"Asking does not wake the sandbox."
}
