"""Find and read the checkpoints of a thread, each with all that belongs to it, of one moment."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

from foldlog._formats.live import Encoder
from foldlog._histories import Histories
from foldlog.adapters._without_sdk.checkpoint_branches import Checkpoint, ThreadBranch, ThreadBranches, appended_for
from foldlog.adapters._without_sdk.record_lists import Span
from foldlog.eventstore import (
    Annotation,
    ConversationErased,
    ConversationNotFound,
    Event,
    Moment,
    ReadTransaction,
    newest_values,
    query_all,
)

NOTES = "/+writes"
"""What follows the id of a thread in that of the conversation with its notes."""

_PLACE = frozenset(("checkpoint", "number"))
"""What a note says of itself: its checkpoint, and how many notes on this one came before it."""


class WholeCheckpoint(NamedTuple):
    """A checkpoint with all that belongs to it.

    ``spans`` are the ids of the events of each record. ``notes`` are in the order in which they came.
    """

    checkpoint: Checkpoint
    documents: dict[str, Any]
    spans: list[Span]
    records: list[Any]
    notes: list[Any]


class CheckpointReader:
    """The checkpoints of all threads of a store, to read. ``format`` is that of the records."""

    def __init__(self, histories: Histories, format: str) -> None:
        self.histories = histories
        self._branches = ThreadBranches(histories)
        self._format = format

    def find(self, thread: str, checkpoint_id: str | None = None, *, hidden: bool = False) -> Checkpoint | None:
        """Return a checkpoint, by default the newest one; None if it does not exist or is hidden.

        Cost: the branches of the thread.
        """
        if checkpoint_id is None:
            return next(self.walk(thread, hidden=hidden), None)
        branches = self._branches.of(thread)
        if not hidden and _is_hidden(thread, branches)(checkpoint_id):
            return None
        return self._branches.locate(branches, checkpoint_id)

    def walk(self, thread: str, *, hidden: bool = False) -> Iterator[Checkpoint]:
        """Yield the checkpoints of a thread, the newest first. Cost: those that are yielded, and its branches."""
        branches = self._branches.of(thread)
        walked = self._branches.walk(branches)
        if hidden:
            return walked
        is_hidden = _is_hidden(thread, branches)
        return (each for each in walked if not is_hidden(each.id))

    def read(self, thread: str, checkpoint_id: str | None, *, hidden: bool = False) -> WholeCheckpoint | None:
        """Return a checkpoint, by default the newest one, with all that belongs to it; None if there is none."""
        if not checkpoint_id:
            return self.newest(thread, hidden=hidden)
        found = self.find(thread, checkpoint_id, hidden=hidden)
        return None if found is None else self.whole(thread, found)

    def newest(self, thread: str, *, hidden: bool = False) -> WholeCheckpoint | None:
        """Return the newest checkpoint with all that belongs to it, of one moment; None if there is none.

        Cost: the branches of the thread, and the checkpoint: its documents, records and notes.
        """

        def read(moment: Moment) -> tuple[Checkpoint | None, WholeCheckpoint | None]:
            branches = self._branches.at_moment(thread, moment)
            branch = max((each for each in branches if each.has_own), key=lambda each: each.tip.id, default=None)
            if branch is None:
                return None, None
            if not hidden and _is_hidden(thread, branches)(branch.tip.id):
                return branch.tip, None
            return branch.tip, self._whole(thread, branch.tip, moment, branch.documents)

        found, whole = query_all(self.histories.store.database, read)
        if whole is None and found is not None:
            found = self.find(thread)
            return None if found is None else self.whole(thread, found)
        return whole

    def whole(self, thread: str, checkpoint: Checkpoint) -> WholeCheckpoint:
        """Return a checkpoint with all that belongs to it, of one moment."""
        return query_all(self.histories.store.database, partial(self._whole, thread, checkpoint))

    def _whole(
        self, thread: str, checkpoint: Checkpoint, moment: Moment, documents: dict[str, Any] | None = None
    ) -> WholeCheckpoint:
        if documents is None:
            documents = newest_values(moment.conversation(checkpoint.branch), checkpoint.version)
        spans, records = self._records(checkpoint, moment)
        return WholeCheckpoint(checkpoint, documents, spans, records, _notes(thread, checkpoint.id, moment))

    def _records(self, checkpoint: Checkpoint, moment: Moment) -> tuple[list[Span], list[Any]]:
        """Return the records of a checkpoint, after the ids of their events."""
        found = checkpoint.ranges
        if not found:
            return [], []
        intervals = [(start, stop - 1) for start, stop in zip(found[::2], found[1::2], strict=True)]
        encoder, spans, records = Encoder(self._format), list[Span](), list[Any]()
        start = None
        for event in shown(checkpoint.branch, intervals, moment):
            if event.origin is None or event.origin.format != self._format:
                continue
            start = event.id if start is None else start
            if complete := encoder.records(event):
                records += complete
                spans.append((start, event.id + 1))
                start = None
        return spans, records

    def notes(self, thread: str, checkpoint_id: str) -> list[Any]:
        """Return the data of the notes on a checkpoint, in the order in which they came. Cost: these."""
        return query_all(self.histories.store.database, partial(_notes, thread, checkpoint_id))


def shown(branch: str, intervals: list[Span], moment: Moment) -> list[Event]:
    """Return the events of inclusive intervals that a View may show."""
    some = [interval for interval in intervals if interval[0] <= interval[1]]
    return moment.conversation(branch).shown_events(some) if some else []


def _notes(thread: str, checkpoint_id: str, moment: Moment) -> list[Any]:
    """Return the data of the notes on a checkpoint, in the order in which they came. Cost: these."""
    conversation = thread + NOTES
    with suppress(ConversationErased, ConversationNotFound):
        reading = moment.conversation(conversation)
        notes: Iterable[Event] | None = _notes_at_end(reading, checkpoint_id)
        if notes is None:
            ids = [each.first_id for each in appended_for(moment, conversation, checkpoint_id)]
            notes = (event for event_id in ids for event in reading.events(event_id, event_id + 1))
        return [
            {name: value for name, value in note.data.items() if name not in _PLACE}
            for note in notes
            if isinstance(note, Annotation)
        ]
    return []


def _notes_at_end(reading: ReadTransaction, checkpoint_id: str) -> Sequence[Event] | None:
    """Return the notes on a checkpoint if they are the last events of their conversation; None if others came after or
    between them. The last of them says how many there are, so none need be searched for.
    """
    (last,) = reading.tail(1)
    count = _number(last, checkpoint_id) + 1
    notes = (last,) if count <= 1 else reading.tail(count)
    return notes if [_number(note, checkpoint_id) for note in notes] == list(range(count)) else None


def _number(event: Event, checkpoint_id: str) -> int:
    """Return how many notes on this checkpoint came before this one; -1 for any other event."""
    data = event.data if isinstance(event, Annotation) else {}
    return int(data["number"]) if "number" in data and data["checkpoint"] == checkpoint_id else -1


def _is_hidden(thread: str, branches: Iterable[ThreadBranch]) -> Callable[[str], bool]:
    """Return the ids of hidden checkpoints, and the id below which all are hidden."""
    hidden = next((branch.hidden for branch in branches if branch.tip.branch == thread), None)
    if hidden is None:
        return lambda checkpoint_id: False
    ids, below = frozenset(hidden["ids"]), hidden["below"]
    return lambda checkpoint_id: checkpoint_id in ids or checkpoint_id < below
