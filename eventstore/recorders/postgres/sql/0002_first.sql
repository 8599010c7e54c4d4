-- Schema 2, the first that later versions read. docs/internals/STORED_BYTES.md defines each column. docs/POSTGRESQL.md says
-- what differs on a server. {schema} is the schema of the store. Ids and names are UTF-8 bytes, because they may have
-- characters that a text of PostgreSQL cannot have (NUL, lone surrogates). Bytes sort in the same order as the texts.

CREATE TABLE {schema}.store (
    name  text PRIMARY KEY,
    value text NOT NULL
);

-- Facts that writers record about the store as a whole: the last removal of text, and the position up to which
-- conversations are listed. These facts have a table of their own, because the role of agents may not change the table with
-- the identity and the schema of the store.
CREATE TABLE {schema}.facts (
    name  text PRIMARY KEY,
    value text NOT NULL
);

-- This table has one row. The number of a transaction is the epoch plus the xid of the transaction. An epoch is valid for
-- one timeline of one server ("cluster" is the system identifier of the server). A restored server counts xids from the end
-- of its backup, and a promoted server counts xids from its last state as a standby. Without a new epoch, it could use
-- numbers that its predecessor has already used.
CREATE TABLE {schema}.epoch (
    epoch    bigint NOT NULL,
    cluster  bigint NOT NULL,
    timeline bigint
);

-- A row is written when a conversation begins, is published or is erased, but not at an append. The version and the head
-- are in the last event, and reading it costs one index seek. The key is (number of the transaction << 20) + n, so no
-- sequence is needed. The events of a fork below parent_version are events of its parent. "seed" is the head before event
-- 0, if another conversation recorded that event. If a conversation uses the id of an erased conversation again, "replaces"
-- is the key of the erased conversation. The tombstone is then not visible, and its erased_at distinguishes it from a
-- staged import. "pending" is the number of source records that have no events yet. For an archived conversation, "pending"
-- is the number of events in its object, times -1.
CREATE TABLE {schema}.conversations (
    key            bigint PRIMARY KEY,
    id             bytea NOT NULL,
    visible        boolean NOT NULL,
    created_at     bigint NOT NULL,
    parent         bigint,
    parent_version bigint,
    salt           bytea,
    key_id         bytea,
    sealed_key     bytea,
    erased_at      bigint,
    erased_reason  bytea,
    erased_events  bigint,
    erased_head    bytea,
    mark           bytea,
    seed           bytea,
    replaces       bigint,
    redactions     bigint,
    pending        bigint
);
-- An id may be longer than an index entry. A search therefore uses the digest of the id, and a sort uses its first bytes,
-- then the remaining bytes.
CREATE UNIQUE INDEX conversations_by_id ON {schema}.conversations (sha256(id)) WHERE visible;
CREATE INDEX conversations_in_order ON {schema}.conversations (substring(id, 1, 256)) WHERE visible;
-- With this index, followers leave out erased conversations. Without it, a plan would read all conversations for each page.
CREATE INDEX conversations_erased ON {schema}.conversations (key) WHERE erased_at IS NOT NULL;
CREATE INDEX conversations_by_parent ON {schema}.conversations (parent) WHERE parent IS NOT NULL;
CREATE INDEX conversations_by_key ON {schema}.conversations (key_id) WHERE visible AND key_id IS NOT NULL;

-- The position is (number of the transaction << 20) + the place in the transaction. A staged row has no position here. The
-- table publications has its position after the import. The rows with the conversation -k are the ledger of conversation k,
-- which lists its later changes. The rows with the conversation 0 are the ledger of the store. A body of 7 KB takes 70 µs
-- to insert and 4.2 KB on disk with lz4, 220 µs and 3.5 KB with pglz, and 50 µs and 8.5 KB without compression. "meta" has
-- all data of an event except its body. Fields with an index are columns too.
CREATE TABLE {schema}.events (
    conversation      bigint NOT NULL,
    id                bigint NOT NULL,
    position          bigint,
    shown             boolean NOT NULL,
    structural        boolean NOT NULL,
    kind              bytea NOT NULL,
    meta              bytea NOT NULL,
    body              bytea {lz4} NOT NULL,
    PRIMARY KEY (conversation, id)
);
CREATE UNIQUE INDEX events_by_position ON {schema}.events (position) WHERE position IS NOT NULL;
CREATE INDEX events_structural ON {schema}.events (conversation, id) WHERE structural;
CREATE INDEX events_of_documents ON {schema}.events (conversation, id) WHERE kind = 'document_changes'::bytea;
-- Opening a View walks this index. The index leaves out annotations, because most events of a real log may be annotations.
CREATE INDEX events_shown ON {schema}.events (conversation, id) WHERE shown;

-- Imports that were staged. The events first_id, first_id + 1, … of a conversation have the positions first_position,
-- first_position + 1, …. One transaction has 2^20 positions, so a longer import has several rows.
CREATE TABLE {schema}.publications (
    first_position bigint PRIMARY KEY,
    conversation   bigint NOT NULL,
    first_id       bigint NOT NULL,
    size           bigint NOT NULL
);
CREATE INDEX publications_by_conversation ON {schema}.publications (conversation, first_id);
CREATE INDEX publications_by_end ON {schema}.publications ((first_position + size));

-- Incomplete operations of several transactions, with their states. A conversation has at most one operation. A negative
-- number stands for an operation on the store.
CREATE TABLE {schema}.unfinished (
    conversation bigint PRIMARY KEY,
    operation    bytea NOT NULL,
    state        bytea NOT NULL
);

CREATE TABLE {schema}.idempotency_keys (
    conversation bigint NOT NULL,
    key          bytea NOT NULL,
    first_id     bigint NOT NULL,
    events       bigint NOT NULL,
    proof        bytea
);
CREATE UNIQUE INDEX idempotency_keys_by_key ON {schema}.idempotency_keys (conversation, sha256(key));
-- Finds imported events by their id in the source, over all conversations.
CREATE INDEX idempotency_keys_of_sources ON {schema}.idempotency_keys (sha256(key))
WHERE substring(key, 1, 15) = 'foldlog:source:'::bytea;

-- Bytes beside events. A conversation stores equal bytes only once. Most of these bytes are images, which are compressed
-- already.
CREATE TABLE {schema}.attachments (
    conversation bigint NOT NULL,
    name         bytea NOT NULL,
    encoding     smallint NOT NULL,
    body         bytea {external} NOT NULL,
    PRIMARY KEY (conversation, name, encoding)
);
CREATE TABLE {schema}.attached (
    conversation bigint NOT NULL,
    event        bigint NOT NULL,
    name         bytea NOT NULL,
    encoding     smallint NOT NULL,
    PRIMARY KEY (conversation, event, name, encoding)
);
CREATE INDEX attached_by_name ON {schema}.attached (conversation, name, encoding);

-- The source of an import, under the key of its conversation. The records below from_record are records of "parent". All
-- sources that grew from one source have the same "root". "made" is the number of records that have events. "redacted" has
-- the numbers of the source's own redacted records, 4 bytes each. "about" and "sums" are deflated, and are encrypted in an
-- encrypted conversation. After an erasure, imports with this "fingerprint" are refused.
CREATE TABLE {schema}.sources (
    conversation bigint PRIMARY KEY,
    root         bigint NOT NULL,
    parent       bigint,
    from_record  bigint NOT NULL,
    records      bigint NOT NULL,
    made         bigint NOT NULL,
    format       bytea NOT NULL,
    reader       bigint NOT NULL,
    encoding     bigint NOT NULL,
    head         bytea NOT NULL,
    fingerprint  bytea NOT NULL,
    redacted     bytea NOT NULL,
    about        bytea NOT NULL,
    sums         bytea NOT NULL
);
CREATE INDEX sources_by_root ON {schema}.sources (root);
-- If the encoding of a block has the bit 16, the block was appended alone. Its "places" then also list the events of its
-- records, and contain the head after its last record. Blocks after the first "records" records of a source were appended
-- alone, or belong to an incomplete operation. The bodies of blocks are compressed already.
CREATE TABLE {schema}.blocks (
    conversation bigint NOT NULL,
    first        bigint NOT NULL,
    records      bigint NOT NULL,
    encoding     bigint NOT NULL,
    places       bytea NOT NULL,
    body         bytea {external} NOT NULL,
    PRIMARY KEY (conversation, first)
);
-- The events of records. Each row lists several records. A record has three numbers of 4 bytes: its own number, the id of
-- its first event, and the number of its events. The list is deflated. "event" is the first event of the row.
CREATE TABLE {schema}.made (
    conversation bigint NOT NULL,
    event        bigint NOT NULL,
    places       bytea NOT NULL,
    PRIMARY KEY (conversation, event)
);
-- The states of a place at its imports. A place is a hash of the path, the name inside and the options. A row names a
-- conversation that was imported from the place, and the record and the byte up to which the import has read. The newest
-- state has the highest "seen".
CREATE TABLE {schema}.places (
    place        bytea NOT NULL,
    conversation bigint NOT NULL,
    seen         bigint NOT NULL,
    records      bigint NOT NULL,
    taken        bigint NOT NULL,
    state        bytea NOT NULL,
    digest       bytea NOT NULL,
    PRIMARY KEY (place, conversation)
);
CREATE INDEX places_of ON {schema}.places (conversation);
-- Places and fingerprints of erased sources, and hashes of redacted records. Imports refuse them. "own" is true if this
-- store erased or redacted them itself, and false if they came with a copy of another store.
CREATE TABLE {schema}.refused (
    fingerprint  bytea PRIMARY KEY,
    conversation bigint NOT NULL,
    own          boolean NOT NULL
);
CREATE INDEX refused_of ON {schema}.refused (conversation);

-- The records of projections. Rows can be deleted: foldlog makes them again, or reads the data from the events.
CREATE TABLE {schema}.records (
    conversation bigint NOT NULL,
    projection   bytea NOT NULL,
    version      bigint NOT NULL,
    code         bigint NOT NULL,
    checksum     integer NOT NULL,
    encoding     smallint NOT NULL,
    body         bytea {lz4} NOT NULL,
    PRIMARY KEY (conversation, projection, version)
);

-- The figures of a conversation, computed from its events at this version, or from the records of its source. Rows can be
-- deleted: foldlog computes them again. An unknown number is null. Times are in microseconds. A local time counts as UTC;
-- "is_local" is 1 if the first time is local, 2 if the last is, and 3 if both are. "texts" is JSON: title, first error,
-- attributes. In an encrypted conversation, "texts" is encrypted. The tables below then contain a keyed digest in place of
-- each name, and "texts" contains the name. "replies" has a hash of 8 bytes for each reply of a model. "replies_compared"
-- is 1 after these replies were compared with the replies of other conversations.
CREATE TABLE {schema}.figures (
    conversation       bigint PRIMARY KEY,
    id                 bytea NOT NULL,
    code               bigint NOT NULL,
    version            bigint NOT NULL,
    is_companion       bigint NOT NULL,
    recorded_at        bigint NOT NULL,
    is_local           bigint NOT NULL,
    first_at           bigint,
    last_at            bigint,
    longest_wait_s     double precision,
    events             bigint,
    errors             bigint,
    view_tokens        bigint,
    sent_events        bigint,
    sent_summaries     bigint,
    last_prompt_tokens bigint,
    tokens             bigint,
    condensations      bigint,
    tokens_saved       bigint,
    format             text,
    state              text,
    encoding           bigint NOT NULL,
    replies_compared   bigint NOT NULL DEFAULT 0,
    texts              bytea NOT NULL,
    replies            bytea NOT NULL
);
CREATE INDEX figures_to_compare ON {schema}.figures (conversation) WHERE replies_compared = 0 AND length(replies) > 0;
-- Calls of models by day, model and size of the prompt. The cost is null if the calls have no cost.
CREATE TABLE {schema}.figure_calls (
    conversation          bigint NOT NULL,
    day                   text NOT NULL,
    model                 text NOT NULL,
    above                 bigint NOT NULL,
    by_condenser          bigint NOT NULL,
    calls                 bigint NOT NULL,
    prompt_tokens         bigint,
    completion_tokens     bigint,
    cached_tokens         bigint,
    cache_write_tokens    bigint,
    cache_write_1h_tokens bigint,
    reasoning_tokens      bigint,
    cost                  double precision
);
CREATE INDEX figure_calls_of ON {schema}.figure_calls (conversation);
-- The usage of replies that several histories contain. The key is a hash of the ids of a reply. figure_calls contains this
-- usage too, so a total must count each reply only once.
CREATE TABLE {schema}.figure_replies (
    reply                 bigint NOT NULL,
    conversation          bigint NOT NULL,
    day                   text,
    model                 text,
    above                 bigint,
    by_condenser          bigint,
    calls                 bigint,
    prompt_tokens         bigint,
    completion_tokens     bigint,
    cached_tokens         bigint,
    cache_write_tokens    bigint,
    cache_write_1h_tokens bigint,
    reasoning_tokens      bigint,
    cost                  double precision,
    PRIMARY KEY (reply, conversation)
);
CREATE INDEX figure_replies_of ON {schema}.figure_replies (conversation);
-- All other counts. "what" says what is counted, such as 'tool'. "name" is the name of the counted thing.
CREATE TABLE {schema}.figure_counts (
    conversation bigint NOT NULL,
    what         text NOT NULL,
    name         text NOT NULL,
    number       double precision,
    PRIMARY KEY (conversation, what, name)
);

-- The positions of projections of the eventsourcing library, written in their own transactions. The token is random. If the
-- connection of a writer breaks at the commit, the writer recognizes its own row by the token.
CREATE TABLE {schema}.tracking (
    application     bytea NOT NULL,
    notification_id bigint NOT NULL,
    token           bigint NOT NULL,
    PRIMARY KEY (application, notification_id)
);

-- The list of conversations by attribute and by last activity. A row is written when attributes change and when
-- conversations are listed, but not at other appends. To make the whole list again from the events, delete the rows of
-- listing and listed, the records 'attributes', and the value 'listed' in facts. A digest stands for one attribute. In an
-- encrypted conversation, the digest is keyed. Each conversation also has the digest of 16 zero bytes. A conversation with
-- the version -1 must be listed again. A conversation with the version -2 must be listed by a process that has its key.
CREATE TABLE {schema}.listing (
    conversation bigint PRIMARY KEY,
    at           bigint NOT NULL,
    version      bigint NOT NULL,
    digests      bytea NOT NULL
);
CREATE INDEX listing_pending ON {schema}.listing (version) WHERE version < 0;
CREATE TABLE {schema}.listed (
    digest       bytea NOT NULL,
    at           bigint NOT NULL,
    conversation bigint NOT NULL,
    PRIMARY KEY (digest, at, conversation)
);

-- Null on a standby, and if the server does not show it.
CREATE FUNCTION {schema}.timeline() RETURNS bigint
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $timeline$
BEGIN
    IF pg_is_in_recovery() THEN
        RETURN NULL;
    END IF;
    RETURN ('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::bit(32)::bigint;
EXCEPTION
    WHEN feature_not_supported OR insufficient_privilege THEN
        RETURN NULL;
END
$timeline$;

-- The identity of the server that has a table, if the query is FROM this table. This server may not be the server to which
-- the client is connected.
CREATE FUNCTION {schema}.here() RETURNS bigint
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
AS $here$ SELECT system_identifier FROM pg_control_system() $here$;

-- Begin an epoch above all earlier positions, if the present epoch belongs to another server or another timeline. The gap
-- leaves space for the transactions after the backup: 2^28 transactions, and 2^14 for each second since the newest event of
-- the backup. The roles of agents may not change the table, so this function runs with the rights of its owner, and has no
-- parameter.
CREATE FUNCTION {schema}.begin_epoch() RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $begin_epoch$
DECLARE
    here bigint := (SELECT {schema}.here() FROM {schema}.epoch);
    now_on bigint := (SELECT {schema}.timeline() FROM {schema}.epoch);
    next_xid bigint := (SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint FROM {schema}.epoch);
    highest bigint;
    idle_s bigint;
BEGIN
    PERFORM FROM {schema}.epoch FOR UPDATE;
    SELECT greatest(
            (SELECT max(position) >> 20 FROM {schema}.events),
            (SELECT max(first_position) >> 20 FROM {schema}.publications),
            0),
        (SELECT extract(epoch FROM clock_timestamp())::bigint - ('x' || encode(substring(meta FROM 17 FOR 8), 'hex'))::bit(64)::bigint / 1000000 FROM {schema}.events
         WHERE position IS NOT NULL ORDER BY position DESC LIMIT 1)
    INTO highest, idle_s;
    UPDATE {schema}.epoch
    SET cluster = here, timeline = coalesce(now_on, timeline),
        epoch = greatest(epoch, highest) + (1::bigint << 28)
            + least(greatest(coalesce(idle_s, 0), 0) << 14, 1::bigint << 38)
    WHERE cluster <> here OR timeline <> now_on
        OR highest >= epoch + next_xid;
    UPDATE {schema}.epoch SET timeline = now_on WHERE timeline IS NULL;
END
$begin_epoch$;

INSERT INTO {schema}.epoch VALUES (0, 0, NULL);
