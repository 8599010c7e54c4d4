"""What reports keep of all conversations of a store together, so that a question over all of them reads what has
changed since, and not each conversation.

The conversations are in blocks, in the order of their ids. What a report makes of a block is kept as a record of the
store, and made again when a conversation of the block has changed since the position up to which it was made. The
transaction of an erasure or a redaction deletes these records. They are plain text: a store in which a conversation is
encrypted keeps none, and makes them for each question. So does a server, whose last position lies before events that
are committed while another transaction is open.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice, takewhile
from typing import Any, Final, NamedTuple

from msgspec import to_builtins

from foldlog._reports.kept import value_of
from foldlog.eventstore import ConversationRow, Store
from foldlog.eventstore.inside import Record
from foldlog.eventstore.log.seal import RowCodec
from foldlog.eventstore.recorders.base import OF_ALL, Reader, Transaction

Make = Callable[[Sequence[ConversationRow]], tuple[Any, bool]]
"""Makes a JSON value of some conversations, and says whether it may be kept: where not all can be read, it may not."""

_SIZE: Final = 500
"""Conversations in a new block. A block of twice as many is divided."""
_CODEC: Final = RowCodec("")
_MANY: Final = 2**62


class _Block(NamedTuple):
    """The value of the conversations up to the id ``last``; in the last block also of those after it."""

    last: str
    value: Any
    is_sound: bool = True

    def kept(self, is_current: bool) -> tuple[str, Any]:
        return self.last, self.value if self.is_sound and is_current else None


class KeptOfAll:
    """The values that one report keeps of all conversations. One thread at a time may use it."""

    def __init__(self, store: Store, report: str, code: int, make: Make, kind: Any = Any) -> None:
        """``code`` and ``kind`` are as those of ``KeptBeside``."""
        self._kind = tuple[str, kind | None]
        self._store, self._name, self._code, self._make = store, f"all {report}", code, make
        self._blocks: list[_Block] = []
        self._position = self._kept_at = 0
        """The positions up to which the blocks were made, and those that are stored."""

    def load(self, again: Iterable[str] = ()) -> list[Any]:
        """Return the values of all blocks, as of now; those of the ids ``again`` are made again. Raises what
        ``Store.iter_conversations`` and what makes them raise. Cost: the blocks; the conversations of those blocks in
        which one has changed since.
        """
        recorder = self._store.database.recorder
        if recorder.on_server:
            return [self._make([row for row in self._store.iter_conversations() if row.erased_at is None])[0]]
        if not self._blocks:
            recorder.query(self._read)
        before, until = self._position, self._store.database.last_position
        lasts = [block.last for block in self._blocks[:-1]]
        stale = {bisect_left(lasts, name) for name in again}
        if until > before:
            stale |= recorder.query(lambda reader: self._stale(reader, until))
        found: list[_Block] = []
        new = set[int]()
        is_whole = not self._blocks or self._kept_at != before  # another writer was in the way
        after: str | None = None
        for number, block in enumerate(self._blocks or [_Block("", None)]):
            if number in stale or block.value is None:
                made = list(self._made(after, block.last if number + 1 < len(self._blocks) else None))
                new.update(range(len(found), len(found) + len(made)))
                is_whole |= len(made) != 1  # then other blocks have other numbers
            else:
                made = [block]
            found += made
            after = block.last
        self._blocks = found
        self._position = until
        kept_at = self._kept_at
        if (new or is_whole) and recorder.offer(lambda each: self._write(each, kept_at, new, is_whole=is_whole)):
            self._kept_at = until
        return [block.value for block in found]

    @contextmanager
    def put_back(self) -> Iterator[None]:
        """Keep the blocks through erasures and redactions, which delete them: at the end, those of other conversations
        are written again. Cost: the blocks.
        """
        recorder = self._store.database.recorder
        if not recorder.on_server:
            recorder.query(self._read)
        yield
        if self._blocks and recorder.offer(lambda transaction: self._write(transaction, 0, set(), is_whole=True)):
            self._kept_at = self._position

    def _stale(self, reader: Reader, until: int) -> set[int]:
        """Return the numbers of the blocks in which a conversation has changed, or was erased."""
        keys = {key for key, _ in reader.touched(self._position, until, 1)} if self._blocks else set()
        lasts, stale, left = [block.last for block in self._blocks[:-1]], set[int](), [*keys]
        while left and len(stale) < len(self._blocks):
            if (found := reader.conversation(left.pop())) is not None:
                stale.add(bisect_left(lasts, found.id))
                # A redaction of shared events, and what a source tells of a run, is entered for the parent alone.
                left += {fork.key for fork in reader.conversations("", _MANY, forks_of=found.key)} - keys
                keys.update(left)
        return stale

    def _made(self, after: str | None, last: str | None) -> Iterator[_Block]:
        """Make the blocks of the conversations after an id, up to the ``last`` one, if there is one."""
        rows = takewhile(lambda row: last is None or row.id <= last, self._store.iter_conversations(after))
        living = (row for row in rows if row.erased_at is None)
        page = list(islice(living, _SIZE))
        while page:
            more = list(islice(living, _SIZE))
            if len(more) < _SIZE:
                page, more = page + more, []
            yield _Block(page[-1].id if more or last is None else last, *self._make(page))
            page = more

    # -- as records of the store --------------------------------------------------------------------------------------

    def _read(self, reader: Reader) -> None:
        position, blocks = self._stored(reader)
        if blocks and not reader.value("key_ids"):
            self._position = self._kept_at = position
            self._blocks = [_Block(*value_of(body, self._kind)) for body in blocks]

    def _stored(self, reader: Reader) -> tuple[int, list[bytes]]:
        """Return the position up to which the stored blocks were made, and the blocks; 0 where they are of no use."""
        stored = [_CODEC.decoded_record(self._name, each) for each in reader.records(OF_ALL, self._name, 0, _MANY)]
        bodies = [each.body for each in stored if each is not None and each.code == self._code]
        return (int(bodies[0]), bodies[1:]) if bodies and len(bodies) == len(stored) else (0, [])

    def _write(self, transaction: Transaction, before: int, new: set[int], *, is_whole: bool) -> None:
        """Write the new blocks, unless another process has written some since. The value of a block in which a
        conversation has changed since is not written: it may hold what was erased or redacted.
        """
        position, blocks = self._stored(transaction)
        if position not in (0, before) or transaction.value("key_ids"):
            return
        is_whole = is_whole or len(blocks) != len(self._blocks)
        changed = self._stale(transaction, _MANY)
        bodies = {1: str(self._position)} | {
            number + 2: json.dumps(to_builtins(self._blocks[number].kept(number not in changed), str_keys=True))
            for number in (range(len(self._blocks)) if is_whole else sorted(new))
        }
        records = [
            _CODEC.encoded_record(self._name, Record(version, self._code, None, body.encode()))
            for version, body in bodies.items()
        ]
        transaction.put_records(OF_ALL, self._name, records, replace_all=is_whole)
