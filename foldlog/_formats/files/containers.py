"""Find the history in an object that also holds other things: an answer, metrics, a task, a patch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from foldlog._formats.files.found import Found, NotAHistory, supported, what_it_is
from foldlog._formats.files.naming import Names
from foldlog._formats.files.readers import Array, elements, held_in
from foldlog._formats.files.scanner import Broken, Scanner
from foldlog._formats.format import LOOK_AT, Format, Recognize
from foldlog._formats.json_text import TOO_LONG, UnreadableJson
from foldlog._formats.lookalikes import lookalike_of_document
from foldlog._formats.record import ImportFinding, Located, described

CONTAINER_KEYS = ("events", "history", "trajectory", "messages", "traj")
"""The keys under which an object may hold the records of a history."""

_NAME_MAX = 1_000
_BESIDE = frozenset(("conversation", "response", "info", "metrics", "cost", "timestamp"))
"""Fields that are read whatever their length and type: see ``Format.beside``."""


class Container(NamedTuple):
    """An object: its keys, some fields, the arrays that may be a history, and the problem where it breaks off."""

    fields: dict[str, Any]
    arrays: dict[str, list[Located]]
    problem: Located | None
    keys: Sequence[str] = ()


def history_in(path: Path, located: Located, number: str, names: Names, recognize: Recognize) -> Found | ImportFinding:
    """Return the history in one line of a file, or in one element of an array. Raises ``NotAHistory``."""
    value, place = located.value, f"{path}:{located.line}"
    if located.problem == TOO_LONG:  # for a record, not for a history
        container = container_at(path, located.offset, located.line)
        found = history_of(path, container, located.offset, located.line, number, names, recognize)
        return ImportFinding(place, TOO_LONG) if found is None else found
    if located.problem is not None:
        return ImportFinding(place, located.problem)
    if type(value) is list:
        value = {"messages": value}
    if type(value) is not dict:
        return ImportFinding(place, f"expected an object that holds a history, found {described(value)}")
    if (other := lookalike_of_document(value)) is not None:
        raise NotAHistory(path, what_it_is(other))
    arrays = {key: value[key] for key in CONTAINER_KEYS if type(value.get(key)) is list}
    found_at = _recognized(path, arrays, recognize)
    if found_at is None:
        return ImportFinding(place, "no history in it")
    key, format = found_at
    answer, usage = format.beside(value, arrays[key])
    name = names.of(value, number=number, conversation=format.conversation([*answer, *arrays[key]]))
    return Found(name, format, path, held_in(path, located.line, [*arrays[key], *answer]), usage=usage)


def container_at(path: Path, offset: int, line: int) -> Container:
    """Return the object that begins at ``offset``: of its arrays the first few elements and the last."""
    fields: dict[str, Any] = {}
    arrays: dict[str, list[Located]] = {}
    keys: list[str] = []
    with path.open("rb") as file:
        scanner = Scanner(file, offset=offset, line=line)
        try:
            for key in scanner.each_key():
                keys.append(key)
                if key in CONTAINER_KEYS and scanner.peek() == "[":
                    if not _array(scanner, arrays.setdefault(key, [])):
                        return Container(fields, arrays, None, keys)  # its last element says why
                else:
                    _field(scanner, key, fields)
            if offset == 0 and scanner.peek():
                raise Broken("not JSON: more text after the end of the object")
        except UnreadableJson as error:
            return Container(fields, arrays, scanner.located(error), keys)
    return Container(fields, arrays, None, keys)


def _array(scanner: Scanner, into: list[Located]) -> bool:
    """Read an array, and keep the first few elements and the last. Return False if it breaks off."""
    array = elements(scanner)
    while True:
        try:
            element = next(array)
        except StopIteration as end:
            return bool(end.value)
        del into[LOOK_AT:]
        into.append(element)


def _field(scanner: Scanner, key: str, fields: dict[str, Any]) -> None:
    try:
        value = scanner.value()
    except Broken:
        raise
    except UnreadableJson:
        return  # too long to be a name
    if type(value) is int or (type(value) is str and len(value) <= _NAME_MAX) or key in _BESIDE:
        fields[key] = value


def history_of(
    path: Path, container: Container, offset: int, line: int, number: str, names: Names, recognize: Recognize
) -> Found | None:
    """Return the history in a container, or None if it has none."""
    arrays = {key: [located.value for located in array] for key, array in container.arrays.items()}
    found = _recognized(path, arrays, recognize)
    if found is None:
        return None
    key, format = found
    answer, usage = format.beside(container.fields, arrays[key])
    after = (
        [Located(line, 0, record, None, str(path)) for record in answer]
        if container.problem is None
        else [container.problem]
    )
    name = names.of(container.fields, number=number, conversation=format.conversation([*answer, *arrays[key]]))
    return Found(name, format, path, Array(path, offset=offset, line=line, key=key, after=after), usage=usage)


def _recognized(path: Path, lists: Mapping[str, Iterable[Any]], recognize: Recognize) -> tuple[str, Format] | None:
    """Return the key of the array that holds the history's records, and their format."""
    for key in CONTAINER_KEYS:
        if key in lists and (format := supported(path, recognize.format_of(lists[key]))) is not None:
            return key, format
    return None
