"""Write events for formats of messages: the calls of a reply together, and their results after them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import msgspec

from foldlog._formats.format import RecordEncoder
from foldlog._formats.told import NOT_WRITTEN, parts_in
from foldlog.eventstore import Action, CondensationSummary, Content, Event, Message, Observation, SystemMessage
from foldlog.projections.units import WaitingCalls

Pair = tuple[Action, Observation | None]
"""A call and its result."""


class RepliesEncoder(RecordEncoder):
    """Calls wait for their results until the model goes on. What it is told in between comes after these, as in a
    prompt: a server refuses a result that does not follow its call. What changes a View has no record, nor bookkeeping.
    """

    def __init__(self) -> None:
        self._waiting, self._gone = WaitingCalls(), 0
        """The calls that wait, by their number, and how many pairs were written."""
        self._pairs: list[tuple[Action | None, Observation | None]] = []
        """Calls, and results whose calls were imported or are long past."""
        self._replies: list[int] = []
        """The place of the first pair of each reply."""
        self._later: list[Event] = []

    @abstractmethod
    def written(self, events: Sequence[Any]) -> Sequence[Any]:
        """Return the records of a message, of the calls of a reply, or of results of such calls."""

    def called(self, pairs: Sequence[Pair]) -> Sequence[Any]:
        """Return the records of the calls of a reply, and of their results."""
        results = [result for _, result in pairs if result is not None]
        return [*self.written([call for call, _ in pairs]), *self.answered(results)]

    def answered(self, results: Sequence[Observation]) -> Sequence[Any]:
        """Return the records of results of a reply."""
        return [record for result in results for record in self.written([result])]

    def records(self, event: Event) -> Sequence[Any] | None:
        match event:
            case Action():
                return self._added(event, None, begins=self._waiting.add(event, self._gone + len(self._pairs)))
            case Observation():
                number = self._waiting.take(event)
                if number is None or number < self._gone:
                    return self._added(None, event, begins=False)
                self._pairs[number - self._gone] = self._pairs[number - self._gone][0], event
            case Message() | SystemMessage() | CondensationSummary():
                if event.source == "agent" or not any(result is None for _, result in self._pairs):
                    return [*self.complete(), *self.written([event])]
                self._later.append(event)
        return None if isinstance(event, NOT_WRITTEN) else ()

    def _added(self, call: Action | None, result: Observation | None, *, begins: bool) -> Sequence[Any]:
        """Add a pair. Another reply ends those before it, unless the newest call still waits."""
        before, answer = self._pairs[-1] if self._pairs else (None, None)
        begins = begins or not self._pairs or (before is None) != (call is None)
        complete = self.complete() if begins and (self._later or answer is not None) else ()
        if begins:
            self._replies.append(len(self._pairs))
        self._pairs.append((call, result))
        return complete

    def end(self) -> Sequence[Any]:
        return self.complete()

    def complete(self) -> Sequence[Any]:
        """Return the records of what waits."""
        pairs, later, begins = self._pairs, self._later, [*self._replies, len(self._pairs)]
        self._pairs, self._later, self._replies, self._gone = [], [], [], self._gone + len(pairs)
        records: list[Any] = []
        for first, stop in pairwise(begins):
            called = [(call, result) for call, result in pairs[first:stop] if call is not None]
            results = [result for _, result in pairs[first:stop] if result is not None]
            records += self.called(called) if called else self.answered(results)
        return [*records, *(record for event in later for record in self.written([event]))]


class PairsEncoder(RepliesEncoder):
    """For formats in which the calls of a reply and their results are one record."""

    def answered(self, results: Sequence[Observation]) -> Sequence[Any]:
        """Return the record of results whose calls were not written: it names what they tell of these."""
        calls = (Action(id=each.id, tool=each.tool, call_id=each.call_id, timestamp=each.timestamp) for each in results)
        return self.called([*zip(calls, results, strict=True)]) if results else ()


class TurnsEncoder(RepliesEncoder):
    """For formats in which a result is that of the call before it: ``written`` has each call with its result."""

    def called(self, pairs: Sequence[Pair]) -> Sequence[Any]:
        return self.written([event for pair in pairs for event in pair if event is not None])


def said_before(calls: Sequence[Action]) -> Content:
    """Return what the model said before the calls of a reply."""
    said = [call.thought for call in calls if call.thought]
    texts = [each for each in said if isinstance(each, str)]
    if len(texts) == len(said):
        return "\n\n".join(texts)
    return said[0] if len(said) == 1 else tuple(part for each in said for part in parts_in(each))


def thinking_before(calls: Sequence[Action]) -> tuple[dict[str, Any], ...]:
    """Return what the model thought before the calls of a reply."""
    return tuple(block for call in calls for block in call.thinking)


def arguments_of(call: Action) -> dict[str, Any]:
    """Return the arguments of a call as an object; another text under ``input``."""
    if not isinstance(call.arguments, str):
        return call.arguments or {}
    try:
        given = msgspec.json.decode(call.arguments)
    except msgspec.DecodeError:
        given = None
    return given if type(given) is dict else {"input": call.arguments}
