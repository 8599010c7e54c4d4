"""The context of earlier lines, for decoding and encoding: a line repeats most of it."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from foldlog.eventstore import Action, Event
from foldlog.formats.claude_code.blocks import THINKING, kind_of
from foldlog.formats.key_order import KeyOrder
from foldlog.formats.recent import Recent

ENVELOPE = ("isSidechain", "userType", "entrypoint", "cwd", "sessionId", "version", "gitBranch", "slug", "agentId")
"""Fields that each line repeats."""

_CALLS_MAX = 10_000
"""A call waits for its result during this many later calls; after that the two are not paired."""
_RESPONSES_MAX = 100
"""Side chains run at the same time, so that the lines of several responses alternate."""


class OpenCall(NamedTuple):
    """A tool's use that waits for its result: its event, its arguments, and the id of its line."""

    event_id: int
    tool: str
    arguments: dict[str, Any] | str | None
    line: Any


class Response(NamedTuple):
    """The fields that the lines of one model response share, and its thinking since its last action."""

    message: dict[str, Any]
    request_id: Any
    thinking: tuple[dict[str, Any], ...]


_NO_RESPONSE = Response({}, None, ())


class LinesBefore:
    """``last_line`` is the id of the last line that had an id, ``envelope`` has the repeated fields of that line.

    ``names_caller``: whether the last result named the line of its call, as newer releases do. ``pending`` is the
    thinking of a response in lines that are otherwise not remembered; only decoding has it.
    """

    def __init__(self, next_id: int = 0, pending: Mapping[str, tuple[dict[str, Any], ...]] | None = None) -> None:
        self.pending = pending or {}
        self.prompt: Any = None
        self.key_order = KeyOrder()
        self.next_id = next_id
        self.last_line: Any = None
        self.envelope: dict[str, Any] = {}
        self.names_caller = False
        self._calls: Recent[str, deque[OpenCall]] = Recent(_CALLS_MAX)
        self._responses: Recent[str, Response] = Recent(_RESPONSES_MAX)
        self._last_response = _NO_RESPONSE

    def call(self, call_id: str | None) -> OpenCall | None:
        """Return the call that the next result with this id answers: the oldest open one."""
        waiting = None if call_id is None else self._calls.get(call_id)
        return waiting[0] if waiting else None

    def response(self, response_id: str | None) -> Response:
        """Return the shared fields of the lines of a response; for a new response, those of the last one without its
        thinking.
        """
        known = None if response_id is None else self._responses.get(response_id)
        return known or self._last_response._replace(thinking=())

    def thinking(self, response_id: str | None) -> tuple[dict[str, Any], ...]:
        """Return the thinking of a response since its last action, also that before these lines."""
        known = self.response(response_id).thinking
        return known or (self.pending.get(response_id, ()) if response_id is not None else ())

    @property
    def last_response(self) -> Response:
        """The response of the last line of a model."""
        return self._last_response

    def renewed(self, next_id: int) -> LinesBefore:
        """Return a context that begins at ``next_id`` and knows only the last thinking of the newest responses."""
        thinking = {name: response.thinking for name, response in self._responses.items() if response.thinking}
        pending = {**self.pending, **thinking} if len(self.pending) < _RESPONSES_MAX else thinking
        renewed = LinesBefore(next_id, pending)
        renewed.prompt = self.prompt
        return renewed

    def add(self, events: Sequence[Event], record: dict[str, Any]) -> None:
        """Remember ``record``, of which ``events`` were made."""
        line = record.get("uuid")
        if line is not None:
            self.last_line = line
            self.envelope = {key: record[key] for key in ENVELOPE if key in record}
        for event in events:
            if type(event) is Action and event.call_id is not None:
                waiting = self._calls.pop(event.call_id) or deque(maxlen=_CALLS_MAX)
                waiting.append(OpenCall(event.id, event.tool, event.arguments, line))
                self._calls[event.call_id] = waiting
        message = record.get("message")
        if type(message) is dict:
            if record.get("type") == "assistant":
                self._add_response(message, record.get("requestId"))
            elif record.get("type") == "user":
                self._add_results(message, record)
        self.next_id += len(events)

    def _add_results(self, message: dict[str, Any], record: dict[str, Any]) -> None:
        content = message.get("content")
        for block in content if type(content) is list else ():
            if kind_of(block) == "tool_result":
                self.names_caller = "sourceToolAssistantUUID" in record
                call_id = block.get("tool_use_id")
                waiting = self._calls.pop(call_id) if type(call_id) is str else None
                if waiting is not None and len(waiting) > 1:
                    waiting.popleft()
                    self._calls[call_id] = waiting

    def _add_response(self, message: dict[str, Any], request_id: Any) -> None:
        response_id, content = message.get("id"), message.get("content")
        known = self._responses.get(response_id) if type(response_id) is str else None
        thinking = list(known.thinking) if known is not None else []
        for block in content if type(content) is list else ():
            kind = kind_of(block)
            if kind in THINKING:
                thinking.append(block)
            elif kind == "tool_use":
                thinking.clear()
        shared = {key: value for key, value in message.items() if key != "content"}
        self._last_response = Response(shared, request_id, tuple(thinking))
        if type(response_id) is str:
            self._responses[response_id] = self._last_response
