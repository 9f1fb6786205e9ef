-- +goose Up
CREATE TABLE idempotency (
    org        TEXT   NOT NULL,
    key        TEXT   NOT NULL,
    request    TEXT   NOT NULL,
    sandbox_id TEXT   NOT NULL,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (org, key)
);

-- +goose Down
DROP TABLE idempotency;
