-- Schema 9: events can be redacted. "head" holds 16 bytes more, the salt of the event, or, of a redacted one, 32 bytes more, the
-- commitment to what was there. "redactions" is how many redacted events a conversation shows. A version that does not know
-- this would take such a row for a damaged one.

ALTER TABLE conversations ADD COLUMN redactions INTEGER;
