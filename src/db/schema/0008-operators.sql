-- Schema 8: what operators see and do.

-- The age of what waits behind another delivery of its key.
CREATE INDEX deliveries_waiting ON deliveries (consumer, type, lane, event_id) WHERE state = 3;
