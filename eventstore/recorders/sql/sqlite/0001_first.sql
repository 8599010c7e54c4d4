-- Schema 1. docs/FORMAT.md says what each column holds.

CREATE TABLE store (
    name  TEXT PRIMARY KEY,
    value ANY NOT NULL
) STRICT, WITHOUT ROWID;

-- A row is written when a conversation begins, is published or is erased, never at an append: its version and head are
-- those of its last event, one index seek away.
CREATE TABLE conversations (
    key            INTEGER PRIMARY KEY,
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

-- AUTOINCREMENT: a position is never given twice, also after the newest rows are erased.
-- Rows of a staged import have negative positions; their place in the order is the conversation's first_position + id.
CREATE TABLE events (
    position     INTEGER PRIMARY KEY AUTOINCREMENT,
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
    body         ANY NOT NULL,
    UNIQUE (conversation, id)
) STRICT;
CREATE INDEX events_structural ON events (conversation, id) WHERE structural;
-- Most of a real log may be annotations; opening a View walks this index, and so never meets them.
CREATE INDEX events_shown ON events (conversation, id) WHERE shown;
INSERT INTO sqlite_sequence (name, seq) VALUES ('events', 0);

CREATE TABLE idempotency_keys (
    conversation INTEGER NOT NULL,
    key          TEXT NOT NULL,
    first_id     INTEGER NOT NULL,
    events       INTEGER NOT NULL,
    PRIMARY KEY (conversation, key)
) STRICT, WITHOUT ROWID;

-- What projections keep beside the events. All of it can be deleted and rebuilt.
CREATE TABLE records (
    projection   TEXT NOT NULL,
    conversation INTEGER NOT NULL,
    version      INTEGER NOT NULL,
    code         INTEGER NOT NULL,
    base         INTEGER,
    encoding     INTEGER NOT NULL,
    checksum     INTEGER NOT NULL,
    body         BLOB NOT NULL,
    PRIMARY KEY (projection, conversation, version)
) STRICT, WITHOUT ROWID;
