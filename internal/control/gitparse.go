package control

import (
	"strconv"
	"strings"
	"time"

	"github.com/pandastack/pandastack/api"
)

// Formats of git's output: fields end with a unit separator, which no field of
// git's own has, and records with NUL or a line.
const (
	fieldEnd     = "\x1f"
	logFormat    = "%H%x1f%P%x1f%an%x1f%ae%x1f%at%x1f%s%x1f%b"
	branchFormat = "%(refname)%1f%(objectname)%1f%(HEAD)%1f%(upstream:short)%1f%(symref)"
)

// maxGitFiles bounds the files of a status.
const maxGitFiles = 10_000

// valid makes text of a sandbox fit for JSON.
func valid(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

var gitStates = map[byte]string{'.': "unmodified", 'M': "modified", 'A': "added", 'D': "deleted", 'R': "renamed", 'C': "copied", 'T': "type_changed", 'U': "conflict"}

func gitState(c byte) string {
	if s, ok := gitStates[c]; ok {
		return s
	}
	return "modified"
}

// parseStatus reads `git status --porcelain=v2 --branch -z`. What it does not
// know it leaves out.
func parseStatus(text string, cut bool) api.GitStatus {
	out := api.GitStatus{Files: []api.GitFile{}, Truncated: cut}
	records := strings.Split(text, "\x00")
	if cut && len(records) > 0 {
		records = records[:len(records)-1] // half a record
	}
	for i := 0; i < len(records); i++ {
		rec := records[i]
		if header, ok := strings.CutPrefix(rec, "# "); ok {
			statusHeader(&out, header)
			continue
		}
		file, from, ok := statusFile(rec)
		if from && i+1 < len(records) {
			i++
			file.From = valid(records[i])
		}
		if !ok {
			continue
		}
		if len(out.Files) == maxGitFiles {
			out.Truncated = true
			break
		}
		out.Files = append(out.Files, file)
	}
	out.Clean = len(out.Files) == 0 && !out.Truncated
	return out
}

func statusHeader(out *api.GitStatus, header string) {
	key, value, _ := strings.Cut(header, " ")
	value = valid(value)
	switch key {
	case "branch.oid":
		if value != "(initial)" {
			out.Commit = value
		}
	case "branch.head":
		if value != "(detached)" {
			out.Branch = value
		}
	case "branch.upstream":
		out.Upstream = value
	case "branch.ab":
		ahead, behind, _ := strings.Cut(value, " ")
		out.Ahead, out.Behind = count(ahead), count(behind)
	}
}

// count reads +n or -n; what is no number is 0.
func count(s string) int {
	n, err := strconv.Atoi(strings.TrimLeft(s, "+-"))
	if err != nil {
		return 0
	}
	return n
}

// statusFile reads one entry, and says whether the next record is where the
// file came from.
func statusFile(rec string) (f api.GitFile, from, ok bool) {
	fields := map[byte]int{'1': 9, '2': 10, 'u': 11}
	if rec == "" {
		return f, false, false
	}
	if path, ok := strings.CutPrefix(rec, "? "); ok {
		return api.GitFile{Path: valid(path), Staged: "untracked", Worktree: "untracked"}, false, true
	}
	n, known := fields[rec[0]]
	parts := strings.SplitN(rec, " ", max(n, 1))
	if !known || len(parts) != n || len(parts[1]) != 2 {
		return f, rec[0] == '2', false
	}
	f = api.GitFile{Path: valid(parts[n-1]), Staged: gitState(parts[1][0]), Worktree: gitState(parts[1][1])}
	if rec[0] == 'u' {
		f.Staged, f.Worktree = "conflict", "conflict"
	}
	return f, rec[0] == '2', true
}

// parseLog reads `git log -z` in logFormat.
func parseLog(text string, cut bool) api.GitLog {
	out := api.GitLog{Commits: []api.GitCommit{}, Truncated: cut}
	records := strings.Split(text, "\x00")
	if cut {
		records = records[:len(records)-1]
	}
	for _, rec := range records {
		f := strings.SplitN(rec, fieldEnd, 7)
		if len(f) != 7 {
			continue
		}
		at, err := strconv.ParseInt(f[4], 10, 64)
		if err != nil || at < 0 || at > 253402300799 { // the last second that JSON can say
			at = 0
		}
		out.Commits = append(out.Commits, api.GitCommit{
			ID: valid(f[0]), Parents: strings.Fields(valid(f[1])), Author: valid(f[2]), Email: valid(f[3]),
			Time: time.Unix(at, 0).UTC(), Subject: valid(f[5]), Body: valid(strings.TrimSpace(f[6])),
		})
	}
	return out
}

// parseBranches reads `git for-each-ref` in branchFormat. What only points to
// another branch, as the HEAD of a remote does, is none.
func parseBranches(text string) api.GitBranches {
	out := api.GitBranches{Branches: []api.GitBranch{}}
	for line := range strings.Lines(text) {
		f := strings.Split(strings.TrimSuffix(line, "\n"), fieldEnd)
		if len(f) != 5 || f[4] != "" {
			continue
		}
		b := api.GitBranch{Commit: valid(f[1]), Current: f[2] == "*", Upstream: valid(f[3])}
		name, local := strings.CutPrefix(f[0], "refs/heads/")
		if !local {
			name, b.Remote = strings.TrimPrefix(f[0], "refs/remotes/"), true
		}
		b.Name = valid(name)
		out.Branches = append(out.Branches, b)
	}
	return out
}
