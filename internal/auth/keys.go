package auth

import (
	"context"
	"errors"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/store"
)

// maxName bounds a key's name in bytes.
const maxName = 128

// Create makes a key in the caller's org. Only an admin may. The secret is in
// the answer and nowhere else.
func (k *Keys) Create(ctx context.Context, who Identity, req api.CreateToken) (api.NewToken, error) {
	if !who.Admin {
		return api.NewToken{}, api.Errorf(api.CodeForbidden, "only an admin key may make keys")
	}
	if err := checkName(req.Name); err != nil {
		return api.NewToken{}, err
	}
	// 32 bits are shown of a key: that two agree is rare, and then another is drawn.
	for try := 1; ; try++ {
		digits := newDigits()
		row, err := k.add(ctx, digits, store.Key{Org: who.Org, Name: req.Name, Admin: req.Admin})
		if errors.Is(err, store.ErrConflict) && try < 10 {
			continue
		}
		if err != nil {
			return api.NewToken{}, err
		}
		return api.NewToken{Token: token(row), Key: keyPrefix + digits}, nil
	}
}

// add keeps the key with these digits.
func (k *Keys) add(ctx context.Context, digits string, row store.Key) (store.Key, error) {
	row.Hash, row.Prefix = hash(digits), shown(digits)
	row.CreatedAt = time.Now().UTC().Truncate(time.Microsecond)
	return row, k.store.AddKey(ctx, row)
}

func checkName(name string) error {
	bad := name == "" || len(name) > maxName || !utf8.ValidString(name) || strings.ContainsFunc(name, unicode.IsControl)
	if bad {
		return api.Errorf(api.CodeInvalidRequest, "name must have 1 to %d bytes of text on one line", maxName).With("field", "name")
	}
	return nil
}

// List gives the valid keys that the caller may see: an admin all of its org,
// others their own.
func (k *Keys) List(ctx context.Context, who Identity) (api.TokenList, error) {
	rows, err := k.store.Keys(ctx, who.Org)
	if err != nil {
		return api.TokenList{}, err
	}
	list := api.TokenList{Tokens: []api.Token{}}
	for _, row := range rows {
		if who.Admin || row.Prefix == who.KeyPrefix {
			list.Tokens = append(list.Tokens, token(row))
		}
	}
	return list, nil
}

// Revoke ends a key for good, by what is shown of it: an admin any of its org
// but the last admin key, others their own.
func (k *Keys) Revoke(ctx context.Context, who Identity, prefix string) error {
	notFound := api.Errorf(api.CodeTokenNotFound, "there is no key that starts with %.20q", prefix)
	digits, ok := strings.CutPrefix(prefix, keyPrefix)
	if !ok {
		digits, ok = strings.CutPrefix(prefix, e2bPrefix)
	}
	if !ok || len(digits) != shownDigits || !isHex(digits) {
		return notFound
	}
	prefix = shown(digits)
	if !who.Admin && prefix != who.KeyPrefix {
		return api.Errorf(api.CodeForbidden, "only an admin key may revoke other keys")
	}
	_, err := k.store.RevokeKey(ctx, who.Org, prefix, time.Now())
	if errors.Is(err, store.ErrNotFound) {
		return notFound
	}
	k.cache.forget()
	return err
}

func token(row store.Key) api.Token {
	t := api.Token{Prefix: row.Prefix, Name: row.Name, Admin: row.Admin, CreatedAt: row.CreatedAt}
	if !row.LastUsed.IsZero() {
		t.LastUsed = &row.LastUsed
	}
	return t
}
