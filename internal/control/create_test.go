package control_test

import (
	"context"
	"fmt"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/control"
	"github.com/pandastack/pandastack/internal/host"
)

func TestCreateRefuses(t *testing.T) {
	t.Parallel()
	w := newWorld(t, control.Limits{})
	many := map[string]string{}
	for i := range 65 {
		many[fmt.Sprint(i)] = ""
	}
	for name, c := range map[string]struct {
		req   api.CreateSandbox
		code  api.Code
		field string
	}{
		"zero ttl":          {api.CreateSandbox{TTLSeconds: ptr(0)}, api.CodeInvalidRequest, "ttl_seconds"},
		"negative ttl":      {api.CreateSandbox{TTLSeconds: ptr(-5)}, api.CodeInvalidRequest, "ttl_seconds"},
		"long ttl":          {api.CreateSandbox{TTLSeconds: ptr(2592001)}, api.CodeInvalidRequest, "ttl_seconds"},
		"both lifetimes":    {api.CreateSandbox{TTLSeconds: ptr(5), Persistent: true}, api.CodeInvalidRequest, "ttl_seconds"},
		"negative cpu":      {api.CreateSandbox{CPU: -1}, api.CodeInvalidRequest, "cpu"},
		"huge cpu":          {api.CreateSandbox{CPU: 1e9}, api.CodeInvalidRequest, "cpu"},
		"no number":         {api.CreateSandbox{CPU: math.NaN()}, api.CodeInvalidRequest, "cpu"},
		"negative memory":   {api.CreateSandbox{MemoryMB: -1}, api.CodeInvalidRequest, "memory_mb"},
		"huge memory":       {api.CreateSandbox{MemoryMB: 1 << 30}, api.CodeInvalidRequest, "memory_mb"},
		"negative disk":     {api.CreateSandbox{DiskMB: -1}, api.CodeInvalidRequest, "disk_mb"},
		"idle":              {api.CreateSandbox{IdleTimeout: -1}, api.CodeInvalidRequest, "idle_timeout_seconds"},
		"both idles":        {api.CreateSandbox{IdleTimeout: 5, Idle: &api.IdlePolicy{TimeoutSeconds: 6}}, api.CodeInvalidRequest, "idle_timeout_seconds"},
		"endless idle":      {api.CreateSandbox{Idle: &api.IdlePolicy{TimeoutSeconds: 1 << 30}}, api.CodeInvalidRequest, "idle.timeout_seconds"},
		"idle percent":      {api.CreateSandbox{Idle: &api.IdlePolicy{CPUPercent: math.NaN()}}, api.CodeInvalidRequest, "idle.cpu_percent"},
		"idle traffic":      {api.CreateSandbox{Idle: &api.IdlePolicy{TrafficBytes: -1}}, api.CodeInvalidRequest, "idle.traffic_bytes"},
		"keep last":         {api.CreateSandbox{Checkpoints: &api.CheckpointPolicy{KeepLast: -1}}, api.CodeInvalidRequest, "checkpoints.keep_last"},
		"max age":           {api.CreateSandbox{Checkpoints: &api.CheckpointPolicy{MaxAgeSeconds: -1}}, api.CodeInvalidRequest, "checkpoints.max_age_seconds"},
		"volumes":           {api.CreateSandbox{Volumes: []api.VolumeMount{{Name: "v"}}}, api.CodeUnsupported, "volumes"},
		"egress":            {api.CreateSandbox{EgressMbps: 1 << 30}, api.CodeInvalidRequest, "network.egress_mbps"},
		"two caps":          {api.CreateSandbox{EgressMbps: 5, Network: &api.Network{NetworkRules: api.NetworkRules{EgressMbps: 6}}}, api.CodeInvalidRequest, "egress_mbps"},
		"range":             {api.CreateSandbox{Network: &api.Network{NetworkRules: api.NetworkRules{Deny: []string{"1.2.3.4", "10.0.0.0/33"}}}}, api.CodeInvalidRequest, "network.deny[1]"},
		"name alone":        {api.CreateSandbox{Network: &api.Network{Name: "web"}}, api.CodeInvalidRequest, "network.name"},
		"bad name":          {api.CreateSandbox{Network: &api.Network{Name: "-", Join: []string{"a"}}}, api.CodeInvalidRequest, "network.name"},
		"joined twice":      {api.CreateSandbox{Network: &api.Network{Join: []string{"a", "a"}}}, api.CodeInvalidRequest, "network.join"},
		"10 MB of metadata": {api.CreateSandbox{Metadata: map[string]string{"k": strings.Repeat("x", 10<<20)}}, api.CodeTooLarge, "metadata"},
		"many labels":       {api.CreateSandbox{Metadata: many}, api.CodeTooLarge, "metadata"},
		"long label":        {api.CreateSandbox{Metadata: map[string]string{strings.Repeat("k", 129): ""}}, api.CodeInvalidRequest, "metadata"},
		"empty label":       {api.CreateSandbox{Metadata: map[string]string{"": "x"}}, api.CodeInvalidRequest, "metadata"},
		"env with =":        {api.CreateSandbox{Env: map[string]string{"A=B": "x"}}, api.CodeInvalidRequest, "env"},
		"env with NUL":      {api.CreateSandbox{Env: map[string]string{"A": "x\x00"}}, api.CodeInvalidRequest, "env"},
		"huge env":          {api.CreateSandbox{Env: map[string]string{"A": strings.Repeat("x", 65<<10)}}, api.CodeTooLarge, "env"},
		"template":          {api.CreateSandbox{Template: "a\nb"}, api.CodeInvalidRequest, "template"},
		"driver":            {api.CreateSandbox{Driver: strings.Repeat("d", 1000)}, api.CodeInvalidRequest, "driver"},
	} {
		_, err := w.Create(t.Context(), alice, c.req)
		wantCode(t, err, c.code)
		if got := api.AsError(err).Details["field"]; got != c.field {
			t.Errorf("%s: the field is %v", name, got)
		}
		if len(err.Error()) > 500 {
			t.Errorf("%s: the message has %d bytes", name, len(err.Error()))
		}
	}
}

func TestQuota(t *testing.T) {
	t.Parallel()
	w := newWorld(t, control.Limits{SandboxesPerOrg: 3})
	var made, refused atomic.Int64
	var wg sync.WaitGroup
	for range 9 {
		wg.Go(func() {
			switch _, err := w.Create(t.Context(), alice, api.CreateSandbox{}); {
			case err == nil:
				made.Add(1)
			case api.CodeOf(err) == api.CodeQuotaSandboxes:
				refused.Add(1)
			default:
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if made.Load() != 3 || refused.Load() != 6 || w.host.count() != 3 {
		t.Fatal(made.Load(), refused.Load(), w.host.count())
	}
	list, err := w.List(t.Context(), alice, control.ListQuery{})
	must(t, err)
	must(t, w.Delete(t.Context(), alice, list.Sandboxes[0].ID))
	w.create(api.CreateSandbox{})
}

func TestCreateFailsOnTheHost(t *testing.T) {
	t.Parallel()
	w := newWorld(t, control.Limits{})
	var id string
	w.host.beforeCreate = func(_ context.Context, spec host.Spec) error {
		id = spec.ID
		return api.Errorf(api.CodeTemplateNotFound, "there is no template %s", spec.Template)
	}
	_, err := w.Create(t.Context(), alice, api.CreateSandbox{Template: "nosuch"})
	wantCode(t, err, api.CodeTemplateNotFound)
	if !w.gone(id)() {
		t.Fatal("the row was kept")
	}
	if h := w.history(id); h != "failed" {
		t.Fatal(h)
	}
}

// The client may leave while the host works, or just when it is done.
func TestClientLeavesDuringCreate(t *testing.T) {
	t.Parallel()
	for name, arrange := range map[string]func(h *nativeHost, leave func()){
		"before": func(h *nativeHost, leave func()) {
			h.beforeCreate = func(ctx context.Context, _ host.Spec) error { leave(); <-ctx.Done(); return ctx.Err() }
		},
		"after": func(h *nativeHost, leave func()) {
			h.afterCreate = func(context.Context, host.Spec) error { leave(); return nil }
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, control.Limits{})
			ctx, leave := context.WithCancel(t.Context())
			arrange(w.host, leave)
			if b, err := w.Create(ctx, alice, api.CreateSandbox{}); err == nil {
				t.Fatalf("%+v", b)
			}
			rows, err := w.store.AllSandboxes(t.Context())
			if len(rows) != 0 || w.host.count() != 0 || err != nil {
				t.Fatal(rows, w.host.count(), err)
			}
		})
	}
}

func TestDeleteDuringCreate(t *testing.T) {
	t.Parallel()
	w := newWorld(t, control.Limits{})
	begun := make(chan string, 1)
	w.host.beforeCreate = func(ctx context.Context, spec host.Spec) error {
		begun <- spec.ID
		<-ctx.Done() // a template that takes long to build
		return ctx.Err()
	}
	failed := make(chan error, 1)
	go func() {
		_, err := w.Create(t.Context(), alice, api.CreateSandbox{})
		failed <- err
	}()
	id := <-begun
	if b, err := w.Get(t.Context(), alice, id); err != nil || b.Status != api.StatusCreating {
		t.Fatal(b, err)
	}
	_, err := w.Exec(t.Context(), alice, id, api.Exec{Cmd: cmd("true")})
	wantCode(t, err, api.CodeSandboxState)
	must(t, w.Delete(t.Context(), alice, id))
	wantCode(t, <-failed, api.CodeSandboxNotFound)
	if !w.gone(id)() {
		t.Fatal("the row was kept")
	}
}
