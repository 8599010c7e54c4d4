"""An event-sourced store behind AI-agent runtimes: agents forget, their history does not.

    import foldlog
    from foldlog import Message

    with foldlog.open("history.db", condenser="digest") as histories:
        history = histories["c1"]
        history.append(Message(source="user", content="hi"))
        messages = history.prepare().to_messages()          # what the model is to be shown
        reply = client.chat.completions.create(model=..., messages=messages, tools=...)
        history.append_reply(reply)                         # a message, or an action for each tool call
        for call in history.open_calls:
            history.append_tool_result(call, run(call.tool, call.arguments))

Open           open -> Histories -> History; KeyRing (encryption)
Events         Message, Action, Observation, SystemMessage, Annotation, Retraction, Redaction, Erased,
               CondensationAction, CondensationRequest, CondensationSummary; Event is any of them, Recorded one
               with its position; from_openai makes events of a model's reply. DELETED removes a document
Views          View (the events that the model is shown), Difference, Why
Forgetting     Condensation, LLM, LLMConfig (its limits), request_condensation_tool, is_context_window_error
Errors         EventStoreError is the base of all. Of the store: VersionConflict, IdempotencyConflict,
               HistoryDiverged, ConversationNotFound, ConversationErased, InvalidEvent, InvalidArgument,
               InvalidOption, UnknownEventType, CorruptEvent, StoreUnavailable, StoreUnusable,
               KeyUnavailable, CannotRedact. Of Views: NoSuchEvent, NoSuchVersion. Of condensers: InvalidCondenser,
               NoCondensationAvailable, ModelCallFailed
More           foldlog.aio (the same names for asyncio and trio), foldlog.formats (import and export); the packages
               below: eventstore, projections, condensers. help(foldlog.History) lists the methods.

    histories.py history.py aio.py  the face: appends.py, maintenance.py, older_summaries.py, threads.py, public.py
    cli/ words/ kinds.py page/ web/ the command; events in words; pages for a browser
    formats/ importing.py adapters/ histories of other agents; recording.py, replies.py, reply_parts.py: as they come
    archives/ reports/ search/      conversations in one file; figures and audits; floors.py, whole_file.py
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from foldlog.floors import check_floors as _check_floors
from foldlog.public import MODULES as _MODULES
from foldlog.public import NAMES as _NAMES

__version__ = "0.1.0"

_check_floors(__version__)

# "as" tells type checkers what is public.
if TYPE_CHECKING:
    from condensers import LLM as LLM
    from condensers import Condensation as Condensation
    from condensers import InvalidCondenser as InvalidCondenser
    from condensers import LLMConfig as LLMConfig
    from condensers import ModelCallFailed as ModelCallFailed
    from condensers import NoCondensationAvailable as NoCondensationAvailable
    from condensers import is_context_window_error as is_context_window_error
    from condensers import request_condensation_tool as request_condensation_tool
    from eventstore import ANY_VERSION as ANY_VERSION
    from eventstore import DELETED as DELETED
    from eventstore import Action as Action
    from eventstore import Annotation as Annotation
    from eventstore import CannotRedact as CannotRedact
    from eventstore import CondensationAction as CondensationAction
    from eventstore import CondensationRequest as CondensationRequest
    from eventstore import CondensationSummary as CondensationSummary
    from eventstore import ConversationErased as ConversationErased
    from eventstore import ConversationNotFound as ConversationNotFound
    from eventstore import CorruptEvent as CorruptEvent
    from eventstore import Erased as Erased
    from eventstore import Event as Event
    from eventstore import EventStoreError as EventStoreError
    from eventstore import HistoryDiverged as HistoryDiverged
    from eventstore import IdempotencyConflict as IdempotencyConflict
    from eventstore import InvalidArgument as InvalidArgument
    from eventstore import InvalidEvent as InvalidEvent
    from eventstore import InvalidOption as InvalidOption
    from eventstore import KeyRing as KeyRing
    from eventstore import KeyUnavailable as KeyUnavailable
    from eventstore import Message as Message
    from eventstore import Observation as Observation
    from eventstore import Recorded as Recorded
    from eventstore import Redaction as Redaction
    from eventstore import Retraction as Retraction
    from eventstore import StoreUnavailable as StoreUnavailable
    from eventstore import StoreUnusable as StoreUnusable
    from eventstore import SystemMessage as SystemMessage
    from eventstore import UnknownEventType as UnknownEventType
    from eventstore import VersionConflict as VersionConflict
    from foldlog.histories import Histories as Histories
    from foldlog.histories import open as open
    from foldlog.history import History as History
    from foldlog.replies import from_openai as from_openai
    from projections import Difference as Difference
    from projections import NoSuchEvent as NoSuchEvent
    from projections import NoSuchVersion as NoSuchVersion
    from projections import View as View
    from projections import Why as Why

if not TYPE_CHECKING:  # a type checker takes this function for a promise that every name exists
    __all__ = list(_NAMES)  # "import *" of type checkers goes by "as" above

    def __getattr__(name: str) -> object:
        from foldlog.public import object_named

        value = object_named(name)
        globals()[name] = value
        return value

    def __dir__() -> list[str]:
        return sorted({*globals(), *_NAMES, *_MODULES})
