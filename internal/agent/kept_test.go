package agent

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/pandastack/pandastack/api"
)

func sampleKept() kept {
	return kept{
		Version: keptVersion, SandboxID: api.NewID(), Template: "base", Image: fakeDigest, Driver: "gvisor", DriverVersion: "1",
		Memory: true, CPU: 0.5, MemoryMB: 512, DiskMB: 1024, PauseMS: 12.5, Token: "secret", Env: map[string]string{"A": "b"},
	}
}

func TestKeptComesBackAsItWas(t *testing.T) {
	t.Parallel()
	want := sampleKept()
	got, err := parseKept(want.encode())
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v, want %+v", got, err, want)
	}
}

func TestKeptRefusals(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*kept){
		"sandbox id":  func(k *kept) { k.SandboxID = "../x" },
		"no template": func(k *kept) { k.Template = "" },
		"template":    func(k *kept) { k.Template = "a\nb" },
		"long driver": func(k *kept) { k.Driver = strings.Repeat("d", maxName+1) },
		"tag":         func(k *kept) { k.Image = "base" },
		"digest":      func(k *kept) { k.Image = "sha256:../../../../etc/passwd" },
		"cpu":         func(k *kept) { k.CPU = 0 },
		"memory":      func(k *kept) { k.MemoryMB = -1 },
		"disk":        func(k *kept) { k.DiskMB = maxMegabytes + 1 },
		"pause":       func(k *kept) { k.PauseMS = -1 },
		"no token":    func(k *kept) { k.Token = "" },
		"long token":  func(k *kept) { k.Token = strings.Repeat("t", maxToken+1) },
	} {
		k := sampleKept()
		change(&k)
		if _, err := parseKept(k.encode()); api.CodeOf(err) != api.CodeSnapshotCorrupt {
			t.Errorf("%s: error %v", name, err)
		}
	}
	k := sampleKept()
	k.Version++
	if _, err := parseKept(k.encode()); api.CodeOf(err) != api.CodeSnapshotMismatch {
		t.Errorf("a later version: error %v", err)
	}
	if _, err := parseKept(make([]byte, maxKept+1)); api.CodeOf(err) != api.CodeSnapshotCorrupt {
		t.Errorf("a large one: error %v", err)
	}
}

func FuzzParseKept(f *testing.F) {
	f.Add([]byte(sampleKept().encode()))
	f.Add([]byte(`{"version":1,"cpu":1e999}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		k, err := parseKept(data)
		if err != nil {
			return
		}
		if !digestPattern().MatchString(k.Image) || k.CPU <= 0 || k.DiskMB <= 0 {
			t.Errorf("%q gave %+v", data, k)
		}
		if _, err := parseKept(k.encode()); err != nil {
			t.Errorf("what was read is refused when it is written: %v", err)
		}
		if _, err := foreign(json.RawMessage(data)); err != nil {
			t.Errorf("foreign refuses it: %v", err)
		}
	})
}

func TestAttachmentNames(t *testing.T) {
	t.Parallel()
	if got, ok := attachedDigest(attachmentName(fakeDigest)); !ok || got != fakeDigest {
		t.Errorf("%q, %v", got, ok)
	}
	for _, name := range []string{"", "image-.erofs", "image-../../x.erofs", "x", "image-" + strings.Repeat("g", 64) + ".erofs"} {
		if got, ok := attachedDigest(name); ok {
			t.Errorf("%q gave %q", name, got)
		}
	}
}
