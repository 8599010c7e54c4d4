"""Import what is found at a place: append what is new of it, or begin a fork at the first record
that differs.

An import is a copy. It never takes back or repairs what is here, and no question is decided twice:
which conversation a place became is a row (``places``), and a record is recognized by its hash. A
source that was written again before a redacted record is refused, since what was redacted could
come back unrecognized; so is one that was erased.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from hashlib import blake2b
from itertools import count
from os import path as os_path
from pathlib import Path
from typing import Final, NamedTuple

from foldlog._archive.comparing import NewSource, SourceImport
from foldlog._archive.reading import LineReading, state_of
from foldlog._archive.writing import Imported, SourceOptions
from foldlog._formats.detection import of_lines, recognize
from foldlog._formats.files.found_sources import Found, LeftOut, NotAHistory, Unchanged
from foldlog._formats.files.histories import histories
from foldlog._formats.files.naming import Names
from foldlog._formats.files.readers import JsonLines
from foldlog._formats.format import Format
from foldlog._formats.record import ImportFinding
from foldlog._formats.registry import AUTO, format_named
from foldlog.eventstore import EventStoreError, InvalidArgument, Store, VersionConflict
from foldlog.eventstore.recorders.base import Reader
from foldlog.eventstore.sources.tables import Place, Source, Sources

_TRIES: Final = 5
_TOGETHER_BYTES: Final = 2 * 2**20
"""The bytes of short new sources that one transaction writes."""
_SHORT_BYTES: Final = 2**20
_PLACE_BYTES: Final = 16
_AtPlace = tuple[str, Source | None, Sequence[Place]]
"""The conversation that a place became, its source, and what is known of the next place in its
file.
"""
_NO_HISTORY: Final = "holds no history that can be imported"


class Failed(NamedTuple):
    """A source that was not imported, or as far as ``added`` records are here now, and why."""

    conversation: str
    format: str
    path: Path
    error: Exception
    added: int = 0


class Import:
    """Imports the sources at some paths, all with the same options: iterate it for the outcome of
    each.

    As of the last iteration, ``findings`` are the problems that belong to no source, ``left_out``
    the files in folders that are of no known format, and ``not_opened`` those with names that
    histories do not have.

    ``again`` lets a source in whose place or beginning was erased or redacted, under another name.
    ``only`` imports of a file with several histories the one of this name. A record that
    ``is_secret`` comes in as what stays of a redacted one. ``where`` is where sources were written,
    as far as their records do not say it.
    """

    def __init__(
        self,
        store: Store,
        paths: Iterable[Path],
        format: str = AUTO,
        *,
        prefix: str = "",
        conversation: str | None = None,
        read_all: bool = False,
        again: bool = False,
        only: str | None = None,
        is_secret: Callable[[bytes], bool] | None = None,
        where: Mapping[str, str] | None = None,
    ) -> None:
        self._store, self._paths, self._only = store, list(paths), only
        self._options = SourceOptions(prefix, again, is_secret, where or {})
        self._conversation = conversation
        self._recognize = recognize(format)
        self._names_place = (format, prefix, conversation or "")
        self._reads_all = read_all
        self.findings = list[ImportFinding]()
        self.left_out = list[Path]()
        self.not_opened = list[Path]()
        self._waiting = list[NewSource]()
        self._looked = dict[bytes, list[Place]]()
        """What is known of the places at which an import looked, until it reads what is there."""

    def __iter__(self) -> Iterator[Imported | Failed]:
        self.findings = []
        self.left_out = []
        self.not_opened = []
        self._looked.clear()
        if self._conversation is not None:
            self._check_is_one()
        for path in self._paths:
            is_empty = True
            before = len(self.findings)
            try:
                for outcome in self._below(path):
                    is_empty = False
                    yield outcome
                if is_empty and len(self.findings) == before and len(self._paths) > 1:
                    self.findings.append(ImportFinding(str(path), _NO_HISTORY))
            except NotAHistory as error:
                self.findings.append(ImportFinding(str(path), error.why))
            except OSError as error:
                self.findings.append(ImportFinding(str(path), f"cannot be read: {error.strerror}"))

    def has_place(self, path: Path) -> bool:
        """Return whether a file was imported with these options."""
        return bool(self._known(self._place(path, 0)))

    def is_here(self, path: Path) -> bool:
        """Return whether a file is as it was when it was imported last with these options."""
        return _is_as_it_was(path, self._known(self._place(path, 0)))

    def nothing(self) -> NotAHistory:
        """Return the error for paths of which nothing could be imported."""
        path = self._paths[0] if self._paths else Path()
        first = next(iter(self.findings), None)
        if first is not None and first.place == str(path):
            return NotAHistory(path, first.problem)
        return NotAHistory(path, _NO_HISTORY + (f"; {first}" if first else ""))

    def _check_is_one(self) -> None:
        """Raise ``InvalidArgument`` where several sources would be one conversation. Cost: what
        finding them costs.
        """
        number = 0
        for path in self._paths:
            with suppress(NotAHistory, OSError):
                found = histories(path, self._recognize, lambda file: None)
                number += sum(isinstance(each, Found) for each in found)
        if number > 1:
            raise InvalidArgument(
                f"--conversation {self._conversation!r} names one conversation, and there are"
                f" {number:,} at these paths; leave it out, or name one file"
            )

    def _below(self, root: Path) -> Iterator[Imported | Failed]:
        for found, place in self._sources_below(root):
            if isinstance(found, Unchanged):
                new = None
            else:
                new = self._short_and_new(found, place)
            if new is not None:
                self._waiting.append(new)
                if sum(each.size for each in self._waiting) < _TOGETHER_BYTES:
                    continue
            yield from self._write_waiting()
            if isinstance(found, Unchanged):
                yield from self._unchanged(found.path)
            elif new is None:
                yield self._import(found, place)
        yield from self._write_waiting()

    def _sources_below(self, root: Path) -> Iterator[tuple[Found | Unchanged, bytes]]:
        """Yield the sources, each with its place. Report what is not a source."""
        numbers = dict[Path, Iterator[int]]()
        for found in histories(root, self._recognize, partial(self._look, root)):
            if isinstance(found, Unchanged):
                yield found, b""
            elif isinstance(found, LeftOut):
                (self.left_out if found.is_read else self.not_opened).append(found.path)
            elif isinstance(found, ImportFinding):
                self.findings.append(found)
            else:
                number = next(numbers.setdefault(found.path, count()))
                is_other = (
                    self._only not in (None, found.name) and type(found.reader) is not JsonLines
                )
                if not is_other:
                    yield found, self._place(found.path, number)

    # -- files that are as they were
    # ----------------------------------------------------------------------------------

    def _look(self, root: Path, path: Path) -> Found | Unchanged | None:
        """Return a file that is as it was when it was imported last; a log whose first lines tell
        what it is, or that goes on behind what was imported; None for what has to be looked into.
        Cost: the status of the file, and of a log its beginning, or all that was imported.
        """
        place = self._place(path, 0)
        known = self._looked[place] = self._known(place)
        if not self._reads_all and _is_as_it_was(path, known):
            return Unchanged(path)
        if self._names_place[0] == AUTO:
            format = of_lines(path) or self._recorded(path, known)
        else:
            format = None
        if format is None:
            return None
        return Found(Names(root, path).of({}), format, path, JsonLines(path))

    def _recorded(self, path: Path, known: list[Place]) -> Format | None:
        """Return the format of a log as its last import recorded it, if the log still begins with
        what was taken then. Lines that its program added later may be of no format: they do not
        decide again.
        """
        if not known or not known[-1].taken:
            return None
        reading = LineReading(path)
        if not reading.begins_with(known[-1].taken, known[-1].digest, known[-1].records):
            return None
        database = self._store.database
        key = known[-1].conversation
        source = database.recorder.query(lambda reader: Sources(database, reader).find_by_key(key))
        return None if source is None else format_named(source.format)

    def _unchanged(self, path: Path) -> Iterator[Imported]:
        """Yield what the histories of a file became that is as it was."""
        number = 0
        known: Sequence[Place] = self._looked.pop(self._place(path, 0), ())
        while known:
            number += 1
            key = known[-1].conversation
            following = self._place(path, number)

            def read(reader: Reader, key: int = key, following: bytes = following) -> _AtPlace:
                sources = Sources(self._store.database, reader)
                return (
                    sources.name_of(key),
                    sources.find_by_key(key, has_texts=False),
                    sources.places(following),
                )

            records = known[-1].records
            name, source, known = self._store.database.recorder.query(read)
            if source is not None:
                yield Imported(name, 0, records, source.format, path, is_unchanged=True)

    def _known(self, place: bytes) -> list[Place]:
        database = self._store.database
        return database.recorder.query(lambda reader: Sources(database, reader).places(place))

    def _place(self, path: Path, number: int) -> bytes:
        """Return the name of a place: a hash of path, place inside and options."""
        named = "\0".join((os_path.abspath(path), str(number), *self._names_place))
        return blake2b(named.encode("utf-8", "surrogateescape"), digest_size=_PLACE_BYTES).digest()

    # -- one source
    # ----------------------------------------------------------------------------------------------

    def _import(self, found: Found, place: bytes) -> Imported | Failed:
        tries = count(1)
        while True:
            one = self._source(found, place)
            name = one.named(None)
            try:
                return one.imported()
            except (
                VersionConflict
            ) as error:  # another process imports it: what it added is compared now
                if next(tries) == _TRIES:
                    return Failed(name, found.format.name, found.path, error)
            except (EventStoreError, OSError) as error:
                if one.key is not None and one.written:
                    begun = one.name_of(one.key)
                else:
                    begun = name
                return Failed(begun, found.format.name, found.path, error, one.written)

    def _source(self, found: Found, place: bytes) -> SourceImport:
        is_one_of_many = self._only is not None and type(found.reader) is not JsonLines
        # its other histories are not read
        if is_one_of_many:
            state = b""
        else:
            state = state_of(found.path)
        name = self._named(f"{self._options.prefix}{found.name}")
        return SourceImport(self._store, found, place, self._options, name, state)

    def _short_and_new(self, found: Found, place: bytes) -> NewSource | None:
        """Return a short source that is new at its place, read as a whole; None for any other."""
        looked = self._looked.pop(place, None)
        try:
            if os_path.getsize(found.path) > _SHORT_BYTES or (
                self._known(place) if looked is None else looked
            ):
                return None
            return self._source(found, place).read_new()
        except (EventStoreError, OSError):  # its import says so
            return None

    def _write_waiting(self) -> Iterator[Imported | Failed]:
        """Write the short sources in one transaction. Those of which something is here by then are
        imported alone; all are, where one of them cannot be written.
        """
        waiting = self._waiting
        self._waiting = []
        if not waiting:
            return
        try:
            sources = self._store.database.recorder.transact(
                lambda transaction: [new.begin(transaction) for new in waiting]
            )
        except EventStoreError:
            sources = [None] * len(waiting)
        for new, source in zip(waiting, sources, strict=True):
            yield (
                self._import(new.one.found, new.one.place)
                if source is None
                else new.one.begun(new, source)
            )

    def _named(self, name: str) -> Callable[[str | None], str]:
        """Return what names a source: by its records, else by its place."""

        def named(told: str | None) -> str:
            if self._conversation is not None:
                return self._conversation
            return f"{self._options.prefix}{told}" if told else name

        return named


def _is_as_it_was(path: Path, known: list[Place]) -> bool:
    """Return whether a file is as it was at the last of its imports."""
    return bool(known and known[-1].state and known[-1].state == state_of(path))


__all__ = ["Failed", "Import", "Imported"]
