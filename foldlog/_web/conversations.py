"""The list of conversations with their figures, and the figures over all of them.

For its figures a conversation has to be read: a thread does that, newest first, while the list is already shown.
"""

from __future__ import annotations

import threading
from collections import deque
from contextlib import suppress
from heapq import nlargest
from itertools import islice

from foldlog._companions import companion_of
from foldlog._documents import FleetDocument, ReasonDocument, ServedPageDocument
from foldlog._reports.of_one import Sums
from foldlog._reports.prices import Prices
from foldlog._reports.sizes import CountsTokens
from foldlog._reports.spending import Calls, spent_by, summed
from foldlog._reports.sums import KeptSums, ListedLine
from foldlog._web.metrics import size_of
from foldlog.eventstore import EventStoreError, Store

LIMIT_MAX = 10_000
"""Conversations in one answer."""
_SLOWEST = 8
_SLOW_MS = 100
"""Below this, no reader notices the time to open a View, which tells of the machine's other work."""


class ServedConversations:
    """The lines of the list, kept in memory. Thread-safe; ``close`` ends its thread."""

    def __init__(self, store: Store, model: CountsTokens | None = None, prices: Prices | None = None) -> None:
        """``model`` counts tokens; without one they are estimated. ``prices`` are for calls that tell no cost. Raises
        what ``CountedTokens`` raises.
        """
        self._store, self._prices = store, prices or Prices()
        self._model = None if model is None else model.model
        self._sums = KeptSums(store, model=model, read=False)
        self._lock = threading.Lock()
        self._lines: list[ListedLine] = []
        """The conversations, the last recorded first."""
        self._total, self._calls = Sums(), list[Calls]()
        self._seen = -1
        self._new: set[str] = set()
        """The conversations that were counted since the lines were made."""
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
        lines, total = self._newest()
        reasons = sorted(total.reasons.items(), key=lambda each: -(each[1].tokens_saved or 0))
        slowest = nlargest(_SLOWEST, lines, key=lambda line: line.open_ms)
        return FleetDocument.of(
            total.saved(),
            conversations=len(lines),
            counted=sum(line.is_counted for line in lines),
            needs_key=sum(line.needs_key for line in lines),
            events=sum(total.counts.events.values()),
            bytes=None if (path := self._store.path) is None else size_of(path) + size_of(f"{path}-wal"),
            view_tokens=sum(line.tokens for line in lines),
            tokens_are="estimated" if self._model is None else "counted",
            counted_as=self._model,
            reasons=tuple(ReasonDocument.of(saved, reason=reason) for reason, saved in reasons if saved.condensations),
            slow_ms=_SLOW_MS,
            slowest=tuple(line.document for line in slowest if line.open_ms >= _SLOW_MS),
            spent=spent_by(self._calls, self._prices),
            import_command=import_command,
        )

    def _newest(self) -> tuple[list[ListedLine], Sums]:
        with self._lock:
            version = self._store.database.data_version()
            if version != self._seen or self._new:
                again, self._new = self._new, set()
                blocks = self._sums.blocks(again=again)
                lines = (line for block in blocks for line in block.lines if not companion_of(line.conversation))
                self._lines = sorted(lines, key=lambda line: line.last_recorded_at, reverse=True)
                self._total, self._calls = Sums(), summed(self._sums.calls(blocks))
                for block in blocks:
                    self._total.add(block.total)
            if version != self._seen:
                self._seen = version
                self._wanted.set()
            return self._lines, self._total

    def _count(self) -> None:
        while not self._ended:
            self._wanted.wait()
            self._wanted.clear()
            with self._lock:
                waiting = [line.conversation for line in self._lines if not line.is_counted]
            for conversation in waiting:
                if self._wanted.is_set():  # by a change, or the end: the newest first, again
                    break
                self._count_one(conversation)
            else:
                self.complete = True
                self._sums.flush()

    def _count_one(self, conversation: str) -> None:
        with suppress(EventStoreError):  # it was erased since, or the next answer names the problem
            deque(self._sums.of([self._store.conversation(conversation)]), 0)
        with self._lock:
            self._new.add(conversation)

    def list(self, start: int = 0, limit: int = LIMIT_MAX) -> ServedPageDocument:
        """Return the list, last recorded first: ``limit`` conversations after the first ``start``.

        Raises what ``KeptSums.blocks`` raises. Cost: where the store changed since the last call, a line for each
        conversation, and see there.
        """
        lines, _ = self._newest()
        shown = islice(lines, start, start + min(limit, LIMIT_MAX))
        page = tuple(line.priced(self._prices) for line in shown)
        return ServedPageDocument(conversations=page, total=len(lines), counted=sum(line.is_counted for line in lines))
