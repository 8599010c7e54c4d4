"""A fold that makes a revision after each structural event, and can continue from a revision. Pure."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from types import MappingProxyType
from typing import NamedTuple, Protocol

import msgspec

from foldlog.eventstore import NOT_RECORDED, CondensationAction, Event, Retraction, summary_of
from foldlog.eventstore.inside import MAY_BE_STRUCTURAL, Record, is_structural
from foldlog.projections.fold import EMPTY, ViewState, add_shown, resume, summary_event
from foldlog.projections.intervals import Intervals
from foldlog.projections.items import NO_ITEMS, Items
from foldlog.projections.retractions import target
from foldlog.projections.stored.revision_codec import RUN, Base, Ints, Revision, UnreadableRevision, encode_revision
from foldlog.projections.v0_dialect import Register


class ViewFold(NamedTuple):
    """The state of a View, and what its next revision needs.

    ``revision`` is the one after the last structural event, which brought version ``revised``. ``nth`` says which
    structural event a condensation was, for each summary that is shown. ``base`` is the last full record.
    """

    state: ViewState = EMPTY
    revision: Revision = Revision()
    revised: int = 0
    nth: Mapping[int, int] = MappingProxyType({})
    base: Base | None = None

    @property
    def version(self) -> int:
        return self.state.version


EMPTY_FOLD = ViewFold()
"""The fold of an empty conversation."""


class PastFolds(Protocol):
    """The folds of a conversation at earlier versions, which a retraction returns to."""

    def at(self, version: int) -> ViewFold:
        """Return the fold at a version."""

    def revision_at(self, version: int) -> tuple[int, Revision, Base | None] | None:
        """Return the revision after the last structural event before a version, the version that it brought, and the
        base for the next one. None where it is missing or cannot be read.
        """

    def keep(self, record: Record) -> None:
        """Remember a revision that was just made, and may not be stored yet."""


def fold_on(start: ViewFold, events: Sequence[Event], version: int, past: PastFolds) -> tuple[ViewFold, list[Record]]:
    """Fold on from ``start`` to ``version``, given the shown and the structural events in between, in order.

    Return the fold there, and a record for each structural event. Raises ``UnknownEventType``. Cost: the events; for
    each structural one the View at that moment, for a retraction also the View that it returns to.
    """
    folded, records = start, list[Record]()
    done = 0
    for place, event in enumerate(events):
        if type(event) not in MAY_BE_STRUCTURAL or not is_structural(event):
            continue
        before = fold_shown(folded, events[done:place], event.id)
        folded = _return(before, event, past) if isinstance(event, Retraction) else _change(before, event)
        record, base = encode_revision(folded.version, folded.revision, folded.base)
        folded = folded._replace(base=base)
        past.keep(record)
        records.append(record)
        done = place + 1
    return fold_shown(folded, events[done:], version), records


def fold_shown(start: ViewFold, events: Sequence[Event], version: int) -> ViewFold:
    """Fold in events that are not structural."""
    if start.state.version == version:
        return start
    return start._replace(state=add_shown(start.state, [event for event in events if event.shown], version))


def returned(now: Revision, earlier: Revision, since: int, version: int) -> Revision:
    """Return the revision after a retraction to ``version``, from those of the two Views: ``now`` before it, and
    ``earlier``, which a structural event brought at version ``since``. No event is needed for it.
    """
    return msgspec.structs.replace(
        earlier,
        kept=spanned(earlier.kept, since, version),
        requested=now.requested or earlier.requested,
        structural=now.structural + 1,
    )


def _return(folded: ViewFold, retraction: Retraction, past: PastFolds) -> ViewFold:
    """Return the fold after a retraction: the earlier View, with the present count over the whole log."""
    version = target(retraction)
    earlier = _shortened(folded, version, past) or past.at(version)
    revision = returned(folded.revision, earlier.revision, earlier.revised, version)
    state = replace(earlier.state, version=retraction.id + 1, unhandled_condensation_request=revision.requested)
    return ViewFold(state, revision, state.version, earlier.nth, folded.base)


def _shortened(folded: ViewFold, version: int, past: PastFolds) -> ViewFold | None:
    """Return the fold at an earlier version if its View is known to be a beginning of this View. Cost: a revision, and
    copying the View.
    """
    found = past.revision_at(version)
    if found is None:
        return None
    since, earlier, _ = found
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
    return ViewFold(state, earlier, since, folded.nth)


def _lists(revision: Revision, kept: Ints) -> tuple[Ints, ...]:
    return kept, revision.summaries, revision.register, revision.tomb, revision.left_behind


def _change(start: ViewFold, event: Event) -> ViewFold:
    """Fold in a structural event that is not a retraction. Cost: the items of the View."""
    state, condensations, _ = resume(start.state, (event,), event.id + 1)
    now = start.revision
    ids = [item.id for item in state.items]
    shown = [event_id for event_id in ids if event_id >= 0]
    nth = {**start.nth, event.id: now.structural} if condensations else start.nth
    summaries: list[Run] = []
    standing = set[int]()
    for number, place in enumerate([place for place, event_id in enumerate(ids) if event_id < 0]):
        condensation = summary_of(ids[place])
        standing.add(condensation)
        after = shown[place - number - 1] if place > number else NOT_RECORDED
        _add_summary(summaries, after, condensation, nth[condensation])
    register: Ints = ()
    if state.register is not None:
        condensation = summary_of(state.register.summary.id)
        standing.add(condensation)
        register = (condensation, nth[condensation], state.register.offset)
    revision = Revision(
        kept=_kept(start, shown, event.id + 1),
        summaries=tuple(chain.from_iterable(summaries)),
        register=register,
        tomb=tuple(end for first, last in state.tomb for end in (first, last + 1)),
        left_behind=tuple(sorted(state.left_behind)),
        requested=state.unhandled_condensation_request,
        structural=now.structural + 1,
        condensations=now.condensations + len(condensations),
    )
    nth = {condensation: place for condensation, place in nth.items() if condensation in standing}
    return ViewFold(state, revision, state.version, nth, start.base)


def _kept(start: ViewFold, shown: Sequence[int], version: int) -> Ints:
    """Return the ends of the intervals of a View that still shows the events ``shown``, at ``version``. An interval
    ends where an event that was shown is forgotten or taken back; the last one is open if none was since.
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
    """Return the ends of the intervals of the View at a version, given those that its revision of version ``since``
    keeps: all events since then are in it.
    """
    if len(kept) % 2:
        return (*kept, version)
    return (*kept, since, version) if since < version else kept


def intervals_of(ends: Ints) -> Intervals:
    """Return intervals from the list of their ends."""
    return tuple((start, stop - 1) for start, stop in zip(ends[::2], ends[1::2], strict=False) if start < stop)


class Run(NamedTuple):
    """Summaries that stand after event ``after``, in the order of the View: the summaries of the condensations
    ``first`` to ``last`` and of all condensations between them. These are the ``nth`` to the ``mth`` structural events
    of the log, without a gap.
    """

    after: int
    first: int
    nth: int
    last: int
    mth: int


def _add_summary(runs: list[Run], after: int, condensation: int, nth: int) -> None:
    """Add a summary to the last run if it continues that run, else as a run of its own."""
    if runs:
        run = runs[-1]
        step = nth - run.mth
        if run.after == after and step in (1, -1) and (run.mth - run.nth) * step >= 0:
            runs[-1] = run._replace(last=condensation, mth=nth)
            return
    runs.append(Run(after, condensation, nth, condensation, nth))


def runs(revision: Revision) -> list[Run]:
    """Return the runs of summaries of a revision, in the order of the View."""
    return [Run(*revision.summaries[place : place + RUN]) for place in range(0, len(revision.summaries), RUN)]


def named_condensations(revision: Revision) -> list[tuple[int, int]]:
    """Return the first and last ids of neighbouring condensations with shown summaries, in the order of the log."""
    spans = [(min(run.nth, run.mth), max(run.nth, run.mth), *sorted((run.first, run.last))) for run in runs(revision)]
    if revision.register:
        condensation, nth, _ = revision.register
        spans.append((nth, nth, condensation, condensation))
    joined: list[tuple[int, int, int, int]] = []
    for nth, mth, first, last in sorted(spans):
        if joined and joined[-1][1] + 1 == nth:
            joined[-1] = (joined[-1][0], mth, joined[-1][2], last)
        else:
            joined.append((nth, mth, first, last))
    return [(first, last) for _, _, first, last in joined]


def from_revision(
    version: int, revision: Revision, base: Base, shown: Sequence[Event], condensations: Iterable[Event]
) -> ViewFold:
    """Return the fold at the version of a revision, given the shown events in its intervals and the condensations that
    it names.

    Raises ``UnreadableRevision`` where one of these is missing. Cost: the items of the View.
    """
    summaries = {c.id: summary_event(c) for c in condensations if isinstance(c, CondensationAction)}
    ids = sorted(summaries)
    nth: dict[int, int] = {}
    standing: dict[int, list[Event]] = {}
    for run in runs(revision):
        members = run_members(version, run, ids)
        standing.setdefault(run.after, []).extend(summaries[condensation] for condensation in members)
        step = 1 if run.nth <= run.mth else -1
        nth.update(zip(members, range(run.nth, run.mth + step, step), strict=True))
    shown_ids = [event.id for event in shown]
    items: list[Event] = []
    start = 0
    for after in sorted(standing):
        stop = bisect_right(shown_ids, after, start)
        items += (*shown[start:stop], *standing[after])
        start = stop
    items += shown[start:]
    register = None
    if revision.register:
        condensation, place, offset = revision.register
        if condensation not in summaries:
            raise UnreadableRevision(
                f"the revision of version {version} names condensation {condensation}, which the log does not have"
            )
        nth[condensation] = place
        register = Register(summaries[condensation], offset)
    state = ViewState(
        version,
        NO_ITEMS,
        revision.requested,
        frozenset(revision.left_behind),
        register,
        intervals_of(revision.tomb),
    )
    return ViewFold(add_shown(state, items, version), revision, version, nth, base)


def run_members(version: int, run: Run, condensations: Sequence[int]) -> Sequence[int]:
    """Return the condensations of a run in the order of the View, given the ascending ids of those in the log."""
    first, last = sorted((run.first, run.last))
    members = condensations[bisect_left(condensations, first) : bisect_right(condensations, last)]
    named = abs(run.mth - run.nth) + 1
    if len(members) != named:
        raise UnreadableRevision(
            f"the revision of version {version} names {named} condensations from {first} to {last}, "
            f"and the log has {len(members)}"
        )
    return members if run.first <= run.last else members[::-1]
