"""Pair results with calls whose ids may be used again: the nth result with an id is for the nth call with it."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Container, Hashable, Mapping
from typing import Any, TypeVar

from foldlog._formats.format import Past
from foldlog.eventstore import Action

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


def id_in_result(message: Mapping[str, Any]) -> str | None:
    """Return the id that a tool's chat message has for its call. A call without an id has the name of its tool."""
    return next((each for key in _IDS if isinstance(each := message.get(key), str)), None)


_IDS = ("tool_call_id", "name", "tool_name")


class OpenCalls:
    """Open calls by their id, each with its event id and its tool.

    Where a decoder begins in the middle of a history, the calls that were open there are read from the View when one is
    asked for that did not come later.
    """

    def __init__(self, past: Past | None = None) -> None:
        self._past = past
        self._waiting: Recent[str, deque[tuple[int, str]]] = Recent(_CALLS_MAX)

    def open(self, action: Action, key: str | None = None) -> None:
        """Open a call under ``key``, by default under its id. One without an id is never closed."""
        key = action.call_id if key is None else key
        if key is not None:
            waiting = self._waiting.get(key) or deque(maxlen=_CALLS_MAX)
            waiting.append((action.id, action.tool))
            self._waiting[key] = waiting

    def first(self, key: str) -> tuple[int, str] | None:
        """Return the event id and the tool of the oldest call under ``key``."""
        waiting = self._waiting.get(key)
        if waiting is None and self._past is not None:
            self._read_past()
            waiting = self._waiting.get(key)
        return waiting[0] if waiting else None

    def close(self, key: Any) -> tuple[str | None, int | None, str]:
        """Close the oldest open call under ``key``. Return the key, if it is a text, and the event id and the tool of
        the call: None and an empty text where there is no such call.
        """
        if type(key) is not str:
            return None, None, ""
        event_id, tool = self.first(key) or (None, "")
        if event_id is not None and (waiting := self._waiting.get(key)):
            waiting.popleft()
            if not waiting:
                self._waiting.pop(key)
        return key, event_id, tool

    def open_ids(self) -> list[str]:
        """Return the key of each open call, in the order in which the keys were opened last."""
        self._read_past()
        return [key for key, calls in self._waiting.items() for _ in calls]

    def first_without_id(self) -> str | None:
        """Return the key of the oldest open call that has the name of its tool in the place of an id."""
        self._read_past()
        return min(((calls[0], key) for key, calls in self._waiting.items() if calls[0][1] == key), default=(0, None))[
            1
        ]

    def forget(self, event_ids: Container[int]) -> None:
        """Drop the calls of these events, which are no longer shown."""
        self._read_past()
        kept = list(self._waiting.items())
        self._waiting.clear()
        for key, calls in kept:
            if left := deque((call for call in calls if call[0] not in event_ids), _CALLS_MAX):
                self._waiting[key] = left

    def _read_past(self) -> None:
        past, self._past = self._past, None
        if past is None:
            return
        later = list(self._waiting.items())
        self._waiting.clear()
        for action in past.view().open_calls:
            self.open(action)
        for key, calls in later:
            self._waiting[key] = deque((*(self._waiting.get(key) or ()), *calls), _CALLS_MAX)
