"""Streams of a conversation: texts that are written piece by piece, such as the reply that a model
is writing. A stream is stored beside the log: no head, View or export contains it. When the reply
is complete, its events are appended and its stream is closed in one transaction (``close``).

A stream consists of *units*: JSON values in a stream of JSON, otherwise bytes. The number of a unit
never changes, so a reader continues after the last unit that it has read. A writer names the unit
after which it appends, so two writers never mix their texts. A fence refuses the appends of a
former holder of the lease, as for events (``open_to_append``).

After its end, the stream of a reply stays for ``KEPT_S`` seconds, for its readers. Later, the next
stream of the conversation or a vacuum deletes it. A reply that nobody has closed is deleted after
``ABANDONED_S`` seconds. If a conversation has more than ``REPLIES_MAX`` replies that have ended,
the oldest are deleted earlier. Other streams stay until they are deleted, or until the time
``dies`` in their state.

See docs/internals/decisions/0100-streams.md.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from functools import partial
from typing import Final

from foldlog._base.json_types import JsonObject
from foldlog.eventstore.errors import (
    ConversationNotFound,
    InvalidArgument,
    StoreDamaged,
    StreamConflict,
    StreamNotFound,
)
from foldlog.eventstore.log.appending import open_to_append
from foldlog.eventstore.log.database import Database
from foldlog.eventstore.log.finding import Fence
from foldlog.eventstore.log.reading import ReadTransaction
from foldlog.eventstore.log.writing import WriteTransaction
from foldlog.eventstore.recorders.base import Transaction
from foldlog.eventstore.recorders.types import Chunk, Stream, as_text

REPLY: Final = "reply"
"""The name of the stream of a reply."""
JSON: Final = "application/json"
"""The type of a stream of JSON values."""
KEPT_S: Final = 60
"""The time, in seconds, for which the stream of a reply stays after its end."""
ABANDONED_S: Final = 7 * 24 * 3_600
"""The time, in seconds, after which an open reply is deleted: a week."""
LEFT_S: Final = 600
"""This time after its last chunk, an open reply counts as left by its worker, unless a worker
drives the conversation: SDKs of models wait ten minutes for a reply.
"""
_NOTED_S: Final = 10
"""Chunks have no time, so an append to a reply notes its time in the state of the stream. It writes
the row only if the last note, or the beginning, is older than this time in seconds.
"""
_WROTE_AT: Final = "wrote_at"
"""The field in the state of a reply that has the time of an append, in microseconds since 1970."""
_DIES: Final = "dies"
"""The field in the state of a stream that has the end of its time to live, as ``_WROTE_AT``."""
STREAMS_MAX: Final = 100
"""The maximum number of streams of a conversation, without replies that have ended."""
REPLIES_MAX: Final = 256
"""The maximum number of replies that have ended, enough for four replies a second in ``KEPT_S``
seconds. Beginning a stream reads the rows of all streams of the conversation.
"""
_SECOND: Final = 1_000_000
_RANDOM_BITS: Final = 10


def open_stream_writing(
    database: Database, transaction: Transaction, conversation: str, fence: Fence | None
) -> WriteTransaction:
    """Return the conversation of a stream, ready to write. Raises ``ConversationNotFound`` if the
    conversation does not exist, and the errors of ``fence``.
    """
    writing = open_to_append(database, transaction, conversation, fence)
    if not writing.is_begun:
        raise ConversationNotFound(conversation)
    return writing


def newest(reading: ReadTransaction, name: str) -> Stream | None:
    """Return the newest stream with a name, or None."""
    return next((stream for stream in reading.streams() if stream.name == name), None)


def find(reading: ReadTransaction, number: int) -> Stream:
    """Return the stream with a number. Raises ``StreamNotFound``."""
    stream = reading.stream(number)
    if stream is None:
        raise StreamNotFound(reading.conversation, f"number {number}")
    return stream


def begin(writing: WriteTransaction, name: str, kind: str, state: bytes = b"{}") -> Stream:
    """Begin a stream. ``newest`` returns it from now on, even if a closed stream has the same name.
    ``kind`` is its media type.

    Raises ``StreamConflict`` if a stream with this name is open, and ``InvalidArgument`` if the
    conversation has too many streams.
    """
    now = writing.database.now()
    streams = _sweep(writing, now)
    for stream in streams:
        if stream.name == name and stream.closed_at is None:
            raise StreamConflict(
                writing.conversation, name, "is open already; close it or delete it first", stream
            )
    counted = sum(not _is_ended_reply(stream) for stream in streams)
    if counted >= STREAMS_MAX:
        raise InvalidArgument(
            f"conversation {writing.conversation!r} has {counted} streams, which is the"
            " maximum; delete one of them, or wait until closed streams are deleted"
        )
    # The random bits distinguish the stream from a deleted stream of the same microsecond.
    random_bits = int.from_bytes(os.urandom(2)) >> (16 - _RANDOM_BITS)
    number = (now << _RANDOM_BITS) + random_bits
    if streams:
        number = max(number, streams[0].number + 1)
    stream = Stream(number, name, kind, now, state=state)
    writing.put_stream(stream)
    return stream


def append(writing: WriteTransaction, number: int, begins: int, units: int, body: bytes) -> Stream:
    """Append ``units`` units to a stream that ends at ``begins``, and return the stream.

    Raises ``StreamNotFound`` if the stream was deleted, and ``StreamConflict`` if it is closed or
    another writer has appended to it.
    """
    stream = find(writing, number)
    if stream.closed_at is not None:
        raise StreamConflict(writing.conversation, stream.name, "is closed", stream)
    if stream.end != begins:
        problem = f"ends at {stream.end}, because another writer appended to it"
        raise StreamConflict(writing.conversation, stream.name, problem, stream)
    if stream.name == REPLY:
        stream = _note_time(writing, stream)
    ends = begins + units
    writing.put_chunk(number, Chunk(begins, ends, body))
    return stream._replace(end=ends)


def _note_time(writing: WriteTransaction, stream: Stream) -> Stream:
    """Note in the state of a reply that it is written now, and return the stream."""
    now = writing.database.now()
    before = now - _NOTED_S * _SECOND
    if stream.began_at > before or _wrote_at(stream.state) > before:
        return stream
    fields = _fields_of(stream.state)
    if fields is None:
        raise StoreDamaged(
            f"conversation {writing.conversation!r}: the state of stream {stream.name!r} cannot be"
            " read; delete the stream, and run 'foldlog store verify'"
        )
    noted = stream._replace(state=json.dumps({**fields, _WROTE_AT: now}).encode())
    writing.put_stream(noted)
    return noted


def _fields_of(state: bytes) -> JsonObject | None:
    """Return the fields in the state of a stream, or None if it cannot be read."""
    try:
        fields = json.loads(state)
    except ValueError:
        return None
    return fields if isinstance(fields, dict) else None


def _time_in(state: bytes, name: str) -> int | None:
    """Return the time in a field of a state, or None, also if the state cannot be read."""
    # Most states lack the field, and a search takes less time than a parser.
    if f'"{name}"'.encode() not in state:
        return None
    time = (_fields_of(state) or {}).get(name)
    return time if type(time) is int else None


def _wrote_at(state: bytes) -> int:
    """Return the time that ``_note_time`` noted last, or 0 if there is none."""
    return _time_in(state, _WROTE_AT) or 0


def close(
    writing: WriteTransaction, number: int, *, end: int | None = None, became: range = range(0)
) -> Stream:
    """Close a stream, and return it. If this transaction has appended events, the stream became
    these events. Otherwise, it became the events with the ids ``became``. ``end`` is the end of the
    stream as the caller has read it, or None if any end is right.

    Raises the errors of ``append``.
    """
    stream = find(writing, number)
    if stream.closed_at is not None:
        raise StreamConflict(writing.conversation, stream.name, "is closed", stream)
    if end is not None and stream.end != end:
        problem = f"ends at {stream.end}, because another writer appended to it"
        raise StreamConflict(writing.conversation, stream.name, problem, stream)
    closed = stream._replace(closed_at=writing.database.now())
    became = range(writing.appended_at, writing.version) or became
    if became:
        closed = closed._replace(event=became.start, events=len(became))
    writing.put_stream(closed)
    return closed


def _sweep(writing: WriteTransaction, now: int) -> Sequence[Stream]:
    """Delete old streams, and return the other streams, the newest first. At most ``REPLIES_MAX``
    of them are replies that have ended.
    """
    left = []
    ended_replies = 0
    for stream in writing.streams():  # the newest first
        is_ended_reply = _is_ended_reply(stream)
        ended_replies += is_ended_reply
        if _is_old(stream, now) or (is_ended_reply and ended_replies > REPLIES_MAX):
            writing.drop_stream(stream.number)
        else:
            left.append(stream)
    return left


def _is_reply(stream: Stream) -> bool:
    """Return whether a stream is a reply, or has become one."""
    return stream.name == REPLY or stream.event is not None


def conversations_with_left_reply(database: Database) -> frozenset[str]:
    """Return the ids of the conversations with an open reply that nobody has written for
    ``LEFT_S``. Cost: the function reads the row of each stream in the store.
    """
    before = database.now() - LEFT_S * _SECOND
    rows = database.recorder.query(lambda reader: reader.ask_all("open_streams", REPLY, before))
    return frozenset(as_text(name) for name, state in rows if _wrote_at(state) < before)


def _is_ended_reply(stream: Stream) -> bool:
    return stream.closed_at is not None and _is_reply(stream)


def is_dead(stream: Stream, now: int) -> bool:
    """Return whether the time to live of a stream has passed."""
    dies = _time_in(stream.state, _DIES)
    return dies is not None and dies <= now


def _is_old(stream: Stream, now: int) -> bool:
    """Return whether a stream may be deleted, because its time is over."""
    if is_dead(stream, now):
        return True
    if not _is_reply(stream):
        return False
    if stream.closed_at is None:
        written_at = max(stream.began_at, _wrote_at(stream.state))
        return written_at < now - ABANDONED_S * _SECOND
    return stream.closed_at < now - KEPT_S * _SECOND


def sweep_all(database: Database) -> None:
    """Delete the old streams of all conversations."""
    now = database.now()
    rows = database.recorder.query(lambda reader: reader.ask_all("conversations_with_streams"))
    for (key,) in rows:
        database.recorder.transact(partial(_sweep_one, key=key, now=now))


def _sweep_one(transaction: Transaction, key: int, now: int) -> None:
    # ``ReadTransaction`` would restore the events of an archived conversation.
    if transaction.conversation(key) is None:
        return
    for stream in transaction.streams(key):
        if _is_old(stream, now):
            transaction.delete_stream(key, stream.number)
