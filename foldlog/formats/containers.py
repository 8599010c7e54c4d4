"""From a path to the histories below it: which files hold some, and where in them each one stands.

    a file      JSON Lines of records, or of objects that hold a history each; a JSON document: an array of records, an
                object with such an array, an array of such objects
    a folder    with a record a file (``events/12.json``, ``events/event-00012-….json``): one history; any other: all
                histories in the files and folders below it

A container says more than its records (metrics, a task, a patch): that is no event and is not imported, but for what
names the history and its active branch.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from foldlog.formats.jsontext import RECORD_SIZE_MAX, TOO_LONG, Unreadable, parse
from foldlog.formats.readers import Array, Files, Held, Lines, Located, Reader, elements
from foldlog.formats.record import described
from foldlog.formats.registry import Finding
from foldlog.formats.scanner import Broken, Scanner
from foldlog.formats.shapes import CONTAINER_KEYS, LOOK_AT, Looks, format_of_all, format_of_container, name_in, name_of
from foldlog.formats.source import HELD_BYTES_MAX, Source

__all__ = ["NotAHistory", "histories"]

_SUFFIXES = frozenset((".json", ".jsonl", ".ndjson", ".traj"))
_LINES_SUFFIXES = frozenset((".jsonl", ".ndjson"))
_SIDECARS = frozenset(("metadata.json", "base_state.json"))
_NO_HISTORIES = frozenset(("event_cache", ".git"))
"""Folders of copies of events, and of something else."""
_NAME_MAX = 1_000
_EVENT_FILE = re.compile(r"(?:event-)?(\d{1,18})(?:-.*)?\.json")


class NotAHistory(ValueError):
    """This path holds no history, and nothing of it is imported.

    ``why`` says what it is instead. ``foreign`` is true where it is sound JSON of something else, which is no cause for
    concern among other files.
    """

    def __init__(self, path: Path, why: str, *, foreign: bool = False) -> None:
        super().__init__(f"{path}: {why}")
        self.path, self.why, self.foreign = path, why, foreign


def histories(path: Path, looks: Looks) -> Iterator[Source | Finding]:
    """The histories at ``path``, in a stable order, and between them what could not be read.

    Raises ``NotAHistory`` where it is a file without one, ``OSError`` where it cannot be read.
    """
    if path.is_dir():
        yield from _in_folder(path, looks)
    elif path.is_file():
        yield from _in_file(path, looks)
    else:
        raise NotAHistory(path, "is neither a file nor a folder" if path.exists() else "no such file or folder")


# -- folders ----------------------------------------------------------------------------------------------------------


def _in_folder(folder: Path, looks: Looks) -> Iterator[Source | Finding]:
    names = sorted(os.listdir(folder))
    steps = _event_files(folder, names, looks)
    if steps:
        yield _of_event_files(folder, steps, looks)
    taken = frozenset(steps)
    for entry in (folder / name for name in names if name not in taken):
        try:
            if entry.is_dir():
                if not entry.is_symlink() and entry.name not in _NO_HISTORIES:
                    yield from _in_folder(entry, looks)
            elif entry.suffix in _SUFFIXES and entry.name not in _SIDECARS and entry.is_file():
                yield from _in_file(entry, looks)
        except NotAHistory as error:
            if not error.foreign:
                yield Finding(str(entry), error.why)
        except OSError as error:
            yield Finding(str(entry), f"cannot be read: {error.strerror}")


def _event_files(folder: Path, names: Iterable[str], looks: Looks) -> list[str]:
    """The files of a folder that are a record each, in their order; none where they are something else."""
    numbered = [(int(match[1]), name) for name in names if (match := _EVENT_FILE.fullmatch(name))]
    steps = [name for _, name in sorted(numbered)]
    first = Files(folder, steps[:LOOK_AT])
    return steps if format_of_all((each.value for each in first), looks) is not None else []


def _of_event_files(folder: Path, names: list[str], looks: Looks) -> Source:
    reader = Files(folder, names)
    format = format_of_all((each.value for each in reader), looks) or ""
    home = folder.absolute().parent if folder.name == "events" else folder.absolute()
    state = {**_sidecar(home / "metadata.json"), **_sidecar(home / "base_state.json")}
    leaf = state.get("leaf_event_id")
    name = name_of(state, home.name) or home.name
    return Source(name, format, folder, reader, leaf=leaf if type(leaf) is str else None)


def _sidecar(path: Path) -> dict[str, Any]:
    """What stands beside the events. It is no history, so that it may be missing or damaged."""
    try:
        value = parse(path.read_bytes())
    except (OSError, Unreadable):
        return {}
    return value if type(value) is dict else {}


# -- files ------------------------------------------------------------------------------------------------------------


def _in_file(path: Path, looks: Looks) -> Iterator[Source | Finding]:
    yield from _in_lines(path, looks) if _is_lines(path) else _in_document(path, looks)


def _is_lines(path: Path) -> bool:
    """JSON Lines by name, or by an object that ends with the first of several lines."""
    if path.suffix in _LINES_SUFFIXES:
        return True
    with path.open("rb") as file:
        first, second = file.readline(2**20), file.readline(2**20)
    try:
        return type(parse(first)) is dict and second.strip() != b""
    except Unreadable:
        return False


def _in_lines(path: Path, looks: Looks) -> Iterator[Source | Finding]:
    lines = Lines(path)
    first_problem = ""
    for located in lines:
        format = looks(located.value)
        if format is not None:
            yield _of_records(path, format, lines)
            return
        if type(_history(path, located, str(located.line), looks)) is Source:
            for each in lines:
                yield _history(path, each, str(each.line), looks)
            return
        if located.problem is not None and not first_problem:
            first_problem = f"line {located.line}: {located.problem}"
    if path.stat().st_size == 0:
        raise NotAHistory(path, "is empty")
    raise NotAHistory(path, first_problem or _NOTHING, foreign=not first_problem)


def _in_document(path: Path, looks: Looks) -> Iterator[Source | Finding]:
    first = _first_character(path)
    if first == "[":
        yield from _in_array(path, looks)
    elif first == "{":
        yield _in_object(path, looks)
    else:
        raise NotAHistory(path, "is not JSON" if first else "is empty")


def _first_character(path: Path) -> str:
    with path.open("rb") as file:
        try:
            return Scanner(file).peek()
        except Broken as error:
            raise NotAHistory(path, f"is {error}") from error


def _in_array(path: Path, looks: Looks) -> Iterator[Source | Finding]:
    problem = ""
    with path.open("rb") as file:
        for number, located in enumerate(islice(elements(Scanner(file), offsets=True), LOOK_AT)):
            format = looks(located.value)
            if format is not None:
                yield _of_records(path, format, Array(path))
                return
            if type(_history(path, located, str(number), looks)) is Source:
                break
            if located.problem is not None and not problem:
                problem = f"line {located.line}: {located.problem}"
        else:
            raise NotAHistory(path, problem or _NOTHING, foreign=not problem)
    with path.open("rb") as file:
        for number, located in enumerate(elements(Scanner(file), offsets=True)):
            yield _history(path, located, str(number), looks)


def _of_records(path: Path, format: str, reader: Reader) -> Source:
    """The one history of a file, whose records ``reader`` reads."""
    return Source(name_in(format, (it.value for it in reader)) or path.stem, format, path, reader)


def _in_object(path: Path, looks: Looks) -> Source:
    size = path.stat().st_size
    hold = size <= HELD_BYTES_MAX
    container = _container_at(path, 0, 1, hold=hold)
    found = _source(path, container, 0, 1, "", looks, held=hold)
    if found is not None:
        return found
    if container.problem is not None:
        raise NotAHistory(path, f"line {container.problem.line}: {container.problem.problem}")
    try:
        value = parse(path.read_bytes()) if size <= RECORD_SIZE_MAX else None
    except Unreadable as error:
        raise NotAHistory(path, str(error)) from error
    format = looks(value)
    if format is None:
        raise NotAHistory(path, _NOTHING, foreign=True)
    return _of_records(path, format, Held(path, 1, [value]))


# -- objects that hold a history --------------------------------------------------------------------------------------


class _Container(NamedTuple):
    """An object: its short fields, the arrays that may be a history, and where it breaks off."""

    fields: dict[str, Any]
    arrays: dict[str, list[Located]]
    problem: Located | None


def _history(path: Path, located: Located, number: str, looks: Looks) -> Source | Finding:
    """The history in one line of a file, or in one element of an array."""
    value, place = located.value, f"{path}:{located.line}"
    if located.problem == TOO_LONG:  # for a record, not for a history
        container = _container_at(path, located.offset, located.line, hold=False)
        found = _source(path, container, located.offset, located.line, number, looks, held=False)
        return found or Finding(place, TOO_LONG)
    if located.problem is not None:
        return Finding(place, located.problem)
    if type(value) is list:
        value = {"messages": value}
    if type(value) is not dict:
        return Finding(place, f"expected an object that holds a history, found {described(value)}")
    arrays = {key: value[key] for key in CONTAINER_KEYS if type(value.get(key)) is list}
    found_at = format_of_container(arrays, looks)
    if found_at is None:
        return Finding(place, "no history in it")
    key, format = found_at
    name = name_of(value, path.stem) or f"{path.stem}:{number}"
    return Source(name, format, path, Held(path, located.line, arrays[key]))


def _container_at(path: Path, offset: int, line: int, *, hold: bool) -> _Container:
    """The object that begins at ``offset``: of its arrays the elements if they are to be held, else the first few."""
    fields: dict[str, Any] = {}
    arrays: dict[str, list[Located]] = {}
    with path.open("rb") as file:
        scanner = Scanner(file, offset=offset, line=line)
        try:
            scanner.take("{")
            while scanner.peek() != "}":
                key = str(scanner.value())
                scanner.take(":")
                if key in CONTAINER_KEYS and scanner.peek() == "[":
                    if not _array(scanner, arrays.setdefault(key, []), hold=hold):
                        return _Container(fields, arrays, None)  # its last element says why
                else:
                    _field(scanner, key, fields)
                if scanner.peek() != "}":
                    scanner.take(",")
            scanner.take("}")
            if offset == 0 and scanner.peek():
                raise Broken("not JSON: more text after the end of the object")
        except Unreadable as error:
            return _Container(fields, arrays, Located(scanner.line, 0, None, str(error)))
    return _Container(fields, arrays, None)


def _array(scanner: Scanner, into: list[Located], *, hold: bool) -> bool:
    """Go over an array, keeping its elements, or the first few. False where it breaks off."""
    array = elements(scanner)
    while True:
        try:
            element = next(array)
        except StopIteration as end:
            return bool(end.value)
        if hold or len(into) < LOOK_AT:
            into.append(element)


def _field(scanner: Scanner, key: str, fields: dict[str, Any]) -> None:
    try:
        value = scanner.value()
    except Broken:
        raise
    except Unreadable:
        return  # too long to be a name
    if type(value) is int or (type(value) is str and len(value) <= _NAME_MAX) or key == "conversation":
        fields[key] = value


def _source(
    path: Path, container: _Container, offset: int, line: int, number: str, looks: Looks, *, held: bool
) -> Source | None:
    arrays = {key: [located.value for located in array] for key, array in container.arrays.items()}
    found = format_of_container(arrays, looks)
    if found is None:
        return None
    key, format = found
    after = () if container.problem is None else (container.problem,)
    return Source(
        name_of(container.fields, path.stem) or (f"{path.stem}:{number}" if number else path.stem),
        format,
        path,
        Array(path, offset=offset, line=line, key=key, after=after),
        held=[*container.arrays[key], *after] if held else None,
    )


_NOTHING = "holds no event of a format that is known here"
