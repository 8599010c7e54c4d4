-- Schema 3: what shows, in an encrypted conversation, that something was changed without its key. docs/STORED_BYTES.md says how.

ALTER TABLE conversations ADD COLUMN mark BLOB;
ALTER TABLE idempotency_keys ADD COLUMN proof BLOB;
