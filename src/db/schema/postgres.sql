-- The tables in PostgreSQL. They are those of sqlite.sql, column by column (a test compares the two), but for types and
-- storage: every number is a BIGINT; text compares by bytes, as it does in SQLite, whatever the database's language is.
-- Rows that are updated often leave room on their pages (fillfactor), so that an update need not touch the indexes:
-- that is less to write, and serializable transactions that read the same index pages do not get in each other's way.
-- Ids are 64-bit and time-ordered: the time of creation of a row that has an id is in its id.

CREATE TABLE meta (
    name  TEXT COLLATE "C" PRIMARY KEY,
    value TEXT COLLATE "C" NOT NULL
) WITH (fillfactor = 50);

-- PostgreSQL's alone. An unlogged table is empty after a crash of the server, and after a failover: who finds another
-- number here than before knows that transaction ids of before may have been given away again.
CREATE UNLOGGED TABLE server_life (
    one BIGINT PRIMARY KEY,
    id  BIGINT NOT NULL
);

CREATE TABLE accounts (
    id              BIGINT PRIMARY KEY,
    username        TEXT COLLATE "C" NOT NULL UNIQUE, -- always lower case
    display_name    TEXT COLLATE "C" NOT NULL DEFAULT '',
    bio             TEXT COLLATE "C" NOT NULL DEFAULT '',
    avatar_url      TEXT COLLATE "C",
    email           TEXT COLLATE "C",
    password_hash   TEXT COLLATE "C",               -- NULL: no password log-in (JWT, imported)
    external_id     TEXT COLLATE "C" UNIQUE,        -- a JWT's sub
    state           BIGINT NOT NULL DEFAULT 0,      -- 0 active, 1 suspended, 2 deleted
    celebrity       BIGINT NOT NULL DEFAULT 0,
    follower_count  BIGINT NOT NULL DEFAULT 0,
    following_count BIGINT NOT NULL DEFAULT 0,
    post_count      BIGINT NOT NULL DEFAULT 0,
    seen_at         BIGINT NOT NULL DEFAULT 0       -- ms, rounded
) WITH (fillfactor = 80);
CREATE INDEX accounts_popular ON accounts (follower_count) WHERE follower_count >= 100;

CREATE TABLE sessions (
    account_id BIGINT NOT NULL,
    id         BIGINT NOT NULL,
    token_hash BYTEA NOT NULL UNIQUE,
    label      TEXT COLLATE "C" NOT NULL DEFAULT '', -- the client's User-Agent
    used_at    BIGINT NOT NULL,
    expires_at BIGINT NOT NULL,
    PRIMARY KEY (account_id, id)
) WITH (fillfactor = 80);
-- SQLite scans for the highest id at its start; here that would be too slow.
CREATE INDEX sessions_by_id ON sessions (id);

CREATE TABLE api_keys (
    id         BIGINT PRIMARY KEY,
    name       TEXT COLLATE "C" NOT NULL,
    key_hash   BYTEA NOT NULL UNIQUE,
    scopes     TEXT COLLATE "C" NOT NULL,           -- space-separated
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
    delivery      BIGINT NOT NULL,                  -- 0 push, 1 pull; decided at posting
    like_count    BIGINT NOT NULL DEFAULT 0,
    comment_count BIGINT NOT NULL DEFAULT 0,
    edited_at     BIGINT,
    deleted_at    BIGINT
) WITH (fillfactor = 85);
-- With all that a feed's candidates are chosen by, so that merging authors never touches the table.
CREATE INDEX posts_by_author ON posts (author_id, id, delivery, deleted_at);
CREATE INDEX posts_pulled ON posts (author_id, id) WHERE delivery = 1;

-- Earlier captions of an edited post.
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

-- Written in the transaction that makes the fact true; removed when it is settled, the views' saved
-- state covers it and its retention is over. The relay claims by state, through the index of what is
-- pending.
CREATE TABLE outbox (
    id      BIGINT PRIMARY KEY,
    type    TEXT COLLATE "C" NOT NULL,
    version BIGINT NOT NULL,
    payload TEXT COLLATE "C" NOT NULL,
    state   BIGINT NOT NULL DEFAULT 0               -- 0 pending, 1 settled, 2 parked
) WITH (fillfactor = 85, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_insert_scale_factor = 0.1);
CREATE INDEX outbox_pending ON outbox (id) WHERE state = 0;

-- How many events of a type ever came to a state that lasts, for counting without a scan.
CREATE TABLE event_counts (
    type  TEXT COLLATE "C" NOT NULL,
    state TEXT COLLATE "C" NOT NULL,                -- settled, archived
    count BIGINT NOT NULL,
    PRIMARY KEY (type, state)
) WITH (fillfactor = 50);

-- Deliveries that did not simply succeed: what waits for its next try, waits behind another of its
-- key, is dead, parked, or ended otherwise than at the first try. Healthy deliveries have no row. A row
-- holds the event, too, so it does not need the outbox.
CREATE TABLE deliveries (
    id           BIGINT PRIMARY KEY,
    event_id     BIGINT NOT NULL,
    type         TEXT COLLATE "C" NOT NULL,
    version      BIGINT NOT NULL,
    payload      TEXT COLLATE "C" NOT NULL,
    consumer     TEXT COLLATE "C" NOT NULL,         -- '' for a parked event
    lane         TEXT COLLATE "C" NOT NULL,         -- the lane it failed in, or its rule's own
    order_key    BIGINT NOT NULL,                   -- later ones of this key and lane wait behind it; 0: none do
    part         BIGINT NOT NULL,                   -- which walk of the audience,
    active_since BIGINT NOT NULL,
    started      BIGINT NOT NULL,
    after        BIGINT NOT NULL,                   -- ... where in it,
    until        BIGINT NOT NULL,                   -- and where it ends; 0: at the end
    epoch        BIGINT NOT NULL,                   -- of the views whose positions these are
    state        BIGINT NOT NULL,                   -- 1 delayed 2 retrying 3 waiting 4 dead 5 done 6 discarded 7 dropped 8 parked 9 released
    tries        BIGINT NOT NULL,                   -- failed ones
    due_at       BIGINT NOT NULL,                   -- ms: delayed: the next try; retrying: when the claim ends; done, released: how far all was settled
    opened_at    BIGINT NOT NULL,
    changed_at   BIGINT NOT NULL,
    members      BIGINT NOT NULL DEFAULT 0,         -- reached so far by retries
    replay       BIGINT NOT NULL DEFAULT 0,         -- the replay it belongs to; 0: live
    reason       TEXT COLLATE "C" NOT NULL,         -- what groups are made by: an error's name
    detail       TEXT COLLATE "C" NOT NULL DEFAULT '', -- the last error in words; why it was discarded
    history      TEXT COLLATE "C" NOT NULL DEFAULT '' -- each try: "ms reason\n", the newest few
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

-- How many deliveries there are of each kind, kept by the transactions that change them.
CREATE TABLE delivery_counts (
    consumer TEXT COLLATE "C" NOT NULL,
    type     TEXT COLLATE "C" NOT NULL,
    lane     TEXT COLLATE "C" NOT NULL,
    state    BIGINT NOT NULL,
    reason   TEXT COLLATE "C" NOT NULL,             -- of dead and parked ones; '' for all others
    count    BIGINT NOT NULL,
    PRIMARY KEY (consumer, type, lane, state, reason)
) WITH (fillfactor = 50);

-- Consumers' duplicate memory: a ring of tables by time, so that forgetting is emptying the oldest one.
-- A slot without a row is empty and free. Claims go into a slot that has not ended; it is emptied `keep`
-- after its end.
CREATE TABLE inbox_slots (
    slot  BIGINT PRIMARY KEY,
    since BIGINT NOT NULL,                          -- ms: taken into use
    ends  BIGINT NOT NULL,                          -- ms: no claim after this goes here
    keep  BIGINT NOT NULL                           -- ms: the longest retention while it held claims
);
-- How many entries each consumer has in a slot, kept by the transactions that change them.
CREATE TABLE inbox_counts (
    slot     BIGINT NOT NULL,
    consumer TEXT COLLATE "C" NOT NULL,
    done     BIGINT NOT NULL,
    unknown  BIGINT NOT NULL,                       -- claimed, not confirmed
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

-- Long work that an operator started: replays and rebuilds. Each goes on after a restart.
CREATE TABLE jobs (
    id         BIGINT PRIMARY KEY,
    kind       TEXT COLLATE "C" NOT NULL,           -- replay, rebuild.timelines, rebuild.counters
    state      BIGINT NOT NULL,                     -- 0 running 1 paused 2 done 3 cancelled 4 failed
    spec       TEXT COLLATE "C" NOT NULL,           -- JSON: what was asked for
    rate       BIGINT NOT NULL,                     -- a second; 0: no limit
    position   BIGINT NOT NULL,                     -- everything up to here is done
    last       BIGINT NOT NULL,                     -- where it ends
    total      BIGINT NOT NULL,                     -- as planned, for the estimate
    seen       BIGINT NOT NULL DEFAULT 0,
    acted      BIGINT NOT NULL DEFAULT 0,
    repeated   BIGINT NOT NULL DEFAULT 0,           -- suppressed by the inbox
    suppressed BIGINT NOT NULL DEFAULT 0,           -- outside effects that were not allowed
    failed     BIGINT NOT NULL DEFAULT 0,           -- now on the books as deliveries
    created_at BIGINT NOT NULL,
    changed_at BIGINT NOT NULL,
    note       TEXT COLLATE "C" NOT NULL DEFAULT ''
) WITH (fillfactor = 50);
CREATE INDEX jobs_open ON jobs (id) WHERE state <= 1;

-- Other systems that follow our events, each with its own position.
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

-- Who leads. The term is part of a key, so that taking the lease (a new term) waits for those who look at it
-- FOR KEY SHARE, and renewing it (a new beat) does not.
CREATE TABLE leases (
    name   TEXT COLLATE "C" PRIMARY KEY,
    term   BIGINT NOT NULL,                         -- one higher each time that it is taken
    holder BIGINT NOT NULL,                         -- a random number that means a process; 0: it was given back
    beat   BIGINT NOT NULL,                         -- moves while the holder lives
    body   TEXT COLLATE "C" NOT NULL DEFAULT '',    -- the holder's words to all
    UNIQUE (name, term)
) WITH (fillfactor = 50);

-- The nodes that use this store.
CREATE TABLE nodes (
    number     BIGINT PRIMARY KEY,                  -- it is in every id that the node gives
    token      BIGINT NOT NULL,                     -- a random number that means the node, also over a restart
    roles      BIGINT NOT NULL,                     -- bits: 1 api 2 relay 4 worker 8 gateway
    address    TEXT COLLATE "C" NOT NULL,           -- where other nodes reach it
    version    TEXT COLLATE "C" NOT NULL,
    started_at BIGINT NOT NULL,
    beat       BIGINT NOT NULL,                     -- moves while the node lives
    leaving    BIGINT NOT NULL DEFAULT 0,           -- 1: it is shutting down
    body       TEXT COLLATE "C" NOT NULL DEFAULT '' -- its own words
) WITH (fillfactor = 50);

-- A group, or a chat of two. Its row orders everything in it: whoever writes takes the next number from here.
CREATE TABLE groups (
    id           BIGINT PRIMARY KEY,
    kind         BIGINT NOT NULL,                   -- 0 group, 1 chat of two
    name         TEXT COLLATE "C" NOT NULL,         -- '' of a chat
    history      BIGINT NOT NULL DEFAULT 0,         -- what members may read: 0 from their joining on, 1 all
    created_by   BIGINT NOT NULL,
    seq          BIGINT NOT NULL DEFAULT 0,         -- the last number given
    messages     BIGINT NOT NULL DEFAULT 0,         -- how many of the entries are messages
    member_count BIGINT NOT NULL DEFAULT 0,
    last_id      BIGINT NOT NULL DEFAULT 0,         -- the greatest event id of a message
    last_seq     BIGINT NOT NULL DEFAULT 0          -- the last message's number
) WITH (fillfactor = 50);

-- Who is in a group, and who was. Somebody who comes back begins anew.
CREATE TABLE group_members (
    group_id   BIGINT NOT NULL,
    account_id BIGINT NOT NULL,
    role       BIGINT NOT NULL,                     -- 0 owner, 1 admin, 2 member
    joined_seq BIGINT NOT NULL,                     -- the number of the entry that says so
    joined_id  BIGINT NOT NULL,                     -- ... and the id of its event
    left_seq   BIGINT,                              -- the same of the leaving; NULL: is a member
    read_seq   BIGINT NOT NULL,                     -- read up to here
    read_count BIGINT NOT NULL,                     -- ... which is so many messages of the group
    muted      BIGINT NOT NULL DEFAULT 0,
    archived   BIGINT NOT NULL DEFAULT 0,
    PRIMARY KEY (group_id, account_id)
) WITH (fillfactor = 70);
-- left_seq, which is always NULL here, is in it as in SQLite, which needs it to count somebody's groups.
CREATE INDEX group_members_of ON group_members (account_id, group_id, left_seq) WHERE left_seq IS NULL;
-- Owner, admins, members, each by joining: the list, and who inherits a group.
CREATE INDEX group_members_rank ON group_members (group_id, role, joined_seq) WHERE left_seq IS NULL;

-- Who may join of their own accord.
CREATE TABLE group_invitations (
    account_id BIGINT NOT NULL,
    group_id   BIGINT NOT NULL,
    invited_by BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (account_id, group_id)
);

-- Everything that happened in a group, by number, without a gap. A message is changed and erased where it is; the edit or
-- the deletion is an entry of its own, which has no text: it points at the message.
CREATE TABLE group_log (
    group_id   BIGINT NOT NULL,
    seq        BIGINT NOT NULL,
    kind       BIGINT NOT NULL,                     -- 0 message 1 edit 2 delete 3 moderation 4 join 5 leave 6 rename 7 role 8 history
    author_id  BIGINT NOT NULL,
    client_id  TEXT COLLATE "C",                    -- the author's own name for a message
    body       TEXT COLLATE "C",                    -- NULL: deleted, or there is none
    target_seq BIGINT,                              -- edit, delete, moderation: of which message
    subject_id BIGINT,                              -- join, leave, role: whom it is about
    messages   BIGINT NOT NULL,                     -- how many there were in the group with this entry
    sent_hash  BIGINT,                              -- of the text as it was sent, when it has a client_id
    created_at BIGINT NOT NULL,
    edited_at  BIGINT,
    edited_seq BIGINT,                              -- the entry of the last edit
    deleted_at BIGINT,
    PRIMARY KEY (group_id, seq)
);
CREATE UNIQUE INDEX group_log_sent ON group_log (group_id, author_id, client_id) WHERE client_id IS NOT NULL;

CREATE TABLE group_mentions (
    account_id BIGINT NOT NULL,
    group_id   BIGINT NOT NULL,
    seq        BIGINT NOT NULL,
    PRIMARY KEY (account_id, group_id, seq)
);
CREATE INDEX group_mentions_in ON group_mentions (group_id, seq, account_id);

-- Which chat two people have.
CREATE TABLE chats (
    low_id   BIGINT NOT NULL,
    high_id  BIGINT NOT NULL,
    group_id BIGINT NOT NULL,
    PRIMARY KEY (low_id, high_id)
);
