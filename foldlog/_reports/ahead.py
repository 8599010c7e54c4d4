"""Make what lists keep of a history from its events, before they are in a store: by the process that reads them.

So the first list of a store into which a folder was imported reads no conversation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from types import SimpleNamespace
from typing import Any

from foldlog._reports.figures import FIGURES, figures_of
from foldlog._reports.kept import KeptBeside
from foldlog._reports.overview import OVERVIEW, Overview
from foldlog._reports.spending import SPENDING, SPENT
from foldlog._reports.stats import STATS, stats_of
from foldlog.condensers import event_tokens
from foldlog.eventstore import MAY_BE_STRUCTURAL, DocumentChanges, Event, Retraction, Store, is_structural
from foldlog.projections import Lifetimes, LifetimesFold, View

Ahead = tuple[Any, ...]
"""The values that are kept of one history, in the order of ``_KEPT``."""

_KEPT = OVERVIEW, FIGURES, STATS, SPENDING, SPENT


def made_ahead(events: Sequence[Event]) -> Ahead | None:
    """Return what lists keep of a history that is imported with these events; None where that needs an event that no
    source has. Cost: the events of its View, and of all its Views if it has condensations.
    """
    if not events or any(event.origin is None or isinstance(event, DocumentChanges) for event in events):
        return None
    held: Any = _Held(events)
    row: Any = SimpleNamespace(id="", version=len(events), erased_at=None)
    figures, sizes = figures_of(held, held, row, {}, held.count)
    overview = Overview(*(figures[name] for name in Overview._fields))
    stats = stats_of(held, held, row, lambda count: None, alone=False)
    if overview.problem or stats.findings:
        return None
    del figures["open_ms"]  # it was not opened
    spending = stats.spending
    return overview, (figures, sizes), stats.kept(), spending.kept(), spending.summed().kept()


class KeptAhead:
    """Keeps what was made ahead, beside the conversations that have exactly these events now."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._kept = [KeptBeside(store, *each) for each in _KEPT]

    def keep(self, conversation: str, version: int, made: Ahead) -> None:
        """Keep the values of one history at this version some time before ``flush`` returns; nothing where it has
        another one by now.
        """
        row = self._store.conversation(conversation)
        for kept, value in zip(self._kept, made, strict=True) if row.version == version else ():
            kept.keep(row, value)

    def flush(self) -> None:
        for kept in self._kept:
            kept.flush()


class _Held:
    """A history that no store has yet, in the place of a store and its Views: what reports ask these of it."""

    def __init__(self, events: Sequence[Event]) -> None:
        self._events, self.version = events, len(events)
        self._tokens: dict[int, int] = {}

    def count(self, event: Event) -> int:
        if event.id not in self._tokens:
            self._tokens[event.id] = event_tokens(event)
        return self._tokens[event.id]

    @cached_property
    def _view(self) -> View:
        return View.from_events(self._events)

    def current(self, conversation: str) -> View:
        return self._view

    def lifetimes(self, conversation: str, count: object) -> Lifetimes:
        fold = self.lifetimes_fold(conversation, self.version, count)
        fold.take(self._events)
        return fold.result()

    def lifetimes_fold(self, conversation: str, version: int, count: object) -> LifetimesFold:
        targets = [min(event.version, event.id) for event in self.structural_events() if isinstance(event, Retraction)]
        return LifetimesFold(conversation, self.count, targets)

    def query(self, conversation: str, look: Callable[[Any], Any]) -> Any:
        return look(self)

    def log(self, conversation: str, start: int = 0, stop: int | None = None) -> Iterator[tuple[None, Event]]:
        return ((None, event) for event in self._events[start:stop])

    def structural_events(self, start: int = 0, stop: int | None = None) -> Iterator[Event]:
        return (e for e in self._events[start:stop] if type(e) in MAY_BE_STRUCTURAL and is_structural(e))

    def documents_before(self, stop: int) -> None:
        return None
