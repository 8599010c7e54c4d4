"""Import the sources in files and folders. The new records of a source are appended. If a source
differs from its stored records, the first different record begins a fork.

A *place* identifies a source: the path of its file, its own name in this file, and the options of
the import. An import is a copy, and never removes or repairs stored records. The table ``places``
names the conversation of each place, and each record has a hash. So a second import finds the
conversation by its place, and adds only records that are not stored. The place of a file with
several histories names all their conversations. An import refuses an erased source. If a record
was redacted, an import refuses a source in which this or an earlier record differs, because the
redacted text could come back.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from hashlib import blake2b
from itertools import count
from pathlib import Path
from typing import Final, NamedTuple, TypeVar, TypeVarTuple

from foldlog._imports.comparing import NewSource, SourceImport
from foldlog._imports.writing import Imported, SourceOptions
from foldlog.eventstore import EventStoreError, InvalidArgument, Store, VersionConflict
from foldlog.eventstore.recorders.base import Transaction
from foldlog.eventstore.recorders.types import utf8
from foldlog.eventstore.sources.tables import (
    Place,
    Source,
    Sources,
    SourcesToWrite,
    query_sources,
)
from foldlog.formats.detection import of_lines, recognize
from foldlog.formats.files.found_sources import FoundHistory, LeftOut, NotAHistory, Unchanged
from foldlog.formats.files.histories import histories
from foldlog.formats.files.naming import Names
from foldlog.formats.files.readers import JsonLines
from foldlog.formats.files.source_reading import LineReading, state_of
from foldlog.formats.format import Format
from foldlog.formats.record import ImportFinding
from foldlog.formats.registry import AUTO, format_named

T = TypeVar("T")
Arguments = TypeVarTuple("Arguments")

_TRIES: Final = 5
"""How often the import of a source is tried if another process imports it too."""
_TOGETHER_BYTES: Final = 2 * 2**20
"""The number of bytes of new sources that one transaction writes together."""
_SHORT_BYTES: Final = 2**20
"""The size in bytes up to which a source counts as short."""
_PLACE_BYTES: Final = 16
_WHOLE_FILE: Final = "0"
"""The own name in the place of a whole file. Every other own name begins with a colon or slash."""
_NO_HISTORY: Final = "contains no history that can be imported"


class Failed(NamedTuple):
    """A failed import of a source. ``added`` is the number of records that were stored before the
    error.
    """

    conversation: str
    format: str
    path: Path
    error: Exception
    added: int = 0


class Import:
    """Imports the sources in files and folders. Iterate over an ``Import`` to import the sources
    and get an outcome for each.

    After an iteration, ``findings`` are the problems outside of any source, such as a file that
    cannot be read. ``left_out`` are files of unknown format in a folder. ``not_opened`` are files
    that were not read because of their names.

    ``format``        the name of the format, or ``auto`` to recognize the format of each file
    ``prefix``        the beginning of the ids of new conversations, before the names of the
                      histories
    ``conversation``  the id of the conversation; the paths may have only one history then
    ``read_all``      read files that have not changed since their last import too
    ``again``         import erased sources too, and records that were redacted in another
                      conversation
    ``only``          import only the history with this name
    ``is_secret``     returns whether a record is secret; the texts of a secret record are not
                      stored
    ``where``         attributes of the conversations, such as the working folder of the program
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
        self._store = store
        self._paths = list(paths)
        self._only = only
        self._options = SourceOptions(prefix, again, is_secret, where or {})
        self._conversation = conversation
        self._recognize = recognize(format)
        self._place_options = (format, prefix, conversation or "")
        self._reads_all = read_all
        self.findings = list[ImportFinding]()
        self.left_out = list[Path]()
        self.not_opened = list[Path]()
        self._waiting = list[NewSource]()
        self._waiting_bytes = 0
        self._looked_up = dict[bytes, list[Place]]()
        """The earlier imports of each place that was looked up. When the source of a place is read,
        the entry of the place is removed.
        """
        self._folders = dict[Path, dict[str, tuple[bytes, list[Place]]]]()
        """The place and the earlier imports of each entry of the folders that are being read."""
        self._states = dict[Path, bytes]()
        """The state that each file had before it was opened."""
        self._begun = dict[Path, LineReading]()
        """The readings of logs whose format is known from an earlier import."""
        self._in_files = dict[Path, list[Imported | Failed]]()
        """The outcomes of the histories in each file that may have several histories."""

    def __iter__(self) -> Iterator[Imported | Failed]:
        self.findings = []
        self.left_out = []
        self.not_opened = []
        self._waiting = []
        self._waiting_bytes = 0
        self._looked_up.clear()
        self._states.clear()
        self._begun.clear()
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
        """Return whether the file was imported before, with the same options."""
        return bool(self._places(self._place(path)))

    def is_here(self, path: Path) -> bool:
        """Return whether the file was imported before, and has not changed since."""
        place = self._place(path)
        return self._is_as_it_was(state_of(path), place, self._places(place))

    def nothing(self) -> NotAHistory:
        """Return the error that the paths contain no history."""
        path = self._paths[0] if self._paths else Path()
        first = next(iter(self.findings), None)
        if first is not None and first.place == str(path):
            return NotAHistory(path, first.problem)
        return NotAHistory(path, _NO_HISTORY + (f"; {first}" if first else ""))

    def _check_is_one(self) -> None:
        """Raise ``InvalidArgument`` if the paths contain several histories."""
        history_count = 0
        for path in self._paths:
            with suppress(NotAHistory, OSError):
                items = histories(path, self._recognize, lambda file: None)
                history_count += sum(isinstance(item, FoundHistory) for item in items)
        if history_count > 1:
            raise InvalidArgument(
                f"--conversation {self._conversation!r} names one conversation, but these paths"
                f" have {history_count:,} conversations; leave out --conversation, or name one file"
            )

    def _below(self, root: Path) -> Iterator[Imported | Failed]:
        """Import the histories below a path. At the end, note the files with several histories."""
        self._in_files.clear()
        self._folders.clear()
        for outcome in self._outcomes(root):
            if outcome.path in self._in_files:
                self._in_files[outcome.path].append(outcome)
            yield outcome
        if self._in_files:
            self._store.database.recorder.transact(self._note_files)

    def _outcomes(self, root: Path) -> Iterator[Imported | Failed]:
        """Import all sources below a path, and yield their outcomes."""
        for item in self._sources_below(root):
            if isinstance(item, Unchanged):
                yield from self._write_waiting()
                yield from self._report_unchanged(item.path)
                continue
            new = self._short_and_new(item)
            if new is None:
                yield from self._write_waiting()
                yield self._import(item)
                continue
            # Short new sources wait, so that a single transaction writes many of them.
            self._waiting.append(new)
            self._waiting_bytes += new.size
            if self._waiting_bytes >= _TOGETHER_BYTES:
                yield from self._write_waiting()
        yield from self._write_waiting()

    def _sources_below(self, root: Path) -> Iterator[FoundHistory | Unchanged]:
        """Yield the sources below a path. What is not a source is noted for the summary."""
        for item in histories(root, self._recognize, partial(self._look, root)):
            if isinstance(item, Unchanged):
                yield item
            elif isinstance(item, LeftOut):
                paths = self.left_out if item.is_read else self.not_opened
                paths.append(item.path)
            elif isinstance(item, ImportFinding):
                self.findings.append(item)
            else:
                if item.own_name:
                    self._in_files.setdefault(item.path, [])
                if self._only in (None, item.name) or type(item.reader) is JsonLines:
                    yield item

    # -- unchanged files
    # ----------------------------------------------------------------------------------

    def _look(self, root: Path, path: Path) -> FoundHistory | Unchanged | Format | None:
        """Return ``Unchanged`` for a file that has not changed, and None for a file that must be
        examined. Return the format of a file with several histories that was imported before. Cost:
        the method reads the status of the file. For a log, the method also reads all lines that
        were imported before, or the first lines of a new or rewritten log.
        """
        place, places = self._earlier_imports(root, path)
        state = state_of(path)
        self._looked_up[place] = places
        self._states[path] = state
        if not self._reads_all and self._is_as_it_was(state, place, places):
            return Unchanged(path)
        if self._place_options[0] != AUTO:
            return None
        if places and not places[-1].taken:
            return self._format_of(places[-1])
        format = self._recorded_format(path, places) or of_lines(path)
        if format is None:
            return None
        name, _ = Names(root, path).of({})
        return FoundHistory(name, format, path, JsonLines(path))

    def _earlier_imports(self, root: Path, path: Path) -> tuple[bytes, list[Place]]:
        """Return the place of a file and its earlier imports. Those of all files in a folder are
        read together when the first of them is looked at. If another process imports a file after
        that, the import of this file notices it before it writes.
        """
        if path != root:
            if path.parent not in self._folders:
                self._look_up_folder(path.parent)
            known = self._folders[path.parent].get(path.name)
            if known is not None:
                return known
        place = self._place(path)
        return place, self._places(place)

    def _look_up_folder(self, folder: Path) -> None:
        """Read the earlier imports of all entries of a folder. Forget those of the folders that the
        search has left.
        """
        above = {*folder.parents}
        self._folders = {path: known for path, known in self._folders.items() if path in above}
        places = {name: self._place(folder / name) for name in os.listdir(folder)}
        imports = self._query(Sources.places_among, places.values())
        self._folders[folder] = {
            name: (place, imports.get(place, [])) for name, place in places.items()
        }

    def _is_as_it_was(self, state: bytes, place: bytes, places: list[Place]) -> bool:
        """Return whether a file need not be read, because it has not changed since its last import.
        If a history of the file was erased, its import is refused, or brings it back, so the file
        must be read.
        """
        is_same = bool(state and places and places[-1].state == state)
        return is_same and not self._query(Sources.is_refused, place)

    def _recorded_format(self, path: Path, places: list[Place]) -> Format | None:
        """Return the format of the last import, if the file still begins with the imported lines.
        The new lines are not checked, because they alone may not show the format.
        """
        if not places:
            return None
        reading = LineReading(path)
        if not reading.begins_with(places[-1].taken, places[-1].digest, places[-1].records):
            return None
        self._begun[path] = reading
        return self._format_of(places[-1])

    def _format_of(self, place: Place) -> Format | None:
        source = self._query(partial(Sources.find_by_key, texts=()), place.conversation)
        return None if source is None else format_named(source.format)

    def _report_unchanged(self, path: Path) -> Iterator[Imported]:
        """Yield the outcomes of the histories in a file that has not changed since its last
        import.
        """
        for place in self._looked_up.pop(self._place(path)):
            # If a history is no longer in the file, its place has the state of an earlier version
            # of the file.
            if place.state == self._states[path]:
                key = place.conversation
                name = self._query(Sources.name_of, key)
                source = self._query(partial(Sources.find_by_key, texts=()), key)
                if source is not None:
                    yield Imported(name, 0, place.records, source.format, path, is_unchanged=True)

    def _note_files(self, transaction: Transaction) -> None:
        """Store the state of each file with several histories. If one of the histories failed, no
        state is stored, so the next import does not skip the file as unchanged.
        """
        sources = SourcesToWrite(self._store.database, transaction)
        times = count(time.time_ns() // 1_000)
        for path, outcomes in self._in_files.items():
            imported = [outcome for outcome in outcomes if isinstance(outcome, Imported)]
            is_whole = self._only is None and len(imported) == len(outcomes)
            state = self._states.get(path, b"") if is_whole else b""
            if is_whole:
                sources.allow(self._place(path))
            for outcome in imported:
                row = sources.find(outcome.conversation)
                if row is not None:
                    place = Place(row.key, next(times), outcome.records, 0, state, b"")
                    sources.put_place(self._place(path), place)

    def _places(self, place: bytes) -> list[Place]:
        return self._query(Sources.places, place)

    def _query(self, read: Callable[[Sources, *Arguments], T], *arguments: *Arguments) -> T:
        return query_sources(self._store.database, read, *arguments)

    def _place(self, path: Path, own_name: str = "") -> bytes:
        return _place(path, own_name or _WHOLE_FILE, *self._place_options)

    # -- one source
    # ----------------------------------------------------------------------------------------------

    def _import(self, history: FoundHistory) -> Imported | Failed:
        """Import one source, and try again if another process imports it too. The outcome counts
        the records that all tries stored.
        """
        added = 0
        name = ""
        tries = count(1)
        while True:
            source_import = self._source(history)
            try:
                outcome = source_import.import_source()
                return outcome._replace(added=added + outcome.added)
            except (EventStoreError, OSError) as error:
                added += source_import.written
                if source_import.key is not None and source_import.written:
                    name = source_import.name_of(source_import.key)
                # Another process imports the source, so compare it with the records of that
                # process.
                if isinstance(error, VersionConflict) and next(tries) < _TRIES:
                    continue
                name = name or source_import.named(None)
                return Failed(name, history.format.name, history.path, error, added)

    def _source(self, history: FoundHistory) -> SourceImport:
        place = self._place(history.path, history.own_name)
        state = b"" if history.own_name else self._states.get(history.path, b"")
        name = self._name_function(f"{self._options.prefix}{history.name}")
        begun = self._begun.pop(history.path, None)
        return SourceImport(self._store, history, place, self._options, name, state, begun)

    def _short_and_new(self, history: FoundHistory) -> NewSource | None:
        """Read the records of a source that is short and new. Return None for any other source."""
        place = self._place(history.path, history.own_name)
        places = self._looked_up.pop(place, None)
        try:
            if os.path.getsize(history.path) > _SHORT_BYTES:
                return None
            if places is None:
                places = self._places(place)
            return None if places else self._source(history).read_new()
        except (EventStoreError, OSError):
            return None  # The source is then imported alone, and this import reports the error.

    def _write_waiting(self) -> Iterator[Imported | Failed]:
        """Write the waiting sources in one transaction. If one of them cannot be written, each of
        them is imported in a transaction of its own.
        """
        waiting = self._waiting
        self._waiting = []
        self._waiting_bytes = 0
        if not waiting:
            return
        try:
            sources = self._store.database.recorder.transact(
                lambda transaction: [new.begin(transaction) for new in waiting]
            )
        except EventStoreError:
            sources = [None] * len(waiting)
        for new, source in zip(waiting, sources, strict=True):
            if source is None:
                yield self._import(new.source_import.found_history)
            else:
                yield self._finish(new, source)

    def _finish(self, new: NewSource, source: Source) -> Imported | Failed:
        """Finish the import of a source whose records are stored."""
        history = new.source_import.found_history
        try:
            return new.source_import.finish_new(new, source)
        except (EventStoreError, OSError) as error:
            return Failed(new.name, history.format.name, history.path, error, source.records)

    def _name_function(self, name: str) -> Callable[[str | None], str]:
        """Return the function that chooses the name of a conversation from the name in its records.
        ``name`` is used if the records contain none.
        """

        def name_source(recorded_name: str | None) -> str:
            if self._conversation is not None:
                return self._conversation
            return f"{self._options.prefix}{recorded_name}" if recorded_name else name

        return name_source


def place_of_file(path: Path) -> bytes:
    """Return the place of a file that is imported without options."""
    return _place(path, _WHOLE_FILE, AUTO, "", "")


def _place(path: Path, own_name: str, *options: str) -> bytes:
    """Return the place of a history: a hash of its file, its name inside the file, and the options
    of the import.
    """
    text = "\0".join((os.path.abspath(path), own_name, *options))
    return blake2b(utf8(text), digest_size=_PLACE_BYTES).digest()


__all__ = ["Failed", "Import", "Imported"]
