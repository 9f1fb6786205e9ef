package image

import (
	"bufio"
	"io/fs"
	"path"
	"slices"
	"strings"
)

// debianKeyring is where Debian and its descendants install the keys that
// Debian's archives are signed with.
const debianKeyring = "/usr/share/keyrings/debian-archive-keyring.gpg"

// sources gives the apt sources that a recipe is built from, one line each. None
// means that the tools' own default is right.
func (d *Debian) sources(override string, host fs.FS) []string {
	main, security := d.Mirror, d.SecurityMirror
	if override != "" {
		main, security = override, ""
	}
	if main == "" {
		return hostSources(host, d.Suite)
	}
	lines := []string{sourceLine(main, d.Suite)}
	if d.Suite != "sid" && d.Suite != "unstable" {
		lines = append(lines, sourceLine(main, d.Suite+"-updates"))
	}
	if security != "" {
		lines = append(lines, sourceLine(security, d.Suite+"-security"))
	}
	return lines
}

func sourceLine(uri, suite string) string {
	return "deb [signed-by=" + debianKeyring + "] " + uri + " " + suite + " main"
}

// hostSources translates the sources of a Debian host to another suite: a site
// that has its own archive wants it used. Hosts of other systems have none.
func hostSources(host fs.FS, suite string) []string {
	codename := debianCodename(host)
	if codename == "" {
		return nil
	}
	var lines []string
	main := false
	for _, e := range aptEntries(host) {
		pocket, ok := strings.CutPrefix(e.suite, codename)
		if !ok || !slices.Contains([]string{"", "-updates", "-security"}, pocket) {
			continue
		}
		if !mirrorPattern().MatchString(e.uri) || !slices.Contains(e.components, "main") {
			continue
		}
		main = main || pocket == ""
		if line := sourceLine(e.uri, suite+pocket); !slices.Contains(lines, line) {
			lines = append(lines, line)
		}
	}
	if !main {
		return nil
	}
	return lines
}

func debianCodename(host fs.FS) string {
	b, err := fs.ReadFile(host, "etc/os-release")
	if err != nil {
		return ""
	}
	values := make(map[string]string)
	for line := range strings.SplitSeq(string(b), "\n") {
		if k, v, ok := strings.Cut(line, "="); ok {
			values[k] = strings.Trim(v, `"'`)
		}
	}
	if values["ID"] != "debian" {
		return ""
	}
	return values["VERSION_CODENAME"]
}

// aptEntry is one archive, suite and its components.
type aptEntry struct {
	uri, suite string
	components []string
}

func aptEntries(host fs.FS) []aptEntry {
	var out []aptEntry
	files, _ := fs.Glob(host, "etc/apt/sources.list.d/*")
	for _, name := range append([]string{"etc/apt/sources.list"}, files...) {
		b, err := fs.ReadFile(host, name)
		if err != nil {
			continue // a file that is not there has no entries
		}
		switch path.Ext(name) {
		case ".list":
			out = append(out, parseList(string(b))...)
		case ".sources":
			out = append(out, parseDeb822(string(b))...)
		}
	}
	return out
}

// parseList reads the format of one line per source.
func parseList(text string) []aptEntry {
	var out []aptEntry
	for line := range strings.SplitSeq(text, "\n") {
		line, _, _ = strings.Cut(line, "#")
		rest, ok := strings.CutPrefix(strings.TrimSpace(line), "deb ")
		if !ok {
			continue
		}
		rest = strings.TrimSpace(rest)
		if strings.HasPrefix(rest, "[") {
			_, rest, _ = strings.Cut(rest, "]")
		}
		if f := strings.Fields(rest); len(f) >= 3 {
			out = append(out, aptEntry{f[0], f[1], f[2:]})
		}
	}
	return out
}

// parseDeb822 reads the format of stanzas.
func parseDeb822(text string) []aptEntry {
	var out []aptEntry
	stanza := make(map[string]string)
	flush := func() {
		if slices.Contains(strings.Fields(stanza["types"]), "deb") && stanza["enabled"] != "no" {
			for _, uri := range strings.Fields(stanza["uris"]) {
				for _, suite := range strings.Fields(stanza["suites"]) {
					out = append(out, aptEntry{uri, suite, strings.Fields(stanza["components"])})
				}
			}
		}
		clear(stanza)
	}
	last := ""
	sc := bufio.NewScanner(strings.NewReader(text))
	for sc.Scan() {
		line := sc.Text()
		switch {
		case strings.HasPrefix(line, "#"):
		case strings.TrimSpace(line) == "":
			flush()
		case line[0] == ' ' || line[0] == '\t':
			stanza[last] += " " + strings.TrimSpace(line)
		default:
			k, v, _ := strings.Cut(line, ":")
			last = strings.ToLower(strings.TrimSpace(k))
			stanza[last] = strings.TrimSpace(v)
		}
	}
	flush()
	return out
}
