"""Choose what an export writes for a conversation: the bytes of its source, or records."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple
from urllib.parse import quote

from msgspec import UNSET
from msgspec.structs import replace

from foldlog._app.cli import terminal
from foldlog._app.cli.exit_status import Refused
from foldlog._app.cli.options import check_output
from foldlog._history.histories import Histories
from foldlog._reports.answers.files import ExportedDocument
from foldlog._reports.records.stored import SourceBytes, source_bytes
from foldlog._reports.words.gist import count
from foldlog._reports.words.safe_text import json_text
from foldlog.eventstore import EventStoreError, Store
from foldlog.eventstore.files.whole_file import whole_file
from foldlog.eventstore.files.written_files import note_file
from foldlog.formats import UnknownFormat
from foldlog.formats.conversion import ANY_HISTORY, format_of_history
from foldlog.formats.export_notes import ExportNotes
from foldlog.formats.registry import format_named

_NAME_MAX = 200
"""The maximum length of a name that is made from an id. Most file systems allow 255 bytes."""


class Export(NamedTuple):
    """The content of an export of a conversation.

    ``format``   the format of the source or of the records
    ``records``  the records; empty if the bytes of the source are written
    ``write``    writes everything to a file, and returns the number of records
    ``notes``    the content that the export leaves out; the list is complete after ``write``
    """

    format: str
    records: Iterator[Any]
    write: Callable[[BinaryIO], int]
    notes: list[str]


def choose_export(
    store: Store, conversation: str, format: str | None, *, view: bool, as_records: bool
) -> Export:
    """Return the content of an export in a format. The default format is the format of the source.
    Raises ``Refused`` for an unknown format.

    With ``view``, the export writes the messages of the next prompt. With ``as_records``, the
    export never writes the bytes of the source.
    """
    if not view and not as_records:
        source = source_bytes(store, conversation, format)
        if source is not None:
            write = partial(_write_source, source)
            return Export(source.format, iter(()), write, list(_left_out(source)))
    notes: list[str] = []
    chosen = format or (ANY_HISTORY if view else format_of_history(store, conversation))
    try:
        records = Histories(store)[conversation].export(chosen, view=view, notes=notes.append)
    except UnknownFormat as error:
        raise Refused(str(error)) from error
    return Export(chosen, records, partial(_write_records, records, chosen), notes)


def _write_source(source: SourceBytes, file: BinaryIO) -> int:
    """Write the original bytes of a source, and return the number of records. On a terminal,
    characters that would control the terminal are escaped.
    """
    for data in source.bytes:
        file.write(
            terminal.printable(data.decode("utf-8", "replace")).encode() if file.isatty() else data
        )
    return source.records


def _left_out(source: SourceBytes) -> Iterator[str]:
    """Yield notes about events that the bytes of a source do not contain."""
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
    """Yield the records up to the first record that cannot be read or written. The error of this
    record is added to ``findings``.
    """
    try:
        yield from records
    except (EventStoreError, ValueError) as error:
        findings.append(str(error))


def _write_records(records: Iterable[Any], format: str, file: BinaryIO) -> int:
    """Write one line for each record, or one document if the format is a single document. Return
    the number of records. If a record cannot be read, write the records before it.
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
    """Return a record as a line of JSON."""
    return f"{json_text(record, exact=True)}\n"


def write_files(
    store: Store,
    conversation: str,
    children: Sequence[str],
    output: Path,
    format: str | None,
    *,
    view: bool,
    force: bool,
) -> None:
    """Write a conversation into ``output``, and its sub-agents ``children`` into a folder beside
    it, which has its name without the ending. Raises ``Refused`` before the first file is written,
    if ``output`` has no ending, or if a file of a sub-agent exists without ``force``.
    """
    files = _files_of(conversation, children, output)
    if children:
        folder = output.with_suffix("")
        if folder == output:
            raise Refused(
                f"{output} has no ending, so the folder for the sub-agents would have the same"
                f" name; name a file such as {output}.json"
            )
        folder.mkdir(exist_ok=True)
        for file in files.values():
            check_output(file, force=force)
    write = partial(_write_file, store, format, view=view)
    document = write(conversation, output)
    written = [write(name, file) for name, file in files.items()]
    lines = [
        f"{count(export.records, 'record')} of {export.conversation} ({export.format})"
        f" in {export.file}"
        for export in (document, *written)
    ]
    terminal.answer(replace(document, sub_agents=tuple(written) or UNSET), lines)
    for export in (document, *written):
        terminal.note(*(export.notes or ()))


def _files_of(conversation: str, children: Sequence[str], output: Path) -> dict[str, Path]:
    """Return a file for each sub-agent. A number makes names differ that would be the same."""
    names = dict[str, str]()
    for child in children:
        own_name = _file_name(child.removeprefix(f"{conversation}/"))
        name = own_name
        number = 1
        while name in names:
            number += 1
            name = f"{own_name}-{number}"
        names[name] = child
    folder = output.with_suffix("")
    return {child: folder / f"{name}{output.suffix}" for name, child in names.items()}


def _file_name(text: str) -> str:
    """Return a text as the name of a file, without its ending."""
    return quote(text, safe="", errors="surrogatepass")[:_NAME_MAX]


def _write_file(
    store: Store, format: str | None, conversation: str, output: Path, *, view: bool
) -> ExportedDocument:
    """Write the file of one conversation. The store notes the file before ``choose_export``, which
    may already read the View.
    """
    with note_file(store, "export", output, conversation):
        export = choose_export(store, conversation, format, view=view, as_records=False)
        with whole_file(output) as file:
            number = export.write(file)
    return ExportedDocument(
        conversation=conversation,
        format=export.format,
        file=str(output),
        records=number,
        notes=tuple(export.notes) or UNSET,
    )
