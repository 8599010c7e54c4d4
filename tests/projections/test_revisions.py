"""What is stored of a View: it comes back as it was, and it is small."""

from __future__ import annotations

import random
from collections.abc import Iterator

import msgspec
import pytest
from hypothesis import given, strategies as st

from foldlog.eventstore.codec import encode
from foldlog.eventstore.events import Action, CondensationAction, Event, Message, Observation
from foldlog.eventstore.recorders.types import Record
from foldlog.projections.stored.revision import EMPTY_FOLD, ViewFold, fold_on
from foldlog.projections.stored.revision_codec import (
    CODE,
    Revision,
    UnreadableRevision,
    decode_revision,
    encode_revision,
)

ascending = st.sets(st.integers(-50, 1_000)).map(lambda values: tuple(sorted(values)))
revisions = st.builds(
    Revision,
    kept=st.sets(st.integers(0, 900)).map(lambda values: tuple(sorted(values))),
    summaries=st.lists(st.integers(-1, 200), max_size=12).map(lambda values: tuple(values[: len(values) // 5 * 5])),
    register=st.sampled_from([(), (3, 0, -2)]),
    tomb=ascending,
    left_behind=ascending,
    requested=st.booleans(),
    structural=st.integers(0, 99),
    condensations=st.integers(0, 99),
)


@given(st.lists(revisions, max_size=8), st.integers(1, 5))
def test_a_revision_comes_back_from_one_record_or_two(some: list[Revision], alike: int):
    base = None
    records: dict[int, Record] = {}
    for version, revision in enumerate([revision for revision in some for _ in range(alike)], 1_000):
        record, base = encode_revision(version, revision, base)
        records[version] = record
        below = None if record.base is None else records[record.base]
        assert below is None or below.base is None
        assert decode_revision(record, below) == (revision, base)


class NoPast:
    """The past of a fold without retractions."""

    def at(self, version: int) -> ViewFold:
        raise AssertionError(version)

    def keep(self, record: Record) -> None:
        pass


def test_a_record_that_cannot_be_read_says_so():
    full, base = encode_revision(5_000, Revision(kept=tuple(range(0, 4_000, 3))), None)
    delta, _ = encode_revision(5_001, Revision(kept=tuple(range(0, 4_000, 3)), requested=True), base)
    assert delta.base == 5_000
    for record, below in (
        (delta, None),
        (delta, delta),
        (delta, full._replace(code=CODE + 1)),
        (full._replace(body=b'{"kept":["a"]}'), None),
        (full._replace(body=b'{"newer":1}'), None),
        (full._replace(body=b"\xff"), None),
        (full._replace(body=b'{"kept":[6000]}'), None),
        (full._replace(body=b'{"left_behind":[3,0]}'), None),
        (full._replace(body=b'{"register":[3]}'), None),
        (delta._replace(body=b'{"summaries":[5,5]}'), full),
        (delta._replace(body=b'{"summaries":[0]}'), full),
    ):
        with pytest.raises(UnreadableRevision, match=r"the revision of version 500[01] "):
            decode_revision(record, below)


# --- size ---


def calls(start: int, pairs: int) -> Iterator[Event]:
    for event_id in range(start, start + 2 * pairs, 2):
        call_id = f"call_{event_id}"
        yield Action(id=event_id, tool="run", call_id=call_id, response_id=call_id, arguments={"command": "x" * 900})
        yield Observation(id=event_id + 1, content="x" * 900, call_id=call_id, cause=event_id)


def stacked(condensations: int) -> Iterator[Event]:
    """Each condensation adds a summary, and none ever goes."""
    event_id = 0
    for nth in range(condensations):
        yield from calls(event_id, 3)
        ids = tuple(range(event_id, event_id + 6))
        event_id += 6
        yield CondensationAction(id=event_id, forgotten_event_ids=ids, summary="so far", summary_offset=nth)
        event_id += 1


def scattered(condensations: int) -> Iterator[Event]:
    """Each condensation forgets calls here and there, so that what stays is scattered."""
    at = random.Random(5)
    event_id, shown = 0, list[int]()
    for _ in range(condensations):
        yield from calls(event_id, 6)
        shown += range(event_id, event_id + 12, 2)
        event_id += 12
        gone = [shown.pop(at.randrange(len(shown))) for _ in range(max(0, len(shown) - 150))]
        ids = tuple(half for first in sorted(gone) for half in (first, first + 1))
        yield CondensationAction(id=event_id, forgotten_event_ids=ids or (0,))
        event_id += 1


def usual(condensations: int) -> Iterator[Event]:
    event_id, summary = 0, ()
    yield Message(id=0, source="user", content="x" * 900)
    event_id = 1
    for _ in range(condensations):
        yield from calls(event_id, 30)
        ids = (*summary, *range(event_id, event_id + 60))
        event_id += 60
        yield CondensationAction(id=event_id, forgotten_event_ids=ids, summary="so far", summary_offset=1)
        summary = (-(event_id + 2),)
        event_id += 1


@pytest.mark.parametrize("history, part", [(usual, 0.01), (stacked, 0.1), (scattered, 0.1)])
def test_revisions_are_small_beside_the_events(history, part: float):
    events = list(history(150))
    _, records = fold_on(EMPTY_FOLD, events, len(events), NoPast())
    assert len(records) == 150
    size = sum(len(encode(event).body) for event in events)
    assert sum(len(record.body) for record in records) <= part * size


def test_what_is_not_shown_costs_a_revision_nothing():
    from foldlog.eventstore.events import Annotation

    def records(annotations: int) -> list[Record]:
        step = annotations + 1
        events: list[Event] = []
        for event in calls(0, 20):
            cause = None if event.cause is None else event.cause * step
            events.append(msgspec.structs.replace(event, id=event.id * step, cause=cause))
            events += [Annotation(id=event.id * step + n, name="state") for n in range(1, step)]
        ids = tuple(event.id for event in events if event.shown)[10:20]
        events.append(CondensationAction(id=len(events), forgotten_event_ids=ids))
        return fold_on(EMPTY_FOLD, events, len(events), NoPast())[1]

    (without,), (with_many,) = records(0), records(9)
    assert len(with_many.body) < 1.5 * len(without.body)
    read = [decode_revision(record, None)[0] for record in (with_many, without)]
    assert [(len(one.kept), one.structural, one.condensations) for one in read] == [(3, 1, 1)] * 2
