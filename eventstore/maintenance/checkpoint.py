"""Checkpoints: one root over the heads of all conversations, to keep where the writers of the store
cannot change it.

A checkpoint is the root of a Merkle tree. Each checkpoint adds a leaf for every conversation that
changed since the checkpoint before, so it costs nothing at appends, and its cost depends only on
what is new. ``docs/internals/STORED_BYTES.md`` defines the bytes of a leaf.

The rows of ``records`` with conversation 0 and the projection ``checkpoints foldlog/UUID`` list the
leaves of the store with this UUID; ``version`` is the number of leaves after the row. The body is
JSON: ``size``; ``position``, up to which the checkpoint read the store; ``edge``, the roots of the
largest complete subtrees; ``leaves``, each ``[id, generation, erased, version, head, ledger]``.
Bytes are in base64. A copy of a store has the lists of its source too.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from hashlib import sha256
from itertools import accumulate, chain
from operator import attrgetter
from typing import Final

import msgspec

from foldlog.eventstore.errors import StoreDamaged, count
from foldlog.eventstore.events import Redaction
from foldlog.eventstore.log.database import Database, iter_pages, start_after
from foldlog.eventstore.log.finding import tombstones_before
from foldlog.eventstore.log.ledger import entries
from foldlog.eventstore.log.row import stored_event_of
from foldlog.eventstore.log.seal import RowCodec
from foldlog.eventstore.maintenance.archive import check_archived
from foldlog.eventstore.maintenance.archived import address_of_object, read_archived
from foldlog.eventstore.maintenance.merkle import grown_edge, leaf_hash, root_of, root_of_edge
from foldlog.eventstore.maintenance.signed_note import StoreCheckpoint
from foldlog.eventstore.maintenance.verify import Verdict, of_all, verify
from foldlog.eventstore.recorders.base import Reader, Transaction
from foldlog.eventstore.recorders.types import (
    HEAD_BYTES,
    Conversation,
    Erasure,
    Record,
    Row,
    as_text,
    utf8,
)
from foldlog.eventstore.store import Store

_OF_THE_STORE: Final = 0
_LIST: Final = "checkpoints "
"""The list of checkpoints of a store has this name, and the origin. A copy has the lists of its
sources too.
"""
_CODE: Final = 1
_CODEC: Final = RowCodec("")
_ATTEMPTS: Final = 5
"""How many times a comparison is repeated if the conversation changed during the comparison."""
_PAGE: Final = 1_000
_LEAVES: Final = 10_000
_ALL: Final = 2**62
_NOTHING: Final = bytes(HEAD_BYTES)
_numbers: Final = struct.Struct(">BIQ").pack
_time: Final = struct.Struct(">q").pack


class Leaf(msgspec.Struct, frozen=True, array_like=True):
    """The state of a conversation at a checkpoint.

    ``name``        the id of the conversation, in UTF-8; empty for the store itself
    ``generation``  how many erased conversations had this id before
    ``erased``      whether the conversation is a tombstone
    ``version``     the number of events
    ``head``        the last head; for a tombstone, a hash of the tombstone
    ``ledger``      a hash over the entries of the conversation's ledger
    """

    name: bytes
    generation: int
    erased: bool
    version: int
    head: bytes
    ledger: bytes

    @property
    def hash(self) -> bytes:
        numbers = _numbers(self.erased, self.generation, self.version)
        return leaf_hash(sha256(self.name).digest() + numbers + self.head + self.ledger)


class _Stored(msgspec.Struct, frozen=True):
    """A record of at most 10,000 new leaves. ``size`` and ``edge`` belong to the tree after these
    leaves. ``position`` is the position up to which the store was read.
    """

    size: int
    position: str
    edge: tuple[bytes, ...]
    leaves: tuple[Leaf, ...]

    def grown(self, position: str, leaves: Sequence[Leaf]) -> _Stored:
        edge = grown_edge(self.edge, self.size, (leaf.hash for leaf in leaves))
        return _Stored(self.size + len(leaves), position, tuple(edge), tuple(leaves))


_read: Final = msgspec.json.Decoder(_Stored).decode


# -- making a checkpoint


def origin_of(database: Database) -> str:
    return f"foldlog/{database.uuid}"


def make_checkpoint(store: Store) -> StoreCheckpoint:
    """Make and store a checkpoint of the present state. If nothing is new, it is the last one.

    Cost: reading one row of each conversation that changed since the last checkpoint.
    """
    recorder = store.database.recorder
    origin = origin_of(store.database)
    while True:
        newest = recorder.query(partial(_newest, origin=origin))
        after = recorder.position(newest.position) if newest.position else 0
        position, leaves = recorder.query(partial(_new_leaves, after_position=after))
        if recorder.store_count > 1:  # joined stores have no common ledger
            leaves = [leaf for leaf in leaves if leaf.name]
        records = [newest]
        for start in range(0, len(leaves), _LEAVES):
            records.append(records[-1].grown(position, leaves[start : start + _LEAVES]))
        if recorder.transact(partial(_put, origin=origin, records=records)):
            return StoreCheckpoint(origin, records[-1].size, root_of_edge(records[-1].edge))


def _put(transaction: Transaction, origin: str, records: Sequence[_Stored]) -> bool:
    transaction.lock_all([_LIST])
    former, *new = records
    if _newest(transaction, origin) != former:
        return False  # another process has made a checkpoint
    _put_records(transaction, origin, new)
    return True


def _put_records(transaction: Transaction, origin: str, records: Iterable[_Stored]) -> None:
    name = _LIST + origin
    encoded = (Record(stored.size, _CODE, msgspec.json.encode(stored)) for stored in records)
    with_checksums = [_CODEC.encoded_record(name, record) for record in encoded]
    transaction.put_records(_OF_THE_STORE, name, with_checksums)


def _new_leaves(reader: Reader, after_position: int) -> tuple[str, list[Leaf]]:
    until, touched = reader.touched(after_position, 0)
    if after_position:
        found = (reader.conversation(key) for key, _ in sorted(touched) if key)
        states = [state for state in found if state and (state.visible or state.erasure)]
    else:
        states = [*_all_states(reader)]
    leaves = [_leaf(reader, state) for state in states]
    if not after_position or (_OF_THE_STORE, -1) in touched:
        leaves.append(Leaf(b"", 0, False, 0, _NOTHING, _ledger(reader, _OF_THE_STORE)))
    return str(until), [leaf for leaf in leaves if leaf.version or leaf.ledger != _NOTHING]


def _all_states(reader: Reader) -> Iterator[Conversation]:
    def page(after: str | None) -> Sequence[Conversation]:
        return reader.conversations(start_after(after), _PAGE)

    for state in iter_pages(page, attrgetter("id"), _PAGE):
        yield from tombstones_before(reader, state)
        yield state


def _leaf(reader: Reader, state: Conversation) -> Leaf:
    version, head = state.end
    if state.erasure is not None:
        head = _receipt(state.erasure)
    return Leaf(
        utf8(state.id),
        len(tombstones_before(reader, state)),
        state.erasure is not None,
        version,
        head or _NOTHING,
        _ledger(reader, state.key),
    )


def _receipt(erasure: Erasure) -> bytes:
    return sha256(erasure.head + _time(erasure.erased_at) + utf8(erasure.reason)).digest()


def _ledger(reader: Reader, key: int) -> bytes:
    *_, newest = _ledgers(reader, key)
    return newest


def _ledgers(reader: Reader, key: int) -> Iterator[bytes]:
    """Yield the hash of a ledger before its first entry, then after each entry."""
    return accumulate(
        entries(reader, key),
        lambda former, row: sha256(former + row.columns + row.body).digest(),
        initial=_NOTHING,
    )


# -- the lists of checkpoints


def _newest(reader: Reader, origin: str) -> _Stored:
    for record in reader.records(_OF_THE_STORE, _LIST + origin, _ALL, 1, backwards=True):
        return _decoded(record, origin)
    return _Stored(0, "", (), ())


def _decoded(record: Record, origin: str) -> _Stored:
    decoded = _CODEC.decoded_record(_LIST + origin, record)
    if decoded is None:
        raise StoreDamaged(
            f"the list of checkpoints is damaged at leaf {record.version}; restore the store from a"
            " backup"
        )
    return _read(decoded.body)


def _records(reader: Reader, origin: str) -> Iterator[_Stored]:
    size = 0
    while page := reader.records(_OF_THE_STORE, _LIST + origin, size, 1):
        yield _decoded(page[0], origin)
        size = page[0].version


def leaves_of(reader: Reader, checkpoint: StoreCheckpoint) -> list[Leaf]:
    records = _records(reader, checkpoint.origin)
    leaves = chain.from_iterable(stored.leaves for stored in records)
    return [*leaves][: checkpoint.size]


def copy_checkpoints(source: Database, target: Database) -> None:
    """Copy the lists of checkpoints, so that a copy can be verified against them."""

    def read(reader: Reader) -> dict[str, list[_Stored]]:
        names = (record.projection for record in reader.records(_OF_THE_STORE, None, 0, _ALL))
        origins = [name.removeprefix(_LIST) for name in names if name.startswith(_LIST)]
        return {origin: [*_records(reader, origin)] for origin in origins}

    lists: dict[str, list[_Stored]] = {}
    # Damage beside the events costs the copy no event. Verifying the copy names a missing list.
    with suppress(StoreDamaged):
        lists = source.recorder.query(read)
    for origin, records in lists.items():
        target.recorder.transact(partial(_put_records, origin=origin, records=records))


# -- verifying against a checkpoint


def verify_against(store: Store, checkpoint: StoreCheckpoint) -> Iterator[Verdict]:
    """Check every event as ``verify`` does, and compare every conversation with the leaves of a
    checkpoint. Without the key of an encrypted conversation, compare the stored heads. Erasures
    and redactions since the checkpoint are lawful: the verdicts have their receipts.

    The last verdict is about the store. Raises the errors of ``verify``.
    """
    comparison = _Comparison(store, checkpoint)
    for verdict in verify(store):
        if verdict.conversation is not None:
            yield comparison.compare(check_archived(store, verdict))
            continue
        yield from comparison.missing()
        problems = map(of_all, comparison.problems())
        yield verdict._replace(findings=(*verdict.findings, *problems))


class _Comparison:
    def __init__(self, store: Store, checkpoint: StoreCheckpoint) -> None:
        self._database = store.database
        self._recorder = store.database.recorder
        self._checkpoint = checkpoint
        # A copy has a ledger of its own.
        self._is_copy = checkpoint.origin != origin_of(store.database)
        self._leaves = self._recorder.query(partial(leaves_of, checkpoint=checkpoint))
        self._receipts = set[tuple[bytes, bytes]]()
        self._compared = set[tuple[bytes, int]]()
        self._of_place: dict[tuple[bytes, int], list[Leaf]] = {}
        for leaf in self._leaves:
            self._of_place.setdefault((leaf.name, leaf.generation), []).append(leaf)

    def problems(self) -> Iterator[str]:
        if len(self._leaves) < self._checkpoint.size:
            yield (
                f"its list of checkpoints has {len(self._leaves):,} of the"
                f" {self._checkpoint.size:,} leaves of the checkpoint: the list was shortened, or"
                " the store is older than the checkpoint"
            )
        elif root_of([leaf.hash for leaf in self._leaves]) != self._checkpoint.root:
            yield (
                "its list of checkpoints was changed: its root is not the root of the checkpoint,"
                " so conversations may be changed that are not named"
            )
        if not self._has_ledger(_OF_THE_STORE, self._of_place.get((b"", 0), ())):
            yield "the ledger of the store was changed since the checkpoint"

    def missing(self) -> Iterator[Verdict]:
        """Yield verdicts about the tombstones and conversations that are not in the store."""
        for place, leaves in self._of_place.items():
            newest = leaves[-1]
            problem = ""
            if newest.erased and (newest.name, newest.head) not in self._receipts:
                problem = "its tombstone was changed or removed since the checkpoint"
            elif newest.version and not newest.erased and place not in self._compared:
                had = count(newest.version, "event")
                problem = f"it is missing, and had {had} at the checkpoint"
            if problem:
                yield Verdict(as_text(newest.name), 0, None, None, (of_all(problem),))

    def compare(self, verdict: Verdict, attempts: int = _ATTEMPTS) -> Verdict:
        name = utf8(verdict.conversation or "")
        if verdict.erasure is not None:
            self._receipts.add((name, _receipt(verdict.erasure)))
        self._compared.add((name, verdict.generation))
        leaves = self._of_place.get((name, verdict.generation), [])
        state = self._recorder.query(partial(_state_of, verdict=verdict))
        if state is None or not leaves:
            return verdict
        findings = [*verdict.findings]
        has_heads = all(finding.needs_key for finding in findings)
        if not self._has_ledger(state.key, leaves):
            findings.append(of_all("its ledger was changed since the checkpoint"))
        changes = [*self._changes(state, leaves, has_heads)]
        if changes and attempts:  # another process may have archived it between two reads
            present = self._recorder.query(partial(_state_of, verdict=verdict))
            if present != state:
                return self.compare(verdict, attempts - 1)
        findings += map(of_all, changes)
        if findings or state.erasure is not None:
            return verdict._replace(findings=tuple(findings))
        return verdict._replace(redactions=self._redactions(state, leaves[-1].version))

    def _changes(
        self, state: Conversation, leaves: Sequence[Leaf], has_heads: bool
    ) -> Iterator[str]:
        """Compare stored heads, unless ``verify`` has found damage. ``verify`` has also found that
        the heads belong to the events, unless the key of the conversation is missing.
        """
        version, _ = state.end
        for leaf in leaves:
            if leaf.erased or not leaf.version:
                continue
            if leaf.version > version:
                had = count(leaf.version, "event")
                yield f"its end is cut off: it had {had} at the checkpoint, and has {version:,}"
            elif has_heads and not self._has_head(state, leaf):
                yield (
                    f"at version {leaf.version} its head differs from the checkpoint: its history"
                    " was rewritten"
                )

    def _has_ledger(self, key: int, leaves: Sequence[Leaf]) -> bool:
        ledgers = self._recorder.query(lambda reader: {*_ledgers(reader, key)})
        return self._is_copy or ledgers.issuperset(leaf.ledger for leaf in leaves)

    def _has_head(self, state: Conversation, leaf: Leaf) -> bool:
        if state.erasure is not None:  # the rows of earlier versions are gone
            return leaf.version < state.erasure.events or leaf.head == state.erasure.head

        def read(reader: Reader) -> Sequence[bytes]:
            last = leaf.version - 1
            if leaf.version < state.version and state.archived:
                archived = read_archived(state.id, address_of_object(reader, state.key))
                return [row.head for row, _ in archived if row.id == last]
            past = (one.key for one in state.lineage if leaf.version <= one.stop)
            *_, key = (state.key, *past)
            return [row.head for row in reader.rows(key, last, leaf.version, 1)]

        return leaf.head in self._recorder.query(read)

    def _redactions(self, state: Conversation, version: int) -> tuple[Redaction, ...]:
        # Not ``Store.events``, because it restores an archived conversation.
        def read(reader: Reader) -> list[Row]:
            columns = reader.columns(state.key, version, state.version, state.version)
            ids = [event_id for event_id, kind, *_ in columns if kind == b"redaction"]
            return [row for n in ids for row in reader.rows(state.key, n, n + 1, 1)]

        rows = self._database.codec_of(state).decode_rows(self._recorder.query(read))
        events = (stored_event_of(state.id, row) for row in rows)
        return tuple(event for event in events if isinstance(event, Redaction))


def _state_of(reader: Reader, verdict: Verdict) -> Conversation | None:
    newest = reader.conversation(verdict.conversation or "")
    if newest is None:
        return None
    return [*tombstones_before(reader, newest), newest][verdict.generation]
