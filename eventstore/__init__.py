"""The write side: the log of what happened.

A conversation is an append-only log of events with ids 0, 1, 2, …; its version is how many there are. Nothing here
knows of Views or models.

    store.py opening.py                   append, read, follow; which store a URL names
    events.py codec.py conversation.py    the kinds of events, their bytes, the rules of an append
    documents/                            values beside the events; conversations by attribute
    log/ recorders/                       one conversation in one transaction; rows in a database
    maintenance/ integrations/            verify, copy, erase and the like; the eventsourcing library
    codec_json.py arguments.py errors.py  what JSON cannot hold; checks of arguments; the errors
"""

from eventstore.codec_json import said
from eventstore.conversation import ANY_VERSION, AnyVersion
from eventstore.documents.changes import DELETED, Documents
from eventstore.documents.listing import RecentConversation, RecentConversations, recent_conversations
from eventstore.documents.values import newest_value, newest_values
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
    install_command,
)
from eventstore.events import (
    ATTRIBUTES,
    LOST,
    MAY_BE_STRUCTURAL,
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
from eventstore.log.generation import Generation
from eventstore.log.keys import KeyRing
from eventstore.log.moment import Moment, beginning_with, query_all
from eventstore.log.origins import FoundEvent, find
from eventstore.log.reading import ReadTransaction
from eventstore.log.results import Border, ConversationRow, Ingested, Logged, Recorded
from eventstore.log.row import from_microseconds
from eventstore.log.seal import EVENT_BYTES_MAX, Compression
from eventstore.log.writing import InlineProjection, Record, WriteTransaction
from eventstore.maintenance.status import confirm, lost_after
from eventstore.opening import open_store, restore_store
from eventstore.recorders.types import Conversation
from eventstore.recorders.urls import as_url, without_password
from eventstore.store import Store

__foldlog__ = "0.1.0"

__all__ = [
    "ANY_VERSION",
    "ATTRIBUTES",
    "DELETED",
    "EVENT_BYTES_MAX",
    "LOST",
    "MAY_BE_STRUCTURAL",
    "NOT_RECORDED",
    "Action",
    "AgentCondensationObservation",
    "Annotation",
    "AnyVersion",
    "Border",
    "CannotRedact",
    "Compression",
    "CondensationAction",
    "CondensationRequest",
    "CondensationRequestAction",
    "CondensationSummary",
    "Content",
    "Conversation",
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
    "FoundEvent",
    "Generation",
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
    "Moment",
    "Observation",
    "Origin",
    "ReadTransaction",
    "RecentConversation",
    "RecentConversations",
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
    "as_url",
    "beginning_with",
    "confirm",
    "find",
    "from_microseconds",
    "install_command",
    "is_structural",
    "lost_after",
    "newest_value",
    "newest_values",
    "open_store",
    "query_all",
    "recent_conversations",
    "restore_store",
    "said",
    "summary_id",
    "summary_of",
    "without_password",
]
