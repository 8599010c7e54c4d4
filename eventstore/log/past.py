"""The past of a fork: the events that it shares with its ancestors, or has copied from them.

The events that a fork shares with an ancestor are stored only once, under the ancestor's key. A
fork that was detached from its parent, or copied to another store, has all its events under its own
key. A fork has the salt of its parent and continues the parent's chain of heads. A shared event
therefore has the same head in the fork and in its parent.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple

from foldlog.eventstore.errors import CorruptEvent
from foldlog.eventstore.log.database import Database, check_not_erased
from foldlog.eventstore.log.seal import RowCodec
from foldlog.eventstore.recorders.base import Reader
from foldlog.eventstore.recorders.types import Conversation


class Segment(NamedTuple):
    """Consecutive events of a fork that are stored under one key: ``start <= id < stop``."""

    key: int
    id: str
    codec: RowCodec
    start: int
    stop: int


def past_of(database: Database, reader: Reader, fork: Conversation) -> tuple[Segment, ...]:
    """Return the parts of a fork's past, sorted from the oldest to the newest."""
    if fork.parent is None:
        return ()
    lineage = fork.lineage
    if not lineage or lineage[0].stop != fork.begins or lineage[-1].parent is not None:
        raise CorruptEvent(fork.id, 0, "the parent conversation of this fork is missing")
    parts: list[Segment] = []
    start = 0
    for border in reversed(lineage):
        codec = RowCodec(border.id)
        if border.encrypted:
            owner = find_ancestor(database, reader, border.key, border.id, 0)
            codec = database.codec_of(owner)
        parts.append(Segment(border.key, border.id, codec, start, border.stop))
        start = border.stop
    return tuple(parts)


def find_ancestor(
    database: Database, reader: Reader, key: int, name: str, event_id: int
) -> Conversation:
    """Return the ancestor ``key`` of a fork, with the id ``name``. Raises ``CorruptEvent`` at the
    shared event ``event_id`` if the ancestor does not exist.
    """
    state = check_not_erased(database.find_key(reader, key))
    if state is None:
        raise CorruptEvent(name, event_id, "this event is missing, and a fork needs it")
    return state


def split_intervals(
    intervals: Sequence[tuple[int, int]], parts: Sequence[Segment]
) -> list[tuple[int, int, int]]:
    """Split inclusive intervals of ids at the borders of ``parts``. Return pieces: the first id,
    the last id, and the key under which these events are stored.
    """
    pieces = []
    borders = [part.stop for part in parts[:-1]]
    for first, last in intervals:
        index = bisect_right(borders, first)
        start = first
        # Cut the interval at each border between two parts.
        while index < len(borders) and borders[index] <= last:
            pieces.append((start, borders[index] - 1, parts[index].key))
            start = borders[index]
            index += 1
        pieces.append((start, last, parts[index].key))
    return pieces
