-- Schema 11: events can be redacted. "head" holds 16 bytes more, the salt of the event, or, of a redacted one, 32 bytes more, the
-- commitment to what was there. "redactions" is how many redacted events a conversation shows. A version that does not know
-- this would take such a row for a damaged one, so it does not open the store any more.

ALTER TABLE {schema}.conversations ADD COLUMN redactions bigint;
UPDATE {schema}.store SET value = '11' WHERE name = 'readable_by';
