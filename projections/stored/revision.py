"""A fold that makes a revision after each structural event, and can continue from a revision."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple, Protocol

import msgspec

from foldlog.eventstore import NOT_RECORDED, CondensationAction, Event, Retraction, summary_of
from foldlog.eventstore.events import MAY_BE_STRUCTURAL, is_structural
from foldlog.eventstore.recorders.types import Record
from foldlog.projections.fold import EMPTY, ViewState, add_shown, resume, summary_event
from foldlog.projections.intervals import Intervals
from foldlog.projections.items import NO_ITEMS, Items
from foldlog.projections.retractions import target
from foldlog.projections.stored.revision_codec import (
    Ints,
    Revision,
    UnreadableRevision,
    encode_revision,
)
from foldlog.projections.v0_dialect import Register


class ViewFold(NamedTuple):
    """The state of a View, and its last revision, from which the next revision is made.

    The last structural event made ``revision``, at the version ``revised``.
    """

    state: ViewState = EMPTY
    revision: Revision = Revision()
    revised: int = 0

    @property
    def version(self) -> int:
        """The number of folded events of the conversation."""
        return self.state.version


EMPTY_FOLD = ViewFold()


class PastFolds(Protocol):
    """The folds of a conversation at earlier versions, which a retraction needs."""

    def at(self, version: int) -> ViewFold:
        """Return the fold at ``version``."""

    def revision_at(self, version: int) -> tuple[int, Revision] | None:
        """Return the last revision at or before ``version``, with its own version. Return None if
        this revision is missing or unreadable.
        """

    def keep(self, record: Record) -> None:
        """Remember a revision that was just made, and may not be stored yet."""


def fold_on(
    start: ViewFold, events: Sequence[Event], version: int, past: PastFolds
) -> tuple[ViewFold, list[Record]]:
    """Continue the fold from ``start`` to ``version``. ``events`` contains the shown and the
    structural events between the two versions, in their order.

    Return the fold at ``version``, and a record for each structural event.
    """
    folded = start
    records = list[Record]()
    next_index = 0
    for index, event in enumerate(events):
        if type(event) not in MAY_BE_STRUCTURAL or not is_structural(event):
            continue
        before = fold_shown(folded, events[next_index:index], event.id)
        if isinstance(event, Retraction):
            folded = _return(before, event, past)
        else:
            folded = _change(before, event)
        record = encode_revision(folded.version, folded.revision)
        past.keep(record)
        records.append(record)
        next_index = index + 1
    return fold_shown(folded, events[next_index:], version), records


def fold_shown(start: ViewFold, events: Sequence[Event], version: int) -> ViewFold:
    """Continue the fold to ``version`` with events that are not structural. The revision stays the
    same.
    """
    if start.state.version == version:
        return start
    return start._replace(
        state=add_shown(start.state, [event for event in events if event.shown], version)
    )


def revision_after_retraction(
    present: Revision, earlier: Revision, since: int, version: int
) -> Revision:
    """Return the revision after a retraction to ``version``, without reading events. ``present`` is
    the last revision before the retraction. ``earlier`` is the last revision at or before
    ``version``, and ``since`` is the version of ``earlier``.
    """
    return msgspec.structs.replace(
        earlier,
        kept=spans_at(earlier.kept, since, version),
        requested=present.requested or earlier.requested,
    )


def _return(folded: ViewFold, retraction: Retraction, past: PastFolds) -> ViewFold:
    """Return the fold after a retraction."""
    version = target(retraction)
    earlier = _shorten(folded, version, past) or past.at(version)
    revision = revision_after_retraction(
        folded.revision, earlier.revision, earlier.revised, version
    )
    state = replace(
        earlier.state, version=retraction.id + 1, unhandled_condensation_request=revision.requested
    )
    return ViewFold(state, revision, state.version)


def _shorten(folded: ViewFold, version: int, past: PastFolds) -> ViewFold | None:
    """Return the fold at ``version`` if the present View begins with all items of the View at
    ``version``. Otherwise return None.
    """
    stored = past.revision_at(version)
    if stored is None:
        return None
    since, earlier = stored
    # Cut the intervals of this View at ``version``, and compare them with the intervals of the
    # earlier revision.
    ends = spans_at(folded.revision.kept, folded.revised, folded.version)
    index = bisect_left(ends, version)
    beginning = (*ends[:index], version) if index % 2 else ends[:index]
    if _lists(earlier, spans_at(earlier.kept, since, version)) != _lists(
        folded.revision, beginning
    ):
        return None
    items = folded.state.items
    stop = len(items)
    while stop and items[stop - 1].id >= version:
        stop -= 1
    state = replace(folded.state, version=version, items=Items(list(items[:stop])))
    return ViewFold(state, earlier, since)


def _lists(revision: Revision, interval_ends: Ints) -> tuple[Ints, ...]:
    """Return what tells which items a View has, for a comparison: the lists of a revision, with
    ``interval_ends`` in place of its intervals.
    """
    summaries = revision.summaries, revision.after, revision.register
    return interval_ends, *summaries, revision.tomb, revision.left_behind


def _change(start: ViewFold, event: Event) -> ViewFold:
    """Return the fold after a structural event, except a retraction."""
    state, condensations, _ = resume(start.state, (event,), event.id + 1)
    shown: list[int] = []
    summaries: list[int] = []
    after: list[int] = []
    for item in state.items:
        if item.id >= 0:
            shown.append(item.id)
        else:
            summaries.append(summary_of(item.id))
            after.append(shown[-1] if shown else NOT_RECORDED)
    register: Ints = ()
    if state.register is not None:
        register = summary_of(state.register.summary.id), state.register.offset
    revision = Revision(
        kept=_interval_ends(start, shown, event.id + 1),
        summaries=tuple(summaries),
        after=tuple(after),
        register=register,
        tomb=tuple(end for first, last in state.tomb for end in (first, last + 1)),
        left_behind=tuple(sorted(state.left_behind)),
        requested=state.unhandled_condensation_request,
        condensations=start.revision.condensations + len(condensations),
    )
    return ViewFold(state, revision, state.version)


def _interval_ends(start: ViewFold, shown: Sequence[int], version: int) -> Ints:
    """Return the bounds of the intervals after a structural event. ``shown`` contains the ids of
    the events that are still shown.

    An interval ends at an event that was shown earlier and is not shown any more. If all later
    events are shown, the last interval has no end.
    """
    ends = iter(spans_at(start.revision.kept, start.revised, version)[1::2])
    end = next(ends)
    standing = set(shown)
    interval_ends: list[int] = []
    is_inside = False
    for event_id in [event.id for event in start.state.items if event.id >= 0]:
        while event_id >= end:
            end = next(ends)
            is_inside = False
        if event_id not in standing:
            is_inside = False
        elif is_inside:
            interval_ends[-1] = event_id + 1
        else:
            interval_ends += event_id, event_id + 1
            is_inside = True
    is_open = is_inside and next(ends, None) is None
    return tuple(interval_ends[:-1] if is_open else interval_ends)


def spans_at(kept: Ints, since: int, version: int) -> Ints:
    """Return the bounds of the View's intervals at ``version``. ``kept`` contains the bounds of the
    intervals at version ``since``. All events after ``since`` are shown.
    """
    if len(kept) % 2:
        return (*kept, version)
    return (*kept, since, version) if since < version else kept


def intervals_of(ends: Ints) -> Intervals:
    """Return intervals whose bounds are given as in ``Revision.kept``. The last number of each is
    in the interval. An interval without an end is left out.
    """
    return tuple(
        (start, stop - 1)
        for start, stop in zip(ends[::2], ends[1::2], strict=False)
        if start < stop
    )


def named_condensations(revision: Revision) -> tuple[int, ...]:
    """Return the condensations whose summaries the View shows."""
    return (*revision.summaries, *revision.register[:1])


def from_revision(
    version: int, revision: Revision, shown: Sequence[Event], condensations: Iterable[Event]
) -> ViewFold:
    """Return the fold at the version of a revision. ``shown`` contains the shown events in the
    intervals of the revision, and ``condensations`` the condensations that the revision names (see
    ``named_condensations``). Raises ``UnreadableRevision`` if one of these condensations is
    missing.
    """
    summaries = {
        action.id: summary_event(action)
        for action in condensations
        if isinstance(action, CondensationAction)
    }
    for condensation in named_condensations(revision):
        if condensation not in summaries:
            raise UnreadableRevision(
                f"the revision of version {version} names condensation {condensation}, which the"
                " log does not have"
            )
    shown_ids = [event.id for event in shown]
    items: list[Event] = []
    start = 0
    for condensation, after in zip(revision.summaries, revision.after, strict=True):
        stop = bisect_right(shown_ids, after, start)
        items += (*shown[start:stop], summaries[condensation])
        start = stop
    items += shown[start:]
    register = None
    if revision.register:
        condensation, offset = revision.register
        register = Register(summaries[condensation], offset)
    state = ViewState(
        version,
        NO_ITEMS,
        revision.requested,
        frozenset(revision.left_behind),
        register,
        intervals_of(revision.tomb),
    )
    return ViewFold(add_shown(state, items, version), revision, version)
