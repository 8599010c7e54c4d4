"""At most one worker drives a conversation. The lease of the worker is a row in the database of the
events, and every append of the worker checks this row.

The row has a random token and the time when the lease ends: on a server by the clock of the
database, in a file by a clock of the machine that nobody can set. An append compares the token in
its own transaction. Clocks therefore decide only when another worker may take over a lease, and
never whether an append is valid. See ``docs/internals/decisions/0095-leases.md``.
"""

from __future__ import annotations

import os
import re
import sys
import threading
import time
from collections.abc import Callable
from datetime import datetime
from functools import partial
from hashlib import sha256
from typing import Final, Protocol, TypeVar

import msgspec

from foldlog._base import steady_clock
from foldlog._base.telemetry import tell
from foldlog.eventstore import (
    ConversationErased,
    ConversationNotFound,
    EventStoreError,
    InvalidArgument,
    Store,
    StoreRefused,
)
from foldlog.eventstore.arguments import check_unicode
from foldlog.eventstore.log.database import Binding, Database
from foldlog.eventstore.log.finding import Fence, find_to_append, tombstones_before
from foldlog.eventstore.log.row import from_microseconds, present
from foldlog.eventstore.log.seal import RowCodec
from foldlog.eventstore.recorders.base import Reader, Transaction
from foldlog.eventstore.recorders.types import Record, utf8

T = TypeVar("T")

_STORE_KEY: Final = 0
"""All leases are stored under this key, and not with their conversations, because a lease may be
older than its conversation.
"""
_CODEC: Final = RowCodec("")
_CODE: Final = 1
_PAUSE_S = 0.005
_PAUSE_MAX_S = 0.1
"""The pauses, in seconds, between attempts to take a lease grow from the first to the second
number.
"""
_RENEWALS: Final = 3
"""A lease is renewed this many times within its time to live."""


class LeaseTaken(EventStoreError):
    """Another worker has the lease of the conversation. Nothing was appended. End this work, and
    begin it again in another ``history.lease()``. ``worker`` has the lease until the time
    ``until``. If the lease is free, ``worker`` and ``until`` are None.
    """

    def __init__(self, conversation: str, problem: str, row: _Row | None, remedy: str) -> None:
        holder = ""
        if row is not None:
            holder = f": {row.worker!r} has it until {row.ends:%Y-%m-%d %H:%M:%S} UTC"
            if row.worker == _this_process():
                holder += " (the lease belongs to another History object of this process)"
        super().__init__(f"conversation {conversation!r}: {problem}{holder}; {remedy}")
        self.conversation = conversation
        self.worker = None if row is None else row.worker
        self.until = None if row is None else row.ends


def _this_process() -> str:
    return f"{os.uname().nodename}:{os.getpid()}"


class Lease:
    """The lease of a worker on a conversation. ``until`` is the time when the lease ends if it is
    not renewed, by the clock of the database.
    """

    def __init__(self, worker: str) -> None:
        self.worker = worker
        self.until: datetime
        self._ends = 0.0

    @property
    def held(self) -> bool:
        """Whether the worker still has the lease, by the clock of this process. Check ``held``
        before an effect outside the store, because an outside system cannot check a token.
        """
        return time.monotonic() < self._ends

    def __repr__(self) -> str:
        return f"<Lease of {self.worker!r} until {self.until}>"


class _Row(msgspec.Struct, frozen=True):
    """The stored lease of a conversation. All times are in microseconds. ``until`` is by the clock
    of the database, and ``steady_until`` by the machine's clock with the name ``steady``. The name
    is empty if there is no such clock.
    """

    token: int
    worker: str
    until: int
    ttl: int
    steady: str = ""
    steady_until: int = 0

    @property
    def ends(self) -> datetime:
        return from_microseconds(self.until)


_read: Final = msgspec.json.Decoder(_Row).decode


def record_name(conversation: str, generation: int) -> str:
    """Return the name of the record with the lease of a conversation. ``generation`` counts the
    erased conversations that had its id before. The name is a hash, because an id may be longer
    than an entry of an index.
    """
    return f"lease {sha256(utf8(f'{generation} {conversation}')).hexdigest()}"


def _find_record_name(database: Database, reader: Reader, conversation: str) -> str:
    """Return the name of the record for the present conversation with an id. Raises an error if
    ``database`` is bound to an earlier conversation with this id.
    """
    conversation_row = database.find(reader, conversation, as_stored=True)
    generation = 0 if conversation_row is None else len(tombstones_before(reader, conversation_row))
    return record_name(conversation, generation)


def _decode_row(name: str, stored: Record) -> _Row | None:
    record = _CODEC.decoded_record(name, stored)
    return None if record is None else _read(record.body)


def _read_row(reader: Reader, name: str) -> _Row | None:
    """Return a stored lease, even if it has ended, or None. A damaged row counts as no lease: the
    appends of its worker are refused, and the next worker takes the lease.
    """
    record = _read_record(reader, name)
    return None if record is None else _decode_row(name, record)


def _read_record(reader: Reader, name: str) -> Record | None:
    for record in reader.records(_STORE_KEY, name, 0, 1):
        return record
    return None


def _now(database: Database, reader: Reader) -> int:
    return int(reader.value("now") or database.now())


def _steady_clock(database: Database) -> str:
    """Return the name of the machine's steady clock, or an empty text if leases do not use it:
    processes on several machines share a server, and a program may give a store its own clock.
    """
    uses_own_clock = database.recorder.on_server or database.now is not present
    return "" if uses_own_clock else steady_clock.name()


def _remaining(database: Database, reader: Reader, row: _Row) -> int:
    """Return the number of microseconds until a lease ends. If it has ended, the number is not
    positive.
    """
    if row.steady and row.steady == _steady_clock(database):
        remaining = row.steady_until - steady_clock.now()
    else:
        remaining = row.until - _now(database, reader)
    # A lease never lasts longer than its time to live, even if a clock was set back.
    return min(remaining, row.ttl)


def _find_living(database: Database, conversation: str, reader: Reader) -> tuple[_Row, int] | None:
    """Return the valid lease of a conversation, and the number of microseconds until the lease
    ends.
    """
    row = _read_row(reader, _find_record_name(database, reader, conversation))
    if row is None:
        return None
    remaining = _remaining(database, reader, row)
    return (row, remaining) if remaining > 0 else None


def lease_of(store: Store, conversation: str) -> Lease | None:
    """Return the lease of the worker that drives a conversation now, or None."""
    asked_at = time.monotonic()
    living = _query_living(store, conversation)
    if living is None:
        return None
    row, remaining = living
    lease = Lease(row.worker)
    lease.until = row.ends
    lease._ends = asked_at + remaining / 1e6
    return lease


def token_of(store: Store, conversation: str) -> str | None:
    """Return the public token of the valid lease of a conversation, or None."""
    living = _query_living(store, conversation)
    return None if living is None else _public_token(living[0].token)


def _query_living(store: Store, conversation: str) -> tuple[_Row, int] | None:
    return store.database.recorder.query(partial(_find_living, store.database, conversation))


def _public_token(token: int) -> str:
    """Return the hash of a token, for events. A person who knows the token itself could append
    under the lease.
    """
    return sha256(b"%d" % token).hexdigest()[:16]


def check_free(database: Database, conversation: str, reader: Reader) -> None:
    """Raise ``LeaseTaken`` if a worker drives the conversation."""
    living = _find_living(database, conversation, reader)
    if living is not None:
        remedy = "nothing was appended; let this worker finish its calls"
        raise LeaseTaken(conversation, "a worker drives it", living[0], remedy)


def lease_that_keeps(store: Store, conversation: str) -> LeaseTaken | None:
    """Return the error with which an erasure refuses a conversation that a worker drives, or
    None.
    """
    living = _query_living(store, conversation)
    if living is None:
        return None
    remedy = "the conversation was not erased; erase it after the lease has ended"
    return LeaseTaken(conversation, "a worker drives it", living[0], remedy)


def read_ends(database: Database, reader: Reader) -> dict[str, datetime | None]:
    """Map the names of all stored leases to the times when they end. The time is None for a lease
    that is over and was not released.
    """
    ends: dict[str, datetime | None] = {}
    for record in reader.newest_records(_STORE_KEY, sys.maxsize):
        if not record.projection.startswith("lease "):
            continue
        row = _decode_row(record.projection, record)
        if row is not None:
            is_living = _remaining(database, reader, row) > 0
            ends[record.projection] = row.ends if is_living else None
    return ends


def ends_of_leases(store: Store) -> list[datetime]:
    """Return the times at which the leases of the store end, the earliest first. Cost: the function
    reads all leases of the store.
    """
    ends = store.database.recorder.query(partial(read_ends, store.database))
    return sorted(end for end in ends.values() if end is not None)


class _Driven(Protocol):
    """A history under a lease, as a ``LeaseBlock`` uses it."""

    id: str
    _store: Store
    _binding: Binding
    _fence: Fence | None
    _lease_block: LeaseBlock | None
    _lease_lock: threading.Lock

    def _conversation_key(self) -> int | None: ...
    def _close_redacted_calls(self) -> None: ...


class LeaseBlock:
    """A block of ``History.lease``. Call ``attempt`` until it takes the lease, then
    ``close_redacted_calls``, and call ``leave`` at the end of the block.

    The lease ends ``ttl_s`` seconds after its last renewal. ``wait_s`` is the time for which
    ``attempt`` waits for another worker. ``worker`` is the name of this worker, by default the host
    and the process. If ``renews`` is false, no thread renews the lease: its holder calls
    ``renew_now`` in time.
    """

    def __init__(
        self,
        history: _Driven,
        ttl_s: float,
        wait_s: float,
        worker: str | None,
        *,
        renews: bool = True,
    ) -> None:
        self._history = history
        self._id = history.id
        self._database = history._store.database
        self.ttl_s = _seconds("ttl_s", ttl_s, 0.01)
        self._give_up_at = time.monotonic() + _seconds("wait_s", wait_s, 0)
        self.lease = Lease(_this_process() if worker is None else check_unicode("worker", worker))
        self._name = ""
        self._token = (int.from_bytes(os.urandom(8)) >> 2) + 1
        self._pid = os.getpid()
        self._checked: Record | None = None
        """The stored record in which the fence last found the token of this lease."""
        self._pause_s = _PAUSE_S
        self._seen: tuple[_Row | None, float] = None, 0.0
        """The lease of another worker, and the moment at which this process first saw it so."""
        self._former: _Row | None = None
        """The lease of the worker from which this block has taken over, until it is reported."""
        self._may_have_it = False
        """Whether this block may have the lease. The write of a lease may have succeeded although
        it raised an error.
        """
        self._renews = renews
        self._has_ended = False
        self._left = threading.Event()
        self._renewing = threading.Thread(
            target=self._keep_renewing, name="foldlog-lease", daemon=True
        )

    @classmethod
    def adopt(cls, history: _Driven, secret: str) -> LeaseBlock:
        """Drive a history under a lease that another block took, perhaps in another process.
        ``secret`` is the ``secret`` of that block. Raises ``LeaseTaken`` if the lease has ended.
        """
        block = cls(history, 1.0, 0.0, None, renews=False)
        token = int(secret, 16) if re.fullmatch("[0-9a-f]{1,16}", secret) else 0
        block._token = token
        block._may_have_it = True
        living = _query_living(history._store, history.id)
        if living is None or living[0].token != token:
            remedy = "nothing was appended; take the lease again"
            row = None if living is None else living[0]
            raise LeaseTaken(history.id, "the lease of this request has ended", row, remedy)
        row, remaining = living
        block.lease = Lease(row.worker)
        block.lease.until = row.ends
        block.ttl_s = row.ttl / 1e6
        block._name = history._store.database.recorder.query(
            partial(_find_record_name, history._store.database, conversation=history.id)
        )
        history._lease_block = block
        block._begin(time.monotonic() + remaining / 1e6 - block.ttl_s)
        return block

    @property
    def token(self) -> str:
        return _public_token(self._token)

    @property
    def secret(self) -> str:
        """The text with which ``adopt`` continues this lease. Only its holder may know it."""
        return f"{self._token:x}"

    def check_held(self, remedy: str) -> None:
        """Raise ``LeaseTaken`` with this remedy if the lease has ended."""
        self._database.recorder.query(partial(self._fence, remedy=remedy))

    def __enter__(self) -> Lease:
        try:
            while (pause_s := self.attempt()) is not None:
                time.sleep(pause_s)
            self.close_redacted_calls()
        except BaseException:
            self.leave()
            raise
        return self.lease

    def __exit__(self, *error: object) -> None:
        self.leave()

    def attempt(self) -> float | None:
        """Try to take the lease. Return None if this worker has it now. If another worker has it,
        return the number of seconds after which to try again. Raises ``LeaseTaken`` if another
        worker still has the lease after ``wait_s`` seconds. Raises ``InvalidArgument`` if the block
        has ended, or if the history is already in another ``lease()`` block.
        """
        if self._has_ended or self._renewing.ident is not None:
            raise InvalidArgument(
                f"this lease() block of {self._id!r} has ended; call history.lease() again"
            )
        with self._history._lease_lock:
            if self._history._lease_block is None:
                self._history._lease_block = self
        if self._history._lease_block is not self:
            raise InvalidArgument(
                f"this History of {self._id!r} is already in a lease() block; for another worker, "
                f"make another History: histories[{self._id!r}]"
            )
        self._history._conversation_key()
        started = time.monotonic()
        # A waiting worker only reads, because a read does not delay other writers.
        other = self._database.recorder.query(self._other)
        if other is None:
            self._may_have_it = True
            other = self._transact(self._take)
        if other is None:
            self._begin(started)
            self._report_takeover()
            return None
        self._may_have_it = False
        if self._seen[0] != other:
            self._seen = other, time.monotonic()
        remaining_s = self._give_up_at - started
        if remaining_s <= 0:
            remedy = (
                "wait longer (wait_s), or answer that the conversation is busy; if the"
                " worker was killed, its lease ends by itself"
            )
            raise LeaseTaken(self._id, "a worker drives it", other, remedy)
        self._pause_s = min(2 * self._pause_s, _PAUSE_MAX_S)
        return min(self._pause_s, remaining_s)

    def close_redacted_calls(self) -> None:
        self._history._close_redacted_calls()

    def _report_takeover(self) -> None:
        """Log once that this worker took the lease from another one."""
        if self._former is None:
            return
        former = self._former.worker
        self._former = None
        tell(
            "foldlog.lease.taken_over",
            conversation=self._id,
            worker=self.lease.worker,
            former=former,
        )

    def leave(self) -> None:
        """End the block, and release the lease. If the release cannot be written, the lease ends
        after its time to live.
        """
        history = self._history
        if history._lease_block is not self or os.getpid() != self._pid:
            return
        self._has_ended = True
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
            history._fence = None
            history._lease_block = None

    # -- in transactions
    # ----------------------------------------------------------------------------------------------

    def _transact(self, work: Callable[[Transaction], T]) -> T:
        return self._database.recorder.transact(work, any_thread=True)

    def _take(self, transaction: Transaction) -> _Row | None:
        """Take the lease, or return the lease of another worker."""
        self._lock_conversation(transaction)
        self._name = _find_record_name(self._database, transaction, self._id)
        other = self._other(transaction)
        if other is not None:
            return other
        former = _read_row(transaction, self._name)
        is_ours = former is not None and former.token == self._token
        self._former = None if is_ours else former
        self._write(transaction)
        return None

    def _other(self, reader: Reader) -> _Row | None:
        """Return the valid lease of another worker, or None. A lease may end by the clock of a
        server, which somebody may set back. So a lease also ends if this process sees it unchanged
        for its whole time to live.
        """
        living = _find_living(self._database, self._id, reader)
        if living is None or living[0].token == self._token:
            return None
        row = living[0]
        last_row, seen_at = self._seen
        if last_row == row and time.monotonic() - seen_at > row.ttl / 1e6:
            return None
        return row

    def _renew_in(self, transaction: Transaction) -> None:
        # Locking the conversation calls ``_fence``, which raises ``LeaseTaken`` if the lease was
        # taken over.
        self._lock_conversation(transaction)
        self._write(transaction)

    def _lock_conversation(self, transaction: Transaction) -> None:
        # A transaction locks the id that it looks for, also before the first event.
        find_to_append(self._database, transaction, self._id, self._history._fence)

    def _write(self, transaction: Transaction) -> None:
        """Write the row of the lease, which ends ``ttl_s`` seconds from now."""
        ttl = int(self.ttl_s * 1e6)
        steady = _steady_clock(self._database)
        row = _Row(
            self._token,
            self.lease.worker,
            _now(self._database, transaction) + ttl,
            ttl,
            steady,
            steady_clock.now() + ttl if steady else 0,
        )
        record = _CODEC.encoded_record(self._name, Record(1, _CODE, msgspec.json.encode(row)))
        transaction.put_records(_STORE_KEY, self._name, [record], replace_all=True)
        self.lease.until = row.ends

    def _give_back(self, transaction: Transaction) -> None:
        # This locks the id. Unlike ``_lock_conversation``, it does not call the fence.
        transaction.conversation(self._id)
        row = _read_row(transaction, self._name)
        if row is not None and row.token == self._token:
            transaction.put_records(_STORE_KEY, self._name, (), replace_all=True)

    def _fence(
        self, reader: Reader, remedy: str = "nothing was appended; begin again with history.lease()"
    ) -> None:
        """Raise ``LeaseTaken`` if the stored lease is not the lease of this block. A forked child
        process has no lease.
        """
        if self._history._binding.key is None:
            # The History has not read its conversation yet. If the conversation of ``_name`` was
            # erased since then, this append begins the next conversation with this id. The next
            # conversation has its own lease.
            name = _find_record_name(self._database, reader, self._id)
        else:
            name = self._name
        record = _read_record(reader, name)
        # A renewal changes the record. Between renewals, a streamed reply has many chunks.
        if record is not None and record == self._checked and os.getpid() == self._pid:
            return
        row = None if record is None else _decode_row(name, record)
        if row is not None and row.token == self._token and os.getpid() == self._pid:
            self._checked = record
        else:
            problem = f"the lease of {self.lease.worker!r} has ended"
            raise LeaseTaken(self._id, problem, row, remedy)

    # -- its time
    # ----------------------------------------------------------------------------------------------

    def _begin(self, started: float) -> None:
        """Begin to fence the appends, and to renew the lease, which was taken at ``started``."""
        self.lease._ends = started + self.ttl_s
        self._history._fence = self._fence
        if self._renews:
            self._renewing.start()

    def _keep_renewing(self) -> None:
        while not self._left.wait(self.ttl_s / _RENEWALS) and self.renew():
            pass

    def renew_now(self) -> None:
        """Renew the lease. Raises ``LeaseTaken`` if it has ended."""
        started = time.monotonic()
        self._transact(self._renew_in)
        self.lease._ends = started + self.ttl_s

    def renew(self) -> bool:
        """Renew the lease. Return False if it cannot be renewed any more, because the lease was
        taken over, the conversation was erased, or the store is closed.
        """
        try:
            self.renew_now()
        except (LeaseTaken, ConversationErased, ConversationNotFound):
            self.lease._ends = 0.0
            return False
        except EventStoreError as error:
            tell("foldlog.lease.failed", conversation=self._id, problem=str(error))
            return not isinstance(error, StoreRefused)
        return True


def _seconds(name: str, value: object, minimum: float) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise TypeError(f"{name} must be a number of seconds, not {value!r:.60}")
    if not minimum <= value < 1e9:
        raise InvalidArgument(f"{name} is {value}; use a number of seconds from {minimum} to 1e9")
    return float(value)
