"""The law of every format: an export gives the records back, whatever they hold, also from what a store keeps."""

from __future__ import annotations

import json
import math
import random
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import foldlog
from foldlog._formats.registry import format_named
from foldlog.eventstore import Annotation, Event, InvalidEvent, codec
from foldlog.formats import FORMATS, Encoder, decode, encode
from tests.foldlog.records import records_of
from tests.how_many import examples

ODD: list[Any] = [
    *(None, True, False, 0, 0.0, -0.0, 1, 1.0, 2, -3, 2**64, -(2**70), 10**300, math.inf, 1e-320, "9" * 5_000 + "→"),
    *("", "a\x00b", "\ud800", "é", "🂡", "0", "soon", "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"),
    *([], {}, [1], {"a": 1}, {"": [None]}, ["x", {"type": "text"}]),
]


class Mixed:
    """Records like those of a format's corpus, with each other's values and keys, or with odd values at their keys."""

    def __init__(self, format: str) -> None:
        self._sound = records_of(format)
        self._values: defaultdict[str, list[Any]] = defaultdict(list)
        self._learn(self._sound)

    def records(self, at: random.Random, most: int) -> list[Any]:
        start = at.randrange(len(self._sound))
        drawn = self._sound[start:] if at.randrange(2) else at.choices(self._sound, k=most)
        self._odd_key = at.choice(list(self._values))
        percent = at.choice((0, 3, 10, 30, 60))
        mixed = [self._mixed(at, record, percent) for record in drawn[: at.randrange(most + 1)]]
        return list(json.loads(text(mixed)))

    def _learn(self, value: Any) -> None:
        if isinstance(value, dict):
            for key, inner in value.items():
                self._values[key].append(inner)
        if isinstance(value, dict | list):
            for inner in value.values() if isinstance(value, dict) else value:
                self._learn(inner)

    def _mixed(self, at: random.Random, value: Any, percent: int) -> Any:
        if isinstance(value, list):
            return [self._mixed(at, inner, percent) for inner in value if at.randrange(200) >= percent]
        if not isinstance(value, dict):
            return value
        keys = [key for key in value if at.randrange(400) >= percent]
        if at.randrange(100) < percent:
            keys.append(at.choice(list(self._values)))
        return {key: self._at(at, key, value, percent) for key in keys}

    def _at(self, at: random.Random, key: str, value: dict[str, Any], percent: int) -> Any:
        if key in value and key != self._odd_key and at.randrange(100) >= percent:
            return self._mixed(at, value[key], percent)
        return at.choice(ODD) if at.randrange(2) else at.choice(self._values[key])


MIXED = {name: Mixed(name) for name in FORMATS}
seeds = st.integers(0, 2**32).map(random.Random)


def text(records: object) -> str:
    """Compared as text, 1 and 1.0 and true are three things, as they are in JSON, and keys have an order."""
    return json.dumps(records)


def stored(events: Iterable[Event]) -> Iterator[Event]:
    """The events as they come back out of a store."""
    for event in events:
        encoded = codec.encode(event)
        yield codec.decode(encoded.kind, encoded.schema, encoded.body, event.id)


def lost(findings: list[Any]) -> set[int]:
    """The numbers of the records that no event came from."""
    of_read_ones = ("begins the session", "begins without the session", "forgets an id of no record", "nothing reads")
    of_read_ones += ("is a compaction of which item",)
    told = [str(finding) for finding in findings if not any(words in str(finding) for words in of_read_ones)]
    return {int(finding.partition(":")[0].removeprefix("record ")) for finding in told}


@pytest.mark.parametrize("format", FORMATS)
@examples(500)
@given(at=seeds)
def test_records_come_back_as_they_were(format: str, at: random.Random):
    """Decoding gives them the ids that count up from 0, changes no record, and does the same each time."""
    records = MIXED[format].records(at, 6)
    before = text(records)
    findings: list[Any] = []
    events = list(decode(records, format, findings=findings.append))
    read = [record for number, record in enumerate(records) if number not in lost(findings)]
    assert text(records) == before
    assert list(decode(records, format, findings=findings.append)) == events or "nan" in repr(events)
    assert [event.id for event in events] == list(range(len(events)))
    assert all(event.cause is None or 0 <= event.cause < event.id for event in events)
    assert all(event.origin is not None and event.origin.format == format for event in events)
    assert text(list(encode(stored(events), format))) == text(read)


@examples(100)
@given(at=seeds)
def test_v0_records_taken_as_history_come_back_too(at: random.Random):
    findings: list[Any] = []
    records = MIXED["openhands-v0"].records(at, 6)
    events = decode(records, "openhands-v0", as_history=True, findings=findings.append)
    back = text(list(encode(stored(events), "openhands-v0")))
    assert back == text([record for number, record in enumerate(records) if number not in lost(findings)])


@pytest.mark.parametrize("format", [name for name in FORMATS if format_named(name).live])
@examples(60)
@given(at=seeds)
def test_records_that_are_appended_one_by_one_come_back_as_they_were(format: str, at: random.Random):
    """Decoders begin anew at any record, and events of ours come in between."""
    records = MIXED[format].records(at, 8)
    with foldlog.open("memory:") as histories:
        history = histories["c1"]
        taken = []
        for record in records:
            try:
                history.append_records([record], format=format)
            except InvalidEvent:
                continue
            taken.append(record)
            match at.randrange(4):
                case 0:
                    histories.__dict__.pop("_recording", None)
                case 1:
                    history.append(Annotation(name="ours"))
        events = list(history.events()) if taken else []
        encoder = Encoder(format)
        back = [record for event in events if event.origin for record in encoder.records(event)]
        assert text([*back, *encoder.end()]) == text(taken)
        assert all(event.cause is None or 0 <= event.cause < event.id for event in events)
