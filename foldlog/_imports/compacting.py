"""Handle a compaction that a program has reported to a hook, but has not yet written into its file.

Claude Code writes a compaction only after its hooks ran. While the hooks run, the View of the file
still shows the events that the compaction drops. Foldlog notes the missing compaction with the
stored source, and reports it. An import deletes the note when the file contains the compaction or a
later reply of the model.
"""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec

from foldlog._base.json_types import JsonMap, JsonObject
from foldlog.eventstore import Store
from foldlog.eventstore.recorders.base import Transaction
from foldlog.eventstore.sources.blocks import cut_at
from foldlog.eventstore.sources.reading import about, source_of
from foldlog.eventstore.sources.tables import Source, Sources, SourcesToWrite
from foldlog.formats.record_decoding import NamedRecords
from foldlog.formats.registry import format_named
from foldlog.formats.skeleton import Skeleton, count_block

_KEY = "compacting"


class _Note(msgspec.Struct):
    """The note that is stored with a source. ``at`` is the time when the hook ran. ``compactions``
    and ``replies`` count the compactions and the model's replies before the hook ran.
    """

    at: str = ""
    compactions: int = 0
    replies: int = 0


def note_compaction(store: Store, conversation: str) -> None:
    """Note a compaction. Do nothing if the conversation has no source, or if the format of its
    source has no compactions.
    """

    def note(transaction: Transaction) -> None:
        sources = SourcesToWrite(store.database, transaction)
        source = sources.of(conversation)
        if source is None or not source.head:  # a fork has no compactions of its own
            return
        sources.settle(source.conversation)
        skeleton = format_named(source.format).skeleton
        facts = about(source)
        # Another hook of the same compaction may have noted it.
        if skeleton is None or _note_in(facts).at:
            return
        # With the hashes, a repeated reply is not counted again.
        counted = skeleton(source.sums, sources.hashes(source))
        count_rest(sources, source, counted)
        new_note = _count(counted)
        new_note.at = datetime.now(UTC).isoformat(timespec="seconds")
        sources.put(source._replace(about=msgspec.json.encode({**facts, _KEY: new_note})))

    store.database.recorder.transact(note)


def compacting(store: Store, conversation: str) -> str | None:
    """Return the time of a compaction that the program has not written into its file yet."""
    source = source_of(store.database, conversation)
    return None if source is None else _note_in(about(source)).at or None


def count_rest(sources: Sources, source: Source, skeleton: Skeleton) -> None:
    """Count the records that are not in the sums of ``source``. The figures of a used source come
    from its events, so its sums lack its last records.
    """
    first = skeleton.state.records
    if first < source.records:
        for block in cut_at(sources.blocks(source, first), source.records):
            count_block(skeleton, block.since(max(first, block.first)))


def is_compacting(facts: JsonMap) -> bool:
    """Return whether ``Source.about`` has the note of a compaction."""
    return _KEY in facts


def still_compacting(facts: JsonMap, skeleton: Skeleton | NamedRecords) -> JsonObject:
    """Return the field of ``Source.about`` with the note of a compaction. Return no field if there
    is no note, or if the records that ``skeleton`` counted contain the compaction or a later reply.
    """
    note = _note_in(facts)
    if not note.at or isinstance(skeleton, NamedRecords):
        return {}
    present = _count(skeleton)
    is_over = present.compactions > note.compactions or present.replies > note.replies
    return {} if is_over else {_KEY: note}


def _note_in(facts: JsonMap) -> _Note:
    return msgspec.convert(facts.get(_KEY, {}), _Note)


def _count(skeleton: Skeleton) -> _Note:
    """Return a note with the present counts, without a time."""
    state = skeleton.state
    replies = state.kinds.get("agent", 0) + state.kinds.get("action", 0)
    return _Note(compactions=state.compactions, replies=replies)
