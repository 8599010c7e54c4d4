"""The ledger: what changed a conversation after the fact, as entries in the one order of positions.

Whatever is derived from events follows this order and applies the entries. The ledger of
conversation k is a log like that of a conversation, under the key -k; that of the store as a whole
is under 0.
"""

from __future__ import annotations

from collections.abc import Iterable

from foldlog.eventstore.codec import encode
from foldlog.eventstore.events import Erased, Event, StoreRestored
from foldlog.eventstore.log.row import PLAIN, checksum_seed, present, with_checksums
from foldlog.eventstore.recorders.base import Transaction
from foldlog.eventstore.recorders.types import Conversation, Erasure, Row, row_of

_PAGE = 1_000
_ALL = 2**62


def enter(
    transaction: Transaction, found: Conversation, entry: Event, at: int, *, is_first: bool = False
) -> None:
    """Enter a change of a conversation. It gets the next position. Cost: a row; unless it
    ``is_first`` in the ledger of the conversation, the earlier entries too.
    """
    _insert(transaction, found.key, found.id, _row(entry, at, *found.end), is_first=is_first)


def enter_erasure(transaction: Transaction, found: Conversation, erasure: Erasure) -> Conversation:
    """Make a conversation a tombstone, and enter that. Return it as it is then."""
    transaction.erase(found.key, erasure)
    erased = found._replace(salt=b"", key_id=None, sealed_key=None, erasure=erasure)
    enter(transaction, erased, Erased(reason=erasure.reason), erasure.erased_at)
    return erased


def erasure_of(tombstones: Iterable[Conversation], position: int) -> Row | None:
    """Return the entry at a position as the tombstone of the conversation tells it, if it is that
    of an erasure.
    """
    for each in tombstones:
        if each.erasure is not None and each.erasure.position == position:
            return _row(Erased(reason=each.erasure.reason), each.erasure.erased_at, *each.end)
    return None


def as_followed(entry: Row) -> Row:
    """Return the row of an entry with the id that followers know it by: the version of its
    conversation.
    """
    return entry._replace(id=entry.shown_before)


def enter_restoring(transaction: Transaction, after: int) -> None:
    """Enter that the file of the store is another one since, which has no positions after
    ``after``.
    """
    _insert(transaction, 0, "", _row(StoreRestored(after=after), present()))


def _row(entry: Event, at: int, version: int = 0, head: bytes | None = None) -> Row:
    kind, schema, shown, structural, body, _ = encode(entry, ours=True)
    return row_of(0, kind, schema, shown, structural, at, PLAIN, body, head or b"", version)


def _insert(
    transaction: Transaction, key: int, name: str, row: Row, *, is_first: bool = False
) -> None:
    number = 0
    while not is_first and (earlier := transaction.rows(-key, number, _ALL, _PAGE)):
        number = earlier[-1].id + 1
    transaction.insert(
        -key, with_checksums(checksum_seed(name), [row.counted(number, row.shown_before, 0)])
    )
