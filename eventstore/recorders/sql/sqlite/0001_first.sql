-- Schema 1. docs/internals/STORED_BYTES.md says what each column holds.

CREATE TABLE store (
    name  TEXT PRIMARY KEY,
    value ANY NOT NULL
) STRICT, WITHOUT ROWID;

-- A row is written when a conversation begins, is published or is erased, never at an append: its version and head are
-- those of its last event, one index seek away.
-- AUTOINCREMENT: a key is never given twice, so a writer of a conversation that was discarded never writes to another one.
-- A fork's events below parent_version are those of its parent. "seed" is the head before event 0, where another
-- conversation recorded it. A new conversation with the id of an erased one names it in "replaces"; the tombstone is then
-- not visible, and is told from a staged import by erased_at.
-- "pending" counts the records of its source that have no events yet. Of an archived conversation it is the negative number
-- of the events in its object.
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

-- Rows of a staged import have negative positions; their place in the order is the conversation's first_position + id.
-- The rows of conversation -k are the ledger of conversation k: what changed it after the fact. Those of 0 are the store's.
-- "meta" is all that is known of an event besides its body; what the indices need of it stands in columns too.
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
-- Most of a real log may be annotations: opening a View meets none of them.
CREATE INDEX events_of_views ON events (conversation, id) WHERE shown OR structural;
-- Positions follow on the highest one given. That is the newest row's, but for published imports and new epochs, for which
-- it is kept here. An erased conversation leaves an entry behind its rows. AUTOINCREMENT would rewrite a page at each append.
INSERT INTO store (name, value) VALUES ('positions_given', 0);

-- Operations of several transactions that are not complete, with the state of each: at most one on a conversation. A
-- negative number stands for an operation on the store.
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

-- Bytes beside events. The same bytes are kept once in a conversation.
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

-- The source of an import, under the key of the conversation that it is. Records below from_record are those of "parent"; all
-- that came of one source have its "root". "made" records have events. "redacted" are numbers of its own records, 4 bytes each.
-- "about" and "sums" are deflated, and sealed in an encrypted conversation. "fingerprint" refuses it once it is erased.
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
-- A block whose encoding has 16 was appended alone: its places say which events its records became too, and the head after them.
-- Blocks from the "records" of their source on are such blocks, or of an operation that is not complete.
CREATE TABLE blocks (
    conversation INTEGER NOT NULL,
    first        INTEGER NOT NULL,
    records      INTEGER NOT NULL,
    encoding     INTEGER NOT NULL,
    places       BLOB NOT NULL,
    body         BLOB NOT NULL,
    PRIMARY KEY (conversation, first)
) STRICT;
-- Which events records became, some records in a row: the number of the record, the id of its first event, how many they are; 4 bytes
-- each, deflated. "event" is the first event of the row.
CREATE TABLE made (
    conversation INTEGER NOT NULL,
    event        INTEGER NOT NULL,
    places       BLOB NOT NULL,
    PRIMARY KEY (conversation, event)
) STRICT, WITHOUT ROWID;
-- What was found at a place (a hash of path, name inside and options): which conversations it became, the last one with the highest
-- "seen", and up to which record and byte it was read.
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

-- What projections keep beside the events. Rows can be deleted: they are made again, or what they
-- say is read from the events.
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
-- they are made again. A number that is not known is null. Times are in microseconds; a local time counts as UTC,
-- and "is_local" is 1 of the first, 2 of the last, 3 of both.
-- "texts" is JSON: title, first error, attributes; sealed in an encrypted conversation. Then a name in the tables below is a
-- keyed digest, of which "texts" has the name. "replies" has a hash of 8 bytes of each reply of a model.
-- "replies_compared" is 1 once it is known which of them other conversations have too.
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
-- Calls of models by day, model and size of the prompt. A cost that the calls do not tell is null.
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
-- What replies used that several histories have, by a hash of their ids. figure_calls has them too: a total counts each
-- once.
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
-- All else that is summed or chosen by: "what" is counted, such as 'tool', and under which name.
CREATE TABLE figure_counts (
    conversation INTEGER NOT NULL,
    what         TEXT NOT NULL,
    name         TEXT NOT NULL,
    number       REAL,
    PRIMARY KEY (conversation, what, name)
) STRICT, WITHOUT ROWID;

-- How far projections of the eventsourcing library have come, written in their own transactions.
CREATE TABLE tracking (
    application     TEXT NOT NULL,
    notification_id INTEGER NOT NULL,
    PRIMARY KEY (application, notification_id)
) STRICT, WITHOUT ROWID;

-- Conversations by attribute and by last activity, as a process last found them. A row is written when attributes change
-- and when somebody lists conversations, never at another append. To have all made again from the events, delete the rows
-- of listing and listed, the records 'attributes', and the value 'listed' in store. A digest stands for one attribute,
-- keyed in an encrypted conversation; 16 zero bytes stand for all conversations. Version -1: to be listed again; -2: to be
-- listed by a process that has its key.
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
