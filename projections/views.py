"""Views of stored conversations at any version. The cost of a View is that of the events that it
shows.

A View is loaded from the last revision: one read of the revision, and one ranged read of the events
that it keeps and those since. ``store.register(views)`` has the store call ``Views.project`` in
every transaction that appends structural events, so that each revision is stored with its event.
Where a writer appended without it, readers fold on from the last revision. The next structural
event, or ``rebuild``, stores the missing revisions: a read writes nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from foldlog.eventstore import (
    NOT_RECORDED,
    CondensationAction,
    Event,
    ReadTransaction,
    Retraction,
    Store,
    UnknownEventType,
    summary_of,
)
from foldlog.eventstore.inside import Conversation, Record, WriteTransaction
from foldlog.eventstore.log.row import events_of
from foldlog.projections.condensations import StoredCondensations
from foldlog.projections.errors import NoSuchEvent, NoSuchVersion
from foldlog.projections.explain import Difference, Why, explain_difference, explain_event
from foldlog.projections.fold import Folded, summary_event
from foldlog.projections.lifetimes import Lifetimes
from foldlog.projections.lifetimes.fold import Count, LifetimesFold
from foldlog.projections.messages import Dialect
from foldlog.projections.messages.turns import checked
from foldlog.projections.retractions import target
from foldlog.projections.stored.loading import (
    CHUNK,
    StoredPast,
    fold_events,
    fold_log,
    fold_whole,
    is_stored,
    load_revision,
    returned_record,
)
from foldlog.projections.stored.revision import EMPTY_FOLD, ViewFold, fold_on, fold_shown
from foldlog.projections.stored.revision_codec import PROJECTION
from foldlog.projections.view import View

_REMEMBERED = 64
"""Number of conversations whose last View stays in memory, to fold on from."""

_FEW = 64
"""Up to this many new events are read completely, shown or not, because that takes one query
instead of three.
"""


@dataclass(slots=True)
class _Latest:
    """The last View of a conversation, and the conversation as it was found with it. A View made in
    a transaction that was rolled back must not be used when other events get the same ids: the head
    tells. A View with the content of events that were redacted since must not be used either: the
    number of redactions tells. ``missing`` are revisions that were not stored.
    """

    folded: ViewFold
    found: Conversation
    view: View
    missing: Sequence[Record] = ()

    def is_at(self, reading: ReadTransaction, version: int) -> bool:
        """Return whether this is the View at a version of the conversation that is read."""
        return self.folded.version == version and self.found.head == reading.head_at(version)


class Views:
    """The Views of a store's conversations. Thread-safe.

    Also an inline projection: after ``store.register(views)`` the store keeps each revision in the
    transaction of its event. Without that, Views are right too, and cost the events since the last
    revision.
    """

    name = PROJECTION

    def __init__(self, store: Store, *, dialect: Dialect = "litellm") -> None:
        """``dialect`` is that of the messages of these Views, where none is named: see
        ``View.to_messages``.
        """
        self._store = store
        self._dialect = checked(dialect)
        self._lock = threading.Lock()
        self._latest: dict[str, _Latest] = {}

    def current(self, conversation: str) -> View:
        """Return the View now: the same object until an event is appended, or 64 other
        conversations are read.

        Raises ``ConversationNotFound``, ``ConversationErased``, ``CorruptEvent``,
        ``StoreUnavailable``, and ``UnknownEventType`` where a newer version of foldlog wrote an
        event that changes the View. Cost: the events appended since the last call, or else the
        events of the View; no question where no other program has committed since, and the last
        append of this one was to this conversation.
        """
        latest = self._latest.get(conversation)
        if latest is None:
            left = None
        else:
            left = self._store.database.cached_state(conversation)
        if latest is None or left is None:
            rows = None
        else:
            rows = left.rows_since(latest.found)
        if latest is None or left is None or rows is None:
            return self._view(conversation, None)
        if rows:
            return self._grow(latest, left.state, list(events_of(conversation, rows)))
        return latest.view

    def at(self, conversation: str, version: int) -> View:
        """Return the View when the conversation had ``version`` events. Raises ``NoSuchVersion``,
        and what ``current`` raises.

        Cost: the events of that View.
        """
        return self._view(conversation, version)

    def why(self, conversation: str, event_id: int, at: int | None = None) -> Why:
        """Say why an event, or the summary with a synthetic id, is in the View now, or at a
        version, or is not.

        Raises ``NoSuchEvent``, and what ``at`` raises. Cost: the View; for a forgotten event also
        the structural events after it.
        """
        if at is None:
            view = self.current(conversation)
        else:
            view = self.at(conversation, at)

        def explained(reading: ReadTransaction) -> Why:
            event = _read_event(reading, event_id, view.version)
            structural = partial(reading.structural_events, stop=view.version)
            return explain_event(event, view, structural)

        return self._store.query(conversation, explained)

    def difference(self, conversation: str, before: int, after: int) -> Difference:
        """Say what entered the View and what left it between two versions. Raises
        ``NoSuchVersion``, and what ``current`` raises. Cost: two Views, and the structural events
        in between.
        """
        views = self.at(conversation, before), self.at(conversation, after)

        return self._store.query(
            conversation,
            lambda reading: explain_difference(
                *views, partial(reading.structural_events, stop=after)
            ),
        )

    def lifetimes(self, conversation: str, count: Count | None = None) -> Lifetimes:
        """Return for each event at which versions the View shows it, when a model is sent it, and
        why it left.

        ``count`` gives the tokens of an event, such as an estimate. Raises what ``current``
        raises.
        Cost: the events, once; for each structural event the View at that moment.
        """
        version = self._store.version(conversation)

        def returns(reading: ReadTransaction) -> list[int]:
            structural = reading.structural_events(0, version)
            return [target(event) for event in structural if isinstance(event, Retraction)]

        folding = LifetimesFold(conversation, count, self._store.query(conversation, returns))
        folding.take(self._store.events(conversation, 0, version))
        return folding.result()

    def rebuild(self, conversation: str) -> int:
        """Rebuild all revisions from the log and replace the stored ones in one transaction; return
        their number.

        The store stays usable during the rebuild. Raises what ``current`` raises, and
        ``StoreUnavailable`` where the store is open for reading only. Cost: the log.
        """
        folded, records = self._store.query(conversation, fold_whole)

        def replace_all(writing: WriteTransaction) -> int:
            made = list(records)
            past = StoredPast(writing, stored=False, records=records)
            # events appended since
            for _, some in fold_log(writing, folded, writing.version, past):
                made += some
            writing.put_records(PROJECTION, made, replace_all=True)
            return len(made)

        return self._store.project(conversation, replace_all)

    def project(self, writing: WriteTransaction, events: Sequence[Event]) -> None:
        """Store the revisions of appended events in their transaction. A store calls this after
        ``register``.
        """
        try:
            past = StoredPast(writing)
            if (
                len(events) == 1
                and isinstance(events[0], Retraction)
                and (back := returned_record(events[0], past))
            ):
                return writing.put_records(PROJECTION, [back])
            folded, missing = self._load(writing, events[0].id, past)
            folded, records = fold_on(folded, events, writing.version, past)
        except UnknownEventType:
            return  # the log is right without its revisions, and ``current`` raises this error
        writing.put_records(PROJECTION, [*missing, *records])
        self._remember(writing.state, folded)

    # -- steps
    # ----------------------------------------------------------------------------------------------

    def _view(self, conversation: str, version: int | None) -> View:
        return self._store.query(conversation, partial(self._opened, version=version))

    def _opened(self, reading: ReadTransaction, version: int | None) -> View:
        """Return the View at a version."""
        found = reading.state
        conversation = found.id
        present = found.version
        if version is None:
            version = present
        elif not 0 <= version <= present:
            raise NoSuchVersion(conversation, version, present)
        latest = self._latest_of(reading)
        if latest and latest.is_at(reading, version):
            return latest.view
        folded, missing = self._load(reading, version)
        if version == present:
            return self._remember(found, folded, missing)
        return self._view_of(found, folded)

    def _load(
        self, reading: ReadTransaction, version: int, past: StoredPast | None = None
    ) -> tuple[ViewFold, list[Record]]:
        """Return the fold at a version, and the revisions that are not stored yet."""
        folded = EMPTY_FOLD
        records = list[Record]()
        latest = self._latest_of(reading)
        if past is None:
            past = StoredPast(reading, records=latest.missing if latest else ())
        since = None
        if latest and 0 < version - latest.folded.version <= _FEW:
            since = reading.events_after_head(latest.found.head, latest.folded.version, version)
        if latest and since is not None:
            folded, records = fold_events(latest.folded, since, past)
            records = [*latest.missing, *records]
        elif (
            latest
            and version - CHUNK <= (at := latest.folded.version) <= version
            and latest.is_at(reading, at)
        ):
            folded = latest.folded
            records = [*latest.missing]
        else:
            folded, records = load_revision(reading, version, past) or (folded, records)
        for further, some in fold_log(reading, folded, version, past):
            folded = further
            records += some
        if records and is_stored(reading, records[-1]):
            records = []
        return folded, records

    def _latest_of(self, reading: ReadTransaction) -> _Latest | None:
        """Return the last View of a conversation, if none of its content was erased since. That of
        another conversation with this id is not returned, although a fork in its place may have the
        same head: its past cannot be read.
        """
        latest = self._latest.get(reading.state.id)
        found = reading.state
        is_same = latest and (latest.found.key, latest.found.redactions) == (
            found.key,
            found.redactions,
        )
        return latest if is_same else None

    def _grow(self, before: _Latest, found: Conversation, events: Sequence[Event]) -> View:
        """Return the last View with further events that are not structural: its condensations are
        the same.
        """
        folded = fold_shown(before.folded, events, found.version)
        view = View(folded.state, before.view.condensations, self._dialect)
        return self._keep(_Latest(folded, found, view, before.missing))

    def _remember(
        self, found: Conversation, folded: ViewFold, missing: Sequence[Record] = ()
    ) -> View:
        latest = self._latest.get(found.id)
        if latest and (latest.found.key, latest.found.redactions) == (found.key, found.redactions):
            folded = folded._replace(state=replace(folded.state, past=latest.view.state.past))
        view = self._view_of(found, folded)
        return self._keep(_Latest(folded._replace(state=view.state), found, view, missing))

    def _keep(self, latest: _Latest) -> View:
        """Keep the last View of a conversation."""
        conversation = latest.found.id
        with self._lock:
            if self._latest.pop(conversation, None) is None:
                while len(self._latest) >= _REMEMBERED:
                    oldest = next(iter(self._latest))
                    del self._latest[oldest]
            self._latest[conversation] = latest
        return latest.view

    def _view_of(self, found: Conversation, folded: ViewFold) -> View:
        condensations = StoredCondensations(
            self._store, found.id, folded.version, folded.revision.condensations
        )
        state = folded.state
        if state.past is None:
            state = replace(state, past=_PastViews(self, found.id, found.redactions))
        return View(state, condensations, self._dialect)


@dataclass(frozen=True, slots=True)
class _PastViews:
    """The past of a stored conversation: its earlier Views, for a View that is folded on in memory
    with a retraction, and its log.
    """

    views: Views
    conversation: str
    redactions: int
    memory: dict[str, Any] = field(default_factory=dict)

    def at(self, version: int) -> Folded:
        view = self.views.at(self.conversation, version)
        return Folded(view.state, view.condensations)

    def events(self, start: int, stop: int) -> Sequence[Event]:
        return list(self.views._store.events(self.conversation, start, stop))


def _read_event(reading: ReadTransaction, event_id: int, version: int) -> Event:
    """Return the event with this id, or the summary with this synthetic one. Raises
    ``NoSuchEvent``.
    """
    wanted = event_id if event_id >= NOT_RECORDED else summary_of(event_id)
    if 0 <= wanted < version:
        (event,) = reading.events(wanted, wanted + 1)
        if event_id >= 0:
            return event
        if isinstance(event, CondensationAction) and event.summary is not None:
            return summary_event(event)
    raise NoSuchEvent(reading.conversation, event_id, version)
