package gateway

import (
	"strconv"
	"strings"

	"github.com/pandastack/pandastack/api"
)

// DefaultDomain is one that browsers and many resolvers know as this machine.
const DefaultDomain = "localhost"

// maxHost is the longest host that is looked at: a DNS name and a port.
const maxHost = 253 + len(":65535")

// apiLabel is the one name below the domain that is no preview: the API's own.
const apiLabel = "api"

// below reports whether a host, as in a request, is a name below domain, and
// gives what stands before it. It allocates nothing, since every request of the
// API passes here.
func below(host, domain string) (label string, ok bool) {
	host = withoutPort(host)
	at := len(host) - len(domain) - 1
	if at < 1 || host[at] != '.' || !strings.EqualFold(host[at+1:], domain) {
		return "", false
	}
	return host[:at], true
}

// withoutPort cuts a port of digits and then the dot of a full name off.
func withoutPort(host string) string {
	if i := strings.LastIndexByte(host, ':'); i >= 0 && strings.Trim(host[i+1:], "0123456789") == "" {
		host = host[:i]
	}
	return strings.TrimSuffix(host, ".")
}

// ParseHost takes the host of a request apart that reads {port}-{id}.{domain},
// with or without a port of the server behind it. ok is false for a host that is
// not below the domain; one that is, but is no name of a preview, is an error.
func ParseHost(host, domain string) (port int, id string, ok bool, err error) {
	label, ok := below(host, domain)
	if !ok {
		return 0, "", false, nil
	}
	if len(host) > maxHost {
		return 0, "", true, noPreview("the name is too long")
	}
	port, id, err = parseLabel(label)
	return port, id, true, err
}

// parseLabel takes {port}-{id} apart. Names are matched without regard to case.
func parseLabel(label string) (int, string, error) {
	digits, id, found := strings.Cut(label, "-")
	if !found {
		return 0, "", noPreview("it has no port and id")
	}
	if len(digits) == 0 || len(digits) > 5 || strings.Trim(digits, "0123456789") != "" || digits[0] == '0' {
		return 0, "", noPreview("it begins with no port")
	}
	port, err := strconv.Atoi(digits)
	if err != nil || port > 65535 {
		return 0, "", noPreview("it begins with no port")
	}
	if len(id) > 64 {
		return 0, "", noPreview("it has no id of a sandbox")
	}
	if id = strings.ToLower(id); !api.ValidID(id) {
		return 0, "", noPreview("it has no id of a sandbox")
	}
	return port, id, nil
}

func noPreview(why string) error {
	return api.Errorf(api.CodeInvalidRequest, "this host is not the name of a preview: %s", why).With("field", "host").
		WithHint("A preview's name is {port}-{id}, with the id of a sandbox.")
}

// label is the first part of the name of a port's preview.
func label(id string, port int) string { return strconv.Itoa(port) + "-" + id }

// ValidDomain reports whether previews can have names below a domain.
func ValidDomain(domain string) bool {
	if domain == "" || len(domain) > 200 {
		return false
	}
	for part := range strings.SplitSeq(domain, ".") {
		bad := func(r rune) bool { return r != '-' && (r < '0' || r > '9') && (r < 'a' || r > 'z') }
		if part == "" || len(part) > 63 || part[0] == '-' || part[len(part)-1] == '-' || strings.ContainsFunc(part, bad) {
			return false
		}
	}
	return true
}
