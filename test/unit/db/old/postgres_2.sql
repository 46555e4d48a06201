CREATE TABLE meta (
    name  TEXT COLLATE "C" PRIMARY KEY,
    value TEXT COLLATE "C" NOT NULL
) WITH (fillfactor = 50);
CREATE UNLOGGED TABLE server_life (
    one BIGINT PRIMARY KEY,
    id  BIGINT NOT NULL
);
CREATE TABLE accounts (
    id              BIGINT PRIMARY KEY,
    username        TEXT COLLATE "C" NOT NULL UNIQUE,
    display_name    TEXT COLLATE "C" NOT NULL DEFAULT '',
    bio             TEXT COLLATE "C" NOT NULL DEFAULT '',
    avatar_url      TEXT COLLATE "C",
    email           TEXT COLLATE "C",
    password_hash   TEXT COLLATE "C",
    external_id     TEXT COLLATE "C" UNIQUE,
    state           BIGINT NOT NULL DEFAULT 0,
    celebrity       BIGINT NOT NULL DEFAULT 0,
    follower_count  BIGINT NOT NULL DEFAULT 0,
    following_count BIGINT NOT NULL DEFAULT 0,
    post_count      BIGINT NOT NULL DEFAULT 0,
    seen_at         BIGINT NOT NULL DEFAULT 0
) WITH (fillfactor = 80);
CREATE INDEX accounts_popular ON accounts (follower_count) WHERE follower_count >= 100;
CREATE TABLE sessions (
    account_id BIGINT NOT NULL,
    id         BIGINT NOT NULL,
    token_hash BYTEA NOT NULL UNIQUE,
    label      TEXT COLLATE "C" NOT NULL DEFAULT '',
    used_at    BIGINT NOT NULL,
    expires_at BIGINT NOT NULL,
    PRIMARY KEY (account_id, id)
) WITH (fillfactor = 80);
CREATE INDEX sessions_by_id ON sessions (id);
CREATE TABLE api_keys (
    id         BIGINT PRIMARY KEY,
    name       TEXT COLLATE "C" NOT NULL,
    key_hash   BYTEA NOT NULL UNIQUE,
    scopes     TEXT COLLATE "C" NOT NULL,
    revoked_at BIGINT
);
CREATE TABLE follows (
    follower_id BIGINT NOT NULL,
    followee_id BIGINT NOT NULL,
    created_at  BIGINT NOT NULL,
    PRIMARY KEY (follower_id, followee_id)
);
CREATE INDEX follows_back ON follows (followee_id, follower_id);
CREATE TABLE blocks (
    blocker_id BIGINT NOT NULL,
    blocked_id BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (blocker_id, blocked_id)
);
CREATE INDEX blocks_back ON blocks (blocked_id, blocker_id);
CREATE TABLE mutes (
    muter_id   BIGINT NOT NULL,
    muted_id   BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (muter_id, muted_id)
);
CREATE INDEX mutes_back ON mutes (muted_id, muter_id);
CREATE TABLE posts (
    id            BIGINT PRIMARY KEY,
    author_id     BIGINT NOT NULL,
    caption       TEXT COLLATE "C" NOT NULL,
    delivery      BIGINT NOT NULL,
    like_count    BIGINT NOT NULL DEFAULT 0,
    comment_count BIGINT NOT NULL DEFAULT 0,
    edited_at     BIGINT,
    deleted_at    BIGINT
) WITH (fillfactor = 85);
CREATE INDEX posts_by_author ON posts (author_id, id, delivery, deleted_at);
CREATE INDEX posts_pulled ON posts (author_id, id) WHERE delivery = 1;
CREATE TABLE post_versions (
    post_id     BIGINT NOT NULL,
    replaced_at BIGINT NOT NULL,
    caption     TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (post_id, replaced_at)
);
CREATE TABLE likes (
    post_id    BIGINT NOT NULL,
    account_id BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (post_id, account_id)
);
CREATE INDEX likes_by_account ON likes (account_id, post_id);
CREATE TABLE comments (
    id         BIGINT PRIMARY KEY,
    post_id    BIGINT NOT NULL,
    author_id  BIGINT NOT NULL,
    body       TEXT COLLATE "C" NOT NULL,
    deleted_at BIGINT
);
CREATE INDEX comments_by_post ON comments (post_id, id);
CREATE INDEX comments_by_author ON comments (author_id, id);
CREATE TABLE outbox (
    id      BIGINT PRIMARY KEY,
    type    TEXT COLLATE "C" NOT NULL,
    version BIGINT NOT NULL,
    payload TEXT COLLATE "C" NOT NULL,
    state   BIGINT NOT NULL DEFAULT 0
) WITH (fillfactor = 85, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_insert_scale_factor = 0.1);
CREATE INDEX outbox_pending ON outbox (id) WHERE state = 0;
CREATE TABLE event_counts (
    type  TEXT COLLATE "C" NOT NULL,
    state TEXT COLLATE "C" NOT NULL,
    count BIGINT NOT NULL,
    PRIMARY KEY (type, state)
) WITH (fillfactor = 50);
CREATE TABLE deliveries (
    id           BIGINT PRIMARY KEY,
    event_id     BIGINT NOT NULL,
    type         TEXT COLLATE "C" NOT NULL,
    version      BIGINT NOT NULL,
    payload      TEXT COLLATE "C" NOT NULL,
    consumer     TEXT COLLATE "C" NOT NULL,
    lane         TEXT COLLATE "C" NOT NULL,
    order_key    BIGINT NOT NULL,
    part         BIGINT NOT NULL,
    active_since BIGINT NOT NULL,
    started      BIGINT NOT NULL,
    after        BIGINT NOT NULL,
    until        BIGINT NOT NULL,
    epoch        BIGINT NOT NULL,
    state        BIGINT NOT NULL,
    tries        BIGINT NOT NULL,
    due_at       BIGINT NOT NULL,
    opened_at    BIGINT NOT NULL,
    changed_at   BIGINT NOT NULL,
    members      BIGINT NOT NULL DEFAULT 0,
    replay       BIGINT NOT NULL DEFAULT 0,
    reason       TEXT COLLATE "C" NOT NULL,
    detail       TEXT COLLATE "C" NOT NULL DEFAULT '',
    history      TEXT COLLATE "C" NOT NULL DEFAULT ''
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02);
CREATE UNIQUE INDEX deliveries_what ON deliveries (event_id, consumer, part, after, replay);
CREATE INDEX deliveries_due ON deliveries (due_at, id) WHERE state IN (1, 2);
CREATE INDEX deliveries_delayed ON deliveries (id) WHERE state = 1;
CREATE INDEX deliveries_retrying ON deliveries (id) WHERE state = 2;
CREATE INDEX deliveries_state ON deliveries (state, id) WHERE state >= 3;
CREATE INDEX deliveries_open ON deliveries (consumer, type, lane, event_id) WHERE state <= 2;
CREATE INDEX deliveries_key ON deliveries (lane, order_key, event_id, id) WHERE order_key <> 0 AND state <= 4;
CREATE INDEX deliveries_turn ON deliveries (lane, order_key, state) WHERE order_key <> 0 AND state IN (1, 2);
CREATE INDEX deliveries_reason ON deliveries (state, reason, id) WHERE state IN (4, 8);
CREATE INDEX deliveries_group ON deliveries (state, reason, consumer, type, event_id) WHERE state IN (4, 8);
CREATE INDEX deliveries_opened ON deliveries (state, opened_at) WHERE state IN (4, 8);
CREATE INDEX deliveries_closed ON deliveries (changed_at) WHERE state IN (5, 6, 7, 9);
CREATE INDEX deliveries_late ON deliveries (state, due_at) WHERE state IN (5, 9);
CREATE TABLE delivery_counts (
    consumer TEXT COLLATE "C" NOT NULL,
    type     TEXT COLLATE "C" NOT NULL,
    lane     TEXT COLLATE "C" NOT NULL,
    state    BIGINT NOT NULL,
    reason   TEXT COLLATE "C" NOT NULL,
    count    BIGINT NOT NULL,
    PRIMARY KEY (consumer, type, lane, state, reason)
) WITH (fillfactor = 50);
CREATE TABLE inbox_slots (
    slot  BIGINT PRIMARY KEY,
    since BIGINT NOT NULL,
    ends  BIGINT NOT NULL,
    keep  BIGINT NOT NULL
);
CREATE TABLE inbox_counts (
    slot     BIGINT NOT NULL,
    consumer TEXT COLLATE "C" NOT NULL,
    done     BIGINT NOT NULL,
    unknown  BIGINT NOT NULL,
    PRIMARY KEY (slot, consumer)
) WITH (fillfactor = 50);
CREATE TABLE inbox_0 (consumer TEXT COLLATE "C" NOT NULL, key TEXT COLLATE "C" NOT NULL, state BIGINT NOT NULL, at BIGINT NOT NULL, PRIMARY KEY (consumer, key));
CREATE TABLE inbox_1 (consumer TEXT COLLATE "C" NOT NULL, key TEXT COLLATE "C" NOT NULL, state BIGINT NOT NULL, at BIGINT NOT NULL, PRIMARY KEY (consumer, key));
CREATE TABLE inbox_2 (consumer TEXT COLLATE "C" NOT NULL, key TEXT COLLATE "C" NOT NULL, state BIGINT NOT NULL, at BIGINT NOT NULL, PRIMARY KEY (consumer, key));
CREATE TABLE inbox_3 (consumer TEXT COLLATE "C" NOT NULL, key TEXT COLLATE "C" NOT NULL, state BIGINT NOT NULL, at BIGINT NOT NULL, PRIMARY KEY (consumer, key));
CREATE TABLE inbox_4 (consumer TEXT COLLATE "C" NOT NULL, key TEXT COLLATE "C" NOT NULL, state BIGINT NOT NULL, at BIGINT NOT NULL, PRIMARY KEY (consumer, key));
CREATE TABLE inbox_5 (consumer TEXT COLLATE "C" NOT NULL, key TEXT COLLATE "C" NOT NULL, state BIGINT NOT NULL, at BIGINT NOT NULL, PRIMARY KEY (consumer, key));
CREATE TABLE inbox_6 (consumer TEXT COLLATE "C" NOT NULL, key TEXT COLLATE "C" NOT NULL, state BIGINT NOT NULL, at BIGINT NOT NULL, PRIMARY KEY (consumer, key));
CREATE TABLE inbox_7 (consumer TEXT COLLATE "C" NOT NULL, key TEXT COLLATE "C" NOT NULL, state BIGINT NOT NULL, at BIGINT NOT NULL, PRIMARY KEY (consumer, key));
CREATE TABLE jobs (
    id         BIGINT PRIMARY KEY,
    kind       TEXT COLLATE "C" NOT NULL,
    state      BIGINT NOT NULL,
    spec       TEXT COLLATE "C" NOT NULL,
    rate       BIGINT NOT NULL,
    position   BIGINT NOT NULL,
    last       BIGINT NOT NULL,
    total      BIGINT NOT NULL,
    seen       BIGINT NOT NULL DEFAULT 0,
    acted      BIGINT NOT NULL DEFAULT 0,
    repeated   BIGINT NOT NULL DEFAULT 0,
    suppressed BIGINT NOT NULL DEFAULT 0,
    failed     BIGINT NOT NULL DEFAULT 0,
    created_at BIGINT NOT NULL,
    changed_at BIGINT NOT NULL,
    note       TEXT COLLATE "C" NOT NULL DEFAULT ''
) WITH (fillfactor = 50);
CREATE INDEX jobs_open ON jobs (id) WHERE state <= 1;
CREATE TABLE subscribers (
    name       TEXT COLLATE "C" PRIMARY KEY,
    position   BIGINT NOT NULL,
    changed_at BIGINT NOT NULL,
    created_at BIGINT NOT NULL
) WITH (fillfactor = 50);
CREATE TABLE idempotency (
    account_id  BIGINT NOT NULL,
    route       TEXT COLLATE "C" NOT NULL,
    key         TEXT COLLATE "C" NOT NULL,
    fingerprint BYTEA NOT NULL,
    status      BIGINT NOT NULL,
    body        TEXT COLLATE "C" NOT NULL,
    created_at  BIGINT NOT NULL,
    PRIMARY KEY (account_id, route, key)
);
CREATE INDEX idempotency_by_age ON idempotency (created_at);
