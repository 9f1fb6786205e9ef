package server

import (
	"reflect"
	"testing"

	"github.com/pandastack/pandastack/api"
)

func TestOrigins(t *testing.T) {
	t.Parallel()
	got := Origins(" https://app.example.com/, http://localhost:3000 ,,*")
	if want := []string{"https://app.example.com", "http://localhost:3000", "*"}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if err := (Config{CORSOrigins: got}).Validate(); err != nil {
		t.Error(err)
	}
	for _, wrong := range []string{"app.example.com", "https://app.example.com/page", "https://user@app.example.com", "https://a b", "null", "//x"} {
		if err := (Config{CORSOrigins: []string{wrong}}).Validate(); api.CodeOf(err) != api.CodeInvalidRequest {
			t.Errorf("%q: %v", wrong, err)
		}
	}
}
