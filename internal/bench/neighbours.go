package bench

import "io"

// NeighbourOptions choose what stands beside a PandaStack server.
type NeighbourOptions struct {
	Image    string    // an EROFS file; its root has /bin/sh, /bin/true and /bin/sleep
	Runsc    string    // the stock runsc program
	N        int       // samples of each command, after two that do not count
	WorkDir  string    // where to make the working directory; empty: the system's directory for temporary files
	Progress io.Writer // nil: silent
}

// neighbourScenario is the Scenario of what stands beside.
const neighbourScenario = "neighbour"

// warmUps are the samples that do not count: they fill the page cache.
const warmUps = 2
