package client_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/client"
)

// TestFamilies checks that errors.Is finds the family of a failure, be it the
// server's or this side's.
func TestFamilies(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusTooManyRequests)
		w.Write([]byte(`{"error": {"code": "quota.vcpu_exceeded", "message": "too many"}}`))
	}))
	defer server.Close()
	ask := func(url string) error {
		c, err := client.New(client.Options{BaseURL: url, Retries: -1})
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.Sandboxes.Create(t.Context(), api.CreateSandbox{})
		return err
	}
	if err := ask(server.URL); !errors.Is(err, client.ErrQuota) || errors.Is(err, client.ErrCapacity) {
		t.Errorf("%v is no ErrQuota alone", err)
	}
	server.Close()
	if err := ask(server.URL); !errors.Is(err, client.ErrConnection) || errors.Is(err, client.ErrServer) {
		t.Errorf("%v is no ErrConnection alone", err)
	}
}
