// Package auth says who is calling: API keys, checked against their hashes in
// the store.
//
// A key is a prefix and 40 lower-case hex digits. The prefix says which dialect
// a client speaks and nothing else: pds_ and e2b_ before the same digits are
// the same key. The store has SHA-256 of the digits, which needs no salt and no
// slow hash because 160 random bits cannot be guessed.
package auth

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"log/slog"
	"strings"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/store"
)

// DefaultOrg is the workspace of the key that the first start makes.
const DefaultOrg = "default"

const (
	keyPrefix    = "pds_"
	e2bPrefix    = "e2b_"
	secretDigits = 40
	shownDigits  = 8
)

// Identity is a caller.
type Identity struct {
	Org       string
	KeyPrefix string // what users see of the key: pds_ and 8 digits
	Name      string // of the key
	Admin     bool   // may manage keys
}

// Keys checks and manages API keys. Its methods may be called concurrently.
type Keys struct {
	store *store.Store
	log   *slog.Logger
	cache cache
	used  usage
}

// NewKeys gives the keys of a store.
func NewKeys(s *store.Store, log *slog.Logger) *Keys { return &Keys{store: s, log: log} }

// Run writes when keys were used last, in batches, until ctx ends, and what is
// left over then.
func (k *Keys) Run(ctx context.Context) error {
	ticker := time.NewTicker(flushEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			k.flush(ctx)
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
			defer cancel()
			k.flush(last)
			return nil
		}
	}
}

// Authenticate finds who holds a key. It fails with auth.invalid_token or
// auth.token_revoked. An answer is remembered for 30 s, so that a busy client
// costs no query; a key revoked in this process is refused at once, one revoked
// in another process within that time.
func (k *Keys) Authenticate(ctx context.Context, secret string) (Identity, error) {
	digits, ok := parse(secret)
	if !ok {
		return Identity{}, api.Errorf(api.CodeInvalidToken, "the API key is missing or malformed: it is pds_ and 40 lower-case hex digits")
	}
	sum := sha256.Sum256([]byte(digits))
	now := time.Now()
	if id, ok := k.cache.get(sum, now); ok {
		k.used.note(sum, now)
		return id, nil
	}
	generation := k.cache.current()
	row, err := k.store.KeyByHash(ctx, hex.EncodeToString(sum[:]))
	switch {
	case errors.Is(err, store.ErrNotFound):
		return Identity{}, api.Errorf(api.CodeInvalidToken, "the API key is not known here")
	case err != nil:
		return Identity{}, err
	case !row.RevokedAt.IsZero():
		return Identity{}, api.Errorf(api.CodeTokenRevoked, "the API key %s was revoked", row.Prefix)
	}
	id := Identity{Org: row.Org, KeyPrefix: row.Prefix, Name: row.Name, Admin: row.Admin}
	k.cache.put(sum, id, now, generation)
	k.used.note(sum, now)
	return id, nil
}

// parse gives the digits of a key in either dialect.
func parse(secret string) (digits string, ok bool) {
	digits, ok = strings.CutPrefix(secret, keyPrefix)
	if !ok {
		digits, ok = strings.CutPrefix(secret, e2bPrefix)
	}
	return digits, ok && len(digits) == secretDigits && isHex(digits)
}

func isHex(s string) bool {
	for i := range len(s) {
		if c := s[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

func newDigits() string {
	var b [secretDigits / 2]byte
	rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

func hash(digits string) string {
	sum := sha256.Sum256([]byte(digits))
	return hex.EncodeToString(sum[:])
}

func shown(digits string) string { return keyPrefix + digits[:shownDigits] }
