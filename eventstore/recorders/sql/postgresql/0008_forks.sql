-- Schema 8: forks. A fork's events below parent_version are those of its parent; docs/STORED_BYTES.md says how they are
-- read. "grown" is set with the first event of its own. "past" says under which ids and salts the events were recorded that
-- a fork has copied. A version that does not know forks would read them without their past, so it does not open the store
-- any more.

ALTER TABLE {schema}.conversations ADD COLUMN grown boolean;
ALTER TABLE {schema}.conversations ADD COLUMN past bytea;
CREATE INDEX conversations_by_parent ON {schema}.conversations (parent) WHERE parent IS NOT NULL;
UPDATE {schema}.store SET value = '8' WHERE name = 'readable_by';
