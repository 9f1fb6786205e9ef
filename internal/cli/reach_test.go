package cli_test

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
)

// reached says which command uses an operation of the API, or why none does.
var reached = map[string]string{
	"health": "status", "ready": "status", "version": "version",
	"prometheusMetrics": "- for scrapers, which speak HTTP",
	"me":                "auth whoami", "listTokens": "token list", "createToken": "token create", "revokeToken": "token revoke",
	"listTemplates": "template list", "getTemplate": "template get",

	"createSandbox": "sandbox create", "listSandboxes": "sandbox list", "getSandbox": "sandbox get", "deleteSandbox": "sandbox delete",
	"pauseSandbox": "sandbox pause", "resumeSandbox": "sandbox resume", "hibernateSandbox": "sandbox hibernate", "wakeSandbox": "sandbox wake",
	"getLifecycle": "sandbox lifecycle", "setLifecycle": "sandbox set-ttl", "getMetrics": "sandbox metrics", "getMetricsSeries": "sandbox metrics",
	"getLogs": "sandbox logs", "getEvents": "sandbox events",

	"createSnapshot": "sandbox snapshot", "snapshotSandbox": "- another name of createSnapshot",
	"listSandboxSnapshots": "snapshot list", "listSnapshots": "snapshot list", "importSnapshot": "snapshot import",
	"getSnapshot": "snapshot get", "deleteSnapshot": "snapshot delete", "exportSnapshot": "snapshot export",
	"forkSandbox": "sandbox fork", "forkTree": "sandbox fork", "promoteSandbox": "sandbox promote", "getTree": "sandbox tree",
	"createCheckpoint": "sandbox checkpoint", "listCheckpoints": "sandbox checkpoints", "deleteCheckpoint": "sandbox delete-checkpoint",
	"restoreSandbox": "sandbox restore",

	"exec": "sandbox process start", "execWebSocket": "sandbox exec", "execTerminal": "sandbox shell",
	"execStream":    "- for clients without WebSockets",
	"listProcesses": "sandbox process list", "attachProcess": "sandbox process attach", "killProcess": "sandbox process kill",
	"feedProcess": "sandbox process stdin", "closeStdin": "sandbox process close-stdin", "signalProcess": "sandbox process signal",

	"runCode": "sandbox run-code", "sandboxLanguages": "languages", "replLanguages": "languages",
	"createContext": "sandbox context create", "listContexts": "sandbox context list", "deleteContext": "sandbox context delete",
	"restartContext": "sandbox context restart", "interruptContext": "sandbox context interrupt",
	"repl": "- another form of runCode", "createSession": "- another name of createContext", "listSessions": "- another name of listContexts",
	"runInSession": "- another form of runCode", "deleteSession": "- another name of deleteContext",

	"readFile": "sandbox fs read", "writeFile": "sandbox fs write", "removeFile": "sandbox fs rm", "statFile": "sandbox fs stat",
	"listDir": "sandbox fs ls", "makeDir": "sandbox fs mkdir", "putDir": "- another method of makeDir", "moveFile": "sandbox fs mv",
	"appendFile": "sandbox fs append", "copyFile": "sandbox fs cp", "changeMode": "sandbox fs chmod", "changeOwner": "sandbox fs chown",
	"makeLink": "sandbox fs ln", "readLink": "sandbox fs readlink", "globFiles": "sandbox fs find", "searchFiles": "sandbox fs grep",
	"replaceInFiles": "sandbox fs replace", "getArchive": "sandbox fs archive", "putArchive": "sandbox fs extract", "watchFiles": "sandbox fs watch",
	"signFile": "sandbox fs url", "readSigned": "- for whoever has a signed URL", "writeSigned": "- for whoever has a signed URL",

	"gitClone": "sandbox git clone", "gitStatus": "sandbox git status", "gitDiff": "sandbox git diff", "gitAdd": "sandbox git add",
	"gitCommit": "sandbox git commit", "gitBranch": "sandbox git branch", "gitCheckout": "sandbox git checkout", "gitPull": "sandbox git pull",
	"gitPush": "sandbox git push", "gitLog": "sandbox git log",

	"listPorts": "sandbox ports", "exposePort": "sandbox ports", "closePort": "sandbox ports",
	"previewSandbox": "sandbox preview-url", "signPreview": "sandbox preview-url",
	"getSandboxNetwork": "sandbox network get", "setSandboxNetwork": "sandbox network set", "getNetworkLog": "sandbox network log",
	"createNetwork": "network create", "listNetworks": "network list", "getNetwork": "network get", "deleteNetwork": "network delete",
	"listSSHKeys": "ssh-key list", "addSSHKey": "ssh-key add", "deleteSSHKey": "ssh-key delete", "getSSHInfo": "sandbox ssh",

	"lspLanguages": "languages", "lspWebSocket": "sandbox lsp",
}

// TestEveryOperationIsReached: what the API can do, the command line can.
func TestEveryOperationIsReached(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile("../../api/openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		Paths map[string]map[string]struct {
			OperationID string   `json:"operationId"`
			Tags        []string `json:"tags"`
		} `json:"paths"`
	}
	if err := json.Unmarshal(raw, &doc); err != nil {
		t.Fatal(err)
	}
	for _, methods := range doc.Paths {
		for _, op := range methods {
			if len(op.Tags) > 0 && op.Tags[0] == "mcp" {
				continue // `pandastack mcp` is a server of its own
			}
			if reached[op.OperationID] == "" {
				t.Errorf("no command is named for the operation %s: add one, or say here why there is none", op.OperationID)
			}
		}
	}
	for id, command := range reached {
		if strings.HasPrefix(command, "- ") {
			continue
		}
		code, help, _ := run(append(strings.Fields(command), "--help")...)
		if code != 0 || !strings.Contains(help, "\n  pandastack "+command+" ") && !strings.Contains(help, "\n  pandastack "+command+"\n") {
			t.Errorf("%s: there is no command %q", id, command)
		}
	}
}
