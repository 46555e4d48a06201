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
    payload TEXT NOT NULL,
    state   INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX outbox_pending ON outbox (id) WHERE state = 0;
CREATE TABLE event_counts (
    type  TEXT NOT NULL,
    state TEXT NOT NULL,
    count INTEGER NOT NULL,
    PRIMARY KEY (type, state)
) WITHOUT ROWID;
CREATE TABLE deliveries (
    id           INTEGER PRIMARY KEY,
    event_id     INTEGER NOT NULL,
    type         TEXT NOT NULL,
    version      INTEGER NOT NULL,
    payload      TEXT NOT NULL,
    consumer     TEXT NOT NULL,
    lane         TEXT NOT NULL,
    order_key    INTEGER NOT NULL,
    part         INTEGER NOT NULL,
    active_since INTEGER NOT NULL,
    started      INTEGER NOT NULL,
    after        INTEGER NOT NULL,
    until        INTEGER NOT NULL,
    epoch        INTEGER NOT NULL,
    state        INTEGER NOT NULL,
    tries        INTEGER NOT NULL,
    due_at       INTEGER NOT NULL,
    opened_at    INTEGER NOT NULL,
    changed_at   INTEGER NOT NULL,
    members      INTEGER NOT NULL DEFAULT 0,
    replay       INTEGER NOT NULL DEFAULT 0,
    reason       TEXT NOT NULL,
    detail       TEXT NOT NULL DEFAULT '',
    history      TEXT NOT NULL DEFAULT ''
);
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
    consumer TEXT NOT NULL,
    type     TEXT NOT NULL,
    lane     TEXT NOT NULL,
    state    INTEGER NOT NULL,
    reason   TEXT NOT NULL,
    count    INTEGER NOT NULL,
    PRIMARY KEY (consumer, type, lane, state, reason)
) WITHOUT ROWID;
CREATE TABLE inbox_slots (
    slot  INTEGER PRIMARY KEY,
    since INTEGER NOT NULL,
    ends  INTEGER NOT NULL,
    keep  INTEGER NOT NULL
);
CREATE TABLE inbox_counts (
    slot     INTEGER NOT NULL,
    consumer TEXT NOT NULL,
    done     INTEGER NOT NULL,
    unknown  INTEGER NOT NULL,
    PRIMARY KEY (slot, consumer)
) WITHOUT ROWID;
CREATE TABLE inbox_0 (consumer TEXT NOT NULL, key TEXT NOT NULL, state INTEGER NOT NULL, at INTEGER NOT NULL, PRIMARY KEY (consumer, key)) WITHOUT ROWID;
CREATE TABLE inbox_1 (consumer TEXT NOT NULL, key TEXT NOT NULL, state INTEGER NOT NULL, at INTEGER NOT NULL, PRIMARY KEY (consumer, key)) WITHOUT ROWID;
CREATE TABLE inbox_2 (consumer TEXT NOT NULL, key TEXT NOT NULL, state INTEGER NOT NULL, at INTEGER NOT NULL, PRIMARY KEY (consumer, key)) WITHOUT ROWID;
CREATE TABLE inbox_3 (consumer TEXT NOT NULL, key TEXT NOT NULL, state INTEGER NOT NULL, at INTEGER NOT NULL, PRIMARY KEY (consumer, key)) WITHOUT ROWID;
CREATE TABLE inbox_4 (consumer TEXT NOT NULL, key TEXT NOT NULL, state INTEGER NOT NULL, at INTEGER NOT NULL, PRIMARY KEY (consumer, key)) WITHOUT ROWID;
CREATE TABLE inbox_5 (consumer TEXT NOT NULL, key TEXT NOT NULL, state INTEGER NOT NULL, at INTEGER NOT NULL, PRIMARY KEY (consumer, key)) WITHOUT ROWID;
CREATE TABLE inbox_6 (consumer TEXT NOT NULL, key TEXT NOT NULL, state INTEGER NOT NULL, at INTEGER NOT NULL, PRIMARY KEY (consumer, key)) WITHOUT ROWID;
CREATE TABLE inbox_7 (consumer TEXT NOT NULL, key TEXT NOT NULL, state INTEGER NOT NULL, at INTEGER NOT NULL, PRIMARY KEY (consumer, key)) WITHOUT ROWID;
CREATE TABLE jobs (
    id         INTEGER PRIMARY KEY,
    kind       TEXT NOT NULL,
    state      INTEGER NOT NULL,
    spec       TEXT NOT NULL,
    rate       INTEGER NOT NULL,
    position   INTEGER NOT NULL,
    last       INTEGER NOT NULL,
    total      INTEGER NOT NULL,
    seen       INTEGER NOT NULL DEFAULT 0,
    acted      INTEGER NOT NULL DEFAULT 0,
    repeated   INTEGER NOT NULL DEFAULT 0,
    suppressed INTEGER NOT NULL DEFAULT 0,
    failed     INTEGER NOT NULL DEFAULT 0,
    created_at INTEGER NOT NULL,
    changed_at INTEGER NOT NULL,
    note       TEXT NOT NULL DEFAULT ''
);
CREATE INDEX jobs_open ON jobs (id) WHERE state <= 1;
CREATE TABLE subscribers (
    name       TEXT PRIMARY KEY,
    position   INTEGER NOT NULL,
    changed_at INTEGER NOT NULL,
    created_at INTEGER NOT NULL
) WITHOUT ROWID;
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
CREATE TABLE leases (
    name   TEXT PRIMARY KEY,
    term   INTEGER NOT NULL,
    holder INTEGER NOT NULL,
    beat   INTEGER NOT NULL,
    body   TEXT NOT NULL DEFAULT '',
    UNIQUE (name, term)
) WITHOUT ROWID;
CREATE TABLE nodes (
    number     INTEGER PRIMARY KEY,
    token      INTEGER NOT NULL,
    roles      INTEGER NOT NULL,
    address    TEXT NOT NULL,
    version    TEXT NOT NULL,
    started_at INTEGER NOT NULL,
    beat       INTEGER NOT NULL,
    leaving    INTEGER NOT NULL DEFAULT 0,
    body       TEXT NOT NULL DEFAULT ''
);
CREATE TABLE groups (
    id           INTEGER PRIMARY KEY,
    kind         INTEGER NOT NULL,
    name         TEXT NOT NULL,
    history      INTEGER NOT NULL DEFAULT 0,
    created_by   INTEGER NOT NULL,
    seq          INTEGER NOT NULL DEFAULT 0,
    messages     INTEGER NOT NULL DEFAULT 0,
    member_count INTEGER NOT NULL DEFAULT 0,
    last_id      INTEGER NOT NULL DEFAULT 0,
    last_seq     INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE group_members (
    group_id   INTEGER NOT NULL,
    account_id INTEGER NOT NULL,
    role       INTEGER NOT NULL,
    joined_seq INTEGER NOT NULL,
    joined_id  INTEGER NOT NULL,
    left_seq   INTEGER,
    read_seq   INTEGER NOT NULL,
    read_count INTEGER NOT NULL,
    muted      INTEGER NOT NULL DEFAULT 0,
    archived   INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (group_id, account_id)
) WITHOUT ROWID;
CREATE INDEX group_members_of ON group_members (account_id, group_id, left_seq) WHERE left_seq IS NULL;
CREATE INDEX group_members_rank ON group_members (group_id, role, joined_seq) WHERE left_seq IS NULL;
CREATE TABLE group_invitations (
    account_id INTEGER NOT NULL,
    group_id   INTEGER NOT NULL,
    invited_by INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (account_id, group_id)
) WITHOUT ROWID;
CREATE TABLE group_log (
    group_id   INTEGER NOT NULL,
    seq        INTEGER NOT NULL,
    kind       INTEGER NOT NULL,
    author_id  INTEGER NOT NULL,
    client_id  TEXT,
    body       TEXT,
    target_seq INTEGER,
    subject_id INTEGER,
    messages   INTEGER NOT NULL,
    sent_hash  INTEGER,
    created_at INTEGER NOT NULL,
    edited_at  INTEGER,
    edited_seq INTEGER,
    deleted_at INTEGER,
    PRIMARY KEY (group_id, seq)
) WITHOUT ROWID;
CREATE UNIQUE INDEX group_log_sent ON group_log (group_id, author_id, client_id) WHERE client_id IS NOT NULL;
CREATE TABLE group_mentions (
    account_id INTEGER NOT NULL,
    group_id   INTEGER NOT NULL,
    seq        INTEGER NOT NULL,
    PRIMARY KEY (account_id, group_id, seq)
) WITHOUT ROWID;
CREATE INDEX group_mentions_in ON group_mentions (group_id, seq, account_id);
CREATE TABLE chats (
    low_id   INTEGER NOT NULL,
    high_id  INTEGER NOT NULL,
    group_id INTEGER NOT NULL,
    PRIMARY KEY (low_id, high_id)
) WITHOUT ROWID;
