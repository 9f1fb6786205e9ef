package image

import (
	"strings"
	"testing"
	"testing/fstest"

	"github.com/pandastack/pandastack/api"
)

func TestParseRecipeErrors(t *testing.T) {
	t.Parallel()
	const good = "name = \"a\"\n[debian]\nsuite = \"trixie\"\n"
	if _, err := ParseRecipe("t.toml", []byte(good)); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ text, want string }{
		"syntax":       {"name = \"a\"\nsize = [\n", "t.toml:2:"},
		"type":         {"name = \"a\"\n[debian]\nsuite = 12\n", `t.toml:3: key "debian.suite": incompatible types`},
		"unknown":      {good + "colour = 1\n", `t.toml:4: unknown key "debian.colour"`},
		"unknown step": {good + "[[steps]]\nrun = \"x\"\ncopy = \"y\"\n", `t.toml:6: unknown key "steps.copy"`},
		"no debian":    {"name = \"a\"\n", `key "debian" is missing`},
		"name":         {"# c\nname = \"A b\"\n[debian]\nsuite = \"x\"\n", `t.toml:2: key "name"`},
		"suite":        {"name = \"a\"\n[debian]\nsuite = \"../x\"\n", `t.toml:3: key "debian.suite"`},
		"package":      {good + "packages = [\n\"a b\"]\n", `t.toml:4: key "debian.packages" has "a b"`},
		"option":       {good + "packages = [\"--mode=chroot\"]\n", `t.toml:4: key "debian.packages"`},
		"mirror":       {good + "mirror = \"file:///x\"\n", `t.toml:4: key "debian.mirror"`},
		"exclude":      {good + "exclude = [\"x\"]\n", `t.toml:4: key "debian.exclude"`},
		"size":         {good + "[size]\ncpu = 1\nmemory_mb = -1\n", `t.toml:6: key "size.memory_mb" may not be negative`},
		"empty step":   {good + "[[steps]]\nname = \"x\"\n", `key "steps" number 1 has nothing to run`},
	} {
		_, err := ParseRecipe("t.toml", []byte(c.text))
		if api.CodeOf(err) != api.CodeTemplateInvalid || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v; want %s", name, err, c.want)
		}
	}
}

func TestRecipeKey(t *testing.T) {
	t.Parallel()
	r := Recipe{Name: "a", Debian: &Debian{Suite: "trixie"}}
	key := r.key("")
	r.Size.CPU = 4
	if r.key("") != key {
		t.Error("the size of sandboxes changes the image")
	}
	r.Steps = []Step{{Run: "true"}}
	if r.key("") == key {
		t.Error("a step does not change the image")
	}
}

func TestHostSources(t *testing.T) {
	t.Parallel()
	file := func(s string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(s)} }
	const debian12 = "ID=debian\nVERSION_CODENAME=bookworm\n"
	const signed = "deb [signed-by=" + debianKeyring + "] "
	for name, c := range map[string]struct {
		host fstest.MapFS
		want []string
	}{
		"deb822": {fstest.MapFS{
			"etc/os-release": file(debian12),
			"etc/apt/sources.list.d/debian.sources": file("# c\nTypes: deb deb-src\nURIs: http://mirror.example/debian\nSuites: bookworm bookworm-updates\n bookworm-backports\nComponents: main\n\n" +
				"Types: deb\nURIs: http://mirror.example/security\nSuites: bookworm-security\nComponents: main\n\nTypes: deb\nURIs: https://other.example/x\nSuites: nodistro\nComponents: main\n"),
		}, []string{
			signed + "http://mirror.example/debian trixie main",
			signed + "http://mirror.example/debian trixie-updates main",
			signed + "http://mirror.example/security trixie-security main",
		}},
		"one line": {fstest.MapFS{
			"etc/os-release":               file(debian12),
			"etc/apt/sources.list":         file("# deb http://no.example/ bookworm main\ndeb [arch=amd64 signed-by=/x] http://mirror.example/debian bookworm main contrib # c\ndeb-src http://mirror.example/debian bookworm main\n"),
			"etc/apt/sources.list.d/x.bak": file("deb http://bak.example/debian bookworm main\n"),
		}, []string{signed + "http://mirror.example/debian trixie main"}},
		"disabled, files and no main suite": {fstest.MapFS{
			"etc/os-release":                   file(debian12),
			"etc/apt/sources.list.d/a.sources": file("Enabled: no\nTypes: deb\nURIs: http://a.example/\nSuites: bookworm\nComponents: main\n"),
			"etc/apt/sources.list.d/b.sources": file("Types: deb\nURIs: mirror+file:///etc/apt/m.list\nSuites: bookworm\nComponents: main\n"),
			"etc/apt/sources.list.d/c.sources": file("Types: deb\nURIs: http://c.example/\nSuites: bookworm-security\nComponents: main\n"),
		}, nil},
		"another system": {fstest.MapFS{
			"etc/os-release":       file("ID=ubuntu\nID_LIKE=debian\nVERSION_CODENAME=noble\n"),
			"etc/apt/sources.list": file("deb http://ubuntu.example/ noble main\n"),
		}, nil},
	} {
		got := (&Debian{Suite: "trixie"}).sources("", c.host)
		if strings.Join(got, "\n") != strings.Join(c.want, "\n") {
			t.Errorf("%s:\n%s\nwant\n%s", name, strings.Join(got, "\n"), strings.Join(c.want, "\n"))
		}
	}
	d := &Debian{Suite: "trixie", Mirror: "http://m.example/debian", SecurityMirror: "http://s.example/"}
	if got := d.sources("", fstest.MapFS{}); len(got) != 3 || !strings.Contains(got[2], "http://s.example/ trixie-security") {
		t.Errorf("the recipe's mirrors: %q", got)
	}
	if got := d.sources("http://o.example/", fstest.MapFS{}); len(got) != 2 || !strings.Contains(got[0], "http://o.example/ trixie main") {
		t.Errorf("the mirror of the store: %q", got)
	}
}

func TestDebianProgress(t *testing.T) {
	t.Parallel()
	var said []string
	last := 0.0
	p := &debianProgress{steps: []Step{{Name: "one"}, {}}, report: func(step string, f float64) {
		if len(said) == 0 || said[len(said)-1] != step {
			said = append(said, step)
		}
		if f < last || f > 1 {
			t.Errorf("%s: %v after %v", step, f, last)
		}
		last = f
	}}
	for _, line := range strings.Split(`I: running apt-get update...
Get:1 http://m.example/debian trixie InRelease [140 kB]
0 upgraded, 1 newly installed, 0 to remove and 0 not upgraded.
Get:1 http://m.example/debian trixie/main amd64 libc6 amd64 2.41 [2847 kB]
Unpacking libc6:amd64 (2.41) ...
Setting up libc6:amd64 (2.41) ...
0 upgraded, 2 newly installed, 0 to remove and 0 not upgraded.
Get:1 http://m.example/debian trixie/main amd64 a amd64 1 [1 B]
Unpacking a (1) ...
Setting up a (1) ...
pandastack-step 1
pandastack-step 2
pandastack-step 3
pandastack-step x`, "\n") {
		p.line(line)
	}
	want := "reading package lists,downloading packages,installing packages,downloading packages,installing packages,one,step 2"
	if got := strings.Join(said, ","); got != want {
		t.Errorf("said %s, want %s", got, want)
	}
}
