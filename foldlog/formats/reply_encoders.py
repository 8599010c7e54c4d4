"""Write events in formats of messages: the calls of a reply together, then the results of the
calls.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any

from foldlog.eventstore import (
    Action,
    CondensationSummary,
    Content,
    Event,
    Message,
    Observation,
    SystemMessage,
)
from foldlog.formats.event_fields import NOT_WRITTEN, parts_in
from foldlog.formats.format import RecordEncoder
from foldlog.formats.record import Fields
from foldlog.projections.units import WaitingCalls

HELD_MAX = 32
"""The largest number of groups that are held back while a call waits for its result."""


class RepliesEncoder(RecordEncoder):
    """Writes the calls of a reply together, and then the results of these calls, because servers
    refuse any other order. While calls wait for results, the encoder holds back all later records.
    Events that change a View, and bookkeeping, have no record.
    """

    def __init__(self) -> None:
        self._held = deque[list[Any]]()
        """Groups of events that are not written yet. A group is a message, the calls of a reply, or
        results without calls.
        """
        self._reply: list[Any] = []
        """The calls of the newest reply. The list is empty after the model sent another message."""
        self._waiting = WaitingCalls()
        self._results: dict[int, Observation] = {}

    @abstractmethod
    def records_of(self, events: Sequence[Any]) -> Sequence[Any]:
        """Return the records of one group, or of results."""

    def records_of_calls(
        self, calls: Sequence[Action], results: Sequence[Observation | None]
    ) -> Sequence[Any]:
        """Return the records of the calls of a reply, and of their results."""
        known_results = [result for result in results if result is not None]
        if not known_results:
            return [*self.records_of(calls)]
        return [*self.records_of(calls), *self.records_of_results(known_results)]

    def records_of_results(self, results: Sequence[Observation]) -> Sequence[Any]:
        """Return the records of the results of a reply's calls."""
        return [record for result in results for record in self.records_of([result])]

    def records(self, event: Event) -> Sequence[Any] | None:
        match event:
            case Action():
                return self._call(event)
            case Observation():
                self._answer(event)
            case Message() | SystemMessage() | CondensationSummary():
                return self.say(
                    event, ends_reply=isinstance(event, Message) and event.source == "agent"
                )
        return None if isinstance(event, NOT_WRITTEN) else ()

    def say(self, event: Event, *, ends_reply: bool) -> Sequence[Any]:
        """Hold back a message behind calls that wait, and return the records that are complete."""
        if ends_reply:
            self._reply = []
        self._held.append([event])
        return self.complete()

    def _call(self, call: Action) -> Sequence[Any]:
        """Add a call to its reply, and return the records that are complete."""
        complete: Sequence[Any] = ()
        response = self._waiting.response_id
        is_of_reply = response is not None and call.response_id == response
        if not self._reply or not is_of_reply:
            self._reply = []
            complete = self.complete()
        if not self._held:  # all earlier calls are written, so no result can answer them
            self._waiting = WaitingCalls()
        if self._waiting.add(call, call.id) or not self._reply:
            self._reply = []
            self._held.append(self._reply)
        self._reply.append(call)
        return complete

    def _answer(self, result: Observation) -> None:
        """Note the result of a call, or hold back a result without a call."""
        call_id = self._waiting.take(result)
        if call_id is not None:
            self._results[call_id] = result
        elif self._held and isinstance(self._held[-1][0], Observation):
            self._held[-1].append(result)
        else:
            self._held.append([result])

    def end(self) -> Sequence[Any]:
        return self.complete(0)

    def complete(self, most: int = HELD_MAX) -> Sequence[Any]:
        """Return the records of the oldest groups, up to the first group that waits for a result.
        As long as more than ``most`` groups are held back, groups that wait are written too.
        """
        held = self._held
        waiting = self._waiting.waiting
        records = list[Any]()
        while held:
            events = held[0]
            is_open = events is self._reply or (
                waiting and any(event.id in waiting for event in events)
            )
            if is_open and len(held) <= most:
                break
            held.popleft()
            if events is self._reply:
                self._reply = []
            match events[0]:
                case Action():
                    records += self.records_of_calls(
                        events, [self._results.pop(call.id, None) for call in events]
                    )
                    for call in events:
                        waiting.pop(call.id, None)
                case Observation():
                    records += self.records_of_results(events)
                case _:
                    records += self.records_of(events)
        return records


def thoughts_before(calls: Sequence[Action]) -> Content:
    """Return what the model said before the calls of a reply."""
    return join_contents(call.thought for call in calls)


def join_contents(contents: Iterable[Content]) -> Content:
    """Return contents as one: texts with an empty line between, otherwise all parts."""
    non_empty = [content for content in contents if content]
    texts = [content for content in non_empty if isinstance(content, str)]
    if len(texts) == len(non_empty):
        return "\n\n".join(texts)
    if len(non_empty) == 1:
        return non_empty[0]
    return tuple(part for content in non_empty for part in parts_in(content))


def thinking_before(calls: Sequence[Action]) -> tuple[Fields, ...]:
    """Return the blocks of thinking of the calls of a reply."""
    return tuple(block for call in calls for block in call.thinking)
