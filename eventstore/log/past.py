"""The past of a fork: events that it shares with the conversations that it comes from, or copies of
them.

A fork shares events: each part of its past is stored under the key of an ancestor. A fork that was
detached from its parent, or copied to another store, has all of its events under its own key. A
fork has the salt of its parent, and its chain of heads goes on where the parent's was, so the heads
of these events do not change.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from foldlog.eventstore.errors import CorruptEvent
from foldlog.eventstore.log.row import not_erased
from foldlog.eventstore.log.seal import RowCodec
from foldlog.eventstore.recorders.base import Reader
from foldlog.eventstore.recorders.types import Conversation

if TYPE_CHECKING:
    from foldlog.eventstore.log.database import Database


class Segment(NamedTuple):
    """A part of a fork: the events ``start <= id < stop``, stored under one conversation's key."""

    key: int
    id: str
    codec: RowCodec
    start: int
    stop: int


def past_of(database: Database, reader: Reader, found: Conversation) -> tuple[Segment, ...]:
    """Return the parts of a fork's past, the oldest first. Raises ``CorruptEvent`` where an
    ancestor is missing.

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


def ancestor(
    database: Database, reader: Reader, key: int, name: str, event_id: int
) -> Conversation:
    """Return the conversation that a fork shares events with. Raises ``CorruptEvent``,
    ``ConversationErased``.
    """
    found = not_erased(database.find_key(reader, key))
    if found is None:
        raise CorruptEvent(name, event_id, "it is missing, and a fork needs it")
    return found


def within(
    intervals: Sequence[tuple[int, int]], parts: Sequence[Segment]
) -> list[tuple[int, int, int]]:
    """Return inclusive intervals, cut where a part ends and the next begins, each with the key of
    its part.
    """
    cut = []
    stops = [part.stop for part in parts[:-1]]
    for first, last in intervals:
        nth = bisect_right(stops, first)
        mth = bisect_right(stops, last)
        if nth < mth:
            cut.append((first, stops[nth] - 1, parts[nth].key))
            cut += [(start, stop - 1, key) for key, _, _, start, stop in parts[nth + 1 : mth]]
            first = stops[mth - 1]
        cut.append((first, last, parts[mth].key))
    return cut
