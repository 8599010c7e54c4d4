"""A fold that makes a revision after each structural event, and can continue from a revision. Pure.

A revision needs little beside the state of the View, and ``ViewFold`` carries it along: which shown events follow one
another in the log, how many structural events there were, and the last full record.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain, count
from types import MappingProxyType
from typing import NamedTuple, Protocol

from foldlog.eventstore import (
    MAY_BE_STRUCTURAL,
    NOT_RECORDED,
    CondensationAction,
    Event,
    Record,
    Retraction,
    is_structural,
    summary_id,
    summary_of,
)
from foldlog.projections.fold import EMPTY, ViewState, add_shown, resume, summary_event
from foldlog.projections.intervals import Intervals, contains
from foldlog.projections.items import Items
from foldlog.projections.retractions import target
from foldlog.projections.stored.revision_codec import RUN, Base, Revision, UnreadableRevision, encode_revision
from foldlog.projections.v0_dialect import Register


class ViewFold(NamedTuple):
    """The state of a View, and what its next revision needs.

    ``ordinals`` number the events among the items at the last structural event, by id: two numbers follow one another
    if no other shown event was between the two. ``since`` are the ids of the events shown since then, which have the
    next numbers. ``nth`` says which structural event a condensation was, for each summary that is shown. ``revised`` is
    the version after the last structural event. Where that was a retraction, ``path`` holds the earlier versions, as
    inclusive intervals, whose Views are a beginning of this View.
    """

    state: ViewState = EMPTY
    ordinals: Mapping[int, int] = MappingProxyType({})
    since: tuple[tuple[int, ...], ...] = ()
    next_ordinal: int = 0
    nth: Mapping[int, int] = MappingProxyType({})
    structural: int = 0
    condensations: int = 0
    base: Base | None = None
    revised: int = 0
    path: Intervals = ()

    @property
    def version(self) -> int:
        return self.state.version


_PATH_MAX = 64
"""The number of intervals of a ``path`` that are kept, the newest ones. The Views of versions outside them are
loaded.
"""

EMPTY_FOLD = ViewFold()
"""The fold of an empty conversation."""


class PastFolds(Protocol):
    """The folds of a conversation at earlier versions, which a retraction returns to."""

    def at(self, version: int) -> ViewFold:
        """Return the fold at a version."""

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
        if isinstance(event, Retraction):
            folded = _return(fold_shown(folded, events[done:place], event.id), event, past)
        else:
            folded = _change(fold_shown(folded, events[done:place], event.id), event)
        record, base = encode_revision(folded.version, revision_of(folded), folded.base)
        folded = folded._replace(base=base)
        past.keep(record)
        records.append(record)
        done = place + 1
    return fold_shown(folded, events[done:], version), records


def _return(folded: ViewFold, retraction: Retraction, past: PastFolds) -> ViewFold:
    """Return the fold after a retraction: the earlier fold, with the present counts over the whole log."""
    version = target(retraction)
    known = (*folded.path, (folded.revised, folded.version))
    earlier = _shortened(folded, version) if contains(known, version) else past.at(version)
    path = (*earlier.path, (earlier.revised, version))
    requested = folded.state.unhandled_condensation_request or earlier.state.unhandled_condensation_request
    return earlier._replace(
        state=replace(earlier.state, version=retraction.id + 1, unhandled_condensation_request=requested),
        ordinals=_numbers(earlier.ordinals, earlier.since, earlier.next_ordinal),
        since=(),
        next_ordinal=earlier.next_ordinal + 1,  # the next event is not a neighbour of the shown ones
        structural=folded.structural + 1,
        base=folded.base,
        revised=retraction.id + 1,
        path=path[-_PATH_MAX:],
    )


def _shortened(folded: ViewFold, version: int) -> ViewFold:
    """Return the fold at an earlier version whose View is a beginning of this View. Cost: copying the View."""
    path = tuple(interval for interval in folded.path if interval[0] <= version)
    items = folded.state.items
    stop = len(items)
    while stop and items[stop - 1].id >= version:
        stop -= 1
    since = tuple(part[: bisect_left(part, version)] for part in folded.since)
    gone = sum(map(len, folded.since)) - sum(map(len, since))
    return folded._replace(
        state=replace(folded.state, version=version, items=Items(list(items[:stop]))),
        since=tuple(part for part in since if part),
        next_ordinal=folded.next_ordinal - gone,
        revised=folded.revised if folded.revised <= version else path[-1][0],
        path=path if folded.revised <= version else path[:-1],
    )


def fold_shown(start: ViewFold, events: Sequence[Event], version: int) -> ViewFold:
    """Fold in events that are not structural."""
    if start.state.version == version:
        return start
    shown = [event for event in events if event.shown]
    return start._replace(
        state=add_shown(start.state, shown, version),
        since=_with(start.since, tuple(event.id for event in shown)),
        next_ordinal=start.next_ordinal + len(shown),
    )


def _change(start: ViewFold, event: Event) -> ViewFold:
    """Fold in a structural event, which may be shown too."""
    state, condensations, _ = resume(start.state, (event,), event.id + 1)
    items = {event.id for event in state.events}
    numbers = _numbers(start.ordinals, start.since, start.next_ordinal)
    nth = {**start.nth, event.id: start.structural} if condensations else start.nth
    return ViewFold(
        state,
        {event_id: numbers[event_id] for event_id in items if event_id >= 0},
        (),
        start.next_ordinal,
        {c: place for c, place in nth.items() if summary_id(c) in items},
        start.structural + 1,
        start.condensations + len(condensations),
        start.base,
        event.id + 1,
    )


def _numbers(ordinals: Mapping[int, int], since: tuple[tuple[int, ...], ...], next_ordinal: int) -> dict[int, int]:
    """Return the ordinals, including those of the events that were shown since."""
    first = next_ordinal - sum(map(len, since))
    return {**ordinals, **dict(zip(chain.from_iterable(since), range(first, next_ordinal), strict=True))}


def _with(parts: tuple[tuple[int, ...], ...], part: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    """Return the parts with one more part. A part that is not longer than the next one is joined with it, so there are
    few parts.
    """
    joined = [*parts, part] if part else list(parts)
    while len(joined) > 1 and len(joined[-2]) <= len(joined[-1]):
        joined[-2:] = [joined[-2] + joined[-1]]
    return tuple(joined)


def revision_of(folded: ViewFold) -> Revision:
    """Return the revision of a View. Cost: the items of the View."""
    state = folded.state
    kept: list[int] = []
    summaries: list[Run] = []
    after, before_next = NOT_RECORDED, -2
    for event in state.items:
        if event.id < 0:
            condensation = summary_of(event.id)
            _add_summary(summaries, after, condensation, folded.nth[condensation])
            continue
        after, ordinal = event.id, folded.ordinals[event.id]
        if ordinal != before_next:
            kept += (event.id, event.id + 1)
        kept[-1] = event.id + 1
        before_next = ordinal + 1
    if kept and before_next == folded.next_ordinal:
        del kept[-1]  # all later events too, present and future
    register: tuple[int, ...] = ()
    if state.register is not None:
        condensation = summary_of(state.register.summary.id)
        register = (condensation, folded.nth[condensation], state.register.offset)
    return Revision(
        kept=tuple(kept),
        summaries=tuple(chain.from_iterable(summaries)),
        register=register,
        tomb=tuple(end for first, last in state.tomb for end in (first, last + 1)),
        left_behind=tuple(sorted(state.left_behind)),
        requested=state.unhandled_condensation_request,
        structural=folded.structural,
        condensations=folded.condensations,
    )


def kept_intervals(ends: Sequence[int], version: int) -> Intervals:
    """Return intervals from the list of their ends. The last interval may continue up to ``version``."""
    closed = (*ends, version) if len(ends) % 2 else ends
    return tuple((start, stop - 1) for start, stop in zip(closed[::2], closed[1::2], strict=True) if start < stop)


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
    if len(shown) < len(revision.kept) // 2:
        raise UnreadableRevision(f"the revision of version {version} keeps events that are not in the log")
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
    ordinals: dict[int, int] = {}
    start = next_ordinal = 0
    for _, last in kept_intervals(revision.kept, version):
        stop = bisect_right(shown_ids, last, start)
        next_ordinal += 1  # shown events in between were forgotten
        ordinals.update(zip(shown_ids[start:stop], count(next_ordinal), strict=False))
        start, next_ordinal = stop, next_ordinal + stop - start
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
    return ViewFold(
        state=ViewState(
            version,
            Items(items),
            revision.requested,
            frozenset(revision.left_behind),
            register,
            kept_intervals(revision.tomb, version),
        ),
        ordinals=ordinals,
        next_ordinal=next_ordinal if len(revision.kept) % 2 else next_ordinal + 1,
        nth=nth,
        structural=revision.structural,
        condensations=revision.condensations,
        base=base,
        revised=version,
    )


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
