-- The sums of 512 conversations with consecutive keys, so that a total of the store reads no row of figures. "body" is JSON:
-- the answers of the statements that foldlog/_reports/figures/blocks.py names. Rows can be deleted: foldlog sums up the
-- block again.
CREATE TABLE figure_blocks (
    block INTEGER PRIMARY KEY,
    code  INTEGER NOT NULL,
    body  BLOB NOT NULL
) STRICT;
-- Blocks whose figures have changed since they were summed up. Each change writes a row with a random mark, and whoever sums
-- up a block deletes the marks that were there before.
CREATE TABLE figure_marks (
    block INTEGER NOT NULL,
    mark  INTEGER NOT NULL
) STRICT;
CREATE INDEX figure_marks_of ON figure_marks (block);
CREATE INDEX figure_parents ON figure_counts (conversation, name) WHERE what = 'parent';
