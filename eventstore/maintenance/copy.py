"""Copy conversations from one store to another with their ids, times, salts and heads.

Positions and the records of projections are not copied: projections are made again from the events.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from operator import itemgetter
from typing import NamedTuple

from eventstore.codec_json import size_of
from eventstore.errors import ConversationErased, ConversationNotFound, CorruptEvent, HistoryDiverged, VersionConflict
from eventstore.log.database import Database, paged, start_after
from eventstore.log.generation import tombstones_before
from eventstore.log.past import Link, follows
from eventstore.log.reading import ReadTransaction, find_again
from eventstore.log.row import PLAIN, checksum, checksum_seed, from_microseconds, is_redacted, link_of, not_erased
from eventstore.log.seal import RowCodec
from eventstore.log.staging import REST_S, delete_rows, staged
from eventstore.log.writing import WriteTransaction, check_plain
from eventstore.maintenance.damage import raise_unless_damage
from eventstore.recorders.base import Reader, Transaction
from eventstore.recorders.errors import RecorderError
from eventstore.recorders.types import Beginning, Conversation, Erasure, RecalledKey, Row

CHUNK = 1_000
_CHUNK_BYTES = 8 * 2**20
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
        with CopyTarget(target, tombstone) as copying:
            earlier += copying.end().tombstones
    what, rows, keys = read_for_copy(source, conversation)
    with CopyTarget(target, what) as copying:
        for chunk in chunked(rows):
            copying.add(chunk)
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
    what = CopiedConversation(found.id, found.created_at, found.salt, found.version, found.head, None, links, replaces)
    return what, _rows(source, found), remembered_keys(source, found)


def _found_with_links(
    source: Database, conversation: str, reader: Reader
) -> tuple[Conversation | None, tuple[Link, ...], Sequence[Conversation]]:
    found = source.find(reader, conversation)
    if found is None:
        return None, (), ()
    return found, () if found.erasure is not None else source.links(reader, found), tombstones_before(reader, found)


def tombstones(source: Database, conversation: str) -> list[CopiedConversation]:
    """Return the tombstones of the erased conversations that had this id before."""
    _, _, earlier = source.recorder.query(partial(_found_with_links, source, conversation))
    before = [None, *(one.erasure for one in earlier)]
    return [_tombstone(one, replaces) for one, replaces in zip(earlier, before, strict=False)]


def _tombstone(found: Conversation, replaces: Erasure | None) -> CopiedConversation:
    erasure = found.erasure
    assert erasure is not None
    return CopiedConversation(found.id, found.created_at, b"", erasure.events, erasure.head, erasure, replaces=replaces)


def _rows(source: Database, found: Conversation) -> Iterator[Row]:
    """Yield the rows. Raises ``ConversationErased`` if it is erased by then, ``CorruptEvent`` at a missing event."""

    def some(reader: Reader, start: int, stop: int) -> Sequence[Row]:
        return find_again(source, reader, found).rows(start, stop, CHUNK)

    for start in range(0, found.version, CHUNK):
        stop = min(start + CHUNK, found.version)
        try:
            page = source.recorder.query(partial(some, start=start, stop=stop))
        except RecorderError as error:
            raise_unless_damage(error)
            raise CorruptEvent(found.id, start, f"this event, or one up to {stop - 1}, cannot be read") from error
        yield from page
        if len(page) < stop - start:
            there = {row.id for row in page}
            missing = next(n for n in range(start, stop) if n not in there)
            raise CorruptEvent(found.id, missing, "it is missing")


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


def chunked(rows: Iterable[Row]) -> Iterator[list[Row]]:
    """Yield the rows in groups, each few and small enough for one transaction."""
    chunk: list[Row] = []
    size = 0
    for row in rows:
        chunk.append(row)
        size += size_of(row.body)
        if len(chunk) == CHUNK or size >= _CHUNK_BYTES:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


class CopyTarget:
    """One conversation that is being copied into a store. A context manager: an unfinished copy leaves nothing behind.

    Its constructor raises ``ConversationErased`` if the target erased the conversation.
    """

    def __init__(self, target: Database, what: CopiedConversation) -> None:
        self._target = target
        self._what = what
        found = target.recorder.query(lambda reader: target.find(reader, what.id))
        self._replaces = found.key if found is not None and _is_tombstone(found, what.replaces) else None
        """The key of the tombstone in the target that the copy replaces."""
        if self._replaces is not None:
            found = None
        self._there = found if what.erasure is not None else not_erased(found)
        self._copied = Conversation(0, what.id, what.created_at, what.salt, 0, None, None)
        """The conversation up to the last copied event. Each head was checked."""
        self._staged: Conversation | None = None
        self._added = 0
        if self._there is not None and what.erasure is None and self._there.salt != what.salt:
            raise HistoryDiverged(what.id, 0, self._there.version)

    def add(self, rows: Sequence[Row]) -> None:
        """Add the next rows, plain, at most some thousand.

        Raises ``CorruptEvent`` at a row that does not follow the one before it, ``HistoryDiverged`` where the store has
        another event, ``VersionConflict`` if another writer appends to the conversation during the copy.
        """
        rows = _sound(self._copied, rows, self._what.past)
        self._copied = self._copied.grown(rows[-1])
        new = rows if self._there is None else self._behind(self._there, rows)
        if not new:
            return
        if self._there is not None:
            self._target.recorder.transact(partial(self._append, rows=new))
            self._there = self._there.grown(new[-1])
        else:
            self._staged = self._staged or self._target.recorder.transact(self._begin)
            self._target.recorder.transact(partial(self._stage, key=self._staged.key, rows=new))
        self._added += len(new)
        time.sleep(REST_S)

    def expect(self, version: int, head: bytes) -> None:
        """Expect another number of events than was announced, and another last head."""
        self._what = self._what._replace(version=version, head=head)

    def remember(self, keys: Iterable[RememberedKey]) -> None:
        """Add its idempotency keys, after all rows and before the conversation becomes visible."""
        there = self._staged or self._there
        if there is None:
            return
        copied = (key for key in keys if key[1] + key[2] <= self._copied.version)
        while some := list(islice(copied, CHUNK)):
            self._target.recorder.transact(partial(_remember, database=self._target, key=there.key, some=some))
            time.sleep(REST_S)

    def end(self) -> Copied:
        """Make the conversation visible. Raises ``CorruptEvent`` where rows are missing."""
        what = self._what
        if what.erasure is not None:
            added = self._target.recorder.transact(self._tombstone)
            return Copied(what.id, 0, what.version, int(added), erased=True)
        if (self._copied.version, self._copied.head) != (what.version, what.head):
            announced = f"{what.version} events were announced, and this one is missing"
            raise CorruptEvent(what.id, self._copied.version, announced)
        if self._staged is not None:
            self._target.recorder.transact(partial(self._publish, key=self._staged.key))
            self._staged = None
            return Copied(what.id, self._added, what.version)
        if self._there is None:
            raise CorruptEvent(what.id, 0, "it is missing, and so is the whole conversation")
        return Copied(what.id, self._added, self._there.version)

    def __enter__(self) -> CopyTarget:
        return self

    def __exit__(self, *_: object) -> None:
        if self._staged is not None:
            delete_rows(self._target.recorder, self._staged.key)

    # -- steps --------------------------------------------------------------------------------------------------------

    def _behind(self, there: Conversation, rows: Sequence[Row]) -> Sequence[Row]:
        """Return the rows that the store does not have. Raise unless the rows that it has end in the same head."""
        if self._copied.version <= there.version:
            version, target = self._copied.version, self._target
            own = target.recorder.query(lambda reader: find_again(target, reader, there).head_at(version))
            if own != self._copied.head:
                raise HistoryDiverged(there.id, rows[0].id, there.version)
            return ()
        first = there.version - rows[0].id
        before = rows[first - 1].head if first else None
        if before is not None and before != there.head:
            raise HistoryDiverged(there.id, rows[0].id, there.version)
        return rows[first:]

    def _begin(self, transaction: Transaction) -> Conversation:
        what = self._what
        check_plain(transaction, self._target, what.id)
        begun = transaction.begin(Beginning(what.id, what.created_at, what.salt, staged=True, replaces=self._replaces))
        if what.past:
            writing = WriteTransaction(transaction, begun, self._target)
            writing.keep_past(what.past, what.past[-1].stop)
            writing.end()
        return begun

    def _stage(self, transaction: Transaction, key: int, rows: Sequence[Row]) -> None:
        writing = staged(transaction, self._target, key)
        writing.stage(rows)
        _count_redacted(writing, rows)
        writing.end()

    def _append(self, transaction: Transaction, rows: Sequence[Row]) -> None:
        found = not_erased(self._target.find(transaction, self._what.id))
        if found is None or found.version != rows[0].id:
            raise VersionConflict(self._what.id, rows[0].id, 0 if found is None else found.version)
        writing = WriteTransaction(transaction, found, self._target)
        writing.insert(rows)
        _count_redacted(writing, rows)
        writing.end()

    def _publish(self, transaction: Transaction, key: int) -> None:
        rival = self._target.find(transaction, self._what.id)
        if rival is None or rival.key != self._replaces:
            rival = not_erased(rival)
        if rival is not None and rival.key != self._replaces:
            raise VersionConflict(self._what.id, 0, rival.version)
        writing = staged(transaction, self._target, key)
        writing.publish(self._what.version)
        writing.end()

    def _tombstone(self, transaction: Transaction) -> bool:
        """Add the tombstone, unless the target has it. Return whether it was added."""
        assert self._what.erasure is not None
        found = self._target.find(transaction, self._what.id)
        if found is not None and any(
            _is_tombstone(one, self._what.erasure) for one in tombstones_before(transaction, found)
        ):
            return False
        if found is None or (found.key == self._replaces and not _is_tombstone(found, self._what.erasure)):
            found = transaction.begin(Beginning(self._what.id, self._what.created_at, b"", replaces=self._replaces))
            transaction.change(found.key, self._what.erasure)
            return True
        if found.erasure is None:
            when = from_microseconds(self._what.erasure.erased_at).isoformat()
            reason = (
                f"{self._what.erasure.reason}; the source erased it, and the target did not: erase it in the target too"
            )
            raise ConversationErased(self._what.id, when, reason)
        return False


def _count_redacted(writing: WriteTransaction, rows: Sequence[Row]) -> None:
    redacted = sum(is_redacted(row.proof) for row in rows)
    if redacted:
        writing.count_redactions(redacted)


def _is_tombstone(found: Conversation, erasure: Erasure | None) -> bool:
    """Return whether this row of a conversation is this tombstone."""
    own = found.erasure
    return own is not None and erasure is not None and (own.events, own.head) == (erasure.events, erasure.head)


def _remember(transaction: Transaction, database: Database, key: int, some: Sequence[RememberedKey]) -> None:
    found = not_erased(database.find_key(transaction, key))
    if found is None:
        return
    writing = WriteTransaction(transaction, found, database)
    for name, first, events in some:
        if writing.recall(name) is None:
            writing.remember(name, RecalledKey(first, events))
    writing.end()


def _sound(copied: Conversation, rows: Sequence[Row], links: Sequence[Link]) -> list[Row]:
    """Return the rows with their counts and checksums, after checking that each fits its head."""
    head = copied.head
    seed = checksum_seed(copied.id)
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
        row = row._replace(shown_before=shown, structural_before=structural)
        sound.append(row._replace(checksum=checksum(seed, *row[:-1])))
        expected, shown, structural = expected + 1, shown + row.shown, structural + row.structural
    return sound
