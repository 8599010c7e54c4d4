"""Write records, and the bytes of a source."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO

from foldlog._archive.stored import SourceBytes
from foldlog._cli import terminal
from foldlog._formats.conversion import ANY_HISTORY
from foldlog._formats.export_notes import ExportNotes
from foldlog._formats.registry import format_named
from foldlog._words.gist import count
from foldlog._words.safe_text import json_text
from foldlog.eventstore import EventStoreError


def write_source(source: SourceBytes, file: BinaryIO) -> int:
    """Write a source as it came, on a terminal without what would control it. Return the number of
    its records.
    """
    for data in source.bytes:
        file.write(
            terminal.printable(data.decode("utf-8", "replace")).encode() if file.isatty() else data
        )
    return source.records


def left_out(source: SourceBytes) -> Iterator[str]:
    """Yield what the bytes of a source do not have."""
    counted = ExportNotes(format_named(source.format))
    for event in source.appended:
        counted.leave_out(event)
    _, appended = counted.end()
    if appended:
        yield (
            f"left out: {appended}, appended since the import; 'export --format {ANY_HISTORY}'"
            " writes all"
        )
    if source.redacted:
        yield f"left out: the content of {count(source.redacted, 'redacted record')}"


def readable(records: Iterable[Any], findings: list[str]) -> Iterator[Any]:
    """Yield the records up to the first that cannot be read or written: that one is a finding."""
    try:
        yield from records
    except (EventStoreError, ValueError) as error:
        findings.append(str(error))


def write_records(records: Iterable[Any], format: str, file: BinaryIO) -> int:
    """Write a line for each record, or the document of the format, and return their number. Of
    lines those before a record that cannot be read are written too.
    """
    document = format_named(format).document
    if document is not None:
        held = list(records)
        content = document(held)
        text = content if isinstance(content, str) else _line(content)
        file.write((terminal.printable(text) if file.isatty() else text).encode())
        return len(held)
    number = 0
    for record in records:
        file.write(_line(record).encode())
        number += 1
    return number


def _line(record: Any) -> str:
    return f"{json_text(record, exact=True)}\n"
