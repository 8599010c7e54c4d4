"""An event-sourced store behind AI-agent runtimes: agents forget, their history does not.

    import foldlog
    from foldlog import Message

    with foldlog.open("history.db", condenser="digest") as histories:
        history = histories["c1"]
        history.append(Message(source="user", content="hi"))
        messages = history.prepare().to_messages()          # what the model is to be shown
        reply = client.chat.completions.create(model=..., messages=messages, tools=...)
        history.append_reply(reply)                         # a message, or an action for each tool call
        for call in history.open_calls():
            history.append_tool_result(call, run(call.tool, call.arguments))

Open           open -> Histories -> History; Maintenance; KeyRing (encryption), Compression, ChosenCondenser, Store;
               Lease (which worker drives a history)
Events         Message, Action, Observation, SystemMessage, Annotation, Retraction, Redaction, Erased,
               CondensationAction, CondensationRequest, CondensationSummary; Event is any of them, Recorded one
               with its position; from_openai makes events of a model's reply. Content is text or parts of a message.
               ExpectedVersion is a version or ANY_VERSION; DELETED removes a document
Views          View (the events that the model is shown), Difference, Why, Lifetimes
Forgetting     Condenser, Condensation, AgentModel, LLM, LLMConfig (its limits), request_condensation_tool,
               RecallTool, is_context_window_error
Results        of reading: RecentConversations, ConversationRow, FoundEvent, Hit, Stats; of
               maintenance: RedactionReceipt, Verdict, Published, Rekeyed, BackedUp, Vacuumed, Moved,
               UnequalConversation
Errors         EventStoreError is the base of all. Of the store: VersionConflict, IdempotencyConflict,
               HistoryDiverged, ConversationNotFound, ConversationErased, InvalidEvent, InvalidArgument,
               InvalidOption, UnknownEventType, CorruptEvent, StoreUnavailable, StoreUnusable,
               KeyUnavailable, CannotRedact, ConversationHasForks; LeaseTaken. Of Views: NoSuchEvent, NoSuchVersion.
               Of condensers: InvalidCondenser, NoCondensationAvailable, ModelCallFailed. Of searches: SearchRefused
More           foldlog.aio (the same names for asyncio and trio), foldlog.formats (import and export,
               with their errors), foldlog.otel (traces and metrics), foldlog.replays (another condenser over a
               history); the packages below: foldlog.eventstore, foldlog.projections, foldlog.condensers.
               help(foldlog.History) lists the methods.

    _histories.py _history.py aio.py the face: _aio.py, _maintenance.py, _threads.py
    _cli/ _words/ _kinds.py          the command; events in words; _documents.py: its JSON
    _page/ _web/                     pages for a browser, and their server
    formats.py _formats/ adapters/   other agents: _importing.py, _seen_files.py, _recording.py, _replies.py
    _matching.py                     a text wherever a conversation has it, to redact it
    _observed.py                     messages of the log, and the hook of telemetry
    _lease.py _recall.py             one worker at a time; the tool with which an agent reads what was forgotten
    _reports/ _search/               figures, audits and search: what follows a store (_follower.py); _whole_file.py
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from foldlog import aio as aio
    from foldlog import condensers as condensers
    from foldlog import eventstore as eventstore
    from foldlog import formats as formats
    from foldlog import projections as projections
    from foldlog._histories import ChosenCondenser, Histories, open
    from foldlog._history import ExpectedVersion, History
    from foldlog._lease import Lease, LeaseTaken
    from foldlog._maintenance import (
        BackedUp,
        Maintenance,
        Moved,
        Published,
        RedactionReceipt,
        Rekeyed,
        UnequalConversation,
        Vacuumed,
        Verdict,
    )
    from foldlog._recall import RecallTool
    from foldlog._replies import from_openai
    from foldlog._reports.stats import Stats
    from foldlog._search import Hit, SearchRefused
    from foldlog.condensers import (
        LLM,
        AgentModel,
        Condensation,
        Condenser,
        InvalidCondenser,
        LLMConfig,
        ModelCallFailed,
        NoCondensationAvailable,
        is_context_window_error,
        request_condensation_tool,
    )
    from foldlog.eventstore import (
        ANY_VERSION,
        DELETED,
        Action,
        Annotation,
        CannotRedact,
        Compression,
        CondensationAction,
        CondensationRequest,
        CondensationSummary,
        Content,
        ConversationErased,
        ConversationHasForks,
        ConversationNotFound,
        ConversationRow,
        CorruptEvent,
        Erased,
        Event,
        EventStoreError,
        FoundEvent,
        HistoryDiverged,
        IdempotencyConflict,
        InvalidArgument,
        InvalidEvent,
        InvalidOption,
        KeyRing,
        KeyUnavailable,
        Message,
        Observation,
        RecentConversations,
        Recorded,
        Redaction,
        Retraction,
        Store,
        StoreUnavailable,
        StoreUnusable,
        SystemMessage,
        UnknownEventType,
        VersionConflict,
    )
    from foldlog.projections import Difference, Lifetimes, NoSuchEvent, NoSuchVersion, View, Why

__all__ = [
    "ANY_VERSION",
    "DELETED",
    "LLM",
    "Action",
    "AgentModel",
    "Annotation",
    "BackedUp",
    "CannotRedact",
    "ChosenCondenser",
    "Compression",
    "Condensation",
    "CondensationAction",
    "CondensationRequest",
    "CondensationSummary",
    "Condenser",
    "Content",
    "ConversationErased",
    "ConversationHasForks",
    "ConversationNotFound",
    "ConversationRow",
    "CorruptEvent",
    "Difference",
    "Erased",
    "Event",
    "EventStoreError",
    "ExpectedVersion",
    "FoundEvent",
    "Histories",
    "History",
    "HistoryDiverged",
    "Hit",
    "IdempotencyConflict",
    "InvalidArgument",
    "InvalidCondenser",
    "InvalidEvent",
    "InvalidOption",
    "KeyRing",
    "KeyUnavailable",
    "LLMConfig",
    "Lease",
    "LeaseTaken",
    "Lifetimes",
    "Maintenance",
    "Message",
    "ModelCallFailed",
    "Moved",
    "NoCondensationAvailable",
    "NoSuchEvent",
    "NoSuchVersion",
    "Observation",
    "Published",
    "RecallTool",
    "RecentConversations",
    "Recorded",
    "Redaction",
    "RedactionReceipt",
    "Rekeyed",
    "Retraction",
    "SearchRefused",
    "Stats",
    "Store",
    "StoreUnavailable",
    "StoreUnusable",
    "SystemMessage",
    "UnequalConversation",
    "UnknownEventType",
    "Vacuumed",
    "Verdict",
    "VersionConflict",
    "View",
    "Why",
    "from_openai",
    "is_context_window_error",
    "open",
    "request_condensation_tool",
]

__version__ = "0.1.0"

_PACKAGES = ("aio", "condensers", "eventstore", "formats", "projections")
_HOMES = (
    *("foldlog.eventstore", "foldlog.projections", "foldlog._history", "foldlog._histories", "foldlog._replies"),
    *("foldlog.condensers", "foldlog._maintenance", "foldlog._search", "foldlog._reports.stats"),
    *("foldlog._recall", "foldlog._lease"),
)
"""Where the public names are looked for, in this order, when they are first used: what costs little comes first."""

if not TYPE_CHECKING:  # a type checker takes this function for a promise that every name exists

    def __getattr__(name: str) -> object:
        if name in _PACKAGES:
            return importlib.import_module(f"foldlog.{name}")
        homes = map(importlib.import_module, _HOMES if name in __all__ else ())
        home = next((home for home in homes if hasattr(home, name)), None)
        if home is None:
            from difflib import get_close_matches

            similar = get_close_matches(name, __all__, 1) if not name.startswith("_") else []
            hint = f"; did you mean {similar[0]!r}?" if similar else ""
            raise AttributeError(f"module 'foldlog' has no attribute {name!r}{hint}", name=name)
        value = globals()[name] = getattr(home, name)
        return value

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__, *_PACKAGES})
