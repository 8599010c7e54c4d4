"""Copy the conversations of an archive into a store."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from foldlog.archives.compression import AGAIN, NotReadable, decompressed, is_compressed
from foldlog.archives.lines import (
    VERSION,
    ArchiveLine,
    ArchiveLines,
    ConversationLine,
    EndLine,
    GivenUpLine,
    KeyLine,
    conversation_of,
    row_of,
)
from foldlog.archives.writing import Problem
from foldlog.eventstore import (
    ConversationErased,
    CorruptEvent,
    EventStoreError,
    HistoryDiverged,
    InvalidArgument,
    InvalidEvent,
    Store,
    VersionConflict,
    from_microseconds,
    translated,
)
from foldlog.eventstore.log.importing import chunked
from foldlog.eventstore.maintenance.copy import Copied, CopiedConversation, CopyTarget, RememberedKey, copy_tombstone
from foldlog.eventstore.recorders.types import Row

_BEGINNING = b'{"foldlog_archive":'
_BESIDE_THE_BODY = 4_096
_AHEAD_US: Final = 86_400 * 1_000_000
"""The clocks of two machines may differ by this time, a day."""


class LeftOut(NamedTuple):
    """A tombstone that was not imported."""

    conversation: str


def is_archive(path: Path) -> bool:
    """Return whether to read the file as an archive: it is compressed, and begins like an archive or cannot be
    decompressed. Raises ``OSError``.
    """
    with path.open("rb") as file:
        if not is_compressed(file):
            return False
        try:
            return next(decompressed(file), b"").startswith(_BEGINNING)
        except NotReadable:
            return True  # reading it raises the error


def read_archive(store: Store, path: Path, *, tombstones: bool = False) -> Iterator[Copied | Problem | LeftOut]:
    """Copy the conversations of the archive at ``path``, each whole and with its heads checked, or not at all.

    Events that the store already has are not copied again; a missing tail is added. A tombstone refuses its id in this
    store for ever, so tombstones are copied only with ``tombstones``. A conversation that was recorded later than a day
    from now is a problem: no event could be recorded after it with a true time. Raises ``OSError``, ``NotAnArchive`` at
    the line where the file is damaged, and ``StoreUnavailable``. Cost: its events; memory for one transaction of them.
    """
    with path.open("rb") as file, translated():
        lines = ArchiveLines(path, file, 2 * store.database.event_bytes_max + _BESIDE_THE_BODY)
        first = lines.next_of("foldlog_archive")
        if first is None:
            raise lines.bad("the file does not begin like an archive of foldlog")
        version = lines.read(first, ArchiveLine).foldlog_archive
        if not 1 <= version <= VERSION:
            raise lines.bad(f"the archive is of version {version}, and this foldlog reads up to {VERSION}; upgrade it")
        count = events = 0
        while (last := lines.next_of("end")) is None:
            rest = _Rest(lines)
            outcome: Copied | Problem | LeftOut
            if rest.what.erasure is not None and not tombstones:
                rest.skip()
                outcome = LeftOut(rest.what.id)
            else:
                outcome = _copy_in(store, rest)
            lines.copied += isinstance(outcome, Copied)
            yield outcome
            if rest.given_up is None:
                count += 1
                events += rest.events
        end = lines.read(last, EndLine)
        if (end.conversations, end.events) != (count, events):
            raise lines.bad(
                f"the archive had {end.conversations} conversations with {end.events} events, and {count} with "
                f"{events} are in it"
            )


def _copy_in(store: Store, rest: _Rest) -> Copied | Problem:
    what = rest.what
    try:
        rest.check_time(what.created_at if what.erasure is None else what.erasure.erased_at, "it")
        if what.erasure is not None:
            rest.skip()
            return copy_tombstone(store.database, what)
        with CopyTarget(store.database, what) as copying:
            for chunk in chunked(rest.rows()):
                copying.copy(chunk)
            copying.remember(rest.keys())
            rest.skip()
            if rest.given_up is None:
                return copying.end()
    except (ConversationErased, CorruptEvent, HistoryDiverged, InvalidArgument, InvalidEvent, VersionConflict) as error:
        rest.skip()
        if rest.given_up is None:
            return Problem(what.id, _problem(error))
    return Problem(what.id, f"it was damaged when it was archived: {rest.given_up}")


def _problem(error: EventStoreError) -> str:
    """Return why a conversation was not copied. What is damaged is the archive, not a store."""
    if isinstance(error, CorruptEvent):
        place = f"conversation {error.conversation!r}, event {error.event_id}"
        return f"{place}: {error.problem}; the archive was damaged or edited: {AGAIN}"
    return error.problem if isinstance(error, ConversationErased) else str(error)


class _Rest:
    """The lines of one conversation that are not read yet."""

    def __init__(self, lines: ArchiveLines) -> None:
        line = lines.next()
        if line is None:
            raise lines.bad("the archive ends here, and its last line is missing: it was cut off")
        self._lines = lines
        self._latest = time.time_ns() // 1_000 + _AHEAD_US
        self.what: CopiedConversation = conversation_of(lines.read(line, ConversationLine))
        self.events = 0
        self.given_up: str | None = None

    def check_time(self, moment: int, what: str) -> None:
        """Raise ``InvalidEvent`` for a moment in the future: the clock of a conversation never runs backwards."""
        if moment > self._latest:
            raise InvalidEvent(
                f"{what} has the time {from_microseconds(moment).isoformat()}, which is later than this machine's "
                f"clock; nothing of the conversation was imported. Set the clock, or import it after that time"
            )

    def rows(self) -> Iterator[Row]:
        while (line := self._next_event()) is not None:
            row = row_of(self._lines, self.what.id, line)
            self.check_time(row.recorded_at, f"event {row.id}")
            yield row

    def keys(self) -> Iterator[RememberedKey]:
        while (line := self._lines.next_of("key")) is not None:
            key = self._lines.read(line, KeyLine)
            if key.events == 0 or key.first + key.events > self.what.version:
                raise self._lines.bad(f"the key stands for missing events (the conversation has {self.what.version})")
            yield key.key, key.first, key.events
        line = self._lines.next_of("given_up")
        if line is not None:
            self.given_up = self._lines.read(line, GivenUpLine).problem

    def skip(self) -> None:
        while self._next_event() is not None:
            pass
        for _ in self.keys():
            pass

    def _next_event(self) -> bytes | None:
        line = self._lines.next_of("event")
        if line is not None:
            self.events += 1
        return line
