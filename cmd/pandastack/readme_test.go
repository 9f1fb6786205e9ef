//go:build linux

package main

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/pandastack/pandastack/api"
)

// TestReadmeTour runs the tour of the README.
func TestReadmeTour(t *testing.T) {
	t.Parallel()
	runTour(t, "../../README.md")
}

// runTour runs the tour of a document as it is printed there and compares what
// it says.
func runTour(t *testing.T, document string) {
	for _, tool := range []string{"curl", "jq"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Fatalf("the tour uses %s: %v", tool, err)
		}
	}
	s := sharedServer(t)
	commands, want := tour(t, document)
	// One shell for all, so that variables last; a mark after each command.
	dir := t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(self, filepath.Join(dir, "pandastack")); err != nil {
		t.Fatal(err)
	}
	script := fmt.Sprintf("cd %[1]s\nexport PATH=%[1]s:$PATH API=%[2]s KEY=%[3]s %[4]s=%[2]s %[5]s=%[3]s\n",
		dir, s.addr, s.key, api.EnvBaseURL, api.EnvAPIKey)
	for _, c := range commands {
		script += c + "\necho ==end==\n"
	}
	out, err := exec.Command("bash", "-c", script).CombinedOutput()
	if err != nil {
		t.Errorf("the tour ends with %v", err)
	}
	got := strings.Split(string(out), "==end==\n")
	if len(got) != len(commands)+1 {
		t.Fatalf("the tour stopped early:\n%s", out)
	}
	for i, c := range commands {
		pattern := "(?s)^" + strings.ReplaceAll(regexp.QuoteMeta(want[i]), `\.\.\.`, ".*") + "$"
		if !regexp.MustCompile(pattern).MatchString(strings.TrimSuffix(got[i], "\n")) {
			t.Errorf("$ %s\nprints\n%s\n%s says\n%s", c, got[i], document, want[i])
		}
	}
}

// tour reads the block below the mark: commands after "$ ", which go on after
// "> ", and what each prints.
func tour(t *testing.T, document string) (commands, outputs []string) {
	f, err := os.Open(document)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	marked, inside := false, false
	for lines := bufio.NewScanner(f); lines.Scan(); {
		line := lines.Text()
		switch {
		case strings.HasPrefix(line, "<!-- tour:"):
			marked = true
		case marked && strings.HasPrefix(line, "```"):
			if inside {
				return commands, outputs
			}
			inside = true
		case inside && strings.HasPrefix(line, "$ "):
			commands, outputs = append(commands, line[2:]), append(outputs, "")
		case inside && (line == ">" || strings.HasPrefix(line, "> ")):
			commands[len(commands)-1] += "\n" + strings.TrimPrefix(line[1:], " ")
		case inside:
			n := len(outputs) - 1
			if outputs[n] != "" {
				outputs[n] += "\n"
			}
			outputs[n] += line
		}
	}
	t.Fatalf("%s has no tour", document)
	return nil, nil
}
