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
More           foldlog.aio (the same names for asyncio and trio), foldlog.formats (import and export); the
               packages below: foldlog.eventstore, foldlog.projections, foldlog.condensers. help(foldlog.History)
               lists the methods.

    histories.py history.py aio.py  the face: appends.py, maintenance.py, older_summaries.py, threads.py, public.py
    cli/ words/ kinds.py page/ web/ the command; events in words; pages for a browser
    formats/ importing.py adapters/ histories of other agents; recording.py, replies.py, reply_parts.py: as they come
    archives/ reports/ search/      conversations in one file; figures and audits; whole_file.py
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from foldlog.public import MODULES as _MODULES
from foldlog.public import NAMES as _NAMES

__version__ = "0.1.0"


# "as" tells type checkers what is public.
if TYPE_CHECKING:
    from foldlog.condensers import LLM as LLM
    from foldlog.condensers import Condensation as Condensation
    from foldlog.condensers import InvalidCondenser as InvalidCondenser
    from foldlog.condensers import LLMConfig as LLMConfig
    from foldlog.condensers import ModelCallFailed as ModelCallFailed
    from foldlog.condensers import NoCondensationAvailable as NoCondensationAvailable
    from foldlog.condensers import is_context_window_error as is_context_window_error
    from foldlog.condensers import request_condensation_tool as request_condensation_tool
    from foldlog.eventstore import ANY_VERSION as ANY_VERSION
    from foldlog.eventstore import DELETED as DELETED
    from foldlog.eventstore import Action as Action
    from foldlog.eventstore import Annotation as Annotation
    from foldlog.eventstore import CannotRedact as CannotRedact
    from foldlog.eventstore import CondensationAction as CondensationAction
    from foldlog.eventstore import CondensationRequest as CondensationRequest
    from foldlog.eventstore import CondensationSummary as CondensationSummary
    from foldlog.eventstore import ConversationErased as ConversationErased
    from foldlog.eventstore import ConversationNotFound as ConversationNotFound
    from foldlog.eventstore import CorruptEvent as CorruptEvent
    from foldlog.eventstore import Erased as Erased
    from foldlog.eventstore import Event as Event
    from foldlog.eventstore import EventStoreError as EventStoreError
    from foldlog.eventstore import HistoryDiverged as HistoryDiverged
    from foldlog.eventstore import IdempotencyConflict as IdempotencyConflict
    from foldlog.eventstore import InvalidArgument as InvalidArgument
    from foldlog.eventstore import InvalidEvent as InvalidEvent
    from foldlog.eventstore import InvalidOption as InvalidOption
    from foldlog.eventstore import KeyRing as KeyRing
    from foldlog.eventstore import KeyUnavailable as KeyUnavailable
    from foldlog.eventstore import Message as Message
    from foldlog.eventstore import Observation as Observation
    from foldlog.eventstore import Recorded as Recorded
    from foldlog.eventstore import Redaction as Redaction
    from foldlog.eventstore import Retraction as Retraction
    from foldlog.eventstore import StoreUnavailable as StoreUnavailable
    from foldlog.eventstore import StoreUnusable as StoreUnusable
    from foldlog.eventstore import SystemMessage as SystemMessage
    from foldlog.eventstore import UnknownEventType as UnknownEventType
    from foldlog.eventstore import VersionConflict as VersionConflict
    from foldlog.histories import Histories as Histories
    from foldlog.histories import open as open
    from foldlog.history import History as History
    from foldlog.projections import Difference as Difference
    from foldlog.projections import NoSuchEvent as NoSuchEvent
    from foldlog.projections import NoSuchVersion as NoSuchVersion
    from foldlog.projections import View as View
    from foldlog.projections import Why as Why
    from foldlog.replies import from_openai as from_openai

if not TYPE_CHECKING:  # a type checker takes this function for a promise that every name exists
    __all__ = list(_NAMES)  # "import *" of type checkers goes by "as" above

    def __getattr__(name: str) -> object:
        from foldlog.public import object_named

        value = object_named(name)
        globals()[name] = value
        return value

    def __dir__() -> list[str]:
        return sorted({*globals(), *_NAMES, *_MODULES})
