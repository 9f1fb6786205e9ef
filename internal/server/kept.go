package server

import (
	"bytes"
	"context"
	"encoding/hex"
	"os"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/blob"
	"github.com/pandastack/pandastack/internal/snapshot"
)

// keySize is that of the key of packed snapshots.
const keySize = 32

// openSnapshots opens the store of snapshots on this host's disk and the blob
// store that they are packed into.
func openSnapshots(ctx context.Context, cfg Config) (*snapshot.Store, error) {
	key, err := snapshotKey(cfg)
	if err != nil {
		return nil, err
	}
	blobs, err := blob.Open(ctx, cfg.Blobs, blob.Credentials{
		AccessKey: cfg.BlobsAccessKey, SecretKey: cfg.BlobsSecretKey, SessionToken: cfg.BlobsSessionToken,
	})
	if err != nil {
		return nil, err
	}
	return snapshot.Open(ctx, snapshot.Config{
		Dir: cfg.path("kept"), Blobs: blobs, Key: key, CacheBytes: int64(cfg.SnapshotCacheMB) << 20, Log: cfg.Log,
	})
}

// snapshotKey reads the key of packed snapshots; nil where none is set.
func snapshotKey(cfg Config) ([]byte, error) {
	if cfg.SnapshotKeyFile == "" {
		return nil, nil
	}
	info, err := os.Stat(cfg.SnapshotKeyFile)
	if err == nil && info.Mode().Perm()&0o077 != 0 {
		return nil, invalid("snapshot key file", "%s can be read by others than its owner; set its mode to 0600", cfg.SnapshotKeyFile)
	}
	data, err := os.ReadFile(cfg.SnapshotKeyFile)
	if err != nil {
		return nil, api.Wrap(api.CodeInvalidRequest, err, "the snapshot key file cannot be read: %s", reason(err))
	}
	if len(data) == keySize {
		return data, nil
	}
	key, err := hex.DecodeString(string(bytes.TrimSpace(data)))
	if err != nil || len(key) != keySize {
		return nil, invalid("snapshot key file", "%s holds neither %d bytes nor %d hex digits; make one with: openssl rand -hex 32", cfg.SnapshotKeyFile, keySize, 2*keySize)
	}
	return key, nil
}
