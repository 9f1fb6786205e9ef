package client_test

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/client"
)

// TestMain runs the examples only where a server is named: they create real
// sandboxes. The test of cmd/pandastack starts one and runs them.
func TestMain(m *testing.M) {
	flag.Parse()
	if os.Getenv(api.EnvBaseURL) == "" {
		fmt.Fprintln(os.Stderr, "SKIP: the examples need a running server; name it with PANDASTACK_API and PANDASTACK_API_KEY")
		if err := flag.Set("test.skip", "^Example"); err != nil {
			log.Panic(err)
		}
	}
	os.Exit(m.Run())
}

// connect finds the server as the command line does. The examples panic rather
// than exit when something fails, so that what they have deferred deletes their
// sandboxes in any case.
func connect() *client.Client {
	home, _ := os.UserHomeDir()
	options, err := client.Discover(os.Getenv, filepath.Join(home, ".config", "pandastack", "config.json"))
	if err != nil {
		log.Panic(err)
	}
	c, err := client.New(options)
	if err != nil {
		log.Panic(err)
	}
	return c
}

func Example() {
	ctx := context.Background()
	c := connect()
	sb, err := c.Sandboxes.Create(ctx, api.CreateSandbox{Template: "base"})
	if err != nil {
		log.Panic(err)
	}
	defer sb.Delete(ctx)

	result, err := sb.Exec(ctx, "python3", "-c", "print(6*7)")
	if err != nil {
		log.Panic(err)
	}
	fmt.Print(result.Stdout)
	// Output: 42
}

func ExampleSandbox_Command() {
	ctx := context.Background()
	sb, err := connect().Sandboxes.Create(ctx, api.CreateSandbox{})
	if err != nil {
		log.Panic(err)
	}
	defer sb.Delete(ctx)

	cmd := sb.Command(ctx, "tr", "a-z", "A-Z")
	cmd.Stdin = strings.NewReader("streamed in and out")
	cmd.Stdout = os.Stdout
	if err := cmd.Run(); err != nil {
		log.Panic(err)
	}
	// Output: STREAMED IN AND OUT
}

func ExampleCmd_StdoutPipe() {
	ctx := context.Background()
	sb, err := connect().Sandboxes.Create(ctx, api.CreateSandbox{})
	if err != nil {
		log.Panic(err)
	}
	defer sb.Delete(ctx)

	cmd := sb.ShellCommand(ctx, "while read line; do echo heard $line; done")
	in, err := cmd.StdinPipe()
	if err != nil {
		log.Panic(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		log.Panic(err)
	}
	if err := cmd.Start(); err != nil {
		log.Panic(err)
	}
	lines := bufio.NewScanner(out)
	for _, word := range []string{"one", "two"} {
		fmt.Fprintln(in, word)
		lines.Scan() // the answer, before the next word is said
		fmt.Println(lines.Text())
	}
	in.Close()
	if err := cmd.Wait(); err != nil {
		log.Panic(err)
	}
	// Output:
	// heard one
	// heard two
}

func ExampleSandbox_RunCode() {
	ctx := context.Background()
	sb, err := connect().Sandboxes.Create(ctx, api.CreateSandbox{})
	if err != nil {
		log.Panic(err)
	}
	defer sb.Delete(ctx)

	if _, err := sb.RunCode(ctx, "x = 40", client.CodeOptions{}); err != nil {
		log.Panic(err)
	}
	run, err := sb.RunCode(ctx, "x + 2", client.CodeOptions{}) // x is still there
	if err != nil {
		log.Panic(err)
	}
	fmt.Println(run.Text)
	run, err = sb.RunCode(ctx, "x / 0", client.CodeOptions{})
	if err != nil {
		log.Panic(err)
	}
	fmt.Println(run.Error.Name) // the code's own error is none of the call
	// Output:
	// 42
	// ZeroDivisionError
}

func ExampleSandbox_ExecStream() {
	ctx := context.Background()
	sb, err := connect().Sandboxes.Create(ctx, api.CreateSandbox{})
	if err != nil {
		log.Panic(err)
	}
	defer sb.Delete(ctx)

	for event, err := range sb.ExecStream(ctx, api.Exec{Cmd: client.Line("echo building; exit 2")}) {
		if err != nil {
			log.Panic(err)
		}
		switch event.Type {
		case "stdout":
			fmt.Print(string(event.Data))
		case "exit":
			fmt.Println("exit code", event.Result.ExitCode)
		}
	}
	// Output:
	// building
	// exit code 2
}

func ExampleTerminal() {
	ctx := context.Background()
	sb, err := connect().Sandboxes.Create(ctx, api.CreateSandbox{})
	if err != nil {
		log.Panic(err)
	}
	defer sb.Delete(ctx)

	term, err := sb.Terminal(ctx, client.TerminalOptions{Line: "stty size; read answer; echo you said $answer", Rows: 30, Cols: 100})
	if err != nil {
		log.Panic(err)
	}
	defer term.Close()
	if _, err := term.Write([]byte("yes\n")); err != nil {
		log.Panic(err)
	}
	shown, err := io.ReadAll(term)
	if err != nil {
		log.Panic(err)
	}
	fmt.Println(strings.Contains(string(shown), "30 100"), strings.Contains(string(shown), "you said yes"))
	// Output: true true
}

func ExampleFiles_Watch() {
	ctx := context.Background()
	sb, err := connect().Sandboxes.Create(ctx, api.CreateSandbox{})
	if err != nil {
		log.Panic(err)
	}
	defer sb.Delete(ctx)

	watcher, err := sb.Watch(ctx, ".", false)
	if err != nil {
		log.Panic(err)
	}
	defer watcher.Close()
	if err := sb.WriteFile(ctx, "new.txt", nil); err != nil {
		log.Panic(err)
	}
	for event, err := range watcher.All() {
		if err != nil {
			log.Panic(err)
		}
		if event.Type == api.FileCreate && strings.HasSuffix(event.Path, "/new.txt") {
			fmt.Println("it is there")
			break
		}
	}
	// Output: it is there
}

func ExampleGit() {
	ctx := context.Background()
	sb, err := connect().Sandboxes.Create(ctx, api.CreateSandbox{})
	if err != nil {
		log.Panic(err)
	}
	defer sb.Delete(ctx)
	if _, err := sb.Shell(ctx, "git init -q work && echo hello > work/README"); err != nil {
		log.Panic(err)
	}

	repo := api.GitRepo{Path: "/home/user/work"}
	if _, err := sb.Git().Add(ctx, api.GitAdd{GitRepo: repo}); err != nil {
		log.Panic(err)
	}
	commit, err := sb.Git().Commit(ctx, api.GitCommitRequest{GitRepo: repo, Message: "say hello", Name: "Ada", Email: "ada@example.com"})
	if err != nil {
		log.Panic(err)
	}
	status, err := sb.Git().Status(ctx, repo)
	if err != nil {
		log.Panic(err)
	}
	fmt.Println(commit.Subject, status.Clean)
	// Output: say hello true
}

func ExampleExitError() {
	ctx := context.Background()
	sb, err := connect().Sandboxes.Create(ctx, api.CreateSandbox{})
	if err != nil {
		log.Panic(err)
	}
	defer sb.Delete(ctx)

	_, err = sb.ShellCommand(ctx, "echo it went wrong >&2; exit 3").Output()
	var exit *client.ExitError
	if errors.As(err, &exit) {
		fmt.Printf("%d: %s", exit.ExitCode(), exit.Stderr)
	}
	// Output: 3: it went wrong
}

func ExampleFiles() {
	ctx := context.Background()
	sb, err := connect().Sandboxes.Create(ctx, api.CreateSandbox{})
	if err != nil {
		log.Panic(err)
	}
	defer sb.Delete(ctx)

	if err := sb.WriteFile(ctx, "notes/today.txt", []byte("hello\n")); err != nil {
		log.Panic(err)
	}
	entries, err := sb.ReadDir(ctx, "notes")
	if err != nil {
		log.Panic(err)
	}
	for _, e := range entries {
		fmt.Println(e.Name, e.Type, e.Size)
	}
	_, err = sb.ReadFile(ctx, "notes/yesterday.txt")
	fmt.Println(api.CodeOf(err))
	// Output:
	// today.txt file 6
	// file.not_found
}

func ExampleSandboxes_List() {
	ctx := context.Background()
	c := connect()
	sb, err := c.Sandboxes.Create(ctx, api.CreateSandbox{Metadata: map[string]string{"example": "list"}})
	if err != nil {
		log.Panic(err)
	}
	defer sb.Delete(ctx)

	for sb, err := range c.Sandboxes.List(ctx, client.ListOptions{Metadata: map[string]string{"example": "list"}}) {
		if err != nil {
			log.Panic(err)
		}
		fmt.Println(sb.Template, sb.Status)
	}
	// Output: base running
}

func ExampleSandbox_Fork() {
	ctx := context.Background()
	parent, err := connect().Sandboxes.Create(ctx, api.CreateSandbox{})
	if err != nil {
		log.Panic(err)
	}
	defer parent.Delete(ctx)
	if err := parent.WriteFile(ctx, "plan.txt", []byte("the plan")); err != nil {
		log.Panic(err)
	}

	child, err := parent.Fork(ctx, api.Fork{Metadata: map[string]string{"attempt": "1"}})
	if err != nil {
		log.Panic(err)
	}
	defer child.Delete(ctx)
	if _, err := child.Shell(ctx, "echo ', changed' >> plan.txt"); err != nil {
		log.Panic(err)
	}
	for _, sb := range []*client.Sandbox{parent, child} {
		plan, err := sb.ReadFile(ctx, "plan.txt")
		if err != nil {
			log.Panic(err)
		}
		fmt.Println(strings.TrimSpace(string(plan)))
	}
	// Output:
	// the plan
	// the plan, changed
}

func ExampleSandbox_ForkTree() {
	ctx := context.Background()
	parent, err := connect().Sandboxes.Create(ctx, api.CreateSandbox{})
	if err != nil {
		log.Panic(err)
	}
	defer parent.Delete(ctx)

	tree, err := parent.ForkTree(ctx, 3, api.Fork{})
	if err != nil {
		log.Panic(err)
	}
	for _, child := range tree.Children {
		defer child.Delete(ctx)
	}
	best := tree.Children[0]
	kept, err := best.Promote(ctx, api.Promote{TreeID: tree.ID, CleanupSiblings: true})
	if err != nil {
		log.Panic(err)
	}
	fmt.Println("kept 1, deleted", len(kept.Deleted))
	// Output: kept 1, deleted 2
}

func ExampleSandbox_Restore() {
	ctx := context.Background()
	sb, err := connect().Sandboxes.Create(ctx, api.CreateSandbox{})
	if err != nil {
		log.Panic(err)
	}
	defer sb.Delete(ctx)
	if err := sb.WriteFile(ctx, "state.txt", []byte("good")); err != nil {
		log.Panic(err)
	}
	if _, err := sb.Checkpoint(ctx, "before"); err != nil {
		log.Panic(err)
	}
	if _, err := sb.Shell(ctx, "rm state.txt"); err != nil {
		log.Panic(err)
	}

	if err := sb.Restore(ctx, "before"); err != nil {
		log.Panic(err)
	}
	state, err := sb.ReadFile(ctx, "state.txt")
	if err != nil {
		log.Panic(err)
	}
	fmt.Println(string(state))
	// Output: good
}

func ExampleSandbox_Hibernate() {
	ctx := context.Background()
	sb, err := connect().Sandboxes.Create(ctx, api.CreateSandbox{Persistent: true, Idle: &api.IdlePolicy{TimeoutSeconds: 600}})
	if err != nil {
		log.Panic(err)
	}
	defer sb.Delete(ctx)
	if err := sb.Hibernate(ctx); err != nil {
		log.Panic(err)
	}
	fmt.Println(sb.Status)

	out, err := sb.Command(ctx, "echo", "awake again").Output() // wakes it
	if err != nil {
		log.Panic(err)
	}
	fmt.Print(string(out))
	// Output:
	// hibernated
	// awake again
}

func ExampleSnapshots() {
	ctx := context.Background()
	c := connect()
	sb, err := c.Sandboxes.Create(ctx, api.CreateSandbox{})
	if err != nil {
		log.Panic(err)
	}
	defer sb.Delete(ctx)
	if err := sb.WriteFile(ctx, "ready.txt", []byte("warm")); err != nil {
		log.Panic(err)
	}
	snapshot, err := sb.Snapshot(ctx, api.CreateSnapshot{})
	if err != nil {
		log.Panic(err)
	}
	defer c.Snapshots.Delete(ctx, snapshot.ID)
	if err := sb.Delete(ctx); err != nil { // the snapshot does not need it
		log.Panic(err)
	}

	again, err := c.Sandboxes.Create(ctx, api.CreateSandbox{FromSnapshot: snapshot.ID})
	if err != nil {
		log.Panic(err)
	}
	defer again.Delete(ctx)
	ready, err := again.ReadFile(ctx, "ready.txt")
	if err != nil {
		log.Panic(err)
	}
	fmt.Println(string(ready))
	// Output: warm
}
