"""All errors that foldlog raises, except the errors of ``foldlog.formats`` and ``foldlog.testing``.
Their base class is ``EventStoreError``.
"""

from foldlog._history.effects import NotApproved as NotApproved
from foldlog._history.lease import LeaseTaken as LeaseTaken
from foldlog._history.streamed_reply import ReplyFailed as ReplyFailed
from foldlog.condensers import (
    CondenserError as CondenserError,
    InvalidCondenser as InvalidCondenser,
    ModelCallFailed as ModelCallFailed,
    NoCondensationAvailable as NoCondensationAvailable,
    TokensUnknown as TokensUnknown,
)
from foldlog.eventstore import (
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
    StoreRefused as StoreRefused,
    StoreUnavailable as StoreUnavailable,
    StreamConflict as StreamConflict,
    StreamNotFound as StreamNotFound,
    UnknownEventType as UnknownEventType,
    VersionConflict as VersionConflict,
)
from foldlog.projections import (
    NoSuchEvent as NoSuchEvent,
    NoSuchVersion as NoSuchVersion,
)
