package server

// Check is one thing that a server needs of its machine, as it was found.
type Check struct {
	Name     string
	OK       bool
	Required bool   // without it no sandbox starts
	Detail   string // what was found
	Fix      string // what to do, if something is to be done
}
