-- Schema 1. docs/internals/STORED_BYTES.md defines each column, and docs/POSTGRESQL.md what differs on a server. {schema} is
-- the schema of the store. Ids and names are UTF-8 bytes, because they may have characters that a text of PostgreSQL may not
-- have (NUL, lone surrogates). Bytes sort like the texts. {by_conversation} divides the tables that may have a row for each
-- event by the hash of the conversation; it is empty if there is only one partition. No index spans several partitions, so
-- {unique} is then empty, and only the transaction numbers make positions unique.

CREATE TABLE {schema}.store (
    name  text PRIMARY KEY,
    value text NOT NULL
);

-- Facts that writers record about the store as a whole: the last removal of text, and up to which position conversations are
-- listed. They have a table of their own, because the role of agents may not change the identity and the schema of the
-- store.
CREATE TABLE {schema}.facts (
    name  text PRIMARY KEY,
    value text NOT NULL
);

-- One row. The number of a transaction is this epoch plus its xid. An epoch is right for one timeline of one server
-- ("cluster" is the system identifier of the server). A server that was restored from a backup, or promoted, counts its
-- transactions from the end of that backup or standby, so it may give numbers that its predecessor gave.
CREATE TABLE {schema}.epoch (
    epoch    bigint NOT NULL,
    cluster  bigint NOT NULL,
    timeline bigint
);

-- A row is written when a conversation begins, is published or is erased, and never at an append: the last event has the
-- version and the head, and costs one index seek. The key is (number of the transaction << 20) + n: no sequence is needed.
-- The events of a fork below parent_version are events of its parent. "seed" is the head before event 0, if another
-- conversation recorded that event. If a conversation uses the id of an erased one again, "replaces" has the key of the
-- erased one. That tombstone is not visible, and erased_at distinguishes it from a staged import. "pending" counts the
-- records of the source that have no events yet. For an archived conversation it is the negative number of the events in its
-- object.
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
-- An id may be longer than an index entry, so it is found by its digest, and sorted by its first bytes, and then by the
-- rest.
CREATE UNIQUE INDEX conversations_by_id ON {schema}.conversations (sha256(id)) WHERE visible;
CREATE INDEX conversations_in_order ON {schema}.conversations (substring(id, 1, 256)) WHERE visible;
-- With this index, followers leave out erased conversations. Without it, a plan would read all conversations for each page.
CREATE INDEX conversations_erased ON {schema}.conversations (key) WHERE erased_at IS NOT NULL;
CREATE INDEX conversations_by_parent ON {schema}.conversations (parent) WHERE parent IS NOT NULL;
CREATE INDEX conversations_by_key ON {schema}.conversations (key_id) WHERE visible AND key_id IS NOT NULL;

-- The position is (number of the transaction << 20) + the place in the transaction. It is null for a staged row, whose
-- position publications has. The rows of conversation -k are the ledger of conversation k: its later changes. The rows of
-- conversation 0 are the ledger of the store. Inserting a body of 7 KB takes 70 µs with lz4, 220 µs with pglz and 50 µs
-- without compression; the body takes 4.2, 3.5 and 8.5 KB on disk. "meta" has all data of an event besides its body; the
-- indexed fields are also columns.
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
) {by_conversation};
CREATE {unique} INDEX events_by_position ON {schema}.events (position) WHERE position IS NOT NULL;
CREATE INDEX events_structural ON {schema}.events (conversation, id) WHERE structural;
CREATE INDEX events_of_documents ON {schema}.events (conversation, id) WHERE kind = 'document_changes'::bytea;
-- Most events of a real log may be annotations. Opening a View walks this index, which does not have them.
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

-- Operations of several transactions that are not complete, with their states, at most one on each conversation. A negative
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
) {by_conversation};
CREATE UNIQUE INDEX idempotency_keys_by_key ON {schema}.idempotency_keys (conversation, sha256(key));
-- Events by the id that their source gave them, over all conversations.
CREATE INDEX idempotency_keys_of_sources ON {schema}.idempotency_keys (sha256(key))
WHERE substring(key, 1, 15) = 'foldlog:source:'::bytea;

-- Bytes beside events. A conversation stores equal bytes only once. Most of them are images, which are compressed already.
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
-- the numbers of the source's own redacted records, 4 bytes each. "about" and "sums" are deflated, and sealed in an
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
-- If the encoding of a block has the bit 16, the block was appended alone: its places also list the events of its records,
-- and have the head after them. Blocks after the first "records" records of a source are such blocks, or belong to an
-- operation that is not complete. The bodies of blocks are compressed already.
CREATE TABLE {schema}.blocks (
    conversation bigint NOT NULL,
    first        bigint NOT NULL,
    records      bigint NOT NULL,
    encoding     bigint NOT NULL,
    places       bytea NOT NULL,
    body         bytea {external} NOT NULL,
    PRIMARY KEY (conversation, first)
) {by_conversation};
-- The events of records, some records in each row: the number of the record, the id of its first event, and the number of
-- its events, 4 bytes each, deflated. "event" is the first event of the row.
CREATE TABLE {schema}.made (
    conversation bigint NOT NULL,
    event        bigint NOT NULL,
    places       bytea NOT NULL,
    PRIMARY KEY (conversation, event)
) {by_conversation};
-- The imported states of a place (a hash of the path, the name inside and the options): the conversations that were imported
-- from it, and up to which record and byte it was read. The newest state has the highest "seen".
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
-- Places and fingerprints of erased sources, and hashes of redacted records: an import refuses them.
CREATE TABLE {schema}.refused (
    fingerprint  bytea PRIMARY KEY,
    conversation bigint NOT NULL
);
CREATE INDEX refused_of ON {schema}.refused (conversation);

-- The records of projections. Rows can be deleted: they are made again, or their data is read from the events.
CREATE TABLE {schema}.records (
    conversation bigint NOT NULL,
    projection   bytea NOT NULL,
    version      bigint NOT NULL,
    code         bigint NOT NULL,
    checksum     integer NOT NULL,
    encoding     smallint NOT NULL,
    body         bytea {lz4} NOT NULL,
    PRIMARY KEY (conversation, projection, version)
) {by_conversation};

-- The figures of a conversation, made of its events at this version, or of the records of its source. Rows can be deleted:
-- they are made again. An unknown number is null. Times are in microseconds. A local time counts as UTC; "is_local" is 1 if
-- the first time is local, 2 if the last is, and 3 if both are. "texts" is JSON: title, first error, attributes. In an
-- encrypted conversation it is sealed, each name in the tables below is a keyed digest, and "texts" has the name. "replies"
-- has a hash of 8 bytes for each reply of a model. "replies_compared" is 1 after these were compared with the replies of
-- other conversations.
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
-- Calls of models by day, model and size of the prompt. The cost is null if the calls have none.
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
-- The usage of replies that several histories have, by a hash of the ids of the replies. figure_calls has it too: a total
-- counts each reply once.
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
-- All other counts. "what" says what is counted, such as 'tool', and "name" under which name.
CREATE TABLE {schema}.figure_counts (
    conversation bigint NOT NULL,
    what         text NOT NULL,
    name         text NOT NULL,
    number       double precision,
    PRIMARY KEY (conversation, what, name)
);

-- The positions of projections of the eventsourcing library, written in their own transactions. The token is random: by it,
-- a writer whose connection broke at the commit recognizes its own row.
CREATE TABLE {schema}.tracking (
    application     bytea NOT NULL,
    notification_id bigint NOT NULL,
    token           bigint NOT NULL,
    PRIMARY KEY (application, notification_id)
);

-- Conversations by attribute and by last activity, as a process last found them. A row is written when attributes change and
-- when conversations are listed, and at no other append. To make all again from the events, delete the rows of listing and
-- listed, the records 'attributes', and the value 'listed' in facts. A digest stands for one attribute, keyed in an
-- encrypted conversation; 16 zero bytes stand for all conversations. A conversation with version -1 must be listed again,
-- and with -2 by a process that has its key.
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

-- The identity of the server that has the tables, if the query is FROM one of them. It may differ from the server to which
-- the client is connected.
CREATE FUNCTION {schema}.here() RETURNS bigint
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
AS $here$ SELECT system_identifier FROM pg_control_system() $here$;

-- Begin an epoch above all positions that were ever given, if the present epoch is right for another server or another
-- timeline. The gap has space for positions that were given after the backup was made: 2^28 transactions, and 2^14 for each
-- second since the newest event of the backup. The roles of agents may not change the table, so this function runs with the
-- rights of its owner, and has no parameter.
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

INSERT INTO {schema}.store VALUES ('partitions', '{partitions}');

DO $partitions$
DECLARE
    part text;
BEGIN
    FOR part IN
        SELECT format('CREATE TABLE %I.%I PARTITION OF %s FOR VALUES WITH (MODULUS %s, REMAINDER %s)',
                      nspname, relname || '_' || n, c.oid::regclass, {partitions}, n)
        FROM pg_class c JOIN pg_namespace s ON s.oid = relnamespace, generate_series(0, {partitions} - 1) n
        WHERE relkind = 'p' AND nspname = {schema_name}
    LOOP
        EXECUTE part;
    END LOOP;
END
$partitions$;
