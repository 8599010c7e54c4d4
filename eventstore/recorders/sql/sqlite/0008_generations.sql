-- Schema 8: the id of an erased conversation can be used again. The new one names it in "replaces"; the receipt is not visible any
-- more, and is told from a staged import by erased_at. A version that does not know this would take it for one.

ALTER TABLE conversations ADD COLUMN replaces INTEGER;
