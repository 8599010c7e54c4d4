"""One history that was found at a path, or the reason for finding none."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

from foldlog._formats.format import Format
from foldlog._formats.record import ImportFinding, RecordReader
from foldlog.eventstore import EventStoreError


class Found(NamedTuple):
    """One history at a path: its name, its format, and the place of its records.

    ``usage`` is what the container tells of calls of models: see ``Format.beside``. ``others`` are
    files that were read beside those at ``path``, with ``findings``. ``title``: see ``Contained``.
    """

    name: str
    format: Format
    path: Path
    reader: RecordReader
    usage: Sequence[dict[str, Any]] = ()
    others: Sequence[Path] = ()
    findings: Sequence[ImportFinding] = ()
    title: str = ""


class LeftOut(NamedTuple):
    """A file in a folder that is sound, and holds no history of a known format; or one that was not
    opened, because no history has such a name.
    """

    path: Path
    is_read: bool = True


def state_of(path: str) -> tuple[int, ...]:
    """Return what differs when a file was changed, replaced, or written to a log beside it, as by
    SQLite; empty if there is none. Cost: the status of both.
    """
    state: tuple[int, ...] = ()
    for name in (path, f"{path}-wal"):
        with suppress(OSError):
            status = os.stat(name)
            state += status.st_ino, status.st_size, status.st_mtime_ns
    return state


def leads_on(root: str | PathLike[str], folder: str | PathLike[str], seen: set[str]) -> bool:
    """Return whether a folder is to be read, once: if not ``seen``, nor a link to one above or
    below the root.
    """
    real = os.path.realpath(folder)
    top = os.path.realpath(root)
    if real in seen or (os.path.islink(folder) and os.path.commonpath((real, top)) in (real, top)):
        return False
    seen.add(real)
    return True


def files_below(path: str | PathLike[str]) -> Iterator[str]:
    """Yield the file at a path, or the files in a folder and in those below it, also behind links:
    each folder once.
    """
    if os.path.isfile(path):
        yield str(path)
    seen = set[str]()
    for folder, below, names in os.walk(path, followlinks=True):
        below[:] = [name for name in below if leads_on(path, os.path.join(folder, name), seen)]
        yield from filter(os.path.isfile, (os.path.join(folder, name) for name in names))


class Unchanged(NamedTuple):
    """A file that is as it was when it was imported, and was not opened."""

    path: Path


class SourceRefused(EventStoreError):
    """A source is not imported, because redacted or erased content would come back with it."""


class NotAHistory(EventStoreError, ValueError):
    """This path holds no history, so nothing is imported from it.

    ``why`` says what it is instead. ``foreign`` is true for sound JSON of another kind, which is
    harmless among other files; ``repeats`` for a list of what the histories beside it say.
    """

    def __init__(
        self, path: Path, why: str, *, foreign: bool = False, repeats: bool = False
    ) -> None:
        super().__init__(f"{path!s:.1000}: {why}")
        self.path = path
        self.why = why
        self.foreign = foreign
        self.repeats = repeats
