"""Open the paths that a user names: yield their histories, which can be read any number of times, and the problems."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from itertools import chain, islice
from os import PathLike
from os.path import getsize
from pathlib import Path
from typing import Any

from msgspec.structs import force_setattr, replace

from foldlog._formats.blocks import is_blank
from foldlog._formats.detection import format_of, recognize
from foldlog._formats.files import found
from foldlog._formats.files.found import Found, LeftOut, NotAHistory, Unchanged, files_below, state_of
from foldlog._formats.files.histories import Look, histories, no_look, told_by
from foldlog._formats.format import Earlier, Format, Options
from foldlog._formats.packing import keep
from foldlog._formats.record import ImportFinding, Located, NotAnEvent, refused
from foldlog._formats.registry import AUTO, formats
from foldlog._formats.rewritten import FILLED, Growth, StoredRecord, is_same, joined, mended
from foldlog.eventstore import Action, Annotation, Event, InvalidArgument, Observation, Retraction
from foldlog.eventstore.codec import Encoded

_Histories = Iterator[Found | LeftOut | Unchanged | ImportFinding]
_Ahead = tuple[list[Encoded], list[ImportFinding], int]
_TOGETHER = 32
"""Records that become events, and are then packed: a tenth faster than one by one, by what is in the core's caches."""


class Sources:
    """The histories in some files and folders: iterate it for one ``Source`` after the other.

    As of the last iteration, ``findings`` are the problems that belong to no history, ``left_out`` the files in folders
    that are of no known format, and ``not_opened`` those with names that histories do not have.
    """

    def __init__(self, paths: Iterable[Path], format: str, prefix: str, look: Look) -> None:
        self.findings: list[ImportFinding] = []
        self.left_out: list[Path] = []
        self.not_opened: list[Path] = []
        self._paths: list[Path] = []
        self._recognize, self._prefix, self._look = recognize(format), prefix, look
        self._refused: list[NotAHistory] = []
        begun = None
        for path in paths:
            try:
                begun = self._begin(path)
                self._paths.append(path)
            except NotAHistory as error:
                self._refused.append(_explained(error, format))
        if self._refused and not self._paths:
            raise self._refused[0]
        self._begun = begun if len(self._paths) == 1 and self._paths[0].is_file() else None
        """The histories of the only file, of which the first has been read, and its state then."""

    def _begin(self, path: Path) -> tuple[_Histories, tuple[int, ...]]:
        """Return the histories of a path. Raises ``NotAHistory`` if it has none."""
        found = histories(path, self._recognize, self._look)
        passed: list[LeftOut | ImportFinding] = []
        try:
            state = state_of(str(path))
            for each in found:
                if isinstance(each, Found | Unchanged):
                    return chain(iter((*passed, each)), found), state  # it lets go of the first when it was taken
                passed.append(each)
            findings = (each for each in passed if isinstance(each, ImportFinding))
            problem = next(chain(findings, told_by(files_below(path))), None)
        except OSError as error:
            raise NotAHistory(path, f"cannot be read: {error.strerror}") from error
        if problem is not None:
            raise NotAHistory(path, f"holds no history that can be imported; {problem}")
        raise NotAHistory(
            path.absolute(),
            "holds no history, nor does a folder below it; the files of histories end in .json, .jsonl, "
            ".ndjson or .traj; decompress compressed ones first",
        )

    def _taken(self, path: Path) -> _Histories | None:
        """Return the histories that were begun, once; None if the file has changed since."""
        begun, self._begun = self._begun, None
        return begun[0] if begun is not None and begun[1] == state_of(str(path)) else None

    def size_bytes(self) -> int:
        """Return the size of the files under the paths in bytes: about the size of what will be read. Cost: the status
        of each file.
        """
        return sum(getsize(file) for path in self._paths for file in files_below(path))

    def __iter__(self) -> Iterator[Source]:
        self.findings[:] = [ImportFinding(str(error.path), error.why) for error in self._refused]
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

    A path without a history is a finding. Raises ``NotAHistory`` if no path has one, and ``UnknownFormat``. Cost:
    reading the beginning of each path.
    """
    return Sources(map(Path, paths), format, prefix, look)


def _explained(error: NotAHistory, format: str) -> NotAHistory:
    """Return the error. For JSON of another kind it says which formats there are."""
    if not error.foreign:
        return error
    if format == AUTO:
        return NotAHistory(error.path, f"{error.why}; --format NAME chooses one of {', '.join(formats())}")
    other = _recognized(error.path)
    hint = "" if other is None else f"; its records are of the format {other!r}: name that one, or none"
    return NotAHistory(error.path, f"holds no event of the format {format!r}{hint}")


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


_FINDINGS_MAX = 1_000
_NOTHING_SENT = (
    "is read as {}, and nothing of it can be sent to a model; if it is of another format, name that with --format"
)


def _is_readable(located: Located) -> bool:
    return located.problem is None or not (located.value is None or located.value is FILLED)


def _is_sent(event: Event) -> bool:
    """Return whether a View shows words, or a result: it shows a call only with that."""
    if isinstance(event, Observation):
        return event.shown and event.cause is not None
    says = event.shown and not isinstance(event, Annotation | Action)
    return says and not (hasattr(event, "content") and is_blank(event.content))


class Source:
    """One history, as it stands in a file or a folder.

    ``name``      the source's own name of the conversation, else the file's: see ``files/naming.py``
    ``former_names``  its names below other folders, under which it may have been imported before, also when it did not
                  tell its own; ``is_named`` says whether it does
    ``format``    one of ``FORMATS``, and ``rules`` what it is
    ``path``      the file or folder
    ``others``    files that are read beside it
    ``findings``  what could not be read, as of the last time that ``events`` was iterated: the first 1,000
    ``findings_count``  how many there were
    ``note``      what to know about every history of this format
    ``usage``     what calls of models used, as the container of the records tells it: see ``Format.beside``
    """

    def __init__(self, history: Found, prefix: str = "") -> None:
        self.name, self.former_names, self.is_named = history.name
        self.format, self.path, self.note = history.format.name, history.path, history.format.note
        self.usage, self.others = history.usage, history.others
        self.findings: list[ImportFinding] = []
        self.findings_count = 0
        self.is_whole = True
        """Whether each record was read, when ``events`` was last iterated."""
        self.is_part = False
        """Whether records were put between its own that it lacks: those of another file."""
        self.is_end = True
        """Whether the last record is its own nevertheless."""
        self.edited: Any = None
        """The first record that stands among its own, and that it lacks: it is one file of a log, and was edited."""
        self._history, self._prefix = history, prefix
        self.rules, self._reader, self._leaf = history.format, history.reader, history.leaf
        self._held: list[Located] | None = None
        self.grown = history.grown
        """The version of its conversation, and the events beyond, if no more of it was read."""
        self.ahead: Any = None
        """What another process made of the events that it has read."""
        self._ahead: _Ahead | None = None
        self._unmended: list[Located] | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        """Go to another process without the records, which are read there."""
        return Source, (self._history, self._prefix)

    def take(
        self, columns: Iterable[Sequence[Any]], findings: Sequence[ImportFinding], findings_count: int, ahead: Any
    ) -> None:
        """Take what another process has read, as the columns of the events: the next iteration of ``events`` or
        ``encoded`` yields it, once.
        """
        self.findings[:], self.findings_count, self.ahead = findings, findings_count, ahead
        self._ahead = [Encoded._make((*each, None)) for each in zip(*columns, strict=True)], [*findings], findings_count

    @property
    def size_bytes(self) -> int:
        """The approximate size of the records, in bytes."""
        return self._reader.size_bytes

    def events(self) -> Iterator[Event]:
        """Yield the events, with ids 0, 1, 2, …; a record that is not an event becomes a finding.

        Memory: one record at a time, and the state of the format.
        """
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            yield from (replace(each.event, id=place) for place, each in enumerate(self._taken(ahead)))
        elif self.grown is not None:
            yield from self.grown[1]
        else:
            for _, events in self.decoded():
                yield from events

    def encoded(self) -> Iterator[Event | Encoded]:
        """Yield the same, in the form of the store if it was read ahead."""
        ahead, self._ahead = self._ahead, None
        return self.events() if ahead is None else self._taken(ahead)

    def _taken(self, ahead: _Ahead) -> Iterator[Encoded]:
        encoded, self.findings[:], self.findings_count = ahead
        return iter(encoded)

    def records(self) -> Iterator[Any]:
        """Yield the records from which ``events`` are made, as JSON values."""
        return (record for record, _ in self.decoded())

    def is_part_of(self, whole: Sequence[Any], gone: Container[Any]) -> bool:
        """Return whether it is one of several files, and each of its records is one of these, or has the id of one of
        which something is redacted.
        """
        source_id = self.rules.source_id
        known = {source_id(each): each for each in whole}
        same = (source_id(each) in gone or is_same(known.get(source_id(each)), each) for each in self.records())
        return self.rules.joins is not None and all(same)

    @property
    def base(self) -> Earlier | None:
        """What its first record goes on from, if that is in another file."""
        of, first = self.rules.base, next(iter(self._reader if self.rules.base else ()), None)
        base = of(first.value) if of and first else None
        return base and base._replace(history=f"{self._prefix}{base.history}")

    def may_be_part(self, standing: Iterable[StoredRecord]) -> bool:
        """Return whether it may be one of several files of the history of which these records stand."""
        joins, of = self.rules.joins is not None, self.rules.base
        return joins and (of is None or self.base is not None or any(of(each.record) is not None for each in standing))

    @property
    def can_be_mended(self) -> bool:
        """Whether stored records may stand for some of its own: some cannot be read, or may be written otherwise."""
        return self.findings_count > 0 or self.rules.alike is not None

    def as_read(self) -> None:
        """Have its own records alone: what was put in their place is of the conversation that it was compared with."""
        self._held = self._held if self._unmended is None else self._unmended
        self.is_part, self.is_end, self.edited = False, True, None

    def mend(self, standing: Sequence[StoredRecord]) -> None:
        """Put what is stored of this history in the place of records that cannot be read, and of those that say the
        same; where a history may be in several files, also between its own. Memory: all records.
        """
        if self._unmended is None:
            self._unmended = list(self._reader) if self._held is None else self._held
        self._held = list(map(self._judged, self._held or self._unmended))
        if self.rules.joins is not None and self.may_be_part(standing):
            id_of = self.rules.source_id if self.rules.rewritten else lambda line: None  # which is not written again
            own, self._held = self._held, joined(self._held, standing, id_of, self.rules.joins)
            of_own = [*map({*map(id, own)}.__contains__, map(id, self._held))]
            self.is_part, self.is_end = not all(of_own), all(of_own[-1:])
            places = [place for place, is_own in enumerate(of_own) if is_own]
            is_log = self.rules.base is not None and all(each.problem is None for each in own)
            among = range(places[0], places[-1]) if is_log and own else ()
            self.edited = next((self._held[place].value for place in among if not of_own[place]), None)
        elif any(located.problem is not None for located in self._held):
            is_log = not self.rules.rewritten
            self._held = list(mended(self._held, standing, self.rules.source_id, is_log=is_log))
        for place, (located, stored) in enumerate(zip(self._held, standing, strict=False)):
            if self.rules.alike is not None and self.rules.alike(located.value, stored.record):
                self._held[place] = located._replace(value=stored.record)

    def _judged(self, located: Located) -> Located:
        """Return a value that cannot be a record of the format as one that cannot be read."""
        if located.problem is not None or self.rules.accepts(located.value):
            return located
        return located._replace(value=None, problem=str(refused(f"a record of {self.format}", located.value)))

    def go_on(self, stored: Sequence[StoredRecord]) -> None:
        """Let stored records of this history follow its own: it is an older one, which lacks them."""
        self._held = [*(self._held or ()), *(Located(0, 0, each.record) for each in stored)]

    def events_beyond(self, growth: Growth) -> Iterator[Event]:
        """Yield what a stored history lacks of this source, after the event that takes back what the source no longer
        has, if it has not all of it.
        """
        decoded = self.decoded(growth.starts)
        for number, (_, events) in enumerate(islice(decoded, growth.same)):
            if growth.is_read_otherwise(number, events):
                decoded = islice(self.decoded(growth.starts), growth.same, None)
                break
        yield from growth.taking_back(self.format)
        for _, events in decoded:
            yield from events

    def decoded(self, starts: Sequence[int] = ()) -> Iterator[tuple[Any, list[Event]]]:
        """Yield the records, as JSON values, each with the ``events`` that are made of it: of the first ones these
        begin at the ids ``starts``.
        """
        self.findings.clear()
        self.findings_count, self.is_whole = 0, True
        for place, problem, _ in self._history.findings:
            self._find(place, problem)
        try:
            yield from self._read(Options(leaf=self._leaf, prefix=self._prefix), starts)
        except OSError as error:
            self.is_whole = False
            self._find(str(self.path), f"cannot be read any further: {error.strerror}")

    def _read(self, options: Options, starts: Sequence[int]) -> Iterator[tuple[Any, list[Event]]]:
        if self._held is None and self._reader.size_bytes <= found.HELD_BYTES_MAX:
            self._held = list(self._reader)
        records = self._reader if self._held is None else self._held
        readable = (each.value for each in records if _is_readable(each))  # a decoder counts only these
        decoder = self.rules.reader(readable, options)
        self._find_all(str(self.path), options)
        sent = bytearray(1)  # whether something is, for each version
        number, left = 0, iter(records)
        while some := list(islice(left, 1 if self._held is None else _TOGETHER)):
            read: list[tuple[Any, list[Event]]] = []
            for located in some:
                if located.problem is not None:
                    self.is_whole = False
                    before = None if located.value is FILLED else (number, decoder.next_id)
                    self._find(located.place, located.problem, before)
                if not _is_readable(located):
                    continue
                if number < len(starts):
                    decoder.skip_to(starts[number])
                    sent.extend(sent[-1:] * (decoder.next_id + 1 - len(sent)))
                try:
                    events = decoder.events(located.value)
                except NotAnEvent as error:
                    self.is_whole = False
                    self._find(located.place, str(error), (number, decoder.next_id))
                    continue
                number += 1
                if options.findings:
                    self._find_all(located.place or str(self.path), options)
                for event in events:
                    version = event.version if isinstance(event, Retraction) else len(sent)
                    sent.append(sent[min(version, len(sent) - 1)] or _is_sent(event))
                read.append((located.value, events))
            for record, events in read:
                keep(record, events, self.format, parsed=True)
                for event in () if self.rules.time else events:
                    if event.origin is not None:  # it happened before the import, at no known time
                        force_setattr(event.origin, "time", event.origin.time or "")
            yield from read
        if len(sent) > 1 and not sent[-1]:
            self._find(str(self.path), _NOTHING_SENT.format(self.format))

    def tell(self, problem: str) -> None:
        """Add a finding about all of it."""
        self._find(str(self.path), problem)

    def _find_all(self, place: str, options: Options) -> None:
        for problem in options.findings:
            self._find(place, problem)
        options.findings.clear()

    def _find(self, place: str, problem: str, before: tuple[int, int] | None = None) -> None:
        self.findings_count += 1
        if len(self.findings) < _FINDINGS_MAX:
            self.findings.append(ImportFinding(place, problem, before))
