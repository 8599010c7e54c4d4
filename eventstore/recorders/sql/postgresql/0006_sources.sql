-- Schema 6: events by the id that their source gave them, over all conversations. Other idempotency keys are not in it, so
-- an earlier version can still read and write the store.

CREATE INDEX idempotency_keys_of_sources ON {schema}.idempotency_keys (sha256(key))
WHERE substring(key, 1, 15) = 'foldlog:source:'::bytea;
