"""Handle a compaction that a program has reported to a hook, but has not yet written into its file.

Claude Code writes a compaction only after its hooks ran. While the hooks run, the View of the file
still shows the events that the compaction drops. Foldlog notes the missing compaction with the
stored source, and reports it. An import deletes the note when the file contains the compaction or a
later reply of the model.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import NamedTuple

import msgspec

from foldlog._base.json_types import JsonMap, JsonObject
from foldlog._formats.decoded import DecodedRecords
from foldlog._formats.registry import format_named
from foldlog._formats.skeleton import Skeleton
from foldlog.eventstore import Store
from foldlog.eventstore.recorders.base import Transaction
from foldlog.eventstore.sources.blocks import Block, each_hash
from foldlog.eventstore.sources.reading import about, source_of
from foldlog.eventstore.sources.tables import SourcesToWrite

_KEY = "compacting"
_SHOWN = ("user", "agent", "action", "observation", "error", "environment")


class Compacting(NamedTuple):
    """A compaction that the program has not written into its file yet. ``at`` is the time when the
    hook ran, and ``events`` is the approximate number of events in the View at that time.
    """

    at: str
    events: int


class _Note(msgspec.Struct):
    """The note that is stored with a source. ``at`` is the time when the hook ran, or empty after
    the next compaction or reply. ``compactions``, ``replies`` and ``shown`` count the compactions,
    the model's replies and the shown events before the hook ran. ``since`` is the number of shown
    events before the previous compaction.
    """

    at: str = ""
    compactions: int = 0
    replies: int = 0
    shown: int = 0
    since: int = 0


def note_compaction(store: Store, conversation: str) -> Compacting | None:
    """Note a compaction and return it. Return None if the conversation has no source, or if the
    format of its source has no compactions.
    """

    def note(transaction: Transaction) -> Compacting | None:
        sources = SourcesToWrite(store.database, transaction)
        source = sources.of(conversation)
        if source is None or not source.head:  # a fork has no compactions of its own
            return None
        sources.settle(source.conversation)
        skeleton = format_named(source.format).skeleton
        if skeleton is None:
            return None
        facts = about(source)
        before = _note_in(facts)
        now = _count(skeleton(source.sums))
        now.at = datetime.now(UTC).isoformat(timespec="seconds")
        if _KEY in facts:
            now.since = before.shown
        elif now.compactions:
            now.since = _shown_before_compaction(skeleton(), sources.blocks(source))
        if before.at:  # another hook of the same compaction
            now.at = before.at
            now.since = before.since
        else:
            sources.put(source._replace(about=msgspec.json.encode({**facts, _KEY: now})))
        return Compacting(now.at, now.shown - now.since)

    return store.database.recorder.transact(note)


def compacting(store: Store, conversation: str) -> Compacting | None:

    source = source_of(store.database, conversation)
    note = _Note() if source is None else _note_in(about(source))
    return Compacting(note.at, note.shown - note.since) if note.at else None


def still_compacting(facts: JsonMap, skeleton: Skeleton | DecodedRecords) -> JsonObject:
    # If a compaction or a reply is among the new records, the time in the note is empty.
    note = _note_in(facts)
    if _KEY not in facts or isinstance(skeleton, DecodedRecords):
        return {}
    now = _count(skeleton)
    if note.at and now.compactions == note.compactions and _is_over(note, now):
        note.shown = note.since  # The compaction did not come, so no event left the View.
    if _is_over(note, now):
        note.at = ""
    return {_KEY: note}


def _is_over(note: _Note, now: _Note) -> bool:
    return now.compactions > note.compactions or now.replies > note.replies


def _note_in(facts: JsonMap) -> _Note:
    return msgspec.convert(facts.get(_KEY, {}), _Note)


def _shown_before_compaction(skeleton: Skeleton, blocks: Iterable[Block]) -> int:
    """Count all records. Return the number of shown events before the last compaction."""
    shown = compactions = 0
    for block in blocks:
        for record, record_hash in zip(block.records(), each_hash(block.hashes), strict=True):
            skeleton.add(record, record_hash)
            if skeleton.state.compactions > compactions:
                compactions = skeleton.state.compactions
                shown = _count(skeleton).shown
    return shown


def _count(skeleton: Skeleton) -> _Note:
    state = skeleton.state
    replies = state.kinds.get("agent", 0) + state.kinds.get("action", 0)
    shown = sum(state.kinds.get(kind, 0) for kind in _SHOWN)
    return _Note(compactions=state.compactions, replies=replies, shown=shown)
