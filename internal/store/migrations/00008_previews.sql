-- +goose Up
CREATE TABLE previews (
    sandbox_id TEXT   NOT NULL,
    port       BIGINT NOT NULL,
    visibility TEXT   NOT NULL,
    PRIMARY KEY (sandbox_id, port)
);

-- +goose Down
DROP TABLE previews;
