-- Schema 13: an erasure has a position in the order of the events, so followers read it as an entry. An erasure of an earlier
-- version has none before its id is used again. A version that does not know this would erase without an entry, so it does
-- not open the store any more.

ALTER TABLE {schema}.conversations ADD COLUMN erased_position bigint;
CREATE INDEX conversations_by_erasure ON {schema}.conversations (erased_position) WHERE erased_position IS NOT NULL;
UPDATE {schema}.store SET value = '13' WHERE name = 'readable_by';
