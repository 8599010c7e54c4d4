-- Schema 4: the last changes of documents before a version. docs/STORED_BYTES.md says how documents are stored.

CREATE INDEX events_of_documents ON events (conversation, id) WHERE kind = 'document_changes';
