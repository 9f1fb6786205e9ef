package agent

import "context"

// makeDisk makes the sandbox's directory, with the machine's in it.
func (a *Agent) makeDisk(_ context.Context, c *creation) error {
	return a.journal.begin(c.spec.ID)
}

func (a *Agent) removeDisk(_ context.Context, c *creation) error {
	return a.journal.remove(c.spec.ID)
}
