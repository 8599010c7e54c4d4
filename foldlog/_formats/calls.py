"""Pair results with calls. Ids may be used again: the nth result with an id is for the nth call with it. A result
without an id is for the first open call of the newest reply.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Container, Hashable, Sequence
from typing import Any, TypeVar

from foldlog.eventstore import Action
from foldlog.projections import View

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Recent(OrderedDict[K, V]):
    """The last ``limit`` keys that were set, each with its latest value: a longer history needs no more memory.

    Not a dict: to find its first key, a dict passes all deleted keys.
    """

    def __init__(self, limit: int) -> None:
        super().__init__()
        self._limit = limit

    def __setitem__(self, key: K, value: V) -> None:
        super().__setitem__(key, value)
        self.move_to_end(key)  # a key that is set again is the latest
        if len(self) > self._limit:
            self.popitem(last=False)


_CALLS_MAX = 10_000
"""A call waits for its result during this many later calls; after that the two are not paired."""


def is_of_reply(action: Action, reply: Sequence[Action]) -> bool:
    """Return whether an action is of the same reply as these actions, of which there may be none."""
    return bool(reply) and action.response_id == reply[0].response_id is not None


class OpenCalls:
    """Open calls by their id, each with its event id and its tool.

    ``view`` gives the View before the first of them. Where there is one, the calls that were open there are read from
    it when one is asked for that did not come later.
    """

    def __init__(self, view: Callable[[], View] | None = None) -> None:
        self._view = view
        self._reply: list[Action] = []
        """The calls of the newest reply, also those that have their result."""
        self._waiting: Recent[str, deque[tuple[int, str]]] = Recent(_CALLS_MAX)

    def open(self, action: Action, key: str | None = None) -> None:
        """Open a call under ``key``, by default under its id. One without an id is never closed."""
        if not is_of_reply(action, self._reply):
            self._reply = []
        self._reply.append(action)
        key = action.call_id if key is None else key
        if key is not None:
            waiting = self._waiting.get(key) or deque(maxlen=_CALLS_MAX)
            waiting.append((action.id, action.tool))
            self._waiting[key] = waiting

    def first(self, key: str) -> tuple[int, str] | None:
        """Return the event id and the tool of the oldest call under ``key``."""
        waiting = self._waiting.get(key)
        if waiting is None and self._view is not None:
            self._read_past()
            waiting = self._waiting.get(key)
        return waiting[0] if waiting else None

    def close(self, key: Any) -> tuple[str | None, int | None, str]:
        """Close the oldest open call under ``key``, or the call that ``of_result`` returned. Return the key, if it is a
        text, and the event id and the tool of the call: None and an empty text where there is no such call.
        """
        call: tuple[int, str] | None = None
        if isinstance(key, Action):
            key, call = key.call_id, (key.id, key.tool)
        if type(key) is not str:
            return None, None, ""
        call = call or self.first(key)
        if call is None:
            return key, None, ""
        waiting = self._waiting[key]
        waiting.remove(call)
        if not waiting:
            self._waiting.pop(key)
        return key, *call

    def of_result(self, call_id: str | None, tool: str) -> str | Action | None:
        """Return the call that a result without an id answers, for ``close``: of the newest reply the first open call
        of the tool that the result names, without a name the first that has no id either; None where there is none. A
        result with an id has its id returned.

        The name of the tool in the place of the id counts as none; it is returned where there is no reply.
        """
        if call_id not in (None, tool):
            return call_id
        if not self._reply:
            self._read_past()
        if not self._reply:
            return tool or None
        named = (call for call in self._reply if call.tool == (tool or call.call_id))
        return next((call for call in named if (call.id, call.tool) in self._waiting.get(call.call_id or "", ())), None)

    def open_ids(self) -> list[str]:
        """Return the key of each open call, in the order in which the keys were opened last."""
        self._read_past()
        return [key for key, calls in self._waiting.items() for _ in calls]

    def forget(self, event_ids: Container[int]) -> None:
        """Drop the calls of these events, which are no longer shown."""
        self._read_past()
        kept = list(self._waiting.items())
        self._waiting.clear()
        for key, calls in kept:
            if left := deque((call for call in calls if call[0] not in event_ids), _CALLS_MAX):
                self._waiting[key] = left

    def _read_past(self) -> None:
        past, self._view = self._view, None
        if past is None:
            return
        view, reply, later = past(), self._reply, list(self._waiting.items())
        self._waiting.clear()
        for action in view.open_calls:
            self.open(action)
        newest = view.units.parallel_calls[-1].members if view.units.parallel_calls else ()
        self._reply = reply or [call for place in newest if isinstance(call := view[place], Action)]
        for key, calls in later:
            self._waiting[key] = deque((*(self._waiting.get(key) or ()), *calls), _CALLS_MAX)
