"""The list of conversations with their figures, and the figures over all of them.

For its figures a conversation has to be read: a thread does that, newest first, while the list is already shown.
"""

from __future__ import annotations

import threading
from collections import deque
from contextlib import suppress
from itertools import islice

from foldlog._companions import companion_of
from foldlog._documents import ConversationDocument, FleetDocument, ReasonDocument, SavingsDocument, ServedPageDocument
from foldlog._reports.prices import Prices
from foldlog._reports.sizes import CountsTokens
from foldlog._reports.spending import sum_up, total_of
from foldlog._reports.stats import Stats
from foldlog._reports.stored_figures import Row, StoredFigures, document_of
from foldlog._web.metrics import size_of
from foldlog.eventstore import EventStoreError, Store

LIMIT_MAX = 10_000
"""Conversations in one answer."""


class ServedConversations:
    """The rows of the list, kept in memory. Thread-safe; ``close`` ends its thread."""

    def __init__(self, store: Store, model: CountsTokens | None = None, prices: Prices | None = None) -> None:
        """``model`` counts tokens; without one they are estimated. ``prices`` are for calls that tell no cost. Raises
        what ``CountedTokens`` raises.
        """
        self._store, self._prices = store, prices or Prices()
        self._model = None if model is None else model.model
        self._figures = StoredFigures(store, model=model)
        self._lock = threading.Lock()
        self._rows: dict[str, Row] = {}
        """The conversations that are not erased, by their ids, the last recorded first."""
        self._seen = -1
        self._new: set[str] = set()
        """The conversations that were counted since the rows were read."""
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

    def fleet(self, import_command: str) -> FleetDocument:
        """Return the figures over all conversations that are counted by now. ``counted`` of them are counted up to
        their last event.
        """
        rows = self._newest()
        stats, reasons = Stats(), dict[str, SavingsDocument]()
        with self._lock:
            stats.take(rows, self._figures, self._prices)
        for _, figures in rows:
            sum_up(reasons, figures.reasons)
        by_saving = sorted(reasons.items(), key=lambda each: -(each[1].tokens_saved or 0))
        made = [ReasonDocument.of(saved, reason=reason) for reason, saved in by_saving if saved.condensations]
        return FleetDocument.of(
            total_of(SavingsDocument(), reasons.values()),
            conversations=len(rows),
            counted=sum(map(_is_counted, rows)),
            needs_key=sum(figures.overview.needs_key for _, figures in rows),
            events=sum(stats.events.values()),
            bytes=None if (path := self._store.path) is None else size_of(path) + size_of(f"{path}-wal"),
            view_tokens=sum(figures.overview.tokens or 0 for _, figures in rows),
            tokens_are="estimated" if self._model is None else "counted",
            counted_as=self._model,
            reasons=tuple(made),
            spent=stats.spent,
            without_usage=stats.without_usage,
            without_cost=stats.without_cost,
            import_command=import_command,
        )

    def _newest(self) -> list[Row]:
        with self._lock:
            version = self._store.database.data_version()
            if version != self._seen or self._new:
                self._read()
            if version != self._seen:
                self._seen = version
                self._wanted.set()
            return [*self._rows.values()]

    def _read(self) -> None:
        """Read the figures of the conversations that have changed."""
        new, self._new = self._new, set()
        self._figures.forget_sources()
        rows = [row for row in self._store.iter_conversations() if row.erased_at is None and not companion_of(row.id)]
        rows.sort(key=lambda row: row.updated_at, reverse=True)
        changed = [row for row in rows if row.id in new or row.pending or self._before(row.id) != row]
        figures = {row.id: (row, one) for row, one in self._figures.of(changed, read=False) if row.erased_at is None}
        there = self._rows | figures
        self._rows = {row.id: there[row.id] for row in rows if row.id in there}

    def _before(self, conversation: str) -> object:
        return self._rows[conversation][0] if conversation in self._rows else None

    def _count(self) -> None:
        while not self._ended:
            self._wanted.wait()
            self._wanted.clear()
            with self._lock:
                waiting = [row.id for row, figures in self._rows.values() if not _is_counted((row, figures))]
            for conversation in waiting:
                if self._wanted.is_set():  # by a change, or the end: the newest first, again
                    break
                self._count_one(conversation)
            else:
                self.complete = True
                self._figures.flush()

    def _count_one(self, conversation: str) -> None:
        with suppress(EventStoreError):  # it was erased since, or the next answer names the problem
            deque(self._figures.of([self._store.conversation(conversation)]), 0)
        with self._lock:
            self._new.add(conversation)

    def list(self, start: int = 0, limit: int = LIMIT_MAX) -> ServedPageDocument:
        """Return the list, last recorded first: ``limit`` conversations after the first ``start``. Cost: where the
        store changed since the last call, each conversation, and the figures of those that changed.
        """
        rows = self._newest()
        shown = islice(rows, start, start + min(limit, LIMIT_MAX))
        page = tuple(self._document(row) for row in shown)
        return ServedPageDocument(conversations=page, total=len(rows), counted=sum(map(_is_counted, rows)))

    def _document(self, row: Row) -> ConversationDocument:
        conversation, figures = row
        if figures.counted or _is_counted(row):
            return document_of(conversation, figures, self._prices)
        return ConversationDocument.of_row(conversation, title=figures.overview.title)


def _is_counted(row: Row) -> bool:
    conversation, figures = row
    return figures.is_at(conversation.version)
