"""Read and write the events of a conversation as files of the OpenHands SDK.

The SDK's events form a tree, and one event is the *head*. The SDK shows its model the branch that
ends in the head, so foldlog's View is this branch. Before an event of another branch is appended, a
retraction removes from the View all events after the parent of this event.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from posixpath import normpath
from typing import TYPE_CHECKING, Any, TypeVar

from foldlog._base.telemetry import tell
from foldlog.eventstore import (
    ATTRIBUTES,
    Annotation,
    ConversationErased,
    ConversationNotFound,
    DocumentChanges,
    Event,
    InvalidEvent,
    ReadTransaction,
    Recorded,
    Retraction,
    VersionConflict,
)
from foldlog.formats.encoding import Encoder
from foldlog.formats.event_places import is_step_aside, place_of
from foldlog.formats.json_text import json_text, parse
from foldlog.formats.openhands_v1 import metrics_in
from foldlog.formats.openhands_v1.writing import NAME
from foldlog.formats.record import Fields, dicts_in, usage_meta

if TYPE_CHECKING:
    from foldlog import History

T = TypeVar("T")
_EVENTS_OF_A_TRANSACTION = 500
"""The maximum number of events that a copy writes in one transaction."""
_ASIDE = 2
"""Going to another branch adds at most two events: a condensation that declines an open request,
and a retraction.
"""
_AHEAD = 64
"""The number of events that are read together, because the SDK reads event files in order."""
_ROOT = "__root__"
"""The ``parent_id`` of an event that begins another tree in the SDK."""
_NOT_A_HEAD = "ConversationStateUpdateEvent"
"""When an event of this kind is appended, the head does not move to it."""


class EventFiles:
    """The SDK's events of a conversation, in order, with the names of the event files."""

    def __init__(self, history: History) -> None:
        self._history = history
        self.version = 0
        self._redactions = 0
        self._moment: int | None = None
        """The ``Database.data_version`` at the last read of the conversation."""
        self.names: list[str] = []
        self.documents: set[str] = set()
        self.head: str | None = None
        self._heads: tuple[list[int], list[str | None]] = ([], [])
        """The ids of the events that moved the head, and the head after each of them."""
        self._events: dict[str, int] = {}
        self._read: dict[int, Event] = {}
        self._stored = history._stored_records()
        self._read_at = 0
        """The version at which ``_read`` and ``_stored`` were read. Both are read again if the
        version or ``_redactions`` has changed, because events may have been redacted.
        """
        self._counted: dict[str, int] | None = None
        """Maps a usage id of the SDK to the number of calls in the last state, or None before the
        first state.
        """

    def catch_up(self) -> None:
        """Read the events that were appended since the last call.

        A conversation that was erased before this object first read it has no events. The SDK calls
        this method for each file, so the method reads the log only if some program has committed to
        the store since the last call.
        """
        moment = self._history._store.database.data_version()
        if moment == self._moment:
            return
        redactions = self._redactions
        try:
            version, self._redactions = self._history._store.query(
                self._history.id, _version_and_redactions
            )
        except ConversationNotFound:
            version = 0
        except ConversationErased:
            if self._history._binding.key is not None:
                raise
            return
        if version > self.version:
            self._take(self._history.events(self.version, version))
        self._moment = moment
        if version > self._read_at or redactions != self._redactions:
            self._read = {}
            self._stored = self._history._stored_records()
            self._read_at = version

    def follow(self, recorded: Iterable[Recorded]) -> None:
        """Note events that this object has appended, so that they need not be read. If other
        writers have appended events that this object has not read yet, do nothing.
        """
        events = [appended.event for appended in recorded]
        if events and events[0].id == self.version:
            self._take(events)

    def has(self, source_id: str) -> bool:
        """Return whether the conversation has an event with this id of the SDK."""
        return source_id in self._events

    def text(self, source_id: str) -> str | None:
        """Return the JSON of an event of the SDK, or None if the conversation does not have the
        event. The method reads only the events of the log that were made from the SDK's event.
        """
        self.catch_up()
        event_id = self._events.get(source_id)
        if event_id is None:
            return None
        text = None if self._redactions else self._stored.text_of(event_id)
        if text is not None:
            return text.decode()
        first = event_id - place_of(self._event(event_id))
        stored = self._stored
        begin = self._event(first)
        asides = (
            ()
            if stored.count(begin)
            else self._history.events(max(first - _ASIDE, 0), first, reverse=True)
        )
        for before in asides:
            if stored.count(begin) or not is_step_aside(before):
                break
            # If the View changed to another branch for this event, the event that changed it
            # belongs to the same record.
            begin = before
            first = before.id
        encoder = Encoder(NAME, stored=stored)
        if begin.cause is not None:
            for cause in self._history.events(begin.cause, begin.cause + 1):
                encoder.records(cause)  # what remains of a redacted result names its call
        events = (
            self._event(number) for number in range(first, first + (stored.count(begin) or 1))
        )
        record = next(record for event in events for record in encoder.records(event))
        if stored.count(begin) and begin.redacted is None:
            head = None
        else:
            head = self._head_at(first)
        return json_text(record if head is None else {**record, "parent_id": head})

    def _event(self, event_id: int) -> Event:
        """Return an event of the log. The events after it are read too."""
        if event_id not in self._read:
            self._read = {
                event.id: event for event in self._history.events(event_id, event_id + _AHEAD)
            }
        return self._read[event_id]

    def append(self, records: Sequence[Fields]) -> None:
        """Append all records after the events of other writers, or none if an error is raised. The
        first record comes after the event that its ``parent_id`` names, and each later record comes
        after the record before it.
        """
        parent = records[0].get("parent_id")

        def appended() -> tuple[Recorded, ...]:
            if parent is not None:
                self._go_to(None if parent == _ROOT else parent)
            return self._history.append_records(records, format=NAME, expected_version=self.version)

        self.follow(self._at_the_end(appended))

    def append_all(self, records: Iterable[Fields]) -> None:
        """Append records, each after the event that its ``parent_id`` names."""
        run: list[Fields] = []
        head: str | None = None
        for record in records:
            if run and (
                len(run) == _EVENTS_OF_A_TRANSACTION or record.get("parent_id") not in (None, head)
            ):
                self.append(run)
                run = []
            run.append(record)
            if len(run) == 1 or record.get("kind") != _NOT_A_HEAD:
                head = record["id"]
        if run:
            self.append(run)

    def write_state(self, name: str, state: Fields) -> None:
        """Store the SDK's state, and show the branch that the state names, in one transaction.

        If the conversation does not have the event that the state names, the View does not change.
        For each new model call in the state, an event with its usage is appended. No View shows
        this event.
        """
        head = state.get("leaf_event_id")
        metrics = metrics_in(state)

        def written() -> tuple[Recorded, ...]:
            moves: tuple[Retraction, ...] = ()
            if head is not None and head not in self._events:
                finding = f"its state names the event {head!r}, which is not in the conversation"
                tell(
                    "foldlog.import.finding",
                    of=f"conversation {self._history.id!r}",
                    finding=finding,
                )
            elif head is not None or state.get(
                "head_is_empty"
            ):  # a state without a head is older than the first event, or than the SDK's trees
                moves = self._moves(head)
            if self._counted is None:
                if self.version:
                    before = self._history.document(name, version=self.version)
                else:
                    before = None
                self._counted = _count(metrics_in(before))
            events: list[Event] = [*moves, *_uncounted_usage(metrics, self._counted)]
            return self._history.append(
                events, documents={name: state}, expected_version=self.version
            )

        self.follow(self._at_the_end(written))
        self._counted = _count(metrics)

    def _at_the_end(self, act: Callable[[], T]) -> T:
        """Call ``act``, and call it again after each append of another writer that it did not
        expect.
        """
        while True:
            self.catch_up()
            try:
                return act()
            except VersionConflict:
                continue  # another process appended

    def _go_to(self, head: str | None) -> None:
        """Append a retraction, so that the View shows the branch that ends in ``head``."""
        if head is not None and head not in self._events:
            raise InvalidEvent(
                f"conversation {self._history.id!r} has no event {head!r} to continue from"
            )
        moves = self._moves(head)
        if moves:
            self.follow(self._history.append(moves, expected_version=self.version))

    def _moves(self, head: str | None) -> tuple[Retraction, ...]:
        """Return the retraction after which the View ends in ``head``, or nothing if it does
        now.
        """
        if head == self.head:
            return ()
        version = 0 if head is None else self._events[head] + 1
        return (Retraction(version=version, reason="the head of the conversation was moved"),)

    def _take(self, events: Iterable[Event]) -> None:
        """Note the files, the documents and the heads that events of the log change."""
        for event in events:
            source_id = source_id_of(event)
            if isinstance(event, Retraction):
                self._move(event.id, self._head_at(event.version))
            elif isinstance(event, DocumentChanges):
                changed = {
                    name for name, change in event.changed.items() if "deleted" not in change
                }
                self.documents = changed.union(event.others) - {ATTRIBUTES}
            elif source_id is not None:
                self.names.append(f"events/event-{len(self.names):05d}-{source_id}.json")
                self._events.setdefault(source_id, event.id)
                if not (isinstance(event, Annotation) and event.name == _NOT_A_HEAD):
                    self._move(event.id, source_id)
            self.version = event.id + 1

    def _head_at(self, version: int) -> str | None:
        """Return the head at a version."""
        ids, heads = self._heads
        place = bisect_right(ids, version - 1)
        return heads[place - 1] if place else None

    def _move(self, event_id: int, head: str | None) -> None:
        """Note that an event of the log moved the head."""
        self.head = head
        self._heads[0].append(event_id)
        self._heads[1].append(head)


def _version_and_redactions(reading: ReadTransaction) -> tuple[int, int]:
    return reading.version, reading.redactions


def _count(metrics: dict[str, Fields]) -> dict[str, int]:
    """Return the number of calls in the metrics of a state, by usage id."""
    return {use: len(dicts_in(report, "token_usages")) for use, report in metrics.items()}


def _uncounted_usage(metrics: dict[str, Fields], counted: dict[str, int]) -> Iterator[Annotation]:
    """For each call that was not counted yet, yield an event with its usage. The event has the cost
    of the call if the state has a cost for every call.
    """
    for use, report in metrics.items():
        calls = dicts_in(report, "token_usages")
        costs = dicts_in(report, "costs")
        for place in range(counted.get(use, 0), len(calls)):
            if len(costs) == len(calls):
                cost = costs[place].get("cost") or None
            else:
                cost = None
            model = calls[place].get("model") or report.get("model_name")
            yield Annotation(name="usage", meta=usage_meta(calls[place], model=model, cost=cost))


def source_id_of(event: Event) -> str | None:
    """Return the id that an event has in the SDK, or None for an event that foldlog added."""
    origin = event.origin
    if origin is not None and origin.format == NAME and type(origin.id) is str:
        return origin.id
    return None


def parse_json(text: str) -> Any:
    """Return the value of a JSON text. A text that is not JSON is returned unchanged."""
    try:
        return parse(text.encode())
    except ValueError:
        return text


def normal_path(path: str) -> str:
    """Return a path in its normal form. Raises ``ValueError`` if the path leads out of the
    conversation.
    """
    normal = normpath(path.replace("\\", "/").lstrip("/"))
    if normal.split("/")[0] == "..":
        raise ValueError(
            f"path {path!r} leads out of the conversation's files; give a path without '..'"
        )
    return "" if normal == "." else normal


def is_below(name: str, folder: str) -> bool:
    """Return whether a path is in a folder. The empty text is the folder of all files."""
    return not folder or name.startswith(f"{folder}/")
