-- Schema 8: what operators see and do.

-- The age of what waits behind another delivery of its key.
CREATE INDEX deliveries_waiting ON deliveries (consumer, type, lane, event_id) WHERE state = 3;

-- What operators did: stops, re-drives, discards, replays, suspensions, keys. Kept for ever; few.
CREATE TABLE operator_acts (
    id      INTEGER PRIMARY KEY,
    at      INTEGER NOT NULL,                       -- ms
    who     TEXT NOT NULL,                          -- "key 12", "account 12", "control socket"
    act     TEXT NOT NULL,                          -- the operation's name
    target  TEXT NOT NULL,                          -- method and path
    request TEXT NOT NULL,                          -- the body, cut
    why     TEXT NOT NULL                           -- in the operator's words; '': not said
);

-- Lanes whose limits an operator changed for good: in force instead of settings and table.
CREATE TABLE lane_overrides (
    lane        TEXT PRIMARY KEY,
    concurrency INTEGER NOT NULL,
    rate        INTEGER NOT NULL,                   -- a second; 0: no limit
    stopped     INTEGER NOT NULL                    -- 1: by hand
) WITHOUT ROWID;
