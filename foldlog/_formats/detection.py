"""Detect the format of a history by its first records.

A format is recognized by what only its records have (``Format.matches``), by at least two of the first records and by
most of them; by one of them where the others pass for its records. A record that a lookalike alone has decides against
the format that it looks like, because the messages of a chat and of its lookalikes are the same until the first call of
a tool.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import islice
from os import PathLike
from pathlib import Path
from typing import Any

from foldlog._formats.files.found import Found, NotAHistory
from foldlog._formats.format import LOOK_AT, Format, Recognize
from foldlog._formats.json_text import UnreadableJson, parse
from foldlog._formats.lookalikes import Lookalike, lookalike_of_record
from foldlog._formats.registry import AUTO, each_format, format_named
from foldlog.eventstore import InvalidArgument


def recognize(format: str = AUTO) -> Recognize:
    """Return how to recognize a history: of any format, or one whose records may be those of ``format``.

    Raises ``UnknownFormat``.
    """
    if format == AUTO:
        nothing = "holds no event of a format that is known here; if you know its format, name it with --format"
        return Recognize(format_of, _reader_of, nothing)
    named = format_named(format)
    return Recognize(
        lambda records: _of_named(records, named),
        lambda path, begin: named if named.files is not None and named.files.holds(path, begin) else None,
        f"holds no event of the format {format!r}; without --format, the format is found by what the file holds",
    )


def _reader_of(path: Path, begin: bytes) -> Format | None:
    return next((each for each in each_format() if each.files is not None and each.files.holds(path, begin)), None)


def format_of(records: Iterable[Any]) -> Format | Lookalike | None:
    """Return the format of a history by its first records; None where they are of no known format."""
    looked_at = [record for record in islice(records, LOOK_AT) if type(record) is dict or type(record) is list]
    found = Counter(each for record in looked_at for each in _of_one(record))
    counts = {each.name: count for each, count in found.items()}
    ours = [(each, count + counts.get(each.looks_like, 0)) for each, count in found.items() if isinstance(each, Format)]
    others = [each for each in found if isinstance(each, Lookalike) and each.decides(looked_at)]
    if ours:
        format, count = max(ours, key=lambda each: each[1])
        refused = {other.format for other in others if other.looks_like == format.name}
        named = next((each for each in ours if {each[0].name} == refused), None)
        if named is not None:  # its records are among those that are the same in both
            format, count, refused = named[0], count + named[1], set()
        is_enough = count > 1 or (len(found) == 1 and all(map(format.accepts, looked_at)))
        if not refused and is_enough and 2 * count >= len(looked_at):
            return format
    return max((other for other in others if other.format is None), key=lambda other: found[other], default=None)


_ENOUGH = 3
_BEGINNING = 2**16


def of_lines(path: Path) -> Format | None:
    """Return the format of a log of JSON Lines, where its first lines leave no doubt: three are of this format, none of
    another, and each passes for its record. None for all else, as for lines that hold several histories.
    Cost: its first lines.
    """
    if path.suffix != ".jsonl" or not path.is_file():
        return None
    with path.open("rb") as file:
        begin = file.read(_BEGINNING)
    lines = begin.splitlines()[:-1]
    count, format = 0, None
    for line in islice(lines, LOOK_AT):
        try:
            found = _of_one(parse(line)) if line else []
        except UnreadableJson:
            continue
        for each in found:
            if not isinstance(each, Format) or each is not (format or each):
                return None
            format, count = each, count + 1
        if format is not None and count == _ENOUGH:
            is_read_otherwise = format.files is not None and format.files.holds(path, begin)
            return None if is_read_otherwise else format
    return None


def _of_one(record: Any) -> list[Format | Lookalike]:
    """Return the format of a record, and the format for which it only passes."""
    format = next((format for format in each_format() if format.matches(record)), None)
    other = lookalike_of_record(record, None if format is None else format.name)
    return [each for each in (format, other) if each is not None]


def _of_named(records: Iterable[Any], named: Format) -> Format | Lookalike | None:
    looked_at = list(islice(records, LOOK_AT))
    others = (lookalike_of_record(record, named.name) for record in looked_at)
    theirs = (other for other in others if other is not None and other.format != named.name)
    found = next((each for each in theirs if each.decides(looked_at)), None)
    if found is not None or any(map(named.accepts, looked_at)):
        return found or named
    other = format_of(looked_at)
    return other if isinstance(other, Lookalike) else None


def detect(source: str | PathLike[str] | Iterable[Any]) -> str:
    """Return the format of a file, a folder, or records: one of ``FORMATS``.

    Raises ``NotAHistory`` for a path without a history, ``InvalidArgument`` for records of no known format.
    """
    if isinstance(source, str | PathLike):
        from foldlog._formats.files.histories import histories

        found = (each for each in histories(Path(source), recognize()) if isinstance(each, Found))
        first = next(found, None)
        if first is None:
            raise NotAHistory(Path(source), "holds no history")
        return first.format.name
    format = format_of(source)
    if isinstance(format, Format):
        return format.name
    if format is None:
        raise InvalidArgument("these records are of no format that is known here")
    raise InvalidArgument(f"these records are of {format.name}, which foldlog cannot import{format.hint}")
