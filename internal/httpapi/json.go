package httpapi

import (
	"encoding/json"
	"net/http"
)

// writeJSON answers where the framework does not.
func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(v) // a client that has gone is no error of ours
}
