-- Schema 1. docs/STORED_BYTES.md says what each column holds.

CREATE TABLE store (
    name  TEXT PRIMARY KEY,
    value ANY NOT NULL
) STRICT, WITHOUT ROWID;

-- A row is written when a conversation begins, is published or is erased, never at an append: its version and head are
-- those of its last event, one index seek away.
-- AUTOINCREMENT: a key is never given twice, so who goes on writing to a conversation that was discarded meanwhile does
-- not write to another one.
CREATE TABLE conversations (
    key            INTEGER PRIMARY KEY AUTOINCREMENT,
    id             TEXT NOT NULL,
    visible        INTEGER NOT NULL,
    created_at     INTEGER NOT NULL,
    parent         INTEGER,
    parent_version INTEGER,
    salt           BLOB,
    key_id         TEXT,
    sealed_key     BLOB,
    first_position INTEGER,
    published      INTEGER,
    erased_at      INTEGER,
    erased_reason  TEXT,
    erased_events  INTEGER,
    erased_head    BLOB
) STRICT;
CREATE UNIQUE INDEX conversations_by_id ON conversations (id) WHERE visible;
CREATE INDEX conversations_in_staging ON conversations (id) WHERE NOT visible;
CREATE INDEX conversations_by_position ON conversations (first_position) WHERE first_position IS NOT NULL;

-- Rows of a staged import have negative positions; their place in the order is the conversation's first_position + id.
CREATE TABLE events (
    position     INTEGER PRIMARY KEY,
    conversation INTEGER NOT NULL,
    id           INTEGER NOT NULL,
    kind         TEXT NOT NULL,
    schema       INTEGER NOT NULL,
    shown        INTEGER NOT NULL,
    structural   INTEGER NOT NULL,
    recorded_at  INTEGER NOT NULL,
    encoding     INTEGER NOT NULL,
    shown_before INTEGER NOT NULL,
    structural_before INTEGER NOT NULL,
    checksum     INTEGER NOT NULL,
    head         BLOB NOT NULL,
    body         ANY NOT NULL
) STRICT;
CREATE INDEX events_structural ON events (conversation, id) WHERE structural;
-- Most of a real log may be annotations: with "shown" in the index, opening a View walks past them and never reads them,
-- and an append writes one index less than with another one for shown events. As it would take an id twice, shown and
-- not shown, whoever inserts looks first whether it is taken (place_for).
CREATE UNIQUE INDEX events_by_id ON events (conversation, id, shown);
-- Positions follow on the highest one given. That is the newest row's, but for published imports and deleted rows, for
-- which it is kept here. AUTOINCREMENT would keep it too, and rewrite a page for it at each append.
INSERT INTO store (name, value) VALUES ('positions_given', 0);
CREATE TRIGGER events_keep_their_positions BEFORE DELETE ON events
WHEN old.position > (SELECT value FROM store WHERE name = 'positions_given')
BEGIN
    UPDATE store SET value = old.position WHERE name = 'positions_given';
END;

CREATE TABLE idempotency_keys (
    conversation INTEGER NOT NULL,
    key          TEXT NOT NULL,
    first_id     INTEGER NOT NULL,
    events       INTEGER NOT NULL,
    PRIMARY KEY (conversation, key)
) STRICT, WITHOUT ROWID;

-- What projections keep beside the events. All of it can be deleted and rebuilt.
CREATE TABLE records (
    conversation INTEGER NOT NULL,
    projection   TEXT NOT NULL,
    version      INTEGER NOT NULL,
    code         INTEGER NOT NULL,
    base         INTEGER,
    encoding     INTEGER NOT NULL,
    checksum     INTEGER NOT NULL,
    body         BLOB NOT NULL,
    PRIMARY KEY (conversation, projection, version)
) STRICT, WITHOUT ROWID;
