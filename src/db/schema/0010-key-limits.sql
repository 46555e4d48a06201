-- Schema 10: API keys that end, and that have a rate of their own.

ALTER TABLE api_keys ADD COLUMN expires_at INTEGER;        -- ms; NULL: never
ALTER TABLE api_keys ADD COLUMN rate INTEGER;              -- requests a second on each node; NULL: no limit
