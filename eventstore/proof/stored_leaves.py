"""The stored lists of leaves, one for each store whose checkpoints this store knows.

The rows of ``records`` with conversation 0 and the projection ``checkpoints foldlog/UUID`` list the
leaves of the store with this UUID; ``version`` is the number of leaves after the row. The body is
JSON: ``size``; ``position``, up to which the checkpoint read the store; ``edge``, the roots of the
largest complete subtrees; ``form``, the form of the extents; ``leaves``, each an array with the
fields of ``Leaf``. Bytes are in base64. A copy of a store has the lists of its source too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import chain
from typing import Final, TypeVar

import msgspec

from foldlog.eventstore.errors import StoreDamaged
from foldlog.eventstore.log.database import Database
from foldlog.eventstore.log.seal import RowCodec
from foldlog.eventstore.maintenance.copy import LISTS_OF_CHECKPOINTS, OF_THE_STORE
from foldlog.eventstore.proof.leaves import FORM, Leaf
from foldlog.eventstore.proof.merkle import grown_edge
from foldlog.eventstore.proof.signed_note import StoreCheckpoint
from foldlog.eventstore.recorders.base import Reader, Transaction
from foldlog.eventstore.recorders.types import Record

T = TypeVar("T")

_CODE: Final = 1
_CODEC: Final = RowCodec("")
LEAVES_A_RECORD: Final = 100
"""How many leaves a record has. Larger records cost every reader of the table ``records``: to find
a row, SQLite copies the whole rows that it compares with the key.
"""
_ALL: Final = 2**62


class Tree(msgspec.Struct, frozen=True):
    """The state of the list after a record of leaves, without the leaves. ``size`` and ``edge``
    belong to the tree after these leaves. ``position`` is the position up to which the store was
    read, and ``form`` the form of the extents of the leaves.
    """

    size: int
    position: str
    edge: tuple[bytes, ...]
    form: int = 0

    def grown(self, position: str, leaves: Sequence[Leaf]) -> StoredLeaves:
        edge = grown_edge(self.edge, self.size, (leaf.hash for leaf in leaves))
        size = self.size + len(leaves)
        return StoredLeaves(size, position, tuple(edge), FORM, leaves=tuple(leaves))


class StoredLeaves(Tree, frozen=True):
    """A record of at most ``LEAVES_A_RECORD`` new leaves."""

    leaves: tuple[Leaf, ...] = ()


_read: Final = msgspec.json.Decoder(StoredLeaves).decode
_read_tree: Final = msgspec.json.Decoder(Tree).decode
"""Skips the leaves. A record of an earlier version has up to 10,000."""


def origin_of(database: Database) -> str:
    """Return the name of a store in the checkpoints that it makes."""
    return f"foldlog/{database.uuid}"


def leaves_of(reader: Reader, checkpoint: StoreCheckpoint) -> list[Leaf]:
    """Return the stored leaves of a checkpoint. If the list was shortened, they are fewer."""
    records = stored_records(reader, checkpoint.origin)
    leaves = chain.from_iterable(stored.leaves for stored in records)
    return [*leaves][: checkpoint.size]


def newest_tree(reader: Reader, origin: str) -> Tree:
    """Return the tree of the last checkpoint, or an empty tree."""
    for record in reader.records(
        OF_THE_STORE, LISTS_OF_CHECKPOINTS + origin, _ALL, 1, backwards=True
    ):
        return _decoded(record, origin, _read_tree)
    return Tree(0, "", (), FORM)


def stored_records(reader: Reader, origin: str) -> Iterator[StoredLeaves]:
    """Yield the records of the list of a store. Raises ``StoreDamaged`` at a damaged one."""
    size = 0
    while page := reader.records(OF_THE_STORE, LISTS_OF_CHECKPOINTS + origin, size, 1):
        yield _decoded(page[0], origin, _read)
        size = page[0].version


def _decoded(record: Record, origin: str, read: Callable[[bytes], T]) -> T:
    """Return what ``read`` makes of a stored record. Raises ``StoreDamaged`` if the record is
    damaged.
    """
    decoded = _CODEC.decoded_record(LISTS_OF_CHECKPOINTS + origin, record)
    if decoded is not None:
        with suppress(msgspec.DecodeError):
            return read(decoded.body)
    raise StoreDamaged(
        f"the list of checkpoints is damaged at leaf {record.version}; restore the store from a"
        " backup"
    )


def put_if_newest(
    transaction: Transaction, origin: str, former: Tree, records: Sequence[StoredLeaves]
) -> bool:
    """Store records after the tree of the last checkpoint. Return false, and store nothing, if
    another process has made a checkpoint meanwhile.
    """
    transaction.lock_all([LISTS_OF_CHECKPOINTS])
    if newest_tree(transaction, origin) != former:
        return False
    put_records(transaction, origin, records)
    return True


def put_records(transaction: Transaction, origin: str, records: Iterable[StoredLeaves]) -> None:
    """Store records of the list of a store."""
    name = LISTS_OF_CHECKPOINTS + origin
    encoded = (Record(stored.size, _CODE, msgspec.json.encode(stored)) for stored in records)
    with_checksums = [_CODEC.encoded_record(name, record) for record in encoded]
    transaction.put_records(OF_THE_STORE, name, with_checksums)
