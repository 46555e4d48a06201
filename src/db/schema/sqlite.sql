-- The embedded store's tables. The PostgreSQL file differs only in column types and partitions.
-- Ids are 64-bit and time-ordered: the time of creation of a row that has an id is in its id.

CREATE TABLE meta (
    name  TEXT PRIMARY KEY,
    value TEXT NOT NULL
) WITHOUT ROWID;

CREATE TABLE accounts (
    id              INTEGER PRIMARY KEY,
    username        TEXT NOT NULL UNIQUE,           -- always lower case
    display_name    TEXT NOT NULL DEFAULT '',
    bio             TEXT NOT NULL DEFAULT '',
    avatar_url      TEXT,
    email           TEXT,
    password_hash   TEXT,                           -- NULL: no password log-in (JWT, imported)
    external_id     TEXT UNIQUE,                    -- a JWT's sub
    state           INTEGER NOT NULL DEFAULT 0,     -- 0 active, 1 suspended, 2 deleted
    celebrity       INTEGER NOT NULL DEFAULT 0,
    follower_count  INTEGER NOT NULL DEFAULT 0,
    following_count INTEGER NOT NULL DEFAULT 0,
    post_count      INTEGER NOT NULL DEFAULT 0,
    seen_at         INTEGER NOT NULL DEFAULT 0      -- ms, rounded
);
CREATE INDEX accounts_popular ON accounts (follower_count) WHERE follower_count >= 100;

CREATE TABLE sessions (
    account_id INTEGER NOT NULL,
    id         INTEGER NOT NULL,
    token_hash BLOB NOT NULL UNIQUE,
    label      TEXT NOT NULL DEFAULT '',            -- the client's User-Agent
    used_at    INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    PRIMARY KEY (account_id, id)
) WITHOUT ROWID;

CREATE TABLE api_keys (
    id         INTEGER PRIMARY KEY,
    name       TEXT NOT NULL,
    key_hash   BLOB NOT NULL UNIQUE,
    scopes     TEXT NOT NULL,                       -- space-separated
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
    delivery      INTEGER NOT NULL,                 -- 0 push, 1 pull; decided at posting
    like_count    INTEGER NOT NULL DEFAULT 0,
    comment_count INTEGER NOT NULL DEFAULT 0,
    edited_at     INTEGER,
    deleted_at    INTEGER
);
-- With all that a feed's candidates are chosen by, so that merging authors never touches the table.
CREATE INDEX posts_by_author ON posts (author_id, id, delivery, deleted_at);
CREATE INDEX posts_pulled ON posts (author_id, id) WHERE delivery = 1;

-- Earlier captions of an edited post.
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

-- Written in the transaction that makes the fact true; removed when it is settled, the views' saved
-- state covers it and its retention is over. The relay claims by state, through the index of what is
-- pending.
CREATE TABLE outbox (
    id      INTEGER PRIMARY KEY,
    type    TEXT NOT NULL,
    version INTEGER NOT NULL,
    payload TEXT NOT NULL,
    state   INTEGER NOT NULL DEFAULT 0              -- 0 pending, 1 settled, 2 parked
);
CREATE INDEX outbox_pending ON outbox (id) WHERE state = 0;

-- How many events of a type ever came to a state that lasts, for counting without a scan.
CREATE TABLE event_counts (
    type  TEXT NOT NULL,
    state TEXT NOT NULL,                            -- settled, archived
    count INTEGER NOT NULL,
    PRIMARY KEY (type, state)
) WITHOUT ROWID;

-- Deliveries that did not simply succeed: what waits for its next try, waits behind another of its
-- key, is dead, parked, or ended otherwise than at the first try. Healthy deliveries have no row. A row
-- holds the event, too, so it does not need the outbox.
CREATE TABLE deliveries (
    id           INTEGER PRIMARY KEY,
    event_id     INTEGER NOT NULL,
    type         TEXT NOT NULL,
    version      INTEGER NOT NULL,
    payload      TEXT NOT NULL,
    consumer     TEXT NOT NULL,                     -- '' for a parked event
    lane         TEXT NOT NULL,                     -- the lane it failed in, or its rule's own
    order_key    INTEGER NOT NULL,                  -- later ones of this key and lane wait behind it; 0: none do
    part         INTEGER NOT NULL,                  -- which walk of the audience,
    active_since INTEGER NOT NULL,
    started      INTEGER NOT NULL,
    after        INTEGER NOT NULL,                  -- ... where in it,
    until        INTEGER NOT NULL,                  -- and where it ends; 0: at the end
    epoch        INTEGER NOT NULL,                  -- of the views whose positions these are
    state        INTEGER NOT NULL,                  -- 1 delayed 2 retrying 3 waiting 4 dead 5 done 6 discarded 7 dropped 8 parked 9 released
    tries        INTEGER NOT NULL,                  -- failed ones
    due_at       INTEGER NOT NULL,                  -- ms: delayed: the next try; retrying: when the claim ends; done, released: how far all was settled
    opened_at    INTEGER NOT NULL,
    changed_at   INTEGER NOT NULL,
    members      INTEGER NOT NULL DEFAULT 0,        -- reached so far by retries
    replay       INTEGER NOT NULL DEFAULT 0,        -- the replay it belongs to; 0: live
    reason       TEXT NOT NULL,                     -- what groups are made by: an error's name
    detail       TEXT NOT NULL DEFAULT '',          -- the last error in words; why it was discarded
    history      TEXT NOT NULL DEFAULT ''           -- each try: "ms reason\n", the newest few
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

-- How many deliveries there are of each kind, kept by the transactions that change them.
CREATE TABLE delivery_counts (
    consumer TEXT NOT NULL,
    type     TEXT NOT NULL,
    lane     TEXT NOT NULL,
    state    INTEGER NOT NULL,
    reason   TEXT NOT NULL,                         -- of dead and parked ones; '' for all others
    count    INTEGER NOT NULL,
    PRIMARY KEY (consumer, type, lane, state, reason)
) WITHOUT ROWID;

-- Consumers' duplicate memory: a ring of tables by time, so that forgetting is emptying the oldest one.
-- A slot without a row is empty and free. Claims go into a slot that has not ended; it is emptied `keep`
-- after its end.
CREATE TABLE inbox_slots (
    slot  INTEGER PRIMARY KEY,
    since INTEGER NOT NULL,                         -- ms: taken into use
    ends  INTEGER NOT NULL,                         -- ms: no claim after this goes here
    keep  INTEGER NOT NULL                          -- ms: the longest retention while it held claims
);
-- How many entries each consumer has in a slot, kept by the transactions that change them.
CREATE TABLE inbox_counts (
    slot     INTEGER NOT NULL,
    consumer TEXT NOT NULL,
    done     INTEGER NOT NULL,
    unknown  INTEGER NOT NULL,                      -- claimed, not confirmed
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

-- Long work that an operator started: replays and rebuilds. Each goes on after a restart.
CREATE TABLE jobs (
    id         INTEGER PRIMARY KEY,
    kind       TEXT NOT NULL,                       -- replay, rebuild.timelines, rebuild.counters
    state      INTEGER NOT NULL,                    -- 0 running 1 paused 2 done 3 cancelled 4 failed
    spec       TEXT NOT NULL,                       -- JSON: what was asked for
    rate       INTEGER NOT NULL,                    -- a second; 0: no limit
    position   INTEGER NOT NULL,                    -- everything up to here is done
    last       INTEGER NOT NULL,                    -- where it ends
    total      INTEGER NOT NULL,                    -- as planned, for the estimate
    seen       INTEGER NOT NULL DEFAULT 0,
    acted      INTEGER NOT NULL DEFAULT 0,
    repeated   INTEGER NOT NULL DEFAULT 0,          -- suppressed by the inbox
    suppressed INTEGER NOT NULL DEFAULT 0,          -- outside effects that were not allowed
    failed     INTEGER NOT NULL DEFAULT 0,          -- now on the books as deliveries
    created_at INTEGER NOT NULL,
    changed_at INTEGER NOT NULL,
    note       TEXT NOT NULL DEFAULT ''
);
CREATE INDEX jobs_open ON jobs (id) WHERE state <= 1;

-- Other systems that follow our events, each with its own position.
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

-- Who leads. The term is one higher each time that the lease is taken; the beat moves while its holder lives.
CREATE TABLE leases (
    name   TEXT PRIMARY KEY,
    term   INTEGER NOT NULL,                        -- one higher each time that it is taken
    holder INTEGER NOT NULL,                        -- a random number that means a process; 0: it was given back
    beat   INTEGER NOT NULL,                        -- moves while the holder lives
    body   TEXT NOT NULL DEFAULT '',                -- the holder's words to all
    UNIQUE (name, term)
) WITHOUT ROWID;

-- The nodes that use one store. An embedded store is used by one, which needs neither table.
CREATE TABLE nodes (
    number     INTEGER PRIMARY KEY,                 -- it is in every id that the node gives
    token      INTEGER NOT NULL,                    -- a random number that means the node, also over a restart
    roles      INTEGER NOT NULL,                    -- bits: 1 api 2 relay 4 worker 8 gateway
    address    TEXT NOT NULL,                       -- where other nodes reach it
    version    TEXT NOT NULL,
    started_at INTEGER NOT NULL,
    beat       INTEGER NOT NULL,                    -- moves while the node lives
    leaving    INTEGER NOT NULL DEFAULT 0,          -- 1: it is shutting down
    body       TEXT NOT NULL DEFAULT ''             -- its own words
);

-- A group, or a chat of two. Its row orders everything in it: whoever writes takes the next number from here.
CREATE TABLE groups (
    id           INTEGER PRIMARY KEY,
    kind         INTEGER NOT NULL,                  -- 0 group, 1 chat of two
    name         TEXT NOT NULL,                     -- '' of a chat
    history      INTEGER NOT NULL DEFAULT 0,        -- what members may read: 0 from their joining on, 1 all
    created_by   INTEGER NOT NULL,
    seq          INTEGER NOT NULL DEFAULT 0,        -- the last number given
    messages     INTEGER NOT NULL DEFAULT 0,        -- how many of the entries are messages
    member_count INTEGER NOT NULL DEFAULT 0,
    last_id      INTEGER NOT NULL DEFAULT 0,        -- the greatest event id of a message
    last_seq     INTEGER NOT NULL DEFAULT 0         -- the last message's number
);

-- Who is in a group, and who was. Somebody who comes back begins anew.
CREATE TABLE group_members (
    group_id   INTEGER NOT NULL,
    account_id INTEGER NOT NULL,
    role       INTEGER NOT NULL,                    -- 0 owner, 1 admin, 2 member
    joined_seq INTEGER NOT NULL,                    -- the number of the entry that says so
    joined_id  INTEGER NOT NULL,                    -- ... and the id of its event
    left_seq   INTEGER,                             -- the same of the leaving; NULL: is a member
    read_seq   INTEGER NOT NULL,                    -- read up to here
    read_count INTEGER NOT NULL,                    -- ... which is so many messages of the group
    muted      INTEGER NOT NULL DEFAULT 0,
    archived   INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (group_id, account_id)
) WITHOUT ROWID;
-- left_seq, which is always NULL here, is in it so that counting somebody's groups reads nothing else.
CREATE INDEX group_members_of ON group_members (account_id, group_id, left_seq) WHERE left_seq IS NULL;
-- Owner, admins, members, each by joining: the list, and who inherits a group.
CREATE INDEX group_members_rank ON group_members (group_id, role, joined_seq) WHERE left_seq IS NULL;

-- Who may join of their own accord.
CREATE TABLE group_invitations (
    account_id INTEGER NOT NULL,
    group_id   INTEGER NOT NULL,
    invited_by INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (account_id, group_id)
) WITHOUT ROWID;

-- Everything that happened in a group, by number, without a gap. A message is changed and erased where it is; the edit or
-- the deletion is an entry of its own, which has no text: it points at the message.
CREATE TABLE group_log (
    group_id   INTEGER NOT NULL,
    seq        INTEGER NOT NULL,
    kind       INTEGER NOT NULL,                    -- 0 message 1 edit 2 delete 3 moderation 4 join 5 leave 6 rename 7 role 8 history
    author_id  INTEGER NOT NULL,
    client_id  TEXT,                                -- the author's own name for a message
    body       TEXT,                                -- NULL: deleted, or there is none
    target_seq INTEGER,                             -- edit, delete, moderation: of which message
    subject_id INTEGER,                             -- join, leave, role: whom it is about
    messages   INTEGER NOT NULL,                    -- how many there were in the group with this entry
    sent_hash  INTEGER,                             -- of the text as it was sent, when it has a client_id
    created_at INTEGER NOT NULL,
    edited_at  INTEGER,
    edited_seq INTEGER,                             -- the entry of the last edit
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

-- Which chat two people have.
CREATE TABLE chats (
    low_id   INTEGER NOT NULL,
    high_id  INTEGER NOT NULL,
    group_id INTEGER NOT NULL,
    PRIMARY KEY (low_id, high_id)
) WITHOUT ROWID;
