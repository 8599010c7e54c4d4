"""What a store keeps of the files that were imported into it, so that one that is unchanged is not opened again.

A file is kept with each conversation that it holds, beside its events, as ``KeptBeside`` says: what is erased or
redacted is read again. It is kept when all of it was imported without a finding. It says nothing of the content of a
file: where it is, its size, its time and its inode.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple

from foldlog._formats.source import Source
from foldlog._reports.kept import KeptBeside
from foldlog.eventstore import Event, EventStoreError, Store

_CODE = 1
_PAGE = 1_000

State = tuple[int, ...]


class SeenHistory(NamedTuple):
    """A conversation whose file is as it was when it was imported: its id, its version now, its format, its file."""

    conversation: str
    version: int
    format: str
    path: Path


class SeenFiles:
    """The files that were imported into a store, with the same options.

    ``unchanged`` are the conversations of the files that were asked for and are as they were, and ``unread_bytes`` is
    the size of these files.
    """

    def __init__(self, store: Store, *options: str | None, read_all: bool = False) -> None:
        """``options`` are those of the import, on which it depends what a file becomes. With ``read_all`` no file
        counts as unchanged. Cost: the conversations of the store.
        """
        self.unchanged: dict[str, SeenHistory] = {}
        self.unread_bytes = 0
        self._store, self._options = store, list(options)
        self._kept = KeptBeside(store, "source", _CODE)
        self._seen: dict[str, list[tuple[State, int, SeenHistory]]] = {}
        self._states: dict[str, State] = {}
        self._places: dict[str, int] = {}
        self._open: str | None = None
        self._of_open: dict[str, bool] = {}
        self._formats: dict[str, str] = {}
        self._taken: dict[str, Path] = {}
        self._redacted: dict[tuple[object, ...], list[str]] | None = None
        for one, state, number in () if read_all else self._read():
            self._seen.setdefault(str(one.path), []).append((state, number, one))

    def _read(self) -> Iterator[tuple[SeenHistory, State, int]]:
        rows = (row for row in self._store.iter_conversations() if row.erased_at is None)
        while page := list(islice(rows, _PAGE)):
            there = self._kept.load(page, of_any_version=True)
            for row in page:
                path, options, state, number, format = there.get(row.id, ("", [], (), 0, ""))
                if path and options == self._options:
                    yield SeenHistory(row.id, row.version, format, Path(path)), tuple(state), number

    def is_unchanged(self, path: Path) -> bool:
        """Return whether a file is as it was when all that it holds was imported. Cost: its status, and that of a log
        beside it, in which SQLite writes first.
        """
        name = os.path.abspath(path)
        is_first_look = name not in self._places
        state = self._states[name] = _state(name)
        self._places.setdefault(name, len(self._places))
        seen = self._seen.get(name, ())
        if not seen or any((then, number) != (state, len(seen)) for then, number, _ in seen):
            return False
        self.unread_bytes += state[1] if is_first_look else 0
        self.unchanged |= {one.conversation: one for _, _, one in seen}
        return True

    def redacted_like(self, source: Source) -> list[str]:
        """Return the conversations with redacted events whose first event may be that of a source, by what each
        redaction leaves: the oldest ones first. One that cannot be read, for example without its key, is not among
        them. Cost: once the conversations of the store, and a read of each of these.
        """
        if self._redacted is None:
            self._redacted = {}
            rows = (row for row in self._store.iter_conversations() if row.redactions and row.erased_at is None)
            for row in sorted(rows, key=attrgetter("created_at")):
                with suppress(EventStoreError):
                    for event in self._store.events(row.id, 0, 1):
                        self._redacted.setdefault(_gist(event), []).append(row.id)
        if not self._redacted:
            return []
        return next((self._redacted.get(_gist(events[0]), []) for _, events in source.decoded()), [])

    def place(self, path: Path) -> int:
        """Return the place of a file among those that were asked for; that of another path is behind them."""
        return self._places.get(os.path.abspath(path), len(self._places))

    def elsewhere(self, path: Path, conversation: str) -> Path | None:
        """Return another file that was asked for and holds a conversation, of those so far; None if there is none."""
        known = self.unchanged.get(conversation)
        other = self._taken.get(conversation, None if known is None else known.path)
        return None if other is None or os.path.abspath(other) == os.path.abspath(path) else other

    def imported(self, path: Path, format: str, conversation: str, *, sound: bool) -> None:
        """Note that a history of a file was imported, after the others of this file. ``sound``: without a finding."""
        name = os.path.abspath(path)
        if name != self._open:
            self.close_file()
            self._open = name
        self._taken.setdefault(conversation, path)
        self._of_open[conversation] = sound and self._of_open.get(conversation, True)
        self._formats[conversation] = format

    def close_file(self) -> None:
        """Keep the file whose histories were imported last: there are no more."""
        name, conversations = self._open, self._of_open
        self._open, self._of_open = None, {}
        if name is not None and name in self._states and all(conversations.values()):
            for each in conversations:
                value = name, self._options, self._states[name], len(conversations), self._formats[each]
                self._kept.keep(self._store.conversation(each), value)
            for _, _, one in self._seen.get(name, ()):
                if one.conversation not in conversations:  # it continues in a fork of this one
                    self._kept.keep(self._store.conversation(one.conversation), ("", [], (), 0, ""))

    def flush(self) -> None:
        """Write what is kept. A file of which only a part was imported is not among it."""
        self._kept.flush()


def _gist(event: Event) -> tuple[object, ...]:
    return type(event), event.origin and (event.origin.format, event.origin.time)


def _state(path: str) -> State:
    """Return what differs when a file was changed or replaced."""
    state: State = ()
    for name in (path, f"{path}-wal"):
        try:
            status = os.stat(name)
        except OSError:
            continue
        state += status.st_ino, status.st_size, status.st_mtime_ns
    return state
