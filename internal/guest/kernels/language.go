package kernels

import (
	"encoding/json"
	"strconv"
	"strings"
	"syscall"

	_ "embed"
)

//go:embed drivers/kernel.py
var pythonDriver string

//go:embed drivers/kernel.js
var nodeDriver string

//go:embed drivers/kernel.sh
var shellDriver string

// Default is the language of code that names none.
const Default = "python"

// language says how code of one language is run.
type language struct {
	name    string
	aliases []string
	needs   []string // programs; the first one runs the driver
	args    func(preload []string) []string
	env     map[string]string
	encode  func(command) []byte
	renew   syscall.Signal // makes a kernel draw other random numbers
}

// command is one piece of code on its way to a driver. A nil value unsets a
// variable.
type command struct {
	Code    string             `json:"code"`
	Globals map[string]*string `json:"globals,omitempty"` // changes from now on
	Env     map[string]*string `json:"env,omitempty"`     // changes for this code
}

var languages = []language{
	{
		name: "python", aliases: []string{"python3", "py"}, needs: []string{"python3"},
		args:   func(preload []string) []string { return append([]string{"-c", pythonDriver}, preload...) },
		env:    map[string]string{"PYTHONSAFEPATH": "1"},
		encode: encodeJSON, renew: syscall.SIGUSR1,
	},
	{
		name: "javascript", aliases: []string{"js", "node"}, needs: []string{"node"},
		args:   func([]string) []string { return nodeArgs("javascript") },
		encode: encodeJSON, renew: syscall.SIGUSR2,
	},
	{
		name: "typescript", aliases: []string{"ts"}, needs: []string{"node", "esbuild"},
		args:   func([]string) []string { return nodeArgs("typescript") },
		encode: encodeJSON, renew: syscall.SIGUSR2,
	},
	{
		name: "bash", aliases: []string{"sh", "shell"}, needs: []string{"bash"},
		args:   func([]string) []string { return []string{"-c", shellDriver, "bash"} },
		encode: encodeFields, renew: syscall.SIGUSR1,
	},
}

// nodeArgs runs the driver for Node. What an interrupt ends in the middle of a
// timer's call leaves the books of async_hooks open, which must not end Node.
func nodeArgs(language string) []string {
	return []string{"--no-force-async-hooks-checks", "-e", nodeDriver, language}
}

// findLanguage gives a language by one of its names; empty is the default one.
func findLanguage(name string) (*language, bool) {
	name = strings.ToLower(name)
	if name == "" {
		name = Default
	}
	for i := range languages {
		l := &languages[i]
		if l.name == name {
			return l, true
		}
		for _, a := range l.aliases {
			if a == name {
				return l, true
			}
		}
	}
	return nil, false
}

func encodeJSON(c command) []byte {
	data, err := json.Marshal(c)
	if err != nil {
		panic("kernels: a command is plain data: " + err.Error())
	}
	return append(data, '\n')
}

// encodeFields writes a command as the shell driver reads it.
func encodeFields(c command) []byte {
	var b strings.Builder
	field := func(s string) {
		b.WriteString(strings.ReplaceAll(s, "\x00", ""))
		b.WriteByte(0)
	}
	for _, change := range []map[string]*string{c.Globals, c.Env} {
		field(strconv.Itoa(len(change)))
		for name, value := range change {
			field(name)
			if value == nil {
				field("-")
			} else {
				field("+" + *value)
			}
		}
	}
	field(c.Code)
	return []byte(b.String())
}
