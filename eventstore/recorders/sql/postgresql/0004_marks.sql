-- Schema 4: what shows, in an encrypted conversation, that something was changed without its key. docs/STORED_BYTES.md says how. A
-- version that does not know marks would leave them behind when it appends, so it does not open the store any more.

ALTER TABLE {schema}.conversations ADD COLUMN mark bytea;
ALTER TABLE {schema}.idempotency_keys ADD COLUMN proof bytea;
UPDATE {schema}.store SET value = '4' WHERE name = 'readable_by';
