-- Schema 5: the last changes of documents before a version. docs/STORED_BYTES.md says how documents are stored.

CREATE INDEX events_of_documents ON {schema}.events (conversation, id) WHERE kind = 'document_changes'::bytea;
