package guest

import (
	"testing"

	"github.com/pandastack/pandastack/api"
)

func TestParseCodeEvent(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		`{"type":"number_of_executions","execution_count":3}`:   "start",
		`{"type":"stdout","text":"x","timestamp":1.5}`:          "stdout",
		`{"type":"error","name":"E","value":"","traceback":""}`: "exception",
		`{"type":"end_of_execution"}`:                           "end",
		`{"type":"keepalive"}`:                                  "",
		`{"type":"result","png":5}`:                             "",
		`{"type":"result","text":"1","json":{"a":1}}`:           "result",
	} {
		e, known, err := parseCodeEvent([]byte(line))
		if err != nil || e.Type != want || known != (want != "") {
			t.Errorf("%s: %+v, %v, %v", line, e, known, err)
		}
	}
	if _, _, err := parseCodeEvent([]byte(`[]`)); api.CodeOf(err) != api.CodeInternal {
		t.Errorf("a line that is no event: %v", err)
	}
}

func FuzzParseCodeEvent(f *testing.F) {
	f.Add([]byte(`{"type":"result","text":"1","extra":{"a":[1]}}`))
	f.Add([]byte(`{"type":"number_of_executions","execution_count":-1}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		e, known, err := parseCodeEvent(line)
		if known && (err != nil || e.Type == "") {
			t.Errorf("%q: %+v, %v", line, e, err)
		}
	})
}
