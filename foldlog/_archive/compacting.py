"""A compaction of which a program told a hook, and which it has not written into its file yet.

Claude Code writes a compaction only after its hooks ran. Until then the View of the file shows what was just dropped.
So the source notes the compaction, and who asks is told that it is missing. The note goes when the compaction comes, or
a reply of the model without one.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

import msgspec

from foldlog._archive.recording import source_of
from foldlog._formats.decoded import DecodedRecords
from foldlog._formats.registry import format_named
from foldlog._formats.skeleton import Skeleton
from foldlog.eventstore import Store
from foldlog.eventstore.recorders.base import Transaction
from foldlog.eventstore.sources.reading import about
from foldlog.eventstore.sources.tables import Source, Sources, SourcesToWrite

_KEY = "compacting"
_SHOWN = ("user", "agent", "action", "observation", "error", "environment")


class Compacting(NamedTuple):
    """A compaction that is not written yet: when the hook was told, and about how many ``events`` were shown then."""

    at: str
    events: int


def note_compaction(store: Store, conversation: str) -> Compacting | None:
    """Note that a program compacts a conversation now. None where its format says nothing of compactions, or no source
    of it is here. Noting the same compaction again changes nothing.
    """
    at = datetime.now(UTC).isoformat(timespec="seconds")

    def note(transaction: Transaction) -> Compacting | None:
        sources = SourcesToWrite(store.database, transaction)
        source = source_of(sources, conversation)
        counts = None if source is None else _counts(source)
        if source is None or counts is None:
            return None
        told = about(source)
        before = told.get(_KEY, {})
        is_over = not before.get("at")  # it was written, or the program gave it up
        if is_over or before["compactions"] != counts["compactions"]:
            told[_KEY] = {**counts, "at": at, "since": before.get("shown", 0)}
            sources.put(source._replace(about=msgspec.json.encode(told)))
        return Compacting(told[_KEY]["at"], counts["shown"] - told[_KEY]["since"])

    return store.database.recorder.transact(note)


def compacting(store: Store, conversation: str) -> Compacting | None:
    """Return the compaction that is missing in a conversation; None if none is."""

    def read(sources: Sources) -> Compacting | None:
        source = source_of(sources, conversation)
        noted = {} if source is None else about(source).get(_KEY, {})
        return Compacting(noted["at"], noted["shown"] - noted["since"]) if noted.get("at") else None

    return store.database.recorder.query(lambda reader: read(Sources(store.database, reader)))


def still_compacting(told: Mapping[str, Any], skeleton: Skeleton | DecodedRecords) -> dict[str, Any]:
    """Return the note of a source that has grown: without its time once the compaction, or another reply, has come."""
    noted = told.get(_KEY)
    if noted is None or isinstance(skeleton, DecodedRecords):
        return {}
    counts = _counted(skeleton)
    has_come = counts["compactions"] > noted["compactions"]
    goes_on = counts["replies"] > noted["replies"]
    return {_KEY: {**noted, "at": ""} if has_come or goes_on else noted}


def _counts(source: Source) -> dict[str, int] | None:
    format = format_named(source.format)
    return None if format.skeleton is None else _counted(format.skeleton(source.sums))


def _counted(skeleton: Skeleton) -> dict[str, int]:
    kinds = skeleton.state.kinds
    return {
        "compactions": skeleton.state.compactions,
        "replies": kinds.get("agent", 0) + kinds.get("action", 0),
        "shown": sum(kinds.get(kind, 0) for kind in _SHOWN),
    }
