"""Bring the tables of figures up to date: count what changed, and write it where the store can keep
it.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from itertools import islice

from msgspec import to_builtins

from foldlog._cached_values import kept_records, value_of
from foldlog._figures.counting import Figures, figures_of
from foldlog._figures.overview import Overview
from foldlog._figures.repeated import RepeatedReplies
from foldlog._figures.tables import FigureTables
from foldlog._figures.writing import CODE, NO_CALLS, put_figures, put_replies
from foldlog.eventstore import (
    ConversationErased,
    ConversationNotFound,
    ConversationRow,
    CorruptEvent,
    EventStoreError,
    KeyUnavailable,
    Store,
)
from foldlog.eventstore.inside import Record, WriteTransaction
from foldlog.eventstore.recorders.base import Transaction
from foldlog.eventstore.recorders.types import utf8
from foldlog.projections import Views

_PROJECTION = "figures"
"""Under which name the store keeps what figures are counted on from."""
_TOGETHER = 200
"""Conversations in one transaction."""


class FigureCounter:
    """Counts conversations, and writes their figures into the tables of the store. Thread-safe.

    ``missing``  how many conversations have no figures at all
    ``aside``    the figures that the store does not keep, or not yet, with the conversations as
                 they were then
    """

    def __init__(
        self,
        store: Store,
        tables: FigureTables,
        views: Views | None,
        on_events: Callable[[int], object],
    ) -> None:
        self._store = store
        self._tables = tables
        self._views = views or Views(store)
        self._on_events = on_events
        self._repeated = RepeatedReplies(tables)
        self._lock = threading.RLock()
        self._seen: int | None = None
        self.missing = 0
        self.aside: dict[str, tuple[ConversationRow, Figures]] = {}

    def refresh(self, most: int | None = None) -> int:
        """Count conversations that are not counted as they are now, at ``most`` this many. Return
        how many are left. Until they are counted, sums are of their last figures; ``missing`` of
        them have none.
        """
        with self._lock:
            version = self._store.database.data_version()
            if version == self._seen:
                return 0
            self.write_aside()
            to_count = self._tables.to_count()
            waiting = [row for row in self._rows(to_count) if not self.is_aside(row)]
            counted = waiting[:most]
            left = [row.id for row in waiting[len(waiting[:most]) :]]
            self._count(counted)
            self._read_replies()
            self.missing = sum(to_count[name] for name in left)
            self._seen = version if not left else None
            return len(left)

    def count_now(self, rows: Iterable[ConversationRow]) -> None:
        """Count these conversations."""
        with self._lock:
            self._count(rows)

    def write_aside(self) -> None:
        """Have the store keep what it could not keep before."""
        with self._lock:
            if self.aside and self._store.database.recorder.writable:
                self._write(self.aside)

    def read_replies(self) -> None:
        """Read what replies used that several conversations have."""
        with self._lock:
            self._read_replies()

    def _rows(self, names: Iterable[str]) -> Iterator[ConversationRow]:
        for name in names:
            with suppress(ConversationNotFound):  # since it was listed
                row = self._store.conversation(name, pending=True)
                if row.erased_at is None:
                    yield row

    def _count(self, rows: Iterable[ConversationRow]) -> None:
        """Count conversations, and have the store keep their figures."""
        ahead = iter(rows)
        while some := list(islice(ahead, _TOGETHER)):
            counted = {
                row.id: (row, figures)
                for row in some
                if (figures := self._figures_now(row)) is not None
            }
            written = self._write(counted)
            for name, (row, figures) in counted.items():
                if name not in written:
                    self._put_aside(row, figures)

    def _read_replies(self) -> None:
        """Read what replies used that several histories have, so that totals count each once. Where
        the store cannot keep it, these conversations are counted in memory. Cost: see
        ``RepeatedReplies.find``, and those histories.
        """
        to_compare, to_read = self._repeated.find()
        for key, hashes in to_read.items():
            if not self._read_replies_of(key, hashes):
                to_compare.pop(key, None)  # a process that can read it compares it again
        if not to_compare:
            return

        def mark(transaction: Transaction) -> None:
            for key, (version, events) in to_compare.items():
                transaction.write_sources("set_replies_compared", key, version, events)

        self._store.database.recorder.offer(mark)

    def _read_replies_of(self, key: int, hashes: Collection[int]) -> bool:
        """Read what replies of a conversation used. Return False where it cannot be read."""
        from foldlog._figures.of_sources import replies_of_source  # loads all formats

        database = self._store.database
        keys = self._store.database.settings.keys
        found = database.recorder.query(partial(database.find_key, key=key))
        if found is None or found.id in self.aside:
            return True
        try:
            row = self._store.conversation(found.id, pending=True)
            if row.pending:
                used = replies_of_source(self._store, found.id, hashes)
            else:
                used = (self._figures_now(row) or Figures()).replies
            data_key = database.codec_of(found).data_key
        except EventStoreError:  # the list names the problem
            return False
        replies = {hashed: used.get(hashed, NO_CALLS) for hashed in hashes}
        write = partial(put_replies, found=found, data_key=data_key, keys=keys, replies=replies)
        if not database.recorder.offer(write):
            figures = self._figures_now(row)
            if figures is not None:
                figures.replies |= replies
                self._put_aside(row, figures)
        return True

    def _figures_now(self, row: ConversationRow) -> Figures | None:
        """Return the figures of a conversation as it is now; None where it was erased since it was
        listed.
        """
        try:
            if row.pending:
                from foldlog._figures.of_sources import pending_figures  # loads all formats

                figures = pending_figures(self._store, row.id)
                figures.version = row.version
                return figures
            before = kept_records(self._store, _PROJECTION, row.id, row.id).get(row.id, (0, None))[
                1
            ]
            if before is None or before.code != CODE:
                known = None
            else:
                known = value_of(before.body, Figures)
            return figures_of(self._store, self._views, row, known, on_events=self._on_events)
        except (ConversationErased, ConversationNotFound):
            return None
        except EventStoreError as error:
            return Figures(
                row.version,
                overview=Overview(problem=str(error), needs_key=isinstance(error, KeyUnavailable)),
            )

    def _write(self, counted: Mapping[str, tuple[ConversationRow, Figures]]) -> set[str]:
        """Write figures, and return whose were written. Others are not: another process writes, the
        store only reads, its disk is full, or a conversation has changed or is still to be
        encrypted.
        """
        database = self._store.database
        written = set[str]()
        sound = {name: each for name, each in counted.items() if each[1].is_sound}

        def write(transaction: Transaction) -> None:
            written.clear()
            for name in sorted(sound, key=utf8):
                with suppress(ConversationErased, CorruptEvent, KeyUnavailable):
                    found = database.find(transaction, name, pending=True)
                    row, figures = sound[name]
                    if found is None or (
                        found.sealed_key is None and database.settings.keys is not None
                    ):
                        continue
                    now = found.version, (found.head or b"").hex(), found.redactions, found.pending
                    if now != (row.version, row.head, row.redactions, row.pending):
                        continue
                    writing = WriteTransaction(transaction, found, database)
                    if not found.pending:
                        body = json.dumps(
                            to_builtins(figures.to_count_on(), str_keys=True)
                        ).encode()
                        record = Record(row.version, CODE, body)
                        writing.put_records(_PROJECTION, [record], replace_all=True)
                    put_figures(
                        transaction,
                        found,
                        database.codec_of(found).data_key,
                        database.settings.keys,
                        figures,
                    )
                    writing.end()
                    written.add(name)

        if not sound or not database.recorder.offer(write):
            return set()
        for name in written:
            self.aside.pop(name, None)
            self._tables.forget_aside(name)
        return written

    def is_aside(self, row: ConversationRow) -> bool:
        return row.id in self.aside and self.aside[row.id][0] == row

    def _put_aside(self, row: ConversationRow, figures: Figures) -> None:
        database = self._store.database
        found = database.recorder.query(lambda reader: database.find(reader, row.id, pending=True))
        if found is not None and found.erasure is None:
            self.aside[row.id] = row, figures
            self._tables.put_aside(found._replace(version=row.version), figures)
