package cli

import (
	"testing"

	"github.com/pandastack/pandastack/api"
)

func TestIdleText(t *testing.T) {
	t.Parallel()
	for want, p := range map[string]api.IdlePolicy{
		"never":       {IgnoreStreams: true},
		"after 10m0s": {TimeoutSeconds: 600},
		"after 1m30s, streams and processes do not count": {TimeoutSeconds: 90, IgnoreStreams: true, IgnoreProcesses: true},
	} {
		if got := idleText(p); got != want {
			t.Errorf("%+v is %q, want %q", p, got, want)
		}
	}
}

func TestPolicyText(t *testing.T) {
	t.Parallel()
	for want, p := range map[string]api.CheckpointPolicy{
		"":                                   {},
		"the last 20":                        {KeepLast: 20},
		"the last 2, none older than 2h0m0s": {KeepLast: 2, MaxAgeSeconds: 7200},
	} {
		if got := policyText(p); got != want {
			t.Errorf("%+v is %q, want %q", p, got, want)
		}
	}
}
