-- Schema 11: an erasure has a position in the order of the events, so followers read it as an entry. An erasure of an earlier
-- version has none before its id is used again. A version that does not know this would take positions of erasures for
-- lost events.

ALTER TABLE conversations ADD COLUMN erased_position INTEGER;
CREATE INDEX conversations_by_erasure ON conversations (erased_position) WHERE erased_position IS NOT NULL;
