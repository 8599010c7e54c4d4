"""Continue a decoder from a small stored state, without the records before.

The *window* is the newest records. A decoder that continues reads the records of the window again,
so it has their calls, branches and texts. From the records before the window, it has only the
state: numbers, hashes and flags, and no text. A record that needs more raises ``NeedsAll``. The
caller then decodes the source from its first record on.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Container, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from math import inf
from typing import Any, Final, NamedTuple

from msgspec import Struct

from foldlog.eventstore import Action, Event
from foldlog.formats.hash_set import crc32
from foldlog.formats.open_calls import OpenCalls
from foldlog.formats.view_members import Members

WINDOW_MAX: Final = 16
"""The largest window. With larger windows, a growth decodes more records again, and more windows
have a record that changes earlier records, so that everything is decoded.
"""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

Facts = Mapping[str, Any]
"""What a format must know about the records before the window: numbers, hashes and flags."""


class NeedsAll(Exception):
    """A record depends on a record before the window."""


class DecoderState(Struct, array_like=True):
    """The state of a decoder after some records.

    ``window``     the number of records that the decoder must read again
    ``ids``        checksums of the ids of all records, calls and replies
    ``ids_before`` how many of these ids come before the window
    ``newest_before``  the latest time of a record without an id before the window
    ``first``      the key of the first record: see ``Repeats``
    ``is_timed``   whether the first record has a time
    ``newest``     the latest time of a record without an id
    ``reported``   checksums of the fields that were already reported as not read
    ``facts``      the facts of the format
    """

    window: int
    ids: bytes
    ids_before: int
    newest_before: int
    first: int
    is_timed: bool
    newest: int
    reported: list[int]
    facts: dict[str, Any]


class _WindowRecord(NamedTuple):
    """A record of the window: the numbers of ids and of events before it, and its time."""

    ids: int
    version: int
    time: int = 0


class Past:
    """What a decoder knows about the records before the window.

    A record that changes earlier records, such as a compaction, ends the window, and the next
    record begins another window.

    ``is_whole``      whether the decoder reads all records, from the first on
    ``is_in_window``  whether it continues, and reads the records of the window again
    """

    def __init__(self, state: DecoderState | None = None, *, is_kept: bool = True) -> None:
        """Continue from ``state``. If ``is_kept`` is false, nothing is remembered."""
        self._is_kept = is_kept
        self.is_whole = state is None
        self.is_in_window = state is not None
        self._has_gap = False
        self._ids = array("I")
        if state is not None:
            self._ids.frombytes(state.ids[: state.ids_before * self._ids.itemsize])
        self._before = frozenset(self._ids)
        self._seen = set(self._before)
        self._window = deque[_WindowRecord]()
        self._newest_before = 0 if state is None else state.newest_before

    @property
    def start(self) -> float:
        """The version before the window."""
        return self._window[0].version if self._window else inf

    def next_record(
        self, version: int, source_id: Any = None, *, id_may_return: bool = False
    ) -> None:
        """Begin a record, and remember its id: see ``add_new``. A full window loses its oldest
        record.
        """
        if len(self._window) == WINDOW_MAX:
            self._leave()
        self._window.append(_WindowRecord(len(self._ids), version))
        if source_id is not None:
            self.add_new(f"record {source_id}", may_return=id_may_return)

    def set_time(self, time: datetime) -> None:
        """Set the time of the present record, which has no id."""
        if self._window:
            self._window[-1] = self._window[-1]._replace(time=microseconds(time))
        else:
            self._newest_before = max(self._newest_before, microseconds(time))

    def needs_all(self) -> None:
        """Raise ``NeedsAll`` if the present record comes after the window, because the record
        depends on a record before the window.
        """
        if not (self.is_whole or self.is_in_window):
            raise NeedsAll

    def break_off(self) -> None:
        """End the window, because the present record changes earlier records, or repeats one."""
        self.needs_all()
        self._has_gap |= self.is_in_window
        while self._window:
            self._leave()

    def end_window(self) -> None:
        """Call this method after the window was read again. Raises ``NeedsAll`` if its records do
        not stand alone.
        """
        if self._has_gap:
            raise NeedsAll
        self.is_in_window = False

    def add_new(self, name: str, *, may_return: bool = False) -> None:
        """Remember the id of a record or call. If the id came before, the window may mean another
        record than the whole source. With ``may_return``, the id may come again within the window.
        """
        if self._is_kept:
            number = checksum(name)
            if number in (self._before if may_return else self._seen):
                self.break_off()
            if not may_return or number not in self._seen:
                self._add(number)

    def add(self, name: str) -> None:
        """Remember a name that may come again, such as the id of a reply of several records."""
        if not self._is_kept:
            return
        number = checksum(name)
        if number not in self._seen:
            self._add(number)

    def is_before_window(self, name: str) -> bool:
        """Return whether a decoder that continues has a name only from the records before."""
        return not self.is_whole and checksum(name) in self._before

    def is_before(self, time: datetime) -> bool:
        """Return whether a time is not newer than all records before the window."""
        return microseconds(time) <= self._newest_before

    def state(
        self, first: int, newest: datetime, reported: set[int], facts: Facts, *, is_timed: bool
    ) -> DecoderState:
        """Return the state of the decoder: see ``DecoderState``."""
        window = self._window
        return DecoderState(
            window=len(window),
            ids=self._ids.tobytes(),
            ids_before=window[0].ids if window else len(self._ids),
            newest_before=self._newest_before,
            first=first,
            is_timed=is_timed,
            newest=microseconds(newest),
            reported=sorted(reported),
            facts=dict(facts),
        )

    def _add(self, number: int) -> None:
        self._ids.append(number)
        self._seen.add(number)

    def _leave(self) -> None:
        """Let the oldest record of the window count as one before the window."""
        left = self._window.popleft()
        self._newest_before = max(self._newest_before, left.time)


class CallsInWindow(OpenCalls):
    """The open calls of a decoder that continues. It does not know the calls before the window."""

    def __init__(self, past: Past) -> None:
        super().__init__()
        self._past = past
        self._known = set[Any]()
        """The ids of the calls in the window and after it."""

    def open(self, call: Action) -> None:
        self._known.add(call.call_id)
        super().open(call)

    def is_open(self, call_id: Any) -> bool:
        self._check(call_id)
        return any(call.call_id == call_id for call in self._calls.values())

    def close(self, key: Any, cause: int | None = None) -> tuple[str | None, int | None, str]:
        self._check(key.call_id if isinstance(key, Action) else key)
        return super().close(key, cause)

    def of_result(self, call_id: str | None, tool: str) -> str | Action | None:
        if call_id in (None, tool):
            self._past.needs_all()
        return super().of_result(call_id, tool)

    def forget(self, event_ids: Container[int]) -> None:
        """Let calls wait no more. The calls before the window are not known, so nothing of them is
        to be forgotten.
        """
        self._wait_for([call for call in self._calls.values() if call.id not in event_ids])

    def all(self) -> list[Action]:
        self._past.needs_all()
        return super().all()

    def _check(self, call_id: Any) -> None:
        """Raise ``NeedsAll`` for a call that may be from before the window."""
        if type(call_id) is str and call_id not in self._known:
            self._past.needs_all()


class UnknownMembers(Members[Any]):
    """The content of a View that a decoder does not know, because it continues."""

    def __init__(self, past: Past) -> None:
        super().__init__()
        self._past = past

    def newest_first(self) -> Iterator[tuple[int, Any]]:
        self._past.needs_all()
        return iter(())

    def follow(self, event: Event, tag: Any) -> None:
        pass


def checksum(text: str) -> int:
    """Return a number of four bytes. If two texts have equal numbers, a decoder only decodes more
    records than it must.
    """
    return crc32(text.encode(errors="surrogatepass"))


def microseconds(time: datetime) -> int:
    """Return a time as a number of microseconds since 1970."""
    return (time - _EPOCH) // timedelta(microseconds=1)


def time_of(number: int) -> datetime:
    """Return the time of ``microseconds``."""
    return _EPOCH + timedelta(microseconds=number)
