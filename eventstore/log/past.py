"""The past of a fork: events that it shares with the conversations that it comes from, or copies of them.

A fork shares events: each part of its past is stored under the key of an ancestor. A fork that was detached from its
parent, or copied to another store, has all of its events under its own key. The heads of these events do not change. So
the fork's row keeps the name and the salt of each conversation that the events come from.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from foldlog.eventstore.errors import CorruptEvent
from foldlog.eventstore.log.keys import DataKey
from foldlog.eventstore.log.row import NotAsWritten, border, link_of, not_erased, seed
from foldlog.eventstore.log.seal import RowCodec
from foldlog.eventstore.recorders import changes
from foldlog.eventstore.recorders.base import Reader, Transaction
from foldlog.eventstore.recorders.types import Conversation, Row

if TYPE_CHECKING:
    from foldlog.eventstore.log.database import Database

_PLAIN: Final = b"\0"
_ENCRYPTED: Final = b"\1"
_PLACE: Final = b"past\0"


class Segment(NamedTuple):
    """A part of a fork: the events ``start <= id < stop``, stored under one conversation's key."""

    key: int
    id: str
    codec: RowCodec
    start: int
    stop: int


class Link(NamedTuple):
    """A conversation that the copied events up to the version ``stop`` were recorded in."""

    id: str
    salt: bytes
    stop: int


def encode_past(links: Sequence[Link], key: DataKey | None) -> bytes:
    """Return the bytes to store, encrypted where the conversation is."""
    text = json.dumps([[link.id, link.salt.hex(), link.stop] for link in links]).encode("ascii")
    return _PLAIN + text if key is None else _ENCRYPTED + key.encrypt(text, _PLACE)


def decode_past(stored: bytes | None, key: DataKey | None) -> tuple[Link, ...]:
    """Return the parts, the oldest first. Raises ``NotAsWritten``."""
    if stored is None:
        return ()
    try:
        form, text = stored[:1], stored[1:]
        if form == _ENCRYPTED and key is not None:
            text = key.decrypt(text, _PLACE)
        return tuple(Link(name, bytes.fromhex(salt), stop) for name, salt, stop in json.loads(text))
    except (ValueError, TypeError) as error:
        raise NotAsWritten("what is known of copied events was changed") from error


def links_of_own(found: Conversation, key: DataKey | None) -> tuple[Link, ...]:
    """Return what ``head_after`` needs for the rows under a conversation's own key: those of a fork begin at a border.
    Raises ``NotAsWritten``.
    """
    return decode_past(found.past, key) if found.parent is None else (Link("", b"", found.begins),)


def head_after(conversation: str, salt: bytes, links: Sequence[Link], head: bytes | None, row: Row) -> bytes:
    """Return the head of a plain row of a conversation; ``head`` is that of the row before it."""
    start = 0
    for name, its_salt, stop in links:
        if row.id < stop:
            conversation, salt = name, its_salt
            break
        start = stop
    if head is None or row.id == 0:
        head = seed(conversation, salt)
    elif row.id == start:
        head = border(conversation, salt, start, head)
    return link_of(head, salt, row)


def past_of(database: Database, reader: Reader, found: Conversation) -> tuple[Segment, ...]:
    """Return the parts of a fork's past, the oldest first. Raises ``CorruptEvent`` where an ancestor is missing.

    Cost: one question for each encrypted ancestor.
    """
    if found.parent is None:
        return ()
    lineage = found.lineage
    if not lineage or lineage[0].stop != found.begins or lineage[-1].parent is not None:
        raise CorruptEvent(found.id, 0, "the conversation that it was forked from is missing")
    parts: list[Segment] = []
    start = 0
    for each in reversed(lineage):
        codec = RowCodec(each.id)
        if each.encrypted:
            codec = database.codec_of(ancestor(database, reader, each.key, each.id, 0))
        parts.append(Segment(each.key, each.id, codec, start, each.stop))
        start = each.stop
    return tuple(parts)


def links_of(database: Database, reader: Reader, found: Conversation) -> tuple[Link, ...]:
    """Return under which names and salts the events before a fork's own were recorded, the oldest first. Raises
    ``CorruptEvent`` and ``KeyUnavailable``. Cost: a question for each ancestor.
    """
    links: list[Link] = []
    for part in past_of(database, reader, found):
        its = ancestor(database, reader, part.key, part.id, part.start)
        for link in (*copied_links(database, its), Link(its.id, its.salt, part.stop)):
            if not links or links[-1].stop < part.stop:
                links.append(link._replace(stop=min(link.stop, part.stop)))
    return (*links, *copied_links(database, found))


def copied_links(database: Database, found: Conversation) -> tuple[Link, ...]:
    """Return under which names and salts the events that were copied to a conversation were recorded."""
    try:
        return decode_past(found.past, database.data_key(found))
    except NotAsWritten as error:
        raise CorruptEvent(found.id, 0, str(error)) from error


def ancestor(database: Database, reader: Reader, key: int, name: str, event_id: int) -> Conversation:
    """Return the conversation that a fork shares events with. Raises ``CorruptEvent``, ``ConversationErased``."""
    found = not_erased(database.find_key(reader, key))
    if found is None:
        raise CorruptEvent(name, event_id, "it is missing, and a fork needs it")
    return found


def past_under(transaction: Transaction, found: Conversation, key: DataKey | None, new: DataKey | None) -> Conversation:
    """Store the names and salts of copied events under another data key. Return the conversation with it."""
    if found.past is None:
        return found
    past = encode_past(decode_past(found.past, key), new)
    transaction.change(found.key, changes.NewPast(past, found.parent_version or 0))
    return found._replace(past=past)


def within(intervals: Sequence[tuple[int, int]], parts: Sequence[Segment]) -> list[tuple[int, int, int]]:
    """Return inclusive intervals, cut where a part ends and the next begins, each with the key of its part."""
    cut, stops = [], [part.stop for part in parts[:-1]]
    for first, last in intervals:
        nth = bisect_right(stops, first)
        mth = bisect_right(stops, last)
        if nth < mth:
            cut.append((first, stops[nth] - 1, parts[nth].key))
            cut += [(start, stop - 1, key) for key, _, _, start, stop in parts[nth + 1 : mth]]
            first = stops[mth - 1]
        cut.append((first, last, parts[mth].key))
    return cut
