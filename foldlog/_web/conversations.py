"""The list of conversations with their figures, and the figures over all of them.

For its figures a conversation has to be read: a thread does that, newest first, while the list is already shown.
Estimated figures are kept beside the conversations for the next time.
"""

from __future__ import annotations

import os
import threading
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from msgspec import UNSET

from foldlog._documents import (
    FleetDocument,
    ReasonDocument,
    ServedConversationDocument,
    ServedPageDocument,
    SlowDocument,
    SpentDocument,
)
from foldlog._histories import is_own
from foldlog._reports.figures import FIGURES, figures_of
from foldlog._reports.kept import KeptBeside
from foldlog._reports.prices import Prices
from foldlog._reports.savings import Saving, total_of
from foldlog._reports.sizes import CountedTokens, CountsTokens
from foldlog._reports.spending import Spendings, spent
from foldlog.condensers import event_tokens
from foldlog.eventstore import ConversationRow, Event, EventStoreError, Store
from foldlog.projections import Views

LIMIT_MAX = 10_000
"""Conversations in one answer."""
_SLOWEST = 8
_SLOW_MS = 100
"""Below this, no reader notices the time to open a View, which tells of the machine's other work."""


class ServedConversations:
    """The rows of the list, kept in memory. Thread-safe; ``close`` ends its thread."""

    def __init__(self, store: Store, model: CountsTokens | None = None, prices: Prices | None = None) -> None:
        """``model`` counts tokens; without one they are estimated. ``prices`` are for calls that tell no cost. Raises
        what ``CountedTokens`` raises.
        """
        self._store, self._spendings = store, Spendings(store, prices or Prices())
        self._model = None if model is None else model.model
        self._count_tokens: Callable[[Event], int] = event_tokens if model is None else CountedTokens(model)
        self._lock = threading.Lock()
        self._rows: dict[str, ConversationRow] = {}
        self._figures: dict[str, tuple[ConversationRow, dict[str, Any]]] = {}
        """The figures of each conversation, and its row when they were counted."""
        self._sizes: dict[str, dict[int, int]] = {}
        self._owners: dict[str, str] = {}
        """The conversation in which each reply is counted."""
        self._kept = KeptBeside(store, *FIGURES)
        self._seen = -1
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

    def list(self, start: int = 0, limit: int = LIMIT_MAX) -> ServedPageDocument:
        """Return the list, last active first: ``limit`` conversations after the first ``start``.

        Raises what ``Store.conversations`` raises.
        Cost: the conversations, where the store changed since the last call.
        """
        self._refresh()
        with self._lock:
            rows = sorted(self._rows.values(), key=lambda row: row.updated_at, reverse=True)
            counted = sum(self._is_counted(row) for row in rows)
            page = tuple(self._document(row) for row in rows[start : start + min(limit, LIMIT_MAX)])
            return ServedPageDocument(conversations=page, total=len(rows), counted=counted)

    def fleet(self, import_command: str) -> FleetDocument:
        """Return the figures over all conversations that are counted by now. ``counted`` of them are counted up to
        their last event.
        """
        self._refresh()
        with self._lock:
            figures = [figures for _, figures in self._figures.values()]
            counted = sum(map(self._is_counted, self._rows.values()))
            documents = [self._document(row) for row in self._rows.values()]
        savings: defaultdict[str, list[Saving]] = defaultdict(list)
        for one in figures:
            for reason, saving in one["condensed"]:
                savings[reason].append(saving)
        reasons = sorted(
            ((reason, total_of(some)) for reason, some in savings.items()),
            key=lambda each: -(each[1].tokens_saved or 0),
        )
        everything = [saving for some in savings.values() for saving in some]
        slow = [one for one in documents if one.open_ms is not UNSET and one.open_ms >= _SLOW_MS]
        slowest = sorted(slow, key=lambda one: -(one.open_ms or 0))[:_SLOWEST]
        return FleetDocument.of(
            total_of(everything),
            conversations=len(documents),
            counted=counted,
            events=sum(one.version for one in documents),
            bytes=None if self._store.path is None else os.path.getsize(self._store.path),
            view_tokens=sum(one["tokens"] or 0 for one in figures),
            tokens_are="estimated" if self._model is None else "counted",
            counted_as=self._model,
            reasons=tuple(ReasonDocument.of(total, reason=reason) for reason, total in reasons if total.condensations),
            slow_ms=_SLOW_MS,
            slowest=tuple(map(SlowDocument.of, slowest)),
            spent=spent(one["spent_own"] for one in figures if one.get("spent") is not None),
            import_command=import_command,
        )

    def _refresh(self) -> None:
        version = self._store.database.data_version()
        if version == self._seen:
            return
        rows_there = (row for row in self._store.iter_conversations() if row.erased_at is None)
        rows = {row.id: row for row in rows_there if not is_own(row.id)}
        there = self._kept.load([*rows.values()]) if self._seen == -1 and self._model is None else {}
        known = [rows[name] for name in there if rows[name].parent is None]
        costs, own = self._spendings.kept(known), self._spendings.own(known, rows, self._owners)
        with self._lock:
            self._seen, self._rows = version, rows
            for name, (figures, sizes) in there.items():
                condensed = [(reason, Saving(*saving)) for reason, saving in figures["condensed"]]
                spent = {"spent": costs[name], "spent_own": own[name]} if name in costs and name in own else {}
                self._figures[name] = rows[name], {**figures, "condensed": condensed, **spent}
                self._sizes[name] = {int(size): tokens for size, tokens in sizes.items()}
            gone = [name for name, (row, _) in self._figures.items() if not self._has_content_of(row)]
            for name in gone:
                del self._figures[name]
                self._sizes.pop(name, None)
            if gone:  # what others shared with them is now their own
                self._owners.clear()
                for _, figures in self._figures.values():
                    figures.pop("spent", None)
        self._wanted.set()

    def _is_counted(self, row: ConversationRow) -> bool:
        counted, figures = self._figures.get(row.id, (None, {}))
        return counted is not None and counted.head == row.head and "spent" in figures

    def _has_content_of(self, row: ConversationRow) -> bool:
        """Return whether a conversation still has what it had: titles may be words that are erased or redacted now."""
        now = self._rows.get(row.id)
        return now is not None and (now.generation, now.redactions) == (row.generation, row.redactions)

    def _document(self, row: ConversationRow) -> ServedConversationDocument:
        _, figures = self._figures.get(row.id, (row, {}))
        counted = {name: value for name, value in figures.items() if name not in ("condensed", "spent_own")}
        return ServedConversationDocument.of_row(row, **{"title": None} | counted)

    def _count(self) -> None:
        while not self._ended:
            self._wanted.wait()
            self._wanted.clear()
            with self._lock:
                rows = [row for row in self._rows.values() if not self._is_counted(row)]
            for row in sorted(rows, key=lambda one: one.updated_at, reverse=True):
                if self._wanted.is_set():  # by a change, or the end: the newest first, again
                    break
                self._count_one(row)
            else:
                self.complete = True
                self._kept.flush()

    def _count_one(self, row: ConversationRow) -> None:
        with self._lock:
            sizes = self._sizes.get(row.id, {})
            before, figures = self._figures.get(row.id, (None, {}))
        if before is None or before.head != row.head:
            figures, sizes = figures_of(self._store, Views(self._store), row, sizes, self._count_tokens)
            if self._model is None and figures["problem"] is None:
                self._kept.keep(row, (figures, sizes))
        cost, own = None, dict[str, SpentDocument]()
        with suppress(EventStoreError):  # the figures name it as the problem
            (cost,) = self._spendings.of([row])
            own = self._spendings.own([row], self._rows, self._owners)
        with self._lock:
            if self._has_content_of(row):
                self._figures[row.id] = row, {**figures, "spent": cost, "spent_own": own.get(row.id, cost)}
                self._sizes[row.id] = sizes
