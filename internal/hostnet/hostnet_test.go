package hostnet

import (
	"encoding/json"
	"net/netip"
	"testing"
)

func TestSlotLayout(t *testing.T) {
	t.Parallel()
	cfg, err := Config{Owner: "abcd1234"}.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	if cfg.slots() != 16384 {
		t.Errorf("%d slots", cfg.slots())
	}
	first, last := cfg.slot(0), cfg.slot(16383)
	if first.Address.String() != "10.200.0.2/30" || first.Gateway.String() != "10.200.0.1" ||
		last.Address.String() != "10.200.255.254/30" || last.HostInterface != "ps-16383" ||
		last.Namespace != "/run/netns/ps-abcd1234-16383" {
		t.Errorf("%+v %+v", first, last)
	}
	text, err := json.Marshal(last)
	if err != nil {
		t.Fatal(err)
	}
	var back Slot
	if err := json.Unmarshal(text, &back); err != nil {
		t.Fatal(err)
	}
	if back != last {
		t.Errorf("%+v after JSON", back)
	}
	for _, bad := range []Config{{}, {Owner: "ABCD1234"}, {Owner: "short"}, {Owner: "abcd1234", Ahead: -1},
		{Owner: "abcd1234", Prefix: netip.MustParsePrefix("fd00::/64")}, {Owner: "abcd1234", Prefix: netip.MustParsePrefix("10.0.0.0/30")},
		{Owner: "abcd1234", Pass: []netip.Prefix{netip.MustParsePrefix("fd00::/64")}}} {
		if _, err := bad.withDefaults(); err == nil {
			t.Errorf("%+v was accepted", bad)
		}
	}
	for name, want := range map[string]int{"ps-0": 0, "ps-16383": 16383, "ps-": -1, "ps-01": -1, "ps-x": -1, "eth0": -1, "ps--1": -1} {
		if i, ok := slotIndex(name, linkPrefix); ok != (want >= 0) || ok && i != want {
			t.Errorf("%s: %d %v", name, i, ok)
		}
	}
}
