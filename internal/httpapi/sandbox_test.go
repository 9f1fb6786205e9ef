package httpapi

import (
	"encoding/json"
	"net/url"
	"reflect"
	"strings"
	"testing"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/control"
)

func TestCreateShapes(t *testing.T) {
	t.Parallel()
	ttl := 3600
	for body, want := range map[string]api.CreateSandbox{
		``:                    {},
		`{}`:                  {},
		`{"template":"code"}`: {Template: "code"},
		`{"template":"base","cpu":2,"memory_mb":512}`: {Template: "base", CPU: 2, MemoryMB: 512},
		`{"template":"base","ttl_seconds":3600,"metadata":{"a":"b"},"persistent":true,"env":{"X":"1"}}`: {
			Template: "base", TTLSeconds: &ttl, Metadata: map[string]string{"a": "b"}, Persistent: true, Env: map[string]string{"X": "1"}},
		`{"template":"base","from_snapshot":"snap-1","volumes":[{"name":"v","read_only":true}],"egress_mbps":10}`: {
			Template: "base", FromSnapshot: "snap-1", Volumes: []api.VolumeMount{{Name: "v", ReadOnly: true}}, EgressMbps: 10},
		`{"from_snapshot":"warm","idle_timeout_seconds":60,"idle":{"timeout_seconds":30,"ignore_traffic":true},"checkpoints":{"keep_last":5}}`: {
			FromSnapshot: "warm", IdleTimeout: 60, Idle: &api.IdlePolicy{TimeoutSeconds: 30, IgnoreTraffic: true},
			Checkpoints: &api.CheckpointPolicy{KeepLast: 5}},
		`{"template":"base","ttl_seconds":null,"metadata":null}`: {Template: "base"},
	} {
		f := &wire{sandbox: api.Sandbox{ID: "k3v9x0q2m7c1b8n4t6zd", Status: api.StatusRunning, BootMode: api.BootRestore, BootMS: 12,
			BootSteps: []api.Step{{Name: "restore", MS: 9}}, Metadata: map[string]string{}}}
		b := serve(t, f)
		resp := b.do("POST", "/v1/sandboxes", body)
		if resp.StatusCode != 201 || resp.Header.Get("Location") != box {
			t.Errorf("%s: status %d, location %q", body, resp.StatusCode, resp.Header.Get("Location"))
		}
		var got api.Sandbox
		if err := json.Unmarshal([]byte(b.read(resp)), &got); err != nil || !reflect.DeepEqual(got, f.sandbox) {
			t.Errorf("%s: got %+v (%v)", body, got, err)
		}
		if f.onceKey != "" {
			t.Errorf("%s: an idempotency key out of nowhere: %q", body, f.onceKey)
		}
		if !reflect.DeepEqual(f.create, want) {
			t.Errorf("%s: control got %+v, want %+v", body, f.create, want)
		}
	}
}

func TestIdempotencyKey(t *testing.T) {
	t.Parallel()
	f := &wire{sandbox: api.Sandbox{ID: "k3v9x0q2m7c1b8n4t6zd", Metadata: map[string]string{}}}
	b := serve(t, f)
	if resp := b.do("POST", "/v1/sandboxes", `{}`, "Idempotency-Key", "once"); resp.StatusCode != 201 || f.onceKey != "once" {
		t.Errorf("status %d, key %q", resp.StatusCode, f.onceKey)
	}
}

func TestExecShapes(t *testing.T) {
	t.Parallel()
	for body, cmd := range map[string]string{
		`{"cmd":"echo hi"}`:                                          `"echo hi"`,
		`{"cmd":"echo","args":["hello"]}`:                            `"echo"`,
		`{"cmd":["echo","hi"],"timeout_seconds":2}`:                  `["echo","hi"]`,
		`{"cmd":"cat","stdin":"x","cwd":"/","user":"root","env":{}}`: `"cat"`,
	} {
		f := &wire{result: api.ExecResult{Stdout: "a<b>\n", ExitCode: 3, DurationMS: 1.5}}
		b := serve(t, f)
		resp := b.do("POST", box+"/exec", body)
		if got := b.read(resp); resp.StatusCode != 200 || got != `{"stdout":"a<b>\n","stderr":"","exit_code":3,"duration_ms":1.5}`+"\n" {
			t.Errorf("%s: %d %s", body, resp.StatusCode, got)
		}
		if string(f.exec.Cmd) != cmd {
			t.Errorf("%s: control got %s", body, f.exec.Cmd)
		}
	}
}

func TestListQuery(t *testing.T) {
	t.Parallel()
	for query, want := range map[string]control.ListQuery{
		"":                                 {Limit: 100},
		"metadata.user=ann&metadata.job=7": {Limit: 100, Metadata: map[string]string{"user": "ann", "job": "7"}},
		"metadata=user:ann:x&metadata=" + url.QueryEscape(`{"job":"7"}`): {Limit: 100, Metadata: map[string]string{"user": "ann:x", "job": "7"}},
		"state=running,paused&template=base&limit=1000&page=abc": {Limit: 1000, Template: "base", Page: "abc",
			Status: []api.Status{api.StatusRunning, api.StatusPaused}},
		"status=hibernated": {Limit: 100, Status: []api.Status{api.StatusHibernated}},
		"status=failed":     {Limit: 100, Status: []api.Status{api.StatusFailed}},
	} {
		f := &wire{}
		b := serve(t, f)
		resp := b.do("GET", "/v1/sandboxes?"+query, "")
		if body := b.read(resp); resp.StatusCode != 200 || !strings.HasPrefix(body, `{"sandboxes":[{`) {
			t.Errorf("%s: %d %s", query, resp.StatusCode, body)
		}
		if !reflect.DeepEqual(f.list, want) {
			t.Errorf("%s: control got %+v, want %+v", query, f.list, want)
		}
	}
}

func TestSmallAnswers(t *testing.T) {
	t.Parallel()
	b := serve(t, &wire{})
	for _, tt := range []struct {
		method, path, body string
		status             int
		has                string
	}{
		{"GET", "/v1/me", "", 200, `{"org":"o","name":"user","prefix":"pds_1","admin":false}`},
		{"DELETE", box, "", 204, ""},
		{"POST", box + "/pause", "", 200, `"id"`},
		{"POST", box + "/resume", "", 200, `"id"`},
		{"GET", box + "/metrics", "", 200, `"pid":7`},
		{"PATCH", box + "/lifecycle", `{"ttl_seconds":60,"persistent":false,"idle_seconds":30,"idle":{"timeout_seconds":30},"checkpoints":{"keep_last":3}}`, 200,
			`{"ttl_seconds":60,"persistent":false,"idle_seconds":30,"idle":{"timeout_seconds":30},"checkpoints":{"keep_last":3}}`},
		{"GET", "/v1/templates", "", 200, `"base"`},
		{"GET", "/v1/templates/base", "", 200, `"base"`},
		{"GET", "/healthz", "", 200, `{"status":"ok"}`},
		{"HEAD", "/healthz", "", 200, ``},
		{"GET", "/readyz", "", 200, `{"status":"ok"}`},
		{"GET", "/version", "", 200, `"version":"test"`},
		{"GET", box + "/events", "", 200, `[]`},
	} {
		resp := b.do(tt.method, tt.path, tt.body)
		if body := b.read(resp); resp.StatusCode != tt.status || !strings.Contains(body, tt.has) {
			t.Errorf("%s %s: %d %s", tt.method, tt.path, resp.StatusCode, body)
		}
	}
	resp := b.do("POST", "/v1/me/tokens", `{"name":"ci"}`, "Authorization", "", "X-API-Key", adminKey)
	if body := b.read(resp); resp.StatusCode != 201 || !strings.Contains(body, `"token":"pds_new"`) {
		t.Errorf("create token: %d %s", resp.StatusCode, body)
	}
	starting := serve(t, &wire{err: api.Errorf(api.CodeCapacity, "no")})
	resp = starting.do("GET", "/readyz", "", "Authorization", "")
	if body := starting.read(resp); resp.StatusCode != 503 || !strings.Contains(body, "making the base image") {
		t.Errorf("readyz: %d %s", resp.StatusCode, body)
	}
}

func TestPrometheus(t *testing.T) {
	t.Parallel()
	f := &wire{sandbox: api.Sandbox{ID: "k3v9x0q2m7c1b8n4t6zd", BootMode: api.BootCold, BootMS: 900, BootSteps: []api.Step{{Name: "init", MS: 4}}}}
	b := serve(t, f)
	b.read(b.do("POST", "/v1/sandboxes", `{}`))
	b.read(b.do("POST", box+"/exec", `{"cmd":"true"}`))
	b.read(b.do("GET", "/no/such"+box, ""))
	f.tree.Children = []api.Sandbox{{BootMode: api.BootFork, BootMS: 30}, {BootMode: api.BootFork, BootMS: 50}}
	b.read(b.do("POST", box+"/fork-tree", `{"count":2}`))
	b.api.Woken(api.Sandbox{BootMode: api.BootWake, BootMS: 20, BootSteps: []api.Step{{Name: "restore", MS: 7}}})
	f.sandbox = api.Sandbox{BootMode: api.BootRestore, BootMS: 10}
	b.read(b.do("POST", box+"/restore", ""))
	f.snapshot = api.Snapshot{Kind: api.KindCheckpoint, PauseMS: 9}
	b.read(b.do("POST", box+"/checkpoint", ""))
	page := b.read(b.do("GET", "/metrics", "", "Authorization", ""))
	for _, want := range []string{
		`pandastack_sandbox_creates_total{boot_mode="cold"} 1`,
		`pandastack_sandbox_boot_milliseconds_count{boot_mode="cold"} 1`,
		`pandastack_sandbox_boot_step_milliseconds_sum{boot_mode="cold",step="init"} 4`,
		`pandastack_sandbox_creates_total{boot_mode="fork"} 2`,
		`pandastack_sandbox_boot_milliseconds_sum{boot_mode="fork"} 80`,
		`pandastack_sandbox_boot_milliseconds_sum{boot_mode="wake"} 20`,
		`pandastack_sandbox_boot_step_milliseconds_sum{boot_mode="wake",step="restore"} 7`,
		`pandastack_sandbox_boot_milliseconds_sum{boot_mode="restore"} 10`,
		`pandastack_snapshot_pause_milliseconds_sum{kind="checkpoint"} 9`,
		`pandastack_execs_total{call="exec",outcome="ok"} 1`,
		`pandastack_exec_seconds_count 1`,
		`pandastack_http_requests_total{method="POST",route="/v1/sandboxes/{id}/exec",status="200"} 1`,
		`pandastack_http_requests_total{method="any",route="none",status="404"} 1`,
		`pandastack_sandboxes{state="running"} 3`,
	} {
		if !strings.Contains(page, want) {
			t.Errorf("no %s in\n%s", want, page)
		}
	}
	if strings.Contains(page, `creates_total{boot_mode="wake"}`) || strings.Contains(page, `creates_total{boot_mode="restore"}`) {
		t.Error("what was there before counts as created")
	}
	if strings.Contains(page, "k3v9x0q2m7c1b8n4t6zd") {
		t.Error("a sandbox id is in the metrics")
	}
}
