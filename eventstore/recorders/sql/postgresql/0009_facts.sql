-- Schema 9: what those who write remember about the store as a whole: the last removal of text, how far conversations are
-- listed. It has a table of its own, since the role of agents may not change the store's identity and schema.

CREATE TABLE {schema}.facts (
    name  text PRIMARY KEY,
    value text NOT NULL
);
INSERT INTO {schema}.facts SELECT name, value FROM {schema}.store WHERE name IN ('removals', 'listed');
