"""Find the histories below a path: the files that hold histories, and the place of each history in them.

    a file      JSON Lines of records, or of objects that hold a history each; a JSON document: an array of records, an
                object with such an array, an array of such objects
    a folder    with a record a file (``events/12.json``, ``events/event-00012-….json``, ``messages/message_12.json``):
                one history; any other: all histories in the files and folders below it, also behind links

A container holds more than its records (metrics, a task, a patch). That is not imported, except for the name of the
history, its active branch, and what its format knows ``beside`` the records: an answer, what calls of models used.
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

from foldlog._compressed import ZSTD
from foldlog._formats.files.containers import container_at, history_in, history_of
from foldlog._formats.files.found import Found, LeftOut, NotAHistory, Unchanged, leads_on, supported, what_it_is
from foldlog._formats.files.naming import Names
from foldlog._formats.files.readers import Array, JsonLines, Placed, elements, held_in, on_lines, record_in, rows_in
from foldlog._formats.files.scanner import Broken, Scanner
from foldlog._formats.format import LOOK_AT, Contained, Format, Recognize
from foldlog._formats.json_text import RECORD_SIZE_MAX, TOO_LONG, UnreadableJson, parse
from foldlog._formats.lookalikes import Lookalike, lookalike_of_document, lookalike_of_tables, lookalike_of_text
from foldlog._formats.record import ImportFinding, Located, RecordReader, refused, text_or_none
from foldlog._open_files import SQLITE, is_store, open_database, parts_of

_NOTHING = "holds no event of a format that is known here"
_SUFFIXES = frozenset((".json", ".jsonl", ".ndjson", ".traj"))
_COMPRESSED = frozenset((".gz", ".zst", ".bz2", ".xz"))
_MAGIC = (b"\x1f\x8b", b"BZh", b"\xfd7zXZ", b"PK\x03\x04")
_BEGIN = 4096
_DOCUMENT = re.compile(rb"\s*(\[|\{\s*\n)")
"""The beginning of what are not lines with an object each, unless the first line is whole."""
_LINES_SUFFIXES = frozenset((".jsonl", ".ndjson"))
_SIDECARS = frozenset(("metadata.json", "base_state.json"))
_NO_HISTORIES = frozenset(("event_cache", ".git"))
"""Folders of copies of events, and of something else."""
_EMPTY = "is empty; import it again when its program has written to it"
_NOT_JSON = "holds neither a JSON object nor an array; import the JSON or JSON Lines that the agent's program writes"
_EVENT_FILE = re.compile(r"(?:event-|message_)?(\d{1,18})(?:-.*)?\.json")


Look = Callable[[Path], Found | Unchanged | None]
"""Looks at a file before it is opened: returns it unchanged, or with what it has beyond its last import, or None."""


def no_look(path: Path) -> None:
    """Know nothing of a file."""


def histories(
    path: Path, recognize: Recognize, look: Look = no_look
) -> Iterator[Found | LeftOut | Unchanged | ImportFinding]:
    """Yield the histories at ``path`` in a stable order, with the problems and the other files between them. No file is
    opened before ``look`` was asked whether it need not be.

    Raises ``NotAHistory`` for a file without a history, ``OSError`` if it cannot be read.
    """
    if path.is_dir():
        yield from _in_folder(path, path, recognize, look, set())
    elif path.is_file() and (known := look(path)) is not None:
        yield known
    elif path.is_file():
        yield from _File(path, path, recognize).histories()
    else:
        raise NotAHistory(path, "is neither a file nor a folder" if path.exists() else "no such file or folder")


def _contained(root: Path, path: Path, recognize: Recognize, begin: bytes = b"") -> Iterator[Found] | None:
    """Return the histories of a file or folder that a format reads by itself; None where no format does, or where the
    first records are of none, or of one for whose records they cannot pass.
    """
    format = recognize.reader_of(path, begin)
    if format is None or format.files is None:
        return None
    held, passed, first = format.files.histories(path), list[Contained](), list[Any]()
    while len(first) < LOOK_AT and (one := next(held, None)) is not None:
        passed.append(one)
        first += islice((it.value for it in one.records if it.problem is None), LOOK_AT - len(first))
    is_one = 2 * sum(map(format.accepts, first)) >= len(first)
    if first and not (supported(path, recognize.format_of(first)) and is_one):
        return None
    names = Names(root, path, folder=path.is_dir())
    return (
        Found(names.of({}, number=str(number), conversation=name), format, path, records, others=others)
        for number, (name, records, others) in enumerate(chain(passed, held))
    )


def _beginning(path: Path) -> bytes:
    return next(parts_of(path, _BEGIN), b"").removeprefix(BOM_UTF8) if path.is_file() else b""


def told_by(paths: Iterable[str]) -> Iterator[ImportFinding]:
    """Yield what these files are, where their first bytes tell that each is a database, or of a known program."""
    for path in map(Path, paths):
        is_closed = open_database(path) is not None or not os.access(path, os.R_OK)
        if not is_closed and (why := _told_by(path, _beginning(path))):
            yield ImportFinding(str(path), why)


def _told_by(path: Path, begin: bytes) -> str:
    other = lookalike_of_text(begin)
    if begin.startswith(SQLITE):
        if is_store(path):
            return f"is a store; 'foldlog copy {path} TO' copies its conversations"
        tables = [name for (name,) in rows_in(path, "SELECT name FROM sqlite_schema WHERE type = 'table'")]
        if (other := lookalike_of_tables(tables)) is None:
            return "is a SQLite database; docs/how-to/migrating.md says how to import what other libraries keep"
    return "" if other is None else what_it_is(other)


# -- folders ----------------------------------------------------------------------------------------------------------


def _in_folder(
    root: Path, folder: Path, recognize: Recognize, look: Look, seen: set[str]
) -> Iterator[Found | LeftOut | Unchanged | ImportFinding]:
    names = sorted(os.listdir(folder))
    if (contained := _contained(root, folder, recognize)) is not None:
        yield from contained
        return
    # The files whose names say that each may be one record, in the order of the records.
    steps = sorted((int(match[1]), name) for name in names if (match := _EVENT_FILE.fullmatch(name)))
    format = recognize.format_of(record_in(folder / name).value for _, name in steps[:LOOK_AT])
    taken: frozenset[str] = frozenset()
    if isinstance(format, Format):
        yield _of_event_files(root, folder, steps, format)
        taken = frozenset(name for _, name in steps)
    for entry in (folder / name for name in names if name not in taken):
        try:
            if entry.is_dir():
                if entry.name not in _NO_HISTORIES and leads_on(root, entry, seen):
                    yield from _in_folder(root, entry, recognize, look, seen)
            elif (known := look(entry)) is not None:
                yield known
            elif _may_hold_histories(entry) or recognize.reader_of(entry, begin := _beginning(entry)) is not None:
                yield from _File(root, entry, recognize).histories()
            elif begin and not _is_of_another(entry, begin):
                yield LeftOut(entry, is_read=False)
            elif not entry.is_file() and not entry.name.startswith("."):
                why = "is neither a file nor a folder" if entry.exists() else "is a link to what does not exist"
                yield ImportFinding(str(entry), why)
        except NotAHistory as error:
            yield LeftOut(entry) if error.foreign or error.repeats else ImportFinding(str(entry), error.why)
        except OSError as error:
            yield ImportFinding(str(entry), f"cannot be read: {error.strerror}")


def _may_hold_histories(entry: Path) -> bool:
    suffix = Path(entry.stem).suffix if entry.suffix in _COMPRESSED else entry.suffix
    return suffix in _SUFFIXES and entry.name not in _SIDECARS and entry.is_file()


def _is_of_another(entry: Path, begin: bytes) -> bool:
    """Return whether a file belongs to another one, or to the system, or is a database or beside one."""
    is_hidden = entry.name.startswith(".") or entry.name in _SIDECARS
    return is_hidden or begin.startswith(SQLITE) or "-" in entry.suffix  # .db-wal


def _with_missing(steps: list[tuple[int, str]]) -> Iterator[str]:
    """Yield the files of records, and a name for each number that is missing between them. If more are missing than are
    there, the program does not number its records one by one.
    """
    is_row = steps[-1][0] - steps[0][0] < 2 * len(steps)
    for (before, _), (number, name) in pairwise((*steps[:1], *steps)):
        for missing in range(before + 1, number) if is_row else ():
            yield f"event-{missing:05}.json" if name[0] == "e" else f"{'message_' * (name[0] == 'm')}{missing}.json"
        yield name


def _of_event_files(root: Path, folder: Path, steps: list[tuple[int, str]], format: Format) -> Found:
    home = folder.absolute().parent if folder.name in ("events", "messages") else folder.absolute()
    beside = [home / "metadata.json", home / "base_state.json"]
    told = [record_in(path) for path in beside if path.exists()]
    state = {key: each.value[key] for each in told if type(each.value) is dict for key in each.value}
    torn = [
        ImportFinding(each.place, each.problem or str(refused("an object", each.value)))
        for each in told
        if type(each.value) is not dict
    ]
    files = [folder / each for each in _with_missing(steps)]
    reader = Placed(sum(file.stat().st_size for file in files if file.is_file()), partial(map, record_in, files))
    name = Names(root, home, folder=True).of(state, conversation=format.conversation(each.value for each in reader))
    _, usage = format.beside(state, ())
    leaf = text_or_none(state.get("leaf_event_id"))
    return Found(name, format, folder, reader, leaf=leaf, usage=usage, others=beside, findings=torn)


# -- files ------------------------------------------------------------------------------------------------------------


class _File:
    """One file, at the path that is imported or below it, and the histories in it."""

    def __init__(self, root: Path, path: Path, recognize: Recognize) -> None:
        self._root, self._path = root, path
        self._recognize = recognize
        self._names = Names(root, path)

    def histories(self) -> Iterator[Found | ImportFinding]:
        if open_database(self._path) is not None:
            raise NotAHistory(self._path, "is a database that this program has open, or beside one")
        begin = _beginning(self._path)
        if (contained := _contained(self._root, self._path, self._recognize, begin)) is not None:
            return contained
        if begin.startswith(ZSTD):
            packed = JsonLines(self._path, is_packed=True)
            return self._in_rows(packed, packed, are_lines=True)
        if begin.startswith(_MAGIC):
            raise NotAHistory(self._path, "is compressed; decompress it, then import what comes out")
        if why := _told_by(self._path, begin):
            raise NotAHistory(self._path, why)
        lines = JsonLines(self._path)
        return self._in_rows(lines, lines, are_lines=True) if self._is_lines(begin) else self._in_document()

    def _is_lines(self, begin: bytes) -> bool:
        """Return whether the file is JSON Lines: by what it holds; by its name, if that may be either."""
        is_named = self._path.suffix in _LINES_SUFFIXES
        return (is_named and _DOCUMENT.match(begin) is None) or on_lines(self._path, 1 if is_named else 2)

    def _in_rows(self, rows: RecordReader, placed: RecordReader, *, are_lines: bool) -> Iterator[Found | ImportFinding]:
        """Yield the history whose records these rows are, or that in each row: ``placed`` have their offsets too."""
        first = list(islice((row for row in placed if row.problem in (None, TOO_LONG)), LOOK_AT))
        if (format := self._recognize.format_of(it.value for it in first if it.problem is None)) is not None:
            yield from self._of_records(rows, format)
        elif any(map(self._holds_history, first)):
            yield from (self._history_in(row, row.line if are_lines else place) for place, row in enumerate(placed))
        elif self._path.stat().st_size == 0 if are_lines else next(iter(rows), None) is None:
            raise NotAHistory(self._path, _EMPTY, repeats=not are_lines)
        else:
            problem = next((f"line {it.line}: {it.problem}" for it in rows if it.problem is not None), "")
            raise NotAHistory(self._path, problem or _NOTHING, foreign=not problem)

    def _in_document(self) -> Iterator[Found | ImportFinding]:
        first = self._first_character()
        if first == "[":
            yield from self._in_rows(Array(self._path), Placed(0, self._elements), are_lines=False)
        elif first == "{":
            yield self._in_object()
        else:
            raise NotAHistory(self._path, _NOT_JSON if first else _EMPTY)

    def _first_character(self) -> str:
        with self._path.open("rb") as file:
            try:
                return Scanner(file).peek()
            except Broken as error:
                raise NotAHistory(self._path, f"is {error}") from error

    def _elements(self) -> Iterator[Located]:
        with self._path.open("rb") as file:
            yield from elements(Scanner(file), offsets=True)

    def _of_records(self, reader: RecordReader, recognized: Format | Lookalike | None) -> Iterator[Found]:
        format = supported(self._path, recognized)
        if format is not None:
            name = self._names.of({}, conversation=format.conversation(it.value for it in reader))
            yield Found(name, format, self._path, reader)

    def _in_object(self) -> Found:
        size = self._path.stat().st_size
        container = container_at(self._path, 0, 1)
        if (other := lookalike_of_document(container.keys)) is not None:
            raise NotAHistory(self._path, what_it_is(other))
        history = history_of(self._path, container, 0, 1, "", self._names, self._recognize)
        if history is not None:
            return history
        if container.problem is not None:
            raise NotAHistory(self._path, f"line {container.problem.line}: {container.problem.problem}")
        try:
            value = parse(self._path.read_bytes()) if size <= RECORD_SIZE_MAX else None
        except UnreadableJson as error:
            raise NotAHistory(self._path, str(error)) from error
        for history in self._of_records(held_in(self._path, 1, [value]), self._recognize.format_of((value,))):
            return history
        if container.arrays and not any(container.arrays.values()):
            raise NotAHistory(self._path, _EMPTY, repeats=True)
        raise NotAHistory(self._path, _NOTHING, foreign=True)

    def _holds_history(self, located: Located) -> bool:
        """Return whether one element of the file is an object with a history, even if that history cannot be
        imported.
        """
        try:
            return type(history_in(self._path, located, "", Names(self._path, self._path), self._recognize)) is Found
        except NotAHistory:
            return True

    def _history_in(self, located: Located, number: int) -> Found | ImportFinding:
        try:
            return history_in(self._path, located, str(number), self._names, self._recognize)
        except NotAHistory as error:
            return ImportFinding(f"{self._path}:{located.line}", error.why)
