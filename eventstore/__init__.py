"""The write side: the log of what happened.

A conversation is an append-only log of events with ids 0, 1, 2, …; its version is how many there are. Nothing here
makes a View or calls a model. Of projections it knows that the records of Views hold no content: they stay after a
redaction, and forks that leave their parent and copies take them along. Of formats it knows that condensations of
OpenHands V0 name ids of their source.

    store.py opening.py                   append, read, follow; which store a URL names
    events.py codec.py conversation.py    the kinds of events, their bytes, the rules of an append
    documents/                            values beside the events; conversations by attribute
    log/ recorders/                       one conversation in one transaction; rows in a database
    sources/                              the bytes that an import read, beside a conversation
    maintenance/ integrations/            verify, copy, erase and the like; the eventsourcing library
    codec_json.py arguments.py errors.py  what JSON cannot hold; checks of arguments; the errors
    times.py                              times that come from outside
"""

if __name__ != "foldlog.eventstore":  # from the root of a checkout: each class would be there twice
    raise ImportError("there is no package 'eventstore'; import 'foldlog.eventstore'", name=__name__)

from types import ModuleType as _ModuleType

from foldlog.eventstore.arguments import check_reason as check_reason
from foldlog.eventstore.arguments import check_text as check_text
from foldlog.eventstore.arguments import check_time as check_time
from foldlog.eventstore.arguments import check_whole as check_whole
from foldlog.eventstore.codec_json import said as said
from foldlog.eventstore.conversation import ANY_VERSION as ANY_VERSION
from foldlog.eventstore.conversation import AnyVersion as AnyVersion
from foldlog.eventstore.documents.changes import DELETED as DELETED
from foldlog.eventstore.documents.changes import Documents as Documents
from foldlog.eventstore.documents.listing import RecentConversation as RecentConversation
from foldlog.eventstore.documents.listing import RecentConversations as RecentConversations
from foldlog.eventstore.documents.listing import recent_conversations as recent_conversations
from foldlog.eventstore.documents.values import newest_documents as newest_documents
from foldlog.eventstore.documents.values import newest_value as newest_value
from foldlog.eventstore.documents.values import newest_values as newest_values
from foldlog.eventstore.errors import CannotRedact as CannotRedact
from foldlog.eventstore.errors import ConversationErased as ConversationErased
from foldlog.eventstore.errors import ConversationHasForks as ConversationHasForks
from foldlog.eventstore.errors import ConversationNotFound as ConversationNotFound
from foldlog.eventstore.errors import CorruptEvent as CorruptEvent
from foldlog.eventstore.errors import DocumentsChanged as DocumentsChanged
from foldlog.eventstore.errors import EventsNotMade as EventsNotMade
from foldlog.eventstore.errors import EventStoreError as EventStoreError
from foldlog.eventstore.errors import HistoryDiverged as HistoryDiverged
from foldlog.eventstore.errors import IdempotencyConflict as IdempotencyConflict
from foldlog.eventstore.errors import InvalidArgument as InvalidArgument
from foldlog.eventstore.errors import InvalidEvent as InvalidEvent
from foldlog.eventstore.errors import InvalidOption as InvalidOption
from foldlog.eventstore.errors import KeyUnavailable as KeyUnavailable
from foldlog.eventstore.errors import StoreDamaged as StoreDamaged
from foldlog.eventstore.errors import StoreUnavailable as StoreUnavailable
from foldlog.eventstore.errors import StoreUnusable as StoreUnusable
from foldlog.eventstore.errors import UnknownEventType as UnknownEventType
from foldlog.eventstore.errors import VersionConflict as VersionConflict
from foldlog.eventstore.errors import install_command as install_command
from foldlog.eventstore.events import ATTRIBUTES as ATTRIBUTES
from foldlog.eventstore.events import MAY_BE_STRUCTURAL as MAY_BE_STRUCTURAL
from foldlog.eventstore.events import NOT_RECORDED as NOT_RECORDED
from foldlog.eventstore.events import VIEWS as VIEWS
from foldlog.eventstore.events import Action as Action
from foldlog.eventstore.events import AgentCondensationObservation as AgentCondensationObservation
from foldlog.eventstore.events import Annotation as Annotation
from foldlog.eventstore.events import CondensationAction as CondensationAction
from foldlog.eventstore.events import CondensationRequest as CondensationRequest
from foldlog.eventstore.events import CondensationRequestAction as CondensationRequestAction
from foldlog.eventstore.events import CondensationSummary as CondensationSummary
from foldlog.eventstore.events import Content as Content
from foldlog.eventstore.events import Detached as Detached
from foldlog.eventstore.events import DocumentChanges as DocumentChanges
from foldlog.eventstore.events import Entry as Entry
from foldlog.eventstore.events import Erased as Erased
from foldlog.eventstore.events import Event as Event
from foldlog.eventstore.events import Forgotten as Forgotten
from foldlog.eventstore.events import Forked as Forked
from foldlog.eventstore.events import KeyChanged as KeyChanged
from foldlog.eventstore.events import Message as Message
from foldlog.eventstore.events import Observation as Observation
from foldlog.eventstore.events import Origin as Origin
from foldlog.eventstore.events import Redacted as Redacted
from foldlog.eventstore.events import Redaction as Redaction
from foldlog.eventstore.events import RedactionCopied as RedactionCopied
from foldlog.eventstore.events import Retraction as Retraction
from foldlog.eventstore.events import Source as Source
from foldlog.eventstore.events import StoreRestored as StoreRestored
from foldlog.eventstore.events import SystemMessage as SystemMessage
from foldlog.eventstore.events import UnknownEvent as UnknownEvent
from foldlog.eventstore.events import is_structural as is_structural
from foldlog.eventstore.events import names_source_ids as names_source_ids
from foldlog.eventstore.events import summary_id as summary_id
from foldlog.eventstore.events import summary_of as summary_of
from foldlog.eventstore.log.appending import Appending as Appending
from foldlog.eventstore.log.appending import can_append_all as can_append_all
from foldlog.eventstore.log.finding import Generation as Generation
from foldlog.eventstore.log.finding import Moment as Moment
from foldlog.eventstore.log.finding import beginning_with as beginning_with
from foldlog.eventstore.log.finding import query_all as query_all
from foldlog.eventstore.log.keys import KeyRing as KeyRing
from foldlog.eventstore.log.origins import FoundEvent as FoundEvent
from foldlog.eventstore.log.origins import find as find
from foldlog.eventstore.log.reading import ReadTransaction as ReadTransaction
from foldlog.eventstore.log.redacted import can_be_redacted as can_be_redacted
from foldlog.eventstore.log.redacted import has_content as has_content
from foldlog.eventstore.log.redacted import without_content as without_content
from foldlog.eventstore.log.results import Border as Border
from foldlog.eventstore.log.results import ConversationRow as ConversationRow
from foldlog.eventstore.log.results import Ingested as Ingested
from foldlog.eventstore.log.results import Logged as Logged
from foldlog.eventstore.log.results import Recorded as Recorded
from foldlog.eventstore.log.row import from_microseconds as from_microseconds
from foldlog.eventstore.log.seal import EVENT_BYTES_MAX as EVENT_BYTES_MAX
from foldlog.eventstore.log.seal import Compression as Compression
from foldlog.eventstore.log.writing import InlineProjection as InlineProjection
from foldlog.eventstore.log.writing import WriteTransaction as WriteTransaction
from foldlog.eventstore.maintenance.status import confirm as confirm
from foldlog.eventstore.maintenance.status import follower_status as follower_status
from foldlog.eventstore.opening import open_store as open_store
from foldlog.eventstore.opening import restore_store as restore_store
from foldlog.eventstore.recorders.types import Conversation as Conversation
from foldlog.eventstore.recorders.types import Outcome as Outcome
from foldlog.eventstore.recorders.types import RecalledKey as RecalledKey
from foldlog.eventstore.recorders.types import Record as Record
from foldlog.eventstore.recorders.urls import as_url as as_url
from foldlog.eventstore.recorders.urls import parse_url as parse_url
from foldlog.eventstore.recorders.urls import without_password as without_password
from foldlog.eventstore.store import Store as Store
from foldlog.eventstore.store import prepare_append as prepare_append
from foldlog.eventstore.times import EPOCH as EPOCH
from foldlog.eventstore.times import EventTime as EventTime
from foldlog.eventstore.times import event_microseconds as event_microseconds
from foldlog.eventstore.times import event_time as event_time
from foldlog.eventstore.times import in_utc as in_utc
from foldlog.eventstore.times import parse_event_time as parse_event_time

__all__ = [name for name, value in globals().items() if name[0] != "_" and not isinstance(value, _ModuleType)]
