"""The list of conversations with their figures, and the figures over all of them.

Conversations that were never counted are counted by a thread, some at a time, while the list is already shown.
"""

from __future__ import annotations

import threading
from contextlib import suppress

from foldlog._documents import ConversationDocument, FleetDocument, ReasonDocument, SavingsDocument, ServedPageDocument
from foldlog._figures.prices import Prices
from foldlog._figures.spending import total_of
from foldlog._figures.stored import FiguresOfStore, document_of
from foldlog._figures.tables import Where
from foldlog._web.metrics import size_of
from foldlog.eventstore import EventStoreError, Store

LIMIT_MAX = 10_000
"""Conversations in one answer."""
_AT_ONCE = 20
"""Conversations that are counted before an answer; the others follow in a thread."""
LISTED = Where(companions=False)
"""The conversations of the list: without those that runtimes keep for themselves."""


class ServedConversations:
    """The list, from the figures in the store. Thread-safe; ``close`` ends its thread."""

    def __init__(self, store: Store, prices: Prices | None = None) -> None:
        """``prices`` are for calls that tell no cost."""
        self._store, self._prices = store, prices or Prices()
        self.figures = FiguresOfStore(store, prices=self._prices)
        self.complete = False
        """Whether each conversation was counted once: before, sums over all of them only grow."""
        self._wanted = threading.Event()
        self._ended = False
        self._thread = threading.Thread(target=self._count, name="foldlog-figures", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._ended = True
        self._wanted.set()
        self._thread.join()

    def refresh(self) -> int:
        """Count some conversations that have changed; the thread counts the others. Return how many are left."""
        left = self.figures.refresh(_AT_ONCE)
        self.complete = self.complete or not left
        if left:
            self._wanted.set()
        return left

    def _count(self) -> None:
        while not self._ended:
            self._wanted.wait()
            self._wanted.clear()
            with suppress(EventStoreError):  # the next answer names the problem
                self.refresh()

    def fleet(self, import_command: str) -> FleetDocument:
        """Return the figures over all conversations that are counted by now."""
        left = self.refresh()
        stats, reasons = self.figures.totals(LISTED), self.figures.reasons(LISTED)
        by_saving = sorted(reasons.items(), key=lambda each: -(each[1].tokens_saved or 0))
        made = [ReasonDocument.of(saved, reason=reason) for reason, saved in by_saving if saved.condensations]
        return FleetDocument.of(
            total_of(SavingsDocument(), reasons.values()),
            conversations=stats.conversations + self.figures.missing,
            counted=stats.conversations + self.figures.missing - left,
            needs_key=self.figures.needs_key(LISTED),
            events=sum(stats.events.values()),
            bytes=None if (path := self._store.path) is None else size_of(path) + size_of(f"{path}-wal"),
            view_tokens=stats.in_views,
            reasons=tuple(made),
            spent=stats.spent,
            without_usage=stats.without_usage,
            without_cost=stats.without_cost,
            import_command=import_command,
        )

    def list(
        self,
        start: int = 0,
        limit: int = LIMIT_MAX,
        *,
        sort: str = "recorded",
        reverse: bool = True,
        where: Where = LISTED,
    ) -> ServedPageDocument:
        """Return ``limit`` of the chosen conversations after the first ``start``. Raises ``InvalidArgument`` for an
        unknown sort.
        """
        left = self.refresh()
        page = self.figures.page(where, sort=sort, reverse=reverse, start=start, limit=min(limit, LIMIT_MAX))
        shown: tuple[ConversationDocument, ...] = tuple(document_of(*row, self._prices) for row in page.rows)
        total = page.total + self.figures.missing
        return ServedPageDocument(conversations=shown, total=total, counted=max(0, total - left))
