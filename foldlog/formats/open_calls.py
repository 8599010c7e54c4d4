"""Pair results with calls by the rules of ``projections.units``. A result without an id answers an
open call of the newest reply.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Container, Hashable, Iterable, Sequence
from typing import Any, TypeVar

from foldlog.eventstore import Action, Event, Observation
from foldlog.projections import View
from foldlog.projections.units import WaitingCalls

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Recent(OrderedDict[K, V]):
    """A mapping that holds only the last ``limit`` keys that were set.

    A plain dict would be slow: it passes over all deleted keys before it finds its first key.
    """

    def __init__(self, limit: int) -> None:
        super().__init__()
        self._limit = limit

    def __setitem__(self, key: K, value: V) -> None:
        super().__setitem__(key, value)
        # setting a key a second time makes the key the newest
        self.move_to_end(key)
        if len(self) > self._limit:
            self.popitem(last=False)


_CALLS_MAX = 10_000
"""The number of open calls that stay in memory."""


def is_of_reply(action: Action, reply: Sequence[Action]) -> bool:
    """Return whether a call belongs to the reply with these calls."""
    if not reply or action.response_id is None:
        return False
    return action.response_id == reply[0].response_id


NO_RESULT = "no result of this call was recorded"
"""The result that a View shows for a call without one."""
_SUPPLIED = "the source has no result of the {}; Views show this text in its place: {!r}"


def describe_supplied(calls: Sequence[tuple[str | None, str]], result: str) -> str:
    """Describe the results that a View shows for calls, given by their ids and tools."""
    named = ", ".join(f"{tool} ({call_id})" for call_id, tool in calls)
    return _SUPPLIED.format(f"{'call' if len(calls) == 1 else 'calls'} {named}", result)


class NewestCalls:
    """The calls of the newest response that has calls, and which of them have no result."""

    def __init__(self) -> None:
        self.response: str | None = None
        self.open: dict[str, Action] = {}
        self.has_answer = False
        self.began_before_window = False
        """Whether calls without results began before the window of a decoder that continues."""

    def begin_before_window(self) -> None:
        """Note that calls without results began before the window."""
        self.response = ""
        self.began_before_window = True

    @property
    def lacks_result(self) -> bool:
        """Whether some of the calls have results, and others have none."""
        return self.began_before_window or (self.has_answer and bool(self.open))

    @property
    def is_open(self) -> bool:
        """Whether any call has no result."""
        return self.began_before_window or bool(self.open)

    @property
    def open_count(self) -> int:
        """The number of calls without results. All calls before the window count as one."""
        return len(self.open) + self.began_before_window

    def call(self, call: Action) -> None:
        """Add a call. A call of another response begins anew."""
        if call.response_id != self.response:
            self.response = call.response_id
            self.open = {}
            self.has_answer = False
            self.began_before_window = False
        if call.call_id is not None:
            self.open[call.call_id] = call

    def follow(self, event: Event) -> None:
        """Add a stored event: a call, or the result of one."""
        if not event.shown:
            return
        if isinstance(event, Action):
            self.call(event)
        elif isinstance(event, Observation):
            self.answer(event.call_id)

    def forget(self, event_ids: Container[int]) -> None:
        """Begin anew if calls without results have these event ids."""
        if any(call.id in event_ids for call in self.open.values()):
            self.response = None
            self.open = {}
            self.has_answer = False
            self.began_before_window = False

    def copy(self) -> NewestCalls:
        """Return a copy, which does not change with this object."""
        copied = NewestCalls()
        copied.response = self.response
        copied.open = {**self.open}
        copied.has_answer = self.has_answer
        copied.began_before_window = self.began_before_window
        return copied

    def answer(self, call_id: Any) -> None:
        """Note that a call has a result. ``call_id`` may be any value of a record."""
        if type(call_id) is str:
            self.has_answer |= self.open.pop(call_id, None) is not None


class OpenCalls:
    """The calls that wait for a result. A call without an id never waits.

    ``view`` returns the View before the first new event. The View is read only if its open calls
    are needed.
    """

    def __init__(self, view: Callable[[], View] | None = None) -> None:
        self._view = view
        self._reply: list[Action] = []
        """All calls of the newest reply."""
        self._wait_for(())

    def _wait_for(self, calls: Iterable[Action]) -> None:
        """Make these the only calls that wait."""
        self._waiting = WaitingCalls()
        self._calls = dict[int, Action]()
        self._added = 0
        for call in calls:
            self._add(call)

    def _add(self, call: Action) -> None:
        """Let a call wait, if it has an id."""
        if call.call_id is not None:
            self._waiting.add(call, call.id)
            self._calls[call.id] = call
            self._added += 1

    def open(self, call: Action) -> None:
        """Add the next call."""
        if not is_of_reply(call, self._reply):
            self._reply = []
        self._reply.append(call)
        if self._added == 2 * _CALLS_MAX:
            self._wait_for([*self._calls.values()][-_CALLS_MAX:])
        self._add(call)

    def is_open(self, call_id: Any) -> bool:
        """Return whether a call with this id is open. The cost is one pass over all open calls."""
        return any(call.call_id == call_id for call in self.all())

    def all(self) -> list[Action]:
        """Return the open calls in their order."""
        self._read_past()
        return [*self._calls.values()]

    def close(self, key: Any, cause: int | None = None) -> tuple[str | None, int | None, str]:
        """Close the call that a result answers. ``key`` is the id of the call, or the value that
        ``of_result`` returned. ``cause`` is the event id of the call.

        Return the id, the event id and the tool of the call. If no such call is open, return the
        id, ``cause`` and an empty tool name. The returned id is None if the call has no id.
        """
        call_id = key
        if isinstance(key, Action):
            call_id = key.call_id
            cause = key.id
        if type(call_id) is not str:
            return None, cause, ""
        place = self._take(call_id, cause)
        if place is None and self._view is not None:
            self._read_past()
            place = self._take(call_id, cause)
        if place is None:
            return call_id, cause, ""
        return call_id, place, self._calls.pop(place).tool

    def _take(self, call_id: str, cause: int | None) -> int | None:
        """Return the event id of the waiting call that a result answers, or None. If no call with
        this cause waits, only the id of the call counts.
        """
        places = (
            self._waiting.take(Observation(content="", call_id=call_id, cause=possible_cause))
            for possible_cause in (cause, None)
        )
        return next((place for place in places if place is not None), None)

    def of_result(self, call_id: str | None, tool: str) -> str | Action | None:
        """Return the ``key`` that ``close`` needs for a result: its call id, or the call that a
        result without an id answers.

        A result without an id answers the first open call of its tool in the newest reply. If the
        result names no tool either, it answers the first open call whose id is the name of the
        called tool. Return None if no such call is open. An id that equals ``tool`` counts as no
        id. If the history has no reply yet, return the name of the tool.
        """
        if call_id not in (None, tool):
            return call_id
        if not self._reply:
            self._read_past()
        if not self._reply:
            return tool or None
        named = (call for call in self._reply if call.tool == (tool or call.call_id))
        return next((call for call in named if call.id in self._calls), None)

    def forget(self, event_ids: Container[int]) -> None:
        """Let the calls with these event ids wait no more."""
        self._wait_for([call for call in self.all() if call.id not in event_ids])

    def _read_past(self) -> None:
        """Read the open calls and the newest reply of the View before, unless they were read."""
        past = self._view
        self._view = None
        if past is None:
            return
        view = past()
        newest = view.units.parallel_calls[-1].members if view.units.parallel_calls else ()
        self._reply = self._reply or [
            call for place in newest if isinstance(call := view[place], Action)
        ]
        self._wait_for([*view.open_calls, *self._calls.values()])
