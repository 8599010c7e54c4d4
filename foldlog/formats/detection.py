"""Detect the format of a history by its first records.

A format is recognized by fields that only its records have (``Format.matches``). At least half of
the first 50 records must match, and at least two of them. A single matching record is enough if the
format accepts all of these records, and no other format matches any of them. Until the first tool
call, the messages of many programs look alike. If a record can only come from another program, the
history is not of this format (``Format.refuses``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain, islice
from os import PathLike
from pathlib import Path
from typing import Any

from foldlog.eventstore import InvalidArgument
from foldlog.formats.blocks import kind_of
from foldlog.formats.files.found_sources import FoundHistory, NotAHistory
from foldlog.formats.format import LOOK_AT, Format, Recognize, refuses_none
from foldlog.formats.json_text import UnreadableJson, parse_utf8
from foldlog.formats.record import describe_type, dicts_in
from foldlog.formats.registry import AUTO, each_format, format_named


def recognize(format: str = AUTO) -> Recognize:
    """Return functions that recognize histories. If ``format`` is ``AUTO``, any format is
    recognized. If ``format`` names a format, a history must contain a record that this format
    accepts. Raises ``UnknownFormat``.
    """
    if format == AUTO:
        return Recognize(format_of, _reader_of, _nothing_of_ours)
    named = format_named(format)
    return Recognize(
        lambda records: named if any(map(named.accepts, islice(records, LOOK_AT))) else None,
        lambda path, begin: (
            named if named.files is not None and named.files.holds(path, begin) else None
        ),
        lambda records: (
            f"holds no event of the format {format!r}; without --format, foldlog finds the format"
            " by the content of the file"
        ),
    )


_KEYS_NAMED = 6
"""The maximum number of fields of an unknown record that a message names."""


def _nothing_of_ours(records: Iterable[Any]) -> str:
    """Describe the first record that no format matches, for the message about an unknown format."""
    looked_at = list(islice(records, LOOK_AT))
    odd = next(
        (record for record in looked_at if _match(record) is None),
        looked_at[0] if looked_at else None,
    )
    what = describe_type(odd)
    if type(odd) is dict and odd:
        what += f" with {', '.join(map(repr, [*odd][:_KEYS_NAMED]))}"
        kinds = {kind for part in dicts_in(odd, "content") if (kind := kind_of(part)) is not None}
        what += f" and parts of the type {', '.join(map(repr, sorted(kinds)))}" if kinds else ""
    return (
        f"holds no event of a known format, but {what:.400}; if you know its format,"
        " name it with --format"
    )


def _reader_of(path: Path, begin: bytes) -> Format | None:
    """Return the first format that reads a file or folder: see ``Recognize``."""
    return next(
        (
            candidate
            for candidate in each_format()
            if candidate.files is not None and candidate.files.holds(path, begin)
        ),
        None,
    )


def format_of(records: Iterable[Any]) -> Format | None:
    """Return the format of a history by its first records, or None if no format is clear."""
    looked_at = [
        record
        for record in islice(records, LOOK_AT)
        if type(record) is dict or type(record) is list
    ]
    matches = [(format, record) for record in looked_at if (format := _match(record)) is not None]
    counts = Counter(format for format, _ in matches)
    owners = {format.name for format, record in matches if format.own(record)}
    with_shared = {format: _count(format, counts, owners) for format in counts}
    if not with_shared:
        return None
    format = max(with_shared, key=with_shared.__getitem__)
    count = with_shared[format]
    is_enough = count > 1 or (len(counts) == 1 and all(map(format.accepts, looked_at)))
    is_most = 2 * count >= len(looked_at)
    if not is_enough or not is_most or any(map(format.refuses, looked_at)):
        return None
    return format


def _count(format: Format, counts: Mapping[Format, int], owners: Container[str]) -> int:
    """Return how many records are of a format, with those that match the format that it looks like,
    unless the history has a record that only the other format has: see ``Format.looks_like``.
    """
    count = counts.get(format, 0)
    if not format.looks_like or format.looks_like in owners:
        return count
    return count + _count(format_named(format.looks_like), counts, owners)


_ENOUGH = 3
"""The number of records that must match in ``of_lines``."""
_BEGINNING = 2**16
"""The number of bytes of a file that ``of_lines`` and ``may_be_of`` read."""


def of_lines(path: Path) -> Format | None:
    """Return the format of a JSON Lines file, from its beginning. Return None if the beginning is
    not clear, for example if each line contains a history.

    Of the first four lines, at least three must match the format, and none may match a different
    format. At least half of the first 50 lines must match the format. Only the first 64 KiB of the
    file are read.
    """
    if path.suffix != ".jsonl" or not path.is_file():
        return None
    with path.open("rb") as file:
        begin = file.read(_BEGINNING)
    lines = begin.splitlines()
    records = _readable_records(lines[:-1] if len(begin) == _BEGINNING else lines)
    first = [*islice(records, _ENOUGH + 1)]
    matched = [format for format in map(_match, first) if format is not None]
    if len(matched) < _ENOUGH or len({*matched}) > 1:
        return None
    format = matched[0]
    # if a format has no skeleton, its logs are short, and their later records may have another
    # format, so the whole file must be read
    if format.skeleton is None:
        return None
    if format.files is not None and format.files.holds(path, begin):
        return None
    is_clear = _most_match(format, chain(first, records), min(len(lines), LOOK_AT))
    return format if is_clear else None


def _most_match(format: Format, records: Iterable[Any], most: int) -> bool:
    """Return whether at least half of the records match a format, and it refuses none of them.
    There are at most ``most`` records. They are parsed one by one, so no record is read that cannot
    change the answer.
    """
    count = 0
    matching = 0
    for record in records:
        if format.refuses(record):
            return False
        count += 1
        matching += format.matches(record)
        if 2 * matching >= most and format.refuses is refuses_none:
            break
    return 2 * matching >= count


def _readable_records(lines: Sequence[bytes]) -> Iterator[Any]:
    """Yield the values of the first lines that are JSON, and None for an empty line."""
    for line in islice(lines, LOOK_AT):
        with suppress(UnreadableJson):
            yield parse_utf8(line) if line else None


def may_be_of(path: Path, format: Format) -> bool:
    """Return whether a log may be of a format: one of its first lines matches, or no line can be
    read.
    """
    with path.open("rb") as file:
        records = [*_readable_records(file.read(_BEGINNING).split(b"\n"))]
    records = [record for record in records if record is not None]
    return not records or any(map(format.matches, records))


def _match(record: Any) -> Format | None:
    """Return the format that a record matches, unless the record is another program's."""
    format = next((format for format in each_format() if format.matches(record)), None)
    return None if format is None or format.refuses(record) else format


def detect(source: str | PathLike[str] | Iterable[Any]) -> str:
    """Return the format of a file, a folder, or records: one of ``FORMATS``.

    Raises ``NotAHistory`` for a path without a history, and ``InvalidArgument`` for records without
    a known format.
    """
    if isinstance(source, str | PathLike):
        from foldlog.formats.files.histories import histories

        sources = (
            history
            for history in histories(Path(source), recognize())
            if isinstance(history, FoundHistory)
        )
        first = next(sources, None)
        if first is None:
            raise NotAHistory(Path(source), "holds no history")
        return first.format.name
    format = format_of(source)
    if format is None:
        raise InvalidArgument("foldlog knows no format with such records")
    return format.name
