-- +goose Up
ALTER TABLE sandboxes ADD COLUMN network TEXT NOT NULL DEFAULT '';
ALTER TABLE snapshots ADD COLUMN network TEXT NOT NULL DEFAULT '';

CREATE TABLE networks (
    id         TEXT   NOT NULL PRIMARY KEY,
    org        TEXT   NOT NULL,
    name       TEXT   NOT NULL,
    created_at BIGINT NOT NULL,
    UNIQUE (org, name)
);

-- A name is unique in its network. A member without one is there under its id,
-- which no name can look like.
CREATE TABLE network_members (
    network_id TEXT NOT NULL,
    sandbox_id TEXT NOT NULL,
    name       TEXT NOT NULL,
    PRIMARY KEY (network_id, name),
    UNIQUE (network_id, sandbox_id)
);
CREATE INDEX network_members_sandbox ON network_members (sandbox_id);

-- +goose Down
DROP TABLE network_members;
DROP TABLE networks;
ALTER TABLE snapshots DROP COLUMN network;
ALTER TABLE sandboxes DROP COLUMN network;
