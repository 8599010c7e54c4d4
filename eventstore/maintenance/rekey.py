"""Encrypt, re-encrypt, compress or decrypt stored events while other processes read and write.

Each conversation is changed alone, in small transactions: first its key, so that new events are encrypted, then its
rows, then the records and idempotency keys beside them. Until the end, the conversation's mark says which rows may
still be in the old form. Heads do not change. A change that was stopped resumes when it is run again.

Before a row is changed, it is compared with its place in the hash chain, and its new form with its former one: a row
that would not read the same is never replaced.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from functools import partial
from operator import attrgetter
from typing import NamedTuple

from foldlog.eventstore.codec_json import size_of
from foldlog.eventstore.errors import ConversationNotFound, CorruptEvent, StoreUnavailable, StoreUnusable
from foldlog.eventstore.events import KeyChanged
from foldlog.eventstore.log.database import Database, encrypted, paged, start_after, translated
from foldlog.eventstore.log.keys import DataKey
from foldlog.eventstore.log.ledger import enter
from foldlog.eventstore.log.past import decode_past, past_under
from foldlog.eventstore.log.seal import DAMAGED, Mark, RowCodec, mark_of
from foldlog.eventstore.log.staging import REST_S, staged_keys
from foldlog.eventstore.maintenance.damage import staged_conversations
from foldlog.eventstore.maintenance.erase import purge, unfinished
from foldlog.eventstore.maintenance.row_checks import HashChain, salt_of, start_of
from foldlog.eventstore.recorders.base import Reader, Transaction
from foldlog.eventstore.recorders.changes import NewForm, NewKey, NewMark, NewRecords, RememberedKey
from foldlog.eventstore.recorders.errors import KeyReplaced, RecorderError, is_damage
from foldlog.eventstore.recorders.types import Conversation, Row
from foldlog.eventstore.store import Store

_ROWS_FIRST, _ROWS_MAX = 16, 200
_BYTES = 2 * 2**20
"""The approximate number of bytes that one transaction changes."""
_KEYS = 500
_PAGE = 1_000
_ATTEMPTS = 5


class Rekeyed(NamedTuple):
    """The outcome for one conversation: whether its data key was encrypted again, how many rows were stored in another
    form, and which damaged rows were left as they are. ``problem``: why the conversation was not changed.
    ``bytes_pending``: whether bytes of an old form may still be in the file. The file is cleaned once, after the last
    conversation, so only the last result says this; in all others it is None.
    """

    conversation: str
    key: bool
    rows: int
    damaged: tuple[int, ...]
    problem: str | None = None
    bytes_pending: bool | None = None


def rekey(store: Store, *conversations: str, decrypt: bool = False, patience_s: float = 60.0) -> Iterator[Rekeyed]:
    """Store every conversation, or those named, with the settings of the open store: compressed, if a compression was
    chosen, and encrypted, if the store has a key. ``decrypt``: as plain text.

    The last result says whether bytes of the old form may still be in the files (``bytes_pending``), as after an
    erasure; ``vacuum`` removes them. Raises ``ConversationNotFound``, and ``KeyUnavailable`` where a conversation is
    encrypted and its key is not given: then nothing is changed; ``StoreUnusable`` where the file cannot be read, for
    ``salvage``. Cost: reading all rows that may change, and writing the
    changed ones; memory for one transaction.
    """
    database = store.database
    with translated():
        for found in _wanted(database, conversations):
            database.data_key(found)
        last: Rekeyed | None = None
        changed = 0
        for found in _wanted(database, conversations):
            if found.erasure is None:
                if last is not None:
                    yield last
                try:
                    last = _rekeyed(database, found, decrypt)
                except RecorderError as error:
                    if not changed or is_damage(error):
                        raise
                    done = f"conversations in their new form: {changed}; {found.id!r} and those after it are not"
                    raise unfinished(done, error) from error
                changed += last.key or last.rows > 0
        for key in _staged(database, conversations):
            staged = database.recorder.query(lambda reader, key=key: reader.conversation(key))  # type: ignore[misc]
            if staged is not None:
                _rekeyed(database, staged, decrypt)
        gone = purge(database.recorder, patience_s, "all events are stored in their new form")
        if last is not None:
            yield last._replace(bytes_pending=not gone)


def _wanted(database: Database, conversations: Sequence[str]) -> Iterator[Conversation]:
    if not conversations:

        def page(after: str | None) -> Sequence[Conversation]:
            return database.recorder.query(lambda reader: reader.conversations(start_after(after), _PAGE))

        yield from paged(page, attrgetter("id"), _PAGE)
    for name in conversations:
        found = database.recorder.query(lambda reader, name=name: reader.conversation(name))  # type: ignore[misc]
        if found is None:
            raise ConversationNotFound(name)
        yield found


def _staged(database: Database, conversations: Sequence[str]) -> Sequence[int]:
    """Return the imports that are running or were killed: they are invisible, but their rows are in the file."""
    recorder = database.recorder
    if conversations:
        return recorder.query(lambda reader: [key for name in conversations for key in staged_keys(reader, name)])
    return [found.key for found in staged_conversations(recorder)]


def _rekeyed(database: Database, found: Conversation, decrypt: bool) -> Rekeyed:
    change = _Change(database, found, decrypt)
    try:
        if change.is_done():
            return Rekeyed(found.id, change.key, change.rows, ())
        for _ in range(_ATTEMPTS):
            try:
                change.run()
                break
            except KeyReplaced:  # another process changed or erased it: begin with its present state
                time.sleep(REST_S)
        else:
            raise StoreUnavailable(
                f"the key of conversation {found.id!r} was changed {_ATTEMPTS} times by other processes; run "
                f"'foldlog rekey' when they have ended"
            )
    except CorruptEvent as error:
        now = database.recorder.query(lambda reader: reader.conversation(found.key))
        if now is None or now.erasure is None:
            return Rekeyed(found.id, change.key, change.rows, tuple(change.damaged), str(error))
        change.damaged.clear()  # its events were erased in that time
    return Rekeyed(found.id, change.key, change.rows, tuple(change.damaged))


class _Change:
    """The change of one conversation."""

    def __init__(self, database: Database, found: Conversation, decrypt: bool) -> None:
        self._database = database
        self._recorder = database.recorder
        self._settings = database.settings
        self._found = found
        self._decrypt = decrypt
        self.key = False
        self.rows = 0
        self.damaged: list[int] = []

    def is_done(self) -> bool:
        """Return whether key and mark say that nothing has to change. Of a chosen compression only the rows tell."""
        codec = self._database.codec_of(self._found)
        if self._settings.compression is not None:
            return False
        if self._decrypt or self._settings.keys is None:
            return codec.data_key is None
        return codec.is_strict and self._found.key_id == self._settings.keys.current

    def run(self) -> None:
        """Rewrite the conversation's rows. Raises ``KeyReplaced``, and ``CorruptEvent`` if the mark does not fit."""
        self.damaged.clear()
        begun = self._recorder.transact(self._begin)
        if begun is None:
            return
        self._found, codec = begun
        target = RowCodec(codec.conversation, None if self._decrypt else codec.data_key)
        begins = self._found.begins  # what a fork shares belongs to its parent
        ids = range(max(codec.mark.pending_from, begins), max(codec.mark.pending_until, begins))
        if self._decrypt or self._settings.compression is not None:
            ids = range(begins, self._found.version)
        self._change_rows(codec, target, ids)
        if codec.mark.pending_until and not self.damaged:
            self._change_records(codec, target)
            self._change_keys(codec, target)
            self._end(codec, target)

    # -- its key ------------------------------------------------------------------------------------------------------

    def _begin(self, transaction: Transaction) -> tuple[Conversation, RowCodec] | None:
        """Return the conversation with its new key, and the codec that reads its rows until they are rewritten."""
        found = self._again(transaction)
        if found is None or found.erasure is not None:
            return None
        codec, replaces = self._database.codec_of(found), found.sealed_key
        keys = self._settings.keys
        data_key, mark, changed = codec.data_key, codec.mark, False
        if keys is not None and not (self._decrypt and data_key is None):
            if data_key is None:
                found, data_key, mark = encrypted(found, keys)
                changed = True
            elif found.key_id != keys.current and not self._decrypt:
                wrapped = keys.wrap(found.id, data_key.secret)
                found = found._replace(key_id=keys.current, sealed_key=wrapped)
                changed = True
        if self._decrypt and data_key is not None:
            mark = mark._replace(pending_from=0, pending_until=found.version)
        if changed:
            transaction.change(found.key, NewKey(b"", found.key_id, found.sealed_key, replaces))
            found = past_under(transaction, found, codec.data_key, data_key)
            self._enter(transaction, found)
            self.key = not self._decrypt
        if data_key is not None and mark != codec.mark:
            self._set_mark(transaction, found, data_key, mark)
        return found, codec._replace(data_key=data_key, mark=mark)

    def _again(self, transaction: Transaction) -> Conversation | None:
        """Return the conversation as it is now. On a server this locks it, so that other writers wait."""
        if self._found.visible:
            found = transaction.conversation(self._found.id)
            return found if found is not None and found.key == self._found.key else None
        return transaction.conversation(self._found.key)

    def _current(self, transaction: Transaction) -> tuple[Conversation, Mark]:
        """Return the conversation and its present mark. Raises ``KeyReplaced``."""
        found = self._again(transaction)
        if found is None or found.sealed_key != self._found.sealed_key or found.visible != self._found.visible:
            raise KeyReplaced(f"conversation {self._found.id!r}")
        return found, self._database.codec_of(found).mark

    def _set_mark(self, transaction: Transaction, found: Conversation, key: DataKey | None, mark: Mark) -> None:
        if key is not None:
            transaction.change(found.key, NewMark(mark_of(key, found, mark)))

    def _enter(self, transaction: Transaction, found: Conversation) -> None:
        if found.visible:
            enter(transaction, found, KeyChanged(key_id=found.key_id), self._database.now())

    # -- its rows -----------------------------------------------------------------------------------------------------

    def _change_rows(self, codec: RowCodec, target: RowCodec, ids: range) -> None:
        chain = self._chain(codec, ids.start)
        size, start = _ROWS_FIRST, ids.start
        while start < ids.stop:
            stop = min(start + size, ids.stop)
            changed: list[tuple[Row, Row]] = []
            stored_bytes, there, damaged = 0, start, len(self.damaged)
            rows = self._recorder.query(partial(_rows, key=self._found.key, start=start, stop=stop))
            for stored, plain in zip(rows, codec.decoded(rows, self._database), strict=True):
                if stored.id != there:
                    raise CorruptEvent(self._found.id, there, "it is missing")
                stored_bytes += size_of(stored.body)
                there += 1
                if plain.encoding == DAMAGED or not chain.take(plain):
                    self.damaged.append(stored.id)
                    chain.head = None
                    continue
                new = target.encoded_again(stored, plain, codec, self._settings.compression, self._database)
                if new is not stored:
                    changed.append((plain, new))
            if there != stop:
                raise CorruptEvent(self._found.id, there, "it is missing")
            self._check(target, changed)
            if changed or stop > codec.mark.pending_from:
                replace = partial(self._replace, target=target, changed=[new for _, new in changed], stop=stop)
                redactions = self._recorder.transact(replace)
                if redactions != self._found.redactions:  # what was read may be redacted now: read it again
                    self._found = self._found._replace(redactions=redactions)
                    del self.damaged[damaged:]
                    chain = self._chain(codec, start)
                    continue
            self.rows += len(changed)
            start = stop
            size = max(size // 2, 1) if stored_bytes > _BYTES else min(2 * size, _ROWS_MAX)
            if changed:
                time.sleep(REST_S)

    def _chain(self, codec: RowCodec, start: int) -> HashChain:
        """Return the chain before the row ``start``. After a damaged row it is unknown, and the next row is trusted."""
        found, salt = self._found, salt_of(self._found, codec)
        links = decode_past(found.past, codec.data_key)
        if start == found.begins:
            head = start_of(self._database, found, salt, links).head
        else:
            rows = self._recorder.query(lambda reader: reader.rows(found.key, start - 1, start, 1))
            before = codec.decoded(rows, self._database)
            head = before[0].head if before and before[0].encoding != DAMAGED else None
        return HashChain(found.id, salt, links, head)

    def _replace(self, transaction: Transaction, target: RowCodec, changed: Sequence[Row], stop: int) -> int:
        """Write rows in their new form, unless rows were redacted since they were read. Return how many are now."""
        found, mark = self._current(transaction)
        if found.redactions != self._found.redactions:
            return found.redactions
        if changed:
            transaction.change(found.key, NewForm(changed))
        if target.data_key is not None and not self.damaged and mark.pending_from < stop <= mark.pending_until:
            self._set_mark(transaction, found, target.data_key, mark._replace(pending_from=stop))
        return found.redactions

    def _check(self, target: RowCodec, changed: Sequence[tuple[Row, Row]]) -> None:
        """Raise ``StoreUnusable`` unless rows in their new form read as before. Nothing is written then."""
        back = target.decoded([new for _, new in changed], self._database)
        if any(
            one._replace(checksum=0) != plain._replace(checksum=0)
            for one, (plain, _) in zip(back, changed, strict=True)
        ):
            first, last = changed[0][0].id, changed[-1][0].id
            raise StoreUnusable(
                f"conversation {self._found.id!r}: events {first} to {last} would read otherwise in their new form, so "
                f"they were not changed; run 'foldlog verify', and report this"
            )

    # -- records and keys beside them ---------------------------------------------------------------------------------

    def _change_records(self, codec: RowCodec, target: RowCodec) -> None:
        newest = self._recorder.query(lambda reader: reader.records(self._found.key, None, 0, _ROWS_MAX))
        for projection in (record.projection for record in newest):
            after: int | None = -1
            while after is not None:
                page = partial(self._change_some_records, codec=codec, target=target, name=projection, after=after)
                after = self._recorder.transact(page)

    def _change_some_records(
        self, transaction: Transaction, codec: RowCodec, target: RowCodec, name: str, after: int
    ) -> int | None:
        found, _ = self._current(transaction)
        page = transaction.records(found.key, name, after, _ROWS_MAX)
        decoded = [codec.decoded_record(name, record) for record in page]
        sound = [target.encoded_record(name, record) for record in decoded if record is not None]
        transaction.change(found.key, NewRecords(name, sound))
        return page[-1].version if page else None

    def _change_keys(self, codec: RowCodec, target: RowCodec) -> None:
        start: str | None = ""
        while start is not None:
            some = partial(self._change_some_keys, codec=codec, target=target, start=start)
            start = self._recorder.transact(some)

    def _change_some_keys(self, transaction: Transaction, codec: RowCodec, target: RowCodec, start: str) -> str | None:
        found, mark = self._current(transaction)
        page = transaction.recalled(found.key, start, _KEYS)
        proved = 0
        for name, recalled in page:
            if not codec.is_proved(name, recalled):
                problem = f"idempotency key {name!r} was changed without the key of the conversation"
                raise CorruptEvent(found.id, recalled.first_id, problem)
            if (recalled.proof is None) != (target.data_key is None):
                again = RememberedKey(name, target.proved(name, recalled), again=True)
                transaction.change(found.key, again)
                proved += 1
        self._set_mark(transaction, found, target.data_key, mark._replace(keys=mark.keys + proved))
        return start_after(page[-1][0]) if page else None

    # -- the end ------------------------------------------------------------------------------------------------------

    def _end(self, codec: RowCodec, target: RowCodec) -> None:
        changed = codec.mark.pending_until
        while True:
            version = self._recorder.transact(partial(self._complete, codec=codec, target=target, changed=changed))
            if version is None or self.damaged:
                return
            self._change_rows(codec, target, range(changed, version))
            changed = version

    def _complete(self, transaction: Transaction, codec: RowCodec, target: RowCodec, changed: int) -> int | None:
        """End the change. If many events were appended during it, return the version up to which it has to continue."""
        found, mark = self._current(transaction)
        if target.data_key is not None:
            self._set_mark(transaction, found, target.data_key, Mark(mark.keys))
            return None
        if found.version - changed > _ROWS_MAX:
            self._set_mark(transaction, found, codec.data_key, mark._replace(pending_until=found.version))
            return found.version
        some = transaction.rows(found.key, changed, found.version, _ROWS_MAX)
        new = [
            (row, target.encoded_again(stored, row, codec, None, self._database))
            for stored, row in zip(some, codec.decoded(some, self._database), strict=True)
        ]
        self._check(target, new)
        if new:
            transaction.change(found.key, NewForm([row for _, row in new]))
        assert codec.data_key is not None  # otherwise nothing was pending
        past_under(transaction, found, codec.data_key, None)
        transaction.change(found.key, NewKey(codec.data_key.salt, None, None, found.sealed_key))
        transaction.change(found.key, NewMark(None))
        self._enter(transaction, found._replace(key_id=None))
        self.key = True
        self.rows += len(new)
        return None


def _rows(reader: Reader, key: int, start: int, stop: int) -> Sequence[Row]:
    return reader.rows(key, start, stop, stop - start)
