"""The interface of a recorder, which stores rows of bytes: uniqueness, atomicity and positions.

The store on top of a recorder adds dense ids, expected versions, rules, the hash chain and the
registry. A recorder knows rows and transactions, and nothing of events. A recorder runs statements
by name. The statements have the same names, parameters and columns in each database. Every recorder
passes the suite in ``tests/conformance/test_recorders.py``.

Recorders raise ``StoreUnavailable`` and ``StoreUnusable``, with the driver's error as cause. The
docstrings below name these errors by their ``kind``: ``taken``, ``busy``, ``nested``.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from functools import partial, wraps
from itertools import islice
from operator import itemgetter
from typing import Any, Final, TypeVar

from foldlog.eventstore.arguments import NUMBER_MAX
from foldlog.eventstore.codec_json import Attachment, Body, attachments_of
from foldlog.eventstore.errors import EventsNotMade, InvalidArgument, StoreDamaged, StoreUnavailable
from foldlog.eventstore.recorders.errors import FAILURES
from foldlog.eventstore.recorders.types import (
    NUMBERS,
    UNREADABLE,
    Ancestor,
    Conversation,
    Erasure,
    ListedConversation,
    Outcome,
    Place,
    PlacedRow,
    RecalledKey,
    Record,
    Row,
    Unfinished,
    as_conversation,
    as_recalled,
    as_record,
    as_rows,
    as_text,
    check_types,
    encodings,
    utf8,
)

T = TypeVar("T")

_ROWS: Final = 1_000
"""The number of rows that one statement writes."""
PATIENCE_S: Final = 60.0
"""The default time for which a call waits for other writers, or for a server that is
unreachable.
"""
AT_ONCE_S: Final = 0.1
"""The time for which a call with ``at_once`` waits for other writers."""

_WITH_BYTES = 16
"""The bit in the encoding of a row that says that its body has attachments; see the row codec."""
_new: Final = tuple.__new__  # makes a named tuple without the call of its own ``__new__``
_has_no_attachments: Final = frozenset(range(_WITH_BYTES, 2 * _WITH_BYTES)).isdisjoint
_POSITION_MAX: Final = 2**63 - 1
_NUMBERS_OF_LISTED: Final = itemgetter(0, 2, 4, 5)

DISCARDED: Final = "discarded"
"""The state of a detachment whose copies are being deleted, in several transactions. While a
detachment has this state, no copy is added.
"""

Columns = tuple[Any, ...]
"""One row of a result. Ids, names and texts are UTF-8 bytes."""


class Reader(ABC):
    """One read transaction. All queries of a read transaction show the store at one moment."""

    @abstractmethod
    def _ask(self, statement: str, *parameters: Any) -> list[Columns]:
        """Run the query of this name. Texts become UTF-8 bytes."""

    @abstractmethod
    def _array(self, values: Sequence[int] | Sequence[str]) -> Any:
        """Return whole numbers or texts as one parameter."""

    last_conversation: Any = None
    """The state of a conversation after the last append, so that the next append need not read this
    state. The store sets this state in a write transaction. In SQLite, the next write transaction
    of this process has the state, if nothing else was written since. Any other change of a
    conversation sets the state to None.
    """

    def value(self, name: str) -> str:
        """Return a fact about the store: see ``Recorder.value``. The name ``now`` is the clock of a
        server, in microseconds.
        """
        kind, _, application = name.partition(" ")
        if kind == "tracking":
            [(newest,)] = self._ask("max_tracking_id", application)
            return "" if newest is None else str(newest)
        if name == "trackings":
            return json.dumps(
                [(as_text(follower), str(newest)) for follower, newest in self._ask("trackings")]
            )
        if name == "key_ids":
            # A damaged name counts as a key in use: with no key in use, plain text may be written.
            return " ".join(as_text(key_id) or "(damaged)" for (key_id,) in self._ask("key_ids"))
        rows = self._ask("store_value", name)
        return as_text(rows[0][0]) if rows else ""

    def has_reached(self, reached: str, position: int) -> bool:
        """Return whether a follower that has reached a position, passed as text, has read the event
        at ``position``.
        """
        return int(reached) >= position

    def conversation(
        self, name: str | int, expected: Conversation | None = None
    ) -> Conversation | None:
        """Return the visible conversation with this id (a text), or the conversation with this key
        (a number), visible or staged. Return None if there is no such conversation.

        A write transaction may return ``expected`` without asking the database. If the returned
        ``expected`` is outdated, the database refuses every write, and the work is run again.
        """
        if not isinstance(name, str | int):
            raise TypeError(f"the id of a conversation must be a text, not {name!r}")
        answer = self._ask("conversation_of" if isinstance(name, int) else "conversation", name)
        conversation = self._as_conversation(answer[0]) if answer else None
        if conversation is None or conversation.parent is None:
            return conversation
        lineage = tuple(
            Ancestor(key, stop, as_text(ancestor_id), encrypted == 1, parent)
            for key, stop, ancestor_id, encrypted, parent in self._ask(
                "lineage", conversation.parent, conversation.parent_version
            )
        )
        return conversation._replace(parent_id=lineage[0].id if lineage else "", lineage=lineage)

    def conversations(
        self, start: str, limit: int, *, forks_of: int | None = None
    ) -> Sequence[Conversation]:
        """Return published conversations with ids from ``start`` on, in the order of their ids'
        UTF-8 bytes. With ``forks_of``, return only forks of the conversation with this key,
        including erased forks.
        """
        if forks_of is None:
            columns = self._ask("conversations", start, limit)
        else:
            columns = self._ask("forks", forks_of, start, limit)
        return list(map(self._as_conversation, columns))

    def unfinished(self, key: int | None = None) -> Sequence[Unfinished]:
        """Return the operations that are not complete, of all conversations or of the conversation
        with this key.
        """
        return [
            Unfinished(conversation_key, *map(as_text, texts))
            for conversation_key, *texts in self._ask("unfinished", key)
        ]

    def rows(
        self, key: int, start: int, stop: int, limit: int, which: str = "rows"
    ) -> Sequence[Row]:
        """Return rows with ``start <= id < stop``, at most ``limit``, ordered by id. ``which`` is
        the name of the query: ``structural`` returns only structural rows, and ``document_changes``
        only rows that change documents, the newest first. Cost: reading the returned rows.
        """
        return self._with_attachments(as_rows(self._ask(which, key, start, stop, limit)), key)

    def columns(self, key: int, start: int, stop: int, limit: int) -> Sequence[Columns]:
        """Return the indexed columns of the rows that ``rows`` returns: the id, the kind in UTF-8,
        whether the event is shown, and whether it is structural.
        """
        return self._ask("columns", key, start, stop, limit)

    @abstractmethod
    def flagged_rows(self, key: int, intervals: Sequence[tuple[int, ...]]) -> Sequence[Row]:
        """Return rows that are shown or structural, with an id in one of the inclusive, ascending
        intervals, ordered by id. An interval may name another conversation's key after its last id.
        Cost: looking up the intervals, and reading the returned rows.
        """

    def placed_rows(self, after_position: int, limit: int) -> Sequence[PlacedRow]:
        """Return rows after a position, in the order of positions, at most ``limit``. No later
        commit can get a position before the positions of the returned rows, and no failure of a
        server can take these rows back. Call it before any other method in a read transaction.

        If a row belongs to no conversation, the id of its conversation is an empty text.
        """
        placed: list[PlacedRow] = []
        while len(placed) < limit:
            block = self._ask("publications", after_position, after_position + 1)
            if not block:
                return placed + self._live_rows(after_position, _POSITION_MAX, limit - len(placed))
            # A block is an import: its events got consecutive positions when it was published.
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
        """Return the next position that has a row, with the conversation and the id of the row. The
        row itself, which may be damaged, is not read. Cost: reading an index of all events.
        """
        candidates: list[Columns] = [*self._ask("live_place", position + 1)]
        for first, _, first_id, _, conversation in self._ask(
            "publications", position, position + 1
        ):
            row_position = max(first, position + 1)
            candidates.append((row_position, conversation, first_id + row_position - first))
        if not candidates:
            return None
        row_position, conversation, event_id = min(candidates)
        return row_position, as_text(conversation), event_id

    def records(
        self, key: int, projection: str | None, version: int, limit: int, *, backwards: bool = False
    ) -> Sequence[Record]:
        """Return records of a projection for versions greater than ``version``, ascending. With
        ``backwards``, return the records up to ``version``, descending. Without a projection,
        return the newest record of each projection.
        """
        if projection is None:
            return list(map(as_record, self._ask("newest_records", key, limit)))
        statement = "records_back" if backwards else "records"
        return list(map(as_record, self._ask(statement, projection, key, version, limit)))

    def records_of(
        self, projection: str, first: str, last: str
    ) -> Sequence[tuple[str, bool, int, Record | None]]:
        """Return the visible conversations with an id from ``first`` to ``last`` that are not
        erased: for each conversation the id, whether it is encrypted, the version, and the newest
        record of a projection. Cost: reading the rows of the conversations.
        """
        return [
            (as_text(name), encrypted == 1, version, None if row[0] is None else as_record(row))
            for name, encrypted, version, *row in self._ask("records_of", projection, first, last)
        ]

    def recalled_among(
        self, key: int | None, idempotency_keys: Sequence[str]
    ) -> Sequence[tuple[int, str, RecalledKey]]:
        """Return the stored idempotency keys among ``keys``, each with its conversation, but
        without positions.

        Without a conversation the keys of all conversations are searched. To search all
        conversations, the schema must have an index for the keys.
        """
        names = self._array(idempotency_keys)
        if key is None:
            rows = self._ask("recalled_anywhere", names)
        else:
            rows = self._ask("recalled_among", key, names)
        return [(owner, as_text(name), as_recalled(entry)) for owner, name, *entry in rows]

    def recalled(
        self, key: int, start: str, limit: int, *, exactly: bool = False
    ) -> Sequence[tuple[str, RecalledKey]]:
        """Return idempotency keys from ``start`` on, in the order of their UTF-8 bytes. With
        ``exactly``, return only the key ``start``, if it is stored, with the position of its first
        event.
        """
        if exactly:
            rows = self._ask("recall", key, start)
        else:
            rows = self._ask("recalled", key, start, limit)
        return [(as_text(name), as_recalled(entry)) for name, *entry in rows]

    # -- sources of imports, see ``foldlog.eventstore.sources.tables``; figures

    def ask_sources(self, statement: str, *parameters: Any) -> list[Columns]:
        """Run the query of this name on sources, blocks, places or figures."""
        return self._ask(statement, *parameters)

    def id_from(self, start: str) -> str | None:
        """Return the first id of a published conversation from ``start`` on, in the order of the
        ids' UTF-8 bytes; None if there is no such id. Cost: reading one entry of an index.
        """
        rows = self._ask("id_from", start)
        return as_text(rows[0][0]) if rows else None

    def has_beginning(self, start: str) -> bool:
        """Return whether the id of a published conversation begins with this text. Cost: reading
        one entry of an index.
        """
        end = utf8(start) + b"\xff"  # UTF-8 never has this byte: no id with this beginning is later
        return bool(self._ask("beginning", start, end))

    def touched(
        self, after_position: int, min_version: int
    ) -> tuple[int, Sequence[tuple[int, int]]]:
        """Return the last position, and the keys of the conversations whose entry in the list may
        be outdated. Such an entry belongs to a visible conversation that has an event after
        ``after_position`` (any event if ``after_position`` is 0), or whose listed version is
        negative and at least ``min_version``. Each key comes with the version at which the
        conversation is listed: -1 if it is not listed, and -2 if a process that has its encryption
        key must list it.

        Call it before any other method in a read transaction.
        """
        until = int(self.value("last_position"))
        if after_position > 0:
            rows = self._ask("touched", after_position, until, min_version)
        else:
            rows = self._ask("all_visible")
        return until, [(key, version) for key, version in rows]

    def to_list_again(self, min_version: int) -> Sequence[tuple[int, int]]:
        """Return the keys and versions of conversations that have to be listed again, as
        ``touched`` does.
        """
        return [(key, version) for key, version in self._ask("to_list_again", min_version)]

    def listed(
        self, digests: Sequence[bytes], before: tuple[int, int] | None, limit: int
    ) -> Sequence[ListedConversation]:
        """Return conversations that have all of these digests, the last active first.

        ``before`` is the moment and the key of the last conversation of the previous page. Cost:
        reading the conversations that have the first digest, down to the last returned
        conversation.
        """
        rows = self._ask_listed(digests, *(before or (_POSITION_MAX, _POSITION_MAX)), limit)
        for columns in rows:
            check_types(
                f"the listing of conversation number {columns[0]}",
                NUMBERS,
                _NUMBERS_OF_LISTED(columns),
            )
        return [
            # A long list makes many of these: ``benchmarks/listing.py`` shows the time.
            _new(ListedConversation, (
                key, as_text(name), created_at, encrypted == 1, at, version,
                None if attributes[0] is None else as_record(attributes), is_missing == 1,
            ))
            for key, name, created_at, encrypted, at, version, is_missing, *attributes in rows
        ]  # fmt: skip

    @abstractmethod
    def _ask_listed(self, digests: Sequence[bytes], at: int, key: int, limit: int) -> list[Columns]:
        """Return the listed conversations that have these digests."""

    def _as_conversation(self, columns: Columns) -> Conversation:
        """Return the conversation in a row of a result. A fork without events of its own ends with
        an event of its parent, which may be missing.
        """
        conversation = as_conversation(columns)
        if conversation.parent is None or conversation.version:
            return conversation
        border = self.rows(conversation.parent, conversation.begins - 1, conversation.begins, 1)
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
        """Return the appended rows, without imported rows, between two positions."""
        return self._placed(self._ask("live_rows", after_position + 1, before, limit))

    def _placed(self, answer: Sequence[Columns]) -> list[PlacedRow]:
        """Return the rows of a result with their places."""
        check_types("a row of an event", NUMBERS, [columns[5] for columns in answer])
        rows = self._with_attachments_under(
            as_rows([columns[:3] for columns in answer]), [columns[5] for columns in answer]
        )
        return [
            PlacedRow(columns[3], as_text(columns[4]), row, columns[5] <= 0)
            for columns, row in zip(answer, rows, strict=True)
        ]

    # -- attachments: bytes beside the bodies of rows

    def _with_attachments(
        self, rows: Sequence[Row], key: int, intervals: Sequence[tuple[int, ...]] = ()
    ) -> Sequence[Row]:
        """Return rows of a conversation with their attachments. An interval may name the key of
        another conversation: see ``flagged_rows``.
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
        """Return rows with their attachments. ``keys`` has the key of the conversation that each
        row is stored under.

        A missing attachment is left out; the row codec reports missing attachments. Each attachment
        is read once, and rows share it.
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
            for event_id, name, encoding in self._ask("attached", key, self._array(ids)):
                address = (key, name, encoding)
                if address not in attachments:
                    attachments[address] = self._ask("attachment", *address)
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


def _has_attachments(row: Row) -> bool:
    return not _has_no_attachments((row.encoding,)) and isinstance(row.body, bytes)


class Transaction(Reader):
    """One write transaction. Once a write transaction has read the row of a conversation, no other
    writer changes this conversation until the transaction ends.
    """

    @abstractmethod
    def _write(self, statement: str, *parameters: Any) -> object:
        """Run the statement of this name, which writes. Texts become UTF-8 bytes."""

    @abstractmethod
    def _delete(self, statement: str, key: int, limit: int) -> bool:
        """Delete at most ``limit`` rows. Return whether no row is left to delete."""

    def _state(self, key: int) -> Columns:
        """Return whether a conversation is visible, and whether the conversation is erased. Other
        writers of a staged conversation wait from now on.
        """
        return next(iter(self._ask("state", key)), (True, False))

    def _check_staged(self, key: int) -> None:
        if self._state(key) != (False, False):
            raise StoreUnavailable(
                f"conversation number {key} is no longer staged: its import was discarded, or is"
                " already published; import the source again",
                kind="taken",
            )

    @abstractmethod
    def _place_first(self, key: int, size: int) -> None:
        """Give the first events of a conversation the next positions."""

    def lock_all(self, conversations: Iterable[str]) -> None:
        """Lock these ids as ``conversation`` does, always in one order, so that no two transactions
        wait for each other.
        """

    def begin(self, new: Conversation) -> Conversation:
        """Begin a conversation, and return the conversation with its key. A conversation that is
        not ``visible`` is staged, with an unfinished ``import``; several staged conversations may
        have one id. A conversation that ``replaces`` an erased conversation uses the erased one's
        id again. The tombstone is then found only by its key, at once or, if the new conversation
        is staged, once the new conversation is published. Raises ``taken``, here or at the commit,
        if the id is taken, or if the conversation to replace is not erased or was already replaced.
        """
        if new.replaces is not None and new.visible:
            self._write("hide_tombstone", new.replaces)
        key = self._begin_row(
            new,
            new.id,
            new.visible,
            new.created_at,
            new.salt,
            new.parent,
            new.parent_version,
            new.seed,
            new.replaces,
        )
        if not new.visible:
            self._write("leave_unfinished", "import", "", key)
        return new._replace(key=key)

    @abstractmethod
    def _begin_row(self, new: Conversation, *columns: Any) -> int:
        """Write the row of a new conversation. Return the conversation's key."""

    @abstractmethod
    def insert(self, key: int, rows: Sequence[Row], *, staged: bool = False) -> Place:
        """Insert rows with consecutive ids at consecutive positions. The first position is known
        once the transaction is committed. Raises ``taken``, here or at the commit, if an id exists.

        ``staged`` is for a staged conversation, whose ids are dense from 0: its rows get positions
        when it is published. Raises ``taken`` if the conversation is no longer staged.
        """

    def delete(self, key: int, limit: int) -> bool:
        """Delete at most ``limit`` rows of a staged or an erased conversation. If the conversation
        is neither, delete the rows that an incomplete detachment has copied to it
        (``insert_past``). Return whether nothing is left to delete. If nothing is left, all data
        beside the rows is deleted too, no operation on the conversation is unfinished, and a staged
        conversation no longer exists.
        """
        visible, erased = self._state(key)
        if visible and not erased:
            return self._delete_copies(key, limit)
        if erased:
            self._write("leave_bytes", key)
        is_done = self._delete_all(key, limit)
        if is_done and not erased:
            self._write("delete_conversation", key)
        return is_done

    # -- changes of a conversation that exists, in the order of its life

    def remember(self, key: int, idempotency_key: str, recalled: RecalledKey) -> None:
        """Store a new idempotency key and the events that it stands for. Raises ``taken``, here or
        at the commit, if the key exists.
        """
        self._write(
            "remember", key, idempotency_key, recalled.first_id, recalled.events, recalled.proof
        )

    def prove(self, key: int, idempotency_key: str, proof: bytes | None) -> None:
        """Store a new proof for an idempotency key that exists."""
        self._write("prove", proof, key, idempotency_key)

    def set_key(
        self,
        key: int,
        salt: bytes,
        key_id: str | None,
        sealed_key: bytes | None,
        *,
        first: bool = False,
    ) -> None:
        """Set another salt and another wrapped data key. Lists find the conversation once a process
        that has the new key has listed it again. With ``first``, nothing is stored under the
        conversation's key yet.
        """
        self.forget()
        if not first:
            self._leave_bytes(key)
            self.forget_figures(key)
        self._write("leave_listed", key)
        self._write("list_again", key)
        self._write("set_key", salt, key_id, sealed_key, key)

    def set_mark(self, key: int, mark: bytes | None) -> None:
        """Set another mark: see ``Conversation.mark``."""
        self.last_conversation = None
        self._write("set_mark", mark, key)

    def publish(self, key: int, events: int) -> None:
        """Make a staged conversation of this many events visible. The conversation's events get the
        next positions, at a constant cost. Raises ``taken``, here or at the commit, if the
        conversation is no longer staged, or if its id is taken.
        """
        self.forget()
        self._check_staged(key)
        for statement in ("hide_replaced_tombstone", "publish", "finish"):
            self._write(statement, key)
        self._place_first(key, events)

    @abstractmethod
    def insert_past(self, key: int, rows: Sequence[Row]) -> None:
        """Insert rows below the first own event of a fork. No follower reads these rows before they
        get positions.
        """

    def place_past(self, key: int, events: int) -> None:
        """Let a fork leave its parent. The copied rows, ``events`` in number, get the next
        positions, so followers read them.
        """
        self.forget()
        self.forget_figures(key)
        self._write("leave_parent", key)
        self._place_first(key, events)

    def replace_rows(self, key: int, rows: Sequence[Row]) -> None:
        """Replace ``meta`` and the body of rows, because the rows have another form now, or because
        their content was redacted.
        """
        self.forget()
        self._leave_bytes(key)
        self.forget_figures(key)
        for row in rows:
            self._write("replace_row", row.meta, row.body, key, row.id)
        self._write("detach", key, self._array([row.id for row in rows]))
        self._attach(key, rows)
        self._write("delete_unattached", key)

    def put_records(
        self, key: int, projection: str, records: Iterable[Record], *, replace_all: bool = False
    ) -> None:
        """Store records of a projection. A stored record of an equal version is replaced; with
        ``replace_all``, all other records are deleted. Records that belong to no conversation have
        the key 0.
        """
        if replace_all:
            self._write("delete_records", projection, key)
        for record in records:
            self._write("put_record", projection, key, *record[:5])

    def put_listing(self, key: int, at: int, version: int, digests: Sequence[bytes] | None) -> None:
        """Set the time ``at`` when the conversation was last active, the version at which it is
        listed, and the digests of its attributes. If ``digests`` is None, the stored digests stay.
        """
        self._write("leave_listed", key)
        self._write("put_listing", key, at, version, None if digests is None else b"".join(digests))
        self._write("put_listed", key)

    def count_redactions(self, key: int, events: int) -> None:
        """Add this number of redacted events to the count of the conversation."""
        self.forget()
        self.forget_figures(key)
        self._write("count_redactions", events, key)

    def leave_unfinished(self, key: int, operation: str, state: str = "") -> None:
        """Note that this operation on the conversation is unfinished. The operation replaces any
        other unfinished operation.
        """
        self._write("leave_unfinished", operation, state, key)

    def finish(self, key: int) -> None:
        """Note that no operation on the conversation is unfinished any more."""
        self._write("finish", key)

    def erase(self, key: int, erasure: Erasure) -> None:
        """Make a conversation a tombstone. From now on the conversation's rows cannot be read, its
        salt and key are deleted, and no list has it. To remove the conversation's rows and the data
        beside them, call ``delete`` until it returns True.
        """
        self.forget()
        self._leave_bytes(key)
        self.forget_figures(key)
        for statement in ("refuse", "delete_places", "leave_listed", "delete_listing"):
            self._write(statement, key)
        self._write(
            "erase_conversation",
            erasure.erased_at,
            erasure.reason,
            erasure.events,
            erasure.head,
            key,
        )

    def set_pending(self, key: int, records: int) -> None:
        """Set how many records of the source have no events."""
        self.forget()
        self._write("set_pending", records, key)

    def archive(self, key: int, before: int, events: int) -> None:
        """Delete the ``events`` rows before event ``before``, because an object has these rows."""
        self.forget()
        self._write("delete_archived", key, before)
        self._write("detach", key, self._array([*range(before)]))
        self._write("delete_unattached", key)
        self._write("set_pending", -events, key)

    @abstractmethod
    def insert_again(self, key: int, rows: Sequence[Row], positions: Sequence[int | None]) -> None:
        """Insert archived rows at their former positions."""

    def forget_figures(self, key: int) -> None:
        """Delete the figures of a conversation. The figures may contain erased text, and are made
        again from the remaining events.
        """
        tables = (
            "forget_figures",
            "forget_figure_calls",
            "forget_figure_replies",
            "forget_figure_counts",
        )
        for statement in tables:
            self._write(statement, key)

    def forget(self) -> None:
        """Forget the state that earlier transactions set, because this state may be wrong now."""
        self.last_conversation = None

    def _leave_bytes(self, key: int) -> None:
        """Note that the files still hold the bytes of replaced or deleted rows, until
        ``Recorder.compact``.
        """
        self._write("leave_bytes", key)

    # -- steps

    def write_sources(self, statement: str, *parameters: Any) -> None:
        """Run the statement of this name, which writes sources, blocks, places or figures."""
        self._write(statement, *parameters)

    def write_rows(self, statement: str, key: int, rows: Iterable[Sequence[Any]]) -> None:
        """Run the statement of this name, which writes rows of numbers and texts of one
        conversation. The texts have no NUL character and no lone surrogate, which some databases
        refuse.
        """
        remaining = iter(rows)
        while page := [*islice(remaining, _ROWS)]:
            self.write_sources(statement, key, json.dumps(page))

    def set_value(self, name: str, value: str) -> None:
        """Record a fact about the store: see ``Recorder.value``. A tracking only increases: a lower
        value raises ``taken``. An empty text deletes a tracking.
        """
        kind, _, application = name.partition(" ")
        if kind != "tracking":
            self._write("set_value", name, value)
        elif not value:
            self._write("forget_tracking", application)
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
        self._write("insert_tracking", application, notification_id)

    def _attach(self, key: int, rows: Sequence[Row]) -> None:
        """Store the attachments of these rows. An attachment that is already stored is not stored
        again.
        """
        for row in rows:
            for name, encoding, body in attachments_of(row.body):
                self._write("keep_attachment", key, name, encoding, body)
                self._write("attach", key, row.id, name, encoding)

    def _delete_all(self, key: int, limit: int) -> bool:
        """Delete the rows of a conversation and the data beside them, at most ``limit`` rows of
        each table. Return whether nothing is left to delete.
        """
        parts = ("delete_rows", "delete_attachments", "delete_blocks")
        if not all(self._delete(statement, key, limit) for statement in parts):
            return False
        for statement in (
            "delete_made",
            "delete_source",
            "detach_all",
            "forget_keys",
            "forget_records",
            "finish",
        ):
            self._write(statement, key)
        return True

    def _delete_copies(self, key: int, limit: int) -> bool:
        """If a detachment of a fork is not complete, delete the fork's copies of its
        parent's rows.
        """
        if all(unfinished.operation != "detach" for unfinished in self.unfinished(key)):
            return True
        self._write("leave_bytes", key)
        self._write("leave_unfinished", "detach", DISCARDED, key)
        if not self._delete("delete_copies", key, limit):
            return False
        for statement in ("detach_copies", "delete_unattached", "finish"):
            self._write(statement, key)
        return True


Method = TypeVar("Method", bound=Callable[..., Any])


def makes_pending(method: Method) -> Method:
    """Decorate a method that runs work in a transaction. If the work needs the events of an import
    that were not made yet, the transaction ends, the events are made, and the work is run again. If
    this recorder is read-only, the work is run in the recorder that has the events.
    """

    @wraps(method)
    def call(self: Recorder, *args: Any, **options: Any) -> Any:
        while True:
            try:
                return method(self, *args, **options)
            except EventsNotMade as pending:
                other = self.make(pending)
                if other is not None:
                    return getattr(other, method.__name__)(*args, **options)

    return call  # type: ignore[return-value]


class Recorder(ABC):
    """A database that holds one store."""

    path: str | None = None
    """The file of the store; None if the store is on a server or in memory."""
    writable = True
    on_server = False
    """Whether the database is on a server. On a server ``value("data_version")`` costs a round
    trip, not microseconds, and each writer has its own transaction.
    """
    store_count = 1
    """The number of stores that this recorder joins to one store. Lists of these stores are joined,
    but sums are not added.
    """
    on_pending: Callable[[EventsNotMade], Recorder | None] | None = None
    """Makes the events of an import that a transaction needed. The recorder calls ``on_pending``
    after the transaction has ended, then runs the work again. If the events cannot be stored in
    this recorder, ``on_pending`` returns the recorder that has the events, and the work is run in
    the returned recorder.
    """
    on_copy: Callable[[Transaction, int], None] = staticmethod(lambda transaction, last: None)
    """The recorder calls ``on_copy`` in the first write transaction in a file that is a copy of a
    store, with the last position in the file.
    """

    def make(self, pending: EventsNotMade) -> Recorder | None:
        """Make the events of an import that a transaction needed. Return the recorder that has the
        events if this recorder is read-only, otherwise None. Raises ``pending`` if ``on_pending``
        is None.
        """
        if self.on_pending is None:
            raise pending
        return self.on_pending(pending)

    @abstractmethod
    def transact(
        self, work: Callable[[Transaction], T], *, any_thread: bool = False, at_once: bool = False
    ) -> T:
        """Run ``work`` in a write transaction, and return the result of ``work`` once the
        transaction is durable.

        Several callers may share one transaction and its fsync. If ``work`` raises, nothing that
        ``work`` wrote is stored, and only the caller of ``work`` gets the exception. ``work`` may
        be run again, so it must have no other effects than its writes. ``work`` runs in the thread
        of its caller. With ``any_thread`` it may run in the thread of another caller: use
        ``any_thread`` only for work that calls nothing but foldlog's code.

        Raises ``nested`` if this thread is already inside ``transact``. Raises ``busy`` if other
        writers keep the call waiting for longer than the recorder's patience, or with ``at_once``
        for longer than ``AT_ONCE_S``. The messages of both errors name the remedy.
        """

    def offer(self, work: Callable[[Transaction], object], *, at_once: bool = True) -> bool:
        """Write something that the store does not need, and return True. Return False, and write
        nothing, if this recorder only reads, if other writers keep the call waiting, or if the
        database fails. With ``at_once`` the call gives up soon; use ``at_once`` for data that can
        be made again.
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
        piece comes with its ``any_thread``. Return the outcomes of the pieces: the results, or the
        errors that ``transact`` would have raised.

        Raises ``nested`` if this thread is already inside a write.
        """
        return [Outcome.of(partial(self.transact, work)) for work, _ in works]

    @abstractmethod
    def read(self) -> AbstractContextManager[Reader]:
        """Begin a read transaction, which never waits for writers."""

    @makes_pending
    def query(self, work: Callable[[Reader], T]) -> T:
        """Run ``work`` in a read transaction, and return the result of ``work``.

        If the connection to the database breaks, ``work`` is run again in another read transaction,
        so it must have no effects of its own.
        """
        with self.read() as reader:
            return work(reader)

    def succeed(self, former: Recorder) -> None:  # noqa: B027 - of several stores only
        """Take the place of another recorder before its conversations are copied here, if both are
        the same member of several joined stores. After this call this recorder uses only later
        positions, and finds conversations whose ids name the former store.
        """

    def position(self, position: int | str) -> int:
        """Return a position, passed as a number or as a text, as a number. Raises
        ``InvalidArgument`` for a text that is not a position.
        """
        if isinstance(position, str) and not (position.isdecimal() and int(position) <= NUMBER_MAX):
            raise InvalidArgument(
                f"{position!r} is not a position; pass str(recorded.position) of an event that"
                " follow yielded"
            )
        return int(position)

    @abstractmethod
    def value(self, name: str) -> str:
        """Return a fact about the store; an empty text if the fact is not known.

        The names of facts are ``uuid``; ``last_position``, the highest position that an event has;
        ``bytes_pending``; ``key_ids``, the names of the wrapping keys of visible conversations,
        with spaces between; ``tracking NAME``, the position of a projection of the eventsourcing
        library; ``trackings``, the names and positions of all, as a JSON list of pairs of texts.

        Outside of transactions there is also ``data_version``, a number that changes when another
        connection has committed. This number is cheap to poll.
        """

    @property
    def last_conversation(self) -> Any:
        """``Reader.last_conversation`` after the last committed transaction. None if a transaction
        is in progress, if another connection has committed since, or if finding that out is
        expensive. Cost: some system calls.
        """
        return None

    @abstractmethod
    def compact(
        self, patience_s: float, on_progress: Callable[[int, int], object] = lambda done, of: None
    ) -> bool:
        """Remove the bytes of deleted and replaced rows. Bytes of rows that are deleted during the
        call stay ``bytes_pending``. A file is rewritten. Return False if only the owner of a
        server's tables can remove the bytes. Raises ``busy`` if an older reader needs the bytes for
        ``patience_s`` seconds: the bytes then stay pending, and a file does not shrink.
        ``on_progress`` is called with the number of finished tables and of all tables; a file is
        rewritten in one step.

        Events keep their positions. Readers go on, and the writers of a file wait. Rewriting a file
        needs as much free space as the file has.
        """

    @abstractmethod
    def check(self) -> Iterator[str]:
        """Yield the problems of the database: damaged pages or indices, and rows without a
        conversation. Cost: reading the whole database.
        """

    @abstractmethod
    def close(self) -> None: ...
