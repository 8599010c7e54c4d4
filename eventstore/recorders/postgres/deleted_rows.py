"""Remove deleted rows with VACUUM, and prove with numbers that VACUUM removed them.

A transaction that deletes rows leaves a mark with its own number. VACUUM removes a deleted row when
no reader can see it any more: the number of the deleting transaction is below the *horizon*, the
oldest transaction that a session, a prepared transaction or a replication slot still needs. So the
rows of a mark are gone if the horizon was above the mark before the VACUUM began, and if VACUUM
then left no dead row. VACUUM skips a page that another session is using. The server counts the dead
rows that VACUUM left. If VACUUM left dead rows of any transaction in a table, ``VACUUM (FREEZE)``
of this table follows, which waits for pages instead of skipping them.

Nothing here reads a message of the server, so its language does not matter. Every role may read the
numbers.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple, TypeVar

import psycopg
from msgspec import Struct, json
from msgspec.structs import replace

from foldlog.eventstore.errors import StoreUnavailable

T = TypeVar("T")

_WAITED_TOO_LONG: Final = (TimeoutError, psycopg.errors.LockNotAvailable)
_CANCEL_S: Final = 2.0
_SHARD_NUMBER: Final = re.compile(r"_\d+$")


class Deletion(NamedTuple):
    """The note that rows of a conversation were deleted. ``transaction`` is the number of the
    transaction that deleted them.
    """

    name: str
    value: str
    transaction: int


class Horizon(Struct, frozen=True):
    """What holds the horizon at the transaction ``number``. ``kind`` is ``session``, ``prepared
    transaction``, ``replication slot`` or ``transaction``, and ``name`` says which. ``state`` is
    None for the last two, and if this role may not see it. ``seconds`` is 0 if that is unknown.
    """

    number: int
    kind: str
    name: str
    state: str | None = None
    seconds: float = 0

    def __str__(self) -> str:
        since = "" if self.state is None else f", {self.state} for {self.seconds:.0f} s"
        return f"{self.kind} {self.name}{since}"


class Relation(Struct, frozen=True):
    """A table or its TOAST table. ``table`` is the name of the table, ``vacuums`` the number of its
    vacuums, and ``dead_rows`` the number of deleted rows that are still in it.
    """

    table: str
    relation: int
    may_vacuum: bool
    vacuums: int
    dead_rows: int


class Tables:
    """The tables of one store, on the server that has them. On Citus, this is a worker. ``node_…``
    statements run there; they return one JSON text, and name no table of the store.
    """

    def __init__(
        self,
        connection: psycopg.Connection[Any],
        statements: Mapping[str, bytes],
        *,
        is_on_citus: bool,
    ) -> None:
        self._connection = connection
        self._statements = statements
        self._is_on_citus = is_on_citus

    def marks(self) -> list[Deletion]:
        rows = self._connection.execute(self._statements["marks_of_bytes"]).fetchall()
        return [Deletion(*row) for row in rows]

    def forget(self, marks: Sequence[Deletion]) -> None:
        """Delete marks, except the marks that have changed since they were read."""
        parameters = [[mark.name for mark in marks], [mark.value for mark in marks]]
        with self._connection.transaction():  # the default may be a transaction that only reads
            self._connection.execute(self._statements["bytes_are_gone"], parameters)

    def horizon(self) -> Horizon:
        return self._ask_node("node_horizon", Horizon)

    def relations(self) -> list[Relation]:
        relations = self._ask_node("node_relations", list[Relation])
        if not self._is_on_citus:
            return relations
        # The rows of a table are in its shard, and the table itself is empty.
        return [
            replace(relation, table=_SHARD_NUMBER.sub("", relation.table))
            for relation in relations
            if _SHARD_NUMBER.search(relation.table)
        ]

    def vacuum(self, tables: Iterable[str]) -> None:
        self._connection.execute(f"VACUUM {', '.join(tables)}".encode())

    def freeze(self, tables: Iterable[str], patience_s: float) -> None:
        """Vacuum without skipping a page. Wait for pages that other sessions use, for at most
        ``patience_s`` seconds, then raise ``TimeoutError``.
        """
        is_over = threading.Event()

        def end() -> None:
            is_over.set()
            with suppress(psycopg.Error):  # the server is away, so the VACUUM fails too
                self._connection.cancel_safe(timeout=_CANCEL_S)

        timer = threading.Timer(patience_s, end)
        timer.start()
        try:
            self._connection.execute(f"VACUUM (FREEZE) {', '.join(tables)}".encode())
        except psycopg.errors.QueryCanceled as error:
            if is_over.is_set():
                raise TimeoutError from error
            raise  # the role has a statement_timeout, or somebody canceled the statement
        finally:
            timer.cancel()
            # A cancellation that is under way would end the next statement of this connection.
            timer.join()

    def _ask_node(self, statement: str, kind: type[T]) -> T:
        """Return the answer of the server that has the tables, which on Citus is a worker."""
        query = self._statements[statement]
        if self._is_on_citus:
            command = query.decode().replace("%", "%%")  # Citus puts the name of a shard at %s
            rows = self._connection.execute(self._statements["on_worker"], (command,)).fetchall()
            [(succeeded, document)] = rows
            if not succeeded:
                problem = f"the Citus worker with the tables does not answer: {document}"
                raise StoreUnavailable(problem, kind="read")
        else:
            [(document,)] = self._connection.execute(query).fetchall()
        return json.decode(document, type=kind)


def remove(tables: Tables, waiting: Iterator[bool], patience_s: float) -> str | None:
    """Vacuum all tables once, and delete each mark whose rows are proven to be gone. ``waiting``
    pauses until the patience ends; it is used while older transactions can still read the rows.
    Return what the remaining rows wait for, or an empty text if no mark remains. Return None if
    this role may not vacuum the tables: only their owner, the owner of the database or a role with
    ``MAINTAIN`` (PostgreSQL 17) may.
    """
    before = tables.relations()
    if not all(relation.may_vacuum for relation in before):
        return None
    marks = tables.marks()
    newest = max((mark.transaction for mark in marks), default=0)
    horizon = tables.horizon()
    while horizon.number <= newest and next(waiting, False):
        horizon = tables.horizon()
    unreadable = [mark for mark in marks if mark.transaction < horizon.number]
    names = list(dict.fromkeys(relation.table for relation in before))
    try:
        tables.vacuum(names)
        unproven = _not_proven(before, tables.relations())
        if unreadable and unproven:
            tables.freeze(unproven, patience_s)
    except _WAITED_TOO_LONG:
        return "another session has locked a table, or reads a page with deleted rows"
    if unreadable:
        tables.forget(unreadable)
    if len(unreadable) == len(marks):
        return ""
    return (
        f"{horizon} may still read rows that transaction {newest} deleted: because of it,"
        f" VACUUM keeps the rows that transactions from {horizon.number} on deleted"
    )


def _not_proven(before: Sequence[Relation], after: Sequence[Relation]) -> list[str]:
    """Return the tables whose counters do not say that a vacuum since ``before`` left no dead row.
    PostgreSQL 14 does not count the rows on skipped pages, and the counters may be off.
    """
    vacuums = {relation.relation: relation.vacuums for relation in before}
    unproven = [
        relation.table
        for relation in after
        if relation.dead_rows or relation.vacuums <= vacuums.get(relation.relation, 0)
    ]
    return list(dict.fromkeys(unproven))
