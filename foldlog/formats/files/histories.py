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
from typing import Any

from foldlog.formats.files import found
from foldlog.formats.files.containers import container_at, history_in, history_of
from foldlog.formats.files.found import Found, NotAHistory
from foldlog.formats.files.json_text import RECORD_SIZE_MAX, Unreadable, parse
from foldlog.formats.files.naming import name_of
from foldlog.formats.files.readers import Array, Files, Held, Lines, Reader, elements
from foldlog.formats.files.scanner import Broken, Scanner
from foldlog.formats.format import LOOK_AT, Format, Recognize, first_format
from foldlog.formats.record import Finding

__all__ = ["histories"]

_SUFFIXES = frozenset((".json", ".jsonl", ".ndjson", ".traj"))
_LINES_SUFFIXES = frozenset((".jsonl", ".ndjson"))
_SIDECARS = frozenset(("metadata.json", "base_state.json"))
_NO_HISTORIES = frozenset(("event_cache", ".git"))
"""Folders of copies of events, and of something else."""
_EVENT_FILE = re.compile(r"(?:event-)?(\d{1,18})(?:-.*)?\.json")
_NOTHING = "holds no event of a format that is known here"


def histories(path: Path, recognize: Recognize) -> Iterator[Found | Finding]:
    """The histories at ``path``, in a stable order, and between them what could not be read.

    Raises ``NotAHistory`` where it is a file without one, ``OSError`` where it cannot be read.
    """
    if path.is_dir():
        yield from _in_folder(path, recognize)
    elif path.is_file():
        yield from _in_file(path, recognize)
    else:
        raise NotAHistory(path, "is neither a file nor a folder" if path.exists() else "no such file or folder")


# -- folders ----------------------------------------------------------------------------------------------------------


def _in_folder(folder: Path, recognize: Recognize) -> Iterator[Found | Finding]:
    names = sorted(os.listdir(folder))
    steps = _event_files(names)
    format = first_format((each.value for each in Files(folder, steps[:LOOK_AT])), recognize)
    if format is not None:
        yield _of_event_files(folder, steps, format)
    taken = frozenset(steps if format is not None else ())
    for entry in (folder / name for name in names if name not in taken):
        try:
            if entry.is_dir():
                if not entry.is_symlink() and entry.name not in _NO_HISTORIES:
                    yield from _in_folder(entry, recognize)
            elif entry.suffix in _SUFFIXES and entry.name not in _SIDECARS and entry.is_file():
                yield from _in_file(entry, recognize)
        except NotAHistory as error:
            if not error.foreign:
                yield Finding(str(entry), error.why)
        except OSError as error:
            yield Finding(str(entry), f"cannot be read: {error.strerror}")


def _event_files(names: Iterable[str]) -> list[str]:
    """Return the files that may be a record each, by their names, in their order."""
    numbered = [(int(match[1]), name) for name in names if (match := _EVENT_FILE.fullmatch(name))]
    return [name for _, name in sorted(numbered)]


def _of_event_files(folder: Path, names: list[str], format: Format) -> Found:
    home = folder.absolute().parent if folder.name == "events" else folder.absolute()
    state = {**_sidecar(home / "metadata.json"), **_sidecar(home / "base_state.json")}
    leaf = state.get("leaf_event_id")
    name = name_of(state, home.name) or home.name
    return Found(name, format, folder, Files(folder, names), leaf=leaf if type(leaf) is str else None)


def _sidecar(path: Path) -> dict[str, Any]:
    """What stands beside the events. It is no history, so that it may be missing or damaged."""
    try:
        value = parse(path.read_bytes())
    except (OSError, Unreadable):
        return {}
    return value if type(value) is dict else {}


# -- files ------------------------------------------------------------------------------------------------------------


def _in_file(path: Path, recognize: Recognize) -> Iterator[Found | Finding]:
    yield from _in_lines(path, recognize) if _is_lines(path) else _in_document(path, recognize)


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


def _in_lines(path: Path, recognize: Recognize) -> Iterator[Found | Finding]:
    lines = Lines(path)
    first_problem = ""
    for located in lines:
        format = recognize(located.value)
        if format is not None:
            yield _of_records(path, format, lines)
            return
        if type(history_in(path, located, str(located.line), recognize)) is Found:
            for each in lines:
                yield history_in(path, each, str(each.line), recognize)
            return
        if located.problem is not None and not first_problem:
            first_problem = f"line {located.line}: {located.problem}"
    if path.stat().st_size == 0:
        raise NotAHistory(path, "is empty")
    raise NotAHistory(path, first_problem or _NOTHING, foreign=not first_problem)


def _in_document(path: Path, recognize: Recognize) -> Iterator[Found | Finding]:
    first = _first_character(path)
    if first == "[":
        yield from _in_array(path, recognize)
    elif first == "{":
        yield _in_object(path, recognize)
    else:
        raise NotAHistory(path, "is not JSON" if first else "is empty")


def _first_character(path: Path) -> str:
    with path.open("rb") as file:
        try:
            return Scanner(file).peek()
        except Broken as error:
            raise NotAHistory(path, f"is {error}") from error


def _in_array(path: Path, recognize: Recognize) -> Iterator[Found | Finding]:
    problem = ""
    with path.open("rb") as file:
        for number, located in enumerate(islice(elements(Scanner(file), offsets=True), LOOK_AT)):
            format = recognize(located.value)
            if format is not None:
                yield _of_records(path, format, Array(path))
                return
            if type(history_in(path, located, str(number), recognize)) is Found:
                break
            if located.problem is not None and not problem:
                problem = f"line {located.line}: {located.problem}"
        else:
            raise NotAHistory(path, problem or _NOTHING, foreign=not problem)
    with path.open("rb") as file:
        for number, located in enumerate(elements(Scanner(file), offsets=True)):
            yield history_in(path, located, str(number), recognize)


def _of_records(path: Path, format: Format, reader: Reader) -> Found:
    """The one history of a file, whose records ``reader`` reads."""
    return Found(format.conversation(it.value for it in reader) or path.stem, format, path, reader)


def _in_object(path: Path, recognize: Recognize) -> Found:
    size = path.stat().st_size
    hold = size <= found.HELD_BYTES_MAX
    container = container_at(path, 0, 1, hold=hold)
    history = history_of(path, container, 0, 1, "", recognize, held=hold)
    if history is not None:
        return history
    if container.problem is not None:
        raise NotAHistory(path, f"line {container.problem.line}: {container.problem.problem}")
    try:
        value = parse(path.read_bytes()) if size <= RECORD_SIZE_MAX else None
    except Unreadable as error:
        raise NotAHistory(path, str(error)) from error
    format = recognize(value)
    if format is None:
        raise NotAHistory(path, _NOTHING, foreign=True)
    return _of_records(path, format, Held(path, 1, [value]))
