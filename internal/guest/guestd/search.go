//go:build linux

package guestd

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/pandastack/pandastack/api"
)

// Bounds of a search.
const (
	searchLine  = 2 << 10 // of a line in the answer
	searchText  = 4 << 20 // of all lines together
	longestLine = 1 << 20 // that is looked at as a whole
	binaryProbe = 32 << 10
)

// finder is one search under way.
type finder struct {
	ctx      context.Context
	re       *regexp.Regexp
	around   int
	limit    int
	text     int
	buf      *bufio.Reader
	out      *api.SearchResult
	in       api.Search
	excluded []*glob
	included []*glob
}

// search looks through files with ripgrep where the sandbox has it, else by
// itself; the answer is the same.
func (s *Server) search(ctx context.Context, in api.Search, username string) (api.SearchResult, error) {
	root, _, err := s.resolve(in.Path, username)
	if err != nil {
		return api.SearchResult{}, err
	}
	fi, err := os.Stat(root)
	if errors.Is(err, os.ErrNotExist) {
		err = missing(root)
	}
	if err != nil {
		return api.SearchResult{}, err
	}
	f := &finder{in: in, around: min(max(in.Context, 0), 20), limit: within(in.MaxResults, 1000, api.MaxSearchMatches),
		out: &api.SearchResult{Path: root, Matches: []api.SearchMatch{}}}
	if f.re, err = pattern(in.Pattern, in.Literal, in.IgnoreCase, ""); err != nil {
		return api.SearchResult{}, err
	}
	if f.included, err = parseGlobs(in.Include); err == nil {
		f.excluded, err = parseGlobs(in.Exclude)
	}
	if err != nil {
		return api.SearchResult{}, err
	}
	timed, cancel := context.WithTimeout(ctx, duration(in.TimeoutSeconds, searchTime, searchTimeMax))
	defer cancel()
	f.ctx = timed
	switch program := ripgrep(); {
	case in.Names:
		err = f.names(root)
	case program != "" && fi.IsDir():
		err = f.ripgrep(s, program, root)
	default:
		err = f.contents(root)
	}
	if timed.Err() != nil && ctx.Err() == nil {
		f.out.TimedOut, err = true, nil
	}
	slices.SortFunc(f.out.Matches, func(a, b api.SearchMatch) int {
		return cmp.Or(strings.Compare(a.Path, b.Path), cmp.Compare(a.Line, b.Line))
	})
	return *f.out, err
}

// pattern compiles what is looked for.
func pattern(text string, literal, ignoreCase bool, flags string) (*regexp.Regexp, error) {
	if text == "" || len(text) > maxPath || strings.ContainsRune(text, 0) {
		return nil, invalid("the pattern is empty, too long or has a NUL byte")
	}
	if literal {
		text = regexp.QuoteMeta(text)
	}
	if ignoreCase {
		flags += "i"
	}
	if flags != "" {
		text = "(?" + flags + ":" + text + ")"
	}
	re, err := regexp.Compile(text)
	if err != nil {
		return nil, invalid("the pattern is no regular expression: " + printable(err.Error(), 200))
	}
	return re, nil
}

// add takes a match over and reports whether more are wanted.
func (f *finder) add(m api.SearchMatch) bool {
	size := len(m.Path) + len(m.Text)
	for _, lines := range [][]string{m.Before, m.After} {
		for _, l := range lines {
			size += len(l)
		}
	}
	if len(f.out.Matches) == f.limit || f.text+size > searchText {
		f.out.Truncated = true
		return false
	}
	f.text += size
	f.out.Matches = append(f.out.Matches, m)
	return true
}

func (f *finder) walker(visit func(path, rel string, d fs.DirEntry) error) *walker {
	return &walker{ctx: f.ctx, include: f.included, exclude: f.excluded, skipGit: true, visit: visit}
}

func (f *finder) names(root string) error {
	return f.walker(func(path, _ string, d fs.DirEntry) error {
		if f.re.MatchString(d.Name()) && !f.add(api.SearchMatch{Path: strings.ToValidUTF8(path, "\uFFFD")}) {
			return errStop
		}
		return nil
	}).walk(root)
}

func (f *finder) contents(root string) error {
	return f.walker(func(path, _ string, d fs.DirEntry) error {
		if !d.Type().IsRegular() {
			return nil
		}
		return f.file(path)
	}).walk(root)
}

// file looks through one file, as far as it is text. What cannot be read is
// left out.
func (f *finder) file(path string) error {
	file, _, err := openRegular(path)
	if err != nil {
		return nil
	}
	defer file.Close()
	if f.buf == nil {
		f.buf = bufio.NewReaderSize(nil, 64<<10)
	}
	f.buf.Reset(file)
	if head, _ := f.buf.Peek(binaryProbe); bytes.IndexByte(head, 0) >= 0 {
		return nil
	}
	var before []string
	var open []int // matches that want more lines after them
	shown := strings.ToValidUTF8(path, "\uFFFD")
	for number := 1; ; number++ {
		if number%1024 == 0 && f.ctx.Err() != nil {
			return f.ctx.Err()
		}
		line, err := readLine(f.buf)
		if err == io.EOF && len(line) == 0 || err != nil && err != io.EOF || bytes.IndexByte(line, 0) >= 0 {
			return nil
		}
		line = bytes.TrimSuffix(bytes.TrimSuffix(line, []byte{'\n'}), []byte{'\r'})
		text := ""
		if f.around > 0 {
			text = clipLine(line, 0)
			open = slices.DeleteFunc(open, func(i int) bool {
				m := &f.out.Matches[i]
				m.After = append(m.After, text)
				f.text += len(text)
				return len(m.After) == f.around
			})
		}
		if at := f.re.FindIndex(line); at != nil {
			m := api.SearchMatch{Path: shown, Line: number, Column: at[0] + 1, Text: clipLine(line, at[0]), Before: slices.Clone(before)}
			if !f.add(m) {
				return errStop
			}
			if f.around > 0 {
				open = append(open, len(f.out.Matches)-1)
			}
		}
		if f.around > 0 {
			if before = append(before, text); len(before) > f.around {
				before = before[1:]
			}
		}
	}
}

// readLine reads a line; of one that is too long, as much as is looked at.
func readLine(r *bufio.Reader) ([]byte, error) {
	line, err := r.ReadSlice('\n')
	if err != bufio.ErrBufferFull {
		return line, err
	}
	out := bytes.Clone(line)
	for err == bufio.ErrBufferFull {
		line, err = r.ReadSlice('\n')
		if len(out) < longestLine {
			out = append(out, line...)
		}
	}
	return out, err
}

// clipLine is a line as the answer has it: of a long one the part around at.
func clipLine(line []byte, at int) string {
	if len(line) > searchLine {
		from := 0
		if at > searchLine/2 {
			from = min(at-searchLine/8, len(line)-searchLine)
		}
		line = line[from : from+searchLine]
	}
	return strings.ToValidUTF8(string(line), "\uFFFD")
}

// replace changes text in files.
func (s *Server) replace(ctx context.Context, in api.Replace, username string) (api.ReplaceResult, error) {
	root, _, err := s.resolve(in.Path, username)
	if err != nil {
		return api.ReplaceResult{}, err
	}
	r := &replacer{s: s, in: in, out: &api.ReplaceResult{Path: root, DryRun: in.DryRun, Files: []api.ReplacedFile{}}}
	if r.re, err = pattern(in.Pattern, in.Literal, in.IgnoreCase, "m"); err != nil {
		return api.ReplaceResult{}, err
	}
	w := &walker{skipGit: true, visit: r.visit}
	if w.include, err = parseGlobs(in.Include); err == nil {
		w.exclude, err = parseGlobs(in.Exclude)
	}
	if err != nil {
		return api.ReplaceResult{}, err
	}
	timed, cancel := context.WithTimeout(ctx, duration(in.TimeoutSeconds, searchTime, searchTimeMax))
	defer cancel()
	w.ctx = timed
	err = w.walk(root)
	if timed.Err() != nil && ctx.Err() == nil {
		r.out.TimedOut, err = true, nil
	}
	slices.SortFunc(r.out.Files, func(a, b api.ReplacedFile) int { return strings.Compare(a.Path, b.Path) })
	return *r.out, err
}

// maxReplaced bounds a file in which text is replaced, which is in memory as a
// whole, before and after.
const maxReplaced = 8 << 20

type replacer struct {
	s   *Server
	in  api.Replace
	re  *regexp.Regexp
	out *api.ReplaceResult
}

func (r *replacer) visit(path, _ string, d fs.DirEntry) error {
	if !d.Type().IsRegular() {
		return nil
	}
	text, large := readText(path)
	if large {
		r.out.Skipped++
	}
	found := r.re.FindAllIndex(text, -1)
	if len(found) == 0 {
		return nil
	}
	if len(r.out.Files) == api.MaxReplaceFiles {
		r.out.Truncated = true
		return errStop
	}
	if !r.in.DryRun {
		out, err := r.result(path, text)
		if err != nil {
			return err
		}
		err = r.s.putWhole(path, user{}, func(f *os.File) error { _, err := f.Write(out); return err })
		if err != nil {
			return err
		}
	}
	r.out.Count += len(found)
	r.out.Files = append(r.out.Files, api.ReplacedFile{Path: strings.ToValidUTF8(filepath.Clean(path), "\uFFFD"), Count: len(found)})
	return nil
}

// result is the new content of a file.
func (r *replacer) result(path string, text []byte) ([]byte, error) {
	var out []byte
	last := 0
	for _, at := range r.re.FindAllSubmatchIndex(text, -1) {
		out = append(out, text[last:at[0]]...)
		if r.in.Literal {
			out = append(out, r.in.Replacement...)
		} else {
			out = r.re.Expand(out, []byte(r.in.Replacement), text, at)
		}
		last = at[1]
		if len(out) > 2*maxReplaced {
			return nil, invalid("the replacement makes '" + printable(path, 200) + "' larger than 16 MiB")
		}
	}
	return append(out, text[last:]...), nil
}

// readText reads a file unless it is binary, or large. What cannot be read has
// no text.
func readText(path string) (text []byte, large bool) {
	f, fi, err := openRegular(path)
	if err != nil {
		return nil, false
	}
	defer f.Close()
	if fi.Size() > maxReplaced {
		return nil, true
	}
	text, err = io.ReadAll(io.LimitReader(f, maxReplaced+1))
	if err != nil || len(text) > maxReplaced || bytes.IndexByte(text, 0) >= 0 {
		return nil, len(text) > maxReplaced
	}
	return text, false
}

// ripgrep is the path of the program, empty where there is none. It is not
// looked for in the PATH that users of the sandbox set, because it runs as root.
func ripgrep() string {
	path, err := findProgram("rg", defaultPath, "/")
	if err != nil {
		return ""
	}
	return path
}
