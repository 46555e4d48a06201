-- Schema 3: who leads, and which nodes there are. One node alone needs neither.

-- The term is part of a key, so that taking the lease (a new term) waits for those who look at it FOR
-- KEY SHARE, and renewing it (a new beat) does not.
CREATE TABLE leases ( /*process*/
    name   TEXT PRIMARY KEY,
    term   INTEGER NOT NULL,                        -- one higher each time that it is taken
    holder INTEGER NOT NULL,                        -- a random number that means a process; 0: it was given back
    beat   INTEGER NOT NULL,                        -- moves while the holder lives
    body   TEXT NOT NULL DEFAULT '',                -- the holder's words to all
    UNIQUE (name, term)
) WITHOUT ROWID /*postgres WITH (fillfactor = 50) */;

CREATE TABLE nodes ( /*process*/
    number     INTEGER PRIMARY KEY,                 -- it is in every id that the node gives
    token      INTEGER NOT NULL,                    -- a random number that means the node, also over a restart
    roles      INTEGER NOT NULL,                    -- bits: 1 api 2 relay 4 worker 8 gateway
    address    TEXT NOT NULL,                       -- where other nodes reach it
    version    TEXT NOT NULL,
    started_at INTEGER NOT NULL,
    beat       INTEGER NOT NULL,                    -- moves while the node lives
    leaving    INTEGER NOT NULL DEFAULT 0,          -- 1: it is shutting down
    body       TEXT NOT NULL DEFAULT ''             -- its own words
) /*postgres WITH (fillfactor = 50) */;
