-- Schema 6: events that become true at a time.

-- A row is an event to be, with all that its outbox row will hold. Of a type and key there is one.
CREATE TABLE timers (
    type    TEXT NOT NULL,
    key     INTEGER NOT NULL,
    due_at  INTEGER NOT NULL,                       -- ms
    version INTEGER NOT NULL,
    payload TEXT NOT NULL,
    PRIMARY KEY (type, key)
) WITHOUT ROWID /*postgres WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02) */;
CREATE INDEX timers_due ON timers (due_at, type, key);
