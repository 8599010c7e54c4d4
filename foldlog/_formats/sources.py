"""Open the paths that a user names: yield their histories and the problems."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from os import PathLike, fspath
from pathlib import Path
from typing import Any

from foldlog._formats.detection import format_of, recognize
from foldlog._formats.files.found import Found, LeftOut, NotAHistory, Unchanged
from foldlog._formats.files.histories import Look, histories, no_look
from foldlog._formats.format import Format, Recognize
from foldlog._formats.record import ImportFinding
from foldlog._formats.registry import AUTO, formats
from foldlog._formats.source import Source
from foldlog.eventstore import InvalidArgument

_Histories = Iterator[Found | LeftOut | Unchanged | ImportFinding]
_State = tuple[int, ...]


class Sources:
    """The histories in some files and folders: iterate it for one ``Source`` after the other.

    As of the last iteration, ``findings`` are the problems that belong to no history, ``left_out`` the files in folders
    that are of no known format, and ``not_opened`` those with names that histories do not have.
    """

    def __init__(
        self,
        paths: Iterable[Path],
        recognize: Recognize,
        prefix: str = "",
        look: Look = no_look,
    ) -> None:
        self.findings: list[ImportFinding] = []
        self.left_out: list[Path] = []
        self.not_opened: list[Path] = []
        self._paths = tuple(paths)
        self._recognize = recognize
        self._prefix = prefix
        self._look = look
        begun = None
        for path in self._paths:
            begun = self._begin(path)
        self._begun = begun if len(self._paths) == 1 else None
        """The histories of the only path, of which the first has been read, and the state of the file then."""

    def _begin(self, path: Path) -> tuple[_Histories, _State | None]:
        """Return the histories of a path. Raises ``NotAHistory`` if it has none."""
        found = histories(path, self._recognize, self._look)
        passed: list[LeftOut | ImportFinding] = []
        try:
            state = _state(path)
            for each in found:
                if isinstance(each, Found | Unchanged):
                    return chain(iter((*passed, each)), found), state  # it lets go of the first when it was taken
                passed.append(each)
        except OSError as error:
            raise NotAHistory(path, f"cannot be read: {error.strerror}") from error
        problem = next((each for each in passed if isinstance(each, ImportFinding)), None)
        if problem is not None:
            raise NotAHistory(path, f"holds no history that can be imported; {problem}")
        raise NotAHistory(
            path.absolute(),
            "holds no history, nor does a folder below it; the files of histories end in .json, .jsonl, "
            ".ndjson or .traj; decompress compressed ones first",
        )

    def _taken(self, path: Path) -> _Histories | None:
        """Return the histories that were begun, once; None if the file has changed since, or for a folder."""
        begun, self._begun = self._begun, None
        if begun is None or begun[1] is None or begun[1] != _state(path):
            return None
        return begun[0]

    def size_bytes(self) -> int:
        """Return the size of the files under the paths in bytes: about the size of what will be read. Cost: the status
        of each file.
        """
        files = (file for path in self._paths for file in (path.rglob("*") if path.is_dir() else (path,)))
        return sum(file.stat().st_size for file in files if file.is_file())

    def __iter__(self) -> Iterator[Source]:
        self.findings.clear()
        self.left_out.clear()
        self.not_opened.clear()
        for path in self._paths:
            try:
                for found in self._taken(path) or histories(path, self._recognize, self._look):
                    if isinstance(found, Found):
                        name = found.name if found.grown else found.name.prefixed(self._prefix)
                        yield Source(found._replace(name=name), self._prefix)
                    elif isinstance(found, LeftOut):
                        (self.left_out if found.is_read else self.not_opened).append(found.path)
                    elif isinstance(found, ImportFinding):
                        self.findings.append(found)
            except NotAHistory as error:  # it was one when it was looked at
                self.findings.append(ImportFinding(str(path), error.why))
            except OSError as error:
                self.findings.append(ImportFinding(str(path), f"cannot be read any further: {error.strerror}"))


def _state(path: Path) -> _State | None:
    """Return what differs when a file was changed or replaced; None for a folder."""
    if not path.is_file():
        return None
    status = path.stat()
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def open_sources(
    paths: Iterable[str | PathLike[str]],
    format: str = AUTO,
    *,
    prefix: str = "",
    look: Look = no_look,
) -> Sources:
    """Open the histories at ``paths``, each a file or a folder, in the order of the paths, and in a stable order below
    each.

    ``prefix`` is put before the name of each history. ``look`` is asked for each file before it is opened.

    Raises ``NotAHistory`` where one of the paths holds no history (then nothing is imported from the others), and
    ``UnknownFormat``. Cost: reading the beginning of each path.
    """
    try:
        return Sources((Path(fspath(path)) for path in paths), recognize(format), prefix, look)
    except NotAHistory as error:
        if not error.foreign:
            raise
        if format == AUTO:
            known = ", ".join(formats())
            raise NotAHistory(error.path, f"{error.why}; --format NAME chooses one of {known}") from error
        other = _recognized(error.path)
        hint = "" if other is None else f"; its records are of the format {other!r}: name that one, or none"
        raise NotAHistory(error.path, f"holds no event of the format {format!r}{hint}") from error


def _recognized(path: Path) -> str | None:
    """Return the format of the first history at ``path``; None where no format is recognized."""
    try:
        return next((found.format.name for found in histories(path, recognize()) if isinstance(found, Found)), None)
    except NotAHistory:
        return None


def detect(source: str | PathLike[str] | Iterable[Any]) -> str:
    """Return the format of a file, a folder, or records: one of ``FORMATS``.

    Raises ``NotAHistory`` for a path without a history, ``InvalidArgument`` for records of no known format.
    """
    if isinstance(source, str | PathLike):
        return next(iter(open_sources([source]))).format
    format = format_of(source)
    if isinstance(format, Format):
        return format.name
    if format is None:
        raise InvalidArgument("these records are of no format that is known here")
    raise InvalidArgument(f"these records are of {format.name}, which foldlog cannot import{format.hint}")
