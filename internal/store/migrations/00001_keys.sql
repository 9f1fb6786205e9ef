-- +goose Up
CREATE TABLE keys (
    hash       TEXT   NOT NULL PRIMARY KEY,
    prefix     TEXT   NOT NULL UNIQUE,
    org        TEXT   NOT NULL,
    name       TEXT   NOT NULL,
    admin      BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    last_used  BIGINT NOT NULL DEFAULT 0,
    revoked_at BIGINT NOT NULL DEFAULT 0
);
CREATE INDEX keys_org ON keys (org, created_at);

-- +goose Down
DROP TABLE keys;
