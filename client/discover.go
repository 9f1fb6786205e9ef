package client

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"

	"github.com/pandastack/pandastack/api"
)

// Discover finds the server and the key as the CLI does: the environment
// variables PANDASTACK_API for the address and PANDASTACK_API_KEY, else
// PANDASTACK_TOKEN, for the key, and after them a JSON file with `api` and
// `api_key`. Programs call it with os.Getenv and
// $HOME/.config/pandastack/config.json. A file that does not exist is not an
// error, a damaged one is (request.invalid).
func Discover(getenv func(string) string, configFile string) (Options, error) {
	var o Options
	if configFile != "" {
		f, err := ReadConfig(configFile)
		if err != nil {
			return Options{}, err
		}
		o.BaseURL, o.APIKey = f.API, f.APIKey
	}
	if v := getenv(api.EnvBaseURL); v != "" {
		o.BaseURL = v
	}
	for _, name := range []string{api.EnvToken, api.EnvAPIKey} {
		if v := getenv(name); v != "" {
			o.APIKey = v
		}
	}
	return o, nil
}

// Config is the file that `pandastack auth login` writes.
type Config struct {
	API    string `json:"api,omitempty"`
	APIKey string `json:"api_key,omitempty"`
}

// ReadConfig reads a config file; one that does not exist is empty. Beside
// Config's own names it knows the other spellings in use: api_url, apiUrl and
// base_url for the address, token and apiKey for the key.
func ReadConfig(path string) (Config, error) {
	raw, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Config{}, nil
	}
	if err != nil {
		return Config{}, api.Wrap(api.CodeInvalidRequest, err, "the config file %s cannot be read", path)
	}
	var in map[string]any
	if err := json.Unmarshal(raw, &in); err != nil {
		return Config{}, api.Wrap(api.CodeInvalidRequest, err, "the config file %s is not JSON", path).
			WithHint("Correct it, or remove it and run `pandastack auth login`.")
	}
	first := func(names ...string) string {
		for _, n := range names {
			if s, ok := in[n].(string); ok && s != "" {
				return s
			}
		}
		return ""
	}
	return Config{
		API:    first("api", "api_url", "apiUrl", "base_url"),
		APIKey: first("api_key", "apiKey", "token"),
	}, nil
}
