"""A fold that keeps a revision after each structural event. Pure: events in, states and records out.

What a stored structure needs beside the state is small, and is carried along: which shown events follow one another in
the log, how many structural events there were, and the last full record.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import NamedTuple

from eventstore.events import (
    NOT_RECORDED,
    CondensationAction,
    Event,
    UnknownEvent,
    is_structural,
    summary_id,
    summary_of,
)
from eventstore.transaction import Record
from projections.batch import Register
from projections.fold import EMPTY, State, resume, summary_event
from projections.intervals import Intervals
from projections.revisions import RUN, Base, Revision, Undecodable, record_of
from projections.units import cut_positions, units

__all__ = ["NOTHING", "Revised", "condensations_named", "intervals", "restored", "revise", "structure"]


@dataclass(frozen=True, slots=True)
class Revised:
    """A state, and what its next revision needs.

    ``ordinals`` number the items that are events, by id, such that two numbers follow one another where no other shown
    event was between the two. ``nth`` says of a condensation whose summary is shown which structural event it was.
    """

    state: State = EMPTY
    ordinals: Mapping[int, int] = field(default_factory=dict)
    next_ordinal: int = 0
    nth: Mapping[int, int] = field(default_factory=dict)
    structural: int = 0
    condensations: int = 0
    base: Base | None = None

    @property
    def version(self) -> int:
        return self.state.version


NOTHING = Revised()
"""An empty conversation."""


def revise(start: Revised, events: Sequence[Event], version: int) -> tuple[Revised, list[Record]]:
    """Go on to ``version`` with the shown and the structural events from ``start`` up to there, in order.

    Returns a record for each of the structural ones. Raises ``UnknownEventType``. Cost: the events; for each structural
    one the View at that moment.
    """
    revised, records = start, []
    done = 0
    for place in structural_places(events):
        revised = _advanced(revised, events[done : place + 1], events[place].id + 1)
        record, base = record_of(revised.version, structure(revised), revised.base)
        revised = replace(revised, base=base)
        records.append(record)
        done = place + 1
    if revised.version < version:
        revised = _advanced(revised, events[done:], version)
    return revised, records


def structural_places(events: Sequence[Event]) -> list[int]:
    """Where the structural events are."""
    return [
        place
        for place, event in enumerate(events)
        if event.structural or (type(event) is UnknownEvent and event.is_structural)
    ]


def _advanced(start: Revised, events: Sequence[Event], version: int) -> Revised:
    """Some shown events, and a structural one at the end or none."""
    state, condensations = resume(start.state, events, version)
    nth, structural = start.nth, start.structural
    brings_one = bool(events) and is_structural(events[-1])
    shown = [event.id for event in (events[:-1] if brings_one else events) if event.shown]
    next_ordinal = start.next_ordinal + len(shown)
    ordinals = {**start.ordinals, **dict(zip(shown, range(start.next_ordinal, next_ordinal), strict=True))}
    if brings_one:
        items = {event.id for event in state.events}
        ordinals = {event_id: ordinals[event_id] for event_id in items if event_id >= 0}
        nth = {**nth, events[-1].id: structural} if condensations else nth
        nth = {c: place for c, place in nth.items() if summary_id(c) in items}
        structural += 1
    counted = start.condensations + len(condensations)
    return Revised(state, ordinals, next_ordinal, nth, structural, counted, start.base)


def structure(revised: Revised) -> Revision:
    """What is stored of it. Cost: the items of the View."""
    state = revised.state
    kept: list[int] = []
    summaries: list[_Run] = []
    after, before_next = NOT_RECORDED, -2
    for event in state.items:
        if event.id < 0:
            condensation = summary_of(event.id)
            _stand(summaries, after, condensation, revised.nth[condensation])
            continue
        after, ordinal = event.id, revised.ordinals[event.id]
        if ordinal != before_next:
            kept += (event.id, event.id + 1)
        kept[-1] = event.id + 1
        before_next = ordinal + 1
    if kept and before_next == revised.next_ordinal:
        del kept[-1]  # all that came behind it, and all that will
    register: tuple[int, ...] = ()
    if state.register is not None:
        condensation = summary_of(state.register.summary.id)
        register = (condensation, revised.nth[condensation], state.register.offset)
    events = state.events
    free = set(cut_positions(len(events), units(events, state.left_behind)))
    ids = [*(event.id for event in events), NOT_RECORDED]
    return Revision(
        kept=tuple(kept),
        summaries=tuple(chain.from_iterable(summaries)),
        register=register,
        tomb=tuple(end for first, last in state.tomb for end in (first, last + 1)),
        left_behind=tuple(sorted(state.left_behind)),
        uncut=tuple(sorted(event_id for position, event_id in enumerate(ids) if position not in free)),
        requested=state.unhandled_condensation_request,
        structural=revised.structural,
        condensations=revised.condensations,
    )


def intervals(ends: Sequence[int], version: int) -> Intervals:
    """Where intervals begin and end, in turn, as intervals; the last one may go on up to ``version``."""
    closed = (*ends, version) if len(ends) % 2 else ends
    return tuple((start, stop - 1) for start, stop in zip(closed[::2], closed[1::2], strict=True) if start < stop)


class _Run(NamedTuple):
    """Summaries behind event ``after``, in the order of the View: of the condensations ``first`` to ``last`` and all
    structural events between them, which are the ``nth`` to ``mth`` ones of the log.
    """

    after: int
    first: int
    nth: int
    last: int
    mth: int


def _stand(runs: list[_Run], after: int, condensation: int, nth: int) -> None:
    """Put one more summary behind the runs, into the last one if it goes on."""
    if runs:
        run = runs[-1]
        step = nth - run.mth
        if run.after == after and step in (1, -1) and (run.mth - run.nth) * step >= 0:
            runs[-1] = run._replace(last=condensation, mth=nth)
            return
    runs.append(_Run(after, condensation, nth, condensation, nth))


def _runs(revision: Revision) -> list[_Run]:
    return [_Run(*revision.summaries[place : place + RUN]) for place in range(0, len(revision.summaries), RUN)]


def condensations_named(revision: Revision) -> list[tuple[int, int]]:
    """First and last ids of neighbouring condensations whose summaries the View shows, in the order of the log."""
    spans = [(min(run.nth, run.mth), max(run.nth, run.mth), *sorted((run.first, run.last))) for run in _runs(revision)]
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


def restored(
    version: int, revision: Revision, base: Base, shown: Sequence[Event], condensations: Iterable[Event]
) -> Revised:
    """The fold at the version of a revision, from the shown events in its intervals and the condensations it names.

    Raises ``Undecodable`` where there are not all of these. Cost: the items of the View.
    """
    if len(shown) < len(revision.kept) // 2:
        raise Undecodable(f"the revision of version {version} keeps events that are not in the log")
    summaries = {c.id: summary_event(c) for c in condensations if isinstance(c, CondensationAction)}
    ids = sorted(summaries)
    nth: dict[int, int] = {}
    standing: dict[int, list[Event]] = {}
    for run in _runs(revision):
        members = _members(version, run, ids)
        standing.setdefault(run.after, []).extend(summaries[condensation] for condensation in members)
        step = 1 if run.nth <= run.mth else -1
        nth.update(zip(members, range(run.nth, run.mth + step, step), strict=True))
    items: list[Event] = standing.get(NOT_RECORDED, [])
    ordinals: dict[int, int] = {}
    next_ordinal = 0
    kept = iter(intervals(revision.kept, version))
    last = -1
    for event in shown:
        if event.id > last:
            _, last = next(kept)
            next_ordinal += 1  # something was forgotten in between
        ordinals[event.id] = next_ordinal
        next_ordinal += 1
        items += (event, *standing.get(event.id, ()))
    register = None
    if revision.register:
        condensation, place, offset = revision.register
        if condensation not in summaries:
            raise Undecodable(f"the revision of version {version} names condensation {condensation}, which is none")
        nth[condensation] = place
        register = Register(summaries[condensation], offset)
    return Revised(
        state=State(
            version,
            tuple(items),
            revision.requested,
            frozenset(revision.left_behind),
            register,
            intervals(revision.tomb, version),
        ),
        ordinals=ordinals,
        next_ordinal=next_ordinal if len(revision.kept) % 2 else next_ordinal + 1,
        nth=nth,
        structural=revision.structural,
        condensations=revision.condensations,
        base=base,
    )


def _members(version: int, run: _Run, condensations: Sequence[int]) -> Sequence[int]:
    """The condensations of a run, of the ascending ids of those in the log, in the order of the View."""
    first, last = sorted((run.first, run.last))
    members = condensations[bisect_left(condensations, first) : bisect_right(condensations, last)]
    named = abs(run.mth - run.nth) + 1
    if len(members) != named:
        raise Undecodable(
            f"the revision of version {version} names {named} condensations from {first} to {last}, "
            f"and the log has {len(members)}"
        )
    return members if run.first <= run.last else members[::-1]
