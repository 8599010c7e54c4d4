"""Pair results with calls whose ids may be used again: the nth result with an id is for the nth call with it."""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Iterable

from foldlog._formats.format import Past
from foldlog._formats.recent import Recent
from foldlog.eventstore import Action

REJECTED = "The action was rejected, and no reason was given."
"""The text for a rejection without a reason: "no output" would say that the action was done."""

_CALLS_MAX = 10_000
"""A call waits for its result during this many later calls; after that the two are not paired."""


class EarlierCalls:
    """Open calls at the place where a decoder began in the middle of a history, by their id.

    They are read from the View at that place when the first of them is needed.
    """

    def __init__(self, past: Past | None) -> None:
        self._past = past
        self._waiting: dict[str, deque[tuple[int, str]]] | None = None

    def close_all(self) -> list[tuple[str, tuple[int, str]]]:
        """Close all these calls; return each with its key, in the order in which their keys were opened last."""
        if self._past is None:
            return []
        waiting, self._waiting = self._read(self._past), {}
        last = sorted(waiting, key=lambda key: waiting[key][-1] if waiting[key] else (-1, ""))
        return [(key, call) for key in last for call in waiting[key]]

    def forget(self, event_ids: Container[int]) -> None:
        """Drop the calls of these events."""
        if self._past is not None:
            self._waiting = {key: _but(calls, event_ids) for key, calls in self._read(self._past).items()}

    def close(self, key: str) -> tuple[int, str] | None:
        """Return the event id and the tool of the oldest such call under ``key``, and close that call."""
        waiting = self._found(key)
        return waiting.popleft() if waiting else None

    def first(self, key: str) -> tuple[int, str] | None:
        """Return the event id and the tool of the oldest such call under ``key``."""
        waiting = self._found(key)
        return waiting[0] if waiting else None

    def _found(self, key: str) -> deque[tuple[int, str]] | None:
        return None if self._past is None else self._read(self._past).get(key)

    def _read(self, past: Past) -> dict[str, deque[tuple[int, str]]]:
        if self._waiting is None:
            self._waiting = {}
            for action in past.view().open_calls:
                if action.call_id is not None:
                    self._waiting.setdefault(action.call_id, deque()).append((action.id, action.tool))
        return self._waiting


def _but(calls: Iterable[tuple[int, str]], event_ids: Container[int]) -> deque[tuple[int, str]]:
    return deque((call for call in calls if call[0] not in event_ids), _CALLS_MAX)


class OpenCalls:
    """Open calls by their id, each with its event id and its tool."""

    def __init__(self, past: Past | None = None) -> None:
        self._earlier = EarlierCalls(past)
        self._waiting: Recent[str, deque[tuple[int, str]]] = Recent(_CALLS_MAX)

    def open(self, key: str, action: Action) -> None:
        waiting = self._waiting.get(key) or deque(maxlen=_CALLS_MAX)
        waiting.append((action.id, action.tool))
        self._waiting[key] = waiting

    def first(self, key: str) -> tuple[int, str] | None:
        """Return the event id and the tool of the oldest call under ``key``."""
        waiting = self._waiting.get(key)
        return waiting[0] if waiting else self._earlier.first(key)

    def close_all(self) -> list[tuple[str, tuple[int, str]]]:
        """Close all calls; return each with its key, in the order in which their keys were opened last."""
        closed = [(key, call) for key, calls in self._waiting.items() for call in calls]
        self._waiting.clear()
        return [*self._earlier.close_all(), *closed]

    def forget(self, event_ids: Container[int]) -> None:
        """Drop the calls of these events, which are no longer shown."""
        self._earlier.forget(event_ids)
        kept = [(key, _but(calls, event_ids)) for key, calls in self._waiting.items()]
        self._waiting.clear()
        for key, calls in kept:
            if calls:
                self._waiting[key] = calls

    def close(self, key: str) -> tuple[int, str] | None:
        """Return the event id and the tool of the oldest open call under ``key``, and close that call."""
        waiting = self._waiting.get(key)
        if not waiting:
            return self._earlier.close(key)
        call = waiting.popleft()
        if not waiting:
            self._waiting.pop(key)
        return call
