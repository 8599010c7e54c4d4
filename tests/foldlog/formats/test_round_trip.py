"""The law of every format: any records become events, and the stored events become the same records
again.
"""

import json
import math
import random
from collections import defaultdict
from contextlib import suppress

import pytest
from hypothesis import given, strategies as st

import foldlog
from foldlog.eventstore import Annotation, InvalidEvent, codec
from foldlog.formats import FORMATS, decode, detect
from foldlog.formats.detection import recognize
from foldlog.formats.registry import formats
from tests.foldlog.records import records_of
from tests.how_many import examples

ODD = [
    None,
    True,
    False,
    0,
    0.0,
    -0.0,
    1,
    1.0,
    2,
    -3,
    2**64,
    -(2**70),
    10**300,
    math.inf,
    1e-320,
    "9" * 5_000 + "→",
    "",
    "a\x00b",
    "\ud800",
    "é",
    "🂡",
    "0",
    "soon",
    "0001-01-01T00:00:00+14:00",
    "9999-12-31T23:59:59-14:00",
    [],
    {},
    [1],
    {"a": 1},
    {"": [None]},
    ["x", {"type": "text"}],
]


class Mixed:
    """Return records like the records of a format's corpus, with exchanged values and keys, or with
    odd values.
    """

    def __init__(self, format):
        self._sound = records_of(format)
        self._values = defaultdict(list)
        self._learn(self._sound)

    def records(self, at, most):
        start = at.randrange(len(self._sound))
        drawn = self._sound[start:] if at.randrange(2) else at.choices(self._sound, k=most)
        self._odd_key = at.choice(list(self._values))
        percent = at.choice((0, 3, 10, 30, 60))
        mixed = [self._mixed(at, record, percent) for record in drawn[: at.randrange(most + 1)]]
        return list(json.loads(text(mixed)))

    def _learn(self, value):
        if isinstance(value, dict):
            for key, inner in value.items():
                self._values[key].append(inner)
        if isinstance(value, dict | list):
            for inner in value.values() if isinstance(value, dict) else value:
                self._learn(inner)

    def _mixed(self, at, value, percent):
        if isinstance(value, list):
            return [
                self._mixed(at, inner, percent) for inner in value if at.randrange(200) >= percent
            ]
        if not isinstance(value, dict):
            return value
        keys = [key for key in value if at.randrange(400) >= percent]
        if at.randrange(100) < percent:
            keys.append(at.choice(list(self._values)))
        return {key: self._at(at, key, value, percent) for key in keys}

    def _at(self, at, key, value, percent):
        if key in value and key != self._odd_key and at.randrange(100) >= percent:
            return self._mixed(at, value[key], percent)
        return at.choice(ODD) if at.randrange(2) else at.choice(self._values[key])


MIXED = {name: Mixed(name) for name in FORMATS}
seeds = st.integers(0, 2**32).map(random.Random)


def text(records):
    """Return values as text, because JSON distinguishes 1, 1.0 and true, and the order of keys."""
    return json.dumps(records)


def stored(events):
    """Yield the events as they come back out of a store."""
    for event in events:
        encoded = codec.encode(event)
        yield codec.decode(encoded.kind, encoded.schema, encoded.body, event.id)


@pytest.mark.parametrize("format", FORMATS)
@examples(500)
@given(at=seeds)
def test_records_become_the_same_events_each_time(format, at):
    """Decoding gives them the ids that count up from 0, changes no record, and does the same each
    time. Each format recognizes them or does not, and says what conversation they are of.
    """
    records = MIXED[format].records(at, 6)
    before = text(records)
    with suppress(ValueError):
        detect(records)
    for each in formats().values():
        recognize(each.name).format_of(records)
        each.conversation(records)
    findings = []
    events = list(decode(records, format, findings=findings.append))
    assert text(records) == before
    assert list(decode(records, format, findings=findings.append)) == events
    assert [event.id for event in events] == list(range(len(events)))
    assert all(event.cause is None or 0 <= event.cause < event.id for event in events)
    assert all(event.origin is not None and event.origin.format == format for event in events)
    assert list(stored(events)) == events


@pytest.mark.parametrize("format", FORMATS)
@examples(60)
@given(at=seeds)
def test_records_appended_singly_come_back_unchanged(format, at):
    """Decoders begin again at any record, with our events between the records."""
    records = MIXED[format].records(at, 8)
    with foldlog.open("memory:") as histories:
        history = histories["c1"]
        accepted = []
        for record in records:
            try:
                history.append_records([record], format=format)
            except InvalidEvent:
                continue
            accepted.append(record)
            match at.randrange(4):
                case 0:
                    histories.__dict__.pop("_recording", None)
                case 1:
                    history.append(Annotation(name="ours"))
        events = list(history.events()) if accepted else []
        assert text([record for _, record in history._stored_records().all()]) == text(accepted)
        assert all(event.cause is None or 0 <= event.cause < event.id for event in events)
