//go:build linux

package guestd

import (
	"bufio"
	"encoding/json"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/pandastack/pandastack/api"
)

// rgRecord is one line of ripgrep's JSON output.
type rgRecord struct {
	Type string `json:"type"`
	Data struct {
		Path       rgText `json:"path"`
		Lines      rgText `json:"lines"`
		Line       int    `json:"line_number"`
		Submatches []struct {
			Start int `json:"start"`
		} `json:"submatches"`
	} `json:"data"`
}

// rgText is text that need not be UTF-8.
type rgText struct {
	Text  string `json:"text"`
	Bytes []byte `json:"bytes"`
}

func (t rgText) bytes() []byte {
	if t.Bytes != nil {
		return t.Bytes
	}
	return []byte(t.Text)
}

// ripgrep runs the program on a directory.
func (f *finder) ripgrep(s *Server, program, root string) error {
	l := &launch{path: program, argv: f.ripgrepArgs(program, root)}
	l.attr = syscall.ProcAttr{
		Dir: root,
		Env: []string{"PATH=" + defaultPath, "LC_ALL=C.UTF-8"},
		Sys: &syscall.SysProcAttr{Setsid: true, Credential: &syscall.Credential{Groups: []uint32{0}}},
	}
	p, err := s.spawn(f.ctx, l)
	if err != nil {
		return err
	}
	defer p.end()
	go p.discard(p.stderr)
	r := bufio.NewReaderSize(p.stdout, longestLine)
	file := &rgFile{f: f, root: root}
	for {
		record, err := r.ReadSlice('\n')
		if err == bufio.ErrBufferFull {
			// A line that is too long to be held: this file is read here instead.
			file.long = true
			for err == bufio.ErrBufferFull {
				_, err = r.ReadSlice('\n')
			}
			continue
		}
		if err != nil {
			return f.ripgrepEnded(p, root)
		}
		var rec rgRecord
		if json.Unmarshal(record, &rec) != nil {
			continue
		}
		if err := file.record(&rec); err != nil {
			if err == errStop {
				err = nil
			}
			return err
		}
	}
}

// ripgrepEnded looks at how the program ended. It may not know a pattern that is
// one here; then the files are read here.
func (f *finder) ripgrepEnded(p *spawned, root string) error {
	if f.ctx.Err() != nil {
		return f.ctx.Err()
	}
	<-p.gone
	if p.status.ExitStatus() > 1 && len(f.out.Matches) == 0 {
		return f.contents(root)
	}
	return nil
}

func (f *finder) ripgrepArgs(program, root string) []string {
	args := []string{program, "--json", "--no-config", "--no-messages", "--no-ignore", "--hidden", "--crlf",
		"--max-count", strconv.Itoa(f.limit + 1), "--threads", "4"}
	if f.in.Literal {
		args = append(args, "--fixed-strings")
	}
	if f.in.IgnoreCase {
		args = append(args, "--ignore-case")
	}
	if f.around > 0 {
		args = append(args, "--context", strconv.Itoa(f.around))
	}
	for _, g := range f.in.Include {
		args = append(args, "--glob", g)
	}
	for _, g := range f.in.Exclude {
		args = append(args, "--glob", "!"+g)
	}
	args = append(args, "--glob", "!.git/")
	if root == "/" {
		for dir := range systemDirs {
			args = append(args, "--glob", "!"+dir+"/")
		}
	}
	return append(args, "--regexp", f.in.Pattern, "--", "./")
}

// rgFile gathers the records of one file, which come together.
type rgFile struct {
	f       *finder
	root    string
	path    string
	long    bool
	lines   map[int]string // what stands around matches, by number
	matches []api.SearchMatch
}

func (r *rgFile) record(rec *rgRecord) error {
	switch rec.Type {
	case "begin":
		*r = rgFile{f: r.f, root: r.root, path: filepath.Join(r.root, string(rec.Data.Path.bytes())), lines: map[int]string{}}
	case "match", "context":
		line := []byte(strings.TrimRight(string(rec.Data.Lines.bytes()), "\r\n"))
		at := 0
		if len(rec.Data.Submatches) > 0 {
			at = min(max(rec.Data.Submatches[0].Start, 0), len(line))
		}
		text := clipLine(line, at)
		if r.f.around > 0 {
			r.lines[rec.Data.Line] = text
		}
		if rec.Type == "match" {
			r.matches = append(r.matches, api.SearchMatch{Path: strings.ToValidUTF8(r.path, "\uFFFD"), Line: rec.Data.Line, Column: at + 1, Text: text})
		}
	case "end":
		return r.finish()
	}
	return nil
}

// finish takes the matches of a file over, with the lines around them.
func (r *rgFile) finish() error {
	if r.long {
		return r.f.file(r.path)
	}
	for _, m := range r.matches {
		for i := 1; i <= r.f.around; i++ {
			if text, ok := r.lines[m.Line-i]; ok && len(m.Before) == i-1 {
				m.Before = append(m.Before, text)
			}
			if text, ok := r.lines[m.Line+i]; ok && len(m.After) == i-1 {
				m.After = append(m.After, text)
			}
		}
		slices.Reverse(m.Before)
		if !r.f.add(m) {
			return errStop
		}
	}
	return nil
}
