package control

import (
	"fmt"
	"testing"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/guest"
)

func TestParseStatus(t *testing.T) {
	t.Parallel()
	const text = "# branch.oid abc\x00# branch.head topic\x00# branch.upstream origin/topic\x00# branch.ab +2 -3\x00" +
		"1 .M N... 100644 100644 100644 a b with space\x00" +
		"2 R. N... 100644 100644 100644 a b R100 new\x00old\x00" +
		"u UU N... 100644 100644 100644 100644 a b c both\x00? un\xfftracked\x00! ignored\x001 short\x00"
	got := parseStatus(text, false)
	want := "{topic abc origin/topic 2 3 false [{with space  unmodified modified} {new old renamed unmodified} {both  conflict conflict} {un\uFFFDtracked  untracked untracked}] false}"
	if s := fmt.Sprint(got); s != want {
		t.Errorf("%s\nwant\n%s", s, want)
	}
	if got := parseStatus("# branch.oid (initial)\x00# branch.head (detached)\x00", false); !got.Clean || got.Commit != "" || got.Branch != "" {
		t.Errorf("%+v", got)
	}
}

func FuzzGitOutput(f *testing.F) {
	f.Add("# branch.ab +1 -2\x001 .M N... 1 1 1 a b c\x002 R. x", true)
	f.Add("a\x1fb c\x1fd\x1fe\x1f12\x1fs\x1fbody\x00", false)
	f.Add("refs/heads/main\x1fabc\x1f*\x1f\x1f\n", false)
	f.Fuzz(func(_ *testing.T, text string, cut bool) {
		parseStatus(text, cut)
		parseLog(text, cut)
		parseBranches(text)
		_ = gitError("x", guest.GitOutput{Stderr: []byte(text), Stdout: []byte(text)})
	})
}

func TestGitErrors(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]api.Code{
		"fatal: Authentication failed for 'https://x/'\n":                           api.CodeGitAuth,
		"fatal: could not read Username for 'https://x': terminal prompts disabled": api.CodeGitAuth,
		"remote: Repository not found.\nfatal: repository 'https://x/' not found\n": api.CodeGitNotFound,
		"fatal: not a git repository (or any of the parent directories): .git":      api.CodeGitNoRepository,
		" ! [rejected]        main -> main (fetch first)":                           api.CodeGitConflict,
		"fatal: unable to access 'http://x/': Could not resolve host: x":            api.CodeGitUnreachable,
		"something else": api.CodeGitFailed,
	} {
		if err := gitError("x", guest.GitOutput{Exit: 128, Stderr: []byte(text)}); api.CodeOf(err) != want {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

func TestGitAddresses(t *testing.T) {
	t.Parallel()
	for address, ok := range map[string]bool{
		"https://example.com/a.git": true, "git@example.com:a.git": true, "/srv/a.git": true, "ssh://git@example.com/a": true,
		"https://token@example.com/a": false, "https://u:p@example.com/a": false, "ext::sh -c id": false, "--upload-pack=id": false, "ssh://u:p@x/a": false,
	} {
		if err := checkGitURL(address); (err == nil) != ok {
			t.Errorf("%s: %v", address, err)
		}
	}
	if _, err := gitSecret(&api.GitAuth{Password: "p", Host: "other"}, "https://example.com/a"); api.CodeOf(err) != api.CodeGitAuth {
		t.Error(err)
	}
	if _, err := gitSecret(&api.GitAuth{Password: "p\nhost=evil"}, "https://example.com/a"); api.CodeOf(err) != api.CodeInvalidRequest {
		t.Error(err)
	}
	if _, err := gitSecret(&api.GitAuth{Password: "p"}, "git@example.com:a"); api.CodeOf(err) != api.CodeInvalidRequest {
		t.Error(err)
	}
}
