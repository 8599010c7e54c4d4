"""The interface of a writer of native sessions."""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from foldlog._base.json_types import JsonMap, JsonObject
from foldlog.eventstore import Event
from foldlog.projections import View

_TOKEN_LETTERS = 4
"""About this many letters of a session are one token of a model."""
_LETTERS_OF_A_FILE = 1_600 * _TOKEN_LETTERS
"""An image or a file costs about 1,600 tokens, however long its bytes are as text."""


class SessionRecord(NamedTuple):
    """A record of a session file. ``positions`` are the indices of the View's events that the
    record contains. The line of a record that ``is_repeated`` is what the program itself writes, so
    that a redaction of this line also blanks the program's equal lines.
    """

    record: JsonObject
    positions: tuple[int, ...] = ()
    is_repeated: bool = False

    def line(self) -> bytes:
        """Return the line of the file. Only a repeated line has the program's own spelling."""
        if self.is_repeated:
            return json.dumps(self.record, ensure_ascii=False, separators=(",", ":")).encode()
        return json.dumps(self.record).encode()


class NativeSession(ABC):
    """A new session of a program.

    ``program``   the name of the program, as in ``foldlog setup``
    ``label``     the name of the program for people and models
    ``format``    the format of its records
    ``release``   the newest release that the tests have resumed such a session with
    ``small_window``  the window of a model for which the program does not compact a longer session
                      before its first turn, or None
    """

    program: ClassVar[str]
    label: ClassVar[str]
    format: ClassVar[str]
    release: ClassVar[str]
    small_window: ClassVar[int | None] = None

    def __init__(self, cwd: Path, now: datetime) -> None:
        self.cwd = cwd
        self.now = now
        self.session = self.new_id()
        self.tokens = 0
        """About how many tokens the messages of the session have; set by ``records``."""

    @abstractmethod
    def new_id(self) -> str:
        """Return an id that no session has."""

    @abstractmethod
    def path(self) -> Path:
        """Return the path of the session file. The file does not exist."""

    @abstractmethod
    def records(self, view: View, title: str, left_out: dict[str, int]) -> list[SessionRecord]:
        """Return the records of the session. Each event of the View is in exactly one record.

        The content that the format cannot hold, or that another server would refuse, is counted in
        ``left_out`` by its kind.
        """

    @property
    @abstractmethod
    def resume(self) -> tuple[str, ...]:
        """The command that resumes the session, as the arguments of a shell."""

    @abstractmethod
    def newest(self) -> Path | None:
        """Return the newest session file of the program, or None if there is none."""


def count_tokens(messages: Iterable[JsonMap]) -> int:
    """Return about how many tokens these messages have."""
    return sum(map(_letters_in, messages)) // _TOKEN_LETTERS


def _letters_in(value: Any) -> int:
    """Return the number of letters of a value as a model reads it."""
    if isinstance(value, str):
        return _LETTERS_OF_A_FILE if value.startswith("data:") else len(value)
    if isinstance(value, dict):
        if value.get("type") == "base64":
            return _LETTERS_OF_A_FILE
        return sum(len(key) + _letters_in(inner) for key, inner in value.items())
    if isinstance(value, list | tuple):
        return sum(map(_letters_in, value))
    return 1


def times_of(events: Sequence[Event], now: datetime) -> list[str]:
    """Return the time of each event, as in the logs of the programs. An event without a time gets
    the time of the event before it, or at the beginning the first time of all, or ``now``.
    """
    times = list[str]()
    last = next((event.timestamp for event in events if event.timestamp is not None), now)
    for event in events:
        last = event.timestamp or last
        times.append(text_of_time(last))
    return times


def text_of_time(time: datetime) -> str:
    """Return a time as the programs write it."""
    return time.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def newest_below(folder: Path, pattern: re.Pattern[str], depth: int) -> Path | None:
    """Return the file that was changed last, among the files at this depth below ``folder`` whose
    names match.
    """

    def files(below: Path, levels: int) -> Iterator[Path]:
        if not below.is_dir():
            return
        for path in below.iterdir():
            if levels:
                yield from files(path, levels - 1)
            elif pattern.fullmatch(path.name):
                yield path

    def changed_at(path: Path) -> int:
        try:
            return path.stat().st_mtime_ns
        except OSError:  # it is deleted meanwhile, or a link to nothing
            return -1

    newest = max(files(folder, depth), key=changed_at, default=None)
    return None if newest is None or changed_at(newest) < 0 else newest
