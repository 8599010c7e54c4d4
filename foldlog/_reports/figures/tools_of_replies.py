"""Find the calls of tools in each reply of a model. If several conversations have the same reply, a
total counts its calls of tools, and their errors, only once.
"""

from __future__ import annotations

import sys
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Mapping
from operator import itemgetter
from typing import NamedTuple

from msgspec import Struct

from foldlog.eventstore import Event, Message, Observation
from foldlog.formats.event_fields import id_of_source
from foldlog.formats.model_calls import ModelCall, is_call
from foldlog.formats.summed_calls import Calls
from foldlog.projections.conversations.labels import label

NO_NAME = "(not named)"


class ToolCalls(NamedTuple):
    """How often a reply calls a tool, and how many of these calls failed."""

    calls: int = 0
    errors: int = 0

    def plus(self, other: ToolCalls) -> ToolCalls:
        return ToolCalls(self.calls + other.calls, self.errors + other.errors)


class CountedReply(NamedTuple):
    """The usage of a reply, and its calls by tool."""

    usage: Calls
    tools: Mapping[str, ToolCalls] = {}


class _ToolCall(NamedTuple):
    """A call of a tool. ``reply`` is the id that the event itself names, or None; if ``is_found``
    is true, ``reply`` is the reply that ``assign`` has found for the call.
    """

    event_id: int
    reply: str | None
    tool: str
    is_found: bool = False


class _Noted(NamedTuple):
    """A call of a tool, or its error, as it is counted for ``tool``."""

    call: _ToolCall
    tool: str
    counted: ToolCalls


class ToolsOfReplies(Struct):
    """Counts calls of tools by reply. Note events and calls of models in any order, then call
    ``assign``. Later events may be noted after it.

    ``by_reply``  maps the id of a reply to its calls by tool
    ``waiting``   maps the id of a call without a result to the call
    ``noted``     the calls of tools, and their errors, that ``assign`` has not counted yet
    ``turns``     the messages of the user, at which turns of the agent end; after ``assign``, only
                  the last one
    ``calls``     the events that record the usage of a reply, each with the id of the reply; after
                  ``assign``, only the last one of the present turn
    ``begun``     the first call of a tool in the present turn, if the turn has no reply yet. Its
                  next reply gets all calls of tools before it
    ``early``     these calls, by tool
    """

    by_reply: dict[str, dict[str, ToolCalls]] = {}
    waiting: dict[str, _ToolCall] = {}
    noted: list[_Noted] = []
    turns: list[int] = []
    calls: list[tuple[int, str]] = []
    begun: int | None = None
    early: dict[str, ToolCalls] = {}

    def note_event(self, event: Event) -> None:
        """Note a call of a tool, its error or a message of the user. Ignore other events."""
        if is_call(event):
            call = _ToolCall(event.id, _reply_of(event), event.tool)
            self.noted.append(_Noted(call, event.tool or NO_NAME, ToolCalls(calls=1)))
            self.waiting[event.call_id or ""] = call
        elif isinstance(event, Observation):
            waiting = self.waiting.pop(event.call_id or "", None)
            if waiting is not None and label(event) == "error":
                tool = event.tool or waiting.tool or NO_NAME
                self.noted.append(_Noted(waiting, tool, ToolCalls(errors=1)))
        elif isinstance(event, Message) and event.source == "user":
            self.turns.append(event.id)

    def note_call(self, call: ModelCall) -> None:
        """Note which event records a reply. A call of a model without a reply or an event is
        ignored.
        """
        if call.reply is not None and call.event_id >= 0:
            self.calls.append((call.event_id, call.reply))

    @property
    def named_replies(self) -> set[str]:
        """The replies to which the noted calls of tools may belong."""
        if not self.noted:
            return set()
        named = {noted.call.reply for noted in self.noted if noted.call.reply is not None}
        return named | {reply for _, reply in self.calls}

    def assign(self, replies: Collection[str]) -> None:
        """Count the noted calls. A call whose event names none of ``replies`` belongs to the last
        reply before it in its turn, or to the next one.
        """
        self.calls.sort()
        if self.begun is not None and (next_reply := self._reply_near(self.begun)) is not None:
            for tool, counted in self.early.items():
                self._add(next_reply, tool, counted)
        present_turn = self.turns[-1] if self.turns else -1
        if self.begun is not None and (next_reply is not None or self.begun < present_turn):
            self.begun = None
            self.early = {}
        for noted in self.noted:
            reply = self._reply_of_call(noted.call, replies)
            if reply is not None:
                self._add(reply, noted.tool, noted.counted)
            elif noted.call.event_id > present_turn:
                self.begun = noted.call.event_id if self.begun is None else self.begun
                self.early[noted.tool] = self.early.get(noted.tool, ToolCalls()).plus(noted.counted)
        for call_id, call in self.waiting.items():
            reply = self._reply_of_call(call, replies)
            if reply is not None:
                self.waiting[call_id] = call._replace(reply=reply, is_found=True)
        self.noted = []
        self.turns = self.turns[-1:]
        self.calls = [call for call in self.calls[-1:] if call[0] > present_turn]

    def _add(self, reply: str, tool: str, counted: ToolCalls) -> None:
        tools = self.by_reply.setdefault(reply, {})
        tools[tool] = tools.get(tool, ToolCalls()).plus(counted)

    def _reply_of_call(self, call: _ToolCall, replies: Collection[str]) -> str | None:
        if call.is_found or call.reply in replies:
            return call.reply
        return self._reply_near(call.event_id)

    def _reply_near(self, event_id: int) -> str | None:
        """Return the last reply that is recorded before an event, or else the next one, if it is in
        the same turn.
        """
        turn = bisect_left(self.turns, event_id)
        start = self.turns[turn - 1] if turn else -1
        stop = self.turns[turn] if turn < len(self.turns) else event_id + sys.maxsize
        place = bisect_right(self.calls, event_id, key=itemgetter(0))
        for call, reply in (*self.calls[max(0, place - 1) : place], *self.calls[place:][:1]):
            if start < call < stop:
                return reply
        return None


def _reply_of(event: Event) -> str | None:
    reply = event.meta.get("reply") or id_of_source(event)
    return reply if isinstance(reply, str) else None
