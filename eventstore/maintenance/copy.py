"""Copy conversations from one store to another with their ids, times, salts and heads.

Positions and the records of projections are not copied: projections are made again from the events.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from operator import itemgetter
from typing import NamedTuple

from foldlog.eventstore.errors import ConversationErased, ConversationNotFound, CorruptEvent, HistoryDiverged
from foldlog.eventstore.events import RedactionCopied
from foldlog.eventstore.log.database import Database, paged, start_after
from foldlog.eventstore.log.generation import tombstones_before
from foldlog.eventstore.log.importing import CHUNK as CHUNK
from foldlog.eventstore.log.importing import StagedWriter, chunked, stored_rows
from foldlog.eventstore.log.ledger import enter, enter_erasure
from foldlog.eventstore.log.past import Link, follows, links_of
from foldlog.eventstore.log.reading import ReadTransaction, find_again
from foldlog.eventstore.log.row import (
    PLAIN,
    checksum_seed,
    from_microseconds,
    is_redacted,
    link_of,
    not_erased,
    stored_event_of,
    with_checksums,
)
from foldlog.eventstore.log.seal import RowCodec
from foldlog.eventstore.log.writing import WriteTransaction
from foldlog.eventstore.maintenance.redact import forks_that_share, redact_rows
from foldlog.eventstore.recorders.base import Reader, Transaction
from foldlog.eventstore.recorders.types import Beginning, Conversation, Erasure, RecalledKey, Row

_name = itemgetter(0)

RememberedKey = tuple[str, int, int]
"""An idempotency key, the first id that it stands for, and the number of ids."""


class CopiedConversation(NamedTuple):
    """A conversation to copy, without its rows and keys; for an erased conversation, its tombstone.

    ``replaces`` is the tombstone of the erased conversation whose id it uses again.
    """

    id: str
    created_at: int
    salt: bytes
    version: int
    head: bytes | None
    erasure: Erasure | None
    past: tuple[Link, ...] = ()
    """For a fork: the names and salts under which the shared events were recorded. These events are copied with it."""
    replaces: Erasure | None = None
    redactions: int | None = None
    """What the source counts; None where that is not known: then redacted events are counted."""


class Copied(NamedTuple):
    """The outcome of a copy: how many events and tombstones were added, and the version of the conversation now.
    ``erased``: the copy is a tombstone, of ``version`` events.
    """

    conversation: str
    added: int
    version: int
    tombstones: int = 0
    erased: bool = False


def copy_conversation(source: Database, target: Database, conversation: str) -> Copied:
    """Copy one conversation, or the tail that the target does not have yet.

    Raises ``ConversationNotFound``; ``CorruptEvent`` where the source is damaged; ``HistoryDiverged`` where the target
    has other events, and ``ConversationErased`` where the target erased the conversation. A new conversation appears
    whole or not at all. Cost: its events, in small transactions; memory for one of them.
    """
    earlier = 0
    for tombstone in tombstones(source, conversation):
        earlier += copy_tombstone(target, tombstone).tombstones
    what, rows, keys = read_for_copy(source, conversation)
    if what.erasure is not None:
        copied = copy_tombstone(target, what)
    else:
        with CopyTarget(target, what) as copying:
            for chunk in chunked(rows):
                copying.copy(chunk)
            copying.remember(keys)
            copied = copying.end()
    return copied._replace(tombstones=earlier + copied.tombstones)


def read_for_copy(
    source: Database, conversation: str
) -> tuple[CopiedConversation, Iterator[Row], Iterator[RememberedKey]]:
    """Return the conversation to copy, its rows in order, and its idempotency keys. Rows and keys are read lazily."""
    found, links, earlier = source.recorder.query(partial(_found_with_links, source, conversation))
    if found is None:
        raise ConversationNotFound(conversation)
    replaces = earlier[-1].erasure if earlier else None
    if found.erasure is not None:
        return _tombstone(found, replaces), iter(()), iter(())
    source.data_key(found)  # its key is given, or the error comes before anything is copied
    what = CopiedConversation(
        found.id, found.created_at, found.salt, found.version, found.head, None, links, replaces, found.redactions
    )
    return what, stored_rows(source, found), remembered_keys(source, found)


def _found_with_links(
    source: Database, conversation: str, reader: Reader
) -> tuple[Conversation | None, tuple[Link, ...], Sequence[Conversation]]:
    found = source.find(reader, conversation)
    if found is None:
        return None, (), ()
    return found, () if found.erasure is not None else links_of(source, reader, found), tombstones_before(reader, found)


def tombstones(source: Database, conversation: str) -> list[CopiedConversation]:
    """Return the tombstones of the erased conversations that had this id before."""
    _, _, earlier = source.recorder.query(partial(_found_with_links, source, conversation))
    before = [None, *(one.erasure for one in earlier)]
    return [_tombstone(one, replaces) for one, replaces in zip(earlier, before, strict=False)]


def _tombstone(found: Conversation, replaces: Erasure | None) -> CopiedConversation:
    erasure = found.erasure
    assert erasure is not None
    return CopiedConversation(found.id, found.created_at, b"", erasure.events, erasure.head, erasure, replaces=replaces)


def remembered_keys(source: Database, found: Conversation, sound_by: RowCodec | None = None) -> Iterator[RememberedKey]:
    """Yield its idempotency keys lazily. A key that was changed without the key of the conversation is skipped where
    ``sound_by`` is given; else it raises ``CorruptEvent``.
    """

    def some(reader: Reader, after: str | None) -> Sequence[tuple[str, RecalledKey]]:
        page = reader.recalled(found.key, start_after(after), CHUNK)
        if sound_by is None:
            ReadTransaction(reader, found, source).check_proofs(page)
        return page

    for name, recalled in paged(lambda after: source.recorder.query(partial(some, after=after)), _name, CHUNK):
        key = name, recalled.first_id, recalled.events
        # A key of an event after those that are copied now is copied with that event.
        if stands_for_events(key, found.version) and (sound_by is None or sound_by.is_proved(name, recalled)):
            yield key


def stands_for_events(key: RememberedKey, version: int) -> bool:
    """Return whether an idempotency key names events that a history of this length has."""
    _, first, events = key
    return type(first) is int and type(events) is int and first >= 0 < events and first + events <= version


class CopyTarget(StagedWriter):
    """One conversation that is being copied into a store: rows are compared by their heads, and each head is computed.

    Its constructor raises ``ConversationErased`` if the target erased the conversation, ``HistoryDiverged`` where the
    conversation there is another one.
    """

    def __init__(self, target: Database, what: CopiedConversation) -> None:
        found = target.recorder.query(lambda reader: target.find(reader, what.id))
        replaces = found.key if found is not None and _is_tombstone(found, what.replaces) else None
        there = None if replaces is not None else not_erased(found)
        if there is not None and there.salt != what.salt:
            raise HistoryDiverged(what.id, 0, there.version)
        self._what = what
        self._copied = Conversation(0, what.id, what.created_at, what.salt, 0, None, None)
        """The conversation up to the last copied event. Each head was checked."""
        self._redacted = 0
        super().__init__(target, self._copied, there, replaces=replaces, past=what.past)

    def copy(self, rows: Sequence[Row]) -> None:
        """Add the next rows, plain, at most some thousand, as far as the store does not have them.

        Raises ``CorruptEvent`` at a row that does not follow the one before it, ``HistoryDiverged`` where the store has
        another event, ``VersionConflict`` if another writer appends to the conversation during the copy.
        """
        rows = _sound(self._copied, rows, self._what.past)
        self._copied = self._copied.grown(rows[-1])
        new = rows if self.there is None else self._behind(self.there, rows)
        gone = {row.id: row for row in rows if is_redacted(row.proof)}
        self._redacted += len(gone)
        if gone and self.there is not None:
            self.transact(partial(_redact_too, there=self.there, gone=gone, database=self.database))
        if new:
            self.add(new, lambda writing: None)

    def remember(self, keys: Iterable[RememberedKey]) -> None:
        """Add its idempotency keys, after all rows and before the conversation becomes visible."""
        copied = (key for key in keys if key[1] + key[2] <= self._copied.version)
        while self.key is not None and (some := list(islice(copied, CHUNK))):
            self.transact(partial(_remember, database=self.database, key=self.key, some=some))

    def end(self, *, is_end_known: bool = True) -> Copied:
        """Make the conversation visible. Raises ``CorruptEvent`` where rows are missing; without ``is_end_known``, only
        where all are.
        """
        what, copied = self._what, self._copied
        if is_end_known and (copied.version, copied.head) != (what.version, what.head):
            announced = f"{what.version} events were announced, and this one is missing"
            raise CorruptEvent(what.id, copied.version, announced)
        if self.there is None and not copied.version:
            raise CorruptEvent(what.id, 0, "it is missing, and so is the whole conversation")
        version = max(copied.version, 0 if self.there is None else self.there.version)
        if self.key is not None:
            count = self._redacted if what.redactions is None else what.redactions
            self.transact(partial(_count_redactions, database=self.database, key=self.key, count=count))
        self.publish(version)
        return Copied(what.id, self.added, version)

    def _behind(self, there: Conversation, rows: Sequence[Row]) -> Sequence[Row]:
        """Return the rows that the store does not have. Raise unless the rows that it has end in the same head."""
        version = self._copied.version
        if version <= there.version:
            own = self.database.recorder.query(lambda reader: find_again(self.database, reader, there).head_at(version))
            if own != self._copied.head:
                raise HistoryDiverged(there.id, rows[0].id, there.version)
            return ()
        first = there.version - rows[0].id
        if first > 0 and rows[first - 1].head != there.head:
            raise HistoryDiverged(there.id, rows[0].id, there.version)
        return rows[max(first, 0) :]


def copy_tombstone(target: Database, what: CopiedConversation) -> Copied:
    """Add a tombstone, unless the target has it. Raises ``ConversationErased`` where the conversation lives there."""
    erasure = what.erasure
    assert erasure is not None

    def add(transaction: Transaction) -> bool:
        found = target.find(transaction, what.id)
        if found is not None and any(
            _is_tombstone(one, erasure) for one in (*tombstones_before(transaction, found), found)
        ):
            return False
        replaces = found.key if found is not None and _is_tombstone(found, what.replaces) else None
        if found is None or replaces is not None:
            begun = transaction.begin(Beginning(what.id, what.created_at, b"", replaces=replaces))
            enter_erasure(transaction, begun, erasure)
            return True
        if found.erasure is None:
            when = from_microseconds(erasure.erased_at).isoformat()
            reason = f"{erasure.reason}; the source erased it, and the target did not: erase it in the target too"
            raise ConversationErased(what.id, when, reason)
        return False

    return Copied(what.id, 0, what.version, int(target.recorder.transact(add)), erased=True)


def _remember(transaction: Transaction, database: Database, key: int, some: Sequence[RememberedKey]) -> None:
    found = not_erased(database.find_key(transaction, key))
    if found is None:
        return  # a staged copy was discarded: its publication says so
    writing = WriteTransaction(transaction, found, database)
    for name, first, events in some:
        if writing.recalled(name) is None:
            writing.remember(name, RecalledKey(first, events))
    writing.end()


def _redact_too(transaction: Transaction, there: Conversation, gone: Mapping[int, Row], database: Database) -> None:
    """Redact events of the target that the source has redacted since they were copied."""
    found = not_erased(database.find_key(transaction, there.key))
    if found is None:
        raise ConversationNotFound(there.id)
    writing = WriteTransaction(transaction, found, database)
    has_content = [
        (stored_event_of(found.id, row), gone[row.id])
        for first in gone
        for row in writing.rows(first, first + 1, 1)
        if not is_redacted(row.proof)
    ]
    if has_content:
        forks = forks_that_share(database, transaction, found.key, has_content[0][0].id)
        redact_rows(transaction, writing, has_content, [*forks])
        copied = RedactionCopied(event_ids=tuple(event.id for event, _ in has_content))
        enter(transaction, writing.found, copied, max(database.now(), found.updated_at or 0))


def _count_redactions(transaction: Transaction, database: Database, key: int, count: int) -> None:
    """Count as many redactions as the source: where the numbers are equal, both show the same content."""
    found = not_erased(database.find_key(transaction, key))
    if found is not None and found.redactions != count:
        writing = WriteTransaction(transaction, found, database)
        writing.count_redactions(count - found.redactions)
        writing.end()


def _is_tombstone(found: Conversation, erasure: Erasure | None) -> bool:
    """Return whether this row of a conversation is this tombstone."""
    own = found.erasure
    return own is not None and erasure is not None and (own.events, own.head) == (erasure.events, erasure.head)


def _sound(copied: Conversation, rows: Sequence[Row], links: Sequence[Link]) -> list[Row]:
    """Return the rows with their counts and checksums, after checking that each fits its head."""
    head = copied.head
    expected, shown, structural = copied.version, copied.shown, copied.structural
    sound = []
    for row in rows:
        if row.encoding != PLAIN:
            raise CorruptEvent(copied.id, row.id, row.body.decode(errors="replace"))
        if row.id != expected:
            raise CorruptEvent(copied.id, expected, "it is missing")
        before, salt = follows(copied.id, copied.salt, links, row.id, head)
        head = link_of(before, salt, row)
        if head != row.head:
            raise CorruptEvent(
                copied.id, row.id, "its head is not the head of the copied event: one of the two was changed"
            )
        sound.append(row._replace(shown_before=shown, structural_before=structural))
        expected, shown, structural = expected + 1, shown + row.shown, structural + row.structural
    return with_checksums(checksum_seed(copied.id), sound)
