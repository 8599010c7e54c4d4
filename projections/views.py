"""Views of stored conversations, at any moment, for the price of what they show.

``Views(store)`` keeps a revision of the View with each structural event, in the transaction that appends it. To open a
View is to read the last revision and then, in one ranged read, the events that it keeps and those behind it. Where a
writer appended without this projection, the next reader folds on from the last revision and stores what was missing.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass

from eventstore import Store
from eventstore.errors import UnknownEventType
from eventstore.events import NOT_RECORDED, CondensationAction, Event, summary_of
from eventstore.transaction import Record, Snapshot, WritableSnapshot
from projections.condensations import StoredCondensations
from projections.difference import Difference, difference
from projections.errors import NoSuchEvent, NoSuchVersion
from projections.fold import summary_event
from projections.reading import CHUNK, Progress, folded, gone_on, is_stored, opened
from projections.revising import NOTHING, Revised, revise
from projections.revisions import PROJECTION
from projections.view import View
from projections.why import Why, why

__all__ = ["Views"]

_REMEMBERED = 64
"""Conversations whose last View is kept in memory, to go on from."""

_FEW = 64
"""Events that are read whole, whether shown or not, since it takes one question and not three."""


@dataclass(frozen=True, slots=True)
class _Latest:
    """The last View that was made of a conversation, and the head of the events that it was made of: what is made in a
    transaction may be rolled back, and other events may get the same ids.
    """

    revised: Revised
    head: bytes | None
    view: View


class Views:
    """The Views of a store's conversations. It registers with the store, which holds on to it, to keep its revisions;
    of several, the last one keeps them, and all are right. Thread-safe.
    """

    name = PROJECTION

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._latest: dict[str, _Latest] = {}
        store.register(self)

    def current(self, conversation: str) -> View:
        """The View now: the very same object as long as nothing is appended.

        Raises ``ConversationNotFound``, ``ConversationErased``, ``CorruptEvent``, ``StoreUnavailable``, and
        ``UnknownEventType`` where a newer version of foldlog wrote something that changes the View. Cost: what was
        appended since it was last asked for, or else the events of the View.
        """
        return self._view(conversation, None)

    def at(self, conversation: str, version: int) -> View:
        """The View when the conversation had ``version`` events. Raises ``NoSuchVersion``, and what ``current`` raises.

        Cost: the events of that View.
        """
        return self._view(conversation, version)

    def why(self, conversation: str, event_id: int) -> Why:
        """Why an event, or the summary with a synthetic id, is in the View now, or is not. Raises ``NoSuchEvent``, and
        what ``current`` raises. Cost: a few Views.
        """
        view = self.current(conversation)
        with self._store.snapshot(conversation) as snapshot:
            event = _event(snapshot, event_id, view.version)
            return why(event, view, lambda start: snapshot.structural_events(start, view.version))

    def difference(self, conversation: str, before: int, after: int) -> Difference:
        """What entered the View and what left it between two versions. Raises ``NoSuchVersion``, and what ``current``
        raises. Cost: two Views, and the condensations in between.
        """
        views = self.at(conversation, before), self.at(conversation, after)
        with self._store.snapshot(conversation) as snapshot:
            return difference(*views, snapshot.structural_events(before, after))

    def rebuild(self, conversation: str, progress: Progress | None = None) -> int:
        """Make all revisions again from the log, and swap them at once; returns how many there are.

        Others read and write meanwhile. Raises what ``current`` raises, and ``StoreUnavailable`` where the store is
        open for reading only. Cost: the log.
        """
        revised, records = NOTHING, list[Record]()
        with self._store.snapshot(conversation) as snapshot:
            for revised, some in folded(snapshot, NOTHING, snapshot.version):
                records += some
                if progress is not None:
                    progress(revised.version, snapshot.version)

        def swap(snapshot: WritableSnapshot) -> int:
            made = list(records)
            for _, some in folded(snapshot, revised, snapshot.version):  # what came meanwhile
                made += some
            snapshot.delete_records(PROJECTION)
            snapshot.put_records(PROJECTION, made)
            return len(made)

        return self._store.project(conversation, swap)

    def project(self, snapshot: WritableSnapshot, events: Sequence[Event]) -> None:
        """The seam of the store: keep the revisions of a batch in the transaction that appends it."""
        try:
            revised, missing = self._opened(snapshot, events[0].id)
            revised, records = revise(revised, events, snapshot.version)
        except UnknownEventType:
            return  # the log is right without its revisions, and who asks for the View is told
        snapshot.put_records(PROJECTION, [*missing, *records])
        self._remember(snapshot, revised)

    # -- steps --------------------------------------------------------------------------------------------------------

    def _view(self, conversation: str, version: int | None) -> View:
        with self._store.snapshot(conversation) as snapshot:
            present = snapshot.version
            if version is None:
                version = present
            elif not 0 <= version <= present:
                raise NoSuchVersion(conversation, version, present)
            latest = self._latest.get(conversation)
            if latest and latest.revised.version == version and latest.head == snapshot.head_at(version):
                return latest.view
            revised, missing = self._opened(snapshot, version)
            view = self._remember(snapshot, revised) if version == present else self._made(conversation, revised)
        if missing and self._store.writable:
            self._store.project(conversation, lambda writable: writable.put_records(PROJECTION, missing))
        return view

    def _opened(self, snapshot: Snapshot, version: int) -> tuple[Revised, list[Record]]:
        """The fold at a version, and the records that were missing."""
        revised, records = NOTHING, list[Record]()
        latest = self._latest.get(snapshot.conversation)
        since = None
        if latest and 0 < version - latest.revised.version <= _FEW:
            since = snapshot.events_behind(latest.head, latest.revised.version, version)
        if latest and since is not None:
            revised, records = gone_on(latest.revised, since)
        elif latest and _is_near(latest, version) and latest.head == snapshot.head_at(latest.revised.version):
            revised = latest.revised
        else:
            revised, records = opened(snapshot, version) or (revised, records)
        for further, some in folded(snapshot, revised, version):
            revised = further
            records += some
        if records and is_stored(snapshot, records[-1]):
            records = []
        return revised, records

    def _remember(self, snapshot: Snapshot, revised: Revised) -> View:
        view = self._made(snapshot.conversation, revised)
        with self._lock:
            self._latest.pop(snapshot.conversation, None)
            while len(self._latest) >= _REMEMBERED:
                del self._latest[next(iter(self._latest))]
            self._latest[snapshot.conversation] = _Latest(revised, snapshot.head, view)
        return view

    def _made(self, conversation: str, revised: Revised) -> View:
        condensations = StoredCondensations(self._store, conversation, revised.version, revised.condensations)
        return View(revised.state, condensations)


def _is_near(latest: _Latest, version: int) -> bool:
    return 0 <= version - latest.revised.version <= CHUNK


def _event(snapshot: Snapshot, event_id: int, version: int) -> Event:
    """The event with this id, or the summary with this synthetic one. Raises ``NoSuchEvent``."""
    wanted = event_id if event_id >= NOT_RECORDED else summary_of(event_id)
    if 0 <= wanted < version:
        (event,) = snapshot.events(wanted, wanted + 1)
        if event_id >= 0:
            return event
        if isinstance(event, CondensationAction) and event.summary is not None:
            return summary_event(event)
    raise NoSuchEvent(snapshot.conversation, event_id, version)
