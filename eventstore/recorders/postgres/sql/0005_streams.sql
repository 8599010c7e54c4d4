-- Texts of a conversation that are written piece by piece, such as the reply of a model. A stream is open until it is
-- closed. "stream" is the time of its beginning in 1/1024 µs, so no number is used twice and the newest stream has the
-- highest. "type" is the type of its content. "tail" is the end of a closed stream: the number of its units, which are JSON
-- values in a stream of JSON and bytes in any other. If the stream became a reply, "event" is the first event of the reply
-- and "events" the number of its events. "state" is JSON, and belongs to the service.
CREATE TABLE {schema}.streams (
    conversation bigint NOT NULL,
    stream       bigint NOT NULL,
    name         bytea NOT NULL,
    type         bytea NOT NULL,
    began_at     bigint NOT NULL,
    closed_at    bigint,
    tail         bigint,
    event        bigint,
    events       bigint,
    state        bytea NOT NULL,
    PRIMARY KEY (conversation, stream)
);
-- What was appended together. The body has the units from "begins" to "ends", as a JSON array in a stream of JSON. In an
-- encrypted conversation, it is encrypted. Closed streams are deleted after a while.
CREATE TABLE {schema}.stream_chunks (
    conversation bigint NOT NULL,
    stream       bigint NOT NULL,
    begins       bigint NOT NULL,
    ends         bigint NOT NULL,
    encoding     smallint NOT NULL,
    checksum     integer NOT NULL,
    body         bytea {lz4} NOT NULL,
    PRIMARY KEY (conversation, stream, begins)
);
-- A version that does not know these tables would leave the text of an erased conversation in them.
UPDATE {schema}.store SET value = '5' WHERE name = 'readable_by';
