-- Each block is one statement; the line above it has its name. A part is inserted into statements at its name in braces.
-- Bodies and ids are bound as UTF-8 bytes and cast. So a text that is not Unicode (lone surrogates in an id) can be stored
-- too, and nothing is encoded twice. Placeholders have no numbers, because Python 3.12.1 warns at each numbered placeholder.

-- The last entry in the ledger of an erased conversation is the entry of its erasure. A conversation ends with its last own
-- event. A fork's own events begin at parent_version. While the past of the fork is copied, its key also has rows below
-- parent_version.
-- part: conversation_columns
c.key, c.id, c.created_at, c.salt, e.id, e.meta, c.parent, c.parent_version, c.key_id, c.sealed_key,
c.erased_at, c.erased_reason, c.erased_events, c.erased_head, iif(
    c.erased_at IS NOT NULL,
    (SELECT position FROM events WHERE conversation = -c.key ORDER BY id DESC LIMIT 1),
    NULL
),
c.visible, c.mark, c.seed, c.replaces, c.redactions, c.pending

-- part: with_events
FROM conversations c
LEFT JOIN events e INDEXED BY events_by_id ON e.conversation = c.key

-- name: conversation
SELECT {conversation_columns} {with_events} AND e.id >= iif(c.parent IS NOT NULL, c.parent_version, 0)
WHERE c.id = CAST(? AS TEXT) AND c.visible ORDER BY e.id DESC LIMIT 1

-- name: conversation_of
SELECT {conversation_columns} {with_events} AND e.id >= iif(c.parent IS NOT NULL, c.parent_version, 0)
WHERE c.key = ? ORDER BY e.id DESC LIMIT 1

-- part: last_of_each
AND e.id = (
    SELECT max(id) FROM events WHERE conversation = c.key AND id >= iif(c.parent IS NOT NULL, c.parent_version, 0)
)

-- name: conversations
SELECT {conversation_columns}, (SELECT id FROM conversations WHERE key = c.parent) {with_events} {last_of_each}
WHERE c.visible AND c.id >= CAST(? AS TEXT)
ORDER BY c.id LIMIT ?

-- name: conversations_among
SELECT {conversation_columns}, NULL FROM json_each(?) w CROSS JOIN conversations c ON c.key = w.value
LEFT JOIN events e INDEXED BY events_by_id ON e.conversation = c.key {last_of_each}
WHERE c.parent IS NULL

-- name: last_changes
SELECT conversation, max(e.id) FROM json_each(?) w CROSS JOIN events e ON conversation = w.value AND kind = 'document_changes'
GROUP BY conversation

-- name: id_from
SELECT id FROM conversations WHERE visible AND id >= CAST(? AS TEXT) ORDER BY id LIMIT 1

-- An erasure has an entry in the ledger, and most conversations have none.
-- name: tombstones
SELECT c.id, c.erased_events, c.erased_at, c.erased_reason
FROM (SELECT DISTINCT conversation FROM events INDEXED BY events_by_id WHERE conversation < 0) e
CROSS JOIN conversations c ON c.key = -e.conversation
WHERE c.visible AND c.erased_at IS NOT NULL AND c.id > CAST(? AS TEXT) ORDER BY c.id LIMIT ?

-- name: begin_conversation
INSERT INTO conversations (id, visible, created_at, salt, parent, parent_version, seed, replaces)
VALUES (CAST(? AS TEXT), ?, ?, ?, ?, ?, ?, ?)

-- name: leave_parent
UPDATE conversations SET parent = NULL WHERE key = ?

-- name: forks
SELECT {conversation_columns}, (SELECT id FROM conversations WHERE key = c.parent) {with_events} {last_of_each}
WHERE c.parent = ? AND c.visible AND c.id >= CAST(? AS TEXT)
ORDER BY c.id LIMIT ?

-- The ancestors of a fork, and for each ancestor the version up to which the fork shares its events. Each step has a
-- smaller version, so a damaged file cannot cause an endless loop.
-- name: lineage
WITH RECURSIVE past (key, stop) AS (
    VALUES (?, ?)
    UNION ALL
    SELECT c.parent, c.parent_version FROM past JOIN conversations c ON c.key = past.key
    WHERE c.parent IS NOT NULL AND c.parent_version < past.stop
)
SELECT past.key, past.stop, c.id, c.sealed_key IS NOT NULL, c.parent FROM past CROSS JOIN conversations c ON c.key = past.key

-- name: hide_tombstone
UPDATE conversations SET visible = 0 WHERE key = ? AND visible AND erased_at IS NOT NULL

-- name: hide_replaced_tombstone
UPDATE conversations SET visible = 0
WHERE key = (SELECT replaces FROM conversations WHERE key = ?) AND visible AND erased_at IS NOT NULL

-- The values of several rows are inserted here, because one statement for several rows takes half of the time for each.
-- name: insert_events
INSERT INTO events (position, conversation, id, kind, shown, structural, meta, body)
VALUES {rows}

-- The values of one of these rows. Plain bodies are text: byte 31 of "meta" is the encoding, and 0 is plain. "meta" and the
-- body are bound twice, because CPython 3.12.0 to 3.12.3 warns at parameters that have a number.
-- name: an_event
(?, ?, ?, ?, ?, ?, ?, iif(substr(?, 31, 1) = x'00', CAST(? AS TEXT), ?))

-- name: a_plain_event
(?, ?, ?, ?, ?, ?, ?, CAST(? AS TEXT))

-- name: store_value
SELECT value FROM store WHERE name = CAST(? AS TEXT)

-- The value of this fact is a text. With a number, the row would look like an entry of the index of conversations to a
-- program that reads the pages of a damaged file.
-- name: file
SELECT value FROM store WHERE name = 'file'

-- name: set_file
INSERT OR REPLACE INTO store (name, value) VALUES ('file', CAST(? AS TEXT))

-- name: leave_out_positions
INSERT INTO store (name, value) VALUES ('positions_left_out', CAST(? AS TEXT))
ON CONFLICT (name) DO UPDATE SET value = CAST(CAST(value AS INTEGER) + CAST(excluded.value AS INTEGER) AS TEXT)

-- name: bytes_pending
SELECT value FROM store WHERE name = 'bytes_pending'

-- Each value is used only once. If two vacuums run, one may delete the value that the other has read, and a deletion may
-- then write a new value.
-- name: leave_bytes
INSERT INTO store (name, value) VALUES ('bytes_pending', ? || ' ' || lower(hex(randomblob(8))))
ON CONFLICT (name) DO UPDATE SET value = excluded.value

-- The value stays if more bytes were deleted after it was read.
-- name: bytes_are_gone
DELETE FROM store WHERE name = 'bytes_pending' AND value = CAST(? AS TEXT)

-- name: set_value
INSERT OR REPLACE INTO store (name, value) VALUES (CAST(? AS TEXT), CAST(? AS TEXT))

-- name: last_position
SELECT max(coalesce((SELECT max(position) FROM events), 0), value) FROM store WHERE name = 'positions_given'

-- name: reserve_positions
UPDATE store SET value = ? WHERE name = 'positions_given'

-- part: row
id, meta, body

-- name: rows
SELECT {row} FROM events WHERE conversation = ? AND id >= ? AND id < ? ORDER BY id LIMIT ?

-- The indexed fields, which are columns too, and the position.
-- name: columns
SELECT id, kind, shown, structural, position FROM events WHERE conversation = ? AND id >= ? AND id < ? ORDER BY id LIMIT ?

-- name: positions
SELECT position FROM events WHERE conversation = ? AND id < ? ORDER BY id

-- name: metas
SELECT id, meta FROM events WHERE conversation = ? AND id >= ? AND id < ? ORDER BY id LIMIT ?

-- The last row of a conversation or of a ledger with an id from 0 on.
-- name: newest_id
SELECT id FROM events WHERE conversation = ? AND id >= 0 AND id < ? ORDER BY id DESC LIMIT 1

-- The last event of a conversation up to a position. There is none if the conversation as a whole is later: it was
-- imported, detached from its parent, or encrypted after this position.
-- name: last_until
WITH wanted (key, until, ledger) AS (VALUES (?, ?, ?))
SELECT e.id FROM wanted JOIN events e INDEXED BY events_by_id ON e.conversation = wanted.key AND e.position <= until
WHERE NOT EXISTS (SELECT 1 FROM conversations c WHERE c.key = wanted.key AND c.first_position > until)
    AND NOT EXISTS (
        SELECT 1 FROM events l WHERE l.conversation = ledger AND l.kind = 'key_changed' AND l.position > until
    )
ORDER BY e.id DESC LIMIT 1

-- The proof of a redacted event has 64 bytes.
-- name: redacted_rows
SELECT {row} FROM events WHERE conversation = ? AND id >= ? AND id < ? AND substr(meta, 32, 1) = x'40' ORDER BY id LIMIT ?

-- name: structural
SELECT {row} FROM events INDEXED BY events_structural
WHERE conversation = ? AND id >= ? AND id < ? AND structural ORDER BY id LIMIT ?

-- name: document_changes
SELECT {row} FROM events INDEXED BY events_of_documents
WHERE conversation = ? AND id >= ? AND id < ? AND kind = 'document_changes' ORDER BY id DESC LIMIT ?

-- There is no ORDER BY, because SQLite would carry every body through a sorter, which takes longer than the rest.
-- name: flagged_rows
SELECT {row}
FROM ({intervals}) j
CROSS JOIN events e INDEXED BY events_of_views
    ON e.conversation = j.column3 AND e.id BETWEEN j.column1 AND j.column2 AND (e.shown OR e.structural)

-- A query with few intervals has them as VALUES, because it is then prepared in two thirds of the time.
-- name: many_intervals
SELECT value ->> 0 AS column1, value ->> 1 AS column2, value ->> 2 AS column3 FROM json_each(?)

-- The comparison is ">=", because with ">" SQLite would read the page of the row before, which may be damaged.
-- name: live_rows
SELECT {row}, position, coalesce((SELECT c.id FROM conversations c WHERE c.key = abs(e.conversation)), x''), conversation
FROM events e WHERE e.position >= ? AND e.position < ?
    AND NOT EXISTS (SELECT 1 FROM conversations c WHERE c.key = e.conversation AND c.erased_at IS NOT NULL)
ORDER BY e.position LIMIT ?

-- The position of the first event from a position on. Only the index is read, because the page of the row may be damaged.
-- name: live_place
SELECT position, coalesce((SELECT c.id FROM conversations c WHERE c.key = abs(e.conversation)), x''), e.id
FROM events e INDEXED BY events_by_id WHERE e.position >= ? ORDER BY e.position LIMIT 1

-- The position of the last event of a conversation, and whether an event between two positions has a time between two
-- times, which are bytes as in "meta". Events that were imported or copied have negative positions, and prove nothing.
-- name: newer_before
WITH last AS (SELECT position AS until FROM events WHERE conversation = ? ORDER BY id DESC LIMIT 1)
SELECT until, EXISTS (
    SELECT 1 FROM events WHERE position > ? AND position < until AND substr(meta, 17, 8) BETWEEN ? AND ?
) FROM last WHERE until > 0

-- The published import that contains the next position. If no import contains it, the first import after it.
-- name: publications
SELECT first_position, key, 0, published, id FROM conversations
WHERE first_position >= coalesce((SELECT max(first_position) FROM conversations WHERE first_position <= ?), 0)
    AND published IS NOT NULL AND first_position + published > ?
ORDER BY first_position LIMIT 1

-- name: publish
UPDATE conversations SET visible = 1 WHERE key = ?

-- name: place_first
UPDATE conversations SET first_position = ?, published = ? WHERE key = ?

-- name: any_conversation
SELECT 1 FROM conversations LIMIT 1

-- name: state
SELECT visible, erased_at IS NOT NULL FROM conversations WHERE key = ?

-- The rows of archived and restored conversations have the address of an object. A query without a key leaves them out.
-- name: unfinished
SELECT u.conversation, coalesce(c.id, ''), u.operation, u.state
FROM unfinished u LEFT JOIN conversations c ON c.key = u.conversation
WHERE u.conversation = coalesce(?, iif(u.operation IN ('archived', 'restored'), NULL, u.conversation)) ORDER BY u.conversation

-- name: leave_unfinished
INSERT OR REPLACE INTO unfinished (operation, state, conversation) VALUES (CAST(? AS TEXT), CAST(? AS TEXT), ?)

-- name: finish_all
DELETE FROM unfinished WHERE conversation < 0

-- name: finish
DELETE FROM unfinished WHERE conversation = ?

-- Copies of the parent's rows under the key of a fork. The fork has them because a detachment is not complete.
-- name: delete_copies
DELETE FROM events WHERE position IN (SELECT position FROM events WHERE conversation = ? AND id < (
    SELECT parent_version FROM conversations WHERE key = conversation AND parent IS NOT NULL
) ORDER BY id DESC LIMIT ?)

-- name: detach_copies
DELETE FROM attached WHERE conversation = ? AND event < (
    SELECT parent_version FROM conversations WHERE key = conversation AND parent IS NOT NULL
)

-- name: delete_archived
DELETE FROM events WHERE conversation = ? AND id < ?

-- name: delete_rows
DELETE FROM events WHERE position IN (SELECT position FROM events WHERE conversation = ? ORDER BY id DESC LIMIT ?)

-- name: delete_conversation
DELETE FROM conversations WHERE key = ?

-- name: recall
SELECT k.key, k.first_id, k.events, k.proof, CASE WHEN e.position > 0 THEN e.position ELSE c.first_position + e.id END
FROM idempotency_keys k
LEFT JOIN events e INDEXED BY events_by_id ON e.conversation = k.conversation AND e.id = k.first_id
LEFT JOIN conversations c ON c.key = k.conversation
WHERE k.conversation = ? AND k.key = CAST(? AS TEXT)

-- name: recalled_among
SELECT conversation, key, first_id, events, proof FROM idempotency_keys
WHERE conversation = ? AND key IN (SELECT value FROM json_each(CAST(? AS TEXT)))

-- name: recalled_anywhere
SELECT conversation, key, first_id, events, proof FROM idempotency_keys INDEXED BY idempotency_keys_of_sources
WHERE key IN (SELECT value FROM json_each(CAST(? AS TEXT))) AND key >= 'foldlog:source:' AND key < 'foldlog:source;'

-- name: remember
INSERT INTO idempotency_keys (conversation, key, first_id, events, proof) VALUES (?, CAST(? AS TEXT), ?, ?, ?)

-- name: recalled
SELECT key, first_id, events, proof FROM idempotency_keys WHERE conversation = ? AND key >= CAST(? AS TEXT) ORDER BY key LIMIT ?

-- name: set_key
UPDATE conversations SET salt = ?, key_id = CAST(? AS TEXT), sealed_key = ? WHERE key = ?

-- name: set_mark
UPDATE conversations SET mark = ? WHERE key = ?

-- name: prove
UPDATE idempotency_keys SET proof = ? WHERE conversation = ? AND key = CAST(? AS TEXT)

-- Plain bodies are text: byte 31 of "meta" is the encoding, and 0 is plain.
-- name: replace_row
UPDATE events SET meta = v.column1, body = iif(substr(v.column1, 31, 1) = x'00', CAST(v.column2 AS TEXT), v.column2)
FROM (VALUES (?, ?, ?, ?)) v WHERE conversation = v.column3 AND id = v.column4

-- name: count_redactions
UPDATE conversations SET redactions = coalesce(redactions, 0) + ? WHERE key = ?

-- name: erase_conversation
UPDATE conversations
SET salt = NULL, key_id = NULL, sealed_key = NULL, mark = NULL, seed = NULL, first_position = NULL, published = NULL,
    pending = NULL,
    -- the events that a fork copied from its parent have positions
    parent_version = iif(published IS NULL, parent_version, NULL),
    erased_at = ?, erased_reason = CAST(? AS TEXT), erased_events = ?, erased_head = ?
WHERE key = ?

-- name: forget_keys
DELETE FROM idempotency_keys WHERE conversation = ?

-- name: parts_of_schema
SELECT type, name, sql FROM sqlite_schema

-- name: rows_without_conversation
SELECT e.conversation, count(*) FROM events e
WHERE e.conversation <> 0 AND NOT EXISTS (SELECT 1 FROM conversations c WHERE c.key = abs(e.conversation))
GROUP BY e.conversation

-- name: without_position
SELECT c.id, count(*) FROM events e JOIN conversations c ON c.key = e.conversation
WHERE e.position <= 0 AND c.visible AND c.erased_at IS NULL AND e.id >= coalesce(c.parent_version, 0)
    AND (c.first_position IS NULL OR e.id >= c.published) GROUP BY c.key

-- Rows before the first event of a conversation, or of a ledger. A fork that is being detached gets such rows, without positions.
-- name: followed_alone
SELECT c.id, (
    SELECT count(*) FROM events e
    WHERE e.conversation = c.key AND e.position > 0
        AND e.id < CASE WHEN c.parent IS NULL THEN 0 ELSE coalesce(c.parent_version, 0) END
) + (SELECT count(*) FROM events e WHERE e.conversation = -c.key AND e.id < 0) AS events
FROM conversations c WHERE events > 0

-- name: with_two_positions
SELECT c.id, count(*) FROM conversations c JOIN events e ON e.conversation = c.key AND e.id < c.published
WHERE e.position > 0 AND c.first_position IS NOT NULL AND c.visible AND c.erased_at IS NULL GROUP BY c.key

-- Staged imports have negative positions until they are published. Only then are their events counted.
-- name: hidden
SELECT c.id FROM conversations c
WHERE NOT c.visible AND c.erased_at IS NULL AND (c.published IS NOT NULL OR EXISTS (
    SELECT 1 FROM events e INDEXED BY events_by_id WHERE e.conversation = c.key AND e.position > 0
))

-- name: positions_given_and_found
SELECT (SELECT max(coalesce((SELECT max(position) FROM events), 0), value) FROM store WHERE name = 'positions_given')
       - coalesce((SELECT CAST(value AS INTEGER) FROM store WHERE name = 'positions_left_out'), 0),
       (SELECT count(*) FROM events INDEXED BY events_by_id
        WHERE position > 0 AND conversation NOT IN (SELECT key FROM conversations WHERE erased_at IS NOT NULL))
       + (SELECT coalesce(sum(coalesce(erased_events - coalesce(parent_version, 0), published, 0)
                              + max(0, -coalesce(pending, 0) - coalesce(published, 0))), 0)
          FROM conversations),
       (SELECT typeof(value) = 'integer' FROM store WHERE name = 'positions_given')

-- name: newest_records
SELECT r.version, r.code, r.body, r.encoding, r.checksum, r.projection
FROM (
    SELECT conversation, projection, max(version) AS version FROM records WHERE conversation = ? GROUP BY projection
) newest
JOIN records r USING (conversation, projection, version)
ORDER BY r.projection LIMIT ?

-- name: records_back
SELECT version, code, body, encoding, checksum FROM records
WHERE conversation = ? AND projection = CAST(? AS TEXT) AND version <= ? ORDER BY version DESC LIMIT ?

-- name: records
SELECT version, code, body, encoding, checksum FROM records
WHERE conversation = ? AND projection = CAST(? AS TEXT) AND version > ? ORDER BY version LIMIT ?

-- name: records_of
SELECT c.id, c.sealed_key IS NOT NULL,
       max(coalesce((SELECT max(id) + 1 FROM events WHERE conversation = c.key), 0), coalesce(c.parent_version, 0)),
       r.version, r.code, r.body, r.encoding, r.checksum
FROM conversations c
LEFT JOIN records r ON r.conversation = c.key AND r.projection = CAST(? AS TEXT) AND r.version = (
    SELECT max(version) FROM records WHERE conversation = r.conversation AND projection = r.projection
)
WHERE c.visible AND c.erased_at IS NULL AND c.id >= CAST(? AS TEXT) AND c.id <= CAST(? AS TEXT)

-- name: ids_with_records
SELECT c.id FROM conversations c WHERE c.visible AND c.erased_at IS NULL
AND EXISTS (SELECT 1 FROM records r WHERE r.conversation = c.key AND r.projection = CAST(? AS TEXT))

-- name: put_record
INSERT OR REPLACE INTO records (projection, conversation, version, code, body, encoding, checksum)
VALUES (CAST(? AS TEXT), ?, ?, ?, ?, ?, ?)

-- name: forget_records
DELETE FROM records WHERE conversation = ?

-- name: delete_records
DELETE FROM records WHERE projection = CAST(? AS TEXT) AND conversation = ?

-- name: all_with_unmade
SELECT c.key, c.id, s.records, s.head, s.format, s.redacted FROM conversations c JOIN sources s ON s.conversation = c.key
WHERE c.pending > 0 AND c.visible AND c.erased_at IS NULL

-- name: all_visible
SELECT c.key, coalesce(l.version, -1) FROM conversations c LEFT JOIN listing l ON l.conversation = c.key
WHERE c.visible AND c.erased_at IS NULL

-- name: to_list_again
SELECT conversation, version FROM listing WHERE version < 0 AND version >= ?

-- name: touched
WITH wanted (after, until, least) AS (VALUES (?, ?, ?))
SELECT t.key, coalesce(l.version, -1) FROM (
    SELECT DISTINCT abs(conversation) AS key FROM wanted JOIN events ON position > after AND position <= until
    UNION SELECT key FROM wanted JOIN conversations ON first_position > after AND first_position <= until
    UNION SELECT conversation FROM wanted JOIN listing ON version < 0 AND version >= least
) t LEFT JOIN listing l ON l.conversation = t.key

-- name: visible_behind
SELECT c.key, coalesce(l.version, -1) FROM conversations c LEFT JOIN listing l ON l.conversation = c.key
WHERE c.visible AND c.erased_at IS NULL AND c.key > ? ORDER BY c.key LIMIT ?

-- The position of a later event, and its time.
-- name: event_behind
SELECT position, substr(meta, 17, 8) FROM events WHERE position > ? AND position <= ? ORDER BY position LIMIT 1 OFFSET ?

-- name: publication_behind
SELECT first_position, x'' FROM conversations WHERE first_position > ? AND first_position <= ?
ORDER BY first_position LIMIT 1 OFFSET ?

-- name: newest_touched
SELECT abs(conversation), max(position) FROM (
    SELECT conversation, position FROM events WHERE position > 0 ORDER BY position DESC LIMIT ?
) GROUP BY abs(conversation)

-- part: listed_columns
c.key, c.id, c.created_at, c.sealed_key IS NOT NULL, l.at, l.version,
       r.version IS NULL AND length(l.digests) > 16, r.version, r.code, r.body, r.encoding, r.checksum

-- name: listed_among
SELECT {listed_columns}
FROM json_each(?) w
CROSS JOIN listing l ON l.conversation = w.value
CROSS JOIN conversations c ON c.key = w.value
LEFT JOIN records r ON r.conversation = w.value AND r.projection = 'attributes'
WHERE c.erased_at IS NULL

-- name: listed
SELECT {listed_columns}
FROM listed d
CROSS JOIN listing l ON l.conversation = d.conversation
CROSS JOIN conversations c ON c.key = d.conversation
LEFT JOIN records r ON r.conversation = d.conversation AND r.projection = 'attributes'
WHERE d.digest = ? AND d.at <= ? AND NOT (d.at = ? AND d.conversation >= ?) AND c.erased_at IS NULL {others}
ORDER BY d.at DESC, d.conversation DESC LIMIT ?

-- name: also_listed
AND EXISTS (SELECT 1 FROM listed o WHERE o.digest = ? AND o.at = d.at AND o.conversation = d.conversation)

-- If the digests are null, they stay as they are.
-- name: put_listing
INSERT OR REPLACE INTO listing (conversation, at, version, digests)
SELECT v.column1, v.column2, v.column3,
       coalesce(v.column4, (SELECT digests FROM listing WHERE conversation = v.column1), x'')
FROM (VALUES (?, ?, ?, ?)) v

-- part: of_listing
WITH RECURSIVE entry (digest, at, conversation, others) AS (
    SELECT substr(digests, 1, 16), at, conversation, substr(digests, 17) FROM listing
    WHERE conversation = ? AND length(digests) > 0
    UNION ALL
    SELECT substr(others, 1, 16), at, conversation, substr(others, 17) FROM entry WHERE length(others) > 0
)

-- name: put_listed
{of_listing}
INSERT OR IGNORE INTO listed (digest, at, conversation) SELECT digest, at, conversation FROM entry

-- name: leave_listed
{of_listing}
DELETE FROM listed WHERE (digest, at, conversation) IN (SELECT digest, at, conversation FROM entry)

-- How many conversations up to a key, with an event up to a position, are in no list, and whether the store has given
-- this position. The beginning of a fork is an entry of the ledger.
-- name: unlisted
WITH wanted (key, until) AS (VALUES (?, ?))
SELECT (
    SELECT count(*) FROM wanted w JOIN conversations c ON c.key <= w.key
    WHERE c.visible AND c.erased_at IS NULL
        AND NOT EXISTS (SELECT 1 FROM listing l WHERE l.conversation = c.key)
        AND (
            c.first_position <= w.until
            OR EXISTS (
                SELECT 1 FROM events e INDEXED BY events_by_id
                WHERE e.conversation = c.key AND e.position > 0 AND e.position <= w.until
            )
            OR (c.parent IS NOT NULL AND EXISTS (
                SELECT 1 FROM events e INDEXED BY events_by_id
                WHERE e.conversation = -c.key AND e.position > 0 AND e.position <= w.until
            ))
        )
), until <= max(
    coalesce((SELECT max(position) FROM events), 0), (SELECT value FROM store WHERE name = 'positions_given')
) FROM wanted

-- name: list_again
UPDATE listing SET version = -1, digests = x'' WHERE conversation = ?

-- name: lists_that_contradict
WITH entries AS (SELECT conversation, count(*) AS number FROM listed GROUP BY conversation)
SELECT count(*) FROM (
    SELECT l.conversation FROM listing l
    LEFT JOIN conversations c ON c.key = l.conversation LEFT JOIN entries n ON n.conversation = l.conversation
    WHERE c.key IS NULL OR c.erased_at IS NOT NULL OR coalesce(n.number, 0) <> length(l.digests) / 16
    OR (l.version > coalesce(c.parent_version, 0) AND coalesce(c.pending, 0) >= 0 AND NOT EXISTS (
        SELECT 1 FROM events e WHERE e.conversation = l.conversation AND e.id = l.version - 1
        AND hex(substr(e.meta, 17, 8)) = printf('%016X', l.at)
    ))
    UNION SELECT d.conversation FROM listed d LEFT JOIN listing l ON l.conversation = d.conversation
    WHERE l.at IS NOT d.at OR instr(l.digests, d.digest) % 16 <> 1
)

-- name: listing_of
SELECT version, at, digests FROM listing WHERE conversation = ?

-- name: delete_listing
DELETE FROM listing WHERE conversation = ?

-- name: insert_tracking
INSERT INTO tracking (application, notification_id) VALUES (CAST(? AS TEXT), ?)

-- name: forget_tracking
DELETE FROM tracking WHERE application = CAST(? AS TEXT)

-- name: max_tracking_id
SELECT max(notification_id) FROM tracking WHERE application = CAST(? AS TEXT)

-- This jumps from each key to the next, because DISTINCT would walk the entries of all conversations.
-- name: key_ids
WITH RECURSIVE used (key_id) AS (
    SELECT (SELECT key_id FROM conversations INDEXED BY conversations_by_key
            WHERE visible AND key_id IS NOT NULL ORDER BY key_id LIMIT 1)
    UNION ALL
    SELECT (SELECT c.key_id FROM conversations c INDEXED BY conversations_by_key
            WHERE c.visible AND c.key_id IS NOT NULL AND c.key_id > used.key_id ORDER BY c.key_id LIMIT 1)
    FROM used WHERE used.key_id IS NOT NULL
)
SELECT key_id FROM used WHERE key_id IS NOT NULL

-- name: trackings
SELECT application, max(notification_id) FROM tracking GROUP BY application ORDER BY application

-- name: attached
SELECT event, name, encoding FROM attached
WHERE conversation = ? AND event IN (SELECT value FROM json_each(?)) ORDER BY event

-- name: attachment
SELECT body FROM attachments WHERE conversation = ? AND name = ? AND encoding = ?

-- Stored bytes stay, unless they are damaged: then the new bytes, which match the name, replace them. Encrypted bytes differ
-- each time, so they are always written again: the store cannot know whether the stored bytes can still be read.
-- name: keep_attachment
INSERT INTO attachments (conversation, name, encoding, body) VALUES (?, ?, ?, ?)
ON CONFLICT (conversation, name, encoding) DO UPDATE SET body = excluded.body
WHERE body <> excluded.body

-- name: attach
INSERT OR IGNORE INTO attached (conversation, event, name, encoding) VALUES (?, ?, ?, ?)

-- name: detach
DELETE FROM attached WHERE conversation = ? AND event IN (SELECT value FROM json_each(?))

-- name: detach_all
DELETE FROM attached WHERE conversation = ?

-- name: delete_unattached
DELETE FROM attachments WHERE conversation = ? AND NOT EXISTS (
    SELECT 1 FROM attached d
    WHERE d.conversation = attachments.conversation AND d.name = attachments.name AND d.encoding = attachments.encoding
)

-- name: delete_attachments
DELETE FROM attachments WHERE rowid IN (SELECT rowid FROM attachments WHERE conversation = ? LIMIT ?)

-- name: attachments_without_conversation
SELECT count(*) FROM attachments a WHERE NOT EXISTS (
    SELECT 1 FROM attached d WHERE d.conversation = a.conversation AND d.name = a.name AND d.encoding = a.encoding
) OR NOT EXISTS (SELECT 1 FROM conversations c WHERE c.key = a.conversation)

-- part: source
conversation, root, parent, from_record, records, made, format, reader, encoding, head, fingerprint, redacted, about, sums

-- Blocks that were appended one by one. Until several of these blocks are joined, the blocks themselves contain the
-- progress of the source.
-- part: appended
FROM sources s LEFT JOIN blocks b ON b.conversation = s.conversation AND b.first = (
    SELECT max(first) FROM blocks WHERE conversation = s.conversation AND first >= s.records AND encoding & 16
)

-- part: source_as_it_is
s.conversation, s.root, s.parent, s.from_record, s.records, s.made, s.format, s.reader, s.encoding, s.head, s.fingerprint, s.redacted, s.about, s.sums, b.first, b.records, b.encoding, b.places

-- name: source
SELECT {source_as_it_is} {appended} WHERE s.conversation = ?

-- name: family
SELECT s.conversation FROM sources s JOIN conversations c ON c.key = s.conversation
WHERE s.root = ? AND c.erased_at IS NULL

-- name: sources_among
SELECT conversation FROM json_each(?) w CROSS JOIN sources s ON s.conversation = w.value

-- name: any_source
SELECT 1 FROM sources LIMIT 1

-- name: source_keys
SELECT conversation FROM sources

-- name: sources
SELECT {source_as_it_is} {appended} WHERE s.conversation > ? ORDER BY s.conversation LIMIT ?

-- name: abouts
SELECT c.id, s.conversation, s.encoding, s.format, s.about FROM conversations c
JOIN sources s ON s.conversation = c.key WHERE c.visible AND c.erased_at IS NULL ORDER BY s.conversation

-- name: put_source
INSERT OR REPLACE INTO sources ({source})
VALUES (?, ?, ?, ?, ?, ?, CAST(? AS TEXT), ?, ?, ?, ?, ?, ?, ?)

-- name: set_progress
UPDATE sources SET records = v.column2, made = v.column3, head = v.column4
FROM (VALUES (?, ?, ?, ?)) v WHERE conversation = v.column1

-- name: set_pending
UPDATE conversations SET pending = nullif(?, 0) WHERE key = ?

-- The first block of a page is found in the index: it contains the record, or begins after the record.
-- name: blocks
WITH asked (conversation, record, most) AS (SELECT ?, ?, ?)
SELECT first, records, encoding, places, body FROM blocks WHERE conversation = (SELECT conversation FROM asked)
-- only for the index
AND first >= coalesce((SELECT max(first) FROM blocks WHERE conversation = (SELECT conversation FROM asked)
AND first <= (SELECT record FROM asked)), 0)
AND first + records > (SELECT record FROM asked) ORDER BY first LIMIT (SELECT most FROM asked)

-- name: blocks_back
SELECT first, records, encoding, places, body FROM blocks
WHERE conversation = ? AND first <= ? ORDER BY first DESC LIMIT ?

-- name: block_indexes
SELECT first, records, encoding, places FROM blocks WHERE conversation = ? ORDER BY first

-- name: put_block
INSERT OR REPLACE INTO blocks (conversation, first, records, encoding, places, body) VALUES (?, ?, ?, ?, ?, ?)

-- name: delete_blocks_between
DELETE FROM blocks WHERE conversation = ? AND first >= ? AND first < ?

-- name: delete_blocks
DELETE FROM blocks WHERE rowid IN (SELECT rowid FROM blocks WHERE conversation = ? LIMIT ?)

-- The events of records, from rows of "made", and from appended blocks. Only the rows of blocks have an encoding.
-- part: made_of_blocks
SELECT b.first, b.records, b.encoding, b.places FROM sources s
JOIN blocks b ON b.conversation = s.conversation AND b.first >= s.records AND b.encoding & 16
WHERE s.conversation = (SELECT conversation FROM asked)

-- name: made
WITH asked (conversation) AS (SELECT ?)
SELECT event, 0, NULL, places FROM made WHERE conversation = (SELECT conversation FROM asked)
UNION ALL {made_of_blocks}

-- name: made_near
WITH asked (conversation, event, most) AS (SELECT ?, ?, ?)
SELECT * FROM (
    SELECT event, 0, NULL, places FROM made WHERE conversation = (SELECT conversation FROM asked)
    AND event >= coalesce((SELECT max(event) FROM made WHERE conversation = (SELECT conversation FROM asked)
    AND event <= (SELECT event FROM asked)), 0) ORDER BY event LIMIT (SELECT most FROM asked)
)
UNION ALL {made_of_blocks}

-- name: put_made
INSERT OR REPLACE INTO made (conversation, event, places) VALUES (?, ?, ?)

-- name: delete_made
DELETE FROM made WHERE conversation = ?

-- name: delete_source
DELETE FROM sources WHERE conversation = ?

-- name: places
SELECT conversation, seen, records, taken, state, digest FROM places WHERE place = ?

-- The hashes of 16 bytes in a parameter. The parameter stands in one row, because a recursion that carries it along would copy
-- it for each hash.
-- part: asked
WITH RECURSIVE given (hashes) AS (SELECT ?), asked (number) AS (
    SELECT 0
    UNION ALL
    SELECT number + 1 FROM asked, given WHERE 16 * (number + 1) < length(hashes)
)

-- name: places_among
{asked}
SELECT place, conversation, seen, records, taken, state, digest
FROM given CROSS JOIN asked CROSS JOIN places ON place = substr(hashes, 16 * number + 1, 16)

-- name: places_of
SELECT place, seen, records, taken, state, digest FROM places WHERE conversation = ?

-- name: put_place
INSERT OR REPLACE INTO places (conversation, place, seen, records, taken, state, digest) VALUES (?, ?, ?, ?, ?, ?, ?)

-- name: refused_among
{asked}
SELECT fingerprint, own
FROM given CROSS JOIN asked CROSS JOIN refused ON fingerprint = substr(hashes, 16 * number + 1, 16)

-- name: refused_of
SELECT fingerprint FROM refused WHERE conversation = ?

-- name: put_refused
INSERT INTO refused (conversation, fingerprint, own) VALUES (?, ?, ?)
ON CONFLICT (fingerprint) DO UPDATE SET own = 1 WHERE excluded.own

-- name: allow
DELETE FROM refused WHERE fingerprint = ?

-- name: refuse
INSERT INTO refused (fingerprint, conversation, own)
SELECT fingerprint, conversation, 1 FROM (
    SELECT conversation, fingerprint FROM sources UNION SELECT conversation, place FROM places
) WHERE conversation = ?
ON CONFLICT (fingerprint) DO UPDATE SET own = 1

-- name: first_refused
SELECT conversation FROM refused LIMIT 1

-- What a store contains, for its administrator. Each statement reads one table.
-- name: schema_number
PRAGMA user_version

-- name: count_conversations
SELECT count(*) FILTER (WHERE visible AND erased_at IS NULL),
       count(*) FILTER (WHERE visible AND erased_at IS NULL AND parent IS NOT NULL),
       count(*) FILTER (WHERE erased_at IS NOT NULL),
       count(*) FILTER (WHERE visible AND pending < 0),
       coalesce(-sum(pending) FILTER (WHERE visible AND pending < 0), 0),
       coalesce(sum(pending) FILTER (WHERE visible AND pending > 0), 0)
FROM conversations

-- name: count_events
SELECT count(*) FROM events WHERE conversation > 0

-- name: count_document_changes
SELECT count(*) FROM events WHERE kind = 'document_changes' AND conversation > 0

-- name: count_sources
SELECT count(*), coalesce(sum(records - from_record), 0) FROM sources

-- name: count_attachments
SELECT count(*) FROM attachments

-- name: count_refused
SELECT count(*) FROM refused

-- name: count_keys
SELECT key_id, count(*) FROM conversations WHERE visible AND key_id IS NOT NULL GROUP BY key_id ORDER BY key_id

-- name: delete_places
DELETE FROM places WHERE conversation = ?

-- Figures. Some parameters are one JSON text: an array of keys, names or rows.
-- part: figure_columns
code, version, is_companion, recorded_at, is_local, first_at, last_at, longest_wait_s, events, errors, view_tokens, sent_events, sent_summaries, last_prompt_tokens, tokens, condensations, tokens_saved, format, state

-- part: call_columns
day, model, above, by_condenser, calls, prompt_tokens, completion_tokens, cached_tokens, cache_write_tokens, cache_write_1h_tokens, reasoning_tokens, cost

-- part: chosen
wanted (named, since, until, companions, only, without) AS (VALUES (?, ?, ?, ?, ?, ?)),
chosen AS (
    SELECT f.conversation FROM wanted w CROSS JOIN figures f
    WHERE (w.since IS NULL OR f.last_at >= w.since) AND (w.until IS NULL OR f.last_at < w.until)
    AND (w.companions OR NOT f.is_companion)
    AND (w.only IS NULL OR f.conversation IN (SELECT value FROM json_each((SELECT only FROM wanted))))
    -- only for the index
    AND f.conversation >= coalesce(w.only ->> '$[0]', 0)
    -- only for the index
    AND f.conversation <= coalesce(w.only ->> '$[#-1]', 9223372036854775807)
    AND f.conversation NOT IN (SELECT value FROM json_each((SELECT without FROM wanted)))
    AND NOT EXISTS (
        SELECT 1 FROM json_each(w.named) h WHERE NOT EXISTS (
            SELECT 1 FROM figure_counts n WHERE n.conversation = f.conversation AND n.what = h.value ->> 0
            AND n.number > 0 AND n.name IN (SELECT value FROM json_each(h.value, '$[1]'))
        )
    )
)

-- name: put_figures
INSERT OR REPLACE INTO figures (conversation, id, encoding, texts, replies, {figure_columns})
SELECT ?, CAST(? AS TEXT), ?, ?, ?, w.value ->> 0, w.value ->> 1, w.value ->> 2, w.value ->> 3, w.value ->> 4, w.value ->> 5, w.value ->> 6, w.value ->> 7, w.value ->> 8, w.value ->> 9, w.value ->> 10, w.value ->> 11, w.value ->> 12, w.value ->> 13, w.value ->> 14, w.value ->> 15, w.value ->> 16, w.value ->> 17, w.value ->> 18 FROM (SELECT CAST(? AS TEXT) AS value) w

-- name: put_figure_calls
INSERT INTO figure_calls (conversation, {call_columns})
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: put_figure_replies
INSERT OR REPLACE INTO figure_replies (conversation, reply, {call_columns})
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: put_figure_counts
INSERT INTO figure_counts (conversation, what, name, number)
VALUES (?, ?, ?, ?)

-- name: forget_figures
DELETE FROM figures WHERE conversation = ?

-- name: forget_figure_calls
DELETE FROM figure_calls WHERE conversation = ?

-- name: forget_figure_replies
DELETE FROM figure_replies WHERE conversation = ?

-- name: forget_figure_counts
DELETE FROM figure_counts WHERE conversation = ?

-- Conversations that have no figures, or figures of another version. Archived conversations keep their figures.
-- part: is_to_count
c.visible AND c.erased_at IS NULL AND (f.code IS NULL OR f.code <> wanted.code OR f.version <> max(
    coalesce((SELECT max(id) + 1 FROM events WHERE conversation = c.key), 0), coalesce(c.parent_version, 0)
)) AND coalesce(c.pending, 0) >= 0

-- name: figures_to_count
WITH wanted (code) AS (VALUES (?))
SELECT c.id, f.code IS NULL FROM wanted CROSS JOIN conversations c LEFT JOIN figures f ON f.conversation = c.key
WHERE {is_to_count}

-- name: figures_to_count_among
WITH wanted (code, keys) AS (VALUES (?, ?))
SELECT c.id, f.code IS NULL, c.key FROM wanted CROSS JOIN json_each(keys) w CROSS JOIN conversations c ON c.key = w.value
LEFT JOIN figures f ON f.conversation = c.key
WHERE {is_to_count}

-- Conversations whose figures may be outdated although no event came after their last count. Each value is used only once.
-- name: note_uncounted
INSERT OR REPLACE INTO store (name, value) VALUES ('uncounted ' || ?, hex(randomblob(8)) || 'x')

-- name: uncounted
SELECT CAST(substr(name, 11) AS INTEGER), value FROM store WHERE name >= 'uncounted ' AND name < 'uncounted!'

-- name: forget_uncounted
DELETE FROM store WHERE name = 'uncounted ' || ? AND value = CAST(? AS TEXT)

-- name: figures_between
SELECT f.conversation, f.id, f.encoding, f.texts, {figure_columns}
FROM conversations c CROSS JOIN figures f ON f.conversation = c.key
WHERE c.visible AND c.id >= CAST(? AS TEXT) AND c.id <= CAST(? AS TEXT)

-- name: figures_of
SELECT f.conversation, f.id, f.encoding, f.texts, {figure_columns}
FROM json_each(?) w CROSS JOIN figures f ON f.conversation = w.value

-- name: figure_calls_of
SELECT conversation, {call_columns} FROM json_each(?) w CROSS JOIN figure_calls k ON k.conversation = w.value

-- name: figures_of_none
SELECT count(*) FROM figures f WHERE NOT EXISTS (SELECT 1 FROM conversations c WHERE c.key = f.conversation AND c.visible AND c.erased_at IS NULL)

-- name: figure_counts_of
SELECT what, name, number FROM json_each(?) w CROSS JOIN figure_counts n ON n.conversation = w.value

-- An unknown figure comes last, in either order.
-- name: figures_sorted
WITH {chosen}, asked (sort, direction, most) AS (VALUES (CAST(? AS TEXT), ?, ?))
SELECT conversation, figure, id FROM (
    SELECT f.conversation, f.id, CASE sort
        WHEN 'recorded' THEN recorded_at WHEN 'activity' THEN last_at WHEN 'started' THEN first_at
        WHEN 'duration' THEN last_at - first_at WHEN 'wait' THEN longest_wait_s WHEN 'events' THEN events
        WHEN 'errors' THEN errors WHEN 'view' THEN view_tokens WHEN 'prompt' THEN last_prompt_tokens
        WHEN 'tokens' THEN tokens WHEN 'condensations' THEN condensations WHEN 'saved' THEN tokens_saved
        WHEN 'state' THEN CASE state
            WHEN 'error' THEN 5 WHEN 'refused' THEN 4 WHEN 'open_call' THEN 3
            WHEN 'result' THEN 2 WHEN 'request' THEN 1 WHEN 'answer' THEN 0
        END
    END AS figure
    FROM asked CROSS JOIN chosen CROSS JOIN figures f USING (conversation)
), asked
ORDER BY figure IS NULL, figure * direction, iif(sort = 'id' AND direction < 0, id, NULL) DESC, id LIMIT (SELECT most FROM asked)

-- part: prices
prices (model, above, input, cached, written, written_1h, output, thought) AS (
    SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4, value ->> 5, value ->> 6, value ->> 7 FROM json_each(?)
)

-- part: cost_of_calls
coalesce(cost, input * max(0, prompt_tokens - coalesce(cached_tokens, 0) - coalesce(cache_write_tokens, 0))
    + cached * coalesce(cached_tokens, 0)
    + written * (coalesce(cache_write_tokens, 0) - coalesce(cache_write_1h_tokens, 0))
    + written_1h * coalesce(cache_write_1h_tokens, 0)
    + output * (completion_tokens - min(coalesce(reasoning_tokens, 0), completion_tokens))
    + thought * min(coalesce(reasoning_tokens, 0), completion_tokens))

-- part: has_tokens
(coalesce(prompt_tokens, 0) + coalesce(completion_tokens, 0) > 0)

-- name: figures_by_cost
WITH {chosen}, asked (direction, most) AS (VALUES (?, ?)), {prices}
SELECT conversation, figure, id FROM (
    SELECT f.conversation, f.id, (
        SELECT iif(total({has_tokens} AND {cost_of_calls} IS NULL), NULL, sum({cost_of_calls}))
        FROM figure_calls k LEFT JOIN prices p USING (model, above) WHERE k.conversation = f.conversation
    ) AS figure
    FROM chosen CROSS JOIN figures f USING (conversation)
), asked
ORDER BY figure IS NULL, figure * direction, id LIMIT (SELECT most FROM asked)

-- name: figure_sums
WITH {chosen}
SELECT is_local, count(*), sum(errors IS NULL), sum(coalesce(tokens, 0) = 0), min(first_at), max(last_at),
    max(longest_wait_s), sum(view_tokens)
FROM chosen CROSS JOIN figures f USING (conversation) GROUP BY is_local

-- In encrypted conversations, a name is stored as a digest. The texts of one of these conversations contain the name.
-- name: figure_totals
WITH {chosen}
SELECT what, name, min(conversation), sum(number > 0), sum(number)
FROM chosen CROSS JOIN figure_counts n USING (conversation)
WHERE what IN (SELECT value FROM json_each(?)) GROUP BY what, name

-- name: figure_spending
WITH {chosen}
SELECT min(conversation), day, model, above, by_condenser, sum(calls),
    sum(prompt_tokens), sum(completion_tokens), sum(cached_tokens), sum(cache_write_tokens), sum(cache_write_1h_tokens), sum(reasoning_tokens), sum(cost)
FROM chosen CROSS JOIN figure_calls USING (conversation)
GROUP BY day, model, above, by_condenser, cost IS NULL, prompt_tokens IS NULL, completion_tokens IS NULL

-- The replies that may be in several of the chosen histories.
-- name: figure_replies_chosen
WITH {chosen}
SELECT reply, conversation, {call_columns} FROM figure_replies WHERE conversation IN (SELECT conversation FROM chosen)
ORDER BY reply, conversation

-- The sums of figures over blocks of conversations: see 0003_figure_blocks.sql.
-- name: figure_blocks
SELECT block, code, body FROM figure_blocks

-- name: marked_blocks
SELECT block, count(*) FROM figure_marks GROUP BY block

-- The number of keys of conversations in a block of figures. The marks and blocks that a store has are numbered by it.
-- part: block_size
512

-- name: blocks_with_figures
WITH RECURSIVE b (block) AS (
    SELECT min(conversation) / {block_size} FROM figures
    UNION ALL SELECT (SELECT min(conversation) / {block_size} FROM figures WHERE conversation >= (b.block + 1) * {block_size}) FROM b WHERE b.block IS NOT NULL
)
SELECT block FROM b WHERE block IS NOT NULL

-- name: marks_of_block
SELECT mark FROM figure_marks WHERE block = ?

-- name: figures_in_block
SELECT f.conversation, f.is_companion, EXISTS (SELECT 1 FROM figure_counts n WHERE n.conversation = f.conversation AND n.what = 'parent')
FROM (SELECT ? AS block) b CROSS JOIN figures f ON f.conversation >= b.block * {block_size} AND f.conversation < (b.block + 1) * {block_size}
ORDER BY f.conversation

-- name: mark_figures
INSERT INTO figure_marks (block, mark) VALUES (? / {block_size}, random())

-- name: forget_figure_block
DELETE FROM figure_blocks WHERE block = ? / {block_size}

-- name: put_figure_block
INSERT OR REPLACE INTO figure_blocks (block, code, body) VALUES (?, ?, ?)

-- name: forget_mark
DELETE FROM figure_marks WHERE block = ? AND mark = ?

-- name: figures_to_compare
SELECT conversation, version, events FROM figures WHERE replies_compared = 0 AND length(replies) > 0

-- name: figures_with_replies
SELECT conversation, version, events FROM figures WHERE length(replies) > 0

-- name: hashes_of_replies
SELECT conversation, replies FROM json_each(?) w CROSS JOIN figures f ON f.conversation = w.value

-- name: set_replies_compared
UPDATE figures SET replies_compared = 1 WHERE conversation = ? AND version = ? AND events = ?

-- name: figure_replies_of
SELECT reply FROM figure_replies WHERE conversation = ?

-- name: figure_replies_among
SELECT reply, conversation, {call_columns} FROM json_each(?) w CROSS JOIN figure_replies r ON r.conversation = w.value

-- Each sub-agent, and the conversation that began it.
-- name: figure_parents
SELECT f.conversation, f.id, n.name FROM figures f CROSS JOIN figure_counts n ON n.conversation = f.conversation AND n.what = 'parent'

-- name: existing_ids
SELECT c.id, c.created_at, c.replaces IS NOT NULL FROM json_each(?) w CROSS JOIN conversations c ON c.id = w.value AND c.visible AND c.erased_at IS NULL

-- The models of calls without a cost, by the size of the prompts.
-- name: figure_models
WITH {chosen}
SELECT min(conversation), model, above FROM chosen CROSS JOIN figure_calls USING (conversation)
WHERE cost IS NULL GROUP BY model, above

-- The number of conversations by the models whose calls have no cost. Null stands for calls whose tokens have no price.
-- name: figures_without_cost
WITH {chosen}
SELECT models, count(*) FROM (
    SELECT json_group_array(DISTINCT iif(prompt_tokens IS NULL OR completion_tokens IS NULL, NULL, model)) AS models
    FROM chosen CROSS JOIN figure_calls USING (conversation) WHERE cost IS NULL AND {has_tokens} GROUP BY conversation
) GROUP BY models

-- Runs and errors by the day of their last activity, in microseconds.
-- name: figures_by_day
WITH {chosen}
SELECT last_at / 86400000000, count(*), sum(errors), sum(state = 'error')
FROM chosen CROSS JOIN figures f USING (conversation) WHERE last_at IS NOT NULL GROUP BY 1

-- Streams. The end of an open stream is the end of its last chunk.
-- part: stream_columns
stream, name, type, began_at, closed_at, coalesce(tail, (
    SELECT c.ends FROM stream_chunks c WHERE c.conversation = s.conversation AND c.stream = s.stream
    ORDER BY c.begins DESC LIMIT 1
), 0), event, events, state

-- name: streams
SELECT {stream_columns} FROM streams s WHERE conversation = ? ORDER BY stream DESC

-- name: stream
SELECT {stream_columns} FROM streams s WHERE conversation = ? AND stream = ?

-- name: put_stream
INSERT OR REPLACE INTO streams (conversation, stream, name, type, began_at, closed_at, tail, event, events, state)
VALUES (?, ?, CAST(? AS TEXT), CAST(? AS TEXT), ?, ?, ?, ?, ?, ?)

-- name: stream_chunks
WITH asked (conversation, stream, after, most) AS (SELECT ?, ?, ?, ?)
SELECT begins, ends, body, encoding, checksum FROM stream_chunks
WHERE conversation = (SELECT conversation FROM asked) AND stream = (SELECT stream FROM asked)
AND begins >= coalesce((
    SELECT max(begins) FROM stream_chunks WHERE conversation = (SELECT conversation FROM asked)
    AND stream = (SELECT stream FROM asked) AND begins <= (SELECT after FROM asked)
), 0) AND ends > (SELECT after FROM asked)
ORDER BY begins LIMIT (SELECT most FROM asked)

-- name: put_stream_chunk
INSERT INTO stream_chunks (conversation, stream, begins, ends, body, encoding, checksum) VALUES (?, ?, ?, ?, ?, ?, ?)

-- name: replace_stream_chunk
UPDATE stream_chunks SET body = ?, encoding = ?, checksum = ? WHERE conversation = ? AND stream = ? AND begins = ?

-- name: delete_stream
DELETE FROM streams WHERE conversation = ? AND stream = ?

-- name: delete_chunks_of_stream
DELETE FROM stream_chunks WHERE conversation = ? AND stream = ?

-- name: delete_streams
DELETE FROM streams WHERE conversation = ?

-- name: delete_stream_chunks
DELETE FROM stream_chunks WHERE (conversation, stream, begins) IN (
    SELECT conversation, stream, begins FROM stream_chunks WHERE conversation = ? ORDER BY stream, begins LIMIT ?
)

-- name: conversations_with_streams
SELECT DISTINCT conversation FROM streams

-- name: open_streams
SELECT c.id, s.state FROM streams s JOIN conversations c ON c.key = s.conversation
WHERE s.name = CAST(? AS TEXT) AND s.closed_at IS NULL AND s.began_at < ? AND c.visible

-- name: streams_without_conversation
SELECT (SELECT count(*) FROM streams s WHERE NOT EXISTS (SELECT 1 FROM conversations c WHERE c.key = s.conversation)),
       (SELECT count(*) FROM stream_chunks c WHERE NOT EXISTS (
           SELECT 1 FROM streams s WHERE s.conversation = c.conversation AND s.stream = c.stream))

-- A search index, which a store may have (foldlog/_reports/search/index.py). A doc is a few consecutive events of a conversation,
-- or records of its source, with a number in its segment. If the segment of a doc is null, its words are in no index, so
-- each search reads its events. A version of foldlog that does not know these tables may write to the store too, because
-- triggers remove the words of changed text.
-- name: make_search_docs
CREATE TABLE IF NOT EXISTS search_docs (
    segment      INTEGER,
    doc          INTEGER NOT NULL,
    conversation INTEGER NOT NULL,
    of_records   INTEGER NOT NULL,
    first        INTEGER NOT NULL,
    stop         INTEGER NOT NULL
) STRICT

-- name: make_search_docs_by_segment
CREATE UNIQUE INDEX IF NOT EXISTS search_docs_by_segment ON search_docs (segment, doc)

-- name: make_search_docs_by_conversation
CREATE INDEX IF NOT EXISTS search_docs_by_conversation ON search_docs (conversation, of_records, stop)

-- The words of a segment whose hashes end with the same byte. A word is 4 bytes: 24 bits of its hash, and 7 of a doc.
-- name: make_search_words
CREATE TABLE IF NOT EXISTS search_words (
    bucket  INTEGER NOT NULL,
    segment INTEGER NOT NULL,
    words   BLOB NOT NULL,
    PRIMARY KEY (bucket, segment)
) STRICT, WITHOUT ROWID

-- name: make_search_words_by_segment
CREATE INDEX IF NOT EXISTS search_words_by_segment ON search_words (segment)

-- Conversations that each search reads completely. If "stays" is 1, the index never has their words.
-- name: make_search_unread
CREATE TABLE IF NOT EXISTS search_unread (conversation INTEGER PRIMARY KEY, stays INTEGER NOT NULL) STRICT

-- The position up to which events are in the index, and the segment that takes further docs.
-- name: make_search_state
CREATE TABLE IF NOT EXISTS search_state (store INTEGER PRIMARY KEY, until INTEGER, segment INTEGER NOT NULL) STRICT

-- The times when conversations were last active, in the order of a search (see in_order_of_search). The conversations in
-- "search_unplaced", and those with events after the position of the index, may have another place by now.
-- name: make_search_ends
CREATE TABLE IF NOT EXISTS search_ends (conversation INTEGER PRIMARY KEY, is_timed INTEGER NOT NULL, at TEXT NOT NULL) STRICT

-- name: make_search_ends_in_order
CREATE INDEX IF NOT EXISTS search_ends_in_order ON search_ends (is_timed, at)

-- name: make_search_unplaced
CREATE TABLE IF NOT EXISTS search_unplaced (conversation INTEGER PRIMARY KEY) STRICT

-- name: make_search_figures_new
CREATE TRIGGER search_figures_new AFTER INSERT ON figures
BEGIN
    INSERT OR IGNORE INTO search_unplaced VALUES (NEW.conversation);
END

-- name: make_search_figures_changed
CREATE TRIGGER search_figures_changed AFTER UPDATE OF code, version, last_at ON figures
BEGIN
    INSERT OR IGNORE INTO search_unplaced VALUES (NEW.conversation);
END

-- name: make_search_figures_gone
CREATE TRIGGER search_figures_gone AFTER DELETE ON figures
BEGIN
    INSERT OR IGNORE INTO search_unplaced VALUES (OLD.conversation);
END

-- An erasure, a redaction, a new key, or a fork that gets its own copies removes the words of the conversation. The other docs
-- of its segment lose their words too.
-- name: make_search_removal
CREATE TRIGGER search_removal
AFTER UPDATE OF erased_at, redactions, sealed_key, parent ON conversations
WHEN (OLD.erased_at, coalesce(OLD.redactions, 0), OLD.sealed_key, OLD.parent)
    IS NOT (NEW.erased_at, coalesce(NEW.redactions, 0), NEW.sealed_key, NEW.parent)
BEGIN
    DELETE FROM search_words WHERE segment IN (SELECT segment FROM search_docs WHERE conversation = NEW.key);
    UPDATE search_docs SET segment = NULL
    WHERE segment IN (SELECT segment FROM search_docs WHERE conversation = NEW.key);
    DELETE FROM search_docs WHERE conversation = NEW.key;
    DELETE FROM search_ends WHERE conversation = NEW.key;
    INSERT OR REPLACE INTO search_unread VALUES (NEW.key, 0);
END

-- name: make_search_removal_of_records
CREATE TRIGGER search_removal_of_records
AFTER UPDATE OF redacted ON sources WHEN OLD.redacted <> NEW.redacted
BEGIN
    DELETE FROM search_words WHERE segment IN (SELECT segment FROM search_docs WHERE conversation = NEW.conversation);
    UPDATE search_docs SET segment = NULL
    WHERE segment IN (SELECT segment FROM search_docs WHERE conversation = NEW.conversation);
    DELETE FROM search_docs WHERE conversation = NEW.conversation;
    INSERT OR REPLACE INTO search_unread VALUES (NEW.conversation, 0);
END

-- name: make_search_new_source
CREATE TRIGGER search_new_source AFTER INSERT ON sources
BEGIN
    INSERT OR REPLACE INTO search_unread VALUES (NEW.conversation, 0);
END

-- name: make_search_grown_source
CREATE TRIGGER search_grown_source AFTER UPDATE OF records ON sources WHEN OLD.records <> NEW.records
BEGIN
    INSERT OR REPLACE INTO search_unread VALUES (NEW.conversation, 0);
END

-- "pending" changes when an archived conversation is restored.
-- name: make_search_restored
CREATE TRIGGER search_restored AFTER UPDATE OF pending ON conversations
WHEN OLD.pending < 0 AND coalesce(NEW.pending, 0) >= 0
BEGIN
    INSERT OR REPLACE INTO search_unread VALUES (NEW.key, 0);
END

-- name: all_to_search
INSERT OR REPLACE INTO search_unread SELECT key, 0 FROM conversations WHERE visible AND erased_at IS NULL

-- name: drop_search_removal
DROP TRIGGER IF EXISTS search_removal

-- name: drop_search_removal_of_records
DROP TRIGGER IF EXISTS search_removal_of_records

-- name: drop_search_new_source
DROP TRIGGER IF EXISTS search_new_source

-- name: drop_search_grown_source
DROP TRIGGER IF EXISTS search_grown_source

-- name: drop_search_restored
DROP TRIGGER IF EXISTS search_restored

-- name: drop_search_figures_new
DROP TRIGGER IF EXISTS search_figures_new

-- name: drop_search_figures_changed
DROP TRIGGER IF EXISTS search_figures_changed

-- name: drop_search_figures_gone
DROP TRIGGER IF EXISTS search_figures_gone

-- name: drop_search_ends
DROP TABLE IF EXISTS search_ends

-- name: drop_search_unplaced
DROP TABLE IF EXISTS search_unplaced

-- name: drop_search_docs
DROP TABLE IF EXISTS search_docs

-- name: drop_search_words
DROP TABLE IF EXISTS search_words

-- name: drop_search_unread
DROP TABLE IF EXISTS search_unread

-- name: drop_search_state
DROP TABLE IF EXISTS search_state

-- name: search_state
SELECT store, until, segment FROM search_state

-- name: put_search_state
INSERT OR REPLACE INTO search_state (store, until, segment) VALUES (?, NULL, ?)

-- name: put_search_segment
UPDATE search_state SET segment = v.column2 FROM (VALUES (?, ?)) v WHERE store = v.column1

-- name: move_search
UPDATE search_state SET until = v.column2 FROM (VALUES (?, ?)) v
WHERE store = v.column1 AND (until IS NULL OR until < v.column2)

-- name: search_turn
SELECT segment FROM search_state WHERE store = ?

-- part: search_touched
SELECT DISTINCT conversation AS key
FROM search_state CROSS JOIN events NOT INDEXED ON position > coalesce(until, 0) WHERE conversation > 0
UNION SELECT key FROM search_state CROSS JOIN conversations ON first_position > coalesce(until, 0)

-- The events that the index lacks. If the stop is null, the events go on to the end.
-- name: search_unread
SELECT conversation, of_records, first, stop FROM search_docs WHERE segment IS NULL
UNION ALL SELECT conversation, NULL, stays, NULL FROM search_unread
UNION ALL SELECT key, 0, coalesce(
    (SELECT max(stop) FROM search_docs WHERE conversation = key AND of_records = 0), 0
), NULL FROM ({search_touched})

-- A writer of the index compares these values. While they are equal, the conversation only got further texts.
-- name: search_versions
SELECT c.key, c.id, c.visible AND c.erased_at IS NULL AND coalesce(c.pending, 0) >= 0, c.sealed_key IS NOT NULL,
    coalesce(c.redactions, 0), coalesce(c.parent, 0), coalesce(s.records, 0), coalesce(s.redacted, x''),
    coalesce((SELECT max(stop) FROM search_docs WHERE conversation = c.key AND of_records = 0), 0),
    coalesce((SELECT max(stop) FROM search_docs WHERE conversation = c.key AND of_records = 1), 0)
FROM (VALUES (?, ?)) wanted, json_each(wanted.column2) w CROSS JOIN conversations c ON c.key = w.value
LEFT JOIN sources s ON s.conversation = c.key

-- name: docs_of_segment
SELECT count(*) FROM search_docs WHERE segment = ?

-- name: words_of_segment
SELECT bucket, words FROM search_words WHERE segment = ?

-- name: put_search_words
INSERT OR REPLACE INTO search_words (segment, bucket, words) VALUES (?, ?, ?)

-- name: put_search_doc
INSERT INTO search_docs (segment, doc, conversation, of_records, first, stop) VALUES (?, ?, ?, ?, ?, ?)

-- name: leave_search_doc
DELETE FROM search_docs WHERE conversation = ? AND of_records = ? AND first = ? AND segment IS NULL

-- name: search_has_read
DELETE FROM search_unread WHERE conversation = ?

-- name: search_reads
INSERT OR IGNORE INTO search_unread (conversation, stays) VALUES (?, 0)

-- name: search_stays
INSERT OR REPLACE INTO search_unread (conversation, stays) VALUES (?, 1)

-- name: words_in_bucket
SELECT segment, words FROM search_words WHERE bucket = ?

-- name: words_in_segments
SELECT w.segment, w.words
FROM json_each(?) s CROSS JOIN search_words w ON w.bucket = ? AND w.segment = s.value

-- name: search_docs
SELECT d.segment, d.doc, d.conversation, d.of_records, d.first, d.stop
FROM json_each(?) w CROSS JOIN search_docs d ON d.segment = w.value ->> 0 AND d.doc = w.value ->> 1

-- The conversations to search, in the order of lists: see foldlog/_reports/figures/activity.py.
-- part: is_fresh
f.code = wanted.code AND f.version = max(coalesce(e.id + 1, 0), coalesce(c.parent_version, 0)) AS is_fresh

-- part: with_ends
LEFT JOIN figures f ON f.conversation = c.key
LEFT JOIN events e NOT INDEXED
    ON e.position = (SELECT position FROM events WHERE conversation = c.key ORDER BY id DESC LIMIT 1)
LEFT JOIN events p ON e.id IS NULL AND p.conversation = c.parent AND p.id = c.parent_version - 1
WHERE c.visible AND c.erased_at IS NULL AND coalesce(c.pending, 0) >= 0

-- part: in_order_of_search
SELECT id, NOT coalesce(is_fresh, 0) OR last_at IS NOT NULL AS is_timed,
    iif(is_fresh AND last_at IS NOT NULL, printf('%016X', max(last_at, 0)),
        max(printf('%016X', created_at), coalesce(hex(substr(meta, 17, 8)), ''))) AS at, key

-- The conversations behind a place in the order.
-- name: search_order
WITH wanted (code, most, timed, at, id) AS (VALUES (?, ?, ?, printf('%016X', ?), CAST(? AS TEXT))),
found AS MATERIALIZED (
    {in_order_of_search}
    FROM (
        SELECT c.key, c.id, f.last_at, c.created_at, coalesce(e.meta, p.meta) AS meta, {is_fresh}
        FROM wanted CROSS JOIN conversations c {with_ends}
    )
)
SELECT id, is_timed, at, key FROM found
WHERE (is_timed, at) < (SELECT timed, at FROM wanted)
    OR (is_timed, at) = (SELECT timed, at FROM wanted) AND id > (SELECT id FROM wanted)
ORDER BY is_timed DESC, at DESC, id LIMIT (SELECT most FROM wanted)

-- name: search_order_of
WITH wanted (code, keys) AS (VALUES (?, ?))
{in_order_of_search}
FROM (
    SELECT c.key, c.id, f.last_at, c.created_at, coalesce(e.meta, p.meta) AS meta, {is_fresh}
    FROM wanted CROSS JOIN json_each(keys) w CROSS JOIN conversations c ON c.key = w.value {with_ends}
)
ORDER BY is_timed DESC, at DESC, id

-- name: search_places
WITH wanted (most, timed, at, id) AS (VALUES (?, ?, printf('%016X', ?), CAST(? AS TEXT)))
SELECT c.id, e.is_timed, e.at, c.key FROM search_ends e CROSS JOIN conversations c ON c.key = e.conversation
WHERE c.visible AND c.erased_at IS NULL AND coalesce(c.pending, 0) >= 0
    AND (e.is_timed, e.at) <= (SELECT timed, at FROM wanted)
    AND ((e.is_timed, e.at) < (SELECT timed, at FROM wanted) OR c.id > (SELECT id FROM wanted))
ORDER BY e.is_timed DESC, e.at DESC, c.id LIMIT (SELECT most FROM wanted)

-- name: search_places_of
WITH wanted (most, timed, at, id, keys) AS (VALUES (?, ?, printf('%016X', ?), CAST(? AS TEXT), ?))
SELECT c.id, e.is_timed, e.at, c.key FROM wanted w CROSS JOIN json_each(keys) k CROSS JOIN search_ends e ON e.conversation = k.value
CROSS JOIN conversations c ON c.key = e.conversation
WHERE c.visible AND c.erased_at IS NULL AND coalesce(c.pending, 0) >= 0
    AND ((e.is_timed, e.at) < (w.timed, w.at) OR (e.is_timed, e.at) = (w.timed, w.at) AND c.id > w.id)
ORDER BY e.is_timed DESC, e.at DESC, c.id LIMIT (SELECT most FROM wanted)

-- name: search_unplaced
SELECT conversation FROM search_unplaced
UNION SELECT conversation FROM search_unread u
WHERE NOT EXISTS (SELECT 1 FROM search_ends e WHERE e.conversation = u.conversation)
UNION {search_touched}

-- name: put_search_ends
INSERT OR REPLACE INTO search_ends (conversation, is_timed, at)
WITH wanted (store, code, keys) AS (VALUES (?, ?, ?))
SELECT key, is_timed, at FROM (
    {in_order_of_search}
    FROM (
        SELECT c.key, c.id, f.last_at, c.created_at, coalesce(e.meta, p.meta) AS meta, {is_fresh}
        FROM wanted CROSS JOIN json_each(keys) w CROSS JOIN conversations c ON c.key = w.value {with_ends}
    )
)

-- name: search_is_placed
WITH wanted (store, keys) AS (VALUES (?, ?))
DELETE FROM search_unplaced WHERE conversation IN (SELECT value FROM wanted, json_each(keys))

-- The docs of some conversations. If the segment is null, their words are in no index.
-- name: search_docs_of
SELECT d.segment, d.doc, d.conversation, d.of_records, d.first, d.stop
FROM json_each(?) w CROSS JOIN search_docs d ON d.conversation = w.value

-- The events that the index lacks, and the conversations that each search reads.
-- name: search_lag
SELECT (SELECT count(*) FROM search_state CROSS JOIN events NOT INDEXED ON position > coalesce(until, 0) WHERE conversation > 0),
    (SELECT count(*) FROM search_unread)

-- A row of search_words takes some 12 bytes beside its words, and a row of search_docs with its indexes some 45.
-- name: search_bytes
SELECT (SELECT coalesce(sum(length(words) + 12), 0) FROM search_words) + (SELECT count(*) * 45 FROM search_docs)

-- name: count_to_search
SELECT count(*), coalesce(sum(pending < 0), 0) FROM conversations WHERE visible AND erased_at IS NULL
