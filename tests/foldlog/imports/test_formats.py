"""Rules for each format: an import keeps the bytes, and makes the same events however the source
grew.
"""

import json
import re

import pytest

from foldlog.formats import FORMATS
from foldlog.formats.record_decoding import DecodedRecords, NamedRecords
from foldlog.runtimes import format_named
from tests.foldlog.imports.imports import (
    bytes_of,
    events_of,
    figures_of,
    imported,
    new_store,
    source_of,
)
from tests.foldlog.records import lines_of
from tests.how_many import some
from tests.sound import assert_sound

_WORDS_MIN = 20
"""Longer texts with a space are words of somebody, not names."""


@pytest.mark.parametrize("format", FORMATS)
def test_growing_source_equals_one_import(format, tmp_path):
    lines = lines_of(format)
    path = tmp_path / "source.jsonl"
    path.write_bytes(b"".join(lines))
    with new_store() as at_once, new_store() as grown:
        whole = imported(at_once, path, format)
        for place, number in enumerate(some(range(1, len(lines) + 1), 24)):
            half = b"".join(lines[number : number + 1])[: 9 * (place % 3)]
            path.write_bytes(b"".join([*lines[:number], half]))
            outcome = imported(grown, path, format)
            assert (outcome.records, outcome.forked_at) == (number, None)
            assert outcome.waits == bool(half)
            if place % 2:
                grown.version(outcome.conversation)  # which makes its events
        assert_sound(grown)
        there = source_of(at_once, whole.conversation)
        now = source_of(grown, outcome.conversation)
        assert (now.head, now.records) == (there.head, there.records)
        assert bytes_of(grown, outcome.conversation) == path.read_bytes()
        assert events_of(grown, outcome.conversation) == events_of(at_once, whole.conversation)
        assert figures_of(grown, outcome.conversation) == figures_of(at_once, whole.conversation)


@pytest.mark.parametrize("format", FORMATS)
def test_redacted_record_has_no_words(format):
    chosen = format_named(format)
    skeleton = DecodedRecords(chosen) if chosen.skeleton is None else chosen.skeleton()
    for line in lines_of(format):
        remainder = json.loads(skeleton.without_texts(line.strip()))
        texts = re.findall(rf'"([^"]{{{_WORDS_MIN},}})"', json.dumps(remainder))
        words = {json.loads(f'"{text}"') for text in texts if " " in text.strip()}
        assert words <= {"Exit code: 1\nOutput:\n"}  # by which alone Codex says that a call failed


def test_redacted_record_keeps_names_in_the_order_of_the_record():
    names = ["uuid", "role", "timestamp", "kind", "source", "parentId", "sender", "type"]
    record = dict.fromkeys(names, "n1") | {
        "id": 5,
        "subtype": "two words",
        "createdAt": "2026-03-05T10:00:00+01:00",
        "parent": None,
        "content": "n1",
        "info": {"id": "n1"},
    }
    for order in (record, dict(reversed(record.items()))):
        remainder = NamedRecords(format_named("pi")).without_texts(json.dumps(order).encode())
        stays = {name: order[name] for name in order if name in {*names, "parent"}}
        assert [*json.loads(remainder).items()] == [*stays.items()]


@pytest.mark.parametrize("format", FORMATS)
def test_redacted_record_can_be_decoded(format):
    rules = format_named(format)
    lines = lines_of(format)
    for number, record in some(enumerate(lines), 24):
        counted = DecodedRecords(rules)
        remainder = counted.without_texts(record.strip())
        for place, line in enumerate(lines):
            counted.take(json.loads(remainder if place == number else line))
        assert set(json.loads(remainder)) <= set(json.loads(record))
