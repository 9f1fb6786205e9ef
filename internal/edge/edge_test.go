package edge

import (
	"net/netip"
	"testing"

	"github.com/pandastack/pandastack/internal/host"
)

// A sandbox is found by its names in the groups that it shares with who asks,
// where it is now.
func TestNames(t *testing.T) {
	t.Parallel()
	e := &Edge{peers: map[netip.Addr]peer{}, former: map[netip.Addr]string{}, groups: map[string]map[string]netip.Addr{}}
	at := func(n byte) netip.Addr { return netip.AddrFrom4([4]byte{10, 200, 0, n}) }
	in := func(names ...string) []host.Link {
		var links []host.Link
		for i := 0; i < len(names); i += 2 {
			links = append(links, host.Link{Group: names[i], Name: names[i+1]})
		}
		return links
	}
	web := peer{id: "aaaaaaaaaaaaaaaaaaaa", links: in("backend", "web", "other", "web")}
	db := peer{id: "bbbbbbbbbbbbbbbbbbbb", links: in("backend", "db")}
	stranger := peer{id: "cccccccccccccccccccc", links: in("foreign", "db")}
	e.put(at(2), web)
	e.put(at(6), db)
	e.put(at(10), stranger)
	check := func(asks peer, name string, want netip.Addr) {
		t.Helper()
		got, ok := e.linked(asks, name)
		if ok != want.IsValid() || got != want {
			t.Errorf("%s asks for %s: %v %v, want %v", asks.id, name, got, ok, want)
		}
	}
	check(web, "db", at(6))
	check(web, "bbbbbbbbbbbbbbbbbbbb", at(6))
	check(db, "web", at(2))
	check(stranger, "db", at(10))
	check(stranger, "web", netip.Addr{})
	check(db, "x.web", netip.Addr{})

	// It wakes elsewhere before its old place is given back.
	e.put(at(14), db)
	if before := e.put(at(6), peer{}); before.id != db.id {
		t.Errorf("%+v was at the old place", before)
	}
	check(web, "db", at(14))
	e.put(at(14), peer{})
	check(web, "db", netip.Addr{})
	if id, ok := e.owner(at(14)); !ok || id != db.id {
		t.Errorf("who was last at an address: %q %v", id, ok)
	}
	if id, ok := e.owner(at(99)); ok {
		t.Errorf("nobody ever was there: %q", id)
	}
	e.put(at(2), peer{})
	e.put(at(10), peer{})
	if len(e.groups) != 0 || len(e.peers) != 0 {
		t.Errorf("left: %v %v", e.groups, e.peers)
	}
}
