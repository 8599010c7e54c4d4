-- Schema 2, the first that later versions read. docs/internals/STORED_BYTES.md defines each column.

CREATE TABLE store (
    name  TEXT PRIMARY KEY,
    value ANY NOT NULL
) STRICT, WITHOUT ROWID;

-- A row is written when a conversation begins, is published or is erased, but not at an append. The version and the head
-- are in the last event, and reading it costs one index seek. With AUTOINCREMENT no key is used twice, so a writer of a
-- discarded conversation never writes to another conversation. The events of a fork below parent_version are events of its
-- parent. "seed" is the head before event 0, if another conversation recorded that event. If a conversation uses the id of
-- an erased conversation again, "replaces" is the key of the erased conversation. The tombstone is then not visible, and
-- its erased_at distinguishes it from a staged import. "pending" is the number of source records that have no events yet.
-- For an archived conversation, "pending" is the number of events in its object, times -1.
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
-- conversation + id. The rows with the conversation -k are the ledger of conversation k, which lists its later changes. The
-- rows with the conversation 0 are the ledger of the store. "meta" has all data of an event except its body. Fields with an
-- index are columns too.
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
-- Opening a View walks this index. The index leaves out annotations, because most events of a real log may be annotations.
CREATE INDEX events_of_views ON events (conversation, id) WHERE shown OR structural;
-- A new position is higher than all earlier positions. The highest earlier position is the position of the newest row.
-- After the publication of an import or the start of an epoch, the highest position is stored here instead. An erased
-- conversation leaves a ledger entry, whose position is higher than the positions of its rows. AUTOINCREMENT would rewrite
-- a page at each append.
INSERT INTO store (name, value) VALUES ('positions_given', 0);

-- Incomplete operations of several transactions, with their states. A conversation has at most one operation. A negative
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
-- Finds imported events by their id in the source, over all conversations.
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
-- the numbers of the source's own redacted records, 4 bytes each. "about" and "sums" are deflated, and are encrypted in an
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
-- If the encoding of a block has the bit 16, the block was appended alone. Its "places" then also list the events of its
-- records, and contain the head after its last record. Blocks after the first "records" records of a source were appended
-- alone, or belong to an incomplete operation.
CREATE TABLE blocks (
    conversation INTEGER NOT NULL,
    first        INTEGER NOT NULL,
    records      INTEGER NOT NULL,
    encoding     INTEGER NOT NULL,
    places       BLOB NOT NULL,
    body         BLOB NOT NULL,
    PRIMARY KEY (conversation, first)
) STRICT;
-- The events of records. Each row lists several records. A record has three numbers of 4 bytes: its own number, the id of
-- its first event, and the number of its events. The list is deflated. "event" is the first event of the row.
CREATE TABLE made (
    conversation INTEGER NOT NULL,
    event        INTEGER NOT NULL,
    places       BLOB NOT NULL,
    PRIMARY KEY (conversation, event)
) STRICT, WITHOUT ROWID;
-- The states of a place at its imports. A place is a hash of the path, the name inside and the options. A row names a
-- conversation that was imported from the place, and the record and the byte up to which the import has read. The newest
-- state has the highest "seen".
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
-- Places and fingerprints of erased sources, and hashes of redacted records. Imports refuse them. "own" is 1 if this store
-- erased or redacted them itself, and 0 if they came with a copy of another store.
CREATE TABLE refused (
    fingerprint  BLOB PRIMARY KEY,
    conversation INTEGER NOT NULL,
    own          INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX refused_of ON refused (conversation);

-- The records of projections. Rows can be deleted: foldlog makes them again, or reads the data from the events.
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

-- The figures of a conversation, computed from its events at this version, or from the records of its source. Rows can be
-- deleted: foldlog computes them again. An unknown number is null. Times are in microseconds. A local time counts as UTC;
-- "is_local" is 1 if the first time is local, 2 if the last is, and 3 if both are. "texts" is JSON: title, first error,
-- attributes. In an encrypted conversation, "texts" is encrypted. The tables below then contain a keyed digest in place of
-- each name, and "texts" contains the name. "replies" has a hash of 8 bytes for each reply of a model. "replies_compared"
-- is 1 after these replies were compared with the replies of other conversations.
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
-- Calls of models by day, model and size of the prompt. The cost is null if the calls have no cost.
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
-- The usage of replies that several histories contain. The key is a hash of the ids of a reply. figure_calls contains this
-- usage too, so a total must count each reply only once.
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
-- All other counts. "what" says what is counted, such as 'tool'. "name" is the name of the counted thing.
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

-- The list of conversations by attribute and by last activity. A row is written when attributes change and when
-- conversations are listed, but not at other appends. To make the whole list again from the events, delete the rows of
-- listing and listed, the records 'attributes', and the value 'listed' in store. A digest stands for one attribute. In an
-- encrypted conversation, the digest is keyed. Each conversation also has the digest of 16 zero bytes. A conversation with
-- the version -1 must be listed again. A conversation with the version -2 must be listed by a process that has its key.
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
