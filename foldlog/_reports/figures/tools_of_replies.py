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


class CountedReply(NamedTuple):
    """The usage of a reply, and its calls by tool."""

    usage: Calls
    tools: Mapping[str, ToolCalls] = {}


class _Noted(NamedTuple):
    """A call of a tool, or its error. ``reply`` is the id that the event itself names, or None."""

    event_id: int
    reply: str | None
    tool: str
    counted: ToolCalls


class ToolsOfReplies(Struct):
    """Counts calls of tools by reply. Note events and calls of models in any order, then call
    ``assign``.

    ``by_reply``  maps the id of a reply to its calls by tool
    ``waiting``   maps the id of a call without a result to the event of the call, its reply and its
                  tool
    ``noted``     the calls of tools, and their errors, that ``assign`` has not counted yet
    ``turns``     the messages of the user, at which turns of the agent end
    ``calls``     the events that record the usage of a reply, each with the id of the reply
    """

    by_reply: dict[str, dict[str, ToolCalls]] = {}
    waiting: dict[str, tuple[int, str | None, str]] = {}
    noted: list[_Noted] = []
    turns: list[int] = []
    calls: list[tuple[int, str]] = []

    def note_event(self, event: Event) -> None:
        """Note a call of a tool, its error or a message of the user. Ignore other events."""
        if is_call(event):
            reply = _reply_of(event)
            tool = event.tool or NO_NAME
            self.noted.append(_Noted(event.id, reply, tool, ToolCalls(calls=1)))
            self.waiting[event.call_id or ""] = event.id, reply, event.tool
        elif isinstance(event, Observation):
            waiting = self.waiting.pop(event.call_id or "", None)
            if waiting is not None and label(event) == "error":
                call_id, reply, called = waiting
                tool = event.tool or called or NO_NAME
                self.noted.append(_Noted(call_id, reply, tool, ToolCalls(errors=1)))
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
        """The replies that the noted calls of tools name."""
        return {noted.reply for noted in self.noted if noted.reply is not None}

    def assign(self, replies: Collection[str]) -> None:
        """Count the noted calls. A call whose event names none of ``replies`` belongs to the last
        reply before it in its turn, or to the next one.
        """
        self.calls.sort()
        for noted in self.noted:
            reply = noted.reply if noted.reply in replies else self._reply_near(noted.event_id)
            if reply is not None:
                tools = self.by_reply.setdefault(reply, {})
                calls, errors = tools.get(noted.tool, ToolCalls())
                tools[noted.tool] = ToolCalls(
                    calls + noted.counted.calls, errors + noted.counted.errors
                )
        self.noted = []
        self.turns = []
        self.calls = []

    def _reply_near(self, event_id: int) -> str | None:
        """Return the last reply that is recorded before an event, or else the next one, if it is in
        the same turn.
        """
        turn = bisect_left(self.turns, event_id)
        start = self.turns[turn - 1] if turn else -1
        stop = self.turns[turn] if turn < len(self.turns) else event_id + sys.maxsize
        place = bisect_right(self.calls, event_id, key=itemgetter(0))
        for found, reply in (*self.calls[max(0, place - 1) : place], *self.calls[place:][:1]):
            if start < found < stop:
                return reply
        return None


def _reply_of(event: Event) -> str | None:
    reply = event.meta.get("reply") or id_of_source(event)
    return reply if isinstance(reply, str) else None
