//go:build linux

package guestd

import (
	"path"
	"regexp"
	"strings"
)

// maxGlob bounds a pattern.
const maxGlob = 1024

// glob is a pattern of paths. One without a slash is for the name alone.
type glob struct {
	re   *regexp.Regexp
	name bool
}

// parseGlob reads a pattern: * and ? within a name, ** over directories,
// [a-z] and [!a-z], {a,b}, and a backslash before what is meant as it is.
func parseGlob(pattern string) (*glob, error) {
	if pattern == "" || len(pattern) > maxGlob || strings.HasPrefix(pattern, "!") || strings.ContainsRune(pattern, 0) {
		return nil, invalid("not a glob: " + printable(pattern, 64))
	}
	text := strings.TrimSuffix(strings.TrimPrefix(strings.TrimPrefix(pattern, "./"), "/"), "/")
	g := &glob{name: !strings.Contains(strings.TrimSuffix(pattern, "/"), "/")}
	expr, ok := globExpr(text)
	if !ok {
		return nil, invalid("the glob is not closed: " + printable(pattern, 64))
	}
	re, err := regexp.Compile("^(?s:" + expr + ")$")
	if err != nil {
		return nil, invalid("not a glob: " + printable(pattern, 64))
	}
	g.re = re
	return g, nil
}

// globExpr translates a glob to a regular expression. It is not ok where a
// bracket or brace is left open.
func globExpr(text string) (string, bool) {
	var b strings.Builder
	braces := 0
	for i := 0; i < len(text); i++ {
		c := text[i]
		switch {
		case c == '\\' && i+1 < len(text):
			i++
			b.WriteString(regexp.QuoteMeta(text[i : i+1]))
		case strings.HasPrefix(text[i:], "**/") && (i == 0 || text[i-1] == '/'):
			b.WriteString(`(?:[^/]+/)*`)
			i += 2
		case text[i:] == "**" && (i == 0 || text[i-1] == '/'):
			b.WriteString(`.+`)
			i++
		case c == '*':
			b.WriteString(`[^/]*`)
		case c == '?':
			b.WriteString(`[^/]`)
		case c == '[':
			end := strings.IndexByte(text[min(i+2, len(text)):], ']')
			if end < 0 {
				return "", false
			}
			b.WriteString(globClass(text[i+1 : i+2+end]))
			i += end + 2
		case c == '{':
			braces++
			b.WriteString(`(?:`)
		case c == '}' && braces > 0:
			braces--
			b.WriteByte(')')
		case c == ',' && braces > 0:
			b.WriteByte('|')
		default: // a byte of a longer character too: the rest of it follows
			if c < 0x80 {
				b.WriteString(regexp.QuoteMeta(text[i : i+1]))
			} else {
				b.WriteByte(c)
			}
		}
	}
	return b.String(), braces == 0
}

// globClass translates what stands between brackets.
func globClass(class string) string {
	not := ""
	if class[0] == '!' || class[0] == '^' {
		not, class = "^/", class[1:]
	}
	return "[" + not + strings.NewReplacer(`\`, `\\`, "[", `\[`, "]", `\]`, "^", `\^`).Replace(class) + "]"
}

// match says whether a path below the root of a walk matches.
func (g *glob) match(rel string) bool {
	if g.name {
		rel = path.Base(rel)
	}
	return g.re.MatchString(rel)
}

func parseGlobs(patterns []string) ([]*glob, error) {
	var out []*glob
	for _, p := range patterns {
		g, err := parseGlob(p)
		if err != nil {
			return nil, err
		}
		out = append(out, g)
	}
	return out, nil
}

func matchAny(globs []*glob, rel string) bool {
	for _, g := range globs {
		if g.match(rel) {
			return true
		}
	}
	return false
}
