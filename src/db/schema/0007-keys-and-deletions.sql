-- Schema 7: what a key keeps, and deleted messages that nobody has to read.

-- A key keeps which object its write made, not what was answered.
-- The answer is drawn again for each caller who repeats a key. Of answers that an earlier version
-- kept, the id stays; refusals are worked out again.
ALTER TABLE idempotency ADD COLUMN object_id INTEGER NOT NULL DEFAULT 0;
DELETE FROM idempotency WHERE status >= 300;
UPDATE idempotency SET object_id = CAST(body AS INTEGER)
WHERE route LIKE 'messages_%' AND length(body) BETWEEN 1 AND 18 AND ltrim(body, '0123456789') = '';
UPDATE idempotency SET object_id = CAST(substr(body, 8, length(body) - 7 -
    length(ltrim(substr(body, 8), '0123456789'))) AS INTEGER)
WHERE body LIKE '{"id":"_%' AND ltrim(substr(body, 8, 1), '123456789') = '';
ALTER TABLE idempotency DROP COLUMN body;

-- Those above a member's mark do not count as unread.
CREATE INDEX group_log_deleted ON group_log (group_id, seq) WHERE deleted_at IS NOT NULL;
