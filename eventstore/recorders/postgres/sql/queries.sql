-- Each block is one statement; the line above it has its name. A part is inserted into statements at its name in braces.
-- {schema} is the schema of the store. Parameters are bound in binary and have explicit types: nothing is guessed, quoted or
-- converted.

-- part: settings
current_setting('server_version_num')::int / 10000, pg_is_in_recovery(),
       current_setting('synchronous_commit') = 'off', current_setting('fsync') = 'off'

-- Both sides of the comparison are in one statement, because they have to be of one snapshot: a transaction that commits
-- between two statements has a higher number than the first statement saw.
-- part: is_elsewhere
e.cluster != {schema}.here()
           OR greatest((SELECT max(position) >> 20 FROM {schema}.events),
                       (SELECT max(first_position) >> 20 FROM {schema}.publications))
               >= pg_snapshot_xmax(pg_current_snapshot())::text::bigint + e.epoch

-- part: is_later
e.timeline IS DISTINCT FROM coalesce({schema}.timeline(), e.timeline)

-- name: node_settings
SELECT current_setting('server_encoding'), {settings}

-- name: greet
SELECT {settings},
       extract(epoch FROM current_setting('idle_in_transaction_session_timeout')::interval)::float8,
       current_setting('citus.shard_count', true) IS NOT NULL,
       {is_elsewhere},
       {is_later}
FROM {schema}.epoch e

-- A pooler that keeps the prepared statements of each client gives them other names on the server. A client without a
-- pooler knows the number of its session.
-- name: passes_names_through
SELECT pg_backend_pid() <> $2::bigint
    AND EXISTS (SELECT FROM pg_prepared_statements WHERE name = convert_from($1::bytea, 'UTF8'))

-- name: owner
SELECT convert_to(tableowner::text, 'UTF8') FROM pg_tables WHERE schemaname = {schema_name} LIMIT 1

-- name: commit_locally
SET LOCAL synchronous_commit TO local

-- name: needs_epoch
SELECT {is_elsewhere} OR {is_later} FROM {schema}.epoch e

-- name: begin_epoch
SELECT {schema}.begin_epoch()

-- From now on, all positions are above this one.
-- name: begin_after
UPDATE {schema}.epoch SET epoch = ($1::bigint >> 20) + 1 WHERE epoch <= $1::bigint >> 20

-- name: begin_reading
BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY

-- name: begin_writing
BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE

-- name: begin_relaxed
SET LOCAL synchronous_commit TO off

-- name: begin_local
SET LOCAL synchronous_commit TO local

-- name: begin_at_once
SET LOCAL lock_timeout TO '100ms'

-- name: commit
COMMIT

-- name: rollback
ROLLBACK

-- If each connection is checked when it is made, {here} and {timeline} are columns of the epoch. Behind a pooler and on
-- Citus, {here} and {timeline} are read from the server, because a connection may now lead to another server. If they
-- differ from the epoch, no transaction writes before a new epoch begins. If the result is a text, converting it to a
-- number fails, and the text explains the failure in the server's log.
-- name: number
SELECT (
    CASE
        WHEN cluster <> {here} OR timeline IS DISTINCT FROM coalesce({timeline}, timeline)
        THEN 'none: this server was promoted or restored, so foldlog connects again and begins an epoch'
        ELSE (pg_current_xact_id()::text::bigint + epoch)::text
    END
)::bigint
FROM {schema}.epoch

-- On Citus, the first statement of a transaction on a store. It changes nothing, but because it may write, Citus moves the
-- schema only after the transaction has ended, and sends all statements of the transaction through one connection.
-- Otherwise, the transaction could get its locks and its number from one transaction of a worker, and insert its rows in
-- another, so followers would miss rows, and a commit in doubt could be repeated.
-- name: stay
INSERT INTO {schema}.store (name, value) VALUES ('schema', '') ON CONFLICT DO NOTHING

-- name: lock
SELECT pg_advisory_xact_lock($1::bigint) FROM {schema}.epoch

-- name: barrier
SELECT pg_logical_emit_message(true, 'foldlog', '') FROM {schema}.epoch

-- For followers. On a hot standby, which cannot commit a message, the result is null. The transaction needs no other mode,
-- because PostgreSQL does not count the message as a write.
-- name: begin_confirming
BEGIN ISOLATION LEVEL READ COMMITTED

-- name: confirm_durably
SET LOCAL synchronous_commit TO on

-- name: confirm
SELECT CASE WHEN NOT pg_is_in_recovery() THEN pg_logical_emit_message(true, 'foldlog', '')::text::bytea END
FROM {schema}.epoch

-- part: conversation_columns
c.key, c.id, c.created_at, c.salt, coalesce(e.id, b.id), coalesce(e.meta, b.meta),
c.parent, c.parent_version, c.key_id, c.sealed_key, c.erased_at, c.erased_reason, c.erased_events, c.erased_head,
CASE WHEN c.erased_at IS NOT NULL THEN (
    SELECT position FROM {schema}.events WHERE conversation = -c.key ORDER BY id DESC LIMIT 1
) END,
c.visible, c.mark, c.seed, c.replaces, c.redactions, c.pending, p.id

-- The end of a conversation (c): its last event (e), or the border (b) of a fork without events of its own; and its parent
-- (p).
-- part: last_events
LEFT JOIN LATERAL (
    SELECT * FROM {schema}.events
    WHERE conversation = c.key AND id >= CASE WHEN c.parent IS NULL THEN 0 ELSE c.parent_version END
    ORDER BY id DESC LIMIT 1
) e ON true
LEFT JOIN {schema}.events b ON e.id IS NULL AND b.conversation = c.parent AND b.id = c.parent_version - 1
LEFT JOIN {schema}.conversations p ON p.key = c.parent

-- name: conversation
SELECT {conversation_columns}
FROM {schema}.conversations c
{last_events}
WHERE sha256(c.id) = sha256($1::bytea) AND c.visible

-- Returns the transaction's number if the conversation is unchanged. Otherwise, the statement fails, and the statements
-- that were sent after it do not run. The text that is not a number explains the failure in the server's log.
-- name: number_if_unchanged
SELECT (
    CASE
        WHEN EXISTS (
            SELECT FROM {schema}.conversations c
            CROSS JOIN LATERAL (SELECT id, meta FROM {schema}.events WHERE conversation = c.key ORDER BY id DESC LIMIT 1) e
            WHERE c.key = $1::bigint AND c.erased_at IS NULL AND e.id = $2::bigint
                AND substring(e.meta FROM 33 FOR 32) = $3::bytea
                AND c.salt = $4::bytea AND c.key_id IS NOT DISTINCT FROM $5::bytea
                AND c.sealed_key IS NOT DISTINCT FROM $6::bytea AND c.mark IS NOT DISTINCT FROM $7::bytea
                AND coalesce(c.redactions, 0) = $8::bigint AND coalesce(c.pending, 0) = $9::bigint
        )
        THEN coalesce(
            (SELECT (pg_current_xact_id()::text::bigint + epoch)::text FROM {schema}.epoch
             WHERE cluster = {here} AND timeline IS NOT DISTINCT FROM coalesce({timeline}, timeline)),
            'none: this server was promoted or restored, so foldlog asks again')
        ELSE 'none: somebody else wrote to the conversation, so foldlog reads how it ends and appends then'
    END
)::bigint

-- Fails if a record of the store is not as this process has it, as the statement above does.
-- name: check_record
SELECT (
    CASE
        WHEN EXISTS (
            SELECT FROM {schema}.records
            WHERE conversation = $1::bigint AND projection = $2::bytea AND version = $3::bigint AND code = $4::bigint
                AND body = $5::bytea AND encoding = $6::bigint
        )
        THEN '1'
        ELSE 'none: somebody else wrote this record, so foldlog reads it'
    END
)::bigint

-- Fails if a stream is not open, or not as this process has it.
-- name: check_stream
SELECT (
    CASE
        WHEN EXISTS (
            SELECT FROM {schema}.streams s
            WHERE conversation = $1::bigint AND stream = $2::bigint AND closed_at IS NULL AND state = $3::bytea
                AND coalesce((
                    SELECT c.ends FROM {schema}.stream_chunks c WHERE c.conversation = s.conversation AND c.stream = s.stream
                    ORDER BY c.begins DESC LIMIT 1
                ), 0) = $4::bigint
        )
        THEN '1'
        ELSE 'none: somebody else wrote to this stream, so foldlog reads it'
    END
)::bigint

-- name: newest_position
SELECT greatest(
    (SELECT position FROM {schema}.events WHERE conversation = $1::bigint ORDER BY id DESC LIMIT 1),
    (SELECT max(first_position + size - 1) FROM {schema}.publications WHERE conversation = $1::bigint)
)

-- name: name_of
SELECT id, visible FROM {schema}.conversations WHERE key = $1::bigint

-- name: conversation_of
SELECT {conversation_columns}
FROM {schema}.conversations c
{last_events}
WHERE c.key = $1::bigint

-- name: conversations
SELECT {conversation_columns}
FROM (
    SELECT * FROM {schema}.conversations
    WHERE visible AND substring(id, 1, 256) >= substring($1::bytea, 1, 256) AND id >= $1::bytea
    ORDER BY substring(id, 1, 256), id LIMIT $2::bigint
) c
{last_events}
ORDER BY substring(c.id, 1, 256), c.id

-- name: conversations_among
SELECT {conversation_columns}
FROM {schema}.conversations c
{last_events}
WHERE c.key = ANY ($1::bigint[]) AND c.parent IS NULL

-- name: last_changes
SELECT conversation, max(id) FROM {schema}.events
WHERE conversation = ANY ($1::bigint[]) AND kind = 'document_changes'::bytea GROUP BY conversation

-- name: id_from
SELECT id FROM {schema}.conversations
WHERE visible AND substring(id, 1, 256) >= substring($1::bytea, 1, 256) AND id >= $1::bytea
ORDER BY substring(id, 1, 256), id LIMIT 1

-- name: tombstones
SELECT id, erased_events, erased_at, erased_reason FROM {schema}.conversations
WHERE visible AND erased_at IS NOT NULL AND substring(id, 1, 256) >= substring($1::bytea, 1, 256) AND id > $1::bytea
ORDER BY substring(id, 1, 256), id LIMIT $2::bigint

-- This is asked of several stores together, so it reads no more than the ids.
-- name: ids
SELECT id, key FROM {schema}.conversations
WHERE visible AND substring(id, 1, 256) >= substring($1::bytea, 1, 256) AND id >= $1::bytea
ORDER BY substring(id, 1, 256), id LIMIT $2::bigint

-- name: activity
SELECT at, conversation FROM {schema}.listed
WHERE digest = ($1::bytea[])[1] AND (at, conversation) < ($2::bigint, $3::bigint)
ORDER BY at DESC, conversation DESC LIMIT $4::bigint

-- name: activity_with_all
SELECT at, conversation FROM {schema}.listed d
WHERE digest = ($1::bytea[])[1] AND (at, conversation) < ($2::bigint, $3::bigint) AND (
    SELECT count(*) FROM {schema}.listed o
    WHERE o.digest = ANY ($1::bytea[]) AND o.at = d.at AND o.conversation = d.conversation
) = $4::bigint
ORDER BY at DESC, conversation DESC LIMIT $5::bigint

-- name: to_list_again
SELECT conversation, version FROM {schema}.listing WHERE version < 0 AND version >= $1::bigint

-- name: news
SELECT 1 FROM {schema}.events WHERE position > ($1::bigint[])[{store} + 1] ORDER BY position LIMIT 1

-- name: published_news
SELECT 1 FROM {schema}.publications WHERE first_position + size > ($1::bigint[])[{store} + 1] + 1 LIMIT 1

-- name: with_bytes
SELECT 1 FROM {schema}.facts WHERE starts_with(name, 'bytes_pending') LIMIT 1

-- name: state
SELECT visible, erased_at IS NOT NULL FROM {schema}.conversations WHERE key = $1::bigint

-- part: row
id, meta, body

-- Checksums are unsigned.
-- part: record
version, code, body, encoding, checksum::bigint & 4294967295

-- name: rows
SELECT {row}
FROM {schema}.events WHERE conversation = $1::bigint AND id >= $2::bigint AND id < $3::bigint
ORDER BY id LIMIT $4::bigint

-- The rows up to the one with which they have more than some bytes. octet_length reads no body that is stored apart.
-- name: rows_until
SELECT {row} FROM (
    SELECT id, meta, body, sum(octet_length(body)) OVER (ORDER BY id) - octet_length(body) AS before
    FROM {schema}.events WHERE conversation = $1::bigint AND id >= $2::bigint AND id < $3::bigint
    ORDER BY id LIMIT $4::bigint
) e
WHERE before <= $5::bigint ORDER BY id

-- The indexed fields, which are columns too.
-- name: columns
SELECT id, kind, shown, structural, position
FROM {schema}.events WHERE conversation = $1::bigint AND id >= $2::bigint AND id < $3::bigint
ORDER BY id LIMIT $4::bigint

-- name: positions
SELECT position FROM {schema}.events WHERE conversation = $1::bigint AND id < $2::bigint ORDER BY id

-- name: metas
SELECT id, meta FROM {schema}.events WHERE conversation = $1::bigint AND id >= $2::bigint AND id < $3::bigint
ORDER BY id LIMIT $4::bigint

-- The last row of a conversation or of a ledger with an id from 0 on.
-- name: newest_id
SELECT id FROM {schema}.events WHERE conversation = $1::bigint AND id >= 0 AND id < $2::bigint ORDER BY id DESC LIMIT 1

-- The last event of a conversation up to a position. There is none if the conversation as a whole is later: it was
-- imported, detached from its parent, or encrypted after this position.
-- name: last_until
SELECT id FROM {schema}.events WHERE conversation = $1::bigint AND (position <= $2::bigint OR position IS NULL)
    AND NOT EXISTS (
        SELECT 1 FROM {schema}.publications WHERE conversation = $1::bigint AND first_position > $2::bigint
    )
    AND NOT EXISTS (
        SELECT 1 FROM {schema}.events
        WHERE conversation = $3::bigint AND kind = 'key_changed'::bytea AND position > $2::bigint
    )
ORDER BY id DESC LIMIT 1

-- The proof of a redacted event has 64 bytes.
-- name: redacted_rows
SELECT {row}
FROM {schema}.events WHERE conversation = $1::bigint AND id >= $2::bigint AND id < $3::bigint
    AND substring(meta FROM 32 FOR 1) = '\x40'::bytea
ORDER BY id LIMIT $4::bigint

-- name: structural
SELECT {row}
FROM {schema}.events WHERE conversation = $1::bigint AND id >= $2::bigint AND id < $3::bigint AND structural
ORDER BY id LIMIT $4::bigint

-- name: document_changes
SELECT {row}
FROM {schema}.events WHERE conversation = $1::bigint AND id >= $2::bigint AND id < $3::bigint AND kind = 'document_changes'::bytea
ORDER BY id DESC LIMIT $4::bigint

-- part: flagged_events
unnest($2::bigint[], $3::bigint[], $4::bigint[]) WITH ORDINALITY AS i (first, last, key, place)
CROSS JOIN LATERAL (
    SELECT * FROM {schema}.events
    WHERE conversation = coalesce(i.key, $1::bigint) AND id BETWEEN i.first AND i.last AND shown
    UNION ALL
    SELECT * FROM {schema}.events
    WHERE conversation = coalesce(i.key, $1::bigint) AND id BETWEEN i.first AND i.last AND structural AND NOT shown
    ORDER BY id
) e

-- name: flagged_rows
SELECT {row} FROM {flagged_events} ORDER BY i.place, e.id

-- name: flagged_rows_until
SELECT {row} FROM (
    SELECT e.id, meta, body, place,
        sum(octet_length(body)) OVER (ORDER BY place, e.id) - octet_length(body) AS before
    FROM {flagged_events}
) f
WHERE before <= $5::bigint ORDER BY place, id

-- name: live_rows
SELECT {row}, position, coalesce((SELECT c.id FROM {schema}.conversations c WHERE c.key = abs(e.conversation)), ''), conversation
FROM {schema}.events e
WHERE position >= $1::bigint
    AND position < (SELECT least($2::bigint, (pg_snapshot_xmin(pg_current_snapshot())::text::bigint + epoch) << 20)
                    FROM {schema}.epoch)
    AND NOT EXISTS (SELECT FROM {schema}.conversations c WHERE c.key = e.conversation AND c.erased_at IS NOT NULL)
ORDER BY position LIMIT $3::bigint

-- The position of the first event from a position on.
-- name: live_place
SELECT e.position, coalesce((SELECT c.id FROM {schema}.conversations c WHERE c.key = abs(e.conversation)), ''), e.id
FROM {schema}.events e WHERE e.position >= $1::bigint ORDER BY e.position LIMIT 1

-- name: publications
SELECT p.first_position, p.conversation, p.first_id, p.size, c.id
FROM {schema}.publications p JOIN {schema}.conversations c ON c.key = p.conversation
WHERE p.first_position >= coalesce(
        (SELECT max(first_position) FROM {schema}.publications WHERE first_position <= $1::bigint), 0)
    AND p.first_position + p.size > $2::bigint
    AND p.first_position <
        (SELECT (pg_snapshot_xmin(pg_current_snapshot())::text::bigint + epoch) << 20 FROM {schema}.epoch)
ORDER BY p.first_position LIMIT 1

-- name: last_position
WITH horizon AS (
    SELECT (pg_snapshot_xmin(pg_current_snapshot())::text::bigint + epoch) << 20 AS position FROM {schema}.epoch
)
SELECT greatest(
    (SELECT max(position) FROM {schema}.events WHERE position < (SELECT position FROM horizon)),
    (SELECT first_position + size - 1 FROM {schema}.publications
     WHERE first_position < (SELECT position FROM horizon) ORDER BY first_position DESC LIMIT 1),
    0)

-- name: all_with_unmade
SELECT c.key, c.id, s.records, s.head, s.format, s.redacted
FROM {schema}.conversations c JOIN {schema}.sources s ON s.conversation = c.key
WHERE c.pending > 0 AND c.visible AND c.erased_at IS NULL

-- name: all_visible
SELECT c.key, coalesce(l.version, -1) FROM {schema}.conversations c LEFT JOIN {schema}.listing l ON l.conversation = c.key
WHERE c.visible AND c.erased_at IS NULL

-- The position of the last event of a conversation, and whether an event between two positions has a time between two
-- times, which are bytes as in "meta". Events that were imported or copied have no positions, and prove nothing.
-- name: newer_before
WITH last AS (
    SELECT position AS until FROM {schema}.events WHERE conversation = $1::bigint ORDER BY id DESC LIMIT 1
)
SELECT until, EXISTS (
    SELECT 1 FROM {schema}.events
    WHERE position > $2::bigint AND position < until AND substring(meta FROM 17 FOR 8) BETWEEN $3::bytea AND $4::bytea
) FROM last WHERE until IS NOT NULL

-- name: touched
SELECT t.key, coalesce(l.version, -1) FROM (
    SELECT abs(conversation) AS key FROM {schema}.events WHERE position > $1::bigint AND position <= $2::bigint
    UNION SELECT conversation FROM {schema}.publications
    WHERE first_position > $1::bigint AND first_position <= $2::bigint
    UNION SELECT conversation FROM {schema}.listing WHERE version < 0 AND version >= $3::bigint
) t LEFT JOIN {schema}.listing l ON l.conversation = t.key

-- name: visible_behind
SELECT c.key, coalesce(l.version, -1) FROM {schema}.conversations c LEFT JOIN {schema}.listing l ON l.conversation = c.key
WHERE c.visible AND c.erased_at IS NULL AND c.key > $1::bigint ORDER BY c.key LIMIT $2::bigint

-- The position of a later event, and its time.
-- name: event_behind
SELECT position, substring(meta FROM 17 FOR 8) FROM {schema}.events
WHERE position > $1::bigint AND position <= $2::bigint ORDER BY position LIMIT 1 OFFSET $3::bigint

-- name: publication_behind
SELECT first_position, ''::bytea FROM {schema}.publications
WHERE first_position > $1::bigint AND first_position <= $2::bigint ORDER BY first_position LIMIT 1 OFFSET $3::bigint

-- name: newest_touched
SELECT abs(conversation), max(position) FROM (
    SELECT conversation, position FROM {schema}.events WHERE position > 0 ORDER BY position DESC LIMIT $1::bigint
) e GROUP BY abs(conversation)

-- part: listed_columns
c.key, c.id, c.created_at, c.sealed_key IS NOT NULL, l.at, l.version,
       r.version IS NULL AND length(l.digests) > 16, r.version, r.code, r.body, r.encoding, r.checksum::bigint & 4294967295

-- name: listed_among
SELECT {listed_columns}
FROM {schema}.listing l JOIN {schema}.conversations c ON c.key = l.conversation AND c.erased_at IS NULL
LEFT JOIN {schema}.records r ON r.conversation = l.conversation AND r.projection = 'attributes'::bytea
WHERE l.conversation = ANY ($1::bigint[])

-- name: listed_one
SELECT {listed_columns}
FROM {schema}.listing l JOIN {schema}.conversations c ON c.key = l.conversation AND c.erased_at IS NULL
LEFT JOIN {schema}.records r ON r.conversation = l.conversation AND r.projection = 'attributes'::bytea
WHERE l.conversation = $1::bigint

-- A page of the conversations that have all $4 digests of $1, the newest first, behind the time $2 and the key $3. It
-- reads the rows of the first digest.
-- name: listed
SELECT {listed_columns}
FROM (
    SELECT * FROM {schema}.listed d
    WHERE digest = ($1::bytea[])[1] AND (at, conversation) < ($2::bigint, $3::bigint) AND (
        SELECT count(*) FROM {schema}.listed o
        WHERE o.digest = ANY ($1::bytea[]) AND o.at = d.at AND o.conversation = d.conversation
    ) = $4::bigint
    ORDER BY at DESC, conversation DESC LIMIT $5::bigint
) d
JOIN {schema}.listing l ON l.conversation = d.conversation
JOIN {schema}.conversations c ON c.key = d.conversation AND c.erased_at IS NULL
LEFT JOIN {schema}.records r ON r.conversation = d.conversation AND r.projection = 'attributes'::bytea
ORDER BY d.at DESC, d.conversation DESC

-- Locks the entry of a conversation without a change, or makes an empty entry. A statement that reads and deletes in one
-- snapshot would leave the rows of "listed" that another transaction has written in the meantime.
-- name: hold_listing
INSERT INTO {schema}.listing AS l (conversation, at, version, digests)
SELECT $1::bigint, 0, -1, ''::bytea FROM {schema}.conversations c WHERE c.key = $1::bigint AND c.erased_at IS NULL
ON CONFLICT (conversation) DO UPDATE SET at = l.at WHERE false

-- If the digests are null, they stay as they are. If another transaction has erased the conversation, its entry goes.
-- name: put_listing
WITH erased AS (
    DELETE FROM {schema}.listing WHERE conversation = $1::bigint AND EXISTS (
        SELECT FROM {schema}.conversations c WHERE c.key = $1::bigint AND c.erased_at IS NOT NULL
    )
    RETURNING 1
)
UPDATE {schema}.listing SET at = $2::bigint, version = $3::bigint, digests = coalesce($4::bytea, digests)
WHERE conversation = $1::bigint AND NOT EXISTS (SELECT FROM erased)

-- part: of_listing
SELECT substring(g.digests, 16 * n + 1, 16) AS digest, g.at, g.conversation
FROM {schema}.listing g, generate_series(0, length(g.digests) / 16 - 1) n WHERE g.conversation = $1::bigint

-- name: put_listed
INSERT INTO {schema}.listed (digest, at, conversation) {of_listing} ON CONFLICT DO NOTHING

-- This finds rows by the whole primary key: a plan with a join might walk the lists of all conversations.
-- name: leave_listed
DELETE FROM {schema}.listed
WHERE conversation = $1::bigint AND at = (SELECT at FROM {schema}.listing WHERE conversation = $1::bigint)
    -- only for the index
    AND digest = ANY (ARRAY(SELECT digest FROM ({of_listing}) g))

-- How many conversations up to a key, with an event up to a position, are in no list, and whether the store has given
-- this position. The beginning of a fork is an entry of the ledger.
-- name: unlisted
SELECT (
    SELECT count(*) FROM {schema}.conversations c
    WHERE c.visible AND c.erased_at IS NULL AND c.key <= $1::bigint
        AND NOT EXISTS (SELECT FROM {schema}.listing l WHERE l.conversation = c.key)
        AND (
            EXISTS (
                SELECT FROM {schema}.events e
                WHERE e.conversation = c.key AND e.position > 0 AND e.position <= $2::bigint
            )
            OR EXISTS (
                SELECT FROM {schema}.publications p WHERE p.conversation = c.key AND p.first_position <= $2::bigint
            )
            OR (c.parent IS NOT NULL AND EXISTS (
                SELECT FROM {schema}.events e
                WHERE e.conversation = -c.key AND e.position > 0 AND e.position <= $2::bigint
            ))
        )
), $2::bigint <= greatest(
    (SELECT max(position) FROM {schema}.events), (SELECT max(first_position + size - 1) FROM {schema}.publications), 0)

-- name: list_again
UPDATE {schema}.listing SET version = -1, digests = '' WHERE conversation = $1::bigint

-- name: listing_of
SELECT version, at, digests FROM {schema}.listing WHERE conversation = $1::bigint

-- name: delete_listing
DELETE FROM {schema}.listing WHERE conversation = $1::bigint

-- part: recalled_key
k.first_id, k.events, k.proof, (
    SELECT coalesce(e.position, (
        SELECT p.first_position + e.id - p.first_id FROM {schema}.publications p
        WHERE p.conversation = e.conversation AND p.first_id <= e.id ORDER BY p.first_id DESC LIMIT 1))
    FROM {schema}.events e WHERE e.conversation = k.conversation AND e.id = k.first_id)
FROM {schema}.idempotency_keys k WHERE k.conversation = $1::bigint

-- name: recall
SELECT k.key, {recalled_key} AND sha256(k.key) = sha256($2::bytea)

-- name: recalled
SELECT key, first_id, events, proof, NULL::bigint FROM {schema}.idempotency_keys
WHERE conversation = $1::bigint AND key >= $2::bytea ORDER BY key LIMIT $3::bigint

-- name: recalled_among
SELECT conversation, key, first_id, events, proof, NULL::bigint FROM {schema}.idempotency_keys
WHERE conversation = $1::bigint AND sha256(key) IN (SELECT sha256(name) FROM unnest($2::bytea[]) AS name)

-- name: recalled_anywhere
SELECT conversation, key, first_id, events, proof, NULL::bigint FROM {schema}.idempotency_keys
WHERE sha256(key) IN (SELECT sha256(name) FROM unnest($1::bytea[]) AS name)
    -- only for the index
    AND substring(key, 1, 15) = 'foldlog:source:'::bytea

-- name: records_back
SELECT {record} FROM {schema}.records
WHERE conversation = $1::bigint AND projection = $2::bytea AND version <= $3::bigint
ORDER BY version DESC LIMIT $4::bigint

-- name: records
SELECT {record} FROM {schema}.records
WHERE conversation = $1::bigint AND projection = $2::bytea AND version > $3::bigint ORDER BY version LIMIT $4::bigint

-- name: records_of
SELECT DISTINCT ON (c.key) c.id, c.sealed_key IS NOT NULL,
       greatest((SELECT max(id) + 1 FROM {schema}.events WHERE conversation = c.key), c.parent_version, 0),
       r.version, r.code, r.body, r.encoding, r.checksum::bigint & 4294967295
FROM {schema}.conversations c
LEFT JOIN {schema}.records r ON r.conversation = c.key AND r.projection = $1::bytea
WHERE c.visible AND c.erased_at IS NULL AND c.id >= $2::bytea AND c.id <= $3::bytea
    -- only for the index
    AND substring(c.id, 1, 256) >= substring($2::bytea, 1, 256)
    -- only for the index
    AND substring(c.id, 1, 256) <= substring($3::bytea, 1, 256)
ORDER BY c.key, r.version DESC

-- name: ids_with_records
SELECT c.id FROM {schema}.conversations c WHERE c.visible AND c.erased_at IS NULL
AND EXISTS (SELECT 1 FROM {schema}.records r WHERE r.conversation = c.key AND r.projection = $1::bytea)

-- name: newest_records
SELECT DISTINCT ON (projection) {record}, projection FROM {schema}.records
WHERE conversation = $1::bigint ORDER BY projection, version DESC LIMIT $2::bigint

-- name: max_tracking_id
SELECT max(notification_id) FROM {schema}.tracking WHERE application = $1::bytea

-- The fact "file" names the server and its timeline, as it names the inode of a SQLite file.
-- name: store_value
SELECT convert_to(value, 'UTF8') FROM {schema}.store WHERE name = convert_from($1::bytea, 'UTF8')
UNION ALL
SELECT convert_to(value, 'UTF8') FROM {schema}.facts WHERE name = convert_from($1::bytea, 'UTF8')
UNION ALL
(SELECT convert_to(value, 'UTF8') FROM {schema}.facts
 WHERE $1::bytea = 'bytes_pending'::bytea AND starts_with(name, 'bytes_pending ') LIMIT 1)
UNION ALL
SELECT convert_to(concat_ws(' ', cluster, timeline), 'UTF8') FROM {schema}.epoch WHERE $1::bytea = 'file'::bytea

-- Each conversation has its own row for pending bytes, so that writers do not wait for one another. Each value is used only
-- once, because more bytes may be deleted during a vacuum.
-- name: leave_bytes
INSERT INTO {schema}.facts AS f (name, value) VALUES ('bytes_pending ' || $1::bigint, gen_random_uuid()::text)
ON CONFLICT (name) DO UPDATE SET value = excluded.value WHERE f.value <> excluded.value

-- The column xmin has the last 32 bits of the number of the transaction that deleted the rows.
-- name: marks_of_bytes
SELECT f.name, f.value, pg_snapshot_xmax(pg_current_snapshot())::text::bigint
    - (pg_snapshot_xmax(pg_current_snapshot())::text::bigint - f.xmin::text::bigint) % 4294967296
FROM {schema}.epoch, {schema}.facts f WHERE starts_with(f.name, 'bytes_pending ')

-- On Citus, runs a query on the worker that has the tables of the store. While the worker is away, result is its error.
-- name: on_worker
SELECT success, result FROM run_command_on_placements((
    SELECT c.oid::regclass FROM pg_class c
    WHERE c.relname = 'epoch' AND c.relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = {schema_name})
), %s)

-- The oldest transaction that may still read deleted rows. A session of another database reads no rows of this one, but
-- while it writes, each new snapshot includes its transaction. A running VACUUM needs no rows. Up to PostgreSQL 15, a setting
-- delays VACUUM by a number of transactions.
-- name: node_horizon
WITH held (number, kind, name, state, began) AS (
    SELECT held, 'session', format('%s of %L', pid, application_name), state, xact_start
    FROM pg_stat_activity, unnest(ARRAY[
        backend_xid, CASE WHEN coalesce(datname, current_database()) = current_database() THEN backend_xmin END]) held
    WHERE held IS NOT NULL AND pid <> pg_backend_pid() AND pid NOT IN (SELECT pid FROM pg_stat_progress_vacuum)
    UNION ALL SELECT transaction, 'prepared transaction', quote_literal(gid), 'prepared', prepared FROM pg_prepared_xacts
    UNION ALL SELECT xmin, 'replication slot', quote_literal(slot_name), NULL, NULL FROM pg_replication_slots WHERE xmin IS NOT NULL
    UNION ALL SELECT pg_snapshot_xmin(pg_current_snapshot())::xid, 'transaction', 'that began earlier', NULL, NULL
)
SELECT json_build_object(
    'number', next - (next - number::text::bigint) % 4294967296
        - coalesce(current_setting('vacuum_defer_cleanup_age', true), '0')::bigint,
    'kind', kind, 'name', name, 'state', state,
    'seconds', coalesce(extract(epoch FROM clock_timestamp() - began), 0)::float8
)::text
FROM held, (SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint AS next) now
ORDER BY (next - number::text::bigint) % 4294967296 DESC, kind = 'transaction' LIMIT 1

-- The tables of the store, and what the server counts of each table and of its TOAST table.
-- name: node_relations
SELECT json_agg(json_build_object(
    'table', c.oid::regclass::text, 'relation', r.oid::bigint,
    'may_vacuum', CASE WHEN current_setting('server_version_num')::int >= 170000 THEN has_table_privilege(c.oid, 'MAINTAIN')
        ELSE pg_has_role(c.relowner, 'USAGE') END
        OR pg_has_role((SELECT datdba FROM pg_database WHERE datname = current_database()), 'USAGE'),
    'vacuums', CASE WHEN current_setting('server_version_num')::int < 150000 THEN 0 ELSE pg_stat_get_vacuum_count(r.oid) END,
    'dead_rows', pg_stat_get_dead_tuples(r.oid)
) ORDER BY c.relname)::text
FROM pg_class c, unnest(ARRAY[c.oid, c.reltoastrelid]) r (oid)
WHERE c.relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = {schema_name}) AND c.relkind = 'r' AND r.oid <> 0

-- A locked row is skipped, because a writer is giving it a new value.
-- name: bytes_are_gone
DELETE FROM {schema}.facts WHERE name IN (
    SELECT f.name FROM {schema}.facts f JOIN unnest(%s::text[], %s::text[]) AS gone (name, value) USING (name, value)
    FOR UPDATE OF f SKIP LOCKED
)

-- name: set_value
INSERT INTO {schema}.facts (name, value) VALUES (convert_from($1::bytea, 'UTF8'), convert_from($2::bytea, 'UTF8'))
ON CONFLICT (name) DO UPDATE SET value = excluded.value

-- name: facts_of
SELECT convert_to(name, 'UTF8'), convert_to(value, 'UTF8') FROM {schema}.facts
WHERE starts_with(name, convert_from($1::bytea, 'UTF8')) ORDER BY name

-- While this value stays the same, nothing was committed.
-- name: snapshot
SELECT convert_to(pg_current_snapshot()::text, 'UTF8') FROM {schema}.epoch

-- name: data_version
SELECT hashtextextended(pg_current_snapshot()::text, 0) FROM {schema}.epoch

-- name: now
SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint

-- name: begin_conversation
INSERT INTO {schema}.conversations (key, id, visible, created_at, salt, parent, parent_version, seed, replaces)
VALUES ($1::bigint, $2::bytea, $3::boolean, $4::bigint, $5::bytea, $6::bigint, $7::bigint, $8::bytea, $9::bigint)

-- name: leave_parent
UPDATE {schema}.conversations SET parent = NULL WHERE key = $1::bigint

-- name: forks
SELECT {conversation_columns}
FROM {schema}.conversations c
{last_events}
WHERE c.parent = $1::bigint AND c.visible AND c.id >= $2::bytea
ORDER BY c.id LIMIT $3::bigint

-- The ancestors of a fork, and for each ancestor the version up to which the fork shares its events.
-- name: lineage
WITH RECURSIVE past (key, stop) AS (
    SELECT $1::bigint, $2::bigint
    UNION ALL
    SELECT c.parent, c.parent_version FROM past JOIN {schema}.conversations c ON c.key = past.key
    WHERE c.parent IS NOT NULL AND c.parent_version < past.stop
)
SELECT past.key, past.stop, c.id, c.sealed_key IS NOT NULL, c.parent
FROM past JOIN {schema}.conversations c ON c.key = past.key
ORDER BY past.stop DESC

-- name: hide_tombstone
UPDATE {schema}.conversations SET visible = false
WHERE key = $1::bigint AND visible AND erased_at IS NOT NULL

-- name: hide_replaced_tombstone
UPDATE {schema}.conversations SET visible = false
WHERE key = (SELECT replaces FROM {schema}.conversations WHERE key = $1::bigint)
    AND visible AND erased_at IS NOT NULL

-- Here, the server adds the transaction's number to the places of events, so that an append need not wait for its number.
-- On Citus, this part is 0 and the number is read first, because Citus would use the number of the server to which the
-- client is connected. The statements still read a table of the store, so that Citus sends them to the server that has the
-- tables. Otherwise it would copy the rows there, and commit in two phases. A null place stands inside the subquery: Citus
-- would take null + (SELECT …) for null, see no table, and insert nothing.
-- part: first_place
((pg_current_xact_id()::text::bigint + epoch) << 20)

-- name: insert_events
INSERT INTO {schema}.events (conversation, id, kind, shown, structural, meta, body, position)
SELECT $1::bigint, r.id, r.kind, r.shown, r.structural, r.meta, r.body,
       r.place + (SELECT {first_place} FROM {schema}.epoch)
FROM unnest($2::bigint[], $3::bytea[], $4::boolean[], $5::boolean[], $6::bytea[], $7::bytea[], $8::bigint[])
    r (id, kind, shown, structural, meta, body, place)

-- name: insert_again
INSERT INTO {schema}.events (conversation, id, kind, shown, structural, meta, body, position)
SELECT $1::bigint, r.*
FROM unnest($2::bigint[], $3::bytea[], $4::boolean[], $5::boolean[], $6::bytea[], $7::bytea[], $8::bigint[]) r

-- name: delete_archived
DELETE FROM {schema}.events WHERE conversation = $1::bigint AND id < $2::bigint

-- name: insert_event
INSERT INTO {schema}.events (conversation, id, kind, shown, structural, meta, body, position)
SELECT $1::bigint, $2::bigint, $3::bytea, $4::boolean, $5::boolean, $6::bytea, $7::bytea,
       (SELECT $8::bigint + {first_place} FROM {schema}.epoch)

-- name: publish
UPDATE {schema}.conversations SET visible = true WHERE key = $1::bigint

-- name: insert_publication
INSERT INTO {schema}.publications (first_position, conversation, first_id, size)
VALUES ($1::bigint, $2::bigint, $3::bigint, $4::bigint)

-- The rows of archived and restored conversations have the address of an object. A query without a key leaves them out.
-- name: unfinished
SELECT u.conversation, coalesce(c.id, ''), u.operation, u.state
FROM {schema}.unfinished u LEFT JOIN {schema}.conversations c ON c.key = u.conversation
WHERE ($1::bigint IS NULL AND u.operation NOT IN ('archived'::bytea, 'restored'::bytea))
    OR u.conversation = $1::bigint ORDER BY u.conversation

-- name: leave_unfinished
INSERT INTO {schema}.unfinished (operation, state, conversation) VALUES ($1::bytea, $2::bytea, $3::bigint)
ON CONFLICT (conversation) DO UPDATE SET operation = excluded.operation, state = excluded.state

-- name: finish
DELETE FROM {schema}.unfinished WHERE conversation = $1::bigint

-- Copies of the parent's rows under the key of a fork. The fork has them because a detachment is not complete.
-- name: delete_copies
WITH gone AS (
    DELETE FROM {schema}.events WHERE conversation = $1::bigint AND id IN (
        SELECT id FROM {schema}.events WHERE conversation = $1::bigint AND id < (
            SELECT parent_version FROM {schema}.conversations WHERE key = $1::bigint AND parent IS NOT NULL
        ) ORDER BY id LIMIT $2::bigint
    )
    RETURNING 1
)
SELECT count(*) FROM gone

-- name: detach_copies
DELETE FROM {schema}.attached WHERE conversation = $1::bigint AND event < (
    SELECT parent_version FROM {schema}.conversations WHERE key = $1::bigint AND parent IS NOT NULL
)

-- name: delete_rows
WITH gone AS (
    DELETE FROM {schema}.events WHERE conversation = $1::bigint
        AND id IN (SELECT id FROM {schema}.events WHERE conversation = $1::bigint ORDER BY id LIMIT $2::bigint)
    RETURNING 1
)
SELECT count(*) FROM gone

-- name: delete_conversation
DELETE FROM {schema}.conversations WHERE key = $1::bigint

-- name: delete_publications
DELETE FROM {schema}.publications WHERE conversation = $1::bigint

-- name: set_key
UPDATE {schema}.conversations SET salt = $1::bytea, key_id = $2::bytea, sealed_key = $3::bytea WHERE key = $4::bigint

-- name: set_mark
UPDATE {schema}.conversations SET mark = $1::bytea WHERE key = $2::bigint

-- name: replace_row
UPDATE {schema}.events
SET meta = $1::bytea, body = $2::bytea WHERE conversation = $3::bigint AND id = $4::bigint

-- name: count_redactions
UPDATE {schema}.conversations SET redactions = coalesce(redactions, 0) + $1::bigint WHERE key = $2::bigint

-- name: erase_conversation
UPDATE {schema}.conversations
SET salt = NULL, key_id = NULL, sealed_key = NULL, mark = NULL, seed = NULL, pending = NULL,
    erased_at = $1::bigint, erased_reason = $2::bytea, erased_events = $3::bigint, erased_head = $4::bytea
WHERE key = $5::bigint

-- name: forget_keys
DELETE FROM {schema}.idempotency_keys WHERE conversation = $1::bigint

-- name: forget_records
DELETE FROM {schema}.records WHERE conversation = $1::bigint

-- name: remember
INSERT INTO {schema}.idempotency_keys (conversation, key, first_id, events, proof)
VALUES ($1::bigint, $2::bytea, $3::bigint, $4::bigint, $5::bytea)

-- name: prove
UPDATE {schema}.idempotency_keys SET proof = $1::bytea
WHERE conversation = $2::bigint AND sha256(key) = sha256($3::bytea)

-- name: put_record
INSERT INTO {schema}.records (projection, conversation, version, code, body, encoding, checksum)
VALUES ($1::bytea, $2::bigint, $3::bigint, $4::bigint, $5::bytea, $6::bigint, $7::bigint::bit(32)::integer)
ON CONFLICT (conversation, projection, version) DO UPDATE
SET code = excluded.code, body = excluded.body, encoding = excluded.encoding,
    checksum = excluded.checksum

-- name: delete_records
DELETE FROM {schema}.records WHERE projection = $1::bytea AND conversation = $2::bigint

-- This jumps from each key to the next, because DISTINCT would walk the entries of all conversations.
-- name: key_ids
WITH RECURSIVE used (key_id) AS (
    (SELECT key_id FROM {schema}.conversations WHERE visible AND key_id IS NOT NULL ORDER BY key_id LIMIT 1)
    UNION ALL
    SELECT (SELECT c.key_id FROM {schema}.conversations c
            WHERE c.visible AND c.key_id IS NOT NULL AND c.key_id > used.key_id ORDER BY c.key_id LIMIT 1)
    FROM used WHERE used.key_id IS NOT NULL
)
SELECT key_id FROM used WHERE key_id IS NOT NULL

-- name: trackings
SELECT application, max(notification_id) FROM {schema}.tracking GROUP BY application ORDER BY application

-- name: forget_tracking
DELETE FROM {schema}.tracking WHERE application = $1::bytea

-- name: insert_tracking
INSERT INTO {schema}.tracking (application, notification_id, token) VALUES ($1::bytea, $2::bigint, $3::bigint)

-- name: stands_event
SELECT position >> 20 FROM {schema}.events
WHERE conversation = $1::bigint AND id = $2::bigint AND substring(meta FROM 33 FOR 32) = $3::bytea
    AND (position & 1048575) IS NOT DISTINCT FROM $4::bigint

-- name: stands_conversation
SELECT NULL::bigint FROM {schema}.conversations WHERE key = $1::bigint AND salt = $2::bytea

-- name: stands_key
SELECT NULL::bigint FROM {schema}.conversations WHERE key = $1::bigint AND sealed_key = $2::bytea

-- name: stands_publication
SELECT NULL::bigint FROM {schema}.publications WHERE first_position = $1::bigint AND conversation = $2::bigint

-- name: stands_erasure
SELECT NULL::bigint FROM {schema}.conversations
WHERE key = $1::bigint AND erased_at = $2::bigint AND erased_head = $3::bytea AND erased_reason = $4::bytea

-- name: stands_tracking
SELECT NULL::bigint FROM {schema}.tracking
WHERE application = $1::bytea AND notification_id = $2::bigint AND token = $3::bigint

-- name: status
WITH now AS (
    SELECT (pg_snapshot_xmin(pg_current_snapshot())::text::bigint + epoch) << 20 AS horizon,
           (pg_snapshot_xmax(pg_current_snapshot())::text::bigint
            - pg_snapshot_xmin(pg_current_snapshot())::text::bigint) AS age
    FROM {schema}.epoch
)
SELECT horizon, age,
       (SELECT count(*) FROM (
            SELECT FROM {schema}.events WHERE position >= (SELECT horizon FROM now) LIMIT 10000) held),
       coalesce((SELECT max(position) FROM {schema}.events WHERE position < (SELECT horizon FROM now)), 0),
       current_setting('synchronous_commit'), current_setting('synchronous_standby_names')
FROM now

-- name: oldest_writer
SELECT pid, application_name, state, extract(epoch FROM clock_timestamp() - began)::float8
FROM (
    SELECT pid, application_name, coalesce(state, '') AS state, xact_start AS began, age(backend_xid) AS age
    FROM pg_stat_activity WHERE backend_xid IS NOT NULL
    UNION ALL
    SELECT NULL, gid, 'prepared', prepared, age(transaction) FROM pg_prepared_xacts
) writing
ORDER BY age DESC LIMIT 1

-- name: lock_holder
SELECT a.pid, coalesce(host(a.client_addr), 'the host of the server'), a.application_name,
       concat_ws(', ', a.state, 'waits for ' || a.wait_event), extract(epoch FROM clock_timestamp() - a.state_change)::float8
FROM pg_locks l JOIN pg_stat_activity a USING (pid)
WHERE l.locktype = 'advisory' AND l.granted AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
    AND ((l.classid::bigint << 32) | l.objid::bigint) = ANY (%s::bigint[])
LIMIT 1

-- name: followers
SELECT t.application, t.place, (
        SELECT count(*) FROM (
            SELECT FROM {schema}.events WHERE position > t.place AND position < h.horizon LIMIT 10000) behind),
    coalesce(extract(epoch FROM clock_timestamp())::float8 - (
        SELECT ('x' || encode(substring(meta FROM 17 FOR 8), 'hex'))::bit(64)::bigint / 1000000.0::float8 FROM {schema}.events
        WHERE position > t.place AND position < h.horizon ORDER BY position LIMIT 1), 0)
FROM (SELECT application, max(notification_id) AS place FROM {schema}.tracking GROUP BY application) t, (
    SELECT (pg_snapshot_xmin(pg_current_snapshot())::text::bigint + epoch) << 20 AS horizon FROM {schema}.epoch) h
ORDER BY t.application

-- How far a follower of joined stores is behind in one of them.
-- name: lag
SELECT (
        SELECT count(*) FROM (
            SELECT FROM {schema}.events WHERE position > $1::bigint AND position < h.horizon LIMIT 10000) behind),
    coalesce(extract(epoch FROM clock_timestamp())::float8 - (
        SELECT ('x' || encode(substring(meta FROM 17 FOR 8), 'hex'))::bit(64)::bigint / 1000000.0::float8 FROM {schema}.events
        WHERE position > $1::bigint AND position < h.horizon ORDER BY position LIMIT 1), 0)
FROM (SELECT (pg_snapshot_xmin(pg_current_snapshot())::text::bigint + epoch) << 20 AS horizon FROM {schema}.epoch) h

-- name: rows_without_conversation
SELECT e.conversation, count(*) FROM {schema}.events e
WHERE e.conversation <> 0 AND NOT EXISTS (SELECT FROM {schema}.conversations c WHERE c.key = abs(e.conversation))
GROUP BY e.conversation

-- The entry of an archived conversation, or of a fork without events of its own, has no event here to compare it with.
-- name: lists_that_contradict
WITH entries AS (SELECT conversation, count(*) AS number FROM {schema}.listed GROUP BY conversation)
SELECT count(*) FROM (
    SELECT l.conversation FROM {schema}.listing l
    LEFT JOIN {schema}.conversations c ON c.key = l.conversation LEFT JOIN entries n ON n.conversation = l.conversation
    WHERE c.key IS NULL OR c.erased_at IS NOT NULL OR coalesce(n.number, 0) * 16 <> length(l.digests)
    OR (l.version > coalesce(c.parent_version, 0) AND coalesce(c.pending, 0) >= 0 AND NOT EXISTS (
        SELECT FROM {schema}.events e WHERE e.conversation = l.conversation AND e.id = l.version - 1
        AND substring(e.meta FROM 17 FOR 8) = int8send(l.at)
    ))
    UNION SELECT d.conversation FROM {schema}.listed d LEFT JOIN {schema}.listing l ON l.conversation = d.conversation
    WHERE l.at IS DISTINCT FROM d.at OR position(d.digest IN l.digests) % 16 <> 1
) contradicting

-- Staged imports have no positions until they are published.
-- name: hidden
SELECT c.id FROM {schema}.conversations c
WHERE NOT c.visible AND c.erased_at IS NULL AND (
    EXISTS (SELECT FROM {schema}.publications p WHERE p.conversation = c.key)
    OR EXISTS (SELECT FROM {schema}.events e WHERE e.conversation = c.key AND e.position IS NOT NULL)
)

-- name: without_position
SELECT c.id, count(*) FROM {schema}.events e JOIN {schema}.conversations c ON c.key = e.conversation
WHERE coalesce(e.position, 0) <= 0 AND c.visible AND c.erased_at IS NULL AND e.id >= coalesce(c.parent_version, 0)
    AND NOT EXISTS (
        SELECT FROM {schema}.publications p
        WHERE p.conversation = e.conversation AND p.first_position > 0
            AND e.id >= p.first_id AND e.id < p.first_id + p.size
    )
GROUP BY c.key, c.id

-- Rows before the first event of a conversation, or of a ledger. A fork that is being detached gets such rows, without positions.
-- name: followed_alone
SELECT c.id, count(*) FROM {schema}.conversations c JOIN {schema}.events e ON e.conversation = c.key
WHERE e.position IS NOT NULL AND e.id < CASE WHEN c.parent IS NULL THEN 0 ELSE coalesce(c.parent_version, 0) END
GROUP BY c.key, c.id
UNION ALL
SELECT c.id, count(*) FROM {schema}.conversations c JOIN {schema}.events e ON e.conversation = -c.key
WHERE e.id < 0 GROUP BY c.key, c.id

-- name: with_two_positions
SELECT c.id, count(*) FROM {schema}.publications p
JOIN {schema}.events e ON e.conversation = p.conversation AND e.id >= p.first_id AND e.id < p.first_id + p.size
JOIN {schema}.conversations c ON c.key = p.conversation
WHERE c.visible AND c.erased_at IS NULL AND (e.position IS NOT NULL OR EXISTS (
    SELECT FROM {schema}.publications o
    WHERE o.conversation = p.conversation AND o.first_position <> p.first_position
        AND e.id >= o.first_id AND e.id < o.first_id + o.size
))
GROUP BY c.key, c.id

-- part: of_this_schema
FROM pg_class c LEFT JOIN pg_am ON pg_am.oid = c.relam
WHERE c.relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = {schema_name})

-- name: parts_of_schema
SELECT CASE WHEN c.relkind = 'i' THEN 'index' ELSE 'table' END, c.relname::text
{of_this_schema} AND c.relkind IN ('i', 'r')
UNION ALL SELECT 'function', p.proname::text FROM pg_proc p
WHERE p.pronamespace = (SELECT oid FROM pg_namespace WHERE nspname = {schema_name})

-- The kind, the name and the definition of each part of a schema. parts.json has the parts that foldlog makes. A constraint of
-- the type 'n' is NOT NULL, which the column has too. In the definition of an index, the server prints the schema before the table
-- only if search_path does not have the schema, so the regexp leaves the schema out.
-- name: described_parts
WITH tables AS (SELECT c.* {of_this_schema} AND c.relkind = 'r')
SELECT 'table', t.relname::text, concat_ws('; ',
    (
        SELECT string_agg(concat_ws(' ',
            col.attname,
            format_type(col.atttypid, col.atttypmod),
            CASE WHEN col.attnotnull THEN 'not null' END,
            'default ' || pg_get_expr(preset.adbin, preset.adrelid),
            nullif(col.attidentity::text, ''),
            nullif(col.attgenerated::text, '')
        ), ', ' ORDER BY col.attname)
        FROM pg_attribute col
        LEFT JOIN pg_attrdef preset ON preset.adrelid = col.attrelid AND preset.adnum = col.attnum
        WHERE col.attrelid = t.oid AND col.attnum > 0 AND NOT col.attisdropped
    ),
    (
        SELECT string_agg(pg_get_constraintdef(k.oid), ', ' ORDER BY pg_get_constraintdef(k.oid))
        FROM pg_constraint k
        WHERE k.conrelid = t.oid AND k.contype <> 'n'
    ),
    CASE WHEN t.relpersistence <> 'p' THEN 'not logged' END,
    CASE WHEN t.relrowsecurity THEN 'row security' END)
FROM tables t
UNION ALL
SELECT 'index', c.relname::text, concat_ws(' ',
    CASE WHEN NOT i.indisvalid THEN 'not valid' END,
    regexp_replace(pg_get_indexdef(c.oid), ' ON (ONLY )?.*? USING ', ' ON ' || t.relname || ' USING '))
FROM pg_index i
JOIN tables t ON t.oid = i.indrelid
JOIN pg_class c ON c.oid = i.indexrelid
UNION ALL
SELECT 'function', p.proname::text, concat_ws(' ', l.lanname, p.provolatile, p.prosecdef, p.proconfig, p.prosrc)
FROM pg_proc p
JOIN pg_language l ON l.oid = p.prolang
WHERE p.pronamespace = (SELECT oid FROM pg_namespace WHERE nspname = {schema_name})
UNION ALL
SELECT 'trigger', g.tgname || ' on ' || t.relname, ''
FROM pg_trigger g
JOIN tables t ON t.oid = g.tgrelid
WHERE NOT g.tgisinternal
UNION ALL
SELECT 'rule', r.rulename || ' on ' || t.relname, ''
FROM pg_rewrite r
JOIN tables t ON t.oid = r.ev_class
UNION ALL
SELECT 'policy', y.polname || ' on ' || t.relname, ''
FROM pg_policy y
JOIN tables t ON t.oid = y.polrelid
UNION ALL
SELECT 'child table', n.inhrelid::regclass::text || ' of ' || t.relname, ''
FROM pg_inherits n
JOIN tables t ON t.oid = n.inhparent

-- name: quoted_schema
SELECT '"' || replace({schema_name}, '"', '""') || '"'

-- name: b_trees
SELECT c.oid::regclass::text {of_this_schema} AND c.relkind = 'i' AND amname = 'btree' ORDER BY c.relname

-- name: attached
SELECT event, name, encoding FROM {schema}.attached
WHERE conversation = $1::bigint AND event = ANY ($2::bigint[]) ORDER BY event

-- name: attachment
SELECT body FROM {schema}.attachments WHERE conversation = $1::bigint AND name = $2::bytea AND encoding = $3::bigint

-- Stored bytes stay, unless they are damaged: then the new bytes, which match the name, replace them. Encrypted bytes differ
-- each time, so they are always written again: the store cannot know whether the stored bytes can still be read.
-- name: keep_attachment
INSERT INTO {schema}.attachments AS a (conversation, name, encoding, body)
VALUES ($1::bigint, $2::bytea, $3::bigint, $4::bytea)
ON CONFLICT (conversation, name, encoding) DO UPDATE SET body = excluded.body
WHERE a.body <> excluded.body

-- name: attach
INSERT INTO {schema}.attached (conversation, event, name, encoding)
VALUES ($1::bigint, $2::bigint, $3::bytea, $4::bigint) ON CONFLICT DO NOTHING

-- name: detach
DELETE FROM {schema}.attached WHERE conversation = $1::bigint AND event = ANY ($2::bigint[])

-- name: detach_all
DELETE FROM {schema}.attached WHERE conversation = $1::bigint

-- name: delete_unattached
DELETE FROM {schema}.attachments a WHERE conversation = $1::bigint AND NOT EXISTS (
    SELECT FROM {schema}.attached d WHERE d.conversation = a.conversation AND d.name = a.name AND d.encoding = a.encoding
)

-- name: delete_attachments
WITH gone AS (
    DELETE FROM {schema}.attachments WHERE conversation = $1::bigint AND (name, encoding) IN (
        SELECT name, encoding FROM {schema}.attachments WHERE conversation = $1::bigint LIMIT $2::bigint
    )
    RETURNING 1
)
SELECT count(*) FROM gone

-- name: attachments_without_conversation
SELECT count(*) FROM {schema}.attachments a WHERE NOT EXISTS (
    SELECT FROM {schema}.attached d WHERE d.conversation = a.conversation AND d.name = a.name AND d.encoding = a.encoding
) OR NOT EXISTS (SELECT FROM {schema}.conversations c WHERE c.key = a.conversation)

-- part: source
conversation, root, parent, from_record, records, made, format, reader, encoding, head, fingerprint, redacted, about, sums

-- Blocks that were appended one by one. Until several of these blocks are joined, the blocks themselves contain the
-- progress of the source.
-- part: appended
FROM {schema}.sources s LEFT JOIN {schema}.blocks b ON b.conversation = s.conversation AND b.first = (
    SELECT max(a.first) FROM {schema}.blocks a
    WHERE a.conversation = s.conversation AND a.first >= s.records AND a.encoding & 16 <> 0
)

-- part: source_as_it_is
s.conversation, s.root, s.parent, s.from_record, s.records, s.made, s.format, s.reader, s.encoding, s.head, s.fingerprint, s.redacted, s.about, s.sums, b.first, b.records, b.encoding, b.places

-- name: source
SELECT {source_as_it_is} {appended} WHERE s.conversation = $1::bigint

-- name: family
SELECT s.conversation FROM {schema}.sources s JOIN {schema}.conversations c ON c.key = s.conversation
WHERE s.root = $1::bigint AND c.erased_at IS NULL

-- name: sources_among
SELECT conversation FROM {schema}.sources
WHERE conversation IN (SELECT jsonb_array_elements_text(convert_from($1::bytea, 'UTF8')::jsonb)::bigint)

-- name: any_source
SELECT 1 FROM {schema}.sources LIMIT 1

-- name: source_keys
SELECT conversation FROM {schema}.sources

-- name: sources
SELECT {source_as_it_is} {appended} WHERE s.conversation > $1::bigint ORDER BY s.conversation LIMIT $2::bigint

-- name: abouts
SELECT c.id, s.conversation, s.encoding, s.format, s.about FROM {schema}.conversations c
JOIN {schema}.sources s ON s.conversation = c.key WHERE c.visible AND c.erased_at IS NULL ORDER BY s.conversation

-- name: put_source
INSERT INTO {schema}.sources ({source})
VALUES ($1::bigint, $2::bigint, $3::bigint, $4::bigint, $5::bigint, $6::bigint, $7::bytea, $8::bigint, $9::bigint, $10::bytea, $11::bytea, $12::bytea, $13::bytea, $14::bytea)
ON CONFLICT (conversation) DO UPDATE SET root = excluded.root, parent = excluded.parent, from_record = excluded.from_record, records = excluded.records, made = excluded.made, format = excluded.format, reader = excluded.reader, encoding = excluded.encoding, head = excluded.head, fingerprint = excluded.fingerprint, redacted = excluded.redacted, about = excluded.about, sums = excluded.sums

-- name: set_progress
UPDATE {schema}.sources SET records = $2::bigint, made = $3::bigint, head = $4::bytea WHERE conversation = $1::bigint

-- name: set_pending
UPDATE {schema}.conversations SET pending = nullif($1::bigint, 0) WHERE key = $2::bigint

-- The first block of a page is found in the index: it contains the record, or begins after the record.
-- name: blocks
SELECT first, records, encoding, places, body FROM {schema}.blocks WHERE conversation = $1::bigint AND first >= coalesce(
    (SELECT max(first) FROM {schema}.blocks WHERE conversation = $1::bigint AND first <= $2::bigint), 0
) AND first + records > $2::bigint ORDER BY first LIMIT $3::bigint

-- name: blocks_back
SELECT first, records, encoding, places, body FROM {schema}.blocks
WHERE conversation = $1::bigint AND first <= $2::bigint ORDER BY first DESC LIMIT $3::bigint

-- name: block_indexes
SELECT first, records, encoding, places FROM {schema}.blocks WHERE conversation = $1::bigint ORDER BY first

-- name: put_block
INSERT INTO {schema}.blocks (conversation, first, records, encoding, places, body) VALUES ($1::bigint, $2::bigint, $3::bigint, $4::bigint, $5::bytea, $6::bytea)
ON CONFLICT (conversation, first) DO UPDATE SET records = excluded.records, encoding = excluded.encoding, places = excluded.places, body = excluded.body

-- name: delete_blocks_between
DELETE FROM {schema}.blocks WHERE conversation = $1::bigint AND first >= $2::bigint AND first < $3::bigint

-- name: delete_blocks
WITH gone AS (
    DELETE FROM {schema}.blocks WHERE conversation = $1::bigint
        AND first IN (SELECT first FROM {schema}.blocks WHERE conversation = $1::bigint ORDER BY first LIMIT $2::bigint)
    RETURNING 1
)
SELECT count(*) FROM gone

-- The events of records, from rows of "made", and from appended blocks. Only the rows of blocks have an encoding.
-- part: made_of_blocks
SELECT b.first, b.records, b.encoding, b.places FROM {schema}.sources s
JOIN {schema}.blocks b ON b.conversation = s.conversation AND b.first >= s.records AND b.encoding & 16 <> 0
WHERE s.conversation = $1::bigint

-- name: made
SELECT event, 0::bigint, NULL::bigint, places FROM {schema}.made WHERE conversation = $1::bigint
UNION ALL {made_of_blocks}

-- name: made_near
(SELECT event, 0::bigint, NULL::bigint, places FROM {schema}.made WHERE conversation = $1::bigint AND event >= coalesce(
    (SELECT max(event) FROM {schema}.made WHERE conversation = $1::bigint AND event <= $2::bigint), 0
) ORDER BY event LIMIT $3::bigint)
UNION ALL {made_of_blocks}

-- name: put_made
INSERT INTO {schema}.made (conversation, event, places) VALUES ($1::bigint, $2::bigint, $3::bytea)
ON CONFLICT (conversation, event) DO UPDATE SET places = excluded.places

-- name: delete_made
DELETE FROM {schema}.made WHERE conversation = $1::bigint

-- name: delete_source
DELETE FROM {schema}.sources WHERE conversation = $1::bigint

-- name: places
SELECT conversation, seen, records, taken, state, digest FROM {schema}.places WHERE place = $1::bytea

-- name: places_among
SELECT place, conversation, seen, records, taken, state, digest FROM {schema}.places WHERE place = ANY (ARRAY(
    SELECT substring($1::bytea, 16 * n + 1, 16) FROM generate_series(0, length($1::bytea) / 16 - 1) n
))

-- name: places_of
SELECT place, seen, records, taken, state, digest FROM {schema}.places WHERE conversation = $1::bigint

-- name: put_place
INSERT INTO {schema}.places (conversation, place, seen, records, taken, state, digest) VALUES ($1::bigint, $2::bytea, $3::bigint, $4::bigint, $5::bigint, $6::bytea, $7::bytea)
ON CONFLICT (place, conversation) DO UPDATE SET seen = excluded.seen, records = excluded.records, taken = excluded.taken, state = excluded.state, digest = excluded.digest

-- name: refused_among
SELECT fingerprint, own FROM {schema}.refused WHERE fingerprint = ANY (ARRAY(
    SELECT substring($1::bytea, 16 * n + 1, 16) FROM generate_series(0, length($1::bytea) / 16 - 1) n
))

-- name: refused_of
SELECT fingerprint FROM {schema}.refused WHERE conversation = $1::bigint

-- name: put_refused
INSERT INTO {schema}.refused AS r (conversation, fingerprint, own) VALUES ($1::bigint, $2::bytea, $3::boolean)
ON CONFLICT (fingerprint) DO UPDATE SET own = true WHERE excluded.own AND NOT r.own

-- name: allow
DELETE FROM {schema}.refused WHERE fingerprint = $1::bytea

-- name: refuse
INSERT INTO {schema}.refused (fingerprint, conversation, own)
SELECT fingerprint, conversation, true FROM (
    SELECT conversation, fingerprint FROM {schema}.sources UNION SELECT conversation, place FROM {schema}.places
) r WHERE conversation = $1::bigint
ON CONFLICT (fingerprint) DO UPDATE SET own = true

-- name: first_refused
SELECT conversation FROM {schema}.refused LIMIT 1

-- What a store contains, for its administrator. Each statement reads one table.
-- name: schema_number
SELECT value::bigint FROM {schema}.store WHERE name = 'schema'

-- name: count_conversations
SELECT count(*) FILTER (WHERE visible AND erased_at IS NULL),
       count(*) FILTER (WHERE visible AND erased_at IS NULL AND parent IS NOT NULL),
       count(*) FILTER (WHERE erased_at IS NOT NULL),
       count(*) FILTER (WHERE visible AND pending < 0),
       coalesce(-sum(pending) FILTER (WHERE visible AND pending < 0), 0)::bigint,
       coalesce(sum(pending) FILTER (WHERE visible AND pending > 0), 0)::bigint
FROM {schema}.conversations

-- name: count_events
SELECT count(*) FROM {schema}.events WHERE conversation > 0

-- name: count_document_changes
SELECT count(*) FROM {schema}.events WHERE kind = 'document_changes'::bytea AND conversation > 0

-- name: count_sources
SELECT count(*), coalesce(sum(records - from_record), 0)::bigint FROM {schema}.sources

-- name: count_attachments
SELECT count(*) FROM {schema}.attachments

-- name: count_refused
SELECT count(*) FROM {schema}.refused

-- name: count_keys
SELECT key_id, count(*) FROM {schema}.conversations WHERE visible AND key_id IS NOT NULL GROUP BY key_id ORDER BY key_id

-- part: size_of_table
pg_total_relation_size(c.oid)

-- name: store_bytes
SELECT sum({size_of_table})::bigint
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = {schema_name} AND c.relkind = 'r'

-- name: delete_places
DELETE FROM {schema}.places WHERE conversation = $1::bigint

-- Figures. Some parameters are one JSON text: an array of keys, names or rows.
-- part: figure_columns
code, version, is_companion, recorded_at, is_local, first_at, last_at, longest_wait_s, events, errors, view_tokens, sent_events, sent_summaries, last_prompt_tokens, tokens, condensations, tokens_saved, format, state

-- part: call_columns
day, model, above, by_condenser, calls, prompt_tokens, completion_tokens, cached_tokens, cache_write_tokens, cache_write_1h_tokens, reasoning_tokens, cost

-- part: chosen
chosen AS (
    SELECT f.conversation FROM {schema}.figures f
    WHERE ($2::bigint IS NULL OR f.last_at >= $2::bigint) AND ($3::bigint IS NULL OR f.last_at < $3::bigint)
    AND ($4::bigint > 0 OR f.is_companion = 0)
    AND ($5::bytea IS NULL OR f.conversation IN (SELECT jsonb_array_elements_text(convert_from($5::bytea, 'UTF8')::jsonb)::bigint))
    -- only for the index
    AND f.conversation >= coalesce((convert_from($5::bytea, 'UTF8')::jsonb ->> 0)::bigint, 0)
    -- only for the index
    AND f.conversation <= coalesce((convert_from($5::bytea, 'UTF8')::jsonb ->> -1)::bigint, 9223372036854775807)
    AND f.conversation NOT IN (SELECT jsonb_array_elements_text(convert_from($6::bytea, 'UTF8')::jsonb)::bigint)
    AND NOT EXISTS (
        SELECT 1 FROM jsonb_array_elements(convert_from($1::bytea, 'UTF8')::jsonb) h WHERE NOT EXISTS (
            SELECT 1 FROM {schema}.figure_counts n WHERE n.conversation = f.conversation AND n.what = h ->> 0
            AND n.number > 0 AND n.name IN (SELECT jsonb_array_elements_text(h -> 1))
        )
    )
)

-- name: put_figures
INSERT INTO {schema}.figures (conversation, id, encoding, texts, replies, {figure_columns})
SELECT $1::bigint, $2::bytea, $3::bigint, $4::bytea, $5::bytea, (w ->> 0)::bigint, (w ->> 1)::bigint, (w ->> 2)::bigint, (w ->> 3)::bigint, (w ->> 4)::bigint, (w ->> 5)::bigint, (w ->> 6)::bigint, (w ->> 7)::double precision, (w ->> 8)::bigint, (w ->> 9)::bigint, (w ->> 10)::bigint, (w ->> 11)::bigint, (w ->> 12)::bigint, (w ->> 13)::bigint, (w ->> 14)::bigint, (w ->> 15)::bigint, (w ->> 16)::bigint, (w ->> 17)::text, (w ->> 18)::text FROM (SELECT convert_from($6::bytea, 'UTF8')::jsonb AS w) v
ON CONFLICT (conversation) DO UPDATE SET
    id = excluded.id, encoding = excluded.encoding, texts = excluded.texts, replies = excluded.replies,
    replies_compared = 0, code = excluded.code, version = excluded.version, is_companion = excluded.is_companion, recorded_at = excluded.recorded_at, is_local = excluded.is_local, first_at = excluded.first_at, last_at = excluded.last_at, longest_wait_s = excluded.longest_wait_s, events = excluded.events, errors = excluded.errors, view_tokens = excluded.view_tokens, sent_events = excluded.sent_events, sent_summaries = excluded.sent_summaries, last_prompt_tokens = excluded.last_prompt_tokens, tokens = excluded.tokens, condensations = excluded.condensations, tokens_saved = excluded.tokens_saved, format = excluded.format, state = excluded.state

-- name: put_figure_calls
INSERT INTO {schema}.figure_calls (conversation, {call_columns})
SELECT $1::bigint, (w ->> 0)::text, (w ->> 1)::text, (w ->> 2)::bigint, (w ->> 3)::bigint, (w ->> 4)::bigint, (w ->> 5)::bigint, (w ->> 6)::bigint, (w ->> 7)::bigint, (w ->> 8)::bigint, (w ->> 9)::bigint, (w ->> 10)::bigint, (w ->> 11)::double precision FROM jsonb_array_elements(convert_from($2::bytea, 'UTF8')::jsonb) w

-- name: put_figure_replies
INSERT INTO {schema}.figure_replies (conversation, reply, {call_columns})
SELECT $1::bigint, (w ->> 0)::bigint, (w ->> 1)::text, (w ->> 2)::text, (w ->> 3)::bigint, (w ->> 4)::bigint, (w ->> 5)::bigint, (w ->> 6)::bigint, (w ->> 7)::bigint, (w ->> 8)::bigint, (w ->> 9)::bigint, (w ->> 10)::bigint, (w ->> 11)::bigint, (w ->> 12)::double precision FROM jsonb_array_elements(convert_from($2::bytea, 'UTF8')::jsonb) w
ON CONFLICT (reply, conversation) DO UPDATE SET
    day = excluded.day, model = excluded.model, above = excluded.above, by_condenser = excluded.by_condenser, calls = excluded.calls, prompt_tokens = excluded.prompt_tokens, completion_tokens = excluded.completion_tokens, cached_tokens = excluded.cached_tokens, cache_write_tokens = excluded.cache_write_tokens, cache_write_1h_tokens = excluded.cache_write_1h_tokens, reasoning_tokens = excluded.reasoning_tokens, cost = excluded.cost

-- name: put_figure_counts
INSERT INTO {schema}.figure_counts (conversation, what, name, number)
SELECT $1::bigint, w ->> 0, w ->> 1, (w ->> 2)::double precision FROM jsonb_array_elements(convert_from($2::bytea, 'UTF8')::jsonb) w

-- name: forget_figures
DELETE FROM {schema}.figures WHERE conversation = $1::bigint

-- name: forget_figure_calls
DELETE FROM {schema}.figure_calls WHERE conversation = $1::bigint

-- name: forget_figure_replies
DELETE FROM {schema}.figure_replies WHERE conversation = $1::bigint

-- name: forget_figure_counts
DELETE FROM {schema}.figure_counts WHERE conversation = $1::bigint

-- Conversations that have no figures, or figures of another version. Archived conversations keep their figures.
-- part: is_to_count
c.visible AND c.erased_at IS NULL AND (f.code IS NULL OR f.code <> $1::bigint OR f.version <> greatest(
    (SELECT max(id) + 1 FROM {schema}.events WHERE conversation = c.key), c.parent_version, 0
)) AND coalesce(c.pending, 0) >= 0

-- name: figures_to_count
SELECT c.id, f.code IS NULL FROM {schema}.conversations c LEFT JOIN {schema}.figures f ON f.conversation = c.key
WHERE {is_to_count}

-- name: figures_to_count_among
SELECT c.id, f.code IS NULL, c.key FROM {schema}.conversations c LEFT JOIN {schema}.figures f ON f.conversation = c.key
WHERE c.key IN (SELECT jsonb_array_elements_text(convert_from($2::bytea, 'UTF8')::jsonb)::bigint) AND {is_to_count}

-- Conversations whose figures may be outdated although no event came after their last count. Each value is used only once.
-- name: note_uncounted
INSERT INTO {schema}.facts (name, value)
VALUES (concat('uncounted ', $1::bigint), gen_random_uuid()::text)
ON CONFLICT (name) DO UPDATE SET value = excluded.value

-- name: uncounted
SELECT substring(name, 11)::bigint, convert_to(value, 'UTF8') FROM {schema}.facts WHERE starts_with(name, 'uncounted ')

-- name: forget_uncounted
DELETE FROM {schema}.facts WHERE name = concat('uncounted ', $1::bigint) AND value = convert_from($2::bytea, 'UTF8')

-- name: figures_between
SELECT f.conversation, f.id, f.encoding, f.texts, {figure_columns}
FROM {schema}.conversations c JOIN {schema}.figures f ON f.conversation = c.key
WHERE c.visible AND c.id >= $1::bytea AND c.id <= $2::bytea
    -- only for the index
    AND substring(c.id, 1, 256) >= substring($1::bytea, 1, 256)
    -- only for the index
    AND substring(c.id, 1, 256) <= substring($2::bytea, 1, 256)

-- name: figures_of
SELECT f.conversation, f.id, f.encoding, f.texts, {figure_columns}
FROM {schema}.figures f WHERE f.conversation IN (SELECT jsonb_array_elements_text(convert_from($1::bytea, 'UTF8')::jsonb)::bigint)

-- name: figure_calls_of
SELECT conversation, {call_columns} FROM {schema}.figure_calls WHERE conversation IN (SELECT jsonb_array_elements_text(convert_from($1::bytea, 'UTF8')::jsonb)::bigint)

-- name: figures_of_none
SELECT count(*) FROM {schema}.figures f WHERE NOT EXISTS (SELECT 1 FROM {schema}.conversations c WHERE c.key = f.conversation AND c.visible AND c.erased_at IS NULL)

-- name: figure_counts_of
SELECT what, name, number FROM {schema}.figure_counts WHERE conversation IN (SELECT jsonb_array_elements_text(convert_from($1::bytea, 'UTF8')::jsonb)::bigint)

-- An unknown figure comes last, in either order.
-- name: figures_sorted
WITH {chosen}
SELECT conversation, figure, id FROM (
    SELECT f.conversation, f.id, (CASE convert_from($7::bytea, 'UTF8')
        WHEN 'recorded' THEN recorded_at WHEN 'activity' THEN last_at WHEN 'started' THEN first_at
        WHEN 'duration' THEN last_at - first_at WHEN 'wait' THEN longest_wait_s WHEN 'events' THEN events
        WHEN 'errors' THEN errors WHEN 'view' THEN view_tokens WHEN 'prompt' THEN last_prompt_tokens
        WHEN 'tokens' THEN tokens WHEN 'condensations' THEN condensations WHEN 'saved' THEN tokens_saved
        WHEN 'state' THEN CASE state
            WHEN 'error' THEN 5 WHEN 'refused' THEN 4 WHEN 'open_call' THEN 3
            WHEN 'result' THEN 2 WHEN 'request' THEN 1 WHEN 'answer' THEN 0
        END
    END)::double precision AS figure
    FROM chosen JOIN {schema}.figures f USING (conversation)
) s
ORDER BY figure IS NULL, figure * $8::bigint, CASE WHEN $7::bytea = 'id'::bytea AND $8::bigint < 0 THEN id END DESC, id LIMIT $9::bigint

-- part: prices
prices (model, above, input, cached, written, written_1h, output, thought) AS (
    SELECT w ->> 0, (w ->> 1)::bigint, (w ->> 2)::double precision, (w ->> 3)::double precision, (w ->> 4)::double precision, (w ->> 5)::double precision, (w ->> 6)::double precision, (w ->> 7)::double precision FROM jsonb_array_elements(convert_from($9::bytea, 'UTF8')::jsonb) w
)

-- part: cost_of_calls
coalesce(cost, CASE WHEN prompt_tokens IS NOT NULL AND completion_tokens IS NOT NULL THEN
    input * greatest(0, prompt_tokens - coalesce(cached_tokens, 0) - coalesce(cache_write_tokens, 0))
    + cached * coalesce(cached_tokens, 0)
    + written * (coalesce(cache_write_tokens, 0) - coalesce(cache_write_1h_tokens, 0))
    + written_1h * coalesce(cache_write_1h_tokens, 0)
    + output * (completion_tokens - least(coalesce(reasoning_tokens, 0), completion_tokens))
    + thought * least(coalesce(reasoning_tokens, 0), completion_tokens) END)

-- part: has_tokens
(coalesce(prompt_tokens, 0) + coalesce(completion_tokens, 0) > 0)

-- name: figures_by_cost
WITH {chosen}, {prices}
SELECT conversation, figure, id FROM (
    SELECT f.conversation, f.id, (
        SELECT CASE WHEN NOT coalesce(bool_or({has_tokens} AND {cost_of_calls} IS NULL), false)
            THEN sum({cost_of_calls}) END
        FROM {schema}.figure_calls k LEFT JOIN prices p USING (model, above) WHERE k.conversation = f.conversation
    ) AS figure
    FROM chosen JOIN {schema}.figures f USING (conversation)
) s
ORDER BY figure IS NULL, figure * $7::bigint, id LIMIT $8::bigint

-- name: figure_sums
WITH {chosen}
SELECT is_local, count(*), count(*) FILTER (WHERE errors IS NULL), count(*) FILTER (WHERE coalesce(tokens, 0) = 0),
    min(first_at), max(last_at), max(longest_wait_s), sum(view_tokens)::bigint
FROM chosen JOIN {schema}.figures f USING (conversation) GROUP BY is_local

-- In encrypted conversations, a name is stored as a digest. The texts of one of these conversations contain the name.
-- name: figure_totals
WITH {chosen}
SELECT what, name, min(conversation), count(*) FILTER (WHERE number > 0), sum(number)
FROM chosen JOIN {schema}.figure_counts n USING (conversation)
WHERE what IN (SELECT jsonb_array_elements_text(convert_from($7::bytea, 'UTF8')::jsonb)) GROUP BY what, name

-- name: figure_spending
WITH {chosen}
SELECT min(conversation), day, model, above, by_condenser, sum(calls)::bigint,
    sum(prompt_tokens)::bigint, sum(completion_tokens)::bigint, sum(cached_tokens)::bigint, sum(cache_write_tokens)::bigint, sum(cache_write_1h_tokens)::bigint, sum(reasoning_tokens)::bigint, sum(cost)
FROM chosen JOIN {schema}.figure_calls USING (conversation)
GROUP BY day, model, above, by_condenser, cost IS NULL, prompt_tokens IS NULL, completion_tokens IS NULL

-- The replies that may be in several of the chosen histories.
-- name: figure_replies_chosen
WITH {chosen}
SELECT reply, conversation, {call_columns} FROM {schema}.figure_replies WHERE conversation IN (SELECT conversation FROM chosen)
ORDER BY reply, conversation

-- The sums of figures over blocks of conversations: see 0003_figure_blocks.sql.
-- name: figure_blocks
SELECT block, code, body FROM {schema}.figure_blocks

-- name: marked_blocks
SELECT block, count(*) FROM {schema}.figure_marks GROUP BY block

-- The number of keys in a block of figures. The marks and blocks that a store has are numbered by it.
-- part: block_size
2147483648

-- name: blocks_with_figures
WITH RECURSIVE b (block) AS (
    SELECT min(conversation) / {block_size} FROM {schema}.figures
    UNION ALL SELECT (SELECT min(f.conversation) / {block_size} FROM {schema}.figures f WHERE f.conversation >= (b.block + 1) * {block_size}) FROM b WHERE b.block IS NOT NULL
)
SELECT block FROM b WHERE block IS NOT NULL

-- name: marks_of_block
SELECT mark FROM {schema}.figure_marks WHERE block = $1::bigint

-- name: figures_in_block
SELECT f.conversation, f.is_companion, EXISTS (SELECT 1 FROM {schema}.figure_counts n WHERE n.conversation = f.conversation AND n.what = 'parent')::int
FROM {schema}.figures f WHERE f.conversation >= $1::bigint * {block_size} AND f.conversation < ($1::bigint + 1) * {block_size}
ORDER BY f.conversation

-- name: mark_figures
INSERT INTO {schema}.figure_marks (block, mark) SELECT $1::bigint / {block_size}, (random() * 9007199254740992)::bigint

-- name: forget_figure_block
DELETE FROM {schema}.figure_blocks WHERE block = $1::bigint / {block_size}

-- name: put_figure_block
INSERT INTO {schema}.figure_blocks (block, code, body) SELECT $1::bigint, $2::bigint, $3::bytea
ON CONFLICT (block) DO UPDATE SET code = EXCLUDED.code, body = EXCLUDED.body

-- name: forget_mark
DELETE FROM {schema}.figure_marks WHERE block = $1::bigint AND mark = $2::bigint

-- name: figures_to_compare
SELECT conversation, version, events FROM {schema}.figures WHERE replies_compared = 0 AND length(replies) > 0

-- name: figures_with_replies
SELECT conversation, version, events FROM {schema}.figures WHERE length(replies) > 0

-- name: hashes_of_replies
SELECT conversation, replies FROM {schema}.figures WHERE conversation IN (SELECT jsonb_array_elements_text(convert_from($1::bytea, 'UTF8')::jsonb)::bigint)

-- name: set_replies_compared
UPDATE {schema}.figures SET replies_compared = 1 WHERE conversation = $1::bigint AND version = $2::bigint AND events = $3::bigint

-- name: figure_replies_of
SELECT reply FROM {schema}.figure_replies WHERE conversation = $1::bigint

-- name: figure_replies_among
SELECT reply, conversation, {call_columns} FROM {schema}.figure_replies WHERE conversation IN (SELECT jsonb_array_elements_text(convert_from($1::bytea, 'UTF8')::jsonb)::bigint)

-- Each sub-agent, and the conversation that began it.
-- name: figure_parents
SELECT f.conversation, f.id, n.name FROM {schema}.figures f JOIN {schema}.figure_counts n USING (conversation) WHERE n.what = 'parent'

-- name: existing_ids
SELECT id, created_at, replaces IS NOT NULL FROM {schema}.conversations WHERE visible AND erased_at IS NULL
    AND id IN (SELECT convert_to(jsonb_array_elements_text(convert_from($1::bytea, 'UTF8')::jsonb), 'UTF8'))

-- The models of calls without a cost, by the size of the prompts.
-- name: figure_models
WITH {chosen}
SELECT min(conversation), model, above FROM chosen JOIN {schema}.figure_calls USING (conversation)
WHERE cost IS NULL GROUP BY model, above

-- The number of conversations by the models whose calls have no cost. Null stands for calls whose tokens have no price.
-- name: figures_without_cost
WITH {chosen}
SELECT models, count(*) FROM (
    SELECT jsonb_agg(DISTINCT CASE WHEN prompt_tokens IS NOT NULL AND completion_tokens IS NOT NULL THEN model END)::text AS models
    FROM chosen JOIN {schema}.figure_calls USING (conversation) WHERE cost IS NULL AND {has_tokens} GROUP BY conversation
) s GROUP BY models

-- Runs and errors by the day of their last activity, in microseconds.
-- name: figures_by_day
WITH {chosen}
SELECT last_at / 86400000000, count(*), sum(errors)::bigint, count(*) FILTER (WHERE state = 'error')
FROM chosen JOIN {schema}.figures f USING (conversation) WHERE last_at IS NOT NULL GROUP BY 1

-- Streams. The end of an open stream is the end of its last chunk.
-- part: stream_columns
stream, name, type, began_at, closed_at, coalesce(tail, (
    SELECT c.ends FROM {schema}.stream_chunks c WHERE c.conversation = s.conversation AND c.stream = s.stream
    ORDER BY c.begins DESC LIMIT 1
), 0), event, events, state

-- name: streams
SELECT {stream_columns} FROM {schema}.streams s WHERE conversation = $1::bigint ORDER BY stream DESC

-- name: stream
SELECT {stream_columns} FROM {schema}.streams s WHERE conversation = $1::bigint AND stream = $2::bigint

-- name: put_stream
INSERT INTO {schema}.streams (conversation, stream, name, type, began_at, closed_at, tail, event, events, state)
VALUES ($1::bigint, $2::bigint, $3::bytea, $4::bytea, $5::bigint, $6::bigint, $7::bigint, $8::bigint, $9::bigint, $10::bytea)
ON CONFLICT (conversation, stream) DO UPDATE
SET name = excluded.name, type = excluded.type, began_at = excluded.began_at, closed_at = excluded.closed_at,
    tail = excluded.tail, event = excluded.event, events = excluded.events, state = excluded.state

-- name: stream_chunks
SELECT begins, ends, body, encoding, checksum::bigint & 4294967295 FROM {schema}.stream_chunks
WHERE conversation = $1::bigint AND stream = $2::bigint
AND begins >= coalesce((
    SELECT max(begins) FROM {schema}.stream_chunks
    WHERE conversation = $1::bigint AND stream = $2::bigint AND begins <= $3::bigint
), 0) AND ends > $3::bigint
ORDER BY begins LIMIT $4::bigint

-- name: put_stream_chunk
INSERT INTO {schema}.stream_chunks (conversation, stream, begins, ends, body, encoding, checksum)
VALUES ($1::bigint, $2::bigint, $3::bigint, $4::bigint, $5::bytea, $6::bigint, $7::bigint::bit(32)::integer)

-- name: replace_stream_chunk
UPDATE {schema}.stream_chunks SET body = $1::bytea, encoding = $2::bigint, checksum = $3::bigint::bit(32)::integer
WHERE conversation = $4::bigint AND stream = $5::bigint AND begins = $6::bigint

-- name: delete_stream
DELETE FROM {schema}.streams WHERE conversation = $1::bigint AND stream = $2::bigint

-- name: delete_chunks_of_stream
DELETE FROM {schema}.stream_chunks WHERE conversation = $1::bigint AND stream = $2::bigint

-- name: delete_streams
DELETE FROM {schema}.streams WHERE conversation = $1::bigint

-- name: delete_stream_chunks
WITH gone AS (
    DELETE FROM {schema}.stream_chunks WHERE conversation = $1::bigint AND (stream, begins) IN (
        SELECT stream, begins FROM {schema}.stream_chunks WHERE conversation = $1::bigint ORDER BY stream, begins LIMIT $2::bigint)
    RETURNING 1
)
SELECT count(*) FROM gone

-- name: conversations_with_streams
SELECT DISTINCT conversation FROM {schema}.streams

-- name: open_streams
SELECT c.id, s.state FROM {schema}.streams s JOIN {schema}.conversations c ON c.key = s.conversation
WHERE s.name = $1::bytea AND s.closed_at IS NULL AND s.began_at < $2::bigint AND c.visible

-- name: streams_without_conversation
SELECT (SELECT count(*) FROM {schema}.streams s
        WHERE NOT EXISTS (SELECT FROM {schema}.conversations c WHERE c.key = s.conversation)),
       (SELECT count(*) FROM {schema}.stream_chunks c WHERE NOT EXISTS (
           SELECT FROM {schema}.streams s WHERE s.conversation = c.conversation AND s.stream = c.stream))

-- name: stands_stream_chunk
SELECT NULL::bigint FROM {schema}.stream_chunks
WHERE conversation = $1::bigint AND stream = $2::bigint AND begins = $3::bigint AND checksum = $4::bigint::bit(32)::integer

-- name: stands_stream
SELECT NULL::bigint FROM {schema}.streams
WHERE conversation = $1::bigint AND stream = $2::bigint AND closed_at IS NOT DISTINCT FROM $3::bigint AND state = $4::bytea

-- A search index, which a store may have (foldlog/_reports/search/index.py). A doc is a few consecutive events of a conversation,
-- or records of its source, with a number in its segment. If the segment of a doc is null, its words are in no index, so
-- each search reads its events. A version of foldlog that does not know these tables may write to the store too, because
-- triggers remove the words of changed text.
-- name: make_search_docs
CREATE TABLE IF NOT EXISTS {schema}.search_docs (
    segment      bigint,
    doc          integer NOT NULL,
    conversation bigint NOT NULL,
    of_records   integer NOT NULL,
    first        bigint NOT NULL,
    stop         bigint NOT NULL
)

-- name: make_search_docs_by_segment
CREATE UNIQUE INDEX IF NOT EXISTS search_docs_by_segment ON {schema}.search_docs (segment, doc)

-- name: make_search_docs_by_conversation
CREATE INDEX IF NOT EXISTS search_docs_by_conversation ON {schema}.search_docs (conversation, of_records, stop)

-- The words of a segment whose hashes end with the same byte. A word is 4 bytes: 24 bits of its hash, and 7 of a doc.
-- name: make_search_words
CREATE TABLE IF NOT EXISTS {schema}.search_words (
    bucket  integer NOT NULL,
    segment bigint NOT NULL,
    words   bytea NOT NULL,
    PRIMARY KEY (bucket, segment)
)

-- name: make_search_words_by_segment
CREATE INDEX IF NOT EXISTS search_words_by_segment ON {schema}.search_words (segment)

-- Conversations that each search reads completely. If "stays" is 1, the index never has their words.
-- name: make_search_unread
CREATE TABLE IF NOT EXISTS {schema}.search_unread (conversation bigint PRIMARY KEY, stays bigint NOT NULL)

-- The position up to which events are in the index, and the segment that takes further docs.
-- name: make_search_state
CREATE TABLE IF NOT EXISTS {schema}.search_state (store bigint PRIMARY KEY, until bigint, segment bigint NOT NULL)

-- The times when conversations were last active, in the order of a search (see in_order_of_search). The conversations in
-- "search_unplaced", and those with events after the position of the index, may have another place by now.
-- name: make_search_ends
CREATE TABLE IF NOT EXISTS {schema}.search_ends (
    conversation bigint PRIMARY KEY,
    is_timed     boolean NOT NULL,
    at           bigint NOT NULL
)

-- name: make_search_ends_in_order
CREATE INDEX IF NOT EXISTS search_ends_in_order ON {schema}.search_ends (is_timed, at)

-- name: make_search_unplaced
CREATE TABLE IF NOT EXISTS {schema}.search_unplaced (conversation bigint PRIMARY KEY)

-- An erasure, a redaction, a new key, or a fork that gets its own copies removes the words of the conversation. The other docs
-- of its segment lose their words too. A writer of the index locks the state, so that it never adds words of text that was
-- removed after it had read the text. The roles of agents may not own the tables, so this function runs with the rights of its
-- owner.
-- name: make_search_forgetting
CREATE OR REPLACE FUNCTION {schema}.search_forget() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $search_forget$
DECLARE
    changed bigint;
BEGIN
    IF TG_TABLE_NAME = 'figures' THEN
        changed := coalesce(NEW.conversation, OLD.conversation);
        INSERT INTO {schema}.search_unplaced SELECT changed ON CONFLICT DO NOTHING;
        RETURN NULL;
    ELSIF TG_TABLE_NAME = 'sources' THEN
        changed := NEW.conversation;
    ELSE
        changed := NEW.key;
    END IF;
    IF TG_ARGV[0] = 'words' THEN
        PERFORM FROM {schema}.search_state FOR UPDATE;
        DELETE FROM {schema}.search_words
        WHERE segment IN (SELECT segment FROM {schema}.search_docs WHERE conversation = changed);
        UPDATE {schema}.search_docs SET segment = NULL
        WHERE segment IN (SELECT segment FROM {schema}.search_docs WHERE conversation = changed);
        DELETE FROM {schema}.search_docs WHERE conversation = changed;
        DELETE FROM {schema}.search_ends WHERE conversation = changed;
    END IF;
    INSERT INTO {schema}.search_unread VALUES (changed, 0) ON CONFLICT (conversation) DO UPDATE SET stays = 0;
    RETURN NULL;
END
$search_forget$

-- name: make_search_removal
CREATE OR REPLACE TRIGGER search_removal
AFTER UPDATE OF erased_at, redactions, sealed_key, parent ON {schema}.conversations FOR EACH ROW
WHEN ((OLD.erased_at, coalesce(OLD.redactions, 0), OLD.sealed_key, OLD.parent)
    IS DISTINCT FROM (NEW.erased_at, coalesce(NEW.redactions, 0), NEW.sealed_key, NEW.parent))
EXECUTE FUNCTION {schema}.search_forget('words')

-- name: make_search_removal_of_records
CREATE OR REPLACE TRIGGER search_removal_of_records
AFTER UPDATE OF redacted ON {schema}.sources FOR EACH ROW WHEN (OLD.redacted <> NEW.redacted)
EXECUTE FUNCTION {schema}.search_forget('words')

-- name: make_search_new_source
CREATE OR REPLACE TRIGGER search_new_source AFTER INSERT ON {schema}.sources FOR EACH ROW
EXECUTE FUNCTION {schema}.search_forget('nothing')

-- name: make_search_grown_source
CREATE OR REPLACE TRIGGER search_grown_source AFTER UPDATE OF records ON {schema}.sources FOR EACH ROW
WHEN (OLD.records <> NEW.records) EXECUTE FUNCTION {schema}.search_forget('nothing')

-- "pending" changes when an archived conversation is restored.
-- name: make_search_restored
CREATE OR REPLACE TRIGGER search_restored AFTER UPDATE OF pending ON {schema}.conversations FOR EACH ROW
WHEN (OLD.pending < 0 AND coalesce(NEW.pending, 0) >= 0) EXECUTE FUNCTION {schema}.search_forget('nothing')

-- name: make_search_figures
CREATE OR REPLACE TRIGGER search_figures AFTER INSERT OR DELETE OR UPDATE OF code, version, last_at ON {schema}.figures
FOR EACH ROW EXECUTE FUNCTION {schema}.search_forget('nothing')

-- name: all_to_search
INSERT INTO {schema}.search_unread SELECT key, 0 FROM {schema}.conversations WHERE visible AND erased_at IS NULL

-- name: drop_search_forgetting
DROP FUNCTION IF EXISTS {schema}.search_forget() CASCADE

-- name: drop_search_tables
DROP TABLE IF EXISTS {schema}.search_docs, {schema}.search_words, {schema}.search_unread, {schema}.search_state,
    {schema}.search_ends, {schema}.search_unplaced

-- name: search_state
SELECT store, until, segment FROM {schema}.search_state

-- name: put_search_state
INSERT INTO {schema}.search_state (store, until, segment) VALUES ($1::bigint, NULL, $2::bigint)

-- name: put_search_segment
UPDATE {schema}.search_state SET segment = $2::bigint WHERE store = $1::bigint

-- name: move_search
UPDATE {schema}.search_state SET until = $2::bigint
WHERE store = $1::bigint AND (until IS NULL OR until < $2::bigint)

-- name: search_turn
SELECT segment FROM {schema}.search_state WHERE store = $1::bigint FOR UPDATE

-- part: search_touched
SELECT conversation AS key FROM {schema}.events
WHERE position > (SELECT coalesce(until, 0) FROM {schema}.search_state) AND position < 9223372036854775807 AND conversation > 0
UNION SELECT conversation FROM {schema}.publications
WHERE first_position > (SELECT coalesce(until, 0) FROM {schema}.search_state)

-- The events that the index lacks. If the stop is null, the events go on to the end. With an upper bound, the planner
-- expects few events, and reads them through the index.
-- name: search_unread
SELECT conversation, of_records::bigint, first, stop FROM {schema}.search_docs WHERE segment IS NULL
UNION ALL SELECT conversation, NULL::bigint, stays, NULL::bigint FROM {schema}.search_unread
UNION ALL SELECT t.key, 0, coalesce(
    (SELECT max(stop) FROM {schema}.search_docs WHERE conversation = t.key AND of_records = 0), 0
), NULL FROM ({search_touched}) t

-- A writer of the index compares these values. While they are equal, the conversation only got further texts.
-- name: search_versions
SELECT c.key, c.id, c.visible AND c.erased_at IS NULL AND coalesce(c.pending, 0) >= 0, c.sealed_key IS NOT NULL,
    coalesce(c.redactions, 0), coalesce(c.parent, 0), coalesce(s.records, 0), coalesce(s.redacted, ''::bytea),
    coalesce((SELECT max(stop) FROM {schema}.search_docs WHERE conversation = c.key AND of_records = 0), 0),
    coalesce((SELECT max(stop) FROM {schema}.search_docs WHERE conversation = c.key AND of_records = 1), 0)
FROM jsonb_array_elements_text(convert_from($2::bytea, 'UTF8')::jsonb) w
JOIN {schema}.conversations c ON c.key = w::bigint AND $1::bigint >= 0
LEFT JOIN {schema}.sources s ON s.conversation = c.key

-- name: docs_of_segment
SELECT count(*) FROM {schema}.search_docs WHERE segment = $1::bigint

-- name: words_of_segment
SELECT bucket::bigint, words FROM {schema}.search_words WHERE segment = $1::bigint

-- name: put_search_words
INSERT INTO {schema}.search_words (segment, bucket, words) VALUES ($1::bigint, $2::bigint, $3::bytea)
ON CONFLICT (bucket, segment) DO UPDATE SET words = excluded.words

-- name: put_search_doc
INSERT INTO {schema}.search_docs (segment, doc, conversation, of_records, first, stop)
VALUES ($1::bigint, $2::bigint, $3::bigint, $4::bigint, $5::bigint, $6::bigint)

-- name: leave_search_doc
DELETE FROM {schema}.search_docs
WHERE conversation = $1::bigint AND of_records = $2::bigint AND first = $3::bigint AND segment IS NULL

-- name: search_has_read
DELETE FROM {schema}.search_unread WHERE conversation = $1::bigint

-- name: search_reads
INSERT INTO {schema}.search_unread (conversation, stays) VALUES ($1::bigint, 0) ON CONFLICT (conversation) DO NOTHING

-- name: search_stays
INSERT INTO {schema}.search_unread (conversation, stays) VALUES ($1::bigint, 1)
ON CONFLICT (conversation) DO UPDATE SET stays = 1

-- name: words_in_bucket
SELECT segment, words FROM {schema}.search_words WHERE bucket = $1::bigint

-- name: words_in_segments
SELECT w.segment, w.words FROM jsonb_array_elements_text(convert_from($1::bytea, 'UTF8')::jsonb) s
JOIN {schema}.search_words w ON w.bucket = $2::bigint AND w.segment = s::bigint

-- name: search_docs
SELECT d.segment, d.doc::bigint, d.conversation, d.of_records::bigint, d.first, d.stop
FROM jsonb_array_elements(convert_from($1::bytea, 'UTF8')::jsonb) w
JOIN {schema}.search_docs d ON d.segment = (w ->> 0)::bigint AND d.doc = (w ->> 1)::bigint

-- The conversations to search, in the order of lists: see foldlog/_reports/figures/activity.py. The bytes 17 to 24 of
-- "meta" are the time of an event, in microseconds. A query names its conversations between this part and "with_ends",
-- which closes the bracket.
-- part: in_order_of_search
SELECT id, is_timed, at, key FROM (
    SELECT c.id, c.key, NOT coalesce(o.is_fresh, false) OR f.last_at IS NOT NULL AS is_timed,
        CASE WHEN o.is_fresh AND f.last_at IS NOT NULL THEN f.last_at ELSE greatest(c.created_at,
            ('x' || encode(substring(coalesce(e.meta, p.meta), 17, 8), 'hex'))::bit(64)::bigint) END AS at

-- The newest event of a conversation or, if it has none of its own, the last event that it shares with its parent; and
-- the conversations to leave out.
-- part: with_ends
LEFT JOIN {schema}.figures f ON f.conversation = c.key
    LEFT JOIN LATERAL (
        SELECT id, meta FROM {schema}.events WHERE conversation = c.key ORDER BY id DESC LIMIT 1
    ) e ON true
    LEFT JOIN {schema}.events p ON e.id IS NULL AND p.conversation = c.parent AND p.id = c.parent_version - 1
    CROSS JOIN LATERAL (
        SELECT f.code = wanted.code AND f.version = greatest(e.id + 1, c.parent_version, 0) AS is_fresh
    ) o
    WHERE c.visible AND c.erased_at IS NULL AND coalesce(c.pending, 0) >= 0
) found

-- The conversations behind a place in the order.
-- name: search_order
{in_order_of_search}
    FROM (SELECT $1::bigint AS code) wanted CROSS JOIN {schema}.conversations c {with_ends}
WHERE (is_timed::int, at) < ($3::bigint, $4::bigint) OR (is_timed::int, at) = ($3::bigint, $4::bigint) AND id > $5::bytea
ORDER BY is_timed DESC, at DESC, id LIMIT $2::bigint

-- name: search_order_of
{in_order_of_search}
    FROM (SELECT $1::bigint AS code) wanted
    CROSS JOIN jsonb_array_elements_text(convert_from($2::bytea, 'UTF8')::jsonb) w
    JOIN {schema}.conversations c ON c.key = w::bigint {with_ends}
ORDER BY is_timed DESC, at DESC, id

-- name: search_places
SELECT c.id, e.is_timed, e.at, c.key FROM {schema}.search_ends e JOIN {schema}.conversations c ON c.key = e.conversation
WHERE c.visible AND c.erased_at IS NULL AND coalesce(c.pending, 0) >= 0
    AND (e.is_timed, e.at) <= ($2::bigint = 1, $3::bigint)
    AND ((e.is_timed, e.at) < ($2::bigint = 1, $3::bigint) OR c.id > $4::bytea)
ORDER BY e.is_timed DESC, e.at DESC, c.id LIMIT $1::bigint

-- name: search_places_of
SELECT c.id, e.is_timed, e.at, c.key
FROM jsonb_array_elements_text(convert_from($5::bytea, 'UTF8')::jsonb) w
JOIN {schema}.search_ends e ON e.conversation = w::bigint
JOIN {schema}.conversations c ON c.key = e.conversation
WHERE c.visible AND c.erased_at IS NULL AND coalesce(c.pending, 0) >= 0
    AND ((e.is_timed, e.at) < ($2::bigint = 1, $3::bigint)
        OR (e.is_timed, e.at) = ($2::bigint = 1, $3::bigint) AND c.id > $4::bytea)
ORDER BY e.is_timed DESC, e.at DESC, c.id LIMIT $1::bigint

-- name: search_unplaced
SELECT conversation FROM {schema}.search_unplaced
UNION SELECT conversation FROM {schema}.search_unread u
WHERE NOT EXISTS (SELECT FROM {schema}.search_ends e WHERE e.conversation = u.conversation)
UNION {search_touched}

-- name: put_search_ends
INSERT INTO {schema}.search_ends (conversation, is_timed, at)
SELECT key, is_timed, at FROM (
    {in_order_of_search}
    FROM (SELECT $2::bigint AS code WHERE $1::bigint >= 0) wanted
    CROSS JOIN jsonb_array_elements_text(convert_from($3::bytea, 'UTF8')::jsonb) w
    JOIN {schema}.conversations c ON c.key = w::bigint {with_ends}
) placed
ON CONFLICT (conversation) DO UPDATE SET is_timed = excluded.is_timed, at = excluded.at

-- name: search_is_placed
DELETE FROM {schema}.search_unplaced
WHERE $1::bigint >= 0 AND conversation IN (
    SELECT w::bigint FROM jsonb_array_elements_text(convert_from($2::bytea, 'UTF8')::jsonb) w
)

-- The docs of some conversations. If the segment is null, their words are in no index.
-- name: search_docs_of
SELECT d.segment, d.doc::bigint, d.conversation, d.of_records::bigint, d.first, d.stop
FROM jsonb_array_elements_text(convert_from($1::bytea, 'UTF8')::jsonb) w
JOIN {schema}.search_docs d ON d.conversation = w::bigint

-- The events that the index lacks, and the conversations that each search reads.
-- name: search_lag
SELECT (SELECT count(*) FROM {schema}.events
        WHERE position > (SELECT coalesce(until, 0) FROM {schema}.search_state) AND position < 9223372036854775807 AND conversation > 0),
    (SELECT count(*) FROM {schema}.search_unread)

-- name: search_bytes
SELECT coalesce(sum({size_of_table}), 0)::bigint FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = {schema_name} AND c.relkind = 'r' AND c.relname LIKE 'search\_%'

-- name: count_to_search
SELECT count(*), count(*) FILTER (WHERE pending < 0) FROM {schema}.conversations WHERE visible AND erased_at IS NULL
