"""Describe what a recorder finds wrong in its database (``Recorder.check``). The texts are the same
for each database; ``checking`` in its folder has the queries.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

from foldlog.eventstore.errors import count
from foldlog.eventstore.recorders.statements import migrations

_CREATE = r"(?m)^CREATE (?:OR REPLACE |UNIQUE )?(\w+) (?:{schema}\.)?(\w+)"


def missing_parts(dialect: str, there: Collection[tuple[str, str]]) -> list[str]:
    scripts = migrations(dialect).values()
    parts = {
        (kind.lower(), name) for script in scripts for kind, name in re.findall(_CREATE, script)
    }
    return [_describe_missing(kind, name) for kind, name in sorted(parts.difference(there))]


def changed_part(kind: str, name: str) -> str:
    return (
        f"the {kind} {name} was changed: it is not as foldlog makes it; copy the store, which"
        " makes it again (see 'foldlog store copy --help')"
    )


def added_part(kind: str, name: str) -> str:
    """Describe a part on a table of foldlog that changes what the table does or shows."""
    return (
        f"somebody added the {kind} {name}, which may change what is written or read; drop it, or"
        " copy the store (see 'foldlog store copy --help')"
    )


def orphans(
    rows: Iterable[Sequence[int]], attachments: int, streams: int, chunks: int
) -> Iterator[str]:
    """Describe rows of conversations that do not exist, as pairs of the conversation's key and the
    number of rows, a number of attachments without an event, of streams without a conversation, and
    of chunks without a stream.
    """
    for key, events in rows:
        belong = count(events, "event belongs", "events belong")
        yield f"{belong} to conversation number {key}, which does not exist"
    if attachments:
        belong = count(attachments, "attachment belongs", "attachments belong")
        yield f"{belong} to no event (an attachment is a value stored beside events)"
    if streams:
        belong = count(streams, "stream belongs", "streams belong")
        yield f"{belong} to no conversation (a stream is a reply that is being written)"
    if chunks:
        belong = count(chunks, "chunk belongs", "chunks belong")
        yield f"{belong} to no stream (a stream is a reply that is being written)"


def contradictions(
    lists: int,
    hidden: Iterable[Sequence[bytes]],
    without_position: Iterable[Sequence[Any]],
    with_two_positions: Iterable[Sequence[Any]],
    followed_alone: Iterable[Sequence[Any]],
) -> Iterator[str]:
    """Describe a number of conversations whose lists contradict their events, conversations that
    are hidden, and pairs of a conversation and the number of its events without a position, with
    two, or before its first event.
    """
    if lists:
        yield (
            "the lists of conversations by attribute and activity contradict the events of"
            f" {count(lists, 'conversation')}; the events are intact, and a copy of the store"
            " has correct lists (see 'foldlog store copy --help')"
        )
    for (name,) in hidden:
        yield (
            f"conversation {str(name, 'utf-8', 'replace')!r} is hidden, as if it were still being"
            " imported, but it was visible before"
        )
    for name, events in without_position:
        have = count(events, "event has", "events have")
        yield (
            f"{have} no position in conversation {str(name, 'utf-8', 'replace')!r}, so no follower"
            " reads them"
        )
    for name, events in with_two_positions:
        have = count(events, "event has", "events have")
        yield (
            f"{have} two positions in conversation {str(name, 'utf-8', 'replace')!r}, so followers"
            " read them twice"
        )
    for name, events in followed_alone:
        stand = count(events, "event stands", "events stand")
        yield (
            f"{stand} before the first event of conversation {str(name, 'utf-8', 'replace')!r}, so"
            " only followers read them"
        )


def _describe_missing(kind: str, name: str) -> str:
    """Return the problem of a missing part of a schema, with what to do."""
    if kind == "index":
        return (
            f"the index {name} is missing, so reading is slow or fails; copy the store, which"
            " makes the index again (see 'foldlog store copy --help'); if copying fails, restore"
            " a backup"
        )
    return (
        f"the {kind} {name} is missing, so calls that need it fail; restore a backup, or copy the"
        " sound events to a new store with 'foldlog store copy --damaged'"
    )
