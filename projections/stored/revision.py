"""A fold that makes a revision after each structural event, and can continue from a revision.
Pure.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple, Protocol

import msgspec

from foldlog.eventstore import NOT_RECORDED, CondensationAction, Event, Retraction, summary_of
from foldlog.eventstore.inside import MAY_BE_STRUCTURAL, Record, is_structural
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
    """The state of a View, and what its next revision needs.

    ``revision`` is the one after the last structural event, which brought version ``revised``.
    """

    state: ViewState = EMPTY
    revision: Revision = Revision()
    revised: int = 0

    @property
    def version(self) -> int:
        return self.state.version


EMPTY_FOLD = ViewFold()
"""The fold of an empty conversation."""


class PastFolds(Protocol):
    """The folds of a conversation at earlier versions, which a retraction returns to."""

    def at(self, version: int) -> ViewFold:
        """Return the fold at a version."""

    def revision_at(self, version: int) -> tuple[int, Revision] | None:
        """Return the revision after the last structural event before a version, and the version
        that it brought. None where it is missing or cannot be read.
        """

    def keep(self, record: Record) -> None:
        """Remember a revision that was just made, and may not be stored yet."""


def fold_on(
    start: ViewFold, events: Sequence[Event], version: int, past: PastFolds
) -> tuple[ViewFold, list[Record]]:
    """Fold on from ``start`` to ``version``, given the shown and the structural events in between,
    in order.

    Return the fold there, and a record for each structural event. Raises ``UnknownEventType``.
    Cost: the events; for each structural one the View at that moment, for a retraction also the
    View that it returns to.
    """
    folded = start
    records = list[Record]()
    done = 0
    for place, event in enumerate(events):
        if type(event) not in MAY_BE_STRUCTURAL or not is_structural(event):
            continue
        before = fold_shown(folded, events[done:place], event.id)
        if isinstance(event, Retraction):
            folded = _return(before, event, past)
        else:
            folded = _change(before, event)
        record = encode_revision(folded.version, folded.revision)
        past.keep(record)
        records.append(record)
        done = place + 1
    return fold_shown(folded, events[done:], version), records


def fold_shown(start: ViewFold, events: Sequence[Event], version: int) -> ViewFold:
    """Fold in events that are not structural."""
    if start.state.version == version:
        return start
    return start._replace(
        state=add_shown(start.state, [event for event in events if event.shown], version)
    )


def returned(now: Revision, earlier: Revision, since: int, version: int) -> Revision:
    """Return the revision after a retraction to ``version``, from those of the two Views: ``now``
    before it, and ``earlier``, which a structural event brought at version ``since``. No event is
    needed for it.
    """
    return msgspec.structs.replace(
        earlier,
        kept=spanned(earlier.kept, since, version),
        requested=now.requested or earlier.requested,
    )


def _return(folded: ViewFold, retraction: Retraction, past: PastFolds) -> ViewFold:
    """Return the fold after a retraction: the earlier View."""
    version = target(retraction)
    earlier = _shortened(folded, version, past) or past.at(version)
    revision = returned(folded.revision, earlier.revision, earlier.revised, version)
    state = replace(
        earlier.state, version=retraction.id + 1, unhandled_condensation_request=revision.requested
    )
    return ViewFold(state, revision, state.version)


def _shortened(folded: ViewFold, version: int, past: PastFolds) -> ViewFold | None:
    """Return the fold at an earlier version if its View is known to be a beginning of this View.
    Cost: a revision, and copying the View.
    """
    found = past.revision_at(version)
    if found is None:
        return None
    since, earlier = found
    ends = spanned(folded.revision.kept, folded.revised, folded.version)
    place = bisect_left(ends, version)
    beginning = (*ends[:place], version) if place % 2 else ends[:place]
    if _lists(earlier, spanned(earlier.kept, since, version)) != _lists(folded.revision, beginning):
        return None
    items = folded.state.items
    stop = len(items)
    while stop and items[stop - 1].id >= version:
        stop -= 1
    state = replace(folded.state, version=version, items=Items(list(items[:stop])))
    return ViewFold(state, earlier, since)


def _lists(revision: Revision, kept: Ints) -> tuple[Ints, ...]:
    summaries = revision.summaries, revision.after, revision.register
    return kept, *summaries, revision.tomb, revision.left_behind


def _change(start: ViewFold, event: Event) -> ViewFold:
    """Fold in a structural event that is not a retraction. Cost: the items of the View."""
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
        kept=_kept(start, shown, event.id + 1),
        summaries=tuple(summaries),
        after=tuple(after),
        register=register,
        tomb=tuple(end for first, last in state.tomb for end in (first, last + 1)),
        left_behind=tuple(sorted(state.left_behind)),
        requested=state.unhandled_condensation_request,
        condensations=start.revision.condensations + len(condensations),
    )
    return ViewFold(state, revision, state.version)


def _kept(start: ViewFold, shown: Sequence[int], version: int) -> Ints:
    """Return the ends of the intervals of a View that still shows the events ``shown``, at
    ``version``. An interval ends where an event that was shown is forgotten or taken back; the last
    one is open if none was since.
    """
    ends = iter(spanned(start.revision.kept, start.revised, version)[1::2])
    end = next(ends)
    standing = set(shown)
    kept: list[int] = []
    goes_on = False
    for event_id in [event.id for event in start.state.items if event.id >= 0]:
        while event_id >= end:
            end = next(ends)
            goes_on = False
        if event_id not in standing:
            goes_on = False
        elif goes_on:
            kept[-1] = event_id + 1
        else:
            kept += event_id, event_id + 1
            goes_on = True
    is_open = goes_on and next(ends, None) is None
    return tuple(kept[:-1] if is_open else kept)


def spanned(kept: Ints, since: int, version: int) -> Ints:
    """Return the ends of the intervals of the View at a version, given those that its revision of
    version ``since`` keeps: all events since then are in it.
    """
    if len(kept) % 2:
        return (*kept, version)
    return (*kept, since, version) if since < version else kept


def intervals_of(ends: Ints) -> Intervals:
    """Return intervals from the list of their ends."""
    return tuple(
        (start, stop - 1)
        for start, stop in zip(ends[::2], ends[1::2], strict=False)
        if start < stop
    )


def named_condensations(revision: Revision) -> tuple[int, ...]:
    """Return the condensations whose summaries a View shows."""
    return (*revision.summaries, *revision.register[:1])


def from_revision(
    version: int, revision: Revision, shown: Sequence[Event], condensations: Iterable[Event]
) -> ViewFold:
    """Return the fold at the version of a revision, given the shown events in its intervals and the
    condensations that it names.

    Raises ``UnreadableRevision`` where one of these is missing. Cost: the items of the View.
    """
    summaries = {c.id: summary_event(c) for c in condensations if isinstance(c, CondensationAction)}
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
