//go:build linux

package main

import (
	"bufio"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// TestReadmeTour runs the tour of the README as it is printed there and compares
// what it says.
func TestReadmeTour(t *testing.T) {
	t.Parallel()
	for _, tool := range []string{"curl", "jq"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Fatalf("the tour uses %s: %v", tool, err)
		}
	}
	s := sharedServer(t)
	commands, want := tour(t)
	// One shell for all, so that variables last; a mark after each command.
	script := "cd " + t.TempDir() + "\nexport API=" + s.addr + " KEY=" + s.key + "\n"
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
		pattern := "^" + strings.ReplaceAll(regexp.QuoteMeta(want[i]), `\.\.\.`, ".*") + "$"
		if !regexp.MustCompile(pattern).MatchString(strings.TrimSuffix(got[i], "\n")) {
			t.Errorf("$ %s\nprints\n%s\nthe README says\n%s", c, got[i], want[i])
		}
	}
}

// tour reads the block below the mark: commands after "$ ", and what each prints.
func tour(t *testing.T) (commands, outputs []string) {
	f, err := os.Open("../../README.md")
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
		case inside:
			n := len(outputs) - 1
			if outputs[n] != "" {
				outputs[n] += "\n"
			}
			outputs[n] += line
		}
	}
	t.Fatal("the README has no tour")
	return nil, nil
}
