"""The interface of a recorder, which stores rows of bytes. A recorder guarantees that ids are
unique, transactions are atomic, and later commits get higher positions.

The store adds dense ids, expected versions, rules, the hash chain and the kinds of events. A
recorder knows rows and transactions, but does not know events. Statements have names, and a
recorder runs a statement by its name. A statement has the same name, parameters and columns in
every database. Every recorder passes the tests in ``tests/conformance/test_recorders.py``.

Recorders raise ``StoreUnavailable`` or ``StoreRefused``. The error of the database driver is the
``__cause__`` of the raised error. The docstrings below give the ``kind`` of an error in
parentheses.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from functools import partial, wraps
from itertools import islice
from operator import attrgetter, itemgetter
from typing import Any, Final, TypeVar

from foldlog.eventstore.arguments import NUMBER_MAX
from foldlog.eventstore.codec_json import Attachment, Body, attachments_of
from foldlog.eventstore.errors import EventsNotMade, InvalidArgument, StoreDamaged, StoreUnavailable
from foldlog.eventstore.recorders.errors import FAILURES
from foldlog.eventstore.recorders.types import (
    NUMBERS,
    UNREADABLE,
    Ancestor,
    Chunk,
    Conversation,
    Erasure,
    ListedConversation,
    Outcome,
    Place,
    PlacedRow,
    RecalledKey,
    Record,
    Row,
    Stream,
    Unfinished,
    as_chunk,
    as_conversation,
    as_recalled,
    as_record,
    as_rows,
    as_stream,
    as_text,
    check_types,
    encodings,
)

T = TypeVar("T")

_ROWS: Final = 1_000
"""The number of rows that a query returns, or a statement writes, at once."""
PATIENCE_S: Final = 60.0
"""The default time, in seconds, for which a call waits for other writers or for an unreachable
server.
"""
SYNC_S: Final = 0.1
"""The time, in seconds, after which a transaction that is not ``durable`` is on the disk."""
AT_ONCE_S: Final = 0.1
"""The time, in seconds, for which a call with ``at_once`` waits for other writers."""

_WITH_BYTES = 16
"""The bit in a row's encoding that is set if the body has attachments."""
# ``tuple.__new__`` makes a named tuple in less time than a call of the tuple's class.
_new: Final = tuple.__new__
_has_no_attachments: Final = frozenset(range(_WITH_BYTES, 2 * _WITH_BYTES)).isdisjoint
_POSITION_MAX: Final = 2**63 - 1
_NUMBERS_OF_LISTED: Final = itemgetter(0, 2, 4, 5)
_columns_of_new: Final = attrgetter(
    "id", "visible", "created_at", "salt", "parent", "parent_version", "seed", "replaces"
)

DISCARDED: Final = "discarded"
"""The state of an operation ``detach`` that was given up. The operation copied events into a fork.
No more events are copied, and the copies are deleted, in several transactions.
"""

Columns = tuple[Any, ...]
"""A row of a query's result. Ids, names and texts are UTF-8 bytes."""


class Reader(ABC):
    """A read transaction. All its queries see the store at one moment."""

    @abstractmethod
    def ask(self, statement: str, *parameters: Any) -> list[Columns]:
        """Return the rows of a query. Its first parameter is the key of a conversation, or a value
        that belongs to no conversation.
        """

    def ask_ahead(self, questions: Iterable[tuple[str, Sequence[Any]]]) -> None:
        """Ask questions, each a statement with its parameters, and remember the answers for later
        ``ask`` in this transaction. On a server, all of them are one round trip. A database without
        round trips asks nothing ahead.
        """
        del questions

    def ask_all(self, statement: str, *parameters: Any) -> list[Columns]:
        """Return the rows of a query about the whole store. If several stores are joined, the rows
        of each store follow the rows of the store before it.
        """
        return self.ask(statement, *parameters)

    @abstractmethod
    def _array(self, values: Sequence[int] | Sequence[str]) -> Any:
        """Return the values as one parameter of a statement, in the form that the database reads as
        a list.
        """

    last_conversation: Any = None
    """The conversation of the last append, with its new state. If the next append is to the same
    conversation, it needs no query. The store sets ``last_conversation`` in a write transaction. In
    SQLite, the next write transaction of this process has the same value, unless another connection
    has committed. Any other change of a conversation sets ``last_conversation`` to None.
    """

    def value(self, name: str) -> str:
        """Return a fact about the store: see ``Recorder.value``. On a server, the fact ``now`` is
        the time of the server's clock, in microseconds since 1970.
        """
        kind, _, application = name.partition(" ")
        if kind == "tracking":
            [(newest,)] = self.ask("max_tracking_id", application)
            return "" if newest is None else str(newest)
        if name == "key_ids":
            # Return a damaged name too. If no name is returned, a process may write plain text.
            return " ".join(as_text(key_id) or "(damaged)" for (key_id,) in self.ask_all("key_ids"))
        rows = self.ask("store_value", name)
        return as_text(rows[0][0]) if rows else ""

    def trackings(self) -> list[tuple[str, str]]:
        """Return the names of all projections of the eventsourcing library, each with its position
        as in ``value``.
        """
        return [(as_text(follower), str(newest)) for follower, newest in self.ask("trackings")]

    def has_reached(self, reached: str, position: int) -> bool:
        """Return whether a follower that has read up to ``reached``, the text of a position, has
        read the event at ``position``.
        """
        return int(reached) >= position

    def conversation(
        self, name: str | int, expected: Conversation | None = None
    ) -> Conversation | None:
        """Return the conversation with the id ``name`` (a text) or the key ``name`` (a number). A
        staged conversation can be found only by its key. Return None if the conversation does not
        exist.

        A write transaction may return ``expected`` without a query. If ``expected`` is outdated,
        the database refuses every write of the transaction, and the work is run again.
        """
        if not isinstance(name, str | int):
            raise TypeError(f"the id of a conversation must be a text, not {name!r}")
        answer = self.ask("conversation_of" if isinstance(name, int) else "conversation", name)
        conversation = self._as_conversation(answer[0]) if answer else None
        if conversation is None or conversation.parent is None:
            return conversation
        lineage = tuple(
            Ancestor(key, stop, as_text(ancestor_id), encrypted == 1, parent)
            for key, stop, ancestor_id, encrypted, parent in self.ask(
                "lineage", conversation.parent, conversation.parent_version
            )
        )
        return conversation._replace(parent_id=lineage[0].id if lineage else "", lineage=lineage)

    def conversations(
        self, start: str, limit: int, *, forks_of: int | None = None
    ) -> Sequence[Conversation]:
        """Return published conversations with ids from ``start`` on, sorted by the UTF-8 bytes of
        their ids. With ``forks_of``, return only the forks of the conversation with the key
        ``forks_of``, including erased forks.
        """
        if forks_of is None:
            columns = self.ask("conversations", start, limit)
        else:
            columns = self.ask("forks", forks_of, start, limit)
        return list(map(self._as_conversation, columns))

    def conversations_among(self, keys: Sequence[int]) -> Sequence[Conversation]:
        """Return the conversations with these keys that are no forks."""
        rows = self.ask_all("conversations_among", self._array(keys))
        return list(map(self._as_conversation, rows))

    def last_changes(self, keys: Sequence[int]) -> Mapping[int, int]:
        """Return the ids of the last events that changed documents, by conversation."""
        rows: Mapping[int, int] = dict(self.ask_all("last_changes", self._array(keys)))
        return rows

    def living_forks(self, key: int) -> list[Conversation]:
        """Return the forks of the conversation ``key`` that are not erased."""
        forks = _all_pages(
            lambda start: self.conversations(start, _ROWS, forks_of=key), attrgetter("id"), ""
        )
        return [fork for fork in forks if fork.erasure is None]

    def unfinished(self, key: int | None = None) -> Sequence[Unfinished]:
        """Return the unfinished operation of the conversation ``key``. Without ``key``, return all
        unfinished operations, without the entries of archived and restored conversations.
        """
        return [
            Unfinished(conversation_key, *map(as_text, texts))
            for conversation_key, *texts in self.ask("unfinished", key)
        ]

    def rows(
        self,
        key: int,
        start: int,
        stop: int,
        limit: int = NUMBER_MAX,
        which: str = "rows",
        bytes_max: int | None = None,
    ) -> Sequence[Row]:
        """Return at most ``limit`` rows with ``start <= id < stop``, sorted by id. ``which`` is the
        name of the query. The query ``structural`` returns only structural rows, and
        ``redacted_rows`` only rows of redacted events. The query ``document_changes`` returns only
        rows that change documents, from the newest to the oldest. With ``bytes_max``, which
        only the query ``rows`` takes, the last row is the one that passes this number of bytes.
        """
        # A damaged index may find a row twice, but no more rows than the range has ids are read.
        limit = min(limit, max(stop - start, 0))
        if bytes_max is None:
            answer = self.ask(which, key, start, stop, limit)
        else:
            answer = self._rows_until(bytes_max, key, start, stop, limit)
        return self._with_attachments_in(as_rows(answer), key)

    @abstractmethod
    def _rows_until(self, bytes_max: int, *parameters: int) -> list[Columns]:
        """Return the columns of the query ``rows``, up to the row that passes ``bytes_max``."""

    def columns(
        self, key: int, start: int, stop: int, limit: int = NUMBER_MAX
    ) -> Sequence[Columns]:
        """Return the id, the kind (in UTF-8), ``shown``, ``structural`` and the position of each
        row that ``rows`` would return. On a server, staged rows have no position.
        """
        return self.ask("columns", key, start, stop, limit)

    @abstractmethod
    def flagged_rows(
        self, key: int, intervals: Sequence[tuple[int, ...]], bytes_max: int | None = None
    ) -> Sequence[Row]:
        """Return the shown or structural rows with ids in the intervals, sorted by id. The
        intervals are inclusive and ascending. An interval in another conversation has the key of
        that conversation as a third number. With ``bytes_max``, the last row that is read is the
        one that passes this number of bytes.
        """

    def flagged_question(
        self, key: int, intervals: Sequence[tuple[int, ...]], bytes_max: int | None = None
    ) -> tuple[str, Sequence[Any]]:
        """Return the question of ``flagged_rows`` for ``ask_ahead``."""
        return "flagged_rows", (key, intervals, bytes_max)

    def placed_rows(self, after_position: int, limit: int) -> Sequence[PlacedRow]:
        """Return at most ``limit`` rows after a position, in the order of positions. Every later
        commit gets higher positions. A failure of the server cannot undo the returned rows. Call
        ``placed_rows`` before any other method of a read transaction.

        If a row belongs to no conversation, its conversation id is an empty text.
        """
        placed: list[PlacedRow] = []
        while len(placed) < limit:
            block = self.ask("publications", after_position, after_position + 1)
            if not block:
                return placed + self._live_rows(after_position, _POSITION_MAX, limit - len(placed))
            # A block contains the events of one import. They got consecutive positions together,
            # when the import was published.
            [(first, key, first_id, size, conversation)] = block
            if after_position + 1 < first:
                placed += self._live_rows(after_position, first, limit - len(placed))
                after_position = first - 1
                if len(placed) == limit:
                    break
            start = first_id + after_position + 1 - first
            rows = self.rows(key, start, first_id + size, limit - len(placed))
            placed += [
                PlacedRow(first + row.id - first_id, as_text(conversation), row) for row in rows
            ]
            after_position = first + size - 1
        return placed

    def place_after(self, position: int) -> tuple[int, str, int] | None:
        """Return the position, the conversation and the id of the first row after ``position``. The
        row itself is not read, because it may be damaged. Cost: in a file, reading the whole index
        of events.
        """
        candidates: list[Columns] = [*self.ask("live_place", position + 1)]
        for first, _, first_id, _, conversation in self.ask("publications", position, position + 1):
            row_position = max(first, position + 1)
            candidates.append((row_position, conversation, first_id + row_position - first))
        if not candidates:
            return None
        row_position, conversation, event_id = min(candidates)
        return row_position, as_text(conversation), event_id

    def records(
        self, key: int, projection: str, version: int, limit: int, *, backwards: bool = False
    ) -> Sequence[Record]:
        """Return records of a projection for versions greater than ``version``, in ascending order.
        If ``backwards`` is true, return the records up to ``version`` in descending order. Raises
        ``StoreDamaged`` if they are out of order.
        """
        statement = "records_back" if backwards else "records"
        records = list(map(as_record, self.ask(statement, key, projection, version, limit)))
        versions = [record.version for record in records]
        if versions != sorted(versions, reverse=backwards) or (
            records and (versions[0] <= version) != backwards
        ):
            # A reader that goes on behind the last version would read these records for ever.
            raise StoreDamaged(
                f"the records of projection {projection!r} of conversation number {key} are out of"
                " order; run 'foldlog store verify', then 'foldlog store copy --damaged'"
            )
        return records

    def newest_records(self, key: int, limit: int) -> Sequence[Record]:
        """Return the newest record of each projection, for at most ``limit`` projections."""
        return list(map(as_record, self.ask("newest_records", key, limit)))

    def records_of(
        self, projection: str, first: str, last: str
    ) -> Sequence[tuple[str, bool, int, Record | None]]:
        """For each conversation with an id from ``first`` to ``last``, return the id, whether it is
        encrypted, its version and its newest record. Erased and invisible conversations are left
        out.
        """
        return [
            (as_text(name), encrypted == 1, version, None if row[0] is None else as_record(row))
            for name, encrypted, version, *row in self.ask_all(
                "records_of", projection, first, last
            )
        ]

    def ids_with_records(self, projection: str) -> list[str]:
        return [as_text(name) for (name,) in self.ask_all("ids_with_records", projection)]

    def streams(self, key: int) -> list[Stream]:
        """Return the streams of a conversation, the newest first."""
        return list(map(as_stream, self.ask("streams", key)))

    def stream(self, key: int, number: int) -> Stream | None:
        for columns in self.ask("stream", key, number):
            return as_stream(columns)
        return None

    def chunks(self, key: int, number: int, after: int, limit: int) -> list[Chunk]:
        """Return at most ``limit`` chunks of a stream that end behind the unit ``after``, in order.
        The first chunk may begin before ``after``.
        """
        return list(map(as_chunk, self.ask("stream_chunks", key, number, after, limit)))

    def recalled_among(
        self, key: int | None, idempotency_keys: Sequence[str]
    ) -> Sequence[tuple[int, str, RecalledKey]]:
        """Return the idempotency keys in ``idempotency_keys`` that are stored. Each result contains
        the key of the conversation, the idempotency key, and its events without their positions.

        If ``key`` is None, search all conversations. This search needs an index of idempotency keys
        in the database schema.
        """
        names = self._array(idempotency_keys)
        if key is None:
            rows = self.ask_all("recalled_anywhere", names)
        else:
            rows = self.ask("recalled_among", key, names)
        return [(owner, as_text(name), as_recalled(entry)) for owner, name, *entry in rows]

    def recall(self, key: int, idempotency_key: str) -> RecalledKey | None:
        """Return the events of an idempotency key with the position of the first event, or None."""
        for _, *entry in self.ask("recall", key, idempotency_key):
            return as_recalled(entry)
        return None

    def recalled(self, key: int, start: str, limit: int) -> Sequence[tuple[str, RecalledKey]]:
        """Return idempotency keys from ``start`` on, sorted by their UTF-8 bytes."""
        rows = self.ask("recalled", key, start, limit)
        return [(as_text(name), as_recalled(entry)) for name, *entry in rows]

    def all_recalled(self, key: int, start: str = "") -> Iterator[tuple[str, RecalledKey]]:
        """Yield all idempotency keys of a conversation from ``start`` on, by pages."""
        return _all_pages(lambda start: self.recalled(key, start, _ROWS), itemgetter(0), start)

    def id_from(self, start: str) -> str | None:
        """Return the first id of a published conversation from ``start`` on, or None. Ids are
        sorted by their UTF-8 bytes.
        """
        rows = self.ask("id_from", start)
        return as_text(rows[0][0]) if rows else None

    def has_beginning(self, start: str) -> bool:
        """Return whether the id of any published conversation begins with the text ``start``."""
        # The ids with this beginning follow one another, so the first of them is enough.
        name = self.id_from(start)
        return name is not None and name.startswith(start)

    def touched(
        self, after_position: int, min_version: int
    ) -> tuple[int, Sequence[tuple[int, int]]]:
        """Return the last position, and the conversations whose list entries may be outdated: the
        key of each conversation, and the version in its list entry. An entry may be outdated if the
        conversation has an event after ``after_position``, or if the version in the entry is
        negative and at least ``min_version``. If ``after_position`` is 0, every visible
        conversation is returned, except for erased conversations.

        The version is -1 if the list lacks the conversation. The version is -2 if only a process
        with the encryption key can list the conversation.

        Call ``touched`` before any other method of a read transaction.
        """
        until = int(self.value("last_position"))
        if after_position > 0:
            rows = self.ask("touched", after_position, until, min_version)
        else:
            rows = self.ask_all("all_visible")
        return until, [(key, version) for key, version in rows]

    def next_touched(
        self, after_position: int, events: int
    ) -> tuple[int, int | None, Sequence[tuple[int, int]]]:
        """Return the position up to which about ``events`` events were looked at, its time, and
        the conversations whose list entries may be outdated: see ``touched``. ``after_position``
        must not be 0. The time is in microseconds since 1970, 0 if the position is that of a
        publication, which has no time, or None if the position is the last one.
        """
        until = last = int(self.value("last_position"))
        at = None
        for position, recorded_at in (
            *self.ask("event_behind", after_position, last, events),
            *self.ask("publication_behind", after_position, last, events),
        ):
            if position < until:
                until = position
                at = int.from_bytes(recorded_at)
        rows = self.ask("touched", after_position, until, 0)
        return until, at, [(key, version) for key, version in rows]

    def visible_behind(self, key: int, limit: int) -> Sequence[tuple[int, int]]:
        """Return the keys of the conversations behind a key, and the versions in their list
        entries. Erased conversations are left out.
        """
        rows = self.ask_all("visible_behind", key, limit)
        return sorted((row_key, version) for row_key, version in rows)[:limit]

    def unlisted(self, key: int, until: int) -> tuple[int, bool]:
        """Return how many conversations up to a key, with an event up to the position ``until``,
        are in no list, and whether the store has given this position.
        """
        [(unlisted, is_given)] = self.ask("unlisted", key, until)
        return unlisted, bool(is_given)

    def changed_since(self, after_position: int, events: int) -> tuple[int, Sequence[int] | None]:
        """Return the last position, and the keys of the conversations with events or ledger entries
        after ``after_position``. The keys are None if there are more than ``events`` of these, and
        a look at all conversations may cost less. In joined stores, the keys are None if one store
        has more than its share of ``events``. Events that are committed and not yet below the last
        position are included. Call this method before any other method of a read transaction.
        """
        until = int(self.value("last_position"))
        if self.ask("event_behind", after_position, _POSITION_MAX, events):
            return until, None
        rows = self.ask("touched", after_position, _POSITION_MAX, 0)
        return until, [key for key, _ in rows]

    def newest_touched(self, events: int) -> Sequence[int]:
        """Return the keys of the conversations that have the newest ``events`` events, the newest
        first.
        """
        rows = self.ask_all("newest_touched", events)
        return [key for key, _ in sorted(rows, key=itemgetter(1), reverse=True)]

    def to_list_again(self, min_version: int) -> Sequence[tuple[int, int]]:
        """Return the conversations whose list entry has a negative version of at least
        ``min_version``, as ``touched`` does.
        """
        return [(key, version) for key, version in self.ask("to_list_again", min_version)]

    def listed(
        self, digests: Sequence[bytes], before: tuple[int, int] | None, limit: int
    ) -> Sequence[ListedConversation]:
        """Return the conversations whose attributes match all ``digests``, sorted by last activity
        from the newest to the oldest.

        ``before`` contains the time of the last activity, and the key, of the last conversation on
        the previous page.
        """
        return self._as_listed(
            self._ask_listed(digests, *(before or (_POSITION_MAX, _POSITION_MAX)), limit)
        )

    def listed_among(self, keys: Sequence[int]) -> Sequence[ListedConversation]:
        """Return the list entries of some conversations."""
        return self._as_listed(self.ask_all("listed_among", self._array(keys)))

    def _as_listed(self, rows: Sequence[Columns]) -> Sequence[ListedConversation]:
        """Return the rows of an answer as list entries. Raises ``StoreDamaged`` if a column that
        holds a number holds something else.
        """
        for columns in rows:
            check_types(
                f"the listing of conversation number {columns[0]}",
                NUMBERS,
                _NUMBERS_OF_LISTED(columns),
            )
        return [
            # A long list makes many of these objects: ``benchmarks/listing.py`` shows the time.
            _new(ListedConversation, (
                key, as_text(name), created_at, encrypted == 1, at, version,
                None if attributes[0] is None else as_record(attributes), is_missing == 1,
            ))
            for key, name, created_at, encrypted, at, version, is_missing, *attributes in rows
        ]  # fmt: skip

    @abstractmethod
    def _ask_listed(
        self, digests: Sequence[bytes], at: int, key: int, limit: int
    ) -> list[Columns]: ...

    def _as_conversation(self, columns: Columns) -> Conversation:
        """Return the state of a conversation, with the end that a fork without own events shares
        with its parent.
        """
        # A fork without own events ends with an event of its parent, which may be missing.
        conversation = as_conversation(columns)
        if conversation.parent is None or conversation.version:
            return conversation
        border = self.rows(conversation.parent, conversation.begins - 1, conversation.begins)
        if not border:
            return conversation._replace(version=conversation.begins)
        if border[0].meta is UNREADABLE:
            damaged = (
                f"the last event that conversation number {conversation.key} shares with its parent"
            )
            raise StoreDamaged(
                f"{damaged} is damaged; run 'foldlog store verify', then 'foldlog store copy"
                " --damaged'"
            )
        return conversation.grown(border[0])

    def _live_rows(self, after_position: int, before: int, limit: int) -> list[PlacedRow]:
        # The statement leaves out imported rows, because their positions are stored as blocks.
        return self._placed_rows(self.ask("live_rows", after_position + 1, before, limit))

    def _placed_rows(self, answer: Sequence[Columns]) -> list[PlacedRow]:
        check_types("a row of an event", NUMBERS, [columns[5] for columns in answer])
        rows = self._with_attachments_under(
            as_rows([columns[:3] for columns in answer]), [columns[5] for columns in answer]
        )
        return [
            PlacedRow(columns[3], as_text(columns[4]), row, columns[5] <= 0)
            for columns, row in zip(answer, rows, strict=True)
        ]

    # -- attachments: bytes beside the bodies of rows

    def _with_attachments_in(
        self, rows: Sequence[Row], key: int, intervals: Sequence[tuple[int, ...]] = ()
    ) -> Sequence[Row]:
        """Add the attachments to rows of the conversation ``key``. The rows in an interval of
        ``flagged_rows`` with a third number belong to the conversation with this key.
        """
        if _has_no_attachments(encodings(rows)):
            return rows
        ancestors = [
            (first, last, ancestor_key[0])
            for first, last, *ancestor_key in intervals
            if ancestor_key
        ]
        keys = [
            next((ancestor for first, last, ancestor in ancestors if first <= row.id <= last), key)
            for row in rows
        ]
        return self._with_attachments_under(rows, keys)

    def _with_attachments_under(self, rows: Sequence[Row], keys: Sequence[int]) -> Sequence[Row]:
        """Add the attachments to rows. ``keys`` has the key of the conversation of each row. A
        missing attachment is left out, because the row codec reports it.
        """
        if _has_no_attachments(encodings(rows)):
            return rows
        ids_by_key: dict[int, list[int]] = {}
        for key, row in zip(keys, rows, strict=True):
            if _has_attachments(row):
                ids_by_key.setdefault(key, []).append(row.id)
        attachments: dict[tuple[int, bytes, int], list[Columns]] = {}
        attachments_of_row: dict[tuple[int, int], list[Attachment]] = {}
        for key, ids in ids_by_key.items():
            for event_id, name, encoding in self.ask("attached", key, self._array(ids)):
                address = (key, name, encoding)
                if address not in attachments:
                    attachments[address] = self.ask("attachment", *address)
                for (body,) in attachments[address]:
                    attachments_of_row.setdefault((key, event_id), []).append(
                        Attachment(name, encoding, body)
                    )
        return [
            (
                row._replace(body=Body.of(row.body, attachments_of_row.get((key, row.id), ())))
                if _has_attachments(row)
                else row
            )
            for key, row in zip(keys, rows, strict=True)
        ]


def _all_pages(
    read: Callable[[str], Sequence[T]], name_of: Callable[[T], str], start: str
) -> Iterator[T]:
    """Yield the items of all pages. ``read`` returns the page that begins at a name."""
    while True:
        page = read(start)
        yield from page
        if len(page) < _ROWS:
            return
        start = name_of(page[-1]) + "\0"  # the least text after this name


def _has_attachments(row: Row) -> bool:
    return not _has_no_attachments((row.encoding,)) and isinstance(row.body, bytes)


class Transaction(Reader):
    """A write transaction. After it has read the row of a conversation, no other writer can change
    the conversation until the transaction ends.
    """

    @abstractmethod
    def write(self, statement: str, *parameters: Any) -> object:
        """Run a statement. Its first parameter is the key of a conversation, as in ``ask``."""

    def write_all(self, statement: str, *parameters: Any) -> None:
        """Run a statement about the whole store."""
        self.write(statement, *parameters)

    @abstractmethod
    def _delete(self, statement: str, key: int, limit: int) -> bool:
        """Delete at most ``limit`` rows, and return True if no row remains."""

    def _state(self, key: int) -> Columns:
        """Return whether a conversation is visible, and whether it is erased. A conversation that
        does not exist is not staged, so it counts as visible. From now on, other writers of a
        staged conversation wait.
        """
        for state in self.ask("state", key):
            return state
        return (True, False)

    def _check_staged(self, key: int) -> None:
        if self._state(key) != (False, False):
            raise StoreUnavailable(
                f"conversation number {key} is no longer staged: its import was discarded, or is"
                " already published; import the source again",
                kind="taken",
            )

    @abstractmethod
    def _place_first(self, key: int, size: int) -> None:
        """Give the next positions to the first ``size`` events of a conversation."""

    def lock_all(self, conversations: Iterable[str]) -> None:
        """Lock the conversations in a fixed order, which prevents deadlocks."""

    def begin(self, new: Conversation) -> Conversation:
        """Begin a conversation, and return the conversation with its key. A conversation that is
        not ``visible`` is staged, and gets the unfinished operation ``import``. Several staged
        conversations may have the same id. A new conversation that ``replaces`` an erased
        conversation gets the id of the erased conversation. As soon as the new conversation is
        visible, a search by id finds it, and the tombstone can be found only by its key. Raises
        ``StoreUnavailable`` (``taken``), here or at the commit, if the id is in use. Raises the
        same error if the conversation to replace was not erased, or was already replaced.
        """
        if new.replaces is not None and new.visible:
            self.write("hide_tombstone", new.replaces)
        key = self._begin_row(new, *_columns_of_new(new))
        if not new.visible:
            self.write("leave_unfinished", "import", "", key)
        return new._replace(key=key)

    @abstractmethod
    def _begin_row(self, new: Conversation, *columns: Any) -> int: ...

    @abstractmethod
    def insert(self, key: int, rows: Sequence[Row], *, staged: bool = False) -> Place:
        """Insert rows with consecutive ids at consecutive positions. After the commit, the returned
        function gives the first position. Raises ``StoreUnavailable`` (``taken``), here or at the
        commit, if an event with one of the ids exists.

        Set ``staged`` if the conversation is staged. The ids in a staged conversation begin at 0
        and have no gaps. Staged rows get positions when the conversation is published. Raises
        ``StoreUnavailable`` (``taken``) if the conversation is no longer staged.
        """

    def delete(self, key: int, limit: int) -> bool:
        """Delete at most ``limit`` rows of a staged or erased conversation. If the conversation is
        visible and not erased, delete the copies of shared events that an incomplete detachment has
        made (``insert_past``). Return True if no row remains. Together with the last row, delete
        the conversation's other data and its unfinished operation. A staged conversation without
        remaining rows is deleted completely.
        """
        visible, erased = self._state(key)
        if visible and not erased:
            return self._delete_copies(key, limit)
        if erased:
            self.write("leave_bytes", key)
        is_done = self._delete_all(key, limit)
        if is_done and not erased:
            self.write("delete_conversation", key)
        return is_done

    # -- changes of a conversation that exists, in the order of its life

    def remember(self, key: int, idempotency_key: str, recalled: RecalledKey) -> None:
        self.write(
            "remember", key, idempotency_key, recalled.first_id, recalled.events, recalled.proof
        )

    def prove(self, key: int, idempotency_key: str, proof: bytes | None) -> None:
        self.write("prove", proof, key, idempotency_key)

    def set_key(self, conversation: Conversation, *, first: bool = False) -> None:
        """Store the salt and the wrapped data key of ``conversation``. It is missing from lists
        until a process with the new key lists it again. ``first`` is true if no data of the
        conversation is stored yet.
        """
        key = conversation.key
        self.forget()
        if not first:
            self._leave_bytes(key)
            self.forget_figures(key)
        self.write("leave_listed", key)
        self.write("list_again", key)
        self.write("set_key", conversation.salt, conversation.key_id, conversation.sealed_key, key)

    def set_mark(self, key: int, mark: bytes | None) -> None:
        self.last_conversation = None
        self.write("set_mark", mark, key)

    def publish(self, key: int, events: int) -> None:
        """Make a staged conversation with ``events`` events visible. The conversation's events get
        the next positions, at a constant cost. Raises ``StoreUnavailable`` (``taken``), here or at
        the commit, if the conversation is no longer staged or another conversation has its id.
        """
        self.forget()
        self._check_staged(key)
        for statement in ("hide_replaced_tombstone", "publish", "finish"):
            self.write(statement, key)
        self._place_first(key, events)

    @abstractmethod
    def insert_past(self, key: int, rows: Sequence[Row]) -> None:
        """Insert rows before the first own event of a fork. No follower reads the inserted rows
        before ``place_past`` gives them positions.
        """

    def place_past(self, key: int, events: int) -> None:
        """Separate a fork from its parent. The copied rows of the fork get the next positions, so
        followers read them. ``events`` is the number of copied rows.
        """
        self.forget()
        self.forget_figures(key)
        self.write("leave_parent", key)
        self._place_first(key, events)

    def replace_rows(self, key: int, rows: Sequence[Row], *, redactions: int = 0) -> None:
        self.forget()
        self._leave_bytes(key)
        self.forget_figures(key)
        for row in rows:
            self.write("replace_row", row.meta, row.body, key, row.id)
        self.write("detach", key, self._array([row.id for row in rows]))
        self._attach(key, rows)
        self.write("delete_unattached", key)
        if redactions:
            self.write("count_redactions", redactions, key)

    def put_records(
        self, key: int, projection: str, records: Iterable[Record], *, replace_all: bool = False
    ) -> None:
        """Store records of a projection. A new record replaces the stored record of its version. If
        ``replace_all`` is true, all earlier records of the projection are deleted first. Records
        that belong to no conversation have the key 0.
        """
        if replace_all:
            self.write("delete_records", projection, key)
        for record in records:
            self.write("put_record", projection, key, *record[:5])

    def put_stream(self, key: int, stream: Stream) -> None:
        """Store a stream, which replaces the stored stream with its number. The end of an open
        stream is not stored, because its last chunk has it.
        """
        end = None if stream.closed_at is None else stream.end
        self.write("put_stream", key, *stream[:5], end, *stream[6:])

    def put_chunk(self, key: int, number: int, chunk: Chunk) -> None:
        """Store a chunk. Raises ``StoreUnavailable`` (``taken``), here or at the commit, if the
        stream has a chunk that begins at the same unit.
        """
        self.write("put_stream_chunk", key, number, *chunk)

    def replace_chunk(self, key: int, number: int, chunk: Chunk) -> None:
        self._leave_bytes(key)
        self.write("replace_stream_chunk", *chunk[2:], key, number, chunk.begins)

    def delete_stream(self, key: int, number: int) -> None:
        self.write("delete_chunks_of_stream", key, number)
        self.write("delete_stream", key, number)

    def put_listing(self, key: int, at: int, version: int, digests: Sequence[bytes] | None) -> None:
        """Write the list entry of a conversation: the time ``at`` of its last activity, its
        version, and the digests of its attributes. If ``digests`` is None, the stored digests stay.
        """
        self._hold_listing(key)
        self.write("leave_listed", key)
        self.write("put_listing", key, at, version, None if digests is None else b"".join(digests))
        self.write("put_listed", key)

    def _hold_listing(self, key: int) -> None:
        """Wait until no other writer changes the list entry of a conversation. From then on, the
        next statements of this transaction see the entry as it is.
        """

    def count_redactions(self, key: int, events: int) -> None:
        self.forget()
        self.forget_figures(key)
        self.write("count_redactions", events, key)

    def leave_unfinished(self, key: int, operation: str, state: str = "") -> None:
        # This operation replaces any other unfinished operation of the conversation.
        self.write("leave_unfinished", operation, state, key)

    def finish(self, key: int) -> None:
        self.write("finish", key)

    def erase(self, key: int, erasure: Erasure) -> None:
        """Turn a conversation into a tombstone. After the erasure, the conversation's rows cannot
        be read, its salt and key are deleted, and no list contains it. To delete the conversation's
        rows and its other data, call ``delete`` until it returns True.
        """
        self.forget()
        self._leave_bytes(key)
        self.delete_figures(key)
        self._hold_listing(key)
        for statement in ("refuse", "delete_places", "leave_listed", "delete_listing"):
            self.write(statement, key)
        self.write(
            "erase_conversation",
            erasure.erased_at,
            erasure.reason,
            erasure.events,
            erasure.head,
            key,
        )

    def set_unmade(self, key: int, records: int) -> None:
        """Set the number of source records that have no events yet."""
        self.forget()
        self.write("set_pending", records, key)

    def archive(self, key: int, before: int, events: int) -> None:
        """Delete the rows before event ``before``. The caller has already copied these rows to an
        object store. ``events`` is the number of deleted rows.
        """
        self.forget()
        self.write("delete_archived", key, before)
        self.write("detach", key, self._array([*range(before)]))
        self.write("delete_unattached", key)
        # The column is positive for records without events, and negative for archived events.
        self.write("set_pending", -events, key)

    @abstractmethod
    def insert_again(self, key: int, rows: Sequence[Row], positions: Sequence[int | None]) -> None:
        """Insert the rows of an archived conversation at their earlier positions. A row has no
        position if it was imported into a store on a server.
        """

    def forget_figures(self, key: int) -> None:
        """Delete the figures of a conversation, because they may contain erased text, and note that
        they must be counted again from the remaining events.
        """
        self.delete_figures(key)
        self.write("note_uncounted", key)

    def delete_figures(self, key: int) -> None:
        """Delete the figures of a conversation, but do not note that they must be counted again.
        Only a caller may do so that leaves no events to count, or that has the figures elsewhere.
        Any other caller uses ``forget_figures``.
        """
        statements = (
            "forget_figures",
            "forget_figure_calls",
            "forget_figure_replies",
            "forget_figure_counts",
            "forget_figure_block",
            "mark_figures",
        )
        for statement in statements:
            self.write(statement, key)

    def forget(self) -> None:
        # The caller changes a conversation, which may be the conversation in ``last_conversation``.
        self.last_conversation = None

    def _leave_bytes(self, key: int) -> None:
        # The files contain the bytes of the rows until ``Recorder.compact`` removes them.
        self.write("leave_bytes", key)

    # -- steps

    def write_rows(self, statement: str, key: int, rows: Iterable[Sequence[Any]]) -> None:
        """Run ``statement``, which writes ``rows`` of numbers and texts for one conversation. The
        texts must not contain a NUL character or a lone surrogate, because some databases refuse
        them.
        """
        remaining = iter(rows)
        while page := [*islice(remaining, _ROWS)]:
            self.write(statement, key, json.dumps(page))

    def set_value(self, name: str, value: str) -> None:
        """Store a fact about the store: see ``Recorder.value``. For a ``tracking``, the value is a
        position. Raises ``StoreUnavailable`` (``taken``) if the position is not above the stored
        position. An empty text deletes the ``tracking``.
        """
        kind, _, application = name.partition(" ")
        if kind != "tracking":
            self.write("set_value", name, value)
        elif not value:
            self.write("forget_tracking", application)
        else:
            newest = self.value(name)
            if newest and int(newest) >= int(value):
                raise StoreUnavailable(
                    f"{application!r} is already at notification {newest}, so notification {value}"
                    " comes too late",
                    kind="taken",
                )
            self._insert_tracking(application, int(value))

    def _insert_tracking(self, application: str, notification_id: int) -> None:
        self.write("insert_tracking", application, notification_id)

    def _attach(self, key: int, rows: Sequence[Row]) -> None:
        for row in rows:
            for name, encoding, body in attachments_of(row.body):
                self.write("keep_attachment", key, name, encoding, body)
                self.write("attach", key, row.id, name, encoding)

    def _delete_all(self, key: int, limit: int) -> bool:
        """Delete a limited part of a conversation. Return whether nothing is left of it."""
        parts = ("delete_rows", "delete_attachments", "delete_blocks", "delete_stream_chunks")
        if not all(self._delete(statement, key, limit) for statement in parts):
            return False
        for statement in (
            "delete_streams",
            "delete_made",
            "delete_source",
            "detach_all",
            "forget_keys",
            "forget_records",
            "finish",
        ):
            self.write(statement, key)
        return True

    def _delete_copies(self, key: int, limit: int) -> bool:
        if all(unfinished.operation != "detach" for unfinished in self.unfinished(key)):
            return True
        self.write("leave_bytes", key)
        self.write("leave_unfinished", "detach", DISCARDED, key)
        if not self._delete("delete_copies", key, limit):
            return False
        for statement in ("detach_copies", "delete_unattached", "finish"):
            self.write(statement, key)
        return True


Method = TypeVar("Method", bound=Callable[..., Any])


def makes_missing_events(method: Method) -> Method:
    """Decorate a method that runs work in a transaction. If the work needs events that an import
    has not made yet, end the transaction, make the events, and run the work again. If this recorder
    is read-only, ``on_missing`` returns another recorder, which runs the work.
    """

    @wraps(method)
    def call(self: Recorder, *args: Any, **options: Any) -> Any:
        while True:
            try:
                return method(self, *args, **options)
            except EventsNotMade as missing:
                other = self.make(missing)
                if other is not None:
                    return getattr(other, method.__name__)(*args, **options)

    return call  # type: ignore[return-value]


class Recorder(ABC):
    """A database that contains one store."""

    path: str | None = None
    """The file of the store, or None if the store is on a server or in memory."""
    writable = True
    on_server = False
    """Whether the database is on a server. On a server, each writer has its own transaction, and
    ``value("data_version")`` needs a round trip.
    """
    store_count = 1
    """The number of stores that this recorder joins."""

    on_missing: Callable[[EventsNotMade], Recorder | None] | None = None
    """``on_missing`` makes missing events of an import when a transaction needs them. The recorder
    calls ``on_missing`` after the end of the transaction, then runs the work again. If this
    recorder cannot store the events, ``on_missing`` returns another recorder, and the work runs in
    the returned recorder.
    """
    on_copy: Callable[[Transaction, int], None] = staticmethod(lambda transaction, last: None)
    """The first write transaction on a copied file calls ``on_copy`` with the last position in the
    file.
    """

    @property
    def on_citus(self) -> bool:
        """Whether the store is on Citus, whose tables cannot have triggers."""
        return False

    def make(self, missing: EventsNotMade) -> Recorder | None:
        if self.on_missing is None:
            raise missing
        return self.on_missing(missing)

    @abstractmethod
    def transact(
        self,
        work: Callable[[Transaction], T],
        *,
        any_thread: bool = False,
        at_once: bool = False,
        durable: bool = True,
    ) -> T:
        """Run ``work`` in a write transaction. Wait until the transaction is durable, then return
        the result of ``work``.

        If ``durable`` is false, the transaction survives the end of this process, but may be lost
        in a power cut. In a file, it is on the disk ``SYNC_S`` seconds later. A server writes it to
        its own disk at once, and does not wait for a standby.

        Several callers may share one transaction and its fsync. If ``work`` raises an error, its
        writes are not stored, and only its caller gets the error. ``work`` may run more than once,
        so its writes must be its only effects. Without ``any_thread``, ``work`` runs in the thread
        of its caller. If ``any_thread`` is true, ``work`` may run in the thread of another caller.
        Use ``any_thread`` only if ``work`` calls nothing but foldlog's code.

        Raises ``StoreRefused`` (``nested``) if this thread is already inside ``transact``. Raises
        ``StoreUnavailable`` (``busy``) if other writers block the call for longer than the
        recorder's patience. With ``at_once``, the call waits for other writers for at most
        ``AT_ONCE_S`` seconds.
        """

    def offer(self, work: Callable[[Transaction], object], *, at_once: bool = True) -> bool:
        """Write data whose loss does no harm, and return True. Write nothing and return False if
        this recorder is read-only, if other writers block the call, or if the database fails. With
        ``at_once``, the call gives up after ``AT_ONCE_S`` seconds. Use ``at_once`` if the data can
        be made again later.
        """
        with suppress(*FAILURES):
            if self.writable:
                self.transact(work, at_once=at_once)
                return True
        return False

    def transact_all(
        self, works: Sequence[tuple[Callable[[Transaction], T], bool]]
    ) -> Sequence[Outcome[T]]:
        """Run several pieces of work as ``transact`` does, in as few transactions as possible. Each
        pair contains a piece of work and its ``any_thread``. Return the result of each piece, or
        the error that ``transact`` would have raised.
        """
        return [Outcome.of(partial(self.transact, work)) for work, _ in works]

    @abstractmethod
    def read(self) -> AbstractContextManager[Reader]:
        """Begin a read transaction, which never waits for writers."""

    @makes_missing_events
    def query(self, work: Callable[[Reader], T]) -> T:
        """Run ``work`` in a read transaction, and return the result of ``work``.

        If the connection to the database breaks, ``work`` runs again in a new read transaction, so
        ``work`` must have no effects.
        """
        with self.read() as reader:
            return work(reader)

    def succeed(self, former: Recorder) -> None:  # noqa: B027 - only joined stores need it
        """Prepare this recorder to receive copies of the conversations of ``former``. Afterwards,
        all new positions of this recorder are higher than the positions of ``former``. ``succeed``
        also copies the facts that say which store contains each fork.
        """

    def position(self, position: int | str) -> int:
        """Convert a position from a number or a text to a number. Raises ``InvalidArgument`` if the
        text is not a position. A number is not checked.
        """
        # ``int`` refuses a text of thousands of digits with an error of its own.
        if isinstance(position, str) and not (
            position.isdecimal()
            and len(position) <= len(str(NUMBER_MAX))
            and int(position) <= NUMBER_MAX
        ):
            raise InvalidArgument(
                f"{position!r} is not a position; pass str(recorded.position) of an event that"
                " follow yielded"
            )
        return int(position)

    def value(self, name: str) -> str:
        """Return a fact about the store, or an empty text if the fact is unknown.

        The facts are ``uuid``, ``last_position`` (the highest position of an event),
        ``bytes_pending``, and ``key_ids`` (the names of the wrapping keys of visible conversations,
        separated by spaces). ``tracking NAME`` is the position of a projection of the eventsourcing
        library.

        Outside of transactions, ``data_version`` is a number that changes whenever another
        connection has committed. Reading ``data_version`` is cheap enough for polling.
        """
        return self.query(lambda reader: reader.value(name))

    @property
    def last_conversation(self) -> Any:
        """The value of ``Reader.last_conversation`` after the last committed transaction.
        ``last_conversation`` is None while a transaction runs, after a commit of another
        connection, or if checking for such a commit would be expensive.
        """
        return None

    def store_of(self, conversation: str | int) -> int:
        """Return which of several joined stores has a conversation, named by its id or its key."""
        return 0

    def by_store(
        self, items: Iterable[T], conversation_of: Callable[[T], str | int]
    ) -> Iterable[Sequence[T]]:
        """Group items by the store that has their conversations: a transaction can write only to
        stores of one server.
        """
        groups: dict[int, list[T]] = {}
        for item in items:
            groups.setdefault(self.store_of(conversation_of(item)), []).append(item)
        return groups.values()

    @abstractmethod
    def compact(self, patience_s: float) -> bool:
        """Remove the bytes of deleted and replaced rows. If rows are deleted while ``compact``
        runs, their bytes may stay in the files until the next call. A store in a file is rewritten
        completely. On a server, the tables are vacuumed once, and numbers of the server prove that
        the rows are gone. Return False if only the owner of the tables can remove the bytes.
        Raises ``StoreUnavailable`` (``read``) if a reader that began earlier still needs the bytes
        after ``patience_s`` seconds. After this error, the bytes stay pending, and a file does not
        shrink.

        Events keep their positions in a rewritten file. Readers continue during ``compact``, but
        the writers of a file wait. Rewriting a file needs as much free disk space as the file.
        """

    @abstractmethod
    def check(self, is_stopped: Callable[[], bool] = lambda: False) -> Iterator[str]:
        """Yield the problems of the database: damaged pages or indices, and rows without a
        conversation.

        Soon after ``is_stopped()`` has become true, the generator ends, perhaps with an
        ``EventStoreError``. A server finishes the running statement first.

        The call imports modules; the iteration, which may be in another thread, imports none.
        Python 3.11 fails to parse two modules in two threads at once, and pytest parses the modules
        of foldlog.
        """

    def unchecked(self) -> Iterator[str]:
        """Yield what ``check`` could not compare, because a newer version of foldlog made it."""
        return iter(())

    @abstractmethod
    def close(self) -> None: ...
