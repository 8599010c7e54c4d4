"""The list of conversations with their figures, and the figures over all of them.

For its figures a conversation has to be read: a thread does that, newest first, while the list is already shown.
"""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Iterable
from typing import Any

from eventstore import CondensationAction, CondensationRequest, ConversationRow, EventStoreError, Store
from foldlog.reports.overview import overview_of
from foldlog.words.reasons import because
from projections import Views

__all__ = ["LIMIT_MAX", "ServedConversations"]

LIMIT_MAX = 10_000
"""Conversations in one answer."""
_SLOWEST = 8


class ServedConversations:
    """The rows of the list, kept in memory. Thread-safe; ``close`` ends its thread."""

    def __init__(self, store: Store, path: str | None = None) -> None:
        """``path`` is the store's file, if it is one, for its size."""
        self._store = store
        self._path = path
        self._lock = threading.Lock()
        self._rows: dict[str, ConversationRow] = {}
        self._figures: dict[str, tuple[int, dict[str, Any]]] = {}
        self._seen = -1
        self._removals = ""
        self._wanted = threading.Event()
        self._ended = False
        self._thread = threading.Thread(target=self._count, name="foldlog-figures", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._ended = True
        self._wanted.set()
        self._thread.join()

    def list(self, start: int = 0, limit: int = LIMIT_MAX) -> dict[str, Any]:
        """Return the list, last active first: ``limit`` conversations after the first ``start``.

        Raises what ``Store.conversations`` raises.
        Cost: the conversations, where the store changed since the last call.
        """
        self._refresh()
        with self._lock:
            rows = sorted(self._rows.values(), key=lambda row: row.updated_at, reverse=True)
            counted = sum(self._is_counted(row) for row in rows)
            return {
                "conversations": [self._document(row) for row in rows[start : start + min(limit, LIMIT_MAX)]],
                "total": len(rows),
                "counted": counted,
            }

    def fleet(self) -> dict[str, Any]:
        """Return the figures over all conversations that are counted by now."""
        self._refresh()
        with self._lock:
            figures = [figures for _, figures in self._figures.values()]
            documents = [self._document(row) for row in self._rows.values()]
        reasons: Counter[str] = Counter()
        saved: Counter[str] = Counter()
        for one in figures:
            for reason, number, tokens in one["reasons"]:
                reasons[reason] += number
                if tokens is not None:
                    saved[reason] += tokens
        slowest = sorted((one for one in documents if one.get("open_ms")), key=lambda one: -one["open_ms"])[:_SLOWEST]
        return {
            "conversations": len(documents),
            "counted": len(figures),
            "events": sum(one["events"] for one in documents),
            "bytes": None if self._path is None else os.path.getsize(self._path),
            "view_tokens": sum(one["tokens"] or 0 for one in figures),
            "tokens_saved": sum(saved.values()) if saved else None,
            "cost": sum(one["cost"] for one in figures),
            "condensations": sum(reasons.values()),
            "reasons": [
                {"reason": reason, "condensations": number, "tokens_saved": saved.get(reason)}
                for reason, number in reasons.most_common()
            ],
            "slowest": [
                {"id": one["id"], "title": one["title"], "open_ms": one["open_ms"], "events": one["events"]}
                for one in slowest
            ],
        }

    def _refresh(self) -> None:
        version = self._store.database.data_version()
        if version == self._seen:
            return
        removals = self._store.database.recorder.value("removals")
        rows = {row.id: row for row in self._store.iter_conversations() if row.erased_at is None}
        with self._lock:
            if removals != self._removals:  # titles may be words of a redacted event, also of one that a fork shares
                self._figures.clear()
            self._seen, self._rows, self._removals = version, rows, removals
            for gone in self._figures.keys() - rows.keys():
                del self._figures[gone]
        self._wanted.set()

    def _is_counted(self, row: ConversationRow) -> bool:
        return row.id in self._figures and self._figures[row.id][0] == row.version

    def _document(self, row: ConversationRow) -> dict[str, Any]:
        _, figures = self._figures.get(row.id, (0, {}))
        return {
            "id": row.id,
            "events": row.version,
            "created_at": row.created_at.isoformat(),
            "updated_at": row.updated_at.isoformat(),
            "title": None,
            **({} if row.parent is None else {"parent": row.parent, "parent_version": row.parent_version}),
            **{name: value for name, value in figures.items() if name != "reasons"},
        }

    def _count(self) -> None:
        while not self._ended:
            self._wanted.wait()
            self._wanted.clear()
            while not self._ended:
                with self._lock:
                    removals = self._removals
                    rows = [row for row in self._rows.values() if not self._is_counted(row)]
                if not rows:
                    break
                row = max(rows, key=lambda one: one.updated_at)
                figures = _figures(self._store, row)
                with self._lock:
                    if removals == self._removals:  # else they may be of what was removed while they were counted
                        self._figures[row.id] = row.version, figures


def _figures(store: Store, row: ConversationRow) -> dict[str, Any]:
    """Return the figures of one conversation. Cost: its View, its structural events, and some events at its ends."""
    views = Views(store)
    began = time.perf_counter()
    try:
        views.current(row.id)
        opened = time.perf_counter() - began
        structural = store.query(row.id, lambda reading: list(reading.structural_events(0, row.version)))
    except EventStoreError:
        opened, structural = 0.0, []
    found = overview_of(store, views, row)._asdict()
    reasons, cost = _condensations(structural)
    return {**found, "open_ms": round(1_000 * opened, 2), "cost": cost, "reasons": reasons}


def _condensations(structural: Iterable[Any]) -> tuple[list[tuple[str, int, int | None]], float]:
    """Return how many condensations had each reason and what tokens they saved, None where none recorded it, and what
    all cost.
    """
    number: Counter[str] = Counter()
    saved: Counter[str] = Counter()
    cost = 0.0
    requests: list[CondensationRequest] = []
    for event in structural:
        if isinstance(event, CondensationRequest):
            requests.append(event)
        if not isinstance(event, CondensationAction):
            continue
        reason = because(event, requests) or "no reason given"
        requests = []
        number[reason] += 1
        before, after = event.metadata.get("tokens_before"), event.metadata.get("tokens_after")
        if isinstance(before, int) and isinstance(after, int):
            saved[reason] += before - after
        paid = event.metadata.get("cost")
        cost += paid if isinstance(paid, int | float) else 0.0
    return [(reason, number[reason], saved.get(reason)) for reason in number], cost
