"""Make what lists keep of a history from its events, before they are in a store: by the process that reads them.

So the first list of a store into which a folder was imported reads no conversation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from types import SimpleNamespace
from typing import Any

from msgspec import UNSET

from foldlog._reports.of_one import Counting, sums_of
from foldlog.condensers import event_tokens
from foldlog.eventstore import MAY_BE_STRUCTURAL, DocumentChanges, Event, Retraction, is_structural
from foldlog.projections import LifetimesFold, View


def made_ahead(events: Sequence[Event]) -> Counting | None:
    """Return the sums of a history that is imported with these events; None where they need an event that no source
    has. Cost: the events, and all its Views if it has condensations.
    """
    if not events or any(event.origin is None or isinstance(event, DocumentChanges) for event in events):
        return None
    held: Any = _Held(events)
    row: Any = SimpleNamespace(id="", version=len(events))
    made = sums_of(held, held, row)
    made.open_ms = UNSET  # it was not opened
    return made if made.is_sound else None


class _Held:
    """A history that no store has yet, in the place of a store and its Views: what reports ask these of it."""

    def __init__(self, events: Sequence[Event]) -> None:
        self._events, self.version = events, len(events)

    @cached_property
    def _view(self) -> View:
        return View.from_events(self._events)

    def current(self, conversation: str) -> View:
        return self._view

    def lifetimes_fold(self, conversation: str, version: int, count: object) -> LifetimesFold:
        targets = [min(event.version, event.id) for event in self.structural_events() if isinstance(event, Retraction)]
        return LifetimesFold(conversation, event_tokens, targets)

    def query(self, conversation: str, look: Callable[[Any], Any]) -> Any:
        return look(self)

    def log(self, conversation: str, start: int = 0, stop: int | None = None) -> Iterator[tuple[None, Event]]:
        return ((None, event) for event in self._events[start:stop])

    def structural_events(self, start: int = 0, stop: int | None = None) -> Iterator[Event]:
        return (e for e in self._events[start:stop] if type(e) in MAY_BE_STRUCTURAL and is_structural(e))

    def documents_before(self, stop: int) -> None:
        return None
