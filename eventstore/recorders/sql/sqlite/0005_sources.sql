-- Schema 5: events by the id that their source gave them, over all conversations. Other idempotency keys are not in it.

CREATE INDEX idempotency_keys_of_sources ON idempotency_keys (key)
WHERE key >= 'foldlog:source:' AND key < 'foldlog:source;';
