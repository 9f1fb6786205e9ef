package cli

import (
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/pandastack/pandastack/api"
)

func newSnapshot(a *app) *cobra.Command {
	cmd := group("snapshot", "See, move and delete snapshots", `See, move and delete snapshots. "sandbox snapshot" takes one.`)
	cmd.Aliases = []string{"snapshots"}
	cmd.Example = `  pandastack sandbox snapshot k3v9x0q2m7c1b8n4t6zd --name warm
  pandastack snapshot list
  pandastack snapshot export warm -f warm.snapshot`
	cmd.AddCommand(newSnapshotList(a), newSnapshotGet(a), newSnapshotExport(a), newSnapshotImport(a), newSnapshotDelete(a))
	return cmd
}

// showSnapshot prints a record.
func (a *app) showSnapshot(s api.Snapshot) error {
	if a.output == "json" {
		return a.printJSON(s)
	}
	var f fields
	f.add("id", s.ID)
	f.add("name", s.Name)
	f.add("kind", string(s.Kind))
	f.add("holds", holdsText(s))
	f.add("sandbox", s.SandboxID)
	f.add("parent", s.ParentID)
	f.add("template", s.Template)
	f.add("driver", s.Driver)
	f.add("host", s.Host)
	f.add("cpu", strconv.FormatFloat(s.CPU, 'g', -1, 64))
	f.add("memory", fmt.Sprintf("%d MiB", s.MemoryMB))
	f.add("disk", fmt.Sprintf("%d MiB", s.DiskMB))
	f.add("size", bytesText(s.SizeBytes))
	f.add("stored", storedText(s))
	f.add("pause", fmt.Sprintf("%.1f ms", s.PauseMS))
	f.add("created", s.CreatedAt.UTC().Format(time.RFC3339))
	for _, k := range sortedKeys(s.Metadata) {
		f.add("metadata "+k, s.Metadata[k])
	}
	return f.print(a)
}

func holdsText(s api.Snapshot) string {
	if s.Memory {
		return "memory and files"
	}
	return "files"
}

// storedText is what a snapshot added to the store, which is known some time
// after it was taken.
func storedText(s api.Snapshot) string {
	if s.StoredBytes == 0 {
		return "not packed yet"
	}
	return bytesText(s.StoredBytes)
}
