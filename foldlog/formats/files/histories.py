"""Find the histories below a path, and the place of each history in its file.

    a file      JSON Lines: each line is a record, or an object that contains a history. Or a JSON
                document: an array of records, a container, or an array of containers
    a folder    with a file for each record (``events/12.json``, ``events/event-00012-….json``,
                ``messages/message_12.json``): one history. Any other folder: all histories in the
                files and folders below it, also behind links

A container is an object with records and further fields (metrics, a task, a patch). From the
further fields of a container, an import reads the name and the active branch of the history, and
``Format.beside`` reads an answer and the usage of models.
"""

from __future__ import annotations

import os
import re
from codecs import BOM_UTF8
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import chain, islice, pairwise
from pathlib import Path
from typing import Any

from foldlog.eventstore.files.compressed import ZSTD
from foldlog.eventstore.files.open_files import SQLITE, is_store, open_database, parts_of
from foldlog.formats.files.documents import (
    DocumentRecords,
    document_of,
    elements,
    text_of,
)
from foldlog.formats.files.found_sources import (
    FoundHistory,
    LeftOut,
    NotAHistory,
    Unchanged,
    enter,
)
from foldlog.formats.files.naming import Names
from foldlog.formats.files.readers import (
    JsonLines,
    Placed,
    array_in,
    object_in,
    on_lines,
    record_in,
    rows_in,
)
from foldlog.formats.files.sub_agent_meta import SUFFIX
from foldlog.formats.format import LOOK_AT, Contained, Format, Recognize
from foldlog.formats.json_text import TOO_LONG
from foldlog.formats.record import (
    Fields,
    ImportFinding,
    Located,
    RecordReader,
    describe_type,
    refuse,
)

CONTAINER_KEYS = ("events", "history", "trajectory", "messages", "traj")
"""The fields of a container that may have its records."""
_KEYS = frozenset(CONTAINER_KEYS)

_SUFFIXES = frozenset((".json", ".jsonl", ".ndjson", ".traj"))
_COMPRESSED = frozenset((".gz", ".zst", ".bz2", ".xz"))
_MAGIC = (b"\x1f\x8b", b"BZh", b"\xfd7zXZ", b"PK\x03\x04")
"""The first bytes of compressed files."""
_BEGIN = 4096
"""The number of bytes at the beginning of a file by which its kind is recognized."""
_LOOK_AT_BYTES = 2**20
_LOOK_INSIDE = 8
"""The number of records that are read to check the format of a file or folder that a format's
reader recognized by its first bytes, names or tables.
"""
_LEAST = 2
"""The first rows of a file, up to this index, are always read, however long they are."""
_DOCUMENT = re.compile(rb"\s*(\[|\{\s*\n)")
"""Matches the beginning of a file that may be one JSON document. But a file whose first line is a
complete value is JSON Lines.
"""
_LINES_SUFFIXES = frozenset((".jsonl", ".ndjson"))
_SIDECARS = frozenset(("metadata.json", "base_state.json"))
_NO_HISTORIES = frozenset(("event_cache", ".git"))
"""Names of folders that are skipped, because they contain copies of events or no histories."""
_EMPTY = "is empty; import it again when its program has written to it"
_NOT_JSON = (
    "holds neither a JSON object nor an array; import the JSON or JSON Lines that the agent's"
    " program writes"
)
_NO_PROMPT = (
    "holds under 'system', beside the messages, neither a text nor a list of parts; correct the"
    " field, or import the list of messages"
)
_EVENT_FILE = re.compile(r"(?:event-|message_)?(\d{1,18})(?:-.*)?\.json")


Look = Callable[[Path], FoundHistory | Unchanged | Format | None]
"""A function that is called before a file is opened. The function returns ``Unchanged`` for an
unchanged file, ``FoundHistory`` with the new records for a file that has only grown, and None if
the file must be opened. It returns the format of a file with several histories that was imported
before. If the reader of this format still reads the file, no records are read to find the format.
"""


def no_look(path: Path) -> None:
    """Return None for every file, so that every file is opened."""


def histories(
    path: Path, recognize: Recognize, look: Look = no_look
) -> Iterator[FoundHistory | LeftOut | Unchanged | ImportFinding]:
    """Yield the histories at ``path`` in a stable order. Problems and files without a history are
    yielded between the histories. A file is not opened if ``look`` returns ``FoundHistory`` or
    ``Unchanged`` for it. Raises ``NotAHistory`` if ``path`` is a file without a history, and
    ``OSError`` if the file cannot be read.
    """
    if path.is_dir():
        yield from _in_folder(path, path, recognize, look, set())
    elif path.is_file():
        item = look(path)
        if isinstance(item, FoundHistory | Unchanged):
            yield item
        else:
            yield from _File(path, path, recognize, item).histories()
    else:
        raise NotAHistory(
            path, "is neither a file nor a folder" if path.exists() else "no such file or folder"
        )


def _histories_inside(
    root: Path,
    path: Path,
    recognize: Recognize,
    begin: bytes = b"",
    earlier_format: Format | None = None,
) -> Iterator[FoundHistory] | None:
    """Let a format read the histories of a file or folder (``Format.files``). Return None if no
    format reads the file or folder, or if the first records that it reads have another format.
    Raises ``NotAHistory`` for records of another program.
    """
    format = recognize.reader_of(path, begin)
    if format is None or format.files is None:
        return None
    contained = format.files.histories(path)
    names = Names(root, path, is_folder=path.is_dir())
    if format is earlier_format:
        return _with_names(names, format, path, contained)
    passed = list[Contained]()
    first = list[Any]()
    while len(first) < _LOOK_INSIDE and (history := next(contained, None)) is not None:
        passed.append(history)
        readable = (located.value for located in history.records if located.problem is None)
        first += islice(readable, _LOOK_INSIDE - len(first))
    is_one = 2 * sum(map(format.accepts, first)) >= len(first)
    if any(map(format.refuses, first)):
        raise NotAHistory(path, recognize.nothing(first), foreign=True)
    if first and not (is_one and recognize.format_of(first)):
        return None
    return _with_names(names, format, path, chain(passed, contained))


def _with_names(
    names: Names, format: Format, path: Path, entries: Iterable[Contained]
) -> Iterator[FoundHistory]:
    """Yield the histories that a format has found in a file or folder, with their names."""
    for number, entry in enumerate(entries):
        name, own_name = names.of({}, number=str(number), conversation=entry.name)
        yield FoundHistory(
            name,
            format,
            path,
            entry.records,
            others=entry.others,
            title=entry.title,
            own_name=own_name,
            link=entry.link,
        )


def _beginning(path: Path) -> bytes:
    if path.is_file():
        return next(parts_of(path, _BEGIN), b"").removeprefix(BOM_UTF8)
    return b""


def _describe_database(path: Path) -> str:
    """Return why a SQLite database is no history, and what to do with it."""
    if is_store(path):
        return f"is a store; 'foldlog store copy {path} TO' copies its conversations"
    tables = [
        name for (name,) in rows_in(path, "SELECT name FROM sqlite_schema WHERE type = 'table'")
    ]
    named = f" with the tables {', '.join(tables):.200}" if tables else ""
    return (
        f"is a SQLite database{named}; docs/how-to/migrating.md says how to import the stores of"
        " other libraries"
    )


# -- folders ---------------------------------------------------------------------------------------


def _in_folder(
    root: Path, folder: Path, recognize: Recognize, look: Look, visited: set[str]
) -> Iterator[FoundHistory | LeftOut | Unchanged | ImportFinding]:
    """Yield the histories of a folder below ``root``. ``visited`` are the folders that were read
    already, because a link may lead to one of them.
    """
    names = sorted(os.listdir(folder))
    if (contained := _histories_inside(root, folder, recognize)) is not None:
        yield from contained
        return
    # files with names such as ``event-00012-….json`` may each have one record; the number in the
    # name gives their order
    steps = sorted(
        (int(match[1]), name) for name in names if (match := _EVENT_FILE.fullmatch(name))
    )
    format = recognize.format_of(record_in(folder / name).value for _, name in steps[:LOOK_AT])
    own_names: frozenset[str] = frozenset()
    if isinstance(format, Format):
        yield _of_event_files(root, folder, steps, format)
        own_names = frozenset(name for _, name in steps)
    for entry in (folder / name for name in names if name not in own_names):
        try:
            if entry.is_dir():
                if entry.name not in _NO_HISTORIES and enter(root, entry, visited):
                    yield from _in_folder(root, entry, recognize, look, visited)
            elif isinstance(item := look(entry), FoundHistory | Unchanged):
                yield item
            elif (
                _may_hold_histories(entry)
                or recognize.reader_of(entry, begin := _beginning(entry)) is not None
            ):
                yield from _File(root, entry, recognize, item).histories()
            elif begin and not _is_of_another(entry, begin):
                yield LeftOut(entry, is_read=False)
            elif not entry.is_file() and not entry.name.startswith("."):
                yield _no_file(entry)
        except NotAHistory as error:
            yield LeftOut(entry) if error.foreign else ImportFinding(str(entry), error.why)
        except OSError as error:
            yield ImportFinding(str(entry), f"cannot be read: {error.strerror}")


def _no_file(entry: Path) -> ImportFinding:
    """Say why an entry of a folder cannot be read."""
    if entry.exists():
        return ImportFinding(str(entry), "is neither a file nor a folder")
    return ImportFinding(str(entry), "is a link to a missing file")


def _may_hold_histories(entry: Path) -> bool:
    """Return whether a file has the name of a file with histories, also if it is compressed."""
    suffix = Path(entry.stem).suffix if entry.suffix in _COMPRESSED else entry.suffix
    return suffix in _SUFFIXES and not _is_sidecar(entry) and entry.is_file()


def _is_sidecar(entry: Path) -> bool:
    """Return whether a file describes the history in another file."""
    name, is_about, _ = entry.name.rpartition(SUFFIX)
    return entry.name in _SIDECARS or (bool(is_about) and entry.with_name(f"{name}.jsonl").exists())


def _is_of_another(entry: Path, begin: bytes) -> bool:
    """Return whether a file is hidden, is a sidecar of a history, or belongs to a database."""
    is_hidden = entry.name.startswith(".") or _is_sidecar(entry)
    # a name such as x.db-wal belongs to a database
    return is_hidden or begin.startswith(SQLITE) or "-" in entry.suffix


def _with_missing(steps: list[tuple[int, str]]) -> Iterator[str]:
    """Yield the names of the files with records, and of missing files between these files. If more
    than half of the numbers have no file, the program probably skips numbers, and no missing files
    are yielded.
    """
    is_row = steps[-1][0] - steps[0][0] < 2 * len(steps)
    for (before, _), (number, name) in pairwise((*steps[:1], *steps)):
        if is_row:
            for missing in range(before + 1, number):
                yield _name_of_missing(missing, name)
        yield name


def _name_of_missing(number: int, like: str) -> str:
    """Return the name that the file with a record would have, in the form of another name."""
    if like.startswith("event-"):
        return f"event-{number:05}.json"
    if like.startswith("message_"):
        return f"message_{number}.json"
    return f"{number}.json"


def _of_event_files(
    root: Path, folder: Path, steps: list[tuple[int, str]], format: Format
) -> FoundHistory:
    """Return the history in a folder with a file for each record. ``steps`` are the numbers and the
    names of these files, in order.
    """
    home = folder.absolute()
    if folder.name in ("events", "messages"):
        home = home.parent
    beside = [home / "metadata.json", home / "base_state.json"]
    metadata = [record_in(path) for path in beside if path.exists()]
    state = {
        key: record.value[key]
        for record in metadata
        if type(record.value) is dict
        for key in record.value
    }
    torn = [
        ImportFinding(record.place, record.problem or str(refuse("an object", record.value)))
        for record in metadata
        if type(record.value) is not dict
    ]
    files = [folder / name for name in _with_missing(steps)]
    reader = Placed(partial(map, record_in, files))
    name, _ = Names(root, home, is_folder=True).of(
        state, conversation=format.conversation(record.value for record in reader)
    )
    if (home / "subagents").is_dir():
        state["subagents"] = True  # their conversations are found apart
    _, usage = format.beside(state, ())
    return FoundHistory(name, format, folder, reader, usage=usage, others=beside, findings=torn)


# -- files -----------------------------------------------------------------------------------------


def _first_of(lines: JsonLines) -> Iterator[Located]:
    """Yield the first readable rows of a file, until the rows are enough to recognize a format."""
    rows = (row for row in lines if row.problem in (None, TOO_LONG))
    size = 0
    for number, row in enumerate(islice(rows, LOOK_AT)):
        yield row
        size += len(row.text)
        if size > _LOOK_AT_BYTES and number >= _LEAST:
            return


class _File:
    """A file that may have histories. ``earlier_format`` is its format at an earlier import."""

    def __init__(
        self, root: Path, path: Path, recognize: Recognize, earlier_format: Format | None
    ) -> None:
        self._root = root
        self._path = path
        self._recognize = recognize
        self._earlier_format = earlier_format
        self._names = Names(root, path)
        self._lines = JsonLines(path)
        """The lines of the file, if it is JSON Lines."""

    def histories(self) -> Iterator[FoundHistory | ImportFinding]:
        """Return the histories in the file. Raises ``NotAHistory`` if there are none."""
        if open_database(self._path) is not None:
            raise NotAHistory(
                self._path,
                "belongs to a database that this program has open; import a copy of the database",
            )
        begin = _beginning(self._path)
        contained = _histories_inside(
            self._root, self._path, self._recognize, begin, self._earlier_format
        )
        if contained is not None:
            return contained
        if begin.startswith(ZSTD):
            return self._in_rows(JsonLines(self._path, is_packed=True))
        if begin.startswith(_MAGIC):
            raise NotAHistory(
                self._path, "is compressed; decompress the file, then import the result"
            )
        if begin.startswith(SQLITE):
            raise NotAHistory(self._path, _describe_database(self._path))
        if self._is_lines(begin):
            return self._in_rows(JsonLines(self._path))
        return self._in_document()

    def _is_lines(self, begin: bytes) -> bool:
        """Return whether the file is JSON Lines. If both JSON Lines and a document are possible,
        the name of the file decides.
        """
        is_named = self._path.suffix in _LINES_SUFFIXES
        return (is_named and _DOCUMENT.match(begin) is None) or on_lines(
            self._path, 1 if is_named else 2
        )

    def _in_rows(self, lines: JsonLines) -> Iterator[FoundHistory | ImportFinding]:
        """Yield the history whose records are the lines, or the history in each line."""
        self._lines = lines
        format = self._recognize.format_of(
            row.value for row in _first_of(lines) if row.problem is None
        )
        if format is not None:
            yield self._of_records(lines, format)
        elif self._are_histories(_first_of(lines)):
            yield from (self._history_in(row, row.line) for row in lines)
        elif self._path.stat().st_size == 0:
            raise NotAHistory(self._path, _EMPTY)
        else:
            problem = next(
                (f"line {row.line}: {row.problem}" for row in lines if row.problem is not None), ""
            )
            first = (row.value for row in _first_of(lines))
            raise NotAHistory(
                self._path, problem or self._recognize.nothing(first), foreign=not problem
            )

    def _in_document(self) -> Iterator[FoundHistory | ImportFinding]:
        """Yield the histories in a JSON document."""
        stripped = map(bytes.strip, parts_of(self._path, _BEGIN))
        first_part = next(filter(None, stripped), b"")
        begin = first_part.removeprefix(BOM_UTF8).lstrip()
        if begin.startswith(b"["):
            yield from self._in_array()
        elif begin.startswith(b"{"):
            yield self._in_object(object_in(self._path))
        else:
            raise NotAHistory(self._path, _NOT_JSON if begin else _EMPTY)

    def _in_array(self) -> Iterator[FoundHistory | ImportFinding]:
        """Yield the history whose records are the items, or the history in each item."""
        text, rows = array_in(self._path)
        first = rows[:LOOK_AT]
        if (format := self._recognize.format_of(row.value for row in first)) is not None:
            yield self._of_records(DocumentRecords(text, rows), format)
        elif any(map(self._holds_history, first)):
            yield from (self._history_in(row, place) for place, row in enumerate(rows))
        else:
            why = self._recognize.nothing(row.value for row in first) if rows else _EMPTY
            raise NotAHistory(self._path, why, foreign=True)

    def _of_records(self, reader: RecordReader, format: Format) -> FoundHistory:
        values = (located.value for located in reader)
        name, _ = self._names.of({}, conversation=format.conversation(values))
        return FoundHistory(name, format, self._path, reader)

    def _in_object(self, document: Located) -> FoundHistory:
        """Return the history in an object, or the history whose only record is the object."""
        value = document.value
        if (container := self._container(document, "", self._names)) is not None:
            return container
        whole = DocumentRecords(text_of(document.text), [document])
        if (format := self._recognize.format_of((value,))) is not None:
            return self._of_records(whole, format)
        arrays = [value[key] for key in CONTAINER_KEYS if type(value.get(key)) is list]
        if arrays and not any(arrays):
            raise NotAHistory(self._path, _EMPTY, foreign=True)
        raise NotAHistory(self._path, self._recognize.nothing((value,)), foreign=True)

    def _container(self, holder: Located, number: str, names: Names) -> FoundHistory | None:
        """Return the history in an object with further fields, such as an answer, metrics, a task
        or a patch. Return None if the object has no history. The system prompt that a request to a
        model has beside its messages becomes the first message.
        """
        value = holder.value
        for key in CONTAINER_KEYS:
            records = value.get(key)
            if type(records) is not list:
                continue
            format = self._recognize.format_of(records)
            if format is None:
                continue
            answer, usage = format.beside(value, records)
            name, own_name = names.of(
                value, number=number, conversation=format.conversation([*answer, *records])
            )
            prompt = self._prompt_beside(value, key)
            return FoundHistory(
                name,
                format,
                self._path,
                document_of(holder, key, [*prompt, *records, *answer]),
                usage=usage,
                own_name=own_name,
            )
        return None

    def _prompt_beside(self, value: Fields, key: str) -> list[Any]:
        """Return the system prompt of a request to a model as a message, unless it is empty. Raises
        ``NotAHistory`` if it is neither a text nor a list.
        """
        prompt = value.get("system") if key == "messages" else None
        if not prompt:
            return []
        if type(prompt) not in (str, list):
            raise NotAHistory(self._path, _NO_PROMPT)
        return [{"role": "system", "content": prompt}]

    def _are_histories(self, rows: Iterator[Located]) -> bool:
        """Return whether at least half of the rows look like histories, and at least one row
        contains a history. This refuses telemetry, in which only a few rows contain the messages of
        a run.
        """
        looked_at = list(rows)
        holders = [
            row
            for row in looked_at
            if type(row.value) is not dict or not _KEYS.isdisjoint(row.value)
        ]
        return 2 * len(holders) >= len(looked_at) and any(map(self._holds_history, holders))

    def _holds_history(self, row: Located) -> bool:
        """Return whether a row is an object with a history, even if the history cannot be
        imported.
        """
        try:
            return type(self._in_row(row, 0, Names(self._path, self._path))) is FoundHistory
        except NotAHistory:
            return True

    def _history_in(self, row: Located, number: int) -> FoundHistory | ImportFinding:
        try:
            return self._in_row(row, number, self._names)
        except NotAHistory as error:
            return ImportFinding(row.place, error.why)

    def _in_row(self, row: Located, number: int, names: Names) -> FoundHistory | ImportFinding:
        """Return the history in a row of a file with several histories, or why there is none."""
        if row.problem == TOO_LONG:  # the limit for a record does not apply to a history
            row = self._lines.whole(row)
        if row.problem is not None:
            return ImportFinding(row.place, row.problem)
        if type(row.value) is list:
            return self._in_list(row, number, names)
        if type(row.value) is not dict:
            problem = f"expected an object with a history, found {describe_type(row.value)}"
            return ImportFinding(row.place, problem)
        return self._container(row, str(number), names) or ImportFinding(
            row.place, "no history in it"
        )

    def _in_list(self, row: Located, number: int, names: Names) -> FoundHistory | ImportFinding:
        """Return the history whose records are the items of a row, or why there is none."""
        format = self._recognize.format_of(row.value)
        if format is None:
            return ImportFinding(row.place, "no history in it")
        text = text_of(row.text)
        name, own_name = names.of(
            {}, number=str(number), conversation=format.conversation(row.value)
        )
        return FoundHistory(
            name,
            format,
            self._path,
            DocumentRecords(text, list(elements(text, row.place))),
            own_name=own_name,
        )
