-- Schema 2: states of events, deliveries, duplicate memory, jobs, subscribers. What was in the outbox
-- of schema 1 is pending: delivering it again is harmless.

-- 0 pending, 1 settled, 2 parked. The relay claims by state, through the index of what is pending.
ALTER TABLE outbox ADD COLUMN state INTEGER NOT NULL DEFAULT 0;
CREATE INDEX outbox_pending ON outbox (id) WHERE state = 0;

-- How many events of a type ever came to a state that lasts, for counting without a scan.
CREATE TABLE event_counts (
    type  TEXT NOT NULL,
    state TEXT NOT NULL,                            -- settled, archived
    count INTEGER NOT NULL,
    PRIMARY KEY (type, state)
) WITHOUT ROWID /*postgres WITH (fillfactor = 50) */;

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
) /*postgres WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02) */;
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
) WITHOUT ROWID /*postgres WITH (fillfactor = 50) */;

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
) WITHOUT ROWID /*postgres WITH (fillfactor = 50) */;
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
    repeated   INTEGER NOT NULL DEFAULT 0,          -- suppressed by dedup
    suppressed INTEGER NOT NULL DEFAULT 0,          -- outside effects that were not allowed
    failed     INTEGER NOT NULL DEFAULT 0,          -- now in the delivery store as deliveries
    created_at INTEGER NOT NULL,
    changed_at INTEGER NOT NULL,
    note       TEXT NOT NULL DEFAULT ''
) /*postgres WITH (fillfactor = 50) */;
CREATE INDEX jobs_open ON jobs (id) WHERE state <= 1;

-- Other systems that follow our events, each with its own position.
CREATE TABLE subscribers (
    name       TEXT PRIMARY KEY,
    position   INTEGER NOT NULL,
    changed_at INTEGER NOT NULL,
    created_at INTEGER NOT NULL
) WITHOUT ROWID /*postgres WITH (fillfactor = 50) */;
