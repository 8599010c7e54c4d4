"""The format of a history is found by its records. Those of other programs are refused, however
alike they look.
"""

import contextlib
from dataclasses import replace
from itertools import product
from random import Random

import pytest

from foldlog.formats import FORMATS, NotAHistory, detect
from foldlog.formats.detection import _most_match
from foldlog.runtimes import format_named
from tests.foldlog.formats.reading import histories_at
from tests.foldlog.records import GOLDEN, read_lines, records_of, write_lines

READ = {name: records_of(name) for name in FORMATS}

DETECTED = read_lines(GOLDEN / "detected.jsonl")
"""Records with the format that they are of; null for a program whose histories are not imported."""


NOTHING = "holds no event of a known format, but an object with"
NAME_IT = "if you know its format, name it with --format"


@pytest.mark.parametrize("row", DETECTED, ids=lambda row: row["name"])
def test_records_are_of_this_format_or_of_none(row, tmp_path):
    if row["format"] is not None:
        assert detect(row["records"]) == row["format"]
        return
    with pytest.raises(ValueError, match="foldlog knows no format with such records"):
        detect(row["records"])
    with pytest.raises(NotAHistory, match=f": {NOTHING} .*; {NAME_IT}"):
        histories_at(write_lines(tmp_path / "a.jsonl", row["records"]))


@pytest.mark.parametrize("unreadable", [0, 1, 3])
def test_half_of_the_lines_of_a_log_are_of_its_format(unreadable):
    format = replace(format_named("codex"), matches=bool)
    for count in range(1, 8):
        for lines in product((True, False), repeat=count):
            is_most = 2 * sum(lines) >= count
            assert _most_match(format, iter(lines), count + unreadable) == is_most


@pytest.mark.parametrize("number", range(8))
def test_line_of_another_program_refuses_a_log(number):
    format = replace(format_named("codex"), matches=lambda record: True, refuses=number.__eq__)
    assert not _most_match(format, range(8), 8)
    assert _most_match(format, range(9, 17), 8)


OTHERS = {row["name"]: row["records"] for row in DETECTED if row["format"] is None}
LOGS = [
    {"type": "log", "n": 1},
    {"level": "info", "message": "x", "timestamp": "2026"},
    {"id": 1, "name": "y"},
    [],
    3,
]
KINDS = {**READ, **OTHERS, "": LOGS}


CHATS = {"openai-chat", "openai-responses", "anthropic-messages"}
"""Formats whose messages are the same until the first call of a tool."""


def is_of(format, name, record):
    """Return whether a record of a format or a program is also a record of ``format``, or is
    detected as one if it is alone.
    """
    alike = (
        CHATS if format in CHATS else {format, *(CHATS if format_named(format).looks_like else ())}
    )
    if name == format or any(record in READ.get(other, ()) for other in alike):
        return True
    with contextlib.suppress(ValueError):
        return detect([record]) in alike
    return False


def mixture(at, path):
    """Write a file of lines of several formats and of none. Return the format that an import reads,
    or None. Check that it is the format of most lines. A line of another chat may also be a
    finding.
    """
    chosen = at.sample(sorted(KINDS), at.randint(1, 4))
    mixed = [
        (name, record)
        for name in chosen
        for record in at.choices(KINDS[name], k=at.choice([1, 2, 5, 20]))
    ]
    at.shuffle(mixed)
    write_lines(path, [record for _, record in mixed])
    try:
        sources = [history for history in histories_at(path) if history.events]
    except NotAHistory:
        return None
    if not sources:
        return None
    (format,) = {history.format for history in sources}
    objects = [pair for pair in mixed[:50] if type(pair[1]) is dict]
    of_it = sum(is_of(format, *pair) for pair in objects)
    is_most = 2 * of_it >= len(objects)
    assert is_most or (format in CHATS and sources[0].findings != []), chosen
    return format


def test_mixed_lines_never_become_a_wrong_format(tmp_path):
    """``python -m tests.fuzz --target "lines of all formats"`` mixes more."""
    assert len({mixture(Random(seed), tmp_path / "a.jsonl") for seed in range(100)}) > 5
