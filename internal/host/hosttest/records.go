package hosttest

import (
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/host"
)

var recordChecks = []check{
	{"InfoDescribesTheHost", infoDescribesTheHost},
	{"TemplatesNameWhatCreateTakes", templatesNameWhatCreateTakes},
	{"CreateReturnsARunningSandbox", createReturnsARunningSandbox},
	{"CreateHonoursSizesAndEnvironment", createHonoursSizesAndEnvironment},
	{"CreatesRunAtTheSameTime", createsRunAtTheSameTime},
	{"DeleteRemovesAndMayBeRepeated", deleteRemovesAndMayBeRepeated},
	{"PauseAndResumeMayBeRepeated", pauseAndResumeMayBeRepeated},
	{"PausedSandboxCanBeDeleted", pausedSandboxCanBeDeleted},
	{"UsageCounts", usageCounts},
}

func infoDescribesTheHost(t *testing.T, s *suite) {
	in, err := s.host.Info(deadline(t))
	if err != nil {
		t.Fatal(err)
	}
	if in.ID == "" || in.Name == "" || in.Arch == "" || in.Kernel == "" || in.CPUs < 1 || in.MemoryMB < 1 || in.Slots < 1 {
		t.Errorf("incomplete: %+v", in)
	}
	i := slices.IndexFunc(in.Drivers, func(d host.DriverInfo) bool { return d.Name == in.Default })
	if i < 0 || !in.Drivers[i].Usable {
		t.Errorf("the default driver %q is not among the usable: %+v", in.Default, in.Drivers)
	}
	for _, d := range in.Drivers {
		if d.Reason == "" {
			t.Errorf("driver %s gives no reason", d.Name)
		}
	}
}

func templatesNameWhatCreateTakes(t *testing.T, s *suite) {
	list, err := s.host.Templates(deadline(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range list {
		if !slices.Contains([]string{"building", "ready", "failed", "on_demand"}, one.Status) {
			t.Errorf("template %s has status %q", one.Name, one.Status)
		}
	}
}

func createReturnsARunningSandbox(t *testing.T, s *suite) {
	spec := s.spec()
	before := time.Now()
	sb := s.create(t, spec)
	if sb.ID != spec.ID || sb.Template != spec.Template || sb.State != host.StateRunning || sb.Error != nil {
		t.Errorf("record %+v", sb)
	}
	if sb.Driver == "" || sb.CPU <= 0 || sb.MemoryMB <= 0 || sb.DiskMB <= 0 {
		t.Errorf("sizes or driver missing: %+v", sb)
	}
	if _, err := netip.ParseAddr(sb.GuestIP); err != nil {
		t.Errorf("guest address: %v", err)
	}
	if sb.BootMode != api.BootCold && sb.BootMode != api.BootRestore || sb.BootMS <= 0 || len(sb.BootSteps) == 0 {
		t.Errorf("boot: %q %v ms %v", sb.BootMode, sb.BootMS, sb.BootSteps)
	}
	// An hour of slack: the record's clock may be another machine's.
	if d := sb.CreatedAt.Sub(before); d < -time.Hour || d > time.Hour {
		t.Errorf("created at %v", sb.CreatedAt)
	}
	got, err := s.host.Get(deadline(t), spec.ID)
	if err != nil {
		t.Fatal(err)
	}
	if got.ID != sb.ID || got.State != sb.State || got.GuestIP != sb.GuestIP || !got.CreatedAt.Equal(sb.CreatedAt) {
		t.Errorf("Get gives %+v, Create gave %+v", got, sb)
	}
	if !s.listed(t, spec.ID) {
		t.Error("not in List")
	}
	g := s.guest(t, spec)
	g.wantHealthy(t)
}

func createHonoursSizesAndEnvironment(t *testing.T, s *suite) {
	spec := s.spec()
	spec.MemoryMB, spec.Env = 384, map[string]string{"SUITE_VALUE": "läuft = \"ja\"\n"}
	sb := s.create(t, spec)
	if sb.MemoryMB != 384 {
		t.Errorf("memory_mb %d", sb.MemoryMB)
	}
	g := s.guest(t, spec)
	if env := g.environment(t); env["SUITE_VALUE"] != spec.Env["SUITE_VALUE"] {
		t.Errorf("environment %q", env)
	}
	g.wantTokenNeeded(t)
}

func createsRunAtTheSameTime(t *testing.T, s *suite) {
	var wg sync.WaitGroup
	specs := make([]host.Spec, 4)
	boxes := make([]host.Sandbox, len(specs))
	errs := make([]error, len(specs))
	ctx := deadline(t)
	for i := range specs {
		specs[i] = s.spec()
		s.deleteLater(t, specs[i].ID)
		wg.Go(func() { boxes[i], errs[i] = s.host.Create(ctx, specs[i]) })
	}
	wg.Wait()
	addresses := map[string]bool{}
	for i := range specs {
		if errs[i] != nil {
			t.Fatal(errs[i])
		}
		addresses[boxes[i].GuestIP] = true
		s.guest(t, specs[i]).wantHealthy(t)
	}
	if len(addresses) != len(specs) {
		t.Errorf("%d sandboxes share %d addresses", len(specs), len(addresses))
	}
}

func deleteRemovesAndMayBeRepeated(t *testing.T, s *suite) {
	spec := s.spec()
	s.create(t, spec)
	ctx := deadline(t)
	for range 2 {
		if err := s.host.Delete(ctx, spec.ID); err != nil {
			t.Fatal(err)
		}
	}
	s.wantGone(t, spec.ID)
	_, err := s.host.Dial(ctx, spec.ID, api.InternalPort)
	wantCode(t, "Dial after Delete", err, api.CodeSandboxNotFound)
	if err := s.host.Delete(ctx, api.NewID()); err != nil {
		t.Errorf("Delete of an id that never was: %v", err)
	}
	// The id is free again.
	s.create(t, spec)
}

func pauseAndResumeMayBeRepeated(t *testing.T, s *suite) {
	spec := s.spec()
	s.create(t, spec)
	ctx := deadline(t)
	steps := []struct {
		do    func() error
		state host.State
	}{
		{func() error { return s.host.Resume(ctx, spec.ID) }, host.StateRunning},
		{func() error { return s.host.Pause(ctx, spec.ID) }, host.StatePaused},
		{func() error { return s.host.Pause(ctx, spec.ID) }, host.StatePaused},
		{func() error { return s.host.Resume(ctx, spec.ID) }, host.StateRunning},
		{func() error { return s.host.Resume(ctx, spec.ID) }, host.StateRunning},
	}
	for i, step := range steps {
		if err := step.do(); err != nil {
			t.Fatalf("step %d: %v", i, err)
		}
		sb, err := s.host.Get(ctx, spec.ID)
		if err != nil || sb.State != step.state {
			t.Fatalf("step %d: state %q, %v; want %q", i, sb.State, err, step.state)
		}
	}
	s.guest(t, spec).wantHealthy(t)
}

func pausedSandboxCanBeDeleted(t *testing.T, s *suite) {
	spec := s.spec()
	s.create(t, spec)
	ctx := deadline(t)
	if err := s.host.Pause(ctx, spec.ID); err != nil {
		t.Fatal(err)
	}
	if err := s.host.Delete(ctx, spec.ID); err != nil {
		t.Fatal(err)
	}
	s.wantGone(t, spec.ID)
}

func usageCounts(t *testing.T, s *suite) {
	spec := s.spec()
	s.create(t, spec)
	u, err := s.host.Usage(deadline(t), spec.ID)
	if err != nil {
		t.Fatal(err)
	}
	if u.PID <= 0 || u.CPUSeconds < 0 || u.HostRSSBytes <= 0 || u.MemoryLimit <= 0 || u.DiskLimit <= 0 || u.Processes <= 0 {
		t.Errorf("usage %+v", u)
	}
	all, err := s.host.Usages(deadline(t))
	if err != nil {
		t.Fatal(err)
	}
	if v := all[spec.ID]; v.PID != u.PID || v.CPUSeconds < u.CPUSeconds || v.HostRSSBytes <= 0 || v.HostCPUPercent != 0 {
		t.Errorf("usages %+v of %d, usage %+v", v, len(all), u)
	}
}
