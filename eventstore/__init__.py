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

from foldlog.eventstore.codec_json import said
from foldlog.eventstore.conversation import ANY_VERSION, AnyVersion
from foldlog.eventstore.documents.changes import DELETED, Documents
from foldlog.eventstore.documents.listing import RecentConversation, RecentConversations, recent_conversations
from foldlog.eventstore.documents.values import newest_value, newest_values
from foldlog.eventstore.errors import (
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
from foldlog.eventstore.events import (
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
    Detached,
    DocumentChanges,
    Entry,
    Erased,
    Event,
    Forgotten,
    Forked,
    KeyChanged,
    Message,
    Observation,
    Origin,
    Redacted,
    Redaction,
    RedactionCopied,
    Retraction,
    Source,
    StoreRestored,
    SystemMessage,
    UnknownEvent,
    is_structural,
    summary_id,
    summary_of,
)
from foldlog.eventstore.log.appending import Appending, can_append_all
from foldlog.eventstore.log.finding import Generation, Moment, beginning_with, query_all
from foldlog.eventstore.log.keys import KeyRing
from foldlog.eventstore.log.origins import FoundEvent, find
from foldlog.eventstore.log.reading import ReadTransaction
from foldlog.eventstore.log.results import Border, ConversationRow, Ingested, Logged, Recorded
from foldlog.eventstore.log.row import from_microseconds
from foldlog.eventstore.log.seal import EVENT_BYTES_MAX, Compression
from foldlog.eventstore.log.writing import InlineProjection, WriteTransaction
from foldlog.eventstore.maintenance.status import confirm
from foldlog.eventstore.opening import open_store, restore_store
from foldlog.eventstore.recorders.types import Conversation, Outcome, RecalledKey, Record
from foldlog.eventstore.recorders.urls import as_url, without_password
from foldlog.eventstore.store import Store, prepare_append

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
    "Appending",
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
    "Detached",
    "DocumentChanges",
    "Documents",
    "DocumentsChanged",
    "Entry",
    "Erased",
    "Event",
    "EventStoreError",
    "Forgotten",
    "Forked",
    "FoundEvent",
    "Generation",
    "HistoryDiverged",
    "IdempotencyConflict",
    "Ingested",
    "InlineProjection",
    "InvalidArgument",
    "InvalidEvent",
    "InvalidOption",
    "KeyChanged",
    "KeyRing",
    "KeyUnavailable",
    "Logged",
    "Message",
    "Moment",
    "Observation",
    "Origin",
    "Outcome",
    "ReadTransaction",
    "RecalledKey",
    "RecentConversation",
    "RecentConversations",
    "Record",
    "Recorded",
    "Redacted",
    "Redaction",
    "RedactionCopied",
    "Retraction",
    "Source",
    "Store",
    "StoreRestored",
    "StoreUnavailable",
    "StoreUnusable",
    "SystemMessage",
    "UnknownEvent",
    "UnknownEventType",
    "VersionConflict",
    "WriteTransaction",
    "as_url",
    "beginning_with",
    "can_append_all",
    "confirm",
    "find",
    "from_microseconds",
    "install_command",
    "is_structural",
    "newest_value",
    "newest_values",
    "open_store",
    "prepare_append",
    "query_all",
    "recent_conversations",
    "restore_store",
    "said",
    "summary_id",
    "summary_of",
    "without_password",
]
