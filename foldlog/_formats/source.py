"""One history in its source: its name, its format, and its events, which can be read any number of times."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from foldlog._formats.files import found
from foldlog._formats.files.found import Found
from foldlog._formats.files.naming import Name
from foldlog._formats.format import Options
from foldlog._formats.packing import keep
from foldlog._formats.record import ImportFinding, NotAnEvent, RecordReader
from foldlog._formats.registry import format_named
from foldlog._formats.rewritten import Growth, StoredRecord, mended
from foldlog.eventstore import Event

_FINDINGS_MAX = 1_000
_NOTHING_SENT = (
    "is read as {}, and nothing of it can be sent to a model; if it is of another format, name that with --format"
)


class Parcel(NamedTuple):
    """What another process needs to read a history: see ``reading_ahead``."""

    name: Name
    format: str
    path: Path
    reader: RecordReader
    leaf: str | None
    prefix: str

    def source(self) -> Source:
        """Return the history. Raises ``UnknownFormat`` where only the program that sent it has the format."""
        found = Found(self.name, format_named(self.format), self.path, self.reader, leaf=self.leaf)
        return Source(found, self.prefix)


class Source:
    """One history, as it stands in a file or a folder.

    ``name``      the source's own name of the conversation, else the file's: see ``files/naming.py``
    ``former_names``  its names below other folders, under which it may have been imported before
    ``format``    one of ``FORMATS``
    ``path``      the file or folder
    ``findings``  what could not be read, as of the last time that ``events`` was iterated: the first 1,000
    ``findings_count``  how many there were
    ``note``      what to know about every history of this format
    """

    def __init__(self, history: Found, prefix: str = "") -> None:
        self.name, self.former_names = history.name
        self.format, self.path, self.note = history.format.name, history.path, history.format.note
        self.findings: list[ImportFinding] = []
        self.findings_count = 0
        self.is_whole = True
        """Whether each record was read, when ``events`` was last iterated."""
        self._is_mended = False
        self._format = history.format
        self._reader = history.reader
        self._held = history.held
        self._leaf = history.leaf
        self._prefix = prefix
        self.grown = history.grown
        """The version of its conversation, and the events beyond, if no more of it was read."""
        self.ahead: Any = None
        """What another process made of the events that it has read."""
        self._ahead: list[Event] | None = None
        self._name = history.name

    def parcel(self) -> Parcel:
        """Return what another process needs to read this history."""
        return Parcel(self._name, self.format, self.path, self._reader, self._leaf, self._prefix)

    def take(self, events: list[Event], findings: Sequence[ImportFinding], findings_count: int, ahead: Any) -> None:
        """Take what another process has read: the next iteration of ``events`` yields it, once."""
        self._ahead, self.findings[:], self.findings_count, self.ahead = events, findings, findings_count, ahead

    @property
    def size_bytes(self) -> int:
        """The approximate size of the records, in bytes."""
        return self._reader.size_bytes

    def events(self, *, as_history: bool = False) -> Iterator[Event]:
        """Yield the events, with ids 0, 1, 2, …; a record that is not an event becomes a finding.

        Memory: one record at a time, and the state of the format.
        """
        ahead, self._ahead = self._ahead if self.grown is None else self.grown[1], None
        if ahead is not None and not as_history:
            yield from ahead
            return
        for _, events in self._decoded(Options(as_history=as_history, leaf=self._leaf, prefix=self._prefix)):
            yield from events

    def records(self) -> Iterator[Any]:
        """Yield the records from which ``events`` are made, as JSON values."""
        return (record for record, _ in self.decoded())

    def decoded(self) -> Iterator[tuple[Any, list[Event]]]:
        """Yield the records, as JSON values, each with the ``events`` that are made of it."""
        return self._decoded(Options(leaf=self._leaf, prefix=self._prefix))

    @property
    def is_rewritten(self) -> bool:
        """Whether its program may write it again: see ``Format.rewritten``."""
        return self._format.rewritten

    def mend(self, standing: Sequence[StoredRecord]) -> None:
        """Put what is stored of this history in the place of records that cannot be read. Memory: all records."""
        self._held = list(self._reader if self._held is None else self._held)
        self._is_mended = True
        if any(located.problem is not None for located in self._held):
            self._held = list(mended(self._held, standing, self._format.source_id))

    def events_beyond(self, growth: Growth) -> Iterator[Event]:
        """Yield what a stored history lacks of this source, after the event that takes back what the source no longer
        has, if it has not all of it.
        """
        for _, events in self._decoded(Options(prefix=self._prefix), growth):
            if growth.is_beyond:
                yield from (*growth.taking_back(self.format), *events)
        yield from growth.taking_back(self.format)

    def _decoded(self, options: Options, growth: Growth | None = None) -> Iterator[tuple[Any, list[Event]]]:
        self.findings.clear()
        self.findings_count, self.is_whole = 0, True
        try:
            yield from self._read(options, growth)
        except OSError as error:
            self.is_whole = False
            self._find(str(self.path), f"cannot be read any further: {error.strerror}")

    def _read(self, options: Options, growth: Growth | None) -> Iterator[tuple[Any, list[Event]]]:
        if self._held is None and self._reader.size_bytes <= found.HELD_BYTES_MAX:
            self._held = list(self._reader)
        records = self._reader if self._held is None else self._held
        readable = (located.value for located in records if located.problem is None)  # a decoder counts only these
        decoder = self._format.decoder(readable, options)
        self._find_all(str(self.path), options)
        is_sent: bool | None = None  # None while there is no event
        for located in records:
            if located.problem is not None:
                self.is_whole = False
                self._find(self._reader.place(located), located.problem, None if self._is_mended else decoder.next_id)
                continue
            if growth is not None:
                decoder.skip_to(growth.first_id(located.value, decoder.next_id))
            try:
                events = decoder.events(located.value)
                keep(located.value, events, self.format, parsed=True)
            except NotAnEvent as error:
                self.is_whole = False
                self._find(self._reader.place(located), str(error), decoder.next_id)
                continue
            if growth is not None:
                growth.took()
            if options.findings:
                self._find_all(self._reader.place(located), options)
            is_sent = is_sent or any(event.shown for event in events)
            yield located.value, events
        if is_sent is False:
            self._find(str(self.path), _NOTHING_SENT.format(self.format))

    def _find_all(self, place: str, options: Options) -> None:
        for problem in options.findings:
            self._find(place, problem)
        options.findings.clear()

    def _find(self, place: str, problem: str, before: int | None = None) -> None:
        self.findings_count += 1
        if len(self.findings) < _FINDINGS_MAX:
            self.findings.append(ImportFinding(place, problem, before))
