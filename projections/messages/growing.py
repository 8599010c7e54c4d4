"""The cached messages of a View, which grow with the View. The beginning of a prompt is rendered
once, and then stays the same byte for byte.

A View usually grows at its end. While a View grows at its end, only the messages from the model's
last reply on are rendered again. If events were forgotten or masked, the messages before the first
change stay the same.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from itertools import compress, count
from operator import ne
from typing import Any, NamedTuple

from foldlog._base.json_types import JsonObject
from foldlog.eventstore import Event
from foldlog.projections.messages.content import Part
from foldlog.projections.messages.requests import digest
from foldlog.projections.messages.turns import MessageTurn, turns

BEGINNING = "[The conversation before this point is not shown.]"


class Rendered(NamedTuple):
    """A chat message, and the indices of the events from which the message was made, in ascending
    order.
    """

    message: JsonObject
    positions: tuple[int, ...]


class _Start(NamedTuple):
    """A message of the model. Rendering can start again from this message, and leave all earlier
    messages unchanged. ``message`` is the index of the message, and ``position`` is the index of
    its first event.
    """

    message: int
    position: int


class MessageList:
    """A growing list of messages. If ``opening`` is true and the assistant speaks first, a user
    message is added at the beginning.

    When a message is complete, ``content_of`` converts its content.
    """

    def __init__(
        self, *, opening: bool = False, content_of: Callable[[Any], Any] | None = None
    ) -> None:
        self._messages: list[tuple[Part, dict[int, None]]] = []
        self._opening = opening
        self._content_of = content_of
        self._start: int | None = None
        self.starts: list[_Start] = []

    def begin_reply(self, turn: MessageTurn) -> None:
        """Call this before the messages of a reply: rendering can start again from the first of
        them.
        """
        self._start = None if self._opening else turn.start

    def add(self, message: Part, positions: tuple[int, ...]) -> None:
        """Add a message that was made from the events at ``positions``."""
        role = message.get("role")
        if self._opening and role != "system":
            self._opening = False
            if role == "assistant":
                self._messages.append(
                    ({"role": "user", "content": BEGINNING}, dict.fromkeys(positions[:1]))
                )
        if self._start is not None and role != "user":
            self.starts.append(_Start(len(self._messages), self._start))
        self._start = None
        self._messages.append((message, dict.fromkeys(positions)))

    def say(self, role: str, parts: list[Part], positions: tuple[int, ...]) -> None:
        """Add a message, unless ``parts`` is empty. If the last message has the same role,
        ``parts`` are added to it. The caller must not change ``parts`` afterwards.
        """
        if not parts:
            return
        message, former_positions = self._messages[-1] if self._messages else ({}, {})
        if message.get("role") != role:
            return self.add({"role": role, "content": parts}, positions)
        content: list[Part] = message["content"]
        begins_plain = not _is_thinking(content[0])
        content += parts
        if begins_plain:  # A server refuses thinking after other blocks.
            content.sort(key=lambda part: not _is_thinking(part))
        former_positions.update(dict.fromkeys(positions))
        self._start = None

    def finish(self) -> list[Rendered]:
        """Return the messages. No message may be added after this call."""
        if self._content_of is not None:
            for message, _ in self._messages:
                message["content"] = self._content_of(message["content"])
        return [Rendered(message, tuple(positions)) for message, positions in self._messages]


def _is_thinking(part: Part) -> bool:
    kind: str = part["type"]
    return kind.endswith("thinking")


class Rendering:
    """The messages of a View in one dialect, before the marks for a prompt cache are set. Only one
    thread at a time may use a ``Rendering``.

    ``render`` converts turns into messages. Its second argument is True if the turns open the
    conversation.
    """

    def __init__(self, render: Callable[[Iterable[MessageTurn], bool], MessageList]) -> None:
        self._render = render
        self.messages: list[Rendered] = []
        """The next View shares ``messages``, so give only copies to callers."""
        self._events: Sequence[Event] = ()
        self._fit: Sequence[int] = ()
        self._starts: list[_Start] = []
        self._call_ids: dict[str, int] = {}
        self._digests: list[bytes] = []
        """The digests of ``messages``, each with all messages before it, as far as they are known.
        """

    def follow(self, events: Sequence[Event], fit: Sequence[int]) -> None:
        """Update the messages. ``fit`` contains the indices of the events to render, in ascending
        order.

        Cost: comparing the events with the events of the last call. At the first event that
        differs, the method goes back to the model's reply before it, and renders the messages from
        there on.
        """
        if events is self._events:  # then ``fit`` is the same too
            return
        place = _count_equal(self._fit, fit)
        # The events before this index did not change, and the same of them are rendered.
        same = min(
            (
                _count_equal(self._events, events),
                *self._fit[place : place + 1],
                *fit[place : place + 1],
            )
        )
        while not self._go_on(events, fit, same):
            pass
        self._events = events
        self._fit = fit

    def digest(self) -> bytes:
        """Return a hash of all messages. Cost: hashing the messages since the last call."""
        before = self._digests[-1] if self._digests else b""
        for message, _ in self.messages[len(self._digests) :]:
            before = digest(message, before)
            self._digests.append(before)
        return before

    def _go_on(self, events: Sequence[Event], fit: Sequence[int], same: int) -> bool:
        """Go back to the last start at or before the index ``same``, and render the messages from
        there on. Return False if the reply at this start is empty now, and so has no message: then
        the caller goes back further.
        """
        while self._starts and self._starts[-1].position > same:
            self._starts.pop()
        start = self._starts.pop() if self._starts else _Start(0, 0)
        del self.messages[start.message :], self._digests[start.message :]
        while self._call_ids and next(reversed(self._call_ids.values())) >= start.position:
            self._call_ids.popitem()
        rest = turns(events, fit[bisect_left(fit, start.position) :], self._call_ids)
        builder = self._render(rest, not start.message)
        if start.message and builder.starts[:1] != [_Start(0, start.position)]:
            return False
        self.messages += builder.finish()
        self._starts += (
            _Start(start.message + reply.message, reply.position) for reply in builder.starts
        )
        return True


def _count_equal(former: Sequence[Any], others: Sequence[Any]) -> int:
    """Return how many values at the beginning of both sequences are equal."""
    length = len(former)
    if former == others[:length]:
        return length
    return next(compress(count(), map(ne, former, others)), min(length, len(others)))
