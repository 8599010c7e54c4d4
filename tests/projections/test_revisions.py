"""What is stored of a View: it comes back as it was, and it is small."""

import random

import pytest
from hypothesis import given, strategies as st

from foldlog.eventstore.codec import encode
from foldlog.eventstore.events import (
    Action,
    Annotation,
    CondensationAction,
    Message,
    Observation,
)
from foldlog.projections.stored.revision import EMPTY_FOLD, fold_on
from foldlog.projections.stored.revision_codec import (
    Revision,
    UnreadableRevision,
    decode_revision,
    encode_revision,
)
from tests.condensers.made import history, later

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


def calls(start, pairs):
    for event_id in range(start, start + 2 * pairs, 2):
        call_id = f"call_{event_id}"
        yield Action(
            id=event_id,
            tool="run",
            call_id=call_id,
            response_id=call_id,
            arguments={"command": "x" * 900},
        )
        yield Observation(id=event_id + 1, content="x" * 900, call_id=call_id)


def stacked(condensations):
    """Each condensation adds a summary, and none ever goes."""
    event_id = 0
    for nth in range(condensations):
        yield from calls(event_id, 3)
        ids = tuple(range(event_id, event_id + 6))
        event_id += 6
        yield CondensationAction(
            id=event_id, forgotten_event_ids=ids, summary="so far", summary_offset=nth
        )
        event_id += 1


def scattered(condensations):
    """Each condensation forgets calls here and there, so that what stays is scattered."""
    rng = random.Random(5)
    event_id, shown = 0, []
    for _ in range(condensations):
        yield from calls(event_id, 6)
        shown += range(event_id, event_id + 12, 2)
        event_id += 12
        forgotten = [shown.pop(rng.randrange(len(shown))) for _ in range(max(0, len(shown) - 150))]
        ids = tuple(half for first in sorted(forgotten) for half in (first, first + 1))
        yield CondensationAction(id=event_id, forgotten_event_ids=ids or (0,))
        event_id += 1


def usual(condensations):
    event_id, summary = 0, ()
    yield Message(id=0, source="user", content="x" * 900)
    event_id = 1
    for _ in range(condensations):
        yield from calls(event_id, 30)
        ids = (*summary, *range(event_id, event_id + 60))
        event_id += 60
        yield CondensationAction(
            id=event_id, forgotten_event_ids=ids, summary="so far", summary_offset=1
        )
        summary = (-(event_id + 2),)
        event_id += 1


@pytest.mark.parametrize("make_history, part", [(usual, 0.01), (stacked, 0.1), (scattered, 0.1)])
def test_revisions_are_small_beside_the_events(make_history, part):
    events = list(make_history(150))
    _, records = fold_on(EMPTY_FOLD, events, len(events), NoPast())
    assert len(records) == 150
    size = sum(len(encode(event).body) for event in events)
    assert sum(len(record.body) for record in records) <= part * size


def test_hidden_events_cost_a_revision_nothing():
    def records(annotations):
        events = history(
            [event, [Annotation(name="state")] * annotations] for event in calls(0, 20)
        )
        ids = tuple(event.id for event in events if event.shown)[10:20]
        events += later(len(events), CondensationAction(forgotten_event_ids=ids))
        return fold_on(EMPTY_FOLD, events, len(events), NoPast())[1]

    (without,), (with_many,) = records(0), records(9)
    assert len(with_many.body) < 1.5 * len(without.body)
    read = [decode_revision(record) for record in (with_many, without)]
    assert [(len(revision.kept), revision.condensations) for revision in read] == [(3, 1)] * 2
