-- Schema 5: the duplicate memory is one table with an index by time.

-- What consumers with external effects did, or began to do.
CREATE TABLE dedup (
    consumer TEXT NOT NULL,
    key      TEXT NOT NULL,
    state    INTEGER NOT NULL,                      -- 0 claimed, 1 done
    at       INTEGER NOT NULL,                      -- ms: claimed
    PRIMARY KEY (consumer, key)
) WITHOUT ROWID;
CREATE INDEX dedup_by_time ON dedup (at, consumer, key);

-- How long entries are kept: one row.
CREATE TABLE dedup_retention (
    id        INTEGER PRIMARY KEY,                  -- 1
    retention INTEGER NOT NULL,                     -- ms: in force
    keep      INTEGER NOT NULL,                     -- ms: of entries from before the last change of it ...
    changed   INTEGER NOT NULL                      -- ms: ... which was then
);

-- A node of the version before may be claiming meanwhile: what it commits is carried over, too.
/*postgres
LOCK TABLE inbox_0, inbox_1, inbox_2, inbox_3, inbox_4, inbox_5, inbox_6, inbox_7, inbox_slots;
*/
INSERT INTO dedup_retention (id, retention, keep, changed)
SELECT 1, max(keep), max(keep), 0 FROM inbox_slots HAVING count(*) > 0;
INSERT INTO dedup (consumer, key, state, at)
SELECT consumer, key, state, at FROM inbox_0
UNION ALL SELECT consumer, key, state, at FROM inbox_1
UNION ALL SELECT consumer, key, state, at FROM inbox_2
UNION ALL SELECT consumer, key, state, at FROM inbox_3
UNION ALL SELECT consumer, key, state, at FROM inbox_4
UNION ALL SELECT consumer, key, state, at FROM inbox_5
UNION ALL SELECT consumer, key, state, at FROM inbox_6
UNION ALL SELECT consumer, key, state, at FROM inbox_7;

DROP TABLE inbox_0;
DROP TABLE inbox_1;
DROP TABLE inbox_2;
DROP TABLE inbox_3;
DROP TABLE inbox_4;
DROP TABLE inbox_5;
DROP TABLE inbox_6;
DROP TABLE inbox_7;
DROP TABLE inbox_slots;
DROP TABLE inbox_counts;
