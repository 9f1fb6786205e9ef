// Package templates holds the recipes that the program brings along, so that
// one binary can build them anywhere.
package templates

import (
	"embed"
	"io/fs"
	"strings"
)

//go:embed */template.toml
var files embed.FS

// Read gives the recipe of a template, and the name of its file for messages.
// A template that is not here is fs.ErrNotExist.
func Read(name string) (file string, data []byte, err error) {
	if strings.Contains(name, "/") {
		return "", nil, fs.ErrNotExist
	}
	data, err = files.ReadFile(name + "/template.toml")
	return "templates/" + name + "/template.toml", data, err
}

// Names lists the templates in alphabetical order.
func Names() []string {
	entries, err := files.ReadDir(".")
	if err != nil {
		panic("templates: reading what is embedded: " + err.Error())
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}
