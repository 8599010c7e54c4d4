"""The write side: the log of what happened.

A conversation is an append-only log of events with ids 0, 1, 2, …; its version is how many there are. Nothing here
knows of Views or models.

    store.py opening.py                   append, read, follow; which store a URL names
    events.py codec.py conversation.py    the kinds of events, their bytes, the rules of an append
    writing/                              the steps of a write: append, import, fork
    documents/                            values beside the events; conversations by attribute
    stored/ recorders/                    an event as a row, and transactions; rows in a database
    maintenance/ integrations/            verify, copy, erase and the like; the eventsourcing library
    codec_json.py arguments.py errors.py  what JSON cannot hold; checks of arguments; the errors
"""

from eventstore.conversation import ANY_VERSION, AnyVersion
from eventstore.documents.changes import DELETED, Documents
from eventstore.errors import (
    CannotRedact,
    ConversationErased,
    ConversationHasForks,
    ConversationNotFound,
    CorruptEvent,
    DocumentsChanged,
    EventStoreError,
    HistoryDiverged,
    IdempotencyConflict,
    InvalidArgument,
    InvalidEvent,
    InvalidOption,
    KeyUnavailable,
    StoreUnavailable,
    StoreUnusable,
    UnknownEventType,
    VersionConflict,
)
from eventstore.events import (
    NOT_RECORDED,
    Action,
    AgentCondensationObservation,
    Annotation,
    CondensationAction,
    CondensationRequest,
    CondensationRequestAction,
    CondensationSummary,
    Content,
    DocumentChanges,
    Erased,
    Event,
    Forgotten,
    Message,
    Observation,
    Origin,
    Redacted,
    Redaction,
    Retraction,
    Source,
    SystemMessage,
    UnknownEvent,
    is_structural,
    summary_id,
    summary_of,
)
from eventstore.opening import open_store, restore_store
from eventstore.store import Store
from eventstore.stored.keys import KeyRing
from eventstore.stored.read_transaction import ReadTransaction
from eventstore.stored.results import ConversationRow, Ingested, Logged, Recorded
from eventstore.stored.write_transaction import InlineProjection, Record, WriteTransaction

__foldlog__ = "0.1.0"

__all__ = [
    "ANY_VERSION",
    "DELETED",
    "NOT_RECORDED",
    "Action",
    "AgentCondensationObservation",
    "Annotation",
    "AnyVersion",
    "CannotRedact",
    "CondensationAction",
    "CondensationRequest",
    "CondensationRequestAction",
    "CondensationSummary",
    "Content",
    "ConversationErased",
    "ConversationHasForks",
    "ConversationNotFound",
    "ConversationRow",
    "CorruptEvent",
    "DocumentChanges",
    "Documents",
    "DocumentsChanged",
    "Erased",
    "Event",
    "EventStoreError",
    "Forgotten",
    "HistoryDiverged",
    "IdempotencyConflict",
    "Ingested",
    "InlineProjection",
    "InvalidArgument",
    "InvalidEvent",
    "InvalidOption",
    "KeyRing",
    "KeyUnavailable",
    "Logged",
    "Message",
    "Observation",
    "Origin",
    "ReadTransaction",
    "Record",
    "Recorded",
    "Redacted",
    "Redaction",
    "Retraction",
    "Source",
    "Store",
    "StoreUnavailable",
    "StoreUnusable",
    "SystemMessage",
    "UnknownEvent",
    "UnknownEventType",
    "VersionConflict",
    "WriteTransaction",
    "is_structural",
    "open_store",
    "restore_store",
    "summary_id",
    "summary_of",
]
