"""Store the checkpoints of a runtime as versions of conversations.

The records of a checkpoint are events of its branch. Other values are documents. Consecutive
checkpoints are in the same branch. If a checkpoint gets a second child, the child begins a fork. A
note on a checkpoint may be written before the checkpoint or after its children, so notes are stored
in another conversation, ``THREAD/+writes``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, TypeVar

from foldlog import Histories, History
from foldlog._base.json_types import JsonMap
from foldlog.adapters._langgraph.branches import (
    CHECKPOINT,
    HIDDEN,
    KEPT,
    Checkpoint,
    ThreadBranch,
    ThreadBranches,
    appended_for,
    copy_value,
    note_key,
    standing_documents,
)
from foldlog.adapters._langgraph.record_lists import (
    WRITES,
    Listed,
    RecordList,
    Span,
    changes,
    ranges,
    without,
)
from foldlog.adapters._shared import SeenConversations, document, stood_for
from foldlog.eventstore import (
    Annotation,
    CondensationAction,
    ConversationErased,
    ConversationNotFound,
    Event,
    IdempotencyConflict,
    Retraction,
    Seen,
    VersionConflict,
)
from foldlog.eventstore.log.finding import Moment, query_all
from foldlog.formats import Encoder
from foldlog.projections.messages.requests import SentBeside
from foldlog.runtimes import (
    Fields,
    HistoryRecorder,
    Recent,
    companion,
    is_of,
    parse_stored as parse,
    staying,
)

T = TypeVar("T")
_NOTES = "writes"
"""The name of the companion that stores the notes of a thread."""

_PLACE = frozenset(("checkpoint", "number"))
"""The fields that foldlog adds to a note: the id of its checkpoint, and its number."""
_NONE = Listed((), (), lambda place: None)
"""The list of a checkpoint without records."""


class WholeCheckpoint(NamedTuple):
    """A checkpoint with its documents, records and notes.

    ``spans`` are the event ids of the records, and ``values`` are the records in the runtime's
    form. ``notes`` begin with the oldest note.
    """

    checkpoint: Checkpoint
    documents: Fields
    spans: list[Span]
    values: list[Any]
    notes: list[Any]


@dataclass(slots=True)
class _Newest:
    """The newest checkpoint of a branch with its records.

    ``history`` is None if the branch was only read. It is certain that the View shows no event
    after the last record and before the id ``alone``. An append that repeats values from the store
    expects ``seen``, and is refused if an event was redacted after the values were read. For a
    checkpoint that this process wrote, ``seen`` is None.
    """

    checkpoint: Checkpoint
    history: History | None
    records: RecordList
    alone: int = 0
    seen: Seen | None = None


class Checkpoints:
    """Reads and writes the checkpoints of all threads of a store.

    ``format`` is the format of the records. The format must allow each record to be read without
    other records. ``value`` converts a record into the runtime's form. ``listed`` returns the keys
    and ids of converted records. ``attributes`` returns the attributes with which a conversation
    begins. ``sent_beside`` returns what a model was sent beside the messages, by the ids of the
    records that it answered. Many threads and processes may use the checkpoints.
    """

    def __init__(
        self,
        histories: Histories,
        format: str,
        value: Callable[[Any], Any],
        listed: Callable[[Sequence[Any]], Listed],
        attributes: Callable[[str], JsonMap],
        sent_beside: Callable[[Iterable[Any]], SentBeside | None],
    ) -> None:
        self.histories = histories
        self._sent_beside = sent_beside
        self.branches = ThreadBranches(histories, attributes)
        self._format = format
        self._value = value
        self._listed = listed
        self._newest = Recent[str, _Newest](KEPT)
        self._noted = Recent[tuple[str, str], tuple[History, list[Any]]](KEPT)
        """Maps a thread and a checkpoint to the history and the notes that this process wrote.
        There is no entry if another process has written notes on the checkpoint.
        """

    # -- reading -----------------------------------------------------------------------------------

    def _query(self, read: Callable[[Moment], T]) -> T:
        return query_all(self.histories.store.database, read)

    def find(
        self, thread: str, checkpoint_id: str | None = None, *, with_hidden: bool = False
    ) -> Checkpoint | None:
        """Return a checkpoint, by default the newest checkpoint. An empty id is no id, as in the
        SDK's own savers. Return None if the checkpoint does not exist or is hidden.

        Cost: the branches of the thread are read.
        """
        if not checkpoint_id:
            return next(self.walk(thread, with_hidden=with_hidden), None)
        branches = self.branches.of(thread)
        if not with_hidden and _is_hidden(branches)(checkpoint_id):
            return None
        return self.branches.locate(branches, checkpoint_id)

    def walk(self, thread: str, *, with_hidden: bool = False) -> Iterator[Checkpoint]:
        """Yield the checkpoints of a thread, the newest checkpoint first. Cost: the branches of the
        thread and the yielded checkpoints are read.
        """
        return self._walk(self.branches.of(thread), with_hidden)

    def _walk(self, branches: list[ThreadBranch], with_hidden: bool) -> Iterator[Checkpoint]:
        """Yield the checkpoints of branches, the newest first."""
        walked = self.branches.walk(branches)
        if with_hidden:
            return walked
        is_hidden = _is_hidden(branches)
        return (checkpoint for checkpoint in walked if not is_hidden(checkpoint.id))

    def newest(
        self, thread: str, *, with_hidden: bool = False
    ) -> tuple[WholeCheckpoint | None, Iterator[Checkpoint]]:
        """Return the newest checkpoint with its documents, records and notes, all read at one
        moment, and an iterator over the earlier checkpoints.

        Cost: the branches of the thread and the newest checkpoint are read.
        """

        def work(moment: Moment) -> tuple[list[ThreadBranch], WholeCheckpoint | None]:
            branches = self.branches.at_moment(thread, moment)
            branch = max(
                (branch for branch in branches if branch.has_own),
                key=lambda branch: branch.tip.id,
                default=None,
            )
            if branch is None or (not with_hidden and _is_hidden(branches)(branch.tip.id)):
                return branches, None
            return branches, self._whole(thread, branch.tip, moment, branch.documents)

        branches, whole = self._query(work)
        walked = self._walk(branches, with_hidden)
        checkpoint = next(walked, None)
        if whole is None and checkpoint is not None:
            whole = self.whole(thread, checkpoint)
        return whole, walked

    def whole(self, thread: str, checkpoint: Checkpoint) -> WholeCheckpoint:
        """Return a checkpoint with its documents, records and notes, all read at one moment. Raises
        ``ConversationErased`` if its branch was erased.
        """
        return self._query(partial(self._whole, thread, checkpoint))

    def _whole(
        self,
        thread: str,
        checkpoint: Checkpoint,
        moment: Moment,
        documents: Fields | None = None,
    ) -> WholeCheckpoint:
        if documents is None:
            documents = standing_documents(
                moment.conversation(checkpoint.branch), checkpoint.version
            )
        is_whole = checkpoint.delta != WRITES
        spans, values = self._records(checkpoint, self._value, moment) if is_whole else ([], [])
        return WholeCheckpoint(
            checkpoint, documents, spans, values, _notes(thread, checkpoint.id, moment)
        )

    def _records(
        self, checkpoint: Checkpoint, read: Callable[[Any], Any], moment: Moment
    ) -> tuple[list[Span], list[Any]]:
        """Return two lists: the event ids of each record of a checkpoint, and the result of
        ``read`` for each record.
        """
        ranges = checkpoint.ranges
        if not ranges:
            return [], []
        ranges_of = list(zip(ranges[::2], ranges[1::2], strict=True))
        reading = moment.conversation(checkpoint.branch)
        stored = self.histories[checkpoint.branch]._stored_records(moment.query)
        if not reading.redactions and not stored.has_redacted:
            spans = list[Span]()
            texts = list[bytes]()
            for start, stop in ranges_of:
                for span, text in stored.between(start, stop):
                    spans.append((span.start, span.stop))
                    texts.append(text)
            if _are_stored(ranges_of, spans):
                # Read a record before the next record is parsed: many objects at once would start
                # Python's garbage collection.
                return spans, [read(parse(text)) for text in texts]
        intervals = [(start, stop - 1) for start, stop in ranges_of]
        shown = _shown_events(checkpoint.branch, intervals, moment)
        encoder = Encoder(self._format, stored=stored)
        spans = []
        values = list[Any]()
        begin = None
        for event in shown:
            if not is_of(event, self._format):
                continue
            if begin is None:
                begin = event.id
            if complete := encoder.records(event):
                values += map(read, complete)
                spans.append((begin, event.id + 1))
                begin = None
        return spans, values

    def mark(self, thread: str, branch: str) -> list[tuple[int, int]]:
        """Return a value that changes when the branch or its notes are redacted or erased."""

        def read(moment: Moment) -> list[tuple[int, int]]:
            redactions = []
            for name in (branch, companion(thread, _NOTES)):
                with suppress(ConversationErased, ConversationNotFound):
                    reading = moment.conversation(name)
                    redactions.append((reading.key, reading.redactions))
            return redactions

        return self._query(read)

    def line(self, thread: str, checkpoint: Checkpoint) -> Iterator[Checkpoint]:
        """Yield the ancestors of a checkpoint, the nearest first. Hidden ancestors are included."""
        last: Checkpoint | None = checkpoint
        count = 1
        while last is not None and last.parent is not None:
            ancestors = self.branches.led_to(last, count)
            if not ancestors:
                elsewhere = self.find(thread, last.parent, with_hidden=True)
                ancestors = [] if elsewhere is None else [elsewhere]
            yield from ancestors
            last = ancestors[-1] if ancestors else None
            count = min(2 * count, KEPT)

    def all_notes(self, thread: str, ids: Sequence[str]) -> dict[str, list[Any]]:
        """Return the notes on these checkpoints, the oldest first. Cost: all notes of the thread
        are read, from the oldest of these notes on.
        """

        def read(moment: Moment) -> dict[str, list[Any]]:
            notes_by_id: dict[str, list[Any]] = {checkpoint_id: [] for checkpoint_id in ids}
            with suppress(ConversationErased, ConversationNotFound):
                reading = moment.conversation(companion(thread, _NOTES))
                firsts = [reading.recall(note_key(checkpoint_id, 0)) for checkpoint_id in ids]
                start = min(
                    (first.first_id for first in firsts if first is not None),
                    default=reading.version,
                )
                for note in reading.events(start):
                    if (
                        isinstance(note, Annotation)
                        and note.data is not None
                        and note.data["checkpoint"] in notes_by_id
                    ):
                        notes_by_id[note.data["checkpoint"]].append(note.data)
            return notes_by_id

        return self._query(read)

    def notes(self, thread: str, checkpoint_id: str) -> list[Any]:
        """Return the notes on a checkpoint, the oldest first."""
        return self._query(partial(_notes, thread, checkpoint_id))

    # -- the newest checkpoint in memory -----------------------------------------------------------

    def newest_records(self, thread: str, branch: str, version: int) -> list[tuple[Span, bytes]]:
        """Return the event ids and the key of each record of the newest checkpoint, if the branch
        already had the record at ``version``.

        Return an empty list if the newest checkpoint is in another branch. A checkpoint that is in
        memory is not read again.
        """
        newest = self.find(thread)
        if newest is None or newest.branch != branch:
            return []
        records = self._load(newest, self._newest.get(thread)).records
        return [
            (span, key)
            for span, key in zip(records.spans, records.keys, strict=True)
            if span[1] <= version
        ]

    def remember(self, thread: str, whole: WholeCheckpoint) -> None:
        """Keep the newest checkpoint of a thread in memory, so that ``put`` need not read it."""
        newest = self._newest.get(thread)
        checkpoint = whole.checkpoint
        if newest is None or newest.checkpoint != checkpoint:
            listed = self._listed(whole.values)
            records = RecordList(whole.spans, listed.keys, listed.ids, checkpoint.ranges or ())
            self._newest[thread] = _Newest(checkpoint, None, records)

    # -- writing -----------------------------------------------------------------------------------

    def put(
        self,
        thread: str,
        checkpoint_id: str,
        parent: str | None,
        body: JsonMap,
        channels: Callable[[Checkpoint], tuple[JsonMap, JsonMap]],
        listed: Callable[[Checkpoint, RecordList], Listed | None],
    ) -> None:
        """Write a checkpoint after its parent, in one transaction. The method writes the document
        ``body`` of the checkpoint, the changed documents, and the records.

        ``channels(previous)`` returns further fields of ``body``, and the changed documents.
        ``listed(previous, records)`` returns the records of the new checkpoint, or None for a
        checkpoint without a list.

        The checkpoint is on disk when the method returns.
        """
        number = 0
        newest = self._newest.pop(thread, None)
        cached = newest
        while True:
            try:
                if (
                    newest is None
                    or newest.history is None
                    or not newest.checkpoint.precedes(parent, checkpoint_id)
                ):
                    newest = self._load(
                        self.branches.to_continue(thread, checkpoint_id, parent), cached
                    )
                before = newest.checkpoint
                history = newest.history
                assert history is not None
                seen = newest.seen
                guard = None
                if body.get("delta") == WRITES:
                    seen = seen or history._seen()
                    guard = self._seen_notes(thread)
                new = listed(before, newest.records)
                events, records, recorder = self._changes(newest, history, new or _NONE)
                more, documents = channels(before)
                value = copy_value({**body, **more})
                value |= {
                    "id": checkpoint_id,
                    "parent": parent,
                    "records": None if new is None else records.ranges,
                    **_links_to(before, checkpoint_id, events),
                }
                if recorder is None:
                    append = history._append_seen
                else:
                    self._note_request(history, before.version, events[0], records)
                    append = partial(history._append_recorded, recorder=recorder)
                recorded = append(
                    events,
                    expected_version=before.version if seen is None else seen.at(before.version),
                    idempotency_key=note_key(checkpoint_id, number),
                    documents={**documents, CHECKPOINT: value},
                    guard=guard,
                )
            except IdempotencyConflict:
                number += 1  # this checkpoint was written before, with other values
            except VersionConflict:
                pass  # other writers appended: find the newest checkpoint again
            except (ConversationErased, ConversationNotFound):
                # The thread was deleted, so this checkpoint begins it again.
                number = 0
                cached = None
            else:
                # A repeated append records no event.
                version = recorded[-1].id + 1 if recorded else before.version
                checkpoint = Checkpoint(before.branch, version, value)
                is_alone = recorder is not None or (not events and newest.alone == before.version)
                self._newest[thread] = _Newest(
                    checkpoint, history, records, version if is_alone else 0
                )
                return
            newest = None

    def _note_request(
        self, history: History, version: int, first: Event, records: RecordList
    ) -> None:
        """Let the replies that are appended name their requests. The model was shown the previous
        checkpoint, so replies after a removal of records do not name them.
        """
        added = zip(records.spans, records.ids, strict=True)
        ids = (record_id for (start, _), record_id in added if start >= version)
        is_removal = isinstance(first, CondensationAction | Retraction)
        history._sent_beside = None if is_removal else self._sent_beside(ids)
        history._asked_at = None if history._sent_beside is None else version

    def note(self, thread: str, checkpoint_id: str, name: str, data: JsonMap) -> None:
        """Add a note on a checkpoint. The note is on disk when the method returns."""
        conversation = companion(thread, _NOTES)
        history, notes = self._noted.pop(
            (thread, checkpoint_id), (self.histories[conversation], [])
        )
        number = len(notes)
        if not number:
            self.branches.begin_new(conversation)
        while True:
            try:
                key = note_key(checkpoint_id, number)
                note = Annotation(
                    name=name, data={**data, "checkpoint": checkpoint_id, "number": number}
                )
                history.append(note, idempotency_key=key)
                if len(notes) == number:
                    self._noted[thread, checkpoint_id] = history, [*notes, data]
                return
            except IdempotencyConflict:
                number += 1  # another writer took the number
            except ConversationErased:
                history = self.histories[conversation]
                notes = []
                number = 0
                self.branches.begin(conversation)

    def _seen_notes(self, thread: str) -> SeenConversations:
        """Return the guard of an append that repeats content of notes."""
        guard = SeenConversations()
        with suppress(ConversationErased):
            guard.reads(self.histories[companion(thread, _NOTES)])
        return guard

    def notes_here(self, thread: str, checkpoint_id: str) -> list[Any]:
        """Return the notes on a checkpoint. If this process wrote all notes on the checkpoint, they
        are taken from memory, unless a note of the thread was redacted.
        """
        history, notes = self._noted.get((thread, checkpoint_id), (None, []))

        def are_all(moment: Moment) -> bool:
            reading = moment.conversation(companion(thread, _NOTES))
            is_same = history is not None and reading.key == history._binding.key
            return (
                is_same
                and not reading.redactions
                and reading.recall(note_key(checkpoint_id, len(notes))) is None
            )

        with suppress(ConversationErased, ConversationNotFound):
            if notes:
                is_complete: bool = self._query(are_all)
                if is_complete:
                    return notes
        return self.notes(thread, checkpoint_id)

    def hide(self, thread: str, ids: Iterable[str] = (), *, below: str = "") -> None:
        """Hide the checkpoints with these ids, and all checkpoints whose ids are smaller than
        ``below``.

        Hidden checkpoints stay in the log. Every branch stores the hidden ids, because other
        branches may be deleted later.
        """
        for branch in self.branches.of(thread):
            self._hide(self.histories[branch.tip.branch], {*ids}, below)

    def _hide(self, history: History, ids: set[str], below: str) -> None:
        """Add to the hidden ids of a branch. A branch that was deleted after it was found has no
        checkpoints to hide.
        """
        with suppress(ConversationErased):
            while True:
                version = history.version()
                before = document(history, HIDDEN, {"ids": [], "below": ""}, version)
                all_ids = sorted(ids.union(before["ids"]))
                hidden = {"ids": all_ids, "below": max(before["below"], below)}
                with suppress(VersionConflict):
                    history.append((), documents={HIDDEN: hidden}, expected_version=version)
                    return

    # -- steps -------------------------------------------------------------------------------------

    def _changes(
        self, newest: _Newest, history: History, new: Listed
    ) -> tuple[list[Event], RecordList, HistoryRecorder | None]:
        """Return three values: the events that change the list of records, the new list, and the
        recorder of the new records, or None if no record is new. Raises ``VersionConflict``.
        """
        before = newest.checkpoint
        recorders = list[HistoryRecorder]()

        def recorder() -> HistoryRecorder:
            recorders.append(history._recorder(self._format, before.version))
            return recorders[0]

        def joins(start: int, stop: int) -> bool:
            query = partial(_shown_events, before.branch, [(start, stop - 1)])
            return max(start, newest.alone) >= stop or not self._query(query)

        keys = self._keys_despite_redactions(newest, new)
        events, spans = changes(
            newest.records,
            keys,
            recorder,
            new.record,
            before.removed,
            lambda: stood_for(history.at(before.version)),
        )
        records = RecordList(spans, keys, new.ids, ranges(newest.records, spans, joins))
        return events, records, recorders[0] if recorders else None

    def _keys_despite_redactions(self, newest: _Newest, new: Listed) -> Sequence[bytes]:
        """Return the keys of the new records. If a new record has the id of a redacted record,
        return the key of the redacted record for it: it stays redacted, and what the graph brings
        under its id is not stored.
        """
        old = newest.records
        instead = dict[Any, bytes]()
        removed_spans = without(old.spans, staying(old.keys, new.keys))
        query = partial(
            _shown_events,
            newest.checkpoint.branch,
            [(start, stop - 1) for start, stop in removed_spans],
        )
        if removed_spans:
            events = {event.id: event for event in self._query(query)}
        else:
            events = {}
        for start, stop in removed_spans:
            there = [events[event_id] for event_id in range(start, stop) if event_id in events]
            if not there or there[0].origin is None:
                record_id = None
            else:
                record_id = there[0].origin.id
            if record_id is not None and any(event.redacted is not None for event in there):
                instead[record_id] = old.keys[old.spans.index((start, stop))]
        known_ids = zip(new.ids, new.keys, strict=True)
        if instead:
            return [instead.get(source_id, key) for source_id, key in known_ids]
        return new.keys

    def _load(self, checkpoint: Checkpoint, cached: _Newest | None) -> _Newest:
        """Return a checkpoint with its records. If ``cached`` is the same checkpoint, its records
        are used, and no record is read.
        """
        history = self.histories[checkpoint.branch]
        seen = history._seen()
        checkpoint = self.branches.at(checkpoint.branch, checkpoint.version)
        if cached is not None and cached.checkpoint.value == checkpoint.value:
            return _Newest(checkpoint, history, cached.records, seen=seen)
        spans, values = self._query(partial(self._records, checkpoint, self._value))
        listed = self._listed(values)
        records = RecordList(spans, listed.keys, listed.ids, checkpoint.ranges or ())
        return _Newest(checkpoint, history, records, seen=seen)

    def record(self, checkpoint: Checkpoint, place: int) -> Any:
        """Return a record by its index. All records of the checkpoint are read."""
        return self._query(partial(self._records, checkpoint, _same))[1][place]


def _links_to(before: Checkpoint, checkpoint_id: str, events: Sequence[Event]) -> Fields:
    """Return the fields of a new checkpoint's document that follow from the checkpoint before it.
    ``events`` change the list of records.
    """
    is_repeated = before.id == checkpoint_id
    links: Fields = {"before": before.before if is_repeated else before.version}
    removed = before.removed
    if events and isinstance(events[0], CondensationAction):
        removed = before.version
    if removed >= 0:
        links["removed"] = removed
    return links


def _shown_events(branch: str, intervals: list[Span], moment: Moment) -> list[Event]:
    """Return the events in inclusive intervals that a View shows. Intervals may be empty."""
    not_empty = [(first, last) for first, last in intervals if first <= last]
    return moment.conversation(branch).shown_events(not_empty) if not_empty else []


def _are_stored(ranges_of: Iterable[Span], spans: Sequence[Span]) -> bool:
    """Return whether each range of a checkpoint begins and ends with a stored record."""
    starts = {start for start, _ in spans}
    stops = {stop for _, stop in spans}
    return all(start in starts and stop in stops for start, stop in ranges_of)


def _same(record: Any) -> Any:
    return record


def _notes(thread: str, checkpoint_id: str, moment: Moment) -> list[Any]:
    """Return the data of the notes on a checkpoint, the oldest first."""
    conversation = companion(thread, _NOTES)
    with suppress(ConversationErased, ConversationNotFound):
        reading = moment.conversation(conversation)
        ids = [outcome.first_id for outcome in appended_for(moment, conversation, checkpoint_id)]
        notes = (event for event_id in ids for event in reading.events(event_id, event_id + 1))
        return [
            {name: value for name, value in note.data.items() if name not in _PLACE}
            for note in notes
            if isinstance(note, Annotation) and note.data is not None
        ]
    return []


def _is_hidden(branches: Iterable[ThreadBranch]) -> Callable[[str], bool]:
    """Return a function that says whether the checkpoint with an id is hidden."""
    hidden = [branch.hidden for branch in branches if branch.hidden is not None]
    ids = {checkpoint_id for of_branch in hidden for checkpoint_id in of_branch["ids"]}
    below = max((of_branch["below"] for of_branch in hidden), default="")
    return lambda checkpoint_id: checkpoint_id in ids or checkpoint_id < below
