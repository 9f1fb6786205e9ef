//go:build linux

package main

import (
	"crypto/sha256"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/client"
)

// gitServer starts a git server with a password inside a sandbox, with one
// repository of one commit, and gives its address.
func gitServer(t *testing.T, sb *client.Sandbox, secret string) string {
	t.Helper()
	program, err := os.ReadFile("testdata/gitserver.py")
	if err != nil {
		t.Fatal(err)
	}
	if err := sb.Files.WriteFile(t.Context(), "/tmp/gitserver.py", program); err != nil {
		t.Fatal(err)
	}
	sh(t, sb, `git config --global user.name Tester && git config --global user.email t@example.com
git config --global init.defaultBranch main && git config --global credential.helper store
git init -q --bare /workspace/srv/p.git && git -C /workspace/srv/p.git config http.receivepack true
git init -q /tmp/seed && cd /tmp/seed && echo hello > README && git add . && git commit -q -m 'first commit' && git push -q /workspace/srv/p.git main`)
	line := fmt.Sprintf("exec python3 /tmp/gitserver.py 8418 /workspace/srv %x", sha256.Sum256([]byte("tester:"+secret)))
	if _, err := sb.ExecWith(t.Context(), api.Exec{Cmd: client.Line(line), Background: true}); err != nil {
		t.Fatal(err)
	}
	sh(t, sb, "for i in $(seq 200); do curl -s -o /dev/null http://127.0.0.1:8418/ && exit; sleep 0.1; done; exit 1")
	return "http://127.0.0.1:8418/p.git"
}

// TestGit works on a repository as an agent does, against a server that wants a
// password.
func TestGit(t *testing.T) {
	t.Parallel()
	sb := create(t, sharedServer(t), api.CreateSandbox{})
	ctx, g := t.Context(), sb.Git()
	// Half of it is put together in the sandbox, so that looking for it does not
	// find the looking.
	const half = "s3cr3t-Zq81"
	secret := half + "-token"
	url := gitServer(t, sb, secret)
	auth := &api.GitAuth{Username: "tester", Password: secret, Host: "127.0.0.1:8418"}
	ok := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	wrong := func(err error, code api.Code) {
		t.Helper()
		if api.CodeOf(err) != code || err == nil {
			t.Errorf("%v, want %s", err, code)
		}
	}
	_, err := g.Clone(ctx, api.GitClone{URL: url, GitRepo: api.GitRepo{Path: "/workspace/no"}})
	wrong(err, api.CodeGitAuth)
	_, err = g.Clone(ctx, api.GitClone{URL: url, GitRepo: api.GitRepo{Path: "/workspace/no"}, Auth: &api.GitAuth{Username: "tester", Password: "wrong"}})
	wrong(err, api.CodeGitAuth)
	_, err = g.Clone(ctx, api.GitClone{URL: "http://127.0.0.1:8418/none.git", GitRepo: api.GitRepo{Path: "/workspace/no"}, Auth: auth})
	wrong(err, api.CodeGitNotFound)
	_, err = g.Clone(ctx, api.GitClone{URL: "http://127.0.0.1:9/p.git", GitRepo: api.GitRepo{Path: "/workspace/no"}})
	wrong(err, api.CodeGitUnreachable)
	_, err = g.Clone(ctx, api.GitClone{URL: "http://tester:x@127.0.0.1:8418/p.git"})
	wrong(err, api.CodeInvalidRequest)
	_, err = g.Status(ctx, api.GitRepo{Path: "/tmp"})
	wrong(err, api.CodeGitNoRepository)

	// The watcher looks at all other processes during the slow clone.
	stop := watchProcesses(t, sb, half, "-token")
	status, err := g.Clone(ctx, api.GitClone{URL: url, Branch: "main", Depth: 1, GitRepo: api.GitRepo{Path: "/workspace/p"}, Auth: auth})
	if ok(err); status.Branch != "main" || !status.Clean || status.Upstream != "origin/main" || len(status.Commit) != 40 {
		t.Errorf("%+v", status)
	}
	repo := api.GitRepo{Path: "/workspace/p"}
	ok(sb.Files.WriteFile(ctx, "/workspace/p/new file", []byte("new\n")))
	ok(sb.Files.WriteFile(ctx, "/workspace/p/README", []byte("changed\n")))
	status, err = g.Status(ctx, repo)
	if ok(err); status.Clean || fmt.Sprint(status.Files) != "[{README  unmodified modified} {new file  untracked untracked}]" {
		t.Errorf("%+v", status.Files)
	}
	diff, err := g.Diff(ctx, api.GitDiff{GitRepo: repo})
	if ok(err); !strings.Contains(diff.Diff, "-hello\n+changed\n") {
		t.Errorf("%q", diff.Diff)
	}
	_, err = g.Commit(ctx, api.GitCommitRequest{GitRepo: repo, Message: "nothing"})
	wrong(err, api.CodeGitNothing)
	status, err = g.Add(ctx, api.GitAdd{GitRepo: repo})
	if ok(err); fmt.Sprint(status.Files) != "[{README  modified unmodified} {new file  added unmodified}]" {
		t.Errorf("%+v", status.Files)
	}
	commit, err := g.Commit(ctx, api.GitCommitRequest{GitRepo: repo, Message: "second\n\nwith a body", Name: "Ann", Email: "ann@example.com"})
	if ok(err); commit.Subject != "second" || commit.Body != "with a body" || commit.Author != "Ann" || len(commit.Parents) != 1 {
		t.Errorf("%+v", commit)
	}
	status, err = g.Push(ctx, api.GitSync{GitRepo: repo, Auth: auth})
	if ok(err); status.Ahead != 0 {
		t.Errorf("%+v", status)
	}
	_, err = g.Push(ctx, api.GitSync{GitRepo: repo, Auth: &api.GitAuth{Password: secret, Host: "elsewhere"}})
	wrong(err, api.CodeGitAuth)
	branches, err := g.Branches(ctx, api.GitBranchRequest{GitRepo: repo, Create: "topic"})
	if ok(err); len(branches.Branches) < 3 || branches.Branches[0].Name != "main" || !branches.Branches[0].Current || branches.Branches[1].Name != "topic" {
		t.Errorf("%+v", branches)
	}
	status, err = g.Checkout(ctx, api.GitCheckout{GitRepo: repo, Ref: "topic"})
	if ok(err); status.Branch != "topic" {
		t.Errorf("%+v", status)
	}
	_, err = g.Checkout(ctx, api.GitCheckout{GitRepo: repo, Ref: "none"})
	wrong(err, api.CodeGitNotFound)
	_, err = g.Branches(ctx, api.GitBranchRequest{GitRepo: repo, Create: "topic"})
	wrong(err, api.CodeGitConflict)
	_, err = g.Checkout(ctx, api.GitCheckout{GitRepo: repo, Ref: "main"})
	ok(err)
	sh(t, sb, "cd /tmp/seed && git pull -q /workspace/srv/p.git main && echo more > more && git add . && git commit -q -m third && git push -q /workspace/srv/p.git main")
	_, err = g.Pull(ctx, api.GitSync{GitRepo: repo, Auth: auth})
	ok(err)
	log, err := g.Log(ctx, api.GitLogRequest{GitRepo: repo, Limit: 2})
	if ok(err); len(log.Commits) != 2 || log.Commits[0].Subject != "third" || log.Commits[1].ID != commit.ID {
		t.Errorf("%+v", log)
	}
	sh(t, sb, "cd /tmp/seed && echo theirs > more && git commit -qam theirs && git push -q /workspace/srv/p.git main; cd /workspace/p && echo mine > more && git commit -qam mine")
	_, err = g.Push(ctx, api.GitSync{GitRepo: repo, Auth: auth})
	wrong(err, api.CodeGitConflict)
	_, err = g.Pull(ctx, api.GitSync{GitRepo: repo, Auth: auth})
	wrong(err, api.CodeGitConflict)
	status, err = g.Status(ctx, repo)
	if ok(err); len(status.Files) != 1 || status.Files[0].Staged != "conflict" {
		t.Errorf("%+v", status)
	}

	if got := stop(); !strings.HasPrefix(got, "clean ") || strings.HasPrefix(got, "clean 0 ") {
		t.Errorf("the secret was seen: %s", got)
	}
	// The disk, as root: first what is not there, then what is.
	search := "sudo python3 -c 'import sys; print(sys.argv[1] + sys.argv[2], end=\"\")' " + half + ` -token > /dev/shm/needle
sudo grep -rlaF -f /dev/shm/needle / --exclude-dir=proc --exclude-dir=sys --exclude-dir=dev 2>/dev/null; rm -f /dev/shm/needle`
	if got := sh(t, sb, search); got != "" {
		t.Errorf("the secret is on the disk: %s", got)
	}
	stop = watchProcesses(t, sb, half, "-token")
	sh(t, sb, "X="+secret+" sleep 1")
	if got := stop(); strings.HasPrefix(got, "clean ") {
		t.Error("the watcher does not see a secret that is there")
	}
	if got := sh(t, sb, search); got != "/tmp/watcher.result" {
		t.Errorf("the search does not find a secret that is there, only %q", got)
	}
}

// watchProcesses looks for a secret, given in two halves, until it is stopped,
// and then says what it saw.
func watchProcesses(t *testing.T, sb *client.Sandbox, half, other string) (stop func() string) {
	t.Helper()
	sh(t, sb, "sudo rm -f /tmp/watcher.stop /tmp/watcher.result")
	in := api.Exec{Cmd: client.Argv("sudo", "python3", "-c", watcherProgram, half, other), Background: true}
	if _, err := sb.ExecWith(t.Context(), in); err != nil {
		t.Fatal(err)
	}
	return func() string {
		return sh(t, sb, "touch /tmp/watcher.stop; for i in $(seq 300); do [ -s /tmp/watcher.result ] && exec cat /tmp/watcher.result; sleep 0.1; done")
	}
}

// watcherProgram reads the arguments and the environment of every process again
// and again. It is told the secret in two halves, and looks for it as a whole.
const watcherProgram = `
import glob, os, sys, time
needle, me, seen, git, rounds = (sys.argv[1] + sys.argv[2]).encode(), str(os.getpid()), [], 0, 0
while not os.path.exists("/tmp/watcher.stop"):
    rounds += 1
    for d in glob.glob("/proc/[0-9]*"):
        for name in ("cmdline", "environ"):
            try:
                data = open(d + "/" + name, "rb").read()
            except OSError:
                continue
            git += b"git-remote-http" in data or b"remote-http" in data
            if needle in data:
                seen.append((d, name, data[:200]))
    time.sleep(0.01)
text = repr(seen[:3]) if seen else "clean %d sights of git at work in %d rounds" % (git, rounds)
open("/tmp/watcher.result", "w").write(text)
`
