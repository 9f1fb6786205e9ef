package netrule

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"golang.org/x/net/idna"
)

// parseList reads one list; field is what errors call it.
func parseList(field string, entries []string) (list, error) {
	var l list
	for i, e := range entries {
		if err := l.add(e); err != nil {
			return list{}, invalid(fmt.Sprintf("%s[%d]", field, i), "%s %s", shown(e), err)
		}
	}
	l.seal()
	return l, nil
}

// shown is an entry as an error quotes it: bounded, and escaped.
func shown(entry string) string {
	if len(entry) > 80 {
		entry = entry[:80] + "..."
	}
	return strconv.QuoteToASCII(entry)
}

// add parses one entry into the list.
func (l *list) add(entry string) error {
	if entry == "" {
		return errors.New("is empty")
	}
	if len(entry) > maxEntry {
		return fmt.Errorf("has %d bytes and may have %d", len(entry), maxEntry)
	}
	if strings.Contains(entry, "://") {
		return errors.New("is a URL: leave out the scheme and the path")
	}
	if strings.Count(entry, ":") > 1 || strings.ContainsAny(entry, "[]") {
		return errors.New("is IPv6, which sandboxes do not have, or has more than one colon")
	}
	what, ports, hasPorts := strings.Cut(entry, ":")
	s := everyPort
	if hasPorts {
		var err error
		if s, err = parsePorts(ports); err != nil {
			return err
		}
	}
	if p, ok, err := parsePrefix(what); err != nil {
		return err
	} else if ok {
		l.addRange(p, s)
		return nil
	}
	base, below := strings.CutPrefix(what, "*.")
	name, err := parseName(base)
	if err != nil {
		return err
	}
	l.addName(name, below, s)
	return nil
}

func parsePorts(s string) (span, error) {
	first, last, isRange := strings.Cut(s, "-")
	a, err := parsePort(first)
	if err != nil || !isRange {
		return span{a, a}, err
	}
	b, err := parsePort(last)
	if err != nil {
		return span{}, err
	}
	if a > b {
		return span{}, fmt.Errorf("has the ports %d-%d, which end before they begin", a, b)
	}
	return span{a, b}, nil
}

// parsePort takes digits only: no sign, no leading zero, not 0.
func parsePort(s string) (uint16, error) {
	n, err := strconv.ParseUint(s, 10, 16)
	if err != nil || n == 0 || s[0] == '0' {
		return 0, errors.New("has a port that is not a number from 1 to 65535")
	}
	return uint16(n), nil
}

// parsePrefix reports false for what is neither an address nor a range.
func parsePrefix(s string) (netip.Prefix, bool, error) {
	if strings.Contains(s, "/") {
		p, err := netip.ParsePrefix(s)
		if err != nil {
			return p, false, errors.New("is not a range like 203.0.113.0/24, and a name has no path")
		}
		if p != p.Masked() {
			return p, false, fmt.Errorf("is a range that does not begin where its prefix says: it would be %s", p.Masked())
		}
		return p, true, nil
	}
	if a, err := netip.ParseAddr(s); err == nil {
		return netip.PrefixFrom(a, 32), true, nil
	}
	return netip.Prefix{}, false, nil
}

// unicode turns names into the form that DNS looks up.
var unicode = sync.OnceValue(func() *idna.Profile {
	return idna.New(idna.MapForLookup(), idna.BidiRule(), idna.StrictDomainName(true), idna.ValidateLabels(true))
})

func parseName(s string) (string, error) {
	if strings.Contains(s, "*") {
		return "", errors.New("has a star that is not before the first dot of a name; 0.0.0.0/0 is everything")
	}
	for i := range len(s) {
		if s[i] < utf8.RuneSelf {
			continue
		}
		ascii, err := unicode().ToASCII(s)
		if err != nil || !utf8.ValidString(s) {
			return "", errors.New("has a name that cannot be written in punycode")
		}
		s = ascii
		break
	}
	name, ok := Name(s)
	if !ok {
		return "", errors.New("is not an IPv4 address, a range or a name")
	}
	for label := range strings.SplitSeq(name, ".") {
		if label[0] == '-' || label[len(label)-1] == '-' {
			return "", errors.New("has a name with a part that begins or ends with a dash")
		}
	}
	if name == "internal" || strings.HasSuffix(name, ".internal") {
		return "", errors.New("is a name of sandboxes, which rules do not open or close: join a network to reach its members")
	}
	return name, nil
}
