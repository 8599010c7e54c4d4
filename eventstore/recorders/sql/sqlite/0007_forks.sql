-- Schema 7: forks. A fork's events below parent_version are those of its parent; docs/STORED_BYTES.md says how they are
-- read. "grown" is set with the first event of its own. "past" says under which ids and salts the events were recorded that
-- a fork has copied, since it was detached from its parent or came from another store.

ALTER TABLE conversations ADD COLUMN grown INTEGER;
ALTER TABLE conversations ADD COLUMN past BLOB;
CREATE INDEX conversations_by_parent ON conversations (parent) WHERE parent IS NOT NULL;
