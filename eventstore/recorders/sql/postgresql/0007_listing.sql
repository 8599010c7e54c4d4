-- Schema 7: conversations by attribute and by last activity, as a process last found them. All of it can be deleted and is
-- made again from the events. A row is written when attributes change and when somebody lists conversations, never at
-- another append. A digest stands for one attribute, keyed in an encrypted conversation; 16 zero bytes stand for all
-- conversations. Version -1: to be listed again; -2: to be listed by a process that has its key.

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

-- An older version erases a conversation and leaves what is listed of it, so it does not open the store any more.
UPDATE {schema}.store SET value = '7' WHERE name = 'readable_by';
