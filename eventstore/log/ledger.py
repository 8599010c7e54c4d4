"""The ledger: entries for changes of stored conversations, such as erasures.

A read model follows entries and events together, in the order of their positions. The ledger of the
conversation with key k is a separate log under the key -k. The ledger of the whole store has the
key 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from foldlog.eventstore.codec import encode
from foldlog.eventstore.events import Erased, Event, StoreRestored
from foldlog.eventstore.log.row import PLAIN, checksum_seed, present, with_checksums
from foldlog.eventstore.log.seal import RowCodec
from foldlog.eventstore.recorders.base import Reader, Transaction
from foldlog.eventstore.recorders.types import Conversation, Erasure, Row, row_of

_PAGE = 1_000
_ALL = 2**62


def first_question(key: int) -> tuple[str, tuple[int, ...]]:
    """Return the question with which the entries of a conversation are read: see
    ``Reader.ask_ahead``.
    """
    return "rows", (-key, 0, _ALL, _PAGE)


def entries(reader: Reader, key: int) -> Iterator[Row]:
    """Yield the entries for the conversation with this key, in their order."""
    number = 0
    while page := reader.rows(-key, number, _ALL, _PAGE):
        yield from page
        number = page[-1].id + 1


def decoded_entries(reader: Reader, key: int, conversation: str) -> Sequence[Row]:
    """Return the entries for a conversation. A damaged entry has the encoding ``DAMAGED``."""
    return RowCodec(conversation).decode_rows([*entries(reader, key)])


def enter(
    transaction: Transaction, state: Conversation, entry: Event, at: int, *, is_first: bool = False
) -> None:
    """Write an entry for a change of a conversation. ``is_first`` is true for the first entry of a
    conversation.
    """
    _insert_row(
        transaction, state.key, state.id, _row_of_entry(entry, at, *state.end), is_first=is_first
    )


def enter_erasure(transaction: Transaction, state: Conversation, erasure: Erasure) -> Conversation:
    """Erase a conversation, write the entry of the erasure, and return the tombstone."""
    transaction.erase(state.key, erasure)
    tombstone = state._replace(salt=b"", key_id=None, sealed_key=None, erasure=erasure)
    enter(transaction, tombstone, Erased(reason=erasure.reason), erasure.erased_at)
    return tombstone


def erasure_of(tombstones: Iterable[Conversation], position: int) -> Row | None:
    """Return the entry of the erasure at a position, made from its tombstone, or None."""
    for tombstone in tombstones:
        if tombstone.erasure is not None and tombstone.erasure.position == position:
            return _row_of_entry(
                Erased(reason=tombstone.erasure.reason), tombstone.erasure.erased_at, *tombstone.end
            )
    return None


def as_followed(entry: Row) -> Row:
    """Return an entry as followers see it: its id is the version of the conversation."""
    return entry._replace(id=entry.shown_before)


def enter_restoring(transaction: Transaction, after: int) -> None:
    """Write the entry that this file is a restored backup or a copy, which lacks the events after
    position ``after``.
    """
    _insert_row(transaction, 0, "", _row_of_entry(StoreRestored(after=after), present()))


def _row_of_entry(entry: Event, at: int, version: int = 0, head: bytes | None = None) -> Row:
    encoded = encode(entry, ours=True)
    return row_of(0, *encoded[:4], at, PLAIN, encoded.body, head or b"", version)


def _insert_row(
    transaction: Transaction, key: int, name: str, row: Row, *, is_first: bool = False
) -> None:
    """Insert an entry after the entries of the ledger with the key ``key``. ``is_first`` is true if
    the ledger has no entries yet.
    """
    number = 0
    if not is_first:
        for (newest,) in transaction.ask("newest_id", -key, _ALL):
            number = newest + 1
    transaction.insert(
        -key, with_checksums(checksum_seed(name), [row.counted(number, row.shown_before, 0)])
    )
