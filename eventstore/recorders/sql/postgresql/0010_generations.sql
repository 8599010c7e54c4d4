-- Schema 10: the id of an erased conversation can be used again. The new one names it in "replaces"; the receipt is not visible any
-- more, and is told from a staged import by erased_at. A version that does not know this would take it for one, so it does not
-- open the store any more.

ALTER TABLE {schema}.conversations ADD COLUMN replaces bigint;
UPDATE {schema}.store SET value = '10' WHERE name = 'readable_by';
