"""Views of stored conversations at any version. Loading a View costs as much as reading the events
that it shows.

Loading a View takes two reads. The first read gets the View's last revision. The second read gets
the events that the revision shows, and all events after the revision. After
``store.register(views)``, the store calls ``Views.project`` in every transaction that appends
structural events. A revision is stored together with its event. If a writer appends without
``Views.project``, readers continue from the last stored revision. A read writes nothing: the next
structural event, or ``rebuild``, stores the missing revisions.

See docs/internals/decisions/0032-views-are-registered.md.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import replace
from functools import partial
from operator import attrgetter
from typing import Any

from msgspec import Struct

from foldlog._base.json_types import JsonObject
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
from foldlog.eventstore.arguments import check_whole
from foldlog.eventstore.errors import TooManyBytes
from foldlog.eventstore.log.reading import VIEW_LIMIT
from foldlog.eventstore.log.row import events_of
from foldlog.eventstore.log.writing import WriteTransaction
from foldlog.eventstore.recorders.types import Conversation, Record
from foldlog.projections.condensations import StoredCondensations
from foldlog.projections.errors import NoSuchEvent, NoSuchVersion
from foldlog.projections.explain import Difference, Why, explain_difference, explain_event
from foldlog.projections.fold import Folded, summary_event
from foldlog.projections.lifetimes import Lifetimes
from foldlog.projections.lifetimes.fold import Count, LifetimesFold
from foldlog.projections.messages.turns import Dialect, check_dialect
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
"""The number of conversations whose last View stays in memory. The next View continues the fold of
the last View.
"""

_REMEMBERED_BYTES = 64 * 1024 * 1024
"""The last Views that stay in memory have at most about this many bytes of events, unless a single
View has more.
"""

_FEW = 64
"""If at most this number of events follow the last View, one query reads them all. Reading only the
shown ones would need three queries.
"""


class _Latest(Struct):
    """The last View of a conversation, and the state of the conversation at that version.

    Do not use ``view`` if a transaction with its events was rolled back, because other events may
    get the same ids. The head in ``state`` shows this. Do not use ``view`` after a redaction
    either, because it still has the redacted content. The number of redactions in ``state`` shows
    this. ``missing`` contains the revisions of ``view`` that the store does not have yet.
    """

    folded: ViewFold
    state: Conversation
    view: View
    missing: Sequence[Record] = ()
    size: int = 0
    """About how many bytes the events have, or more after a condensation."""

    def is_at(self, reading: ReadTransaction, version: int) -> bool:
        """Return whether ``view`` is the View at ``version``."""
        return self.folded.version == version and self.state.head == reading.head_at(version)


class Views:
    """Makes the Views of a store's conversations. Thread-safe.

    ``Views`` is also an inline projection: after ``store.register(views)``, the store writes each
    revision in the transaction of its event. Without ``register``, Views are still correct, but
    loading a View costs reading all events after the last stored revision.
    """

    name = PROJECTION

    def __init__(
        self,
        store: Store,
        *,
        dialect: Dialect = "litellm",
        read_by: Callable[[ReadTransaction], ReadTransaction] | None = None,
    ) -> None:
        """Make the Views of a store. ``read_by`` returns the reading that Views get their events
        from, such as one that shortens long events.
        """
        self._store = store
        self._dialect = check_dialect(dialect)
        self._read_by = read_by
        self._lock = threading.Lock()
        self._latest: dict[str, _Latest] = {}

    def reading(self, store: Store) -> Views:
        """Return Views that read from ``store``, and share the caches of this object."""
        views = copy(self)
        views._store = store
        return views

    def current(self, conversation: str) -> View:
        """Return the present View. Repeated calls return the same object until an event is appended
        or redacted, or until the View leaves the memory, because 64 other conversations, or Views
        with 64 MB of events, were read since.

        Raises ``ConversationNotFound``, ``ConversationErased``, ``CorruptEvent`` or
        ``StoreUnavailable``. Raises ``UnknownEventType`` if a newer version of foldlog wrote an
        event that changes the View. Cost: reading the events appended since the last call. The
        first call reads the events of the View. No query is sent if this program's last append was
        to this conversation, and no other program has committed since then.
        """
        latest = self._latest.get(conversation)
        if latest is None:
            return self._view(conversation, None)
        cached = self._store.database.cached_state(conversation)
        rows = None if cached is None else cached.rows_since(latest.state)
        if cached is None or rows is None:
            return self._view(conversation, None)
        size = sum(map(len, map(_body_of, rows)))
        if _has_too_many_bytes(latest.size + size):
            return self._view(conversation, None)
        if rows:
            return self._grow(latest, cached.state, list(events_of(conversation, rows)), size)
        return latest.view

    def at(self, conversation: str, version: int) -> View:
        """Return the View after the first ``version`` events. Raises ``NoSuchVersion``, and the
        errors of ``current``.

        Cost: reading the events of the returned View.
        """
        return self._view(conversation, version)

    def why(self, conversation: str, event_id: int, at: int | None = None) -> Why:
        """Explain why an event or a summary (a negative id) is in the View or not, now or at
        version ``at``.

        Raises ``NoSuchEvent``, and the errors of ``at``. Cost: loading the View. For a forgotten
        event, the cost includes reading the later structural events.
        """
        if at is None:
            view = self.current(conversation)
        else:
            view = self.at(conversation, at)

        def explain(reading: ReadTransaction) -> Why:
            event = _read_event(reading, event_id, view.version)
            structural = partial(reading.structural_events, stop=view.version)
            return explain_event(event, view, structural)

        return self._store.query(conversation, explain)

    def difference(self, conversation: str, before: int, after: int) -> Difference:
        """Return the events that entered the View and the events that left the View between two
        versions. Raises ``NoSuchVersion``, and the errors of ``current``. Cost: loading two Views,
        and reading the structural events between their versions.
        """
        views = self.at(conversation, before), self.at(conversation, after)

        return self._store.query(
            conversation,
            lambda reading: explain_difference(
                *views, partial(reading.structural_events, stop=after)
            ),
        )

    def lifetimes(self, conversation: str, count: Count | None = None) -> Lifetimes:
        """Return the lifetime of each event: the versions at which the View shows it, the versions
        at which it is sent to a model, and why it left the View.

        ``count`` returns the number of tokens of an event, possibly an estimate. Raises the errors
        of ``current``. Cost: one pass over the events. Each structural event also costs one pass
        over the View at its version.
        """
        version = self._store.version(conversation)

        def return_targets(reading: ReadTransaction) -> list[int]:
            structural = reading.structural_events(0, version)
            return [target(event) for event in structural if isinstance(event, Retraction)]

        targets = self._store.query(conversation, return_targets)
        folding = LifetimesFold(conversation, count, targets)
        folding.take(self._store.events(conversation, 0, version))
        return folding.result()

    def rebuild(self, conversation: str) -> int:
        """Rebuild all revisions from the log, and replace the stored revisions in one transaction.
        Return the number of revisions.

        The store stays usable during the rebuild. Raises the errors of ``current``, and
        ``StoreRefused`` if the store is read-only. Cost: reading the log.
        """
        folded, records = self._store.query(conversation, fold_whole)

        def replace_all(writing: WriteTransaction) -> int:
            rebuilt = list(records)
            past = StoredPast(writing, stored=False, records=records)
            # Add the revisions of events that were appended in the meantime.
            for _, newer in fold_log(writing, folded, writing.version, past):
                rebuilt += newer
            writing.put_records(PROJECTION, rebuilt, replace_all=True)
            return len(rebuilt)

        return self._store.project(conversation, replace_all)

    def project(self, writing: WriteTransaction, events: Sequence[Event]) -> None:
        """Store the revisions of new events in the transaction that appends the events. After
        ``register``, the store calls ``project``.
        """
        try:
            past = StoredPast(writing)
            # If the earlier revisions are stored, the revision after a retraction is made from
            # them, and no event is read.
            if len(events) == 1 and isinstance(events[0], Retraction):
                record = returned_record(events[0], past)
                if record is not None:
                    writing.put_records(PROJECTION, [record])
                    return
            folded, missing = self._load(writing, events[0].id, past)
            folded, records = fold_on(folded, events, writing.version, past)
        except UnknownEventType:
            # The append must not fail: revisions are optional, and ``current`` raises this error.
            return
        writing.put_records(PROJECTION, [*missing, *records])
        self._remember(writing, folded)

    # -- reading and keeping Views

    def _view(self, conversation: str, version: int | None) -> View:
        """Return the View at a version, or the present View."""
        return self._store.query(conversation, partial(self._read_view, version=version))

    def _read_view(self, reading: ReadTransaction, version: int | None) -> View:
        """Return the View at a version, or the present View, in one transaction. Raises
        ``NoSuchVersion``.
        """
        if self._read_by is not None:
            reading = self._read_by(reading)
        state = reading.state
        conversation = state.id
        present = state.version
        if version is None:
            version = present
        elif not 0 <= check_whole("version", version) <= present:
            raise NoSuchVersion(conversation, version, present)
        latest = self._latest_of(reading)
        if latest and latest.is_at(reading, version):
            return latest.view
        folded, missing = self._load(reading, version)
        if version == present:
            return self._remember(reading, folded, missing)
        return self._view_of(state, folded)

    def _load(
        self, reading: ReadTransaction, version: int, past: StoredPast | None = None
    ) -> tuple[ViewFold, list[Record]]:
        """Return the fold at ``version``, and the revisions up to this version that the store does
        not have yet. The fold continues the last View or a stored revision, if possible.
        """
        folded = EMPTY_FOLD
        records = list[Record]()
        latest = self._latest_of(reading)
        if past is None:
            past = StoredPast(reading, records=latest.missing if latest else ())
        newer = None
        if latest and 0 < version - latest.folded.version <= _FEW:
            newer = self._read_newer(reading, latest, version)
        if latest and newer is not None:
            # The last View is a little older, so fold in all later events.
            folded, records = fold_events(latest.folded, newer, past)
            records = [*latest.missing, *records]
        elif (
            latest
            and VIEW_LIMIT.bytes_max is None
            and version - CHUNK <= latest.folded.version <= version
            and latest.is_at(reading, latest.folded.version)
        ):
            # The last View is older, so continue its fold below.
            folded = latest.folded
            records = [*latest.missing]
            reading.view_bytes = latest.size
        else:
            folded, records = load_revision(reading, version, past) or (folded, records)
        for folded_further, more_records in fold_log(reading, folded, version, past):
            folded = folded_further
            records += more_records
        # A writer that stored the last of these revisions has also stored the earlier revisions.
        if records and is_stored(reading, records[-1]):
            records = []
        return folded, records

    def _read_newer(
        self, reading: ReadTransaction, latest: _Latest, version: int
    ) -> list[Event] | None:
        """Return the events after the last View. Return None if the whole View must be read, also
        if it has too many bytes: it may have fewer after a condensation.
        """
        newer = None
        reading.view_bytes = latest.size
        with suppress(TooManyBytes):
            newer = reading.events_after_head(latest.state.head, latest.folded.version, version)
        if newer is None:
            reading.view_bytes = 0
        return newer

    def _latest_of(self, reading: ReadTransaction) -> _Latest | None:
        """Return the last View of the conversation, if it may still be used."""
        # The id may now belong to another conversation, such as a fork with the same head. The past
        # of a fork is stored elsewhere, so the last View must not be used for it.
        latest = self._latest.get(reading.state.id)
        if latest is None or not _has_same_content(latest.state, reading.state):
            return None
        return None if _has_too_many_bytes(latest.size) else latest

    def _grow(
        self, before: _Latest, state: Conversation, events: Sequence[Event], size: int
    ) -> View:
        """Return the last View with further shown events, and remember it. ``size`` is the number
        of bytes of the events. The condensations of the View do not change.
        """
        folded = fold_shown(before.folded, events, state.version)
        view = View(folded.state, before.view.condensations, self._dialect)
        return self._keep(_Latest(folded, state, view, before.missing, before.size + size))

    def _remember(
        self, reading: ReadTransaction, folded: ViewFold, missing: Sequence[Record] = ()
    ) -> View:
        """Return the present View, and remember it. ``missing`` contains its revisions that the
        store does not have.
        """
        state = reading.state
        latest = self._latest.get(state.id)
        if latest and _has_same_content(latest.state, state):
            # Keep the past of the last View, and with it the cache of its readers.
            folded = folded._replace(state=replace(folded.state, past=latest.view.state.past))
        view = self._view_of(state, folded)
        folded = folded._replace(state=view.state)
        return self._keep(_Latest(folded, state, view, missing, reading.view_bytes))

    def _keep(self, latest: _Latest) -> View:
        """Remember a last View, and forget the oldest ones if there are too many. Return the
        View.
        """
        conversation = latest.state.id
        with self._lock:
            self._latest.pop(conversation, None)
            self._latest[conversation] = latest
            size = sum(kept.size for kept in self._latest.values())
            while len(self._latest) > 1 and (
                len(self._latest) > _REMEMBERED or size > _REMEMBERED_BYTES
            ):
                oldest = self._latest.pop(next(iter(self._latest)))
                size -= oldest.size
        return latest.view

    def _view_of(self, conversation: Conversation, folded: ViewFold) -> View:
        """Return the View of a fold. It reads its condensations and its past from the store."""
        condensations = StoredCondensations(
            self._store, conversation.id, folded.version, folded.revision.condensations
        )
        state = folded.state
        if state.past is None:
            past = _PastViews(self, conversation.id, conversation.key, conversation.redactions)
            state = replace(state, past=past)
        return View(state, condensations, self._dialect)


_body_of = attrgetter("body")


def _has_too_many_bytes(size: int) -> bool:
    """Return whether a View with events of so many bytes must not be made: see ``views_up_to``."""
    bytes_max = VIEW_LIMIT.bytes_max
    return bytes_max is not None and size > bytes_max


def _has_same_content(earlier: Conversation, present: Conversation) -> bool:
    """Return whether both are states of one conversation, and nothing was redacted in between."""
    return (earlier.key, earlier.redactions) == (present.key, present.redactions)


class _PastViews(Struct, frozen=True):
    """The past of a View from a store, which reads the store: see ``PastLog``."""

    views: Views
    conversation: str
    key: int
    redactions: int
    memory: JsonObject = {}

    def at(self, version: int) -> Folded:
        view = self.views.at(self.conversation, version)
        return Folded(view.state, view.condensations)

    def events(self, start: int, stop: int) -> Sequence[Event]:
        return list(self.views._store.events(self.conversation, start, stop))

    def document(self, name: str) -> Any:
        from foldlog.eventstore.documents.values import newest_value

        return self.views._store.query(
            self.conversation, lambda reading: newest_value(reading, name)
        )


def _read_event(reading: ReadTransaction, event_id: int, version: int) -> Event:
    """Return an event, or a summary if the id is below -1. Raises ``NoSuchEvent`` if the
    conversation has none with this id before ``version``.
    """
    stored_id = event_id if event_id >= NOT_RECORDED else summary_of(event_id)
    if 0 <= stored_id < version:
        (event,) = reading.events(stored_id, stored_id + 1)
        if event_id >= 0:
            return event
        if isinstance(event, CondensationAction) and event.summary is not None:
            return summary_event(event)
    raise NoSuchEvent(reading.conversation, event_id, version)
