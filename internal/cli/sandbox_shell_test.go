package cli

import "testing"

func TestShellEscapes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		typed  []string
		send   string
		detach bool
	}{
		{[]string{"ls\r"}, "ls\r", false},
		{[]string{"~."}, "", true},
		{[]string{"~", "."}, "", true},
		{[]string{"ls\r~.rest"}, "ls\r", true},
		{[]string{"a~.\r"}, "a~.\r", false},
		{[]string{"~~."}, "~.", false},
		{[]string{"~~~."}, "~~.", false},
		{[]string{"~/bin\r"}, "~/bin\r", false},
		{[]string{"cd ~\r", "~x"}, "cd ~\r~x", false},
		{[]string{"~\r~."}, "~\r", true},
	} {
		e := escapes{start: true}
		var sent []byte
		detached := false
		for _, typed := range c.typed {
			out, detach := e.filter([]byte(typed))
			sent = append(sent, out...)
			detached = detached || detach
		}
		if string(sent) != c.send || detached != c.detach {
			t.Errorf("%q: sent %q, detached %v; want %q, %v", c.typed, sent, detached, c.send, c.detach)
		}
	}
}

func TestShellLine(t *testing.T) {
	t.Parallel()
	if got := shellLine([]string{"ls | wc"}); got != "ls | wc" {
		t.Error(got)
	}
	if got := shellLine([]string{"echo", "it's", "$HOME"}); got != `'echo' 'it'\''s' '$HOME'` {
		t.Error(got)
	}
}
