package client_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
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
			log.Fatal(err)
		}
	}
	os.Exit(m.Run())
}

// connect finds the server as the command line does.
func connect() *client.Client {
	home, _ := os.UserHomeDir()
	options, err := client.Discover(os.Getenv, filepath.Join(home, ".config", "pandastack", "config.json"))
	if err != nil {
		log.Fatal(err)
	}
	c, err := client.New(options)
	if err != nil {
		log.Fatal(err)
	}
	return c
}

func Example() {
	ctx := context.Background()
	c := connect()
	sb, err := c.Sandboxes.Create(ctx, api.CreateSandbox{Template: "base"})
	if err != nil {
		log.Fatal(err)
	}
	defer sb.Delete(ctx)

	result, err := sb.Exec(ctx, "python3", "-c", "print(6*7)")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Print(result.Stdout)
	// Output: 42
}

func ExampleSandbox_Command() {
	ctx := context.Background()
	sb, err := connect().Sandboxes.Create(ctx, api.CreateSandbox{})
	if err != nil {
		log.Fatal(err)
	}
	defer sb.Delete(ctx)

	cmd := sb.Command(ctx, "tr", "a-z", "A-Z")
	cmd.Stdin = strings.NewReader("streamed in and out")
	cmd.Stdout = os.Stdout
	if err := cmd.Run(); err != nil {
		log.Fatal(err)
	}
	// Output: STREAMED IN AND OUT
}

func ExampleExitError() {
	ctx := context.Background()
	sb, err := connect().Sandboxes.Create(ctx, api.CreateSandbox{})
	if err != nil {
		log.Fatal(err)
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
		log.Fatal(err)
	}
	defer sb.Delete(ctx)

	if err := sb.WriteFile(ctx, "notes/today.txt", []byte("hello\n")); err != nil {
		log.Fatal(err)
	}
	entries, err := sb.ReadDir(ctx, "notes")
	if err != nil {
		log.Fatal(err)
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
		log.Fatal(err)
	}
	defer sb.Delete(ctx)

	for sb, err := range c.Sandboxes.List(ctx, client.ListOptions{Metadata: map[string]string{"example": "list"}}) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(sb.Template, sb.Status)
	}
	// Output: base running
}

func ExampleSandbox_Fork() {
	ctx := context.Background()
	parent, err := connect().Sandboxes.Create(ctx, api.CreateSandbox{})
	if err != nil {
		log.Fatal(err)
	}
	defer parent.Delete(ctx)
	if err := parent.WriteFile(ctx, "plan.txt", []byte("the plan")); err != nil {
		log.Fatal(err)
	}

	child, err := parent.Fork(ctx, api.Fork{Metadata: map[string]string{"attempt": "1"}})
	if err != nil {
		log.Fatal(err)
	}
	defer child.Delete(ctx)
	if _, err := child.Shell(ctx, "echo ', changed' >> plan.txt"); err != nil {
		log.Fatal(err)
	}
	for _, sb := range []*client.Sandbox{parent, child} {
		plan, err := sb.ReadFile(ctx, "plan.txt")
		if err != nil {
			log.Fatal(err)
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
		log.Fatal(err)
	}
	defer parent.Delete(ctx)

	tree, err := parent.ForkTree(ctx, 3, api.Fork{})
	if err != nil {
		log.Fatal(err)
	}
	best := tree.Children[0]
	defer best.Delete(ctx)
	kept, err := best.Promote(ctx, api.Promote{TreeID: tree.ID, CleanupSiblings: true})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("kept 1, deleted", len(kept.Deleted))
	// Output: kept 1, deleted 2
}

func ExampleSandbox_Restore() {
	ctx := context.Background()
	sb, err := connect().Sandboxes.Create(ctx, api.CreateSandbox{})
	if err != nil {
		log.Fatal(err)
	}
	defer sb.Delete(ctx)
	if err := sb.WriteFile(ctx, "state.txt", []byte("good")); err != nil {
		log.Fatal(err)
	}
	if _, err := sb.Checkpoint(ctx, "before"); err != nil {
		log.Fatal(err)
	}
	if _, err := sb.Shell(ctx, "rm state.txt"); err != nil {
		log.Fatal(err)
	}

	if err := sb.Restore(ctx, "before"); err != nil {
		log.Fatal(err)
	}
	state, err := sb.ReadFile(ctx, "state.txt")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(string(state))
	// Output: good
}

func ExampleSandbox_Hibernate() {
	ctx := context.Background()
	sb, err := connect().Sandboxes.Create(ctx, api.CreateSandbox{Persistent: true, Idle: &api.IdlePolicy{TimeoutSeconds: 600}})
	if err != nil {
		log.Fatal(err)
	}
	defer sb.Delete(ctx)
	if err := sb.Hibernate(ctx); err != nil {
		log.Fatal(err)
	}
	fmt.Println(sb.Status)

	out, err := sb.Command(ctx, "echo", "awake again").Output() // wakes it
	if err != nil {
		log.Fatal(err)
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
		log.Fatal(err)
	}
	if err := sb.WriteFile(ctx, "ready.txt", []byte("warm")); err != nil {
		log.Fatal(err)
	}
	snapshot, err := sb.Snapshot(ctx, api.CreateSnapshot{})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Snapshots.Delete(ctx, snapshot.ID)
	if err := sb.Delete(ctx); err != nil { // the snapshot does not need it
		log.Fatal(err)
	}

	again, err := c.Sandboxes.Create(ctx, api.CreateSandbox{FromSnapshot: snapshot.ID})
	if err != nil {
		log.Fatal(err)
	}
	defer again.Delete(ctx)
	ready, err := again.ReadFile(ctx, "ready.txt")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(string(ready))
	// Output: warm
}
