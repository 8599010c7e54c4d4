"""The write side of foldlog: the log of events.

A conversation is an append-only log of events with ids 0, 1, 2, …. A conversation's version is its
number of events. No module of ``foldlog.eventstore`` makes a View or calls a model. A redaction
does not delete the stored records of Views, because they contain ids and no texts.

    store.py         append, read and follow events
    opening.py       open the store that a URL names
    events.py        the kinds of events
    codec.py         convert events to bytes and back
    codec_json.py    store values that JSON cannot hold
    conversation.py  the rules of an append
    documents/       named values beside the events, and lists of conversations
    log/             read and write one conversation in one transaction
    recorders/       read and write the rows of a database
    sources/         the files from which conversations were imported
    maintenance/     verify, copy, erase and similar tasks
    integrations/    the adapter for the ``eventsourcing`` library
    arguments.py     check the arguments of callers
    times.py         convert times of callers, sources and other programs
    errors.py        the errors of the store
    inside.py        the names for programs that extend foldlog
"""

if __name__ != "foldlog.eventstore":  # two imports would make each class twice
    raise ImportError(
        "there is no package 'eventstore'; import 'foldlog.eventstore'", name=__name__
    )

from types import ModuleType as _ModuleType

from foldlog.eventstore.conversation import ANY_VERSION as ANY_VERSION, AnyVersion as AnyVersion
from foldlog.eventstore.documents.changes import DELETED as DELETED, Documents as Documents
from foldlog.eventstore.documents.listing import (
    RecentConversation as RecentConversation,
    RecentConversations as RecentConversations,
    recent_conversations as recent_conversations,
)
from foldlog.eventstore.errors import (
    CannotRedact as CannotRedact,
    ConversationErased as ConversationErased,
    ConversationHasForks as ConversationHasForks,
    ConversationNotFound as ConversationNotFound,
    CorruptEvent as CorruptEvent,
    DocumentsChanged as DocumentsChanged,
    EventsNotMade as EventsNotMade,
    EventStoreError as EventStoreError,
    HistoryDiverged as HistoryDiverged,
    IdempotencyConflict as IdempotencyConflict,
    InvalidArgument as InvalidArgument,
    InvalidEvent as InvalidEvent,
    InvalidOption as InvalidOption,
    KeyUnavailable as KeyUnavailable,
    StoreDamaged as StoreDamaged,
    StoreUnavailable as StoreUnavailable,
    StoreUnusable as StoreUnusable,
    UnknownEventType as UnknownEventType,
    VersionConflict as VersionConflict,
)
from foldlog.eventstore.events import (
    ATTRIBUTES as ATTRIBUTES,
    NOT_RECORDED as NOT_RECORDED,
    Action as Action,
    AgentCondensationObservation as AgentCondensationObservation,
    Annotation as Annotation,
    CondensationAction as CondensationAction,
    CondensationRequest as CondensationRequest,
    CondensationRequestAction as CondensationRequestAction,
    CondensationSummary as CondensationSummary,
    Content as Content,
    Detached as Detached,
    DocumentChanges as DocumentChanges,
    Entry as Entry,
    Erased as Erased,
    Event as Event,
    Forked as Forked,
    KeyChanged as KeyChanged,
    Message as Message,
    Observation as Observation,
    Origin as Origin,
    Redacted as Redacted,
    Redaction as Redaction,
    RedactionCopied as RedactionCopied,
    Retraction as Retraction,
    Source as Source,
    StoreRestored as StoreRestored,
    SystemMessage as SystemMessage,
    UnknownEvent as UnknownEvent,
    summary_id as summary_id,
    summary_of as summary_of,
)
from foldlog.eventstore.log.keys import KeyRing as KeyRing
from foldlog.eventstore.log.origins import FoundEvent as FoundEvent, find as find
from foldlog.eventstore.log.reading import ReadTransaction as ReadTransaction
from foldlog.eventstore.log.results import (
    Border as Border,
    ConversationRow as ConversationRow,
    Ingested as Ingested,
    Logged as Logged,
    Recorded as Recorded,
)
from foldlog.eventstore.log.seal import (
    EVENT_BYTES_MAX as EVENT_BYTES_MAX,
    Compression as Compression,
)
from foldlog.eventstore.maintenance.status import (
    confirm as confirm,
    follower_status as follower_status,
)
from foldlog.eventstore.opening import open_store as open_store, restore_store as restore_store
from foldlog.eventstore.store import Store as Store

__all__ = [
    name
    for name, value in globals().items()
    if name[0] != "_" and not isinstance(value, _ModuleType)
]
