package control

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/auth"
	"github.com/pandastack/pandastack/internal/store"
)

const (
	maxIdempotencyKey = 255
	keepIdempotency   = 24 * time.Hour
)

// CreateOnce makes a sandbox, or gives the one that an earlier create of the org
// with the same key made, for as long as that exists and at least a day. A key
// that was used for another request is refused with request.key_reused.
func (s *Service) CreateOnce(ctx context.Context, who auth.Identity, key string, req api.CreateSandbox) (api.Sandbox, error) {
	if key == "" || len(key) > maxIdempotencyKey || strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return api.Sandbox{}, invalid("Idempotency-Key", "an idempotency key is 1 to %d printable characters without spaces", maxIdempotencyKey)
	}
	body, err := json.Marshal(req)
	if err != nil {
		return api.Sandbox{}, err
	}
	sum := sha256.Sum256(body)
	once := store.Idempotency{Key: key, Request: hex.EncodeToString(sum[:])}
	for range 3 {
		b, err := s.makeSandbox(ctx, who, once, req)
		var taken *store.KeyTaken
		if !errors.As(err, &taken) {
			return b, err
		}
		if taken.Request != once.Request {
			return api.Sandbox{}, api.Errorf(api.CodeKeyReused, "the idempotency key was used for another request").With("sandbox_id", taken.SandboxID)
		}
		b, err = s.made(ctx, who, taken.SandboxID)
		if api.CodeOf(err) != api.CodeSandboxNotFound {
			return b, err
		}
		// The first create has failed meanwhile: this one is it now.
	}
	return api.Sandbox{}, api.Errorf(api.CodeSandboxState, "other creates with the same idempotency key fail and are repeated at this moment")
}

// made gives a sandbox that another create makes or has made.
func (s *Service) made(ctx context.Context, who auth.Identity, id string) (api.Sandbox, error) {
	release, row, err := s.lockRow(ctx, who, id)
	if err != nil {
		return api.Sandbox{}, err
	}
	release()
	return external(&row), nil
}
