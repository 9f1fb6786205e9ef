package cli

import (
	"encoding/base64"
	"io"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/client"
)

// fileBytes is what `fs read` gives with -o json.
type fileBytes struct {
	Path      string `json:"path"`
	Content   string `json:"content"`
	Encoding  string `json:"encoding"` // utf-8, or base64 where the bytes are not
	Truncated bool   `json:"truncated,omitempty"`
}

func newFSRead(a *app) *cobra.Command {
	var offset, length int64
	cmd := inSandbox(a, doc{
		use: "read ID PATH [flags]", aliases: []string{"cat"},
		short: "Write a file to standard output",
		long: `Write a file, or the part of it that --offset and --length name, to standard
output. On a terminal control characters are shown instead of sent. With -o json
there is the content, up to 16 MiB, in base64 if it is no text.`,
		example: `  pandastack sandbox fs read $id main.py
  pandastack sandbox fs read $id big.log --offset 1000000 --length 4096`,
	}, func(c call) error {
		part := c.cmd.Flags().Changed("offset") || c.cmd.Flags().Changed("length")
		if offset < 0 || c.cmd.Flags().Changed("length") && length < 1 {
			return usagef(c.cmd, "--offset may not be negative, and --length is at least 1")
		}
		f, err := openPart(c, part, offset, length)
		if err != nil {
			return err
		}
		defer f.Close()
		if a.output == "json" {
			return a.printFile(c.args[0], f)
		}
		w := a.stdout
		if isTerminal(w) {
			w = &printableWriter{w: w}
		}
		_, err = io.Copy(w, f)
		return err
	})
	cmd.Flags().Int64Var(&offset, "offset", 0, "byte to begin at")
	cmd.Flags().Int64Var(&length, "length", -1, "bytes to read at most (default all)")
	cmd.Flags().Lookup("length").DefValue = "0"
	return cmd
}

func openPart(c call, part bool, offset, length int64) (*client.File, error) {
	if !part {
		return c.files().Open(c.ctx, c.args[0])
	}
	return c.files().OpenRange(c.ctx, c.args[0], offset, length)
}

func (a *app) printFile(path string, r io.Reader) error {
	data, err := io.ReadAll(io.LimitReader(r, jsonOutputLimit+1))
	if err != nil {
		return err
	}
	out := fileBytes{Path: path, Encoding: "utf-8", Truncated: len(data) > jsonOutputLimit}
	data = data[:min(len(data), jsonOutputLimit)]
	if out.Content = string(data); !utf8.Valid(data) {
		out.Content, out.Encoding = base64.StdEncoding.EncodeToString(data), "base64"
	}
	return a.printJSON(out)
}

// printableWriter is printable for text that comes in pieces.
type printableWriter struct {
	w    io.Writer
	rest []byte // the beginning of a character
}

// Write implements io.Writer.
func (p *printableWriter) Write(b []byte) (int, error) {
	text := append(p.rest, b...)
	end := len(text)
	for i := end - 1; i >= 0 && i >= end-utf8.UTFMax; i-- {
		if utf8.RuneStart(text[i]) {
			if !utf8.FullRune(text[i:]) {
				end = i
			}
			break
		}
	}
	p.rest = append([]byte(nil), text[end:]...)
	if _, err := io.WriteString(p.w, printable(string(text[:end]))); err != nil {
		return 0, err
	}
	return len(b), nil
}

func newFSWrite(a *app) *cobra.Command {
	var atomic bool
	var offset int64
	cmd := ask(a, doc{
		use:   "write ID PATH [FILE] [flags]",
		short: "Make or replace a file",
		long: `Make or replace a file, and the directories above it, from FILE or standard input.

With --atomic who reads it sees the old bytes or the new ones, whatever happens.
With --offset the bytes go there, and what was behind is dropped.`,
		example: `  echo 'print(6*7)' | pandastack sandbox fs write $id main.py
  pandastack sandbox fs write $id /etc/app.conf app.conf --atomic --user root`,
	}, func(c call) (api.FileInfo, error) {
		at := c.cmd.Flags().Changed("offset")
		if at && (atomic || offset < 0) {
			return api.FileInfo{}, usagef(c.cmd, "--offset is 0 or more, and not beside --atomic")
		}
		in, err := c.input(1)
		if err != nil {
			return api.FileInfo{}, err
		}
		defer in.Close()
		switch fs, path := c.files(), c.args[0]; {
		case atomic:
			return fs.WriteAtomic(c.ctx, path, in)
		case at:
			return fs.WriteFrom(c.ctx, path, offset, in)
		default:
			if err := fs.Upload(c.ctx, path, in); err != nil {
				return api.FileInfo{}, err
			}
			return fs.Stat(c.ctx, path)
		}
	}, nil)
	cmd.Flags().BoolVar(&atomic, "atomic", false, "all at once, or not at all")
	cmd.Flags().Int64Var(&offset, "offset", 0, "byte to begin at, no more than the file's size")
	return cmd
}

func newFSAppend(a *app) *cobra.Command {
	return ask(a, doc{
		use:     "append ID PATH [FILE]",
		short:   "Put bytes at the end of a file",
		long:    "Put the bytes of FILE, or of standard input, at the end of a file, which is made if need be.",
		example: "  date | pandastack sandbox fs append $id log.txt",
	}, func(c call) (api.FileInfo, error) {
		in, err := c.input(1)
		if err != nil {
			return api.FileInfo{}, err
		}
		defer in.Close()
		return c.files().Append(c.ctx, c.args[0], in)
	}, nil)
}

func newFSArchive(a *app) *cobra.Command {
	var o exportOptions
	cmd := inSandbox(a, doc{
		use:   "archive ID PATH [flags]",
		short: "Read a directory as a tar.gz",
		long: `Read a directory, or one file, as a tar.gz: to standard output, or with -f to a
file, which appears when it is whole.`,
		example: `  pandastack sandbox fs archive $id /workspace -f workspace.tar.gz
  pandastack sandbox fs archive $id /workspace | tar tz`,
	}, func(c call) error { return runFSArchive(c, o) })
	cmd.Flags().StringVarP(&o.file, "file", "f", "-", "file to write; - is standard output")
	cmd.Flags().BoolVar(&o.force, "force", false, "replace a file that exists")
	return cmd
}

func runFSArchive(c call, o exportOptions) error {
	a := c.app
	if o.file == "-" && isTerminal(a.stdout) {
		return api.Errorf(api.CodeInvalidRequest, "an archive is not for a terminal").WithHint("Say with -f which file to write.")
	}
	f, err := c.files().Archive(c.ctx, c.args[0])
	if err != nil {
		return err
	}
	defer f.Close()
	bar := a.newProgress()
	defer bar.end()
	in := bar.reader(f, c.args[0], -1)
	if o.file == "-" {
		_, err := io.Copy(a.stdout, in)
		return err
	}
	n, err := exportFile(o, func(w io.Writer) error { _, err := io.Copy(w, in); return err })
	if err != nil {
		return err
	}
	bar.end()
	if a.output == "json" {
		return a.printJSON(map[string]any{"file": o.file, "size_bytes": n})
	}
	return a.printLine(o.file)
}

func newFSExtract(a *app) *cobra.Command {
	return ask(a, doc{
		use: "extract ID PATH [FILE]", aliases: []string{"unarchive"},
		short: "Make the files of a tar or tar.gz below a directory",
		long: `Make the files of a tar or tar.gz, which is FILE or standard input, below the
directory PATH. Nothing is written outside it, whatever the archive says.`,
		example: `  pandastack sandbox fs extract $id /workspace workspace.tar.gz
  tar c src | pandastack sandbox fs extract $id /workspace`,
	}, func(c call) (api.Extracted, error) {
		in, err := c.input(1)
		if err != nil {
			return api.Extracted{}, err
		}
		defer in.Close()
		return c.files().Extract(c.ctx, c.args[0], in)
	}, func(a *app, e api.Extracted) error {
		if e.Skipped > 0 {
			a.note("%d devices and other special files were left out", e.Skipped)
		}
		return nil
	})
}
