"""Bring the stored figures up to date: count the conversations that have changed, and write their
figures into the tables of the store.

Figures that the store cannot write are put *aside*: they stay in memory. A total counts a reply
once, even if several conversations contain the reply. So the store has a separate row for the usage
of a repeated reply, and a query can leave out the repetitions.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from functools import cached_property, partial
from itertools import islice
from operator import methodcaller
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec
from msgspec import to_builtins

from foldlog._reports.figures.overview import Overview
from foldlog._reports.figures.repeated_replies import RepeatedReplies
from foldlog._reports.figures.stats import Behind
from foldlog._reports.figures.tables import FigureTables
from foldlog._reports.figures.unchanged import is_as_in
from foldlog._reports.figures.writing import CODE, NO_REPLY, put_figures, put_replies
from foldlog.eventstore import (
    ConversationErased,
    ConversationNotFound,
    ConversationRow,
    CorruptEvent,
    EventStoreError,
    InvalidArgument,
    KeyUnavailable,
    Store,
    StoreDamaged,
)
from foldlog.eventstore.cached_values import cached_records, value_of
from foldlog.eventstore.log.database import Database
from foldlog.eventstore.log.row import from_microseconds
from foldlog.eventstore.log.writing import WriteTransaction
from foldlog.eventstore.recorders.base import Transaction
from foldlog.eventstore.recorders.types import Record, as_text, utf8

if TYPE_CHECKING:
    from foldlog._reports.figures.counting import Figures
    from foldlog._reports.figures.settled_replies import Block
    from foldlog._reports.figures.tools_of_replies import CountedReply
    from foldlog.projections import Views

_PROJECTION = "figures"
_STATE_CODE: Final = 10
"""The version of the code that writes states. All events are counted again if a state is of another
version: an earlier one does not say what the readers of calls know of earlier events.
"""
_TOGETHER = 200
"""The number of conversations whose figures are counted before they are written."""
_WRITES_S: Final = 0.02
"""A transaction that writes figures ends after this time, because other writers wait for it."""
_LOCK_WAIT_S = 0.05
"""A reader that counts only some conversations waits this long for another thread that counts."""
_LOOKS_FOR_EACH = 5
"""A reader that counts at most N conversations looks at N times this number, because those that
were erased, or whose figures are aside, need no counting.
"""
_AS_OF: Final = "figures_as_of"
"""The name of the store's fact with the time up to which all changes are in the figures."""
_COUNTED_TO: Final = "figures_counted_to"
"""The name of the store's fact with the position up to which all events are in the figures, after
the number of the code that made them and the time of the last look at all conversations.
"""
_EVENTS_LOOKED_AT: Final = 5_000
"""If more events came after the stored position, all conversations are looked at instead."""
_LOOKS_FOR_OVERLOOKED: Final = 2
"""Between two looks, another process may append, and count what it appended."""
_LOOKS_AT_ALL_EVERY: Final = 3_600_000_000
"""In microseconds. A version of foldlog that notes no uncounted conversations may have written."""
_READER_NOTES: Final = 64
"""A reader that found so many changed conversations stores the position, for later readers."""
_ASIDE_NOTED: Final = 1_000
"""The position is not stored if more figures than these cannot be written."""
_EVENTS_TOGETHER = 1_000
"""A reader looks at its bound after conversations with so many events."""
_COUNTED_AT_LEAST: Final = 16
"""A reader counts so many conversations, however long it takes."""
_READ_TOGETHER: Final = 16
"""The number of conversations that are read in one transaction, if they are on a server."""


class _Look(NamedTuple):
    """A search for conversations whose figures may be outdated.

    ``until``    the last position when it began
    ``all_at``   the time of the last look at all conversations, in microseconds since 1970
    ``touched``  how many conversations were compared with their figures; None if all were
    ``notes``    the conversations that were noted as uncounted, each with the value of its note
    ``is_news``  whether anything came after the stored position
    """

    until: Any
    all_at: int
    touched: int | None
    notes: Sequence[tuple[int, str]]
    is_news: bool


class FigureCounter:
    """Counts conversations and writes their figures. Many threads may use the same
    ``FigureCounter``.

    ``missing``      the number of conversations without figures
    ``has_counted``  whether conversations were counted since the last ``note_complete``
    ``aside``        maps the id of a conversation to its figures that could not be written yet
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
        self._given_views = views
        self._on_events = on_events
        self._repeated = RepeatedReplies(tables)
        self._lock = threading.RLock()
        self._seen: int | None = None
        """The last state of the store in which all conversations were counted."""
        self._found: dict[str, bool] = {}
        """The conversations that are not counted yet: see ``FigureTables.to_count``."""
        self._found_at: int | None = None
        """The state of the store when these conversations were found."""
        self._found_time = 0
        """The time, in microseconds since 1970, when they were found."""
        self._look: _Look | None = None
        """The search that found them, until its position is stored."""
        self._events_read = 0
        self.missing = 0
        self.has_counted = False
        self.aside: dict[str, tuple[ConversationRow, Figures]] = {}

    @cached_property
    def _views(self) -> Views:
        return self._given_views or _views_of_figures(self._store)

    def refresh(
        self, most: int | None = None, events: int | None = None, seconds: float | None = None
    ) -> int:
        """Count up to ``most`` conversations that have changed, the newest first, and return the
        number of conversations that were found and not counted. The result is at least 1 if another
        thread still counts. Sums contain the outdated figures of these conversations. ``missing``
        is the number of conversations without figures. With ``events``, the method counts no
        further conversation after it has read this number of events, and with ``seconds``, none
        after this time, except the first ``_COUNTED_AT_LEAST``.

        With ``most``, the method waits at most ``_LOCK_WAIT_S`` seconds for another thread that
        counts. It searches all conversations only after it has counted those that it found before,
        and the newest events each time.
        """
        if not self._lock.acquire(timeout=-1 if most is None else _LOCK_WAIT_S):
            return max(1, len(self._found))
        try:
            until = None if seconds is None else monotonic() + seconds
            return self._refresh(most, events, until)
        finally:
            self._lock.release()

    def behind(self) -> Behind:
        """Return what the figures lack since the last ``refresh``."""
        rest = len(self._found)
        if rest or self._seen is None:
            return Behind(rest, self.stored_as_of())
        return Behind(0, from_microseconds(self._found_time))

    def stored_as_of(self) -> datetime | None:
        """Return the time that the last ``note_complete`` of any process stored. Return None if
        there is none, or if it is damaged: the next call stores it again.
        """
        stored = self._store.database.recorder.value(_AS_OF)
        with suppress(ValueError, StoreDamaged):
            return from_microseconds(int(stored)) if stored else None
        return None

    def note_complete(self) -> None:
        """Store the time up to which all changes are counted. Other processes show this time while
        they have not counted later changes.
        """
        if not self._found and self._seen is not None:
            self.has_counted = False
            time = str(self._found_time)
            self._store.database.recorder.offer(
                lambda transaction: transaction.set_value(_AS_OF, time)
            )

    def _refresh(self, most: int | None, events: int | None, until: float | None) -> int:
        version = self._store.database.data_version()
        now = self._store.database.now()
        if version == self._seen:
            self._found_time = now
            return 0
        self._forget_erased()
        self.write_aside()
        if most is None or not self._found:
            self._look, self._found = self._find_outdated(now)
            self._found_at = version
            self._found_time = now
        if most is not None and len(self._found) > most:
            self._found = self._find_newest() | self._found
        looked_at = self._count_found(most, events, until)
        for name in looked_at:
            del self._found[name]
        self.missing = sum(self._found.values())  # see ``to_count``
        if not self._found:
            self._store_replies()
            self._note_counted(is_reader=most is not None)
            self._seen = self._found_at
        return len(self._found)

    def overlooked(self) -> int:
        """Return the number of conversations whose figures are outdated or missing, and which the
        next reader does not look at, because no event and no note says that they have changed.
        """
        overlooked = {*self._tables.to_count()}
        for _ in range(_LOOKS_FOR_OVERLOOKED):
            _, outdated = self._find_outdated(self._store.database.now())
            overlooked -= outdated.keys()
            overlooked &= self._tables.to_count().keys()
        return len(overlooked)

    def _find_outdated(self, now: int) -> tuple[_Look, dict[str, bool]]:
        """Compare the conversations that may have changed since the stored position with their
        figures. Compare all conversations if there is no such position, if the last look at all of
        them is an hour old, or if more than ``_EVENTS_LOOKED_AT`` events came after the position.
        Return the search and, as ``FigureTables.to_count`` does, the conversations to count.
        """
        database = self._store.database
        recorder = database.recorder
        # Notes are read before the position: a later note belongs to the next search.
        rows, text = recorder.query(
            lambda reader: (reader.ask_all("uncounted"), reader.value(_COUNTED_TO))
        )
        notes = [(key, as_text(value)) for key, value in rows]
        stored = _CountedTo.of(database, text)
        if stored is not None and 0 <= now - stored.all_at < _LOOKS_AT_ALL_EVERY:
            start = stored.position
            until, touched = recorder.query(
                lambda reader: reader.changed_since(start, _EVENTS_LOOKED_AT)
            )
            if touched is not None:
                keys = [*dict.fromkeys([*touched, *(key for key, _ in notes)])]
                is_news = until != start or bool(notes)
                look = _Look(until, stored.all_at, len(keys), notes, is_news)
                return look, self._tables.to_count(keys)
        look = _Look(database.last_position, now, None, notes, is_news=True)
        return look, self._tables.to_count()

    def _note_counted(self, *, is_reader: bool) -> None:
        """Store that all figures are counted up to the position at which the last search began, so
        that the next one begins there. Conversations whose figures could not be written are noted
        as uncounted.
        """
        look, self._look = self._look, None
        aside = {*self._tables.aside.values()}
        if look is None or not look.is_news or len(aside) > _ASIDE_NOTED:
            return
        if is_reader and look.touched is not None and look.touched < _READER_NOTES:
            return
        recorder = self._store.database.recorder
        noted = {key for key, _ in look.notes}
        changes: list[Callable[[Transaction], object]] = [
            partial(_run_statement, statement="note_uncounted", values=(key,))
            for key in aside - noted
        ]
        changes += [
            partial(_run_statement, statement="forget_uncounted", values=note)
            for note in look.notes
            if note[0] not in aside
        ]
        counted_to = str(_CountedTo(look.until, look.all_at))
        # Only now, because a search that begins behind the position relies on the notes.
        changes.append(lambda transaction: transaction.set_value(_COUNTED_TO, counted_to))
        if recorder.store_count > 1:  # a transaction belongs to one server
            for change in changes:
                if not recorder.offer(change):
                    return
            return

        def note(transaction: Transaction) -> None:
            for change in changes:
                change(transaction)

        recorder.offer(note)

    def _count_found(
        self, most: int | None, events: int | None, until: float | None
    ) -> Collection[str]:
        """Count the conversations that were found, within the bounds of ``refresh``, and return
        those that need no further look. ``until`` is a time of ``monotonic``.
        """
        looked_at = dict[str, None]()
        waiting = list[ConversationRow]()
        late = list[ConversationRow]()
        counted = 0
        self._events_read = 0
        names = [*self._found]
        rows = self._rows(names)
        for name in names:
            if late:
                break
            if most is not None and (counted >= most or len(looked_at) >= most * _LOOKS_FOR_EACH):
                break
            if events is not None and self._events_read >= events:
                break
            looked_at[name] = None
            row = next(rows)
            if row is not None and not self.is_aside(row):
                waiting.append(row)
                counted += 1
            if events is not None and sum(row.version for row in waiting) >= _EVENTS_TOGETHER:
                late += self._count(waiting, until, already=counted - len(waiting))
                waiting = []
        late += self._count(waiting, until, already=counted - len(waiting))
        for row in late:
            del looked_at[row.id]
        return looked_at

    def _find_newest(self) -> dict[str, bool]:
        """Return conversations with new events whose figures are outdated, as ``to_count`` does.
        Cost: a few queries, however many conversations are outdated.
        """
        database = self._store.database
        return self._tables.to_count(database.recorder.query(database.newest_changed))

    def count_now(
        self, rows: Iterable[ConversationRow], seconds: float | None = None
    ) -> Sequence[ConversationRow]:
        """Count conversations, and return those for which no time was left: see ``refresh``."""
        until = None if seconds is None else monotonic() + seconds
        with self._lock:
            return self._count(rows, until)

    def write_aside(self) -> None:
        """Try again to write the figures that could not be written earlier."""
        with self._lock:
            if self.aside and self._store.database.recorder.writable:
                self._write(self.aside)

    def store_replies(self) -> None:
        """Store the usage of replies that several conversations contain, so that totals count them
        once.
        """
        with self._lock:
            self._store_replies()

    def _rows(self, names: Sequence[str]) -> Iterator[ConversationRow | None]:
        """Yield the row of each conversation, in the order of ``names``. The row of an erased
        conversation is None.
        """
        step = self._read_at_once
        for place in range(0, len(names), step):
            page = names[place : place + step]
            if step == 1:
                yield from self._rows_of(self._store, page)
                continue
            from foldlog._reports.figures.reading_together import read_together

            questions = [("conversation", (name,)) for name in page]
            yield from read_together(
                self._store,
                methodcaller("ask_ahead", questions),
                partial(self._rows_of, names=page),
            )

    @staticmethod
    def _rows_of(store: Store, names: Sequence[str]) -> list[ConversationRow | None]:
        rows = list[ConversationRow | None]()
        for name in names:
            row: ConversationRow | None = None
            # The conversation may have been deleted since it was listed.
            with suppress(ConversationNotFound):
                row = store.conversation(name, as_stored=True)
            rows.append(None if row is None or row.erased_at is not None else row)
        return rows

    @property
    def _read_at_once(self) -> int:
        """The number of conversations that are read in one transaction."""
        recorder = self._store.database.recorder
        # Several stores are on several servers, and a transaction belongs to one server.
        return _READ_TOGETHER if recorder.on_server and recorder.store_count == 1 else 1

    def _count(
        self, rows: Iterable[ConversationRow], until: float | None = None, *, already: int = 0
    ) -> Sequence[ConversationRow]:
        """Count conversations, and return those for which no time was left. ``already`` is how many
        the reader has counted before: see ``_COUNTED_AT_LEAST``.
        """
        remaining = iter(rows)
        while page := list(islice(remaining, _TOGETHER)):
            counted: dict[str, tuple[ConversationRow, Figures]] = {}
            late = list[ConversationRow]()
            step = self._read_at_once
            for place in range(0, len(page), step):
                is_enough = already >= _COUNTED_AT_LEAST
                if until is not None and is_enough and monotonic() > until:
                    late = page[place:]
                    break
                together = page[place : place + step]
                for row, figures in self._count_some(together):
                    if figures is not None:
                        counted[row.id] = (row, figures)
                already += len(together)
            self.has_counted = True
            written = self._write(counted)
            for name, (row, figures) in counted.items():
                if name not in written:
                    self._put_aside(row, figures)
            if late:
                return [*late, *remaining]
        return []

    def _store_replies(self) -> None:
        """Store the usage of replies that several conversations contain. If the store cannot write
        the usage, put the figures of these conversations aside.
        """
        to_compare, to_read = self._repeated.find()
        for key, hashes in to_read.items():
            if not self._store_replies_of(key, hashes):
                # The replies of this conversation could not be read. It is not marked as compared,
                # so a process that has its key compares it again.
                to_compare.pop(key, None)
        if not to_compare:
            return

        def mark(keys: Iterable[int], transaction: Transaction) -> None:
            # Mark each conversation as compared, unless it has changed since its version was read.
            for key in keys:
                transaction.write("set_replies_compared", key, *to_compare[key])

        recorder = self._store.database.recorder
        for keys in recorder.by_store(to_compare, int):
            recorder.offer(partial(mark, keys))

    def _store_replies_of(self, key: int, hashes: Collection[int]) -> bool:
        """Store the usage of the replies with these ``hashes``. Return False if the conversation
        cannot be read.
        """
        from foldlog._reports.figures.of_sources import (
            replies_of_source,  # This import loads all formats.
        )

        database = self._store.database
        keys = self._store.database.settings.keys
        conversation = database.recorder.query(partial(database.find_key, key=key))
        if conversation is None or conversation.id in self.aside:
            return True
        try:
            row = self._store.conversation(conversation.id, as_stored=True)
            if row.unmade:
                counted = replies_of_source(self._store, conversation.id)
            else:
                counted = self._replies_of(row)
            data_key = database.codec_of(conversation).data_key
        except EventStoreError:  # A list of conversations shows this problem.
            return False
        replies = {reply_hash: counted.get(reply_hash, NO_REPLY) for reply_hash in hashes}
        write = partial(
            put_replies, conversation=conversation, data_key=data_key, keys=keys, replies=replies
        )
        if not database.recorder.offer(write):
            figures = self._count_one(row)
            if figures is not None:
                figures.replies |= replies
                self._put_aside(row, figures)
        return True

    def _replies_of(self, row: ConversationRow) -> dict[int, CountedReply]:
        """Return all replies of a conversation. Cost: the blocks of its settled replies, or its
        events if there are no present figures.
        """
        from foldlog._reports.figures.counting import figures_of
        from foldlog._reports.figures.settled_replies import StateIncomplete, read_blocks

        figures = read_state(self._store, row.id)
        if figures is None or figures.version != row.version:
            figures = self._count_one(row)
        if figures is None:
            return {}
        try:
            settled = read_blocks(self._store, row.id, figures.spending.settled.count)
        except StateIncomplete:
            return figures_of(self._store, self._views, row).replies
        figures.unsettle(settled)
        return figures.replies

    def _count_some(
        self, rows: Sequence[ConversationRow]
    ) -> Iterator[tuple[ConversationRow, Figures | None]]:
        """Count conversations. Short ones are read together, because each question to a server is a
        round trip.
        """
        if len(rows) == 1:
            yield rows[0], self._count_one(rows[0])
            return
        # Only stores on servers read several conversations together.
        from foldlog._reports.figures.reading_ahead import is_short, read_ahead
        from foldlog._reports.figures.reading_together import read_together

        short = [row for row in rows if is_short(row)]
        figures: dict[str, Figures | None] = {}
        if short:
            figures = read_together(
                self._store,
                partial(read_ahead, rows=short, projection=_PROJECTION),
                lambda own: {row.id: self._count_one(row, own) for row in short},
            )
        for row in rows:
            yield row, figures[row.id] if row.id in figures else self._count_one(row)

    def _count_one(self, row: ConversationRow, own: Store | None = None) -> Figures | None:
        """Return the present figures of a conversation, or None if it was erased after it was
        listed. ``own`` is the store to read, if it is not the store itself.
        """
        from foldlog._reports.figures.counting import Figures, figures_of
        from foldlog._reports.figures.settled_replies import StateIncomplete

        store = own or self._store
        try:
            if row.unmade:
                # This import loads all formats.
                from foldlog._reports.figures.of_sources import pending_figures

                figures = pending_figures(store, row.id)
                figures.version = row.version
                return figures
            views = self._views if own is None else _views_of_figures(own)
            count = partial(figures_of, store, views, row, on_events=self._note_events)
            try:
                return count(read_state(store, row.id))
            except StateIncomplete:
                return count(None)
        except ConversationErased as error:
            if error.conversation == row.id:
                return None
            # The conversation was detached from this parent after it was listed.
            return self._count_one(self._store.conversation(row.id, as_stored=True))
        except ConversationNotFound:
            return None
        except EventStoreError as error:
            return Figures(
                row.version,
                overview=Overview(problem=str(error), needs_key=isinstance(error, KeyUnavailable)),
            )
        except Exception as error:  # noqa: BLE001 - lists must still show all other conversations
            problem = f"its figures cannot be counted: {type(error).__name__}: {error}"
            return Figures(row.version, overview=Overview(problem=problem))

    def _note_events(self, count: int) -> None:
        self._events_read += count
        self._on_events(count)

    def _write(self, counted: Mapping[str, tuple[ConversationRow, Figures]]) -> set[str]:
        """Return the ids of the conversations whose figures were written. Nothing is written if
        another process is writing, if the store is read-only, or if the disk is full. The figures
        of a conversation are not written if the conversation has changed or is not encrypted yet.
        """
        written = set[str]()
        # All processes use the same order, so that no two processes can wait for each other.
        names = sorted(
            (name for name, (_, figures) in counted.items() if figures.is_sound), key=utf8
        )
        recorder = self._store.database.recorder
        for of_store in recorder.by_store(names, str):
            begin = 0
            while begin < len(of_store):
                tried = list[str]()
                done = set[str]()
                write = partial(self._write_some, of_store[begin:], counted, tried, done)
                if not recorder.offer(write):
                    break
                written |= done
                begin += len(tried)
        for name in written:
            self.aside.pop(name, None)
            self._tables.forget_aside(name)
        return written

    def _write_some(
        self,
        names: Sequence[str],
        counted: Mapping[str, tuple[ConversationRow, Figures]],
        tried: list[str],
        done: set[str],
        transaction: Transaction,
    ) -> None:
        """Write figures for some time, at least of one conversation. Add the names of all tried
        conversations to ``tried``, and of the written ones to ``done``.
        """
        tried.clear()
        done.clear()
        until = monotonic() + _WRITES_S
        for name in names:
            tried.append(name)
            with suppress(ConversationErased, CorruptEvent, KeyUnavailable):
                if self._write_one(transaction, *counted[name]):
                    done.add(name)
            if monotonic() > until:
                return

    def _write_one(self, transaction: Transaction, row: ConversationRow, figures: Figures) -> bool:
        """Write the figures of a conversation. Return False if they were not written, because the
        conversation has changed since ``row`` was read, is not encrypted yet, or has lost a block
        of its replies.
        """
        database = self._store.database
        conversation = database.find(transaction, row.id, as_stored=True)
        if conversation is None or not is_as_in(row, conversation):
            return False
        keys = database.settings.keys
        if keys is not None and conversation.sealed_key is None:
            return False  # The conversation must be encrypted first.
        writing = WriteTransaction(transaction, conversation, database)
        if not conversation.lacks_events:
            if not _unsettle_repeated(transaction, writing, figures):
                writing.put_records(_PROJECTION, [], replace_all=True)
                return False
            _put_state(writing, row.version, figures)
        data_key = database.codec_of(conversation).data_key
        put_figures(transaction, conversation, data_key, keys, figures)
        writing.end()
        return True

    def is_aside(self, row: ConversationRow) -> bool:
        """Return whether the present figures of a conversation are in memory only."""
        return row.id in self.aside and self.aside[row.id][0] == row

    def _forget_erased(self) -> None:
        """Forget the figures in memory of conversations that were erased. The store deletes only
        its own figures, and nobody counts an erased conversation again. Another conversation may
        have the id by now.
        """
        created = self._tables.created(self.aside)
        for name, (row, _) in [*self.aside.items()]:
            at, _ = created.get(name, (None, False))
            if at is None or from_microseconds(at) != row.created_at:
                del self.aside[name]
                self._tables.forget_aside(name)

    def _put_aside(self, row: ConversationRow, figures: Figures) -> None:
        database = self._store.database
        conversation = database.recorder.query(
            lambda reader: database.find(reader, row.id, as_stored=True)
        )
        if conversation is not None and conversation.erasure is None:
            self.aside[row.id] = row, figures
            self._tables.put_aside(conversation._replace(version=row.version), figures)


def _views_of_figures(store: Store) -> Views:
    from foldlog._reports.figures.short_events import ShortReading  # only counting needs it
    from foldlog.projections import Views

    return Views(store, read_by=ShortReading)


class _CountedTo(NamedTuple):
    """The value of the fact ``_COUNTED_TO``."""

    position: Any
    all_at: int

    @classmethod
    def of(cls, database: Database, text: str) -> _CountedTo | None:
        """Return None if there is no position, or if other code made the figures."""
        with suppress(ValueError, InvalidArgument):
            code, position, all_at = text.split(" ")
            if int(code) == CODE and position != "0":
                return cls(database.recorder.position(position), int(all_at))
        return None

    def __str__(self) -> str:
        return f"{CODE} {self.position} {self.all_at}"


def _run_statement(transaction: Transaction, statement: str, values: Sequence[Any]) -> None:
    """Run a statement with values that were chosen before the transaction began."""
    transaction.write(statement, *values)


def _unsettle_repeated(
    transaction: Transaction, writing: WriteTransaction, figures: Figures
) -> bool:
    """Put the settled replies back if other conversations repeat replies of this one, because the
    rows of repeated replies are written again. Return False if a block of the replies is missing.
    """
    from foldlog._reports.figures.settled_replies import StateIncomplete, blocks_in

    settled = figures.spending.settled
    if not settled.count or not transaction.ask("figure_replies_of", writing.key):
        return True
    try:
        figures.unsettle(blocks_in(writing, settled.count))
    except StateIncomplete:
        return False
    return True


def _put_state(writing: WriteTransaction, version: int, figures: Figures) -> None:
    """Write the state of figures, and the blocks of replies that are settled with it."""
    from foldlog._reports.figures.settled_replies import PROJECTION

    settled = figures.spending.settled.blocks
    state, blocks = figures.to_count_on()
    record = Record(version, _STATE_CODE, _encode(state))
    writing.put_records(_PROJECTION, [record], replace_all=True)
    if blocks:
        records = [
            Record(number, _STATE_CODE, _encode(block))
            for number, block in enumerate(blocks, settled + 1)
        ]
        writing.put_records(PROJECTION, records, replace_all=settled == 0)


def _encode(value: Figures | Block) -> bytes:
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:  # a name has half a surrogate pair
        return json.dumps(to_builtins(value, str_keys=True)).encode()


def read_state(store: Store, conversation: str) -> Figures | None:
    """Return the stored state from which the figures of a conversation are counted on. Return None
    if there is none, if other code wrote it, or if it is damaged.
    """
    from foldlog._reports.figures.counting import Figures

    cached = cached_records(store, _PROJECTION, conversation, conversation)
    _, record = cached.get(conversation, (0, None))
    if record is None or record.code != _STATE_CODE:
        return None
    figures: Figures | None = None
    with suppress(ValueError):
        figures = value_of(record.body, Figures)
    return figures
