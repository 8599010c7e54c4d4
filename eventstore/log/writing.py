"""Write one conversation in a transaction. Projections are written in the same transaction as their
events.

Every insert applies the row codec of the conversation. An inline projection is called in the
transaction that appends structural events, so its records always match the log. The store does not
interpret records. The store relies on one rule only: records of Views contain no text of events.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from contextlib import suppress
from hashlib import blake2b
from operator import attrgetter
from reprlib import repr as short
from typing import Any, Final, Protocol

import msgspec

from foldlog._base.json_types import JsonMap, JsonObject
from foldlog.eventstore.arguments import check_map
from foldlog.eventstore.codec import Encoded
from foldlog.eventstore.codec_json import Body, whole_pairs
from foldlog.eventstore.errors import InvalidArgument, KeyUnavailable
from foldlog.eventstore.events import (
    ATTRIBUTES,
    VIEWS,
    Detached,
    DocumentChanges,
    Event,
    KeyChanged,
)
from foldlog.eventstore.log.database import Database, LastConversation, give_data_key
from foldlog.eventstore.log.keys import SET_A_KEY, DataKey, KeyRing, key_missing
from foldlog.eventstore.log.ledger import enter
from foldlog.eventstore.log.reading import ReadTransaction
from foldlog.eventstore.log.results import Border
from foldlog.eventstore.log.row import make_rows
from foldlog.eventstore.log.seal import RowCodec, mark_of
from foldlog.eventstore.recorders.base import Reader, Transaction
from foldlog.eventstore.recorders.types import (
    NOT_BEGUN,
    Chunk,
    Conversation,
    Place,
    RecalledKey,
    Record,
    Row,
    Stream,
)

_body = attrgetter("body")
_PROJECTIONS_MAX = 1_000
"""No conversation has records of so many projections."""
_CHUNKS: Final = 256
"""The number of chunks of a stream that are read at once, to encrypt them again."""
_RECENT_MAX: Final = 64
_RECENT_BYTES_MAX: Final = 100_000
"""The newest rows of the last conversation stay in memory: at most ``_RECENT_MAX`` rows, with
bodies of at most ``_RECENT_BYTES_MAX`` bytes. Both numbers are small, because each append copies
the list of rows.
"""


_NewestRows = tuple[Conversation, tuple[Row, ...], int]
"""The last three fields of ``LastConversation``: the state before the newest rows, the rows, and
their size.
"""


class WriteTransaction(ReadTransaction):
    """One conversation in a write transaction. The object has the conversation's newest state, and
    writes events and records.

    If the store has a key and the conversation has no key, the next write gives the conversation a
    data key. After the conversation has a data key, every new row is encrypted. The mark of a
    conversation says which older rows may be unencrypted. Call ``end`` after the last write.
    """

    _reader: Transaction
    _changed = False
    _newest_rows: _NewestRows | None = None
    """The newest rows, which stay in memory, or None before the first append of this transaction.
    """
    _before: Conversation | None = None
    """The state before the last append of this transaction."""

    @property
    def is_begun(self) -> bool:
        """Whether the conversation exists. The first append begins it, and gives it its key."""
        return self.state.key != NOT_BEGUN

    @property
    def appended_at(self) -> int:
        """The version before the last append of this transaction, or else the present version."""
        return self.version if self._before is None else self._before.version

    def head_at(self, version: int) -> bytes | None:
        before = self._before
        # An inline projection calls this method to check the View that it has in memory.
        if before is not None and before.version == version:
            return before.head
        return super().head_at(version)

    def put_records(
        self, projection: str, records: Iterable[Record], *, replace_all: bool = False
    ) -> None:
        """Write records of a projection. A new record replaces the stored record of the same
        version. If ``replace_all`` is true, the new records replace all records of the projection.
        If the conversation is unencrypted, so are the records: ``put_records`` never gives the
        conversation a key.
        """
        codec = self._codec()
        encoded = [codec.encoded_record(projection, record) for record in records]
        self._reader.put_records(self.state.key, projection, encoded, replace_all=replace_all)

    def list_as(self, version: int, digests: Iterable[bytes] | None) -> None:
        """Write the conversation's entry in the list: its version, the time of its last event, and
        the digests of its attributes. If ``digests`` is None, the stored digests stay unchanged.
        """
        state = self.state
        stored_digests = None if digests is None else tuple(digests)
        self._reader.put_listing(state.key, state.changed_at, version, stored_digests)

    def forget_records(self, codec: RowCodec | None = None) -> None:
        """Delete the records, except for the records of attributes and Views. If ``codec`` is
        passed, delete only the records of attributes, and encode all other records and the streams
        again with ``codec``.
        """
        key = self.state.key
        own = self._codec()
        if codec is not None:
            self.seal_streams(codec)
        for newest in self._reader.newest_records(key, _PROJECTIONS_MAX):
            name = newest.projection
            encoded: list[Record] = []
            if codec is None:
                if name in (ATTRIBUTES, VIEWS):
                    continue
            elif name != ATTRIBUTES:
                records = self._records_of(name, key, own, 0)
                encoded = [codec.encoded_record(name, record) for record in records]
            self._reader.put_records(key, name, encoded, replace_all=True)

    def put_stream(self, stream: Stream) -> None:
        self._reader.put_stream(self.state.key, stream)

    def put_chunk(self, stream: int, chunk: Chunk) -> None:
        encoded = self._codec_to_write().encoded_chunk(stream, chunk)
        self._reader.put_chunk(self.state.key, stream, encoded)

    def drop_stream(self, stream: int) -> None:
        self._reader.delete_stream(self.state.key, stream)

    def seal_streams(self, codec: RowCodec) -> None:
        """Encode the chunks of all streams again with ``codec``. A damaged chunk stays as it is."""
        key = self.state.key
        own = self._codec()
        for stream in self.streams():
            after = 0
            while chunks := self._reader.chunks(key, stream.number, after, _CHUNKS):
                for stored in chunks:
                    chunk = own.decoded_chunk(stream.number, stored)
                    if chunk is not None:
                        encoded = codec.encoded_chunk(stream.number, chunk)
                        self._reader.replace_chunk(key, stream.number, encoded)
                after = chunks[-1].ends

    # -- for the store and its maintenance

    def insert(self, rows: Sequence[Row]) -> Place:
        """Insert plain rows that have their ids and heads already."""
        stored = self._encode_rows(rows)  # comes first, because it may give the conversation a key
        return self._insert(rows, stored, self.state.grown(rows[-1]))

    def append(
        self, batch: Sequence[Encoded], now: int, secret: bytes | None = None
    ) -> tuple[Place, int]:
        """Append events: see ``make_rows``. Return their place, and their time in microseconds."""
        if self.state.key == NOT_BEGUN:
            self.state = begin_new(self._reader, self.database, self.state._replace(created_at=now))
        settings = self.database.settings
        codec = self._known_codec
        # If the settings contain a key, a plain conversation may need a data key first.
        if codec is None or settings.keys is not None:
            codec = self._codec_to_write()
        before = self.state
        if codec.data_key is not None:
            before = before._replace(salt=codec.data_key.salt)
        rows, after = make_rows(before, batch, now, secret)
        stored: Sequence[Row] = rows
        # A plain row without attachments is stored as ``make_rows`` makes it.
        if (
            codec.data_key is not None
            or settings.compression not in (None, "none")
            or Body in map(type, map(_body, rows))
        ):
            stored = codec.encode_rows(rows, settings.compression)
        place = self._insert(rows, stored, after)
        assert after.updated_at is not None  # the conversation has events
        return place, after.updated_at

    def _insert(self, rows: Sequence[Row], stored: Sequence[Row], after: Conversation) -> Place:
        before = self.state
        last = self._reader.last_conversation
        # Change the state only after the insert, because a failed insert must change nothing.
        place = self._reader.insert(before.key, stored, staged=not before.visible)
        self.state = after
        self._before = before
        if before.visible:
            self._newest_rows = _with_newest(last, before, rows, after)
            self._changed = True
        return place

    def publish(self, size: int) -> None:
        """Make a staged conversation with ``size`` events visible."""
        self._codec_to_write()
        self._reader.publish(self.state.key, size)
        self.state = self.state._replace(visible=True)
        self._changed = True

    def remember(self, name: str, recalled: RecalledKey) -> None:
        codec = self._codec_to_write()
        self._reader.remember(self.state.key, name, codec.with_proof(name, recalled))
        if codec.data_key is not None:
            self._known_codec = codec._replace(mark=codec.mark._replace(keys=codec.mark.keys + 1))
            self._changed = True

    def redact(self, rows: Sequence[Row]) -> None:
        """Replace stored rows by the redacted ``rows``, which are not encoded yet, and delete the
        streams that became these events. All rows must be stored under the key of the conversation.
        A fork must not replace a row that it shares.
        """
        self._reader.replace_rows(self.state.key, self._encode_rows(rows), redactions=len(rows))
        # The chunks of a streamed reply repeat the content of its events.
        redacted_ids = {row.id for row in rows}
        for stream in self.streams():
            if not redacted_ids.isdisjoint(stream.event_ids):
                self.drop_stream(stream.number)
        self._changes = None  # the remembered event may be redacted now
        self.state = self.state._replace(redactions=self.state.redactions + len(rows))
        self._changed = True

    @property
    def transaction(self) -> Transaction:
        return self._reader

    @property
    def data_key(self) -> DataKey | None:
        return self._codec_to_write().data_key

    def set_unmade(self, records: int) -> None:
        self._reader.set_unmade(self.state.key, records)
        self.state = self.state._replace(unmade=records, archived=0)
        self._changed = True

    def count_redactions(self, count: int) -> None:
        """Count redactions of events that a fork shares with its ancestors."""
        self._reader.count_redactions(self.state.key, count)
        self.state = self.state._replace(redactions=self.state.redactions + count)

    def leave_parent(self) -> None:
        """Separate a fork from its parent, after ``insert_past`` has copied all shared events."""
        self._reader.place_past(self.state.key, self.state.begins)
        self.state = self.state._replace(parent=None, parent_id=None, lineage=())
        self._changed = True
        self.past = ()

    def enter_origins(self, origins: Iterable[Border]) -> None:
        for origin in origins:
            detached = Detached(parent=origin.parent, version=origin.version)
            enter(self._reader, self.state, detached, self.database.now())

    def insert_past(self, rows: Sequence[Row]) -> None:
        self._reader.insert_past(self.state.key, self._encode_rows(rows))

    def begin(self) -> None:
        """Give a new conversation without events its data key, if the store has a key."""
        self._codec_to_write(has_nothing=True)
        self._changed = True

    def end(self) -> None:
        """If the conversation is encrypted, write the mark that belongs to its new state. Remember
        this state for the next append.
        """
        if not self._changed:
            return
        state = self.state
        self.database.written.append(state.key)
        codec = self._known_codec or self._codec()
        if codec.data_key is not None:
            mark = mark_of(codec.data_key, state, codec.mark)
            self._reader.set_mark(state.key, mark)
            state = state._replace(mark=mark, salt=codec.data_key.salt)
        is_whole = state.head is not None and not state.lacks_events
        if state.visible and is_whole and state.erasure is None:
            newest = self._newest_rows or (state, (), 0)
            self._reader.last_conversation = LastConversation(
                state, codec, self.database.settings, *newest
            )

    def _encode_rows(self, rows: Sequence[Row]) -> Sequence[Row]:
        return self._codec_to_write().encode_rows(rows, self.database.settings.compression)

    def _codec_to_write(self, *, has_nothing: bool = False) -> RowCodec:
        """Return the codec with which this transaction writes rows. If the store has a key, an
        unencrypted conversation first gets a data key. ``has_nothing`` is true if no unencrypted
        data of the conversation is stored. A fork without own events may still have unencrypted
        idempotency keys and rows of its past.
        """
        codec = self._codec()
        keys = self.database.settings.keys
        state = self.state
        if keys is None or codec.data_key is not None:
            return codec
        # The mark allows events before ``pending_until`` to be plain.
        renewed, data_key, mark = give_data_key(state, keys)
        if has_nothing:
            mark = mark._replace(pending_until=0)
        self.forget_records(codec._replace(data_key=data_key))
        is_first = mark.pending_until == 0
        self._reader.set_key(renewed, first=is_first)
        self._known_codec = codec._replace(data_key=data_key, mark=mark)
        if not is_first and state.visible:
            enter(self._reader, renewed, KeyChanged(key_id=renewed.key_id), self.database.now())
        self.state = renewed
        self._changed = True
        return self._known_codec


def _with_newest(
    last: LastConversation | None, before: Conversation, rows: Sequence[Row], after: Conversation
) -> _NewestRows:
    """Return the newest rows after an append of ``rows``. ``last`` is the conversation of the last
    append. No rows stay in memory if a row has attachments, or if an event is structural: a
    structural event changes more of a View than its end.
    """
    size = 0
    for row in rows:
        size += len(row.body)
        has_attachments = type(row.body) is not bytes
        if has_attachments:
            return after, (), 0
    if size > _RECENT_BYTES_MAX or after.structural != before.structural:
        return after, (), 0
    if last is None or last.state is not before:
        return before, tuple(rows), size
    total_size = last.size + size
    if len(last.rows) >= _RECENT_MAX or total_size > _RECENT_BYTES_MAX:
        return before, tuple(rows), size
    return last.before, (*last.rows, *rows), total_size


def begin_new(transaction: Transaction, database: Database, new: Conversation) -> Conversation:
    """Begin a conversation, and return it with its key. Raises ``InvalidArgument`` if its id is
    empty, and the errors of ``check_plain``.
    """
    if not new.id:
        raise InvalidArgument(
            "the id of a new conversation is empty; give it at least one character"
        )
    check_plain(transaction, database, new.id)
    return transaction.begin(new)


def check_plain(reader: Reader, database: Database, conversation: str) -> None:
    """Check that a new conversation may be unencrypted. Raises ``KeyUnavailable`` if the store has
    encrypted conversations, and neither a key nor ``?plain=allowed`` is set.
    """
    settings = database.settings
    if settings.keys is not None or settings.plain_allowed:
        return
    if reader.value("key_ids"):
        raise KeyUnavailable(
            f"conversation {conversation!r} would be stored as plain text, but other"
            f" conversations of this store are encrypted; {SET_A_KEY}, or open the store with"
            " ?plain=allowed in its URL"
        )


class InlineProjection(Protocol):
    """A read model that is updated in the transaction of structural events. Each projection of a
    store needs a ``name`` of its own.
    """

    name: str

    def project(self, writing: WriteTransaction, events: Sequence[Event], /) -> None:
        """Update the records of the projection for ``events``, which ``writing`` has just appended.
        ``events`` is a whole batch, and at least one of them is structural.

        If ``project`` raises an error, nothing is appended. If the transaction runs again,
        ``project`` is called again with equal events, so ``project`` may only write records.
        """


# -- the attributes by which a list finds conversations
#
# Attributes are the document ``attributes`` of a conversation. A record beside the events and
# digests in an index contain the attributes too. An append that changes attributes updates the list
# entry of the conversation in the same transaction.

_DIGEST_BYTES: Final = 16
EVERY: Final = bytes(_DIGEST_BYTES)
"""The digest that every listed conversation has."""
_CODE: Final = 1
"""The version of the code that writes records of attributes."""
_to_json = msgspec.json.Encoder(order="sorted").encode
_from_json = msgspec.json.Decoder(dict[str, Any]).decode


def list_changes(writing: WriteTransaction, events: Iterable[object]) -> None:
    """Write the list entry of a conversation if one of its new events changes its attributes."""
    for event in events:
        if type(event) is DocumentChanges and ATTRIBUTES in event.changed:
            list_again(writing, event.changed[ATTRIBUTES].get("value"))


def list_again(writing: WriteTransaction, attributes: JsonMap | None) -> None:
    """Write the list entry of a conversation and the record of its attributes."""
    pairs = pairs_of(attributes or {})
    records = [Record(writing.version, _CODE, _encode(attributes))] if attributes else ()
    writing.put_records(ATTRIBUTES, records, replace_all=True)
    digests = digests_of(pairs, writing.database.settings.keys, writing.state.key_id)
    writing.list_as(writing.version, dict.fromkeys([EVERY, *digests]))


def decode_attributes(body: bytes) -> JsonObject | None:
    """Return the attributes in a record, or None if its body is not a JSON object."""
    with suppress(ValueError, RecursionError):
        try:
            return _from_json(body)
        except msgspec.DecodeError:  # an escaped lone surrogate
            attributes = json.loads(body)
            return attributes if isinstance(attributes, dict) else None
    return None


def pairs_of(attributes: JsonMap) -> list[bytes]:
    """Return the JSON of each pair of a name and a value. A list has a pair for each element.
    Raises ``InvalidArgument`` if an attribute has a wrong form.
    """
    pairs = []
    for name, value in check_map("attributes", attributes).items():
        if not isinstance(name, str):
            raise InvalidArgument(f"an attribute has the name {name!r}; use a text as its name")
        for element in value if isinstance(value, list | tuple) else [value]:
            if not isinstance(element, str | int):
                raise InvalidArgument(
                    f"attribute {name!r} is {short(value)}; give a text, a whole number, a boolean"
                    " or a list of these"
                )
            pairs.append(_encode(whole_pairs([name, element])))
    return pairs


def digests_of(pairs: Sequence[bytes], keys: KeyRing | None, key_id: str | None) -> list[bytes]:
    """Return the digests by which lists find a conversation with these pairs. Without pairs, return
    the digest ``EVERY``. In a conversation that is encrypted under the key ``key_id``, only holders
    of the key can compute the digests.
    """
    if not pairs:
        return [EVERY]
    if key_id is None:
        return [
            blake2b(pair, digest_size=_DIGEST_BYTES, person=b"foldlog attr").digest()
            for pair in pairs
        ]
    if keys is None or key_id not in keys.names:
        raise key_missing("attributes are encrypted", key_id, keys)
    return [keys.digest(key_id, pair, _DIGEST_BYTES) for pair in pairs]


def _encode(value: Any) -> bytes:
    try:
        return _to_json(value)
    except UnicodeEncodeError:  # a lone surrogate, which Python's own encoder escapes
        return json.dumps(value, sort_keys=True, separators=(",", ":")).encode("ascii")
