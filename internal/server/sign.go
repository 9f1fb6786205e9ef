package server

import (
	"context"
	"crypto/rand"
	"encoding/hex"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/store"
)

// signSecret gives what signed URLs are made with: one secret for all servers
// of a database, made by the first.
func signSecret(ctx context.Context, s *store.Store) ([]byte, error) {
	var fresh [32]byte
	rand.Read(fresh[:])
	text, err := s.Setting(ctx, "sign_secret", hex.EncodeToString(fresh[:]))
	if err != nil {
		return nil, err
	}
	secret, err := hex.DecodeString(text)
	if err != nil || len(secret) != len(fresh) {
		return nil, api.Errorf(api.CodeStoreCorrupt, "the secret of signed URLs in the database is damaged")
	}
	return secret, nil
}
