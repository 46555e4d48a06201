-- Schema 2 to 3: who leads, and which nodes there are. These tables alone are new: a node of schema 2 goes on meanwhile.
-- A lease's term is part of a key, so that taking the lease (a new term) waits for those who look at it FOR KEY SHARE, and
-- renewing it does not.
CREATE TABLE leases (
    name   TEXT COLLATE "C" PRIMARY KEY,
    term   BIGINT NOT NULL,                         -- one higher each time that it is taken
    holder BIGINT NOT NULL,                         -- a random number that means a process; 0: it was given back
    beat   BIGINT NOT NULL,                         -- moves while the holder lives
    body   TEXT COLLATE "C" NOT NULL DEFAULT '',    -- the holder's words to all
    UNIQUE (name, term)
) WITH (fillfactor = 50);

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
