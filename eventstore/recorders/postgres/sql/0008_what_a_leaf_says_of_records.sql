-- An extent of a leaf covers how many records of a source had become events. The tables stay as they are, and earlier
-- leaves too: the number keeps a program away that does not know the form, and would call the list of checkpoints changed.

UPDATE {schema}.store SET value = '8' WHERE name = 'readable_by';
