-- Texts of a conversation that are written piece by piece, such as the reply of a model. A stream is open until it is
-- closed. "stream" is the time of its beginning in 1/1024 µs, so no number is used twice and the newest stream has the
-- highest. "type" is the type of its content. "tail" is the end of a closed stream: the number of its units, which are JSON
-- values in a stream of JSON and bytes in any other. If the stream became a reply, "event" is the first event of the reply
-- and "events" the number of its events. "state" is JSON, and belongs to the service.
CREATE TABLE streams (
    conversation INTEGER NOT NULL,
    stream       INTEGER NOT NULL,
    name         TEXT NOT NULL,
    type         TEXT NOT NULL,
    began_at     INTEGER NOT NULL,
    closed_at    INTEGER,
    tail         INTEGER,
    event        INTEGER,
    events       INTEGER,
    state        BLOB NOT NULL,
    PRIMARY KEY (conversation, stream)
) STRICT, WITHOUT ROWID;
-- What was appended together. The body has the units from "begins" to "ends", as a JSON array in a stream of JSON. In an
-- encrypted conversation, it is encrypted. Closed streams are deleted after a while.
CREATE TABLE stream_chunks (
    conversation INTEGER NOT NULL,
    stream       INTEGER NOT NULL,
    begins       INTEGER NOT NULL,
    ends         INTEGER NOT NULL,
    encoding     INTEGER NOT NULL,
    checksum     INTEGER NOT NULL,
    body         BLOB NOT NULL,
    PRIMARY KEY (conversation, stream, begins)
) STRICT, WITHOUT ROWID;
