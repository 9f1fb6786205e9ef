package bench

import (
	"context"
	"fmt"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/client"
)

// openCode measures the round trip of the shortest code in each language.
func openCode(ctx context.Context, t *target) (*session, error) {
	sb, err := t.create(ctx, api.CreateSandbox{})
	if err != nil {
		return nil, err
	}
	languages := []struct{ name, code string }{{"python", "1+1"}, {"javascript", "1+1"}, {"bash", "echo 2"}}
	s := &session{rounds: t.options.Count, warm: 5}
	rows := make([]*row, len(languages))
	for i, l := range languages {
		if rows[i] = s.row(l.name+" "+l.code, "ms"); i == 0 {
			rows[i].aim(10, 0)
		}
	}
	s.round = func(ctx context.Context) error {
		for i, l := range languages {
			from := time.Now()
			run, err := sb.RunCode(ctx, l.code, client.CodeOptions{Language: l.name})
			switch {
			case err != nil:
				rows[i].fail(err)
			case run.Text+run.Stdout != "2" && run.Stdout != "2\n":
				rows[i].fail(fmt.Errorf("%s in %s gives %q", l.code, l.name, run.Text+run.Stdout))
			default:
				rows[i].took(time.Since(from))
			}
		}
		return nil
	}
	return s, nil
}
