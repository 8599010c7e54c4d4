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
Views          View (the events that the model is shown), Difference, Why, Fact, Dropped, Lifetimes
Forgetting     Condenser, Condensation, AgentModel, LLM, LLMConfig (its limits), request_condensation_tool,
               RecallTool, is_context_window_error
Effects        effect (mark a tool), Effect (what is known of a call), Lease
Results        of reading: RecentConversations, ConversationRow, FoundEvent, Hit, Stats; of
               maintenance: RedactionReceipt, Verdict, Published, Rekeyed, BackedUp, Vacuumed, Moved,
               UnequalConversation
Errors         EventStoreError is the base of all. Of the store: VersionConflict, IdempotencyConflict,
               HistoryDiverged, ConversationNotFound, ConversationErased, InvalidEvent, InvalidArgument,
               InvalidOption, UnknownEventType, CorruptEvent, StoreUnavailable, StoreUnusable,
               StoreDamaged, KeyUnavailable, CannotRedact, ConversationHasForks; LeaseTaken. Of Views:
               NoSuchEvent, NoSuchVersion. Of condensers: InvalidCondenser, NoCondensationAvailable,
               ModelCallFailed.
More           foldlog.aio (the same names for asyncio and trio), foldlog.formats (import and export,
               with their errors), foldlog.otel (traces and metrics), foldlog.replays (another condenser over a
               history), foldlog.commands (for a command of your own); the packages below: foldlog.eventstore,
               foldlog.projections, foldlog.condensers.
               help(foldlog.History) lists the methods.

    _history/ _meant.py              the face for runtimes
    aio.py _aio.py _threads.py       the same for async code; _companions.py, _maintenance.py
    _cli/ _words/ _kinds.py          the command; events in words; _documents.py: its JSON; commands.py
    _page/ _web/                     pages for a browser, and their server
    formats.py _formats/ adapters/   other agents; _archive/: their records, as they came
    _matching.py _copies.py          a text wherever a conversation has it, to redact it; files that hold it
    _prompt_changes.py               what a change of the prompt is: more, less, or a summary in the place of a part
    _observed.py _usage.py           messages of the log, and the hook of telemetry; the tokens of a call
    _values.py                       what is in a value of JSON, at any depth
    _open_files.py                   read a file that may be open in this process
    _compressed.py                   read a file that is compressed with zstd
    _programs/ _secrets.py           what coding agents call, and their settings; keys and tokens in texts
    _figures/ _kept.py               figures in the store, lists and totals of them; values kept beside conversations
    _reports/ _search.py             comparisons, audits and search; _derived.py: the rule for what follows a store;
                                     _follower.py: in a thread; _whole_file.py; _unreadable.py: read around damage
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from foldlog import (
        aio as aio,
        condensers as condensers,
        eventstore as eventstore,
        formats as formats,
        projections as projections,
    )
    from foldlog._figures.stats import Stats as Stats
    from foldlog._history.facts import Fact as Fact
    from foldlog._history.histories import ChosenCondenser as ChosenCondenser, Histories as Histories, open as open
    from foldlog._history.history import ExpectedVersion as ExpectedVersion, History as History
    from foldlog._history.lease import Lease as Lease, LeaseTaken as LeaseTaken
    from foldlog._history.recall import RecallTool as RecallTool
    from foldlog._history.replies import from_openai as from_openai
    from foldlog._history.runtimes import effect as effect
    from foldlog._maintenance import (
        BackedUp as BackedUp,
        Maintenance as Maintenance,
        Moved as Moved,
        Published as Published,
        RedactionReceipt as RedactionReceipt,
        Rekeyed as Rekeyed,
        UnequalConversation as UnequalConversation,
        Vacuumed as Vacuumed,
        Verdict as Verdict,
    )
    from foldlog._reports.dropped import Dropped as Dropped
    from foldlog._search import Hit as Hit
    from foldlog.condensers import (
        LLM as LLM,
        AgentModel as AgentModel,
        Condensation as Condensation,
        Condenser as Condenser,
        InvalidCondenser as InvalidCondenser,
        LLMConfig as LLMConfig,
        ModelCallFailed as ModelCallFailed,
        NoCondensationAvailable as NoCondensationAvailable,
        is_context_window_error as is_context_window_error,
        request_condensation_tool as request_condensation_tool,
    )
    from foldlog.eventstore import (
        ANY_VERSION as ANY_VERSION,
        DELETED as DELETED,
        Action as Action,
        Annotation as Annotation,
        CannotRedact as CannotRedact,
        Compression as Compression,
        CondensationAction as CondensationAction,
        CondensationRequest as CondensationRequest,
        CondensationSummary as CondensationSummary,
        Content as Content,
        ConversationErased as ConversationErased,
        ConversationHasForks as ConversationHasForks,
        ConversationNotFound as ConversationNotFound,
        ConversationRow as ConversationRow,
        CorruptEvent as CorruptEvent,
        Erased as Erased,
        Event as Event,
        EventStoreError as EventStoreError,
        FoundEvent as FoundEvent,
        HistoryDiverged as HistoryDiverged,
        IdempotencyConflict as IdempotencyConflict,
        InvalidArgument as InvalidArgument,
        InvalidEvent as InvalidEvent,
        InvalidOption as InvalidOption,
        KeyRing as KeyRing,
        KeyUnavailable as KeyUnavailable,
        Message as Message,
        Observation as Observation,
        RecentConversations as RecentConversations,
        Recorded as Recorded,
        Redaction as Redaction,
        Retraction as Retraction,
        Store as Store,
        StoreDamaged as StoreDamaged,
        StoreUnavailable as StoreUnavailable,
        StoreUnusable as StoreUnusable,
        SystemMessage as SystemMessage,
        UnknownEventType as UnknownEventType,
        VersionConflict as VersionConflict,
    )
    from foldlog.projections import (
        Difference as Difference,
        Effect as Effect,
        Lifetimes as Lifetimes,
        NoSuchEvent as NoSuchEvent,
        NoSuchVersion as NoSuchVersion,
        View as View,
        Why as Why,
    )

__version__ = "0.1.0"

_PACKAGES = ("aio", "condensers", "eventstore", "formats", "projections")
_NAMES = {
    "foldlog.eventstore": (
        "ANY_VERSION DELETED Action Annotation CannotRedact Compression CondensationAction "
        "CondensationRequest CondensationSummary Content ConversationErased ConversationHasForks "
        "ConversationNotFound ConversationRow CorruptEvent Erased Event EventStoreError FoundEvent "
        "HistoryDiverged IdempotencyConflict InvalidArgument InvalidEvent InvalidOption KeyRing "
        "KeyUnavailable Message Observation RecentConversations Recorded Redaction Retraction Store "
        "StoreDamaged StoreUnavailable StoreUnusable SystemMessage UnknownEventType VersionConflict"
    ),
    "foldlog.projections": "Difference Effect Lifetimes NoSuchEvent NoSuchVersion View Why",
    "foldlog._history.history": "ExpectedVersion History",
    "foldlog._history.histories": "ChosenCondenser Histories open",
    "foldlog._history.replies": "from_openai",
    "foldlog.condensers": (
        "LLM AgentModel Condensation Condenser InvalidCondenser LLMConfig ModelCallFailed "
        "NoCondensationAvailable is_context_window_error request_condensation_tool"
    ),
    "foldlog._maintenance": (
        "BackedUp Maintenance Moved Published RedactionReceipt Rekeyed UnequalConversation Vacuumed Verdict"
    ),
    "foldlog._search": "Hit",
    "foldlog._reports.dropped": "Dropped",
    "foldlog._history.facts": "Fact",
    "foldlog._figures.stats": "Stats",
    "foldlog._history.recall": "RecallTool",
    "foldlog._history.lease": "Lease LeaseTaken",
    "foldlog._history.runtimes": "effect",
}
"""The public names by where they are, which is imported when one of them is first used."""

if not TYPE_CHECKING:  # a type checker takes this function for a promise that every name exists
    _HOMES = {name: home for home, names in _NAMES.items() for name in names.split()}
    __all__ = sorted({*_HOMES} - {"open"})  # "from foldlog import *" leaves Python's own

    def __getattr__(name: str) -> object:
        if name in _PACKAGES:
            return importlib.import_module(f"foldlog.{name}")
        if name not in _HOMES:
            from difflib import get_close_matches

            similar = get_close_matches(name, _HOMES, 1) if not name.startswith("_") else []
            hint = f"; did you mean {similar[0]!r}?" if similar else ""
            raise AttributeError(f"module 'foldlog' has no attribute {name!r}{hint}", name=name)
        value = globals()[name] = getattr(importlib.import_module(_HOMES[name]), name)
        return value

    def __dir__() -> list[str]:
        return sorted({"__version__", *_HOMES, *_PACKAGES})
