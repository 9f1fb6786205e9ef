-- +goose Up
CREATE TABLE snapshots (
    id           TEXT   NOT NULL PRIMARY KEY,
    org          TEXT   NOT NULL,
    name         TEXT   NOT NULL,
    kind         TEXT   NOT NULL,
    sandbox_id   TEXT   NOT NULL,
    parent_id    TEXT   NOT NULL,
    memory       BIGINT NOT NULL,
    template     TEXT   NOT NULL,
    driver       TEXT   NOT NULL,
    host         TEXT   NOT NULL,
    spec         TEXT   NOT NULL,
    size_bytes   BIGINT NOT NULL,
    stored_bytes BIGINT NOT NULL,
    pause_us     BIGINT NOT NULL,
    metadata     TEXT   NOT NULL,
    status       TEXT   NOT NULL,
    expires_at   BIGINT NOT NULL,
    created_at   BIGINT NOT NULL
);
CREATE INDEX snapshots_page ON snapshots (org, created_at, id);
CREATE INDEX snapshots_sandbox ON snapshots (sandbox_id, created_at);
CREATE INDEX snapshots_expiry ON snapshots (expires_at) WHERE expires_at > 0;
CREATE UNIQUE INDEX snapshots_name ON snapshots (org, name) WHERE kind = 'snapshot' AND name <> '';
CREATE UNIQUE INDEX snapshots_checkpoint_name ON snapshots (sandbox_id, name) WHERE kind = 'checkpoint' AND name <> '';

ALTER TABLE sandboxes ADD COLUMN parent_id TEXT NOT NULL DEFAULT '';
ALTER TABLE sandboxes ADD COLUMN tree_id TEXT NOT NULL DEFAULT '';
ALTER TABLE sandboxes ADD COLUMN snapshot_id TEXT NOT NULL DEFAULT '';
ALTER TABLE sandboxes ADD COLUMN idle TEXT NOT NULL DEFAULT '';
ALTER TABLE sandboxes ADD COLUMN checkpoints TEXT NOT NULL DEFAULT '';
CREATE INDEX sandboxes_tree ON sandboxes (tree_id) WHERE tree_id <> '';

-- Where each sandbox came from. A row outlives its sandbox.
CREATE TABLE lineage (
    sandbox_id  TEXT   NOT NULL PRIMARY KEY,
    org         TEXT   NOT NULL,
    root_id     TEXT   NOT NULL,
    parent_id   TEXT   NOT NULL,
    tree_id     TEXT   NOT NULL,
    snapshot_id TEXT   NOT NULL,
    template    TEXT   NOT NULL,
    promoted    BIGINT NOT NULL,
    created_at  BIGINT NOT NULL,
    ended_at    BIGINT NOT NULL
);
CREATE INDEX lineage_root ON lineage (root_id, created_at);
CREATE INDEX lineage_parent ON lineage (parent_id) WHERE parent_id <> '';
CREATE INDEX lineage_tree ON lineage (tree_id) WHERE tree_id <> '';
CREATE INDEX lineage_ended ON lineage (ended_at) WHERE ended_at > 0;
INSERT INTO lineage (sandbox_id, org, root_id, parent_id, tree_id, snapshot_id, template, promoted, created_at, ended_at)
    SELECT id, org, id, '', '', '', template, 0, created_at, 0 FROM sandboxes;

-- +goose Down
DROP TABLE lineage;
DROP INDEX sandboxes_tree;
ALTER TABLE sandboxes DROP COLUMN checkpoints;
ALTER TABLE sandboxes DROP COLUMN idle;
ALTER TABLE sandboxes DROP COLUMN snapshot_id;
ALTER TABLE sandboxes DROP COLUMN tree_id;
ALTER TABLE sandboxes DROP COLUMN parent_id;
DROP TABLE snapshots;
