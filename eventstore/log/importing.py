"""Import a history into one conversation: compare the stored events, stage the new events, and
publish all staged events at once.

An import compares the contents of events. A copy (``eventstore/maintenance/copy.py``) compares the
heads of events.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import Self, TypeVar

from foldlog.eventstore.append_rules import number_events
from foldlog.eventstore.codec import Encoded
from foldlog.eventstore.codec_json import size_of
from foldlog.eventstore.errors import (
    HistoryDiverged,
    StoreUnavailable,
    VersionConflict,
)
from foldlog.eventstore.events import Event
from foldlog.eventstore.log.database import Database, check_not_erased
from foldlog.eventstore.log.finding import find_begun, page_ranges, pages_again
from foldlog.eventstore.log.row import (
    dense_rows,
    from_microseconds,
    is_redacted,
    make_rows,
    new_salt,
    stored_event_of,
    with_times,
)
from foldlog.eventstore.log.writing import WriteTransaction, begin_new
from foldlog.eventstore.recorders.base import Reader, Recorder, Transaction
from foldlog.eventstore.recorders.errors import FAILURES
from foldlog.eventstore.recorders.types import NOT_BEGUN, Conversation, Row

CHUNK = 1_000
"""The number of rows in one transaction. Writing 1,000 rows holds the write lock for 10 to 50 ms.
"""
REST_S = 0.005
"""The pause between two transactions, in seconds. Other writers get the write lock during the
pause.
"""
IMPORT = "import"
BACKUP = "backup"
ERASE = "erase"
DETACH = "detach"
REKEY = "rekey"
ARCHIVE = "archive"
ARCHIVED = "archived"
RESTORED = "restored"
DELETE_OBJECT = "discard"
REMINDER = "discard"
"""The names of operations that may be unfinished: see ``maintenance.unfinished``. ``REMINDER`` has
the negative key of its conversation, and means as ``DELETE_OBJECT`` that objects must be deleted.
"""

_CHUNK_BYTES = 8 * 2**20

T = TypeVar("T")
Item = TypeVar("Item", Encoded, Row)
Beside = Callable[[WriteTransaction], object]
"""Writes further data in the transaction of the rows."""
Project = Callable[[WriteTransaction, Sequence[Event]], None]
"""Calls the inline projections with new events."""


class StagedWriter:
    """Write a history into one conversation in small transactions, so that live appends never wait
    for the whole history.

    A new conversation is staged, which means that it stays invisible until the whole history is
    published. New events of an existing conversation are appended, and stay even if a later
    transaction fails. Used as a context manager, the writer deletes a staged conversation after an
    error or Ctrl-C. Staged rows that the writer cannot delete stay invisible, and the next import
    or 'foldlog store vacuum' deletes them.
    """

    def __init__(
        self,
        database: Database,
        new: Conversation,
        existing: Conversation | None,
    ) -> None:
        self.database = database
        self._new = new
        self.existing = existing
        self._is_published = existing is not None
        self.key = None if existing is None else existing.key
        self._tried: int | None = None
        """The conversation's key, set before the first commit. An interruption right after the
        first commit leaves ``key`` as None, but the writer must still delete the conversation.
        """
        self._next = 0.0
        """The moment, by ``time.monotonic``, before which no transaction begins."""
        self.added = 0
        """The number of rows that were written."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        recorder = self.database.recorder
        key = self._tried
        if key is not None and not self._is_published:
            with contextlib.suppress(*FAILURES):
                if key in recorder.query(lambda reader: staged_keys(reader, self._new.id)):
                    delete_rows(recorder, key)

    def add(self, rows: Sequence[Row], beside: Beside) -> None:
        """Write rows in one transaction, and call ``beside`` after them."""

        def work(writing: WriteTransaction) -> None:
            writing.insert(rows)
            beside(writing)

        self._write(rows[0].id, work)
        self.added += len(rows)

    def publish(
        self,
        version: int,
        beside: Beside = lambda _: None,
        check: Callable[[Transaction], object] = lambda _: None,
    ) -> None:
        """Make a staged conversation visible. In the same transaction, call ``check`` first and
        ``beside`` last. Discard all other staged imports of the conversation. If another staged
        import of the conversation is still running, that import fails.
        """

        def work(writing: WriteTransaction) -> None:
            check(writing.transaction)
            writing.publish(version)
            beside(writing)

        if not self._is_published and self.key is not None:
            self._next = 0.0  # publishing takes little time, so it needs no pause
            self._write(version, work)
            self._is_published = True
        discard_staged(self.database.recorder, self._new.id)

    def transact(self, work: Callable[[Transaction], T]) -> T:
        """Run ``work`` in a transaction, after the pause that other writers need."""
        time.sleep(max(0.0, self._next - time.monotonic()))
        try:
            return self.database.recorder.transact(work)
        finally:
            self._next = time.monotonic() + REST_S

    def _write(self, version: int, work: Callable[[WriteTransaction], object]) -> None:
        """Run ``work`` on the staged conversation in one transaction, at this version."""

        def in_transaction(transaction: Transaction) -> int:
            writing = self._opened(transaction, version)
            self._tried = writing.key
            work(writing)
            writing.end()
            return writing.key

        self.key = self.transact(in_transaction)

    def _opened(self, transaction: Transaction, version: int) -> WriteTransaction:
        """Return the conversation to which rows from ``version`` on are written. Raises
        ``VersionConflict`` if another writer has changed it.
        """
        database = self.database
        new = self._new
        existing = self.existing
        as_stored = existing is not None and existing.unmade > 0
        state = database.find(transaction, new.id, as_stored=as_stored)
        if state is not None and state.key != new.replaces:
            check_not_erased(state)
            if existing is None or (state.key, state.version) != (existing.key, version):
                raise VersionConflict(new.id, 0 if existing is None else version, state.version)
            return WriteTransaction(transaction, state, database)
        if existing is not None:
            raise VersionConflict(new.id, version, 0)
        if self.key is not None:
            return continue_staging(transaction, database, self.key)
        started = begin_new(transaction, database, new._replace(visible=False))
        return WriteTransaction(transaction, started, database)


def ingest(
    database: Database, conversation: str, history: Iterator[Encoded], project: Project
) -> tuple[int, int]:
    """Import a history into a conversation. Return the number of added events, and the new version.

    Even a short new conversation is staged, so that all imports run the same code. For 40 short
    events, staging takes twice the CPU time of an append, and two commits instead of one.
    """
    existing = database.recorder.query(lambda reader: find_begun(database, reader, conversation))
    if existing is not None:
        history = new_events(database, existing, history)
    state = existing or Conversation(NOT_BEGUN, conversation, database.now(), new_salt())
    with StagedWriter(database, state, existing) as writer:
        for chunk in split_into_batches(history):
            rows, state = make_rows(
                state, chunk, database.now() if state.version else state.created_at
            )
            writer.add(
                rows,
                partial(
                    project_batch,
                    batch=chunk,
                    first=rows[0].id,
                    recorded_at=rows[0].recorded_at,
                    project=project,
                ),
            )
        writer.publish(state.version)
    return writer.added, state.version


def stored_rows(database: Database, state: Conversation, start: int = 0) -> Iterator[Row]:
    return chain.from_iterable(
        pages_again(database, state, page_ranges(start, state.version), dense_rows)
    )


def split_into_batches(items: Iterable[Item]) -> Iterator[list[Item]]:
    """Yield the items in lists that are small enough for one transaction."""
    chunk: list[Item] = []
    size = 0
    for item in items:
        chunk.append(item)
        body = item.body
        size += len(body) if type(body) is bytes else size_of(body)
        if len(chunk) >= CHUNK or size >= _CHUNK_BYTES:
            yield chunk
            chunk = []
            size = 0
    if chunk:
        yield chunk


def new_events(
    database: Database, state: Conversation, history: Iterator[Encoded]
) -> Iterator[Encoded]:
    """Return the events of a history after the events that are stored. Raises ``HistoryDiverged``
    if a stored event differs, or was redacted: its content must not come back under its id.
    """
    for row in stored_rows(database, state):
        encoded = next(history, None)
        if encoded is None:
            break
        # No history has the body of a redacted event: see ``encode``.
        if (row.kind, row.schema, row.body) != (encoded.kind, encoded.schema, encoded.body):
            stored_event_of(state.id, row)  # raises ``CorruptEvent`` if the row is damaged
            redacted = is_redacted(row.proof)
            raise HistoryDiverged(state.id, row.id, state.version, redacted=redacted)
    return history


def project_batch(
    writing: WriteTransaction,
    batch: Sequence[Encoded],
    first: int,
    recorded_at: int,
    project: Project,
) -> None:
    """Call ``project`` with the events of a batch, which begins at id ``first``, if one of them is
    structural.
    """
    if any(encoded.structural for encoded in batch):
        events = number_events((encoded.event for encoded in batch), first)
        project(writing, with_times(events, from_microseconds(recorded_at)))


# -- conversations that are not published


def continue_staging(transaction: Transaction, database: Database, key: int) -> WriteTransaction:
    """Return the staged conversation ``key``. Raises ``StoreUnavailable`` if it was discarded."""
    state = database.find_key(transaction, key)
    if state is None:
        raise StoreUnavailable(
            f"conversation number {key} is no longer staged: its import was discarded; import the"
            " source again",
            kind="taken",
        )
    return WriteTransaction(transaction, state, database)


def staged_keys(reader: Reader, conversation: str) -> list[int]:
    """Return the keys of the staged conversations with an id. Each belongs to an import that is
    running or was killed.
    """
    return [
        unfinished.key
        for unfinished in reader.unfinished()
        if (unfinished.conversation, unfinished.operation) == (conversation, IMPORT)
    ]


def discard_staged(recorder: Recorder, conversation: str) -> None:
    """Delete the staged conversations with an id. An import that is still running then fails at its
    end.
    """
    for key in recorder.query(lambda reader: staged_keys(reader, conversation)):
        delete_rows(recorder, key)


def delete_rows(recorder: Recorder, key: int) -> None:
    """Delete a staged or erased conversation's rows in small transactions: see
    ``Transaction.delete``.
    """
    while not recorder.transact(lambda transaction: transaction.delete(key, CHUNK)):
        time.sleep(REST_S)
