package guestbin

import (
	"bytes"
	"os"
	"runtime"
	"testing"

	"github.com/pandastack/pandastack/api"
)

func TestBinary(t *testing.T) {
	t.Parallel()
	data, err := Binary()
	if _, serr := os.Stat(Name(runtime.GOARCH)); serr != nil || runtime.GOOS != "linux" {
		if api.CodeOf(err) != api.CodeHostSetup {
			t.Fatalf("without a guest: %v", err)
		}
		return
	}
	if err != nil || !bytes.HasPrefix(data, []byte("\x7fELF")) {
		t.Fatalf("%d bytes, %v", len(data), err)
	}
}
