-- +goose Up
CREATE TABLE orgs (
    org        TEXT   NOT NULL PRIMARY KEY,
    updated_at BIGINT NOT NULL
);
CREATE TABLE sandboxes (
    id          TEXT   NOT NULL PRIMARY KEY,
    org         TEXT   NOT NULL,
    key_prefix  TEXT   NOT NULL,
    template    TEXT   NOT NULL,
    driver      TEXT   NOT NULL,
    status      TEXT   NOT NULL,
    host        TEXT   NOT NULL,
    spec        TEXT   NOT NULL,
    metadata    TEXT   NOT NULL,
    token       TEXT   NOT NULL,
    guest_ip    TEXT   NOT NULL,
    boot        TEXT   NOT NULL,
    persistent  BIGINT NOT NULL,
    ttl_seconds BIGINT NOT NULL,
    expires_at  BIGINT NOT NULL,
    created_at  BIGINT NOT NULL,
    updated_at  BIGINT NOT NULL,
    error       TEXT   NOT NULL
);
CREATE INDEX sandboxes_page ON sandboxes (org, created_at, id);
CREATE INDEX sandboxes_quota ON sandboxes (org) WHERE status <> 'failed';
CREATE INDEX sandboxes_expiry ON sandboxes (expires_at) WHERE expires_at > 0;

-- A label is a digest of org, key and value: a value may be longer than an
-- index entry of PostgreSQL can be.
CREATE TABLE sandbox_metadata (
    label      TEXT NOT NULL,
    sandbox_id TEXT NOT NULL,
    PRIMARY KEY (label, sandbox_id)
);
CREATE INDEX sandbox_metadata_sandbox ON sandbox_metadata (sandbox_id);

-- +goose Down
DROP TABLE sandbox_metadata;
DROP TABLE sandboxes;
DROP TABLE orgs;
