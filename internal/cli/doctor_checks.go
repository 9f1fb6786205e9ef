package cli

import (
	"context"

	"github.com/pandastack/pandastack/internal/server"
)

// checkHost says what this machine has and lacks for a server.
func checkHost(ctx context.Context, c server.Config) ([]check, error) {
	var out []check
	for _, x := range server.Doctor(ctx, c) {
		status := "OK"
		switch {
		case !x.OK && x.Required:
			status = "MISSING"
		case !x.OK:
			status = "WARN"
		}
		out = append(out, check{Name: x.Name, Status: status, Detail: x.Detail, Fix: x.Fix, Required: x.Required})
	}
	return out, nil
}
