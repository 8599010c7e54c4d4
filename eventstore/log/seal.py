"""Convert a plain row to the stored row and back: compress and encrypt the body, and add the
checksum.

The encoding of a row is a number: 0 for JSON text, 1 for zlib, and 2 for zstd. Encryption adds 8 to
the number: the body is encrypted with AES-256-GCM under the conversation's data key. The encryption
also protects the other columns of the row against changes. Attachments
(``foldlog.eventstore.codec_json``) add 16 to the number. Each attachment is compressed and
encrypted separately.

A damaged row is returned with the encoding ``DAMAGED`` and with the reason as its body.
"""

from __future__ import annotations

import os
import struct
import threading
import zlib
from collections.abc import Container, Iterator, Sequence
from functools import cached_property
from operator import attrgetter
from types import ModuleType
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, cast, get_args

from foldlog.eventstore.codec_json import (
    Attachment,
    Body,
    Undecodable,
    attachment_of,
    attachments_of,
    listed_in,
    size_of,
)
from foldlog.eventstore.errors import InvalidOption, install_command
from foldlog.eventstore.log.keys import DataKey, KeyRing
from foldlog.eventstore.log.row import (
    COMMITMENT_BYTES,
    PLAIN,
    SALT_BYTES,
    NotAsWritten,
    checksum_seed,
    chunk_checksum,
    is_redacted,
    record_checksum,
    unsound,
    with_checksums,
)
from foldlog.eventstore.recorders.types import (
    HEAD_BYTES,
    Chunk,
    Conversation,
    RecalledKey,
    Record,
    Row,
    encodings,
    utf8,
)

if TYPE_CHECKING:
    import zstandard

_NONE: Final = 0
_ZLIB: Final = 1
_ZSTD: Final = 2

Compression = Literal["none", "zlib", "zstd"]

EVENT_BYTES_MAX: Final = 16 * 2**20
"""The size of the largest event that a store accepts by default: 16 MiB of stored JSON. A larger
body is never compressed, so a reader never decompresses more than ``EVENT_BYTES_MAX`` bytes.
"""
_TOO_LARGE: Final = (
    f"the compressed body has more than {EVENT_BYTES_MAX:,} bytes, which foldlog never compresses"
)

_ZLIB_LEVEL = 6
_ZSTD_LEVEL = 1
_FORM: Final = 1
"""The first byte of the statement of a mark."""
_STATEMENT: Final = struct.Struct(">B3Q")
_STATE: Final = struct.Struct(">?5q")
_FORK: Final = struct.Struct(">q")


class Mark(NamedTuple):
    """The mark of an encrypted conversation. It says which rows may be unencrypted, and proves the
    last state of the conversation: its version, its head and its counts.

    ``keys`` is the number of idempotency keys that have a proof. If ``pending_until`` is not 0, the
    encryption of the conversation is being changed. During this change, rows with ``pending_from <=
    id < pending_until`` may be unencrypted, and so may records up to version ``pending_until``.
    Idempotency keys of events before ``pending_until`` may have no proof.

    The column ``mark`` holds a statement of 25 bytes, then a nonce and the tag (28 bytes) of
    AES-256-GCM over an empty text, under the data key. The associated data is ``data``::

        statement = 01 ‖ keys ‖ pending_from ‖ pending_until
                    (a byte, three unsigned numbers of 8 bytes)
        data      = "mark" 00 ‖ statement ‖ visible ‖ state ‖ head ‖ name of the conversation
        state     = created_at, version, the last event's time of recording, how many events are
                    shown, how many are structural
                    (five signed numbers of 8 bytes; visible is one byte)

    Before the name of a fork come ``"fork" 00``, ``parent_version`` (8 bytes) and the name of the
    parent. ``head`` is the head of the last event. Of a conversation that is not visible, ``head``
    is 32 zero bytes, and all numbers of ``state`` except ``created_at`` are 0.

    The proof of an idempotency key is a nonce and a tag, with the associated data ``"key" 00 ‖
    first_id ‖ events ‖ length of the key ‖ key ‖ name``. The associated data of an encrypted record
    of a projection is ``"record" 00 ‖ version ‖ code ‖ encoding ‖ length of projection ‖ projection
    ‖ name`` (the numbers have 8 bytes, lengths 4). See
    docs/internals/decisions/0064-marks.md.
    """

    keys: int = 0
    pending_from: int = 0
    pending_until: int = 0

    def expects(self, event_id: int) -> bool:
        """Return whether the row of an event may be unencrypted."""
        return self.pending_from <= event_id < self.pending_until


NOTHING_PENDING: Final = Mark()


def mark_of(key: DataKey, conversation: Conversation, mark: Mark) -> bytes:
    """Return the bytes of ``mark`` that prove the state of ``conversation``."""
    statement = _STATEMENT.pack(_FORM, *mark)
    return statement + key.encrypt(b"", _place_of_mark(conversation, statement))


def read_mark(key: DataKey, conversation: Conversation) -> Mark:
    """Decrypt the mark of a conversation. Raises ``NotAsWritten`` if the mark is missing, or if it
    does not match the conversation's state.
    """
    stored = conversation.mark
    if stored is None and not conversation.visible:
        # a staged import has a mark only if a change of the encryption is running
        return NOTHING_PENDING
    if type(stored) is not bytes or len(stored) <= _STATEMENT.size or stored[0] != _FORM:
        raise NotAsWritten("the conversation has no mark")
    statement = stored[: _STATEMENT.size]
    try:
        key.decrypt(stored[_STATEMENT.size :], _place_of_mark(conversation, statement))
    except (NotAsWritten, struct.error, TypeError) as error:
        raise NotAsWritten("the mark of the conversation does not match its state") from error
    return Mark(*_STATEMENT.unpack(statement)[1:])


def _place_of_mark(conversation: Conversation, statement: bytes) -> bytes:
    """Return the associated data of a mark, except for the name of the conversation: the bytes that
    the mark proves. For a staged import, the mark proves only its own statement and the time of
    creation.
    """
    if not conversation.visible:
        return (
            b"mark\0"
            + statement
            + _STATE.pack(False, conversation.created_at, 0, 0, 0, 0)
            + bytes(HEAD_BYTES)
        )
    state = _STATE.pack(
        True,
        conversation.created_at,
        conversation.version,
        conversation.updated_at or 0,
        conversation.shown,
        conversation.structural,
    )
    place = b"mark\0" + statement + state + (conversation.head or bytes(HEAD_BYTES))
    if conversation.parent is None:
        return place
    return b"%bfork\0%b%b" % (
        place,
        _FORK.pack(conversation.begins),
        utf8(conversation.parent_id or ""),
    )


ENCRYPTED: Final = 8
WITH_BYTES: Final = 16
_HOW_COMPRESSED: Final = 3
_COMPRESSIONS: Final = get_args(Compression)
DAMAGED: Final = 255
"""A row has the encoding ``DAMAGED`` only after a read, and never in a database."""

_NOT_ENCRYPTED = (
    "the event is plain text, but its conversation is encrypted, so the event was written without"
    " the key"
)

_PLACES: Final = {HEAD_BYTES: b"event", HEAD_BYTES + COMMITMENT_BYTES: b"redacted event"}
"""Maps the length of an encrypted row's proof to the text with which the row's associated data
begins.
"""

_record_columns = struct.Struct(">3q").pack
_chunk_columns = struct.Struct(">4q").pack
_key_columns = struct.Struct(">2q").pack
_length = struct.Struct(">I").pack


class WriteSettings(NamedTuple):
    """The settings with which a store writes bodies. A store can read all bodies for which it has
    the key, whatever its settings are.

    If ``compression`` is None, new rows are not compressed, and a rekey does not change the
    compression of rows. If ``plain_allowed`` is true, a process without keys may begin an
    unencrypted conversation in a store with encrypted conversations.
    """

    compression: Compression | None = None
    keys: KeyRing | None = None
    plain_allowed: bool = False

    @classmethod
    def chosen(cls, compression: str | None, keys: KeyRing | None) -> WriteSettings:
        """Return the settings with these arguments. If an argument is None, the environment
        decides. Raises ``InvalidOption`` and the errors of ``KeyRing.from_environment``.
        """
        choice = compression or os.environ.get("FOLDLOG_COMPRESSION")
        return cls(
            checked_compression(choice) if choice else None, keys or KeyRing.from_environment()
        )


class RowCodec(NamedTuple):
    """Reads and writes the rows of a conversation. Without ``data_key``, rows are not encrypted."""

    conversation: str
    data_key: DataKey | None = None
    mark: Mark = NOTHING_PENDING

    @property
    def is_strict(self) -> bool:
        """Whether the codec accepts only encrypted rows."""
        return self.data_key is not None and not self.mark.pending_until

    # -- rows

    def decode_rows(self, rows: Sequence[Row]) -> Sequence[Row]:
        """Return the decrypted and decompressed rows."""
        unsound_indices = unsound(checksum_seed(self.conversation), rows)
        if not unsound_indices and self.data_key is None and not any(encodings(rows)):
            return rows
        return list(self._opened_rows(rows, unsound_indices))

    def decode_first(self, rows: Sequence[Row], bytes_max: int) -> Sequence[Row]:
        """Decode rows up to the one that passes ``bytes_max`` of decompressed bodies and
        attachments. Rows that have neither are all decoded: their reader has limited them.
        """
        if not any(encoding & (_HOW_COMPRESSED | WITH_BYTES) for encoding in encodings(rows)):
            return self.decode_rows(rows)
        unsound_indices = unsound(checksum_seed(self.conversation), rows)
        decoded = list[Row]()
        size = 0
        for row in self._opened_rows(rows, unsound_indices):
            decoded.append(row)
            size += size_of(row.body)
            if size > bytes_max:
                break
        return decoded

    def _opened_rows(self, rows: Sequence[Row], unsound_indices: Container[int]) -> Iterator[Row]:
        opened: dict[object, Attachment] = {}  # several rows may have the same attachment
        problem = "its checksum does not match, so these are not the bytes that were written"
        for index, row in enumerate(rows):
            is_unsound = index in unsound_indices
            yield _as_damaged(row, problem) if is_unsound else self._opened(row, opened)

    def encode_rows(self, rows: Sequence[Row], compression: Compression | None) -> Sequence[Row]:
        """Return the compressed and encrypted rows, with their checksums."""
        compression = compression or "none"
        if (
            self.data_key is None
            and compression == "none"
            and Body not in map(type, map(_body, rows))
        ):
            return with_checksums(checksum_seed(self.conversation), rows)
        stored = list[Row]()
        for row in rows:
            beside = [
                self._stored_attachment(attachment, compression)
                for attachment in attachments_of(row.body)
            ]
            encoding, body = compress(compression, row.body)
            proof = row.proof
            if beside:
                encoding |= WITH_BYTES
            if self.data_key is not None:
                encoding |= ENCRYPTED
                # The salt is encrypted together with the body, so without the key no reader can
                # check a guess of the body against the head.
                if not is_redacted(proof):
                    proof, body = row.head, proof[HEAD_BYTES:] + body
            stored.append(row.in_form(encoding, Body.of(body, beside) if beside else body, proof))
        if self.data_key is not None:
            bodies = self.data_key.encrypt_all(
                [row.body for row in stored], map(_place_of_row, stored)
            )
            stored = [_with_body(row, body) for row, body in zip(stored, bodies, strict=True)]
        return with_checksums(checksum_seed(self.conversation), stored)

    def encoded_again(self, stored: Row, plain: Row, compression: Compression | None) -> Row:
        """Encode the row ``plain`` with ``compression`` and the key of this codec. Return
        ``stored`` if it already has this compression and encryption.

        If ``compression`` is None, the compression of the row does not change.
        """
        encodings_before = _encodings(stored)
        choice = compression
        if choice is None:
            present = max(encoding & _HOW_COMPRESSED for encoding in encodings_before)
            choice = _COMPRESSIONS[present]
        (again,) = self.encode_rows([plain], choice)
        return stored if _encodings(again) == encodings_before else again

    def _opened(self, row: Row, opened: dict[object, Attachment]) -> Row:
        """Return a row with its plain body, or as a damaged row if it is not as written."""
        proof = row.proof
        try:
            body = self._decrypt(row)
            if row.encoding & ENCRYPTED and not is_redacted(proof):
                proof = proof + body[:SALT_BYTES]
                body = body[SALT_BYTES:]
            body = decompress(row.encoding & ~(ENCRYPTED | WITH_BYTES), body)
            if row.encoding & WITH_BYTES:
                body = self._with_attachments(body, attachments_of(row.body), opened)
        except NotAsWritten as error:
            return _as_damaged(row, str(error))
        return row.in_form(PLAIN, body, proof)

    def _decrypt(self, row: Row) -> bytes:
        """Return the body of a row as it was before the encryption. Raises ``NotAsWritten`` if it
        cannot be decrypted, or if it is plain text where it must be encrypted.
        """
        if row.encoding & ENCRYPTED:
            if self.data_key is None:
                raise NotAsWritten("the event is encrypted, and its conversation has no key")
            return self.data_key.decrypt(row.body, _place_of_row(row))
        if self.data_key is not None and not self.mark.expects(row.id):
            raise NotAsWritten(_NOT_ENCRYPTED)
        return row.body

    # -- attachments

    def _stored_attachment(self, plain: Attachment, compression: Compression) -> Attachment:
        """Return an attachment as it is stored: compressed, and encrypted if there is a key."""
        encoding, body = compress(compression, plain.body)
        if self.data_key is None:
            return Attachment(plain.name, encoding, body)
        encoding |= ENCRYPTED
        name = self.data_key.name_of(plain.name)
        return Attachment(
            name, encoding, self.data_key.encrypt(body, _place_of_attachment(name, encoding))
        )

    def _with_attachments(
        self, body: bytes, stored: Sequence[Attachment], opened: dict[object, Attachment]
    ) -> Body:
        """Return a body with the attachments that it lists. Raises ``NotAsWritten`` if one is
        missing or changed. ``opened`` keeps the opened attachments for other rows.
        """
        attachments = []
        for attachment in stored:
            key = (attachment.name, attachment.encoding)
            if key not in opened:
                try:
                    opened[key] = self._opened_attachment(attachment)
                except (NotAsWritten, TypeError, struct.error):
                    continue  # a damaged attachment counts as missing
            attachments.append(opened[key])
        try:
            needed = listed_in(body)
        except Undecodable as error:
            raise NotAsWritten(str(error)) from error
        missing = needed - {attachment.name for attachment in attachments}
        if missing:
            raise NotAsWritten(
                f"attachments of the event are missing or were changed: {len(missing):,}"
            )
        return Body.of(body, [item for item in attachments if item.name in needed])

    def _opened_attachment(self, stored: Attachment) -> Attachment:
        """Return an attachment as it was before encryption and compression. Raises
        ``NotAsWritten``.
        """
        encoding = stored.encoding
        body = stored.body
        if encoding & ENCRYPTED:
            if self.data_key is None:
                raise NotAsWritten("the attachment is encrypted, and its conversation has no key")
            body = self.data_key.decrypt(body, _place_of_attachment(stored.name, encoding))
        return attachment_of(decompress(encoding & ~ENCRYPTED, body))

    # -- records

    def decoded_record(self, projection: str, record: Record) -> Record | None:
        """Return the record of a projection with its plain body. Return None if the record is
        damaged, if it is encrypted and the codec has no key, or if it is plain text although the
        conversation is encrypted.
        """
        try:
            if record.checksum != record_checksum(
                checksum_seed(self.conversation), projection, *record[:4]
            ):
                return None
            body = self._decrypted_record(projection, record)
        except (TypeError, NotAsWritten, struct.error):  # a column has a wrong type
            return None
        if body is None:
            return None
        return _new(Record, (*record[:2], body, PLAIN, 0, ""))

    def encoded_record(self, projection: str, record: Record) -> Record:
        """Return the record of a projection with its checksum, encrypted if there is a key."""
        record = record._replace(encoding=PLAIN if self.data_key is None else ENCRYPTED)
        if self.data_key is not None:
            record = record._replace(
                body=self.data_key.encrypt(record.body, _place_of_record(projection, record))
            )
        return record._replace(
            checksum=record_checksum(checksum_seed(self.conversation), projection, *record[:4])
        )

    def _decrypted_record(self, projection: str, record: Record) -> bytes | None:
        """Return the plain body of a record, or None if it cannot or must not be read."""
        key = self.data_key
        body = record.body
        if record.encoding == ENCRYPTED:
            if key is None:
                return None
            return key.decrypt(body, _place_of_record(projection, record))
        if record.encoding != PLAIN:
            return None
        # In an encrypted conversation, a process without the key may have written a plain record.
        # Only while the encryption is being changed, records up to this version may be plain.
        if key is not None and record.version > self.mark.pending_until:
            return None
        return body

    # -- chunks of streams

    def encoded_chunk(self, stream: int, chunk: Chunk) -> Chunk:
        """Return a plain chunk of a stream with its checksum, encrypted if there is a key."""
        if self.data_key is not None:
            chunk = chunk._replace(encoding=ENCRYPTED)
            body = self.data_key.encrypt(chunk.body, _place_of_chunk(stream, chunk))
            chunk = chunk._replace(body=body)
        checksum = chunk_checksum(checksum_seed(self.conversation), stream, chunk)
        return chunk._replace(checksum=checksum)

    def decoded_chunk(self, stream: int, chunk: Chunk) -> Chunk | None:
        """Return the chunk with its plain body. Return None if it is damaged, if it is encrypted
        and the codec has no key, or if it is plain text although the conversation is encrypted.
        """
        key = self.data_key
        expected = PLAIN if key is None else ENCRYPTED
        try:
            checksum = chunk_checksum(checksum_seed(self.conversation), stream, chunk)
            if chunk.encoding != expected or chunk.checksum != checksum:
                return None
            if key is None:
                return chunk
            body = key.decrypt(chunk.body, _place_of_chunk(stream, chunk))
        except (TypeError, NotAsWritten):  # a column has a wrong type
            return None
        return Chunk(chunk.begins, chunk.ends, body)

    # -- idempotency keys

    def with_proof(self, idempotency_key: str, recalled: RecalledKey) -> RecalledKey:
        """Return the entry of an idempotency key with its proof. In an unencrypted conversation,
        keys have no proofs.
        """
        if self.data_key is not None:
            proof = self.data_key.encrypt(b"", _place_of_key(idempotency_key, recalled))
            return recalled._replace(proof=proof)
        return recalled if recalled.proof is None else recalled._replace(proof=None)

    def is_proved(self, idempotency_key: str, recalled: RecalledKey) -> bool:
        """Return whether the entry of an idempotency key was written with the data key. Without a
        data key, and during a change of the encryption, an entry needs no proof.
        """
        key = self.data_key
        if key is None:
            return True
        try:
            if recalled.proof is not None:
                key.decrypt(recalled.proof, _place_of_key(idempotency_key, recalled))
                return True
            return recalled.first_id + recalled.events <= self.mark.pending_until
        except (NotAsWritten, TypeError, struct.error):
            return False


def _encodings(row: Row) -> list[int]:
    return [row.encoding, *(attachment.encoding for attachment in attachments_of(row.body))]


_body = attrgetter("body")
# ``tuple.__new__`` makes a named tuple in less time than a call of the tuple's class.
_new: Final = tuple.__new__


def _as_damaged(row: Row, problem: str) -> Row:
    return row.in_form(DAMAGED, problem.encode())


def _with_body(row: Row, body: bytes) -> Row:
    beside = attachments_of(row.body)
    return row._replace(body=Body.of(body, beside) if beside else body)


def _place_of_row(row: Row) -> bytes:
    # An encrypted body can be decrypted only together with these bytes.
    kind = _PLACES.get(len(row.proof))
    if kind is None:
        raise NotAsWritten("the head of the event has a wrong length")
    columns = row.columns
    return b"%b\0%b%b" % (kind, _length(len(columns)), columns)


def _place_of_attachment(name: bytes, encoding: int) -> bytes:
    return b"attachment\0%b%b" % (_length(encoding), name)


def _place_of_record(projection: str, record: Record) -> bytes:
    columns = _record_columns(record.version, record.code, record.encoding)
    return b"record\0%b%b" % (columns, _name_bytes(projection))


def _place_of_chunk(stream: int, chunk: Chunk) -> bytes:
    return b"chunk\0" + _chunk_columns(stream, chunk.begins, chunk.ends, chunk.encoding)


def _place_of_key(idempotency_key: str, recalled: RecalledKey) -> bytes:
    return b"key\0%b%b" % (
        _key_columns(recalled.first_id, recalled.events),
        _name_bytes(idempotency_key),
    )


def _name_bytes(text: str) -> bytes:
    name = utf8(text)
    return _length(len(name)) + name


# -- compression


def checked_compression(name: str) -> Compression:
    """Return the name of a compression. Raises ``InvalidOption`` for an unknown name, and if the
    package of the compression is not installed.
    """
    if name not in get_args(Compression):
        raise InvalidOption(
            f"unknown compression {name!r}; choose {', '.join(get_args(Compression))}"
        )
    if name == "zstd":
        _zstandard()
    return cast(Compression, name)


def compress(compression: Compression, body: bytes) -> tuple[int, bytes]:
    """Return the number of the compression and the compressed body, or 0 and the body itself if
    the compression would not make it smaller.
    """
    # Readers refuse to decompress more than ``EVENT_BYTES_MAX`` bytes.
    if compression == "none" or len(body) > EVENT_BYTES_MAX:
        return _NONE, body
    if compression == "zlib":
        number = _ZLIB
        smaller = zlib.compress(body, _ZLIB_LEVEL)
    else:
        number = _ZSTD
        smaller = _contexts.compressor.compress(body)
    return (number, smaller) if len(smaller) < len(body) else (_NONE, body)


def decompress(number: int, stored: bytes) -> bytes:
    """Return the plain body. Raises ``NotAsWritten`` if the body is damaged or too large."""
    if number == _NONE:
        return stored
    if number == _ZLIB:
        inflater = zlib.decompressobj()
        try:
            body = inflater.decompress(stored, EVENT_BYTES_MAX + 1)
        except zlib.error as error:
            raise NotAsWritten(f"the compressed body cannot be read: {error}") from error
        if len(body) > EVENT_BYTES_MAX:
            raise NotAsWritten(_TOO_LARGE)
        if not inflater.eof:
            raise NotAsWritten("the compressed body is cut off")
        return body
    if number == _ZSTD:
        return _from_zstd(stored)
    raise NotAsWritten(
        f"the body has compression {number}, which this version of foldlog does not know"
    )


class _Contexts(threading.local):
    """The zstd contexts of one thread. A zstd context is expensive to make, and two threads must
    not share a context.
    """

    @cached_property
    def compressor(self) -> zstandard.ZstdCompressor:
        return _zstandard().ZstdCompressor(level=_ZSTD_LEVEL)  # type: ignore[no-any-return]

    @cached_property
    def decompressor(self) -> zstandard.ZstdDecompressor:
        return _zstandard().ZstdDecompressor()  # type: ignore[no-any-return]


_contexts = _Contexts()


def _zstandard() -> ModuleType:
    """Return the package ``zstandard``. Raises ``InvalidOption`` if it is not installed."""
    try:
        import zstandard
    except ImportError as error:
        raise InvalidOption(
            f"zstd needs the package 'zstandard'; {install_command('zstd')}, or choose compression"
            " 'zlib'"
        ) from error
    return zstandard


def _from_zstd(stored: bytes) -> bytes:
    """Return the body of an event that was compressed with zstd. Raises ``NotAsWritten`` for a
    damaged or a too large one.
    """
    zstandard = _zstandard()
    try:
        size = zstandard.frame_content_size(stored)
        if size < 0:
            raise NotAsWritten("the compressed body does not contain the length of the body")
        if size > EVENT_BYTES_MAX:
            raise NotAsWritten(_TOO_LARGE)
        return _contexts.decompressor.decompress(stored)
    except zstandard.ZstdError as error:
        raise NotAsWritten(f"the compressed body cannot be read: {error}") from error
