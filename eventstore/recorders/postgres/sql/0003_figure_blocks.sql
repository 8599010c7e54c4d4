-- The sums of the conversations that 2,048 transactions began (2^31 keys), so that a total of the store reads no row of
-- figures. "body" is JSON: the answers of the statements that foldlog/_figures/blocks.py names. Rows can be deleted: foldlog
-- sums up the block again.
CREATE TABLE {schema}.figure_blocks (
    block bigint PRIMARY KEY,
    code  bigint NOT NULL,
    body  bytea NOT NULL
);
-- Blocks whose figures have changed since they were summed up. Each change writes a row with a random mark, and whoever sums
-- up a block deletes the marks that were there before.
CREATE TABLE {schema}.figure_marks (
    block bigint NOT NULL,
    mark  bigint NOT NULL
);
CREATE INDEX figure_marks_of ON {schema}.figure_marks (block);
CREATE INDEX figure_parents ON {schema}.figure_counts (conversation, name) WHERE what = 'parent';
