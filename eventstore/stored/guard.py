"""Between the store and its recorder: the row codec is applied to rows on their way in and on their way out.

The store above sees plain rows, the recorder below any bytes. A row that is not as it was written comes up as one that
says so, so that the sound ones before it can still be used. A damaged record is passed over: it can be made again from
the events, and until then the one before it serves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from eventstore.errors import CorruptEvent, KeyUnavailable
from eventstore.recorders.base import (
    BareRow,
    Conversation,
    Erasure,
    Place,
    PlacedRow,
    Reader,
    RecalledKey,
    Record,
    Recorder,
    Row,
    Transaction,
)
from eventstore.stored import hash_chain
from eventstore.stored.compression import NotAsWritten
from eventstore.stored.keys import DataKey, DataKeys, KeyRing
from eventstore.stored.marks import Mark, mark_of, read_mark
from eventstore.stored.row_codec import DAMAGED, EVENT_BYTES_MAX, RowCodec, WriteSettings, any_damaged

__all__ = ["Codecs", "Guard", "GuardedReader", "columns_are_sound", "encrypted", "is_moment"]

T = TypeVar("T")

_YEAR_10000 = 253_402_300_800_000_000
"""In microseconds since 1970: what a datetime cannot say any more."""
_KEPT_MAX = 10_000
_LIMIT = "event_bytes_max"


class Guard:
    """A recorder on a recorder. ``unguarded`` is the one below, which sees rows as they are stored."""

    def __init__(self, recorder: Recorder, settings: WriteSettings | None = None) -> None:
        self.unguarded = recorder
        self.codecs = Codecs(recorder, settings or WriteSettings())
        self.writable = recorder.writable

    def record_limit(self, event_bytes_max: int) -> None:
        """Events up to this size are to be written. The store records a limit above the default, so that every reader
        knows how large a compressed body may be.
        """
        codecs = self.codecs
        if event_bytes_max <= codecs.bytes_max:
            return
        codecs.has_grown()
        if event_bytes_max > codecs.bytes_max:
            codecs.bytes_max = event_bytes_max
            if self.writable:
                self.unguarded.transact(lambda transaction: transaction.set_store_value(_LIMIT, str(event_bytes_max)))

    def transact(self, work: Callable[[Transaction], T], *, any_thread: bool = False) -> T:
        def in_transaction(transaction: Transaction) -> T:
            guarded = _GuardedTransaction(transaction, self.codecs)
            result = work(guarded)
            guarded.write_marks()
            return result

        return self.unguarded.transact(in_transaction, any_thread=any_thread)

    @contextmanager
    def read(self) -> Iterator[Reader]:
        with self.unguarded.read() as reader:
            yield GuardedReader(reader, self.codecs)

    def query(self, work: Callable[[Reader], T]) -> T:
        return self.unguarded.query(lambda reader: work(GuardedReader(reader, self.codecs)))

    def store_value(self, name: str) -> str:
        return self.unguarded.store_value(name)

    def data_version(self) -> int:
        return self.unguarded.data_version()

    def left_in_staging(self, before: int) -> Sequence[int]:
        return self.unguarded.left_in_staging(before)

    def purge(self) -> bool:
        return self.unguarded.purge()

    def check(self) -> Iterator[str]:
        return self.unguarded.check()

    def close(self) -> None:
        self.unguarded.close()


class Codecs:
    """How this store writes, and the codecs of the conversations that it has met. Any number of threads may use it."""

    def __init__(self, recorder: Recorder, settings: WriteSettings) -> None:
        self.settings = settings
        self.bytes_max = EVENT_BYTES_MAX
        self._recorder = recorder
        self._keys = DataKeys(settings.keys)
        self._by_key: dict[int, RowCodec] = {}
        self._by_id: dict[str, RowCodec] = {}

    def of(self, found: Conversation) -> RowCodec:
        """The codec of a conversation as it was found.

        Raises ``KeyUnavailable`` where it is encrypted and its key is not in the ring, and ``CorruptEvent`` where its
        mark is of another state.
        """
        data_key = self.data_key(found)
        if data_key is None or data_key.form == 1 or found.erasure is not None:
            return RowCodec.of(found.id, data_key)
        try:
            return RowCodec.of(found.id, data_key, read_mark(data_key, found))
        except NotAsWritten as error:
            raise CorruptEvent(
                found.id,
                found.version - 1,
                f"{error}: events after this one were removed, or the conversation's row was changed, without the key",
            ) from error

    def of_damaged(self, found: Conversation) -> RowCodec:
        """The same, and where the mark is of another state, a codec that reads nothing but encrypted rows."""
        try:
            return self.of(found)
        except CorruptEvent:
            return RowCodec.of(found.id, self.data_key(found))

    def data_key(self, found: Conversation) -> DataKey | None:
        """Raises ``KeyUnavailable``."""
        return None if found.sealed_key is None else self._keys.of(found.id, found.key_id, found.sealed_key)

    def recalled(self, *, key: int | None = None, conversation: str = "") -> RowCodec | None:
        """The codec of a conversation that was met before, if it can be used without asking the database: where this
        store has keys, one that reads nothing but what was written with the conversation's.
        """
        return self._by_id.get(conversation) if key is None else self._by_key.get(key)

    def keep(self, key: int, codec: RowCodec) -> None:
        if self.settings.keys is not None and not codec.is_strict:
            return
        if len(self._by_key) >= _KEPT_MAX:
            self._by_key.clear()
            self._by_id.clear()
        self._by_key[key] = self._by_id[codec.conversation] = codec

    def forget(self, *, key: int | None = None, conversation: str = "") -> None:
        """Ask the database again when it is needed next."""
        if key is None:
            self._by_id.pop(conversation, None)
        else:
            self._by_key.pop(key, None)

    def has_grown(self) -> bool:
        """Whether the store has recorded a larger limit than this process knew of."""
        recorded = self._recorder.store_value(_LIMIT)
        if not recorded.isdecimal() or int(recorded) <= self.bytes_max:
            return False
        self.bytes_max = int(recorded)
        return True


class GuardedReader:
    """A reader on a reader."""

    def __init__(self, reader: Reader, codecs: Codecs) -> None:
        self._reader = reader
        self._codecs = codecs
        self._met: dict[int, RowCodec] = {}
        self._met_by_id: dict[str, RowCodec] = {}

    def conversation(self, conversation_id: str) -> Conversation | None:
        if type(conversation_id) is not str:
            raise TypeError(f"a conversation is named by a text, not by {conversation_id!r}")
        return self._checked(self._reader.conversation(conversation_id))

    def conversation_of(self, key: int) -> Conversation | None:
        return self._checked(self._reader.conversation_of(key))

    def conversations(self, after: str | None, limit: int) -> Sequence[Conversation]:
        return [
            found if self._is_sound(found) else found._replace(created_at=0, head=None, updated_at=None, erasure=None)
            for found in self._reader.conversations(after, limit)
        ]

    def staged(self, conversation_id: str) -> Sequence[int]:
        return self._reader.staged(conversation_id)

    def rows(self, key: int, start: int, stop: int, limit: int) -> Sequence[Row]:
        return self._decoded(key, self._reader.rows(key, start, stop, limit))

    def bare_rows(self, key: int, start: int, stop: int, limit: int) -> Sequence[BareRow]:
        return [(row.id, row.kind.encode(), *row[2:]) for row in self.rows(key, start, stop, limit)]

    def structural_rows(self, key: int, start: int, stop: int, limit: int) -> Sequence[Row]:
        return self._decoded(key, self._reader.structural_rows(key, start, stop, limit))

    def shown_rows(self, key: int, intervals: Sequence[tuple[int, int]]) -> Sequence[Row]:
        return self._decoded(key, self._reader.shown_rows(key, intervals))

    def placed_rows(self, after_position: int, limit: int) -> Sequence[PlacedRow]:
        answer: list[PlacedRow] = []
        for position, conversation, row in self._reader.placed_rows(after_position, limit):
            codec = self._codec_of_id(conversation)
            if codec is _NOBODYS:
                problem = b"the conversation that it belongs to is not there"
                answer.append(PlacedRow(position, conversation, row._replace(encoding=DAMAGED, body=problem)))
                continue
            decoded = codec.decoded([row], self._codecs)
            if any_damaged(decoded) and conversation not in self._met_by_id:
                self._codecs.forget(conversation=conversation)
                decoded = self._codec_of_id(conversation).decoded([row], self._codecs)
            answer.append(PlacedRow(position, conversation, decoded[0]))
        return answer

    def last_position(self) -> int:
        return self._reader.last_position()

    def record_at(self, projection: str, key: int, version: int) -> Record | None:
        codec = self._codec(key)
        while True:
            found = self._reader.record_at(projection, key, version)
            decoded = found and codec.decoded_record(projection, found)
            if found is None or decoded is not None:
                return decoded
            version = min(version, found.version) - 1

    def records(self, projection: str, key: int, after: int, limit: int) -> Sequence[Record]:
        codec = self._codec(key)
        while True:
            found = self._reader.records(projection, key, after, limit)
            decoded = [codec.decoded_record(projection, record) for record in found]
            sound = [record for record in decoded if record is not None]
            if sound or not found:
                return sound
            after = max(after, found[-1].version)

    def damaged_records(self, projection: str, key: int, after: int, limit: int) -> tuple[int, Sequence[int]]:
        """Of the next ``limit`` records behind a version, the last one's version, and those that are passed over."""
        codec = self._codec(key)
        found = self._reader.records(projection, key, after, limit)
        damaged = [r.version for r in found if codec.decoded_record(projection, r) is None]
        return (found[-1].version if found else after), damaged

    def position(self, key: int, event_id: int) -> int:
        return self._reader.position(key, event_id)

    def recall(self, key: int, idempotency_key: str) -> RecalledKey | None:
        recalled = self._reader.recall(key, idempotency_key)
        if recalled is not None:
            self._check_proof(key, idempotency_key, recalled)
        return recalled

    def remembered(self, key: int, after: str | None, limit: int) -> Sequence[tuple[str, RecalledKey]]:
        found = self._reader.remembered(key, after, limit)
        for idempotency_key, recalled in found:
            self._check_proof(key, idempotency_key, recalled)
        return found

    def projections(self, key: int) -> Sequence[str]:
        return self._reader.projections(key)

    def max_tracking_id(self, application: str) -> int | None:
        return self._reader.max_tracking_id(application)

    # -- steps --------------------------------------------------------------------------------------------------------

    def _decoded(self, key: int, rows: Sequence[Row]) -> Sequence[Row]:
        if not rows:
            return rows
        decoded = self._codec(key).decoded(rows, self._codecs)
        if decoded is not rows and key not in self._met and any_damaged(decoded):
            # Or the encryption of the conversation was changed since it was met: ask once more.
            self._codecs.forget(key=key)
            decoded = self._codec(key).decoded(rows, self._codecs)
        return decoded

    def _check_proof(self, key: int, idempotency_key: str, recalled: RecalledKey) -> None:
        codec = self._codec(key)
        if not codec.is_proved(idempotency_key, recalled):
            problem = f"idempotency key {idempotency_key!r} was changed without the key of the conversation"
            raise CorruptEvent(codec.conversation, recalled.first_id, problem)

    def _checked(self, found: Conversation | None) -> Conversation | None:
        """Of an encrypted conversation the salt is encrypted too. Without its key it can be found, and not be read."""
        if found is None:
            return None
        if not columns_are_sound(found):
            raise CorruptEvent(found.id, found.version - 1, "it, or what leads to it, is not what was written")
        try:
            data_key = self._learn(found).data_key
        except KeyUnavailable:
            return found
        return found if data_key is None else found._replace(salt=data_key.salt)

    def _is_sound(self, found: Conversation) -> bool:
        if not columns_are_sound(found):
            return False
        try:
            self._codecs.of(found)
        except KeyUnavailable:
            pass
        except CorruptEvent:
            return False
        return True

    def _learn(self, found: Conversation) -> RowCodec:
        codec = self._codecs.of(found)
        self._met[found.key] = self._met_by_id[found.id] = codec
        self._codecs.keep(found.key, codec)
        return codec

    def _codec(self, key: int) -> RowCodec:
        codec = self._met.get(key) or self._codecs.recalled(key=key)
        if codec is None:
            found = self._reader.conversation_of(key)
            codec = _NOBODYS if found is None else self._learn(found)
        return codec

    def _codec_of_id(self, conversation: str) -> RowCodec:
        codec = self._met_by_id.get(conversation) or self._codecs.recalled(conversation=conversation)
        if codec is None:
            found = self._reader.conversation(conversation)
            codec = _NOBODYS if found is None else self._learn(found)
        return codec


_NOBODYS = RowCodec.of("")
"""The codec of a conversation that is not there."""


class _Written:
    """A conversation that this transaction writes to, as it leaves it. ``changed``: its mark has to be written."""

    def __init__(self, conversation: Conversation, codec: RowCodec) -> None:
        self.conversation = conversation
        self.codec = codec
        self.changed = False


class _GuardedTransaction(GuardedReader):
    """What is written must be right for what this transaction finds, so what was met before does not count; and it may
    be taken back, so nothing of it is kept.
    """

    def __init__(self, transaction: Transaction, codecs: Codecs) -> None:
        super().__init__(transaction, codecs)
        self._transaction = transaction
        self._found: dict[int, Conversation] = {}
        self._written: dict[int, _Written] = {}

    def begin(self, conversation_id: str, created_at: int, salt: bytes, *, staged: bool = False) -> Conversation:
        begun = self._transaction.begin(conversation_id, created_at, salt, staged=staged)
        self._learn(begun)
        return begun

    def insert(self, key: int, rows: Sequence[Row]) -> Place:
        written = self._to_write(key)
        place = self._transaction.insert(key, self._encoded(written, rows))
        written.conversation = written.conversation.grown(rows[-1])
        written.changed = True
        return place

    def stage(self, key: int, rows: Sequence[Row]) -> None:
        written = self._to_write(key)
        self._transaction.stage(key, self._encoded(written, rows))
        written.conversation = written.conversation.grown(rows[-1])

    def publish(self, key: int, size: int) -> int:
        written = self._to_write(key)
        position = self._transaction.publish(key, size)
        written.conversation = written.conversation._replace(visible=True)
        written.changed = True
        return position

    def discard(self, key: int, limit: int) -> bool:
        self._written.pop(key, None)
        return self._transaction.discard(key, limit)

    def set_key(
        self, key: int, salt: bytes, key_id: str | None, sealed_key: bytes | None, *, replaces: bytes | None
    ) -> None:
        self._transaction.set_key(key, salt, key_id, sealed_key, replaces=replaces)

    def set_mark(self, key: int, mark: bytes | None) -> None:
        self._transaction.set_mark(key, mark)

    def replace(self, key: int, rows: Sequence[Row]) -> None:
        self._transaction.replace(key, self._encoded(self._to_write(key), rows))

    def erase(self, key: int, erasure: Erasure) -> None:
        self._written.pop(key, None)
        self._transaction.erase(key, erasure)

    def expunge(self, key: int, limit: int) -> bool:
        return self._transaction.expunge(key, limit)

    def remember(self, key: int, idempotency_key: str, recalled: RecalledKey) -> None:
        written = self._to_write(key)
        self._transaction.remember(key, idempotency_key, written.codec.proved(idempotency_key, recalled))
        mark = written.codec.mark
        written.codec = written.codec._replace(mark=mark._replace(keys=mark.keys + 1))
        written.changed = True

    def prove(self, key: int, idempotency_key: str, proof: bytes | None) -> None:
        self._transaction.prove(key, idempotency_key, proof)

    def put_records(self, projection: str, key: int, records: Iterable[Record]) -> None:
        codec = self._to_write(key).codec
        self._transaction.put_records(projection, key, [codec.encoded_record(projection, each) for each in records])

    def delete_records(self, projection: str, key: int) -> None:
        self._transaction.delete_records(projection, key)

    def insert_tracking(self, application: str, notification_id: int) -> None:
        self._transaction.insert_tracking(application, notification_id)

    def set_store_value(self, name: str, value: str) -> None:
        self._transaction.set_store_value(name, value)

    def write_marks(self) -> None:
        """The last thing that the transaction writes."""
        for key, written in self._written.items():
            data_key = written.codec.data_key
            if written.changed and data_key is not None:
                self._transaction.set_mark(key, mark_of(data_key, written.conversation, written.codec.mark))

    # -- steps --------------------------------------------------------------------------------------------------------

    def _encoded(self, written: _Written, rows: Sequence[Row]) -> Sequence[Row]:
        return written.codec.encoded(rows, self._codecs.settings.compression, self._codecs)

    def _to_write(self, key: int) -> _Written:
        """What to write rows of a conversation with. Where the store has a key and the conversation none, or one of
        form 1, it gets one of form 2: from then on every row is encrypted and bound, and its mark says which ones are
        not.
        """
        written = self._written.get(key)
        if written is None:
            codec = self._codec(key)
            if key not in self._found:  # it was discarded, or never begun: the recorder refuses what needs it
                return _Written(Conversation(key, "", 0, b"", 0, None, None), codec)
            written = self._written[key] = _Written(self._found[key], codec)
            keys = self._codecs.settings.keys
            if keys is not None and (codec.data_key is None or codec.data_key.form == 1):
                replaces = written.conversation.sealed_key
                found, data_key, mark = encrypted(written.conversation, codec.data_key, keys)
                self._transaction.set_key(key, found.salt, found.key_id, found.sealed_key, replaces=replaces)
                written.conversation = found
                written.codec = self._met[key] = codec._replace(data_key=data_key, mark=mark)
                written.changed = True
        return written

    def _learn(self, found: Conversation) -> RowCodec:
        written = self._written.get(found.key)
        if written is not None:
            return written.codec  # its mark is written last
        codec = self._met[found.key] = self._codecs.of(found)
        self._found[found.key] = found
        return codec

    def _codec(self, key: int) -> RowCodec:
        codec = self._met.get(key)
        if codec is None:
            found = self._transaction.conversation_of(key)
            codec = _NOBODYS if found is None else self._learn(found)
        return codec


def encrypted(found: Conversation, data_key: DataKey | None, keys: KeyRing) -> tuple[Conversation, DataKey, Mark]:
    """A conversation with a wrapped data key of form 2, and with a mark that says that none of its rows may be of form
    2 yet.
    """
    secret = DataKey.new_secret(found.salt) if data_key is None else data_key.secret
    wrapped = keys.wrap(found.id, secret)
    renewed = found._replace(salt=b"", key_id=keys.current, sealed_key=wrapped)
    return renewed, DataKey(found.id, secret, 2), Mark(0, 0, found.version)


def columns_are_sound(found: Conversation) -> bool:
    """Whether its columns, and those that come from its last row, can be what was written there. Once the row is read,
    its checksum says it for certain.
    """
    erasure = found.erasure
    if found.astray or not is_moment(found.created_at) or type(found.salt) is not bytes:
        return False
    if type(found.sealed_key) not in (bytes, type(None)) or type(found.mark) not in (bytes, type(None)):
        return False
    if erasure is not None:
        return is_moment(erasure.erased_at) and type(erasure.events) is int and type(erasure.head) is bytes
    return found.version == 0 or (
        is_moment(found.updated_at)
        and type(found.head) is bytes
        and len(found.head) == hash_chain.HEAD_BYTES
        and 0 <= found.shown <= found.version
        and 0 <= found.structural <= found.version
    )


def is_moment(value: object) -> bool:
    """Whether it can be a time that the store recorded."""
    return type(value) is int and 0 <= value < _YEAR_10000
