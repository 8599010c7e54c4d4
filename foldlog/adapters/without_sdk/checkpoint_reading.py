"""Find and read the checkpoints of a thread, each with all that belongs to it, of one moment."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, NamedTuple

from eventstore import Annotation, ConversationRow, Event
from eventstore.documents.values import newest_values
from eventstore.stored.moment import Moment, query_all
from foldlog.adapters.without_sdk.checkpoint_branches import Checkpoint, ThreadBranch, ThreadBranches, appended_for
from foldlog.adapters.without_sdk.record_lists import Span
from foldlog.formats import Encoder
from foldlog.histories import Histories

__all__ = ["NOTES", "CheckpointReader", "WholeCheckpoint", "shown"]

NOTES = "/+writes"
"""What follows the id of a thread in that of the conversation with its notes."""


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

    def newest(self, thread: str, *, hidden: bool = False) -> WholeCheckpoint | None:
        """Return the newest checkpoint with all that belongs to it, of one moment; None if there is none.

        Cost: the branches of the thread, and the checkpoint: its documents, records and notes.
        """

        def read(moment: Moment) -> tuple[Checkpoint | None, WholeCheckpoint | None]:
            branches = self._branches.at_moment(thread, moment)
            found = max((each.tip for each in branches if each.has_own), key=lambda tip: tip.id, default=None)
            if found is None or (not hidden and _is_hidden(thread, branches)(found.id)):
                return found, None
            return found, self._whole(thread, found, moment)

        found, whole = query_all(self.histories.store.database, read)
        if whole is None and found is not None:
            found = self.find(thread)
            return None if found is None else self.whole(thread, found)
        return whole

    def whole(self, thread: str, checkpoint: Checkpoint) -> WholeCheckpoint:
        """Return a checkpoint with all that belongs to it, of one moment."""
        return query_all(self.histories.store.database, partial(self._whole, thread, checkpoint))

    def _whole(self, thread: str, checkpoint: Checkpoint, moment: Moment) -> WholeCheckpoint:
        documents = checkpoint.documents
        if documents is None:
            documents = newest_values(moment.conversation(checkpoint.branch), checkpoint.version)
        spans, records = self._records(checkpoint, moment)
        return WholeCheckpoint(checkpoint, documents, spans, records, _notes(thread, checkpoint.id, moment))

    def _records(self, checkpoint: Checkpoint, moment: Moment) -> tuple[list[Span], list[Any]]:
        """Return the records of a checkpoint, after the ids of their events."""
        found = checkpoint.ranges or ()
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

    def conversations(self, name: str) -> Iterator[ConversationRow]:
        """Yield the conversation of this name and those below it, without erased ones."""
        return self._branches.conversations(name)


def shown(branch: str, intervals: list[Span], moment: Moment) -> list[Event]:
    """Return the events of inclusive intervals that a View may show."""
    some = [interval for interval in intervals if interval[0] <= interval[1]]
    return moment.conversation(branch).shown_events(some) if some else []


def _notes(thread: str, checkpoint_id: str, moment: Moment) -> list[Any]:
    """Return the data of the notes on a checkpoint, in the order in which they came. Cost: these."""
    conversation = thread + NOTES
    ids = [each.first_id for each in appended_for(moment, conversation, checkpoint_id)]
    events = [event for event_id in ids for event in moment.conversation(conversation).events(event_id, event_id + 1)]
    return [event.data for event in events if isinstance(event, Annotation)]


def _is_hidden(thread: str, branches: Iterable[ThreadBranch]) -> Callable[[str], bool]:
    """Return the ids of hidden checkpoints, and the id below which all are hidden."""
    hidden = next((branch.hidden for branch in branches if branch.tip.branch == thread), None)
    if hidden is None:
        return lambda checkpoint_id: False
    ids, below = frozenset(hidden["ids"]), hidden["below"]
    return lambda checkpoint_id: checkpoint_id in ids or checkpoint_id < below
