-- +goose Up
CREATE TABLE events (
    id         BIGINT NOT NULL PRIMARY KEY,
    org        TEXT   NOT NULL,
    sandbox_id TEXT   NOT NULL,
    type       TEXT   NOT NULL,
    at         BIGINT NOT NULL,
    data       TEXT   NOT NULL
);
CREATE INDEX events_sandbox ON events (sandbox_id, id);

-- +goose Down
DROP TABLE events;
