"""The stored form of a View is small, and gives the same View again."""

import random

import pytest
from hypothesis import given, strategies as st

from foldlog.eventstore.codec import encode
from foldlog.eventstore.events import Annotation, summary_id
from foldlog.projections.stored.revision import EMPTY_FOLD, fold_on
from foldlog.projections.stored.revision_codec import (
    Revision,
    UnreadableRevision,
    decode_revision,
    encode_revision,
)
from tests.condensers.made import answer, call, condensed, history, later, message
from tests.said import ids

ascending = st.sets(st.integers(-50, 1_000)).map(lambda values: tuple(sorted(values)))
places = st.lists(st.tuples(st.integers(0, 900), st.integers(-1, 200)), max_size=12)


@st.composite
def revisions(draw):
    summaries = draw(places)
    return Revision(
        kept=tuple(sorted(draw(st.sets(st.integers(0, 900))))),
        summaries=tuple(condensation for condensation, _ in summaries),
        after=tuple(after for _, after in summaries),
        register=draw(st.sampled_from([(), (3, -2)])),
        tomb=draw(ascending),
        left_behind=draw(ascending),
        requested=draw(st.booleans()),
        condensations=draw(st.integers(0, 99)),
    )


@given(revisions(), st.integers(901, 2_000))
def test_a_record_decodes_to_its_revision(revision, version):
    assert decode_revision(encode_revision(version, revision)) == revision


class NoPast:
    """The past of a fold without retractions."""

    def at(self, version):
        raise AssertionError(version)

    def keep(self, record):
        pass


@pytest.mark.parametrize(
    "body",
    [
        b'{"kept":["a"]}',
        b'{"newer":1}',
        b"\xff",
        b'{"kept":[6000]}',
        b'{"left_behind":[3,0]}',
        b'{"register":[3]}',
        b'{"register":[5000,0]}',
        b'{"summaries":[5],"after":[]}',
        b'{"summaries":[-1],"after":[3]}',
    ],
)
def test_an_unreadable_record_is_refused(body):
    record = encode_revision(5_000, Revision(kept=(0, 3)))._replace(body=body)
    with pytest.raises(UnreadableRevision, match="the revision of version 5000 "):
        decode_revision(record)


# --- size ---


TEXT = "x" * 900


def calls(start, pairs):
    names = [f"call_{number}" for number in range(start, start + pairs)]
    return later(
        start,
        *(
            [call(call_id=name, response_id=name, command=TEXT), answer(TEXT, name)]
            for name in names
        ),
    )


def stacked(condensations):
    """Return events in which each condensation adds a summary, and no summary is forgotten."""
    events = []
    for nth in range(condensations):
        forgotten = calls(len(events), 3)
        events += forgotten
        action = condensed(*ids(forgotten), summary="so far", offset=nth)
        events += later(len(events), action)
    return events


def scattered(condensations):
    """Each condensation forgets calls here and there, so that what stays is scattered."""
    rng = random.Random(5)
    events = []
    shown = []
    for _ in range(condensations):
        new = calls(len(events), 6)
        events += new
        shown += ids(new[::2])
        forgotten = [shown.pop(rng.randrange(len(shown))) for _ in range(max(0, len(shown) - 150))]
        halves = [half for first in sorted(forgotten) for half in (first, first + 1)]
        events += later(len(events), condensed(*(halves or [0])))
    return events


def usual(condensations):
    events = history(message(TEXT))
    summaries = []
    for _ in range(condensations):
        new = calls(len(events), 30)
        events += new
        action = condensed(*summaries, *ids(new), summary="so far", offset=1)
        summaries = [summary_id(len(events))]
        events += later(len(events), action)
    return events


@pytest.mark.parametrize("make_history, part", [(usual, 0.01), (stacked, 0.1), (scattered, 0.1)])
def test_revisions_are_small_beside_the_events(make_history, part):
    events = make_history(150)
    _, records = fold_on(EMPTY_FOLD, events, len(events), NoPast())
    assert len(records) == 150
    size = sum(len(encode(event).body) for event in events)
    assert sum(len(record.body) for record in records) <= part * size


def test_hidden_events_cost_a_revision_nothing():
    def records(annotations):
        events = history(
            [event, [Annotation(name="state")] * annotations] for event in calls(0, 20)
        )
        shown = [event.id for event in events if event.shown]
        events += later(len(events), condensed(*shown[10:20]))
        return fold_on(EMPTY_FOLD, events, len(events), NoPast())[1]

    (without,) = records(0)
    (with_many,) = records(9)
    assert len(with_many.body) < 1.5 * len(without.body)
    read = [decode_revision(record) for record in (with_many, without)]
    assert [(len(revision.kept), revision.condensations) for revision in read] == [(3, 1)] * 2
