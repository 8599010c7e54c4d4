"""A history that was found at a path, or the reason why no history was found."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import NamedTuple

from foldlog.eventstore import EventStoreError
from foldlog.formats.format import Format
from foldlog.formats.record import Fields, ImportFinding, RecordReader


class FoundHistory(NamedTuple):
    """One history at a path.

    ``reader`` reads the records. ``usage`` is the usage of models that ``Format.beside`` read.
    ``others`` are further files that were read for the history. ``findings`` are the problems found
    in ``others``. ``title`` and ``link`` are described at ``Contained``. ``own_name`` is described
    at ``Names.of``.
    """

    name: str
    format: Format
    path: Path
    reader: RecordReader
    usage: Sequence[Fields] = ()
    others: Sequence[Path] = ()
    findings: Sequence[ImportFinding] = ()
    title: str = ""
    own_name: str = ""
    link: Mapping[str, str] = {}


class LeftOut(NamedTuple):
    """A file that an import of a folder leaves out. If ``is_read`` is true, the file is intact but
    contains no history of a known format. If ``is_read`` is false, the file was not opened, because
    its name is not a name that histories have.
    """

    path: Path
    is_read: bool = True


def enter(root: str | PathLike[str], folder: str | PathLike[str], visited: set[str]) -> bool:
    """Return whether a search should enter a folder, and then add the folder to ``visited``. The
    search skips ``visited`` folders, and links to a folder above or below the root.
    """
    real = os.path.realpath(folder)
    top = os.path.realpath(root)
    if real in visited or (
        os.path.islink(folder) and os.path.commonpath((real, top)) in (real, top)
    ):
        return False
    visited.add(real)
    return True


def files_below(path: str | PathLike[str]) -> Iterator[str]:
    """Yield the path, if it is a file, and all files below it. Links are followed, but no folder is
    read twice.
    """
    if os.path.isfile(path):
        yield str(path)
    visited = set[str]()
    for folder, below, names in os.walk(path, followlinks=True):
        below[:] = [name for name in below if enter(path, os.path.join(folder, name), visited)]
        yield from filter(os.path.isfile, (os.path.join(folder, name) for name in names))


class Unchanged(NamedTuple):
    """A file that was not opened, because it has not changed since its last import."""

    path: Path


class SourceRefused(EventStoreError):
    """A source is not imported, because the source would bring back redacted or erased content."""


class NotAHistory(EventStoreError, ValueError):
    """There is no history at this path, so nothing is imported from the path.

    ``why`` says what is at the path. ``foreign`` is true if an import of a folder skips the file:
    the file is valid JSON without a history, has no records, or has the content of other files in
    its folder.
    """

    def __init__(self, path: Path, why: str, *, foreign: bool = False) -> None:
        super().__init__(f"{path!s:.1000}: {why}")
        self.path = path
        self.why = why
        self.foreign = foreign
