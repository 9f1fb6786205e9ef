package snapshot

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"errors"
	"fmt"
)

const keySize = 32

// sealOverhead is the nonce and the tag that sealing adds.
const sealOverhead = 12 + 16

// chunkID names a chunk by its content.
type chunkID [sha256.Size]byte

// keys name and seal what goes into the blob store. Without a secret, a chunk's
// name is the digest of its content and nothing is sealed. With one, the name is
// keyed, so that it does not tell who knows a page that it is stored.
type keys struct {
	names []byte
	seals cipher.AEAD // nil: nothing is sealed
}

func newKeys(secret []byte) (*keys, error) {
	if len(secret) == 0 {
		return &keys{}, nil
	}
	names, err := hkdf.Key(sha256.New, secret, nil, "snapshot: names of chunks", keySize)
	if err != nil {
		return nil, err
	}
	seal, err := hkdf.Key(sha256.New, secret, nil, "snapshot: content", keySize)
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(seal)
	if err != nil {
		return nil, err
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		return nil, fmt.Errorf("set up encryption: %w", err)
	}
	return &keys{names: names, seals: aead}, nil
}

func (k *keys) id(data []byte) chunkID {
	if k.names == nil {
		return sha256.Sum256(data)
	}
	h := hmac.New(sha256.New, k.names)
	h.Write(data)
	return chunkID(h.Sum(nil))
}

func (k *keys) sealed() bool { return k.seals != nil }

// seal appends data to dst, sealed where there is a secret. It is bound to what,
// so that it cannot stand in for anything else.
func (k *keys) seal(dst, data, what []byte) []byte {
	if k.seals == nil {
		return append(dst, data...)
	}
	return k.seals.Seal(dst, nil, data, what)
}

var errSeal = errors.New("it does not fit its key")

// open gives what seal was given. It may use the room of data.
func (k *keys) open(data, what []byte) ([]byte, error) {
	if k.seals == nil {
		return data, nil
	}
	if len(data) < sealOverhead {
		return nil, errSeal
	}
	out, err := k.seals.Open(nil, nil, data, what)
	if err != nil {
		return nil, errSeal
	}
	return out, nil
}
