-- Schema 12: events can hold bytes. A row of "events" whose encoding has 16 more has some beside it; docs/STORED_BYTES.md
-- says how they are read. The same bytes are kept once in a conversation. A version that does not know this would read such
-- an event without them, so it does not open the store any more.

CREATE TABLE {schema}.attachments (
    conversation bigint NOT NULL,
    name         bytea NOT NULL,
    encoding     smallint NOT NULL,
    body         bytea NOT NULL,
    PRIMARY KEY (conversation, name, encoding)
);
-- Bytes are mostly images, which are compressed already.
ALTER TABLE {schema}.attachments ALTER COLUMN body SET STORAGE EXTERNAL;
CREATE TABLE {schema}.attached (
    conversation bigint NOT NULL,
    event        bigint NOT NULL,
    name         bytea NOT NULL,
    encoding     smallint NOT NULL,
    PRIMARY KEY (conversation, event, name, encoding)
);
CREATE INDEX attached_by_name ON {schema}.attached (conversation, name, encoding);
UPDATE {schema}.store SET value = '12' WHERE name = 'readable_by';
