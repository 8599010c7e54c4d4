-- Schema 10: events can hold bytes. A row of "events" whose encoding has 16 more has some beside it; docs/STORED_BYTES.md
-- says how they are read. The same bytes are kept once in a conversation. A version that does not know this would read such
-- an event without them.

CREATE TABLE attachments (
    conversation INTEGER NOT NULL,
    name         BLOB NOT NULL,
    encoding     INTEGER NOT NULL,
    body         BLOB NOT NULL
) STRICT;
CREATE UNIQUE INDEX attachments_by_name ON attachments (conversation, name, encoding);
CREATE TABLE attached (
    conversation INTEGER NOT NULL,
    event        INTEGER NOT NULL,
    name         BLOB NOT NULL,
    encoding     INTEGER NOT NULL,
    PRIMARY KEY (conversation, event, name, encoding)
) STRICT, WITHOUT ROWID;
CREATE INDEX attached_by_name ON attached (conversation, name, encoding);
