-- Schema 1. docs/internals/STORED_BYTES.md defines each column.

CREATE TABLE store (
    name  TEXT PRIMARY KEY,
    value ANY NOT NULL
) STRICT, WITHOUT ROWID;

-- A row is written when a conversation begins, is published or is erased, and never at an append: the last event has the
-- version and the head, and costs one index seek. With AUTOINCREMENT no key is used twice, so a writer of a discarded
-- conversation never writes to another conversation. The events of a fork below parent_version are events of its parent.
-- "seed" is the head before event 0, if another conversation recorded that event. If a conversation uses the id of an erased
-- one again, "replaces" has the key of the erased one. That tombstone is not visible, and erased_at distinguishes it from a
-- staged import. "pending" counts the records of the source that have no events yet. For an archived conversation it is the
-- negative number of the events in its object.
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
    erased_head    BLOB,
    mark           BLOB,
    seed           BLOB,
    replaces       INTEGER,
    redactions     INTEGER,
    pending        INTEGER
) STRICT;
CREATE UNIQUE INDEX conversations_by_id ON conversations (id) WHERE visible;
CREATE INDEX conversations_by_position ON conversations (first_position) WHERE first_position IS NOT NULL;
CREATE INDEX conversations_by_parent ON conversations (parent) WHERE parent IS NOT NULL;
CREATE INDEX conversations_by_key ON conversations (key_id) WHERE visible AND key_id IS NOT NULL;

-- The rows of a staged import have negative positions. After it is published, their positions are first_position of the
-- conversation + id. The rows of conversation -k are the ledger of conversation k: its later changes. The rows of
-- conversation 0 are the ledger of the store. "meta" has all data of an event besides its body; the indexed fields are also
-- columns.
CREATE TABLE events (
    position     INTEGER PRIMARY KEY,
    conversation INTEGER NOT NULL,
    id           INTEGER NOT NULL,
    kind         TEXT NOT NULL,
    shown        INTEGER NOT NULL,
    structural   INTEGER NOT NULL,
    meta         BLOB NOT NULL,
    body         ANY NOT NULL
) STRICT;
CREATE INDEX events_structural ON events (conversation, id) WHERE structural;
CREATE INDEX events_of_documents ON events (conversation, id) WHERE kind = 'document_changes';
CREATE UNIQUE INDEX events_by_id ON events (conversation, id);
-- Most events of a real log may be annotations. Opening a View walks this index, which does not have them.
CREATE INDEX events_of_views ON events (conversation, id) WHERE shown OR structural;
-- A new position is higher than all positions that were given. The highest one is the position of the newest row, except
-- after the publication of an import or a new epoch: then it is stored here. An erased conversation leaves an entry after
-- its rows. AUTOINCREMENT would rewrite a page at each append.
INSERT INTO store (name, value) VALUES ('positions_given', 0);

-- Operations of several transactions that are not complete, with their states, at most one on each conversation. A negative
-- number stands for an operation on the store.
CREATE TABLE unfinished (
    conversation INTEGER PRIMARY KEY,
    operation    TEXT NOT NULL,
    state        TEXT NOT NULL
) STRICT;

CREATE TABLE idempotency_keys (
    conversation INTEGER NOT NULL,
    key          TEXT NOT NULL,
    first_id     INTEGER NOT NULL,
    events       INTEGER NOT NULL,
    proof        BLOB,
    PRIMARY KEY (conversation, key)
) STRICT, WITHOUT ROWID;
-- Events by the id that their source gave them, over all conversations.
CREATE INDEX idempotency_keys_of_sources ON idempotency_keys (key)
WHERE key >= 'foldlog:source:' AND key < 'foldlog:source;';

-- Bytes beside events. A conversation stores equal bytes only once.
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

-- The source of an import, under the key of its conversation. The records below from_record are records of "parent". All
-- sources that grew from one source have the same "root". "made" is the number of records that have events. "redacted" has
-- the numbers of the source's own redacted records, 4 bytes each. "about" and "sums" are deflated, and sealed in an
-- encrypted conversation. After an erasure, imports with this "fingerprint" are refused.
CREATE TABLE sources (
    conversation INTEGER PRIMARY KEY,
    root         INTEGER NOT NULL,
    parent       INTEGER,
    from_record  INTEGER NOT NULL,
    records      INTEGER NOT NULL,
    made         INTEGER NOT NULL,
    format       TEXT NOT NULL,
    reader       INTEGER NOT NULL,
    encoding     INTEGER NOT NULL,
    head         BLOB NOT NULL,
    fingerprint  BLOB NOT NULL,
    redacted     BLOB NOT NULL,
    about        BLOB NOT NULL,
    sums         BLOB NOT NULL
) STRICT;
CREATE INDEX sources_by_root ON sources (root);
-- If the encoding of a block has the bit 16, the block was appended alone: its places also list the events of its records,
-- and have the head after them. Blocks after the first "records" records of a source are such blocks, or belong to an
-- operation that is not complete.
CREATE TABLE blocks (
    conversation INTEGER NOT NULL,
    first        INTEGER NOT NULL,
    records      INTEGER NOT NULL,
    encoding     INTEGER NOT NULL,
    places       BLOB NOT NULL,
    body         BLOB NOT NULL,
    PRIMARY KEY (conversation, first)
) STRICT;
-- The events of records, some records in each row: the number of the record, the id of its first event, and the number of
-- its events, 4 bytes each, deflated. "event" is the first event of the row.
CREATE TABLE made (
    conversation INTEGER NOT NULL,
    event        INTEGER NOT NULL,
    places       BLOB NOT NULL,
    PRIMARY KEY (conversation, event)
) STRICT, WITHOUT ROWID;
-- The imported states of a place (a hash of the path, the name inside and the options): the conversations that were imported
-- from it, and up to which record and byte it was read. The newest state has the highest "seen".
CREATE TABLE places (
    place        BLOB NOT NULL,
    conversation INTEGER NOT NULL,
    seen         INTEGER NOT NULL,
    records      INTEGER NOT NULL,
    taken        INTEGER NOT NULL,
    state        BLOB NOT NULL,
    digest       BLOB NOT NULL,
    PRIMARY KEY (place, conversation)
) STRICT, WITHOUT ROWID;
CREATE INDEX places_of ON places (conversation);
-- Places and fingerprints of erased sources, and hashes of redacted records: an import refuses them.
CREATE TABLE refused (
    fingerprint  BLOB PRIMARY KEY,
    conversation INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX refused_of ON refused (conversation);

-- The records of projections. Rows can be deleted: they are made again, or their data is read from the events.
CREATE TABLE records (
    conversation INTEGER NOT NULL,
    projection   TEXT NOT NULL,
    version      INTEGER NOT NULL,
    code         INTEGER NOT NULL,
    encoding     INTEGER NOT NULL,
    checksum     INTEGER NOT NULL,
    body         BLOB NOT NULL,
    PRIMARY KEY (conversation, projection, version)
) STRICT, WITHOUT ROWID;

-- The figures of a conversation, made of its events at this version, or of the records of its source. Rows can be deleted:
-- they are made again. An unknown number is null. Times are in microseconds. A local time counts as UTC; "is_local" is 1 if
-- the first time is local, 2 if the last is, and 3 if both are. "texts" is JSON: title, first error, attributes. In an
-- encrypted conversation it is sealed, each name in the tables below is a keyed digest, and "texts" has the name. "replies"
-- has a hash of 8 bytes for each reply of a model. "replies_compared" is 1 after these were compared with the replies of
-- other conversations.
CREATE TABLE figures (
    conversation       INTEGER PRIMARY KEY,
    id                 TEXT NOT NULL,
    code               INTEGER NOT NULL,
    version            INTEGER NOT NULL,
    is_companion       INTEGER NOT NULL,
    recorded_at        INTEGER NOT NULL,
    is_local           INTEGER NOT NULL,
    first_at           INTEGER,
    last_at            INTEGER,
    longest_wait_s     REAL,
    events             INTEGER,
    errors             INTEGER,
    view_tokens        INTEGER,
    sent_events        INTEGER,
    sent_summaries     INTEGER,
    last_prompt_tokens INTEGER,
    tokens             INTEGER,
    condensations      INTEGER,
    tokens_saved       INTEGER,
    format             TEXT,
    state              TEXT,
    encoding           INTEGER NOT NULL,
    replies_compared   INTEGER NOT NULL DEFAULT 0,
    texts              BLOB NOT NULL,
    replies            BLOB NOT NULL
) STRICT;
CREATE INDEX figures_to_compare ON figures (conversation) WHERE replies_compared = 0 AND length(replies) > 0;
-- Calls of models by day, model and size of the prompt. The cost is null if the calls have none.
CREATE TABLE figure_calls (
    conversation          INTEGER NOT NULL,
    day                   TEXT NOT NULL,
    model                 TEXT NOT NULL,
    above                 INTEGER NOT NULL,
    by_condenser          INTEGER NOT NULL,
    calls                 INTEGER NOT NULL,
    prompt_tokens         INTEGER,
    completion_tokens     INTEGER,
    cached_tokens         INTEGER,
    cache_write_tokens    INTEGER,
    cache_write_1h_tokens INTEGER,
    reasoning_tokens      INTEGER,
    cost                  REAL
) STRICT;
CREATE INDEX figure_calls_of ON figure_calls (conversation);
-- The usage of replies that several histories have, by a hash of the ids of the replies. figure_calls has it too: a total
-- counts each reply once.
CREATE TABLE figure_replies (
    reply                 INTEGER NOT NULL,
    conversation          INTEGER NOT NULL,
    day                   TEXT,
    model                 TEXT,
    above                 INTEGER,
    by_condenser          INTEGER,
    calls                 INTEGER,
    prompt_tokens         INTEGER,
    completion_tokens     INTEGER,
    cached_tokens         INTEGER,
    cache_write_tokens    INTEGER,
    cache_write_1h_tokens INTEGER,
    reasoning_tokens      INTEGER,
    cost                  REAL,
    PRIMARY KEY (reply, conversation)
) STRICT, WITHOUT ROWID;
CREATE INDEX figure_replies_of ON figure_replies (conversation);
-- All other counts. "what" says what is counted, such as 'tool', and "name" under which name.
CREATE TABLE figure_counts (
    conversation INTEGER NOT NULL,
    what         TEXT NOT NULL,
    name         TEXT NOT NULL,
    number       REAL,
    PRIMARY KEY (conversation, what, name)
) STRICT, WITHOUT ROWID;

-- The positions of projections of the eventsourcing library, written in their own transactions.
CREATE TABLE tracking (
    application     TEXT NOT NULL,
    notification_id INTEGER NOT NULL,
    PRIMARY KEY (application, notification_id)
) STRICT, WITHOUT ROWID;

-- Conversations by attribute and by last activity, as a process last found them. A row is written when attributes change and
-- when conversations are listed, and at no other append. To make all again from the events, delete the rows of listing and
-- listed, the records 'attributes', and the value 'listed' in store. A digest stands for one attribute, keyed in an
-- encrypted conversation; 16 zero bytes stand for all conversations. A conversation with version -1 must be listed again,
-- and with -2 by a process that has its key.
CREATE TABLE listing (
    conversation INTEGER PRIMARY KEY,
    at           INTEGER NOT NULL,
    version      INTEGER NOT NULL,
    digests      BLOB NOT NULL
) STRICT;
CREATE INDEX listing_pending ON listing (version) WHERE version < 0;
CREATE TABLE listed (
    digest       BLOB NOT NULL,
    at           INTEGER NOT NULL,
    conversation INTEGER NOT NULL,
    PRIMARY KEY (digest, at, conversation)
) STRICT, WITHOUT ROWID;
