-- What an attacker does, by a name. Each is tried with every choice of what stands in braces in its name.

-- delete all {table} of {key}
DELETE FROM {table} WHERE conversation = {key};

-- move all {table} of {key}
DELETE FROM {table} WHERE conversation = 3 - {key};
UPDATE {table} SET conversation = 3 - {key} WHERE conversation = {key};

-- cut conversation {key} off at {left}
DELETE FROM events WHERE conversation = {key} AND id >= {left};

-- swap {part} of events {pair}
DROP INDEX events_by_id;
CREATE INDEX events_by_id ON events (conversation, id);
CREATE TEMP TABLE swapped AS SELECT {part} FROM events WHERE position = {pair[0]};
UPDATE events SET ({part}) = (SELECT {part} FROM events o WHERE o.position = {pair[1]}) WHERE position = {pair[0]};
UPDATE events SET ({part}) = (SELECT * FROM swapped) WHERE position = {pair[1]};

-- put event {pair[0]} in the place of {pair[1]}
UPDATE events SET (kind, shown, structural, meta, body) =
    (SELECT kind, shown, structural, meta, body FROM events o WHERE o.position = {pair[0]})
    WHERE position = {pair[1]};

-- a second event {position}, with {changes}
DROP INDEX events_by_id;
CREATE INDEX events_by_id ON events (conversation, id);
CREATE TEMP TABLE second AS SELECT * FROM events WHERE position = {position};
UPDATE second SET {changes};
UPDATE second SET position = (SELECT max(position) + 1 FROM events);
INSERT INTO events SELECT * FROM second;

-- move event {position} to the other
DELETE FROM events WHERE (conversation, id) =
    (SELECT 3 - conversation, id FROM events WHERE position = {position});
UPDATE events SET conversation = 3 - conversation WHERE position = {position};

-- forge {forged} of event {position}
UPDATE events SET ({forged}) = (SELECT {forged} FROM own.events o WHERE o.position = events.position)
    WHERE position = {position};

-- forge all events of {key}
UPDATE events SET (id, kind, shown, structural, meta, body) =
    (SELECT id, kind, shown, structural, meta, body FROM own.events o WHERE o.position = events.position)
    WHERE conversation = {key};

-- forge all revisions of {key}
INSERT OR REPLACE INTO records SELECT * FROM own.records WHERE conversation = {key};

-- forge the revision {body} of version {version} of {key}
INSERT OR REPLACE INTO records VALUES ({key}, 'views', {version}, {code}, 0, 0, CAST('{body}' AS BLOB));

-- forge idempotency key {nth} of {key} at {first}, {proof}
INSERT OR REPLACE INTO idempotency_keys VALUES
    ({key}, (SELECT key FROM idempotency_keys WHERE conversation = {key} ORDER BY key LIMIT 1 OFFSET {nth}), {first}, 1, {proof});

-- take the key of {key} away
UPDATE conversations SET key_id = NULL, sealed_key = NULL, mark = NULL,
    salt = (SELECT salt FROM own.conversations o WHERE o.key = conversations.key) WHERE key = {key};

-- drop index {index}
DROP INDEX {index};
