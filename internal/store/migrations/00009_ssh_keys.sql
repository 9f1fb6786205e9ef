-- +goose Up
CREATE TABLE ssh_keys (
    org         TEXT   NOT NULL,
    fingerprint TEXT   NOT NULL,
    name        TEXT   NOT NULL,
    public_key  TEXT   NOT NULL,
    added_by    TEXT   NOT NULL,
    created_at  BIGINT NOT NULL,
    PRIMARY KEY (org, fingerprint)
);
CREATE INDEX ssh_keys_fingerprint ON ssh_keys (fingerprint);

-- +goose Down
DROP TABLE ssh_keys;
