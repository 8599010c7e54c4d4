-- Schema 6: conversations by attribute and by last activity, as a process last found them. All of it can be deleted and is
-- made again from the events. A row is written when attributes change and when somebody lists conversations, never at
-- another append. A digest stands for one attribute, keyed in an encrypted conversation; 16 zero bytes stand for all
-- conversations. Version -1: to be listed again; -2: to be listed by a process that has its key.

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
