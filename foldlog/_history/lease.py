"""At most one worker drives a conversation: a lease is a row beside the events, which appends of
its holder check.

The row has a token that no other lease has, and a time by the clock of the database. Each append of
the holder looks for its token in its own transaction, so clocks decide only when another worker may
take a lease over, never whether an append is valid. See
``docs/internals/decisions/0095-leases.md``.
"""

from __future__ import annotations

import os
import secrets
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from datetime import datetime
from functools import partial
from hashlib import sha256
from itertools import islice
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

import msgspec

from foldlog._cached_values import KeptBeside
from foldlog._telemetry import tell
from foldlog.eventstore import (
    ConversationErased,
    ConversationNotFound,
    ConversationRow,
    EventStoreError,
    InvalidArgument,
    Store,
    StoreUnusable,
)
from foldlog.eventstore.inside import Generation, Record, check_text, from_microseconds, has_content
from foldlog.eventstore.log.database import Database
from foldlog.eventstore.log.finding import PAGE, find_meant, tombstones_before
from foldlog.eventstore.log.seal import RowCodec
from foldlog.eventstore.recorders.base import Reader, Transaction
from foldlog.eventstore.recorders.types import utf8

if TYPE_CHECKING:
    from foldlog.projections import Views

T = TypeVar("T")

_OF_THE_STORE: Final = 0
_CODEC: Final = RowCodec("")
_CODE: Final = 1
_PAUSE_S = 0.005
_PAUSE_MAX_S = 0.1
_RENEWALS: Final = 3
"""How often a lease is renewed within its time to live."""


class LeaseTaken(EventStoreError):
    """Another worker has the lease of the conversation. Nothing was appended: end this work, and
    begin it again in another ``history.lease()``. ``worker`` has it until ``until``; both are None
    where it is free again.
    """

    def __init__(self, conversation: str, problem: str, standing: _Row | None, remedy: str) -> None:
        if standing is None:
            by = ""
        else:
            by = f": {standing.worker!r} has it until {standing.ends:%Y-%m-%d %H:%M:%S} UTC"
        if standing is not None and standing.worker == _this_process():
            by += " (this process, with another History object, to which the lease is bound)"
        super().__init__(f"conversation {conversation!r}: {problem}{by}; {remedy}")
        self.conversation = conversation
        self.worker = None if standing is None else standing.worker
        self.until = None if standing is None else standing.ends


def _this_process() -> str:
    """Return the name of a worker that is given none."""
    return f"{socket.gethostname()}:{os.getpid()}"


class Lease:
    """Who works on a conversation. ``worker`` is the name that was given; ``until`` is when its
    time to live ends by the clock of the database, if it is not renewed before.
    """

    def __init__(self, worker: str) -> None:
        self.worker = worker
        self.until: datetime
        self._ends = 0.0

    @property
    def held(self) -> bool:
        """Whether the worker still has the lease, as this process knows: it counts the time to live
        from before it asked, by its own clock. Look at it before an effect outside of the store,
        which cannot check a token.
        """
        return time.monotonic() < self._ends

    def __repr__(self) -> str:
        return f"<Lease of {self.worker!r} until {self.until}>"


class _Row(msgspec.Struct, frozen=True):
    """A lease as stored; times in microseconds, ``until`` by the clock of the database."""

    token: int
    worker: str
    until: int
    ttl: int

    @property
    def ends(self) -> datetime:
        return from_microseconds(self.until)


_read: Final = msgspec.json.Decoder(_Row).decode


def _name_of(conversation: str, generation: int) -> str:
    """Return the name of the record that holds the lease of one conversation of an id, which may be
    longer than an entry of an index. ``generation``: how many erased ones had the id before.
    """
    return f"lease {sha256(utf8(f'{generation} {conversation}')).hexdigest()}"


def _name_in(database: Database, reader: Reader, conversation: str) -> str:
    """Return the name of that record. Raises where a ``History`` means another conversation of this
    id.
    """
    found = database.find(reader, conversation)
    return _name_of(conversation, 0 if found is None else len(tombstones_before(reader, found)))


def _decoded(name: str, stored: Record) -> _Row | None:
    record = _CODEC.decoded_record(name, stored)
    return None if record is None else _read(record.body)


def _standing(reader: Reader, name: str) -> _Row | None:
    """Return the lease that is stored. A damaged row counts as none: its holder is refused, the
    next worker begins.
    """
    return next(
        (_decoded(name, stored) for stored in reader.records(_OF_THE_STORE, name, 0, 1)), None
    )


def _now(database: Database, reader: Reader) -> int:
    return int(reader.value("now") or database.now())


def _living(database: Database, conversation: str, reader: Reader) -> tuple[_Row, int] | None:
    """Return the lease whose time has not ended, and the time that it has left: its time to live at
    most, however the clock was changed.
    """
    row = _standing(reader, _name_in(database, reader, conversation))
    if row is None:
        left = 0
    else:
        left = min(row.until - _now(database, reader), row.ttl)
    return None if row is None or left <= 0 else (row, left)


def lease_of(store: Store, conversation: str) -> Lease | None:
    """Return the lease of a worker that has one now."""
    asked = time.monotonic()
    database = store.database
    found = database.recorder.query(partial(_living, database, conversation))
    if found is None:
        return None
    row, left = found
    lease = Lease(row.worker)
    lease.until = row.ends
    lease._ends = asked + left / 1e6
    return lease


def token_of(store: Store, conversation: str) -> str | None:
    """Return what names the lease of a worker that has one now, and no other lease; None where no
    worker has one.
    """
    found = store.database.recorder.query(partial(_living, store.database, conversation))
    return None if found is None else _named(found[0].token)


def _named(token: int) -> str:
    return sha256(b"%d" % token).hexdigest()[:16]


def check_free(database: Database, conversation: str, reader: Reader) -> None:
    """Raise ``LeaseTaken`` where a worker has the lease now."""
    if (found := _living(database, conversation, reader)) is not None:
        raise LeaseTaken(
            conversation,
            "a worker drives it",
            found[0],
            "nothing was appended; leave its calls to it",
        )


def lease_that_keeps(store: Store, conversation: str) -> LeaseTaken | None:
    """Return why a conversation is not erased for its age: a worker has its lease now. None where
    no worker has.
    """
    found = store.database.recorder.query(partial(_living, store.database, conversation))
    if found is None:
        return None
    return LeaseTaken(
        conversation, "a worker drives it", found[0], "it stays; erase it once the lease has ended"
    )


def _leases(database: Database, reader: Reader) -> dict[str, datetime | None]:
    """Return when each lease that stands ends, None where its time is over, by the names of their
    records. Cost: these leases.
    """
    now = _now(database, reader)
    found = {}
    for record in reader.records(_OF_THE_STORE, None, 0, sys.maxsize):
        if (
            record.projection.startswith("lease ")
            and (row := _decoded(record.projection, record)) is not None
        ):
            found[record.projection] = row.ends if row.until > now else None
    return found


def ends_of_leases(store: Store) -> list[datetime]:
    """Return when the leases end that workers have now, the first one first. Cost: the leases of
    the store.
    """
    return sorted(
        filter(None, store.database.recorder.query(partial(_leases, store.database)).values())
    )


def to_resume(
    store: Store, views: Views, rows: Iterable[ConversationRow], unread: Callable[..., object]
) -> Iterator[ConversationRow]:
    """Yield the conversations that no worker drives and that have open calls, or a lease that was
    not given back. One that cannot be read is left out, and ``unread`` is told why. How many calls
    are open is kept beside the conversations.
    """
    ahead = iter(rows)
    with KeptBeside(store, "open_calls", _CODE) as kept:
        while page := list(islice(ahead, PAGE)):
            known = kept.load(page)
            leases = store.database.recorder.query(partial(_leases, store.database))
            for row in page:
                name = _name_of(row.id, row.generation)
                if row.erased_at is not None or leases.get(name):
                    continue
                try:
                    if name not in leases and row.id not in known:
                        known[row.id] = sum(map(has_content, views.current(row.id).open_calls))
                        kept.keep(row, known[row.id])
                    if name in leases or known[row.id]:
                        yield row
                except (ConversationErased, ConversationNotFound):
                    continue  # since it was listed
                except EventStoreError as error:
                    unread(conversation=row.id, problem=str(error))


class _Driven(Protocol):
    """A ``History``."""

    id: str
    _store: Store
    _generation: Generation

    def _met(self) -> int | None: ...


class LeaseBlock:
    """One block of ``History.lease``: ``attempt`` until it takes the lease, and ``leave`` at the
    end.
    """

    def __init__(self, history: _Driven, ttl_s: float, wait_s: float, worker: str | None) -> None:
        self._history = history
        self._id = history.id
        self._database = history._store.database
        self._ttl_s = _seconds("ttl_s", ttl_s, 0.01)
        self._give_up_at = time.monotonic() + _seconds("wait_s", wait_s, 0)
        self.lease = Lease(_this_process() if worker is None else check_text("worker", worker))
        self._name, self._token, self._pid = "", secrets.randbits(62) + 1, os.getpid()
        self._pause_s = _PAUSE_S
        self._seen: tuple[_Row | None, float] = None, 0.0
        self._former: _Row | None = None
        self._may_have_it = False
        self._left = threading.Event()
        self._renewing = threading.Thread(
            target=self._keep_renewing, name="foldlog-lease", daemon=True
        )

    @property
    def token(self) -> str:
        """What names this lease, and no other one: see ``token_of``."""
        return _named(self._token)

    def check_held(self, remedy: str) -> None:
        """Raise ``LeaseTaken``, which says the remedy, where the lease that is stored is not
        ours.
        """
        self._database.recorder.query(partial(self._fence, remedy=remedy))

    def __enter__(self) -> Lease:
        try:
            while (pause_s := self.attempt()) is not None:
                time.sleep(pause_s)
        except BaseException:
            self.leave()
            raise
        return self.lease

    def __exit__(self, *error: object) -> None:
        self.leave()

    def attempt(self) -> float | None:
        """Take the lease, and return None; or return after how many seconds to try again. Raises
        ``LeaseTaken`` where another worker has had it for ``wait_s``.
        """
        first: LeaseBlock = vars(self._history).setdefault("_lease_block", self)
        if first is not self:
            raise InvalidArgument(
                f"this History of {self._id!r} is in a lease() block already; another worker needs"
                f" its own: histories[{self._id!r}]"
            )
        self._history._met()
        started = time.monotonic()
        standing = self._database.recorder.query(self._other)
        if standing is None:
            self._may_have_it = True
            standing = self._transact(self._take)
        if standing is None:
            self._begin(started)
            if self._former is not None:
                former = self._former.worker
                self._former = None
                tell(
                    "foldlog.lease.taken_over",
                    conversation=self._id,
                    worker=self.lease.worker,
                    former=former,
                )
            return None
        self._may_have_it = False
        if self._seen[0] != standing:
            self._seen = standing, time.monotonic()
        left_s = self._give_up_at - started
        if left_s <= 0:
            remedy = "wait longer (wait_s), also if that worker was killed, or say that it is busy"
            raise LeaseTaken(self._id, "a worker drives it", standing, remedy)
        self._pause_s = min(2 * self._pause_s, _PAUSE_MAX_S)
        return min(self._pause_s, left_s)

    def leave(self) -> None:
        """Give the lease back. Where that cannot be written, it ends with its time."""
        history = self._history
        if vars(history).get("_lease_block") is not self or os.getpid() != self._pid:
            return
        self._left.set()
        try:
            if self._renewing.is_alive():
                self._renewing.join()
            if self._may_have_it:
                self._transact(self._give_back)
        except EventStoreError as error:
            tell("foldlog.lease.failed", conversation=self._id, problem=str(error))
        finally:
            self.lease._ends = 0.0
            history._generation = replace(history._generation, fence=None)
            del vars(history)["_lease_block"]

    # -- in transactions
    # ----------------------------------------------------------------------------------------------

    def _transact(self, work: Callable[[Transaction], T]) -> T:
        return self._database.recorder.transact(work, any_thread=True)

    def _take(self, transaction: Transaction) -> _Row | None:
        """Take the lease; return that of another worker, if it has not ended."""
        # it locks the id
        find_meant(self._database, transaction, self._id, self._history._generation)
        self._name, other = (
            _name_in(self._database, transaction, self._id),
            self._other(transaction),
        )
        if other is None:
            former = _standing(transaction, self._name)
            if former is None or former.token == self._token:
                self._former = None
            else:
                self._former = former
            self._keep(transaction)
        return other

    def _other(self, reader: Reader) -> _Row | None:
        """Return the lease of another worker, unless it has ended: by the clock of the database, or
        since it stood unchanged for its time to live by our own, whatever became of that clock.
        """
        found = _living(self._database, self._id, reader)
        if found is None or found[0].token == self._token:
            return None
        seen, at = self._seen
        if seen == found[0] and time.monotonic() - at > seen.ttl / 1e6:
            return None
        return found[0]

    def _again(self, transaction: Transaction) -> None:
        # it locks the id, and asks _fence
        find_meant(self._database, transaction, self._id, self._history._generation)
        self._keep(transaction)

    def _keep(self, transaction: Transaction) -> None:
        ttl = int(self._ttl_s * 1e6)
        row = _Row(self._token, self.lease.worker, _now(self._database, transaction) + ttl, ttl)
        record = _CODEC.encoded_record(self._name, Record(1, _CODE, msgspec.json.encode(row)))
        transaction.put_records(_OF_THE_STORE, self._name, [record], replace_all=True)
        self.lease.until = row.ends

    def _give_back(self, transaction: Transaction) -> None:
        transaction.conversation(self._id)  # it locks the id
        row = _standing(transaction, self._name)
        if row is not None and row.token == self._token:
            transaction.put_records(_OF_THE_STORE, self._name, (), replace_all=True)

    def _fence(
        self, reader: Reader, remedy: str = "nothing was appended; begin again with history.lease()"
    ) -> None:
        """Raise ``LeaseTaken`` where the lease that is stored is not ours. A child that was forked
        has none.
        """
        # else this append may meet the next conversation of the id
        met = self._history._generation.key is not None
        row = _standing(reader, self._name if met else _name_in(self._database, reader, self._id))
        if row is None or row.token != self._token or os.getpid() != self._pid:
            problem = f"the lease of {self.lease.worker!r} has ended"
            raise LeaseTaken(self._id, problem, row, remedy)

    # -- its time
    # ----------------------------------------------------------------------------------------------

    def _begin(self, started: float) -> None:
        self.lease._ends = started + self._ttl_s
        self._history._generation = replace(self._history._generation, fence=self._fence)
        self._renewing.start()

    def _keep_renewing(self) -> None:
        while not self._left.wait(self._ttl_s / _RENEWALS) and self.renew():
            pass

    def renew(self) -> bool:
        """Renew the lease. Return False where it was taken over, where the conversation was erased,
        or where the store is closed.
        """
        started = time.monotonic()
        try:
            self._transact(self._again)
        except (LeaseTaken, ConversationErased, ConversationNotFound):
            self.lease._ends = 0.0
            return False
        except EventStoreError as error:
            tell("foldlog.lease.failed", conversation=self._id, problem=str(error))
            return not isinstance(error, StoreUnusable)
        self.lease._ends = started + self._ttl_s
        return True


def _seconds(name: str, value: object, least: float) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise TypeError(f"{name} is a number of seconds, not {value!r:.60}")
    if not least <= value < 1e9:
        raise InvalidArgument(f"{name} is {value}; use a number of seconds from {least} to 1e9")
    return float(value)
