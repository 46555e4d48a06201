CREATE TABLE meta (
    name  TEXT PRIMARY KEY,
    value TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE accounts (
    id              INTEGER PRIMARY KEY,
    username        TEXT NOT NULL UNIQUE,
    display_name    TEXT NOT NULL DEFAULT '',
    bio             TEXT NOT NULL DEFAULT '',
    avatar_url      TEXT,
    email           TEXT,
    password_hash   TEXT,
    external_id     TEXT UNIQUE,
    state           INTEGER NOT NULL DEFAULT 0,
    celebrity       INTEGER NOT NULL DEFAULT 0,
    follower_count  INTEGER NOT NULL DEFAULT 0,
    following_count INTEGER NOT NULL DEFAULT 0,
    post_count      INTEGER NOT NULL DEFAULT 0,
    seen_at         INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX accounts_popular ON accounts (follower_count) WHERE follower_count >= 100;
CREATE TABLE sessions (
    account_id INTEGER NOT NULL,
    id         INTEGER NOT NULL,
    token_hash BLOB NOT NULL UNIQUE,
    label      TEXT NOT NULL DEFAULT '',
    used_at    INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    PRIMARY KEY (account_id, id)
) WITHOUT ROWID;
CREATE TABLE api_keys (
    id         INTEGER PRIMARY KEY,
    name       TEXT NOT NULL,
    key_hash   BLOB NOT NULL UNIQUE,
    scopes     TEXT NOT NULL,
    revoked_at INTEGER
);
CREATE TABLE follows (
    follower_id INTEGER NOT NULL,
    followee_id INTEGER NOT NULL,
    created_at  INTEGER NOT NULL,
    PRIMARY KEY (follower_id, followee_id)
) WITHOUT ROWID;
CREATE INDEX follows_back ON follows (followee_id, follower_id);
CREATE TABLE blocks (
    blocker_id INTEGER NOT NULL,
    blocked_id INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (blocker_id, blocked_id)
) WITHOUT ROWID;
CREATE INDEX blocks_back ON blocks (blocked_id, blocker_id);
CREATE TABLE mutes (
    muter_id   INTEGER NOT NULL,
    muted_id   INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (muter_id, muted_id)
) WITHOUT ROWID;
CREATE INDEX mutes_back ON mutes (muted_id, muter_id);
CREATE TABLE posts (
    id            INTEGER PRIMARY KEY,
    author_id     INTEGER NOT NULL,
    caption       TEXT NOT NULL,
    delivery      INTEGER NOT NULL,
    like_count    INTEGER NOT NULL DEFAULT 0,
    comment_count INTEGER NOT NULL DEFAULT 0,
    edited_at     INTEGER,
    deleted_at    INTEGER
);
CREATE INDEX posts_by_author ON posts (author_id, id, delivery, deleted_at);
CREATE INDEX posts_pulled ON posts (author_id, id) WHERE delivery = 1;
CREATE TABLE post_versions (
    post_id     INTEGER NOT NULL,
    replaced_at INTEGER NOT NULL,
    caption     TEXT NOT NULL,
    PRIMARY KEY (post_id, replaced_at)
) WITHOUT ROWID;
CREATE TABLE likes (
    post_id    INTEGER NOT NULL,
    account_id INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (post_id, account_id)
) WITHOUT ROWID;
CREATE INDEX likes_by_account ON likes (account_id, post_id);
CREATE TABLE comments (
    id         INTEGER PRIMARY KEY,
    post_id    INTEGER NOT NULL,
    author_id  INTEGER NOT NULL,
    body       TEXT NOT NULL,
    deleted_at INTEGER
);
CREATE INDEX comments_by_post ON comments (post_id, id);
CREATE INDEX comments_by_author ON comments (author_id, id);
CREATE TABLE outbox (
    id      INTEGER PRIMARY KEY,
    type    TEXT NOT NULL,
    version INTEGER NOT NULL,
    payload TEXT NOT NULL
);
CREATE TABLE idempotency (
    account_id  INTEGER NOT NULL,
    route       TEXT NOT NULL,
    key         TEXT NOT NULL,
    fingerprint BLOB NOT NULL,
    status      INTEGER NOT NULL,
    body        TEXT NOT NULL,
    created_at  INTEGER NOT NULL,
    PRIMARY KEY (account_id, route, key)
) WITHOUT ROWID;
CREATE INDEX idempotency_by_age ON idempotency (created_at);
