"""What a store keeps of the files that were imported into it, so that one that is unchanged is not opened again, and a
log that has grown is read on from where it ended.

A file is kept with each conversation that it holds, beside its events, as ``KeptBeside`` says: what is erased or
redacted is read again. Where it is is kept always, for a redaction to look into, with the other files and folders from
which the conversation was read; when all of it was imported without a finding, also its size, its time and its inode,
and of a log a hash of its bytes. So a log is read on where these bytes are what they were, and no other hand wrote to
its conversation; else it is read whole. For each path the store keeps which conversations may have been read from it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from hashlib import blake2b
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from foldlog._formats.files.found import Found, Unchanged, state_of
from foldlog._formats.files.naming import Name
from foldlog._formats.files.readers import JsonLines, held_in
from foldlog._formats.live import read_on
from foldlog._formats.registry import format_named, formats
from foldlog._formats.rewritten import standing_in
from foldlog._formats.sources import Source
from foldlog._reports.kept import KeptBeside, value_of
from foldlog.eventstore import ConversationRow, Event, EventStoreError, Store
from foldlog.eventstore.recorders.base import Reader, Recorder, Transaction
from foldlog.projections import View, Views

_CODE = 2
_READ_ON_MAX = 4 * 2**20
"""The bytes beyond which a log that has grown is read whole, by another process."""


class Imported(NamedTuple):
    """The outcome for a history: its conversation, how many events were added, its version now, its format and file.
    ``alone``: the conversation has the events of the source, and no others; ``is_older``: it has records that it lacks,
    or the source says so. ``taken_back``: how many of its events, without bookkeeping, the new ones replace;
    ``is_fork``: it was edited, and goes on in a fork; ``put_back``: its redacted events, as the source has them.
    """

    conversation: str
    added: int
    version: int
    alone: bool = False
    is_older: bool = False
    taken_back: int = 0
    is_fork: bool = False
    put_back: Sequence[Event] = ()
    format: str = ""
    path: Path = Path()


class _Stored:
    """A conversation at a version, as a decoder reads it: without events that an import took back."""

    def __init__(self, store: Store, conversation: str, version: int) -> None:
        self._store, self._conversation, self._version = store, conversation, version
        structural = store.query(conversation, lambda read: [*read.structural_events(0, version)])
        self._stands = standing_in(structural, version)

    def version(self) -> int:
        return self._version

    def at(self, version: int) -> View:
        return Views(self._store).at(self._conversation, version)

    def events(self, start: int = 0, stop: int | None = None, *, reverse: bool = False) -> Iterator[Event]:
        return filter(self._stands, self._store.events(self._conversation, start, stop, reverse=reverse))


class _Kept(NamedTuple):
    """What is kept. ``then`` is the version of the conversation, and ``digest`` empty for what cannot be read on.
    ``others`` are the other paths from which it was read.
    """

    path: str = ""
    options: list[str | None] = []  # noqa: RUF012 - a tuple has it, and none changes it
    state: Sequence[int] = ()
    number: int = 0
    format: str = ""
    then: int = 0
    digest: str = ""
    others: Sequence[str] = ()


class _Beside(KeptBeside):
    """What is kept of files. Nothing can make it again, and without it a redaction would not look into them."""

    def __init__(self, store: Store) -> None:
        super().__init__(store, "source", _CODE, at_once=False)

    def of(self, path: str) -> list[tuple[_Kept, Imported]]:
        """Return what is kept of the conversations that were read from a path. Cost: these."""
        found: list[tuple[_Kept, Imported]] = []
        for name, (version, record) in self._records(_read_from(path, self._store.database.recorder)).items():
            if record is not None and record.code == _CODE:
                kept = _Kept(*value_of(record.body))
                if path in (kept.path, *kept.others):
                    found.append((kept, Imported(name, 0, version, format=kept.format, path=Path(kept.path))))
        return found

    def _wrote(self, new: dict[str, tuple[ConversationRow, Any]]) -> bool:
        named: dict[str, set[str]] = {}
        for name, (_, value) in new.items():
            for path in {(kept := _Kept(*value)).path, *kept.others}:
                named.setdefault(path, set()).add(name)
        recorder = self._store.database.recorder

        def write(transaction: Transaction) -> None:
            for path, names in named.items():
                known = _read_from(path, transaction)
                transaction.set_value(_fact(path), json.dumps([*known, *sorted(names.difference(known))]))

        if any(names.difference(_read_from(path, recorder)) for path, names in named.items()):
            recorder.offer(write, at_once=False)
        return super()._wrote(new)


class SeenFiles:
    """The files that were imported into a store, with the same options.

    ``unchanged`` are the conversations of the files that were asked for and are as they were, and ``unread_bytes`` is
    the size of these files.
    """

    def __init__(
        self, store: Store, *options: str | None, below: Iterable[str | os.PathLike[str]] = (), read_all: bool = False
    ) -> None:
        """``options`` are those of the import, on which it depends what a file becomes, ``below`` its paths. With
        ``read_all`` no file counts as unchanged.
        """
        self.unchanged: dict[str, Imported] = {}
        self.unread_bytes = 0
        self._store, self._options, self._below = store, list(options), [*map(os.path.abspath, below)]
        self._kept, self._reads_all = _Beside(store), read_all
        self._seen: dict[str, list[tuple[_Kept, Imported]]] = {}
        self._states: dict[str, tuple[int, ...]] = {}
        self._places: dict[str, int] = {}
        self._open: str | None = None
        self._of_open: dict[str, tuple[bool, str, Imported, Sequence[Path]]] = {}
        self._taken: dict[str, Path] = {}
        self._redactions, self._redacted = "", dict[int, tuple[str, tuple[object, ...]]]()
        self.left: dict[tuple[str, str], tuple[tuple[int, ...], Any]] = {}
        """What an import has read of conversations with redacted events, each as it was then."""

    def named_otherwise(self, source: Source) -> Iterator[str]:
        """Yield the conversations that were imported from the place of a source under another name, that they told or
        that of the file; none where the source tells its name now, as they did, or where something was redacted.
        """
        known = () if self._store.version(source.name) else self._kept.of(os.path.abspath(source.path))
        there = (one.conversation for kept, one in known if kept.options[1:] == self._options[1:])
        for each in there:
            is_other = each in source.former_names or not source.is_named
            if is_other and each not in self._of_open and not self._store.conversation(each).redactions:
                yield each

    def look(self, path: Path) -> Found | Unchanged | None:
        """Return a file that is as it was when all that it holds was imported, or a log with the events that were added
        to it since; None for one to read whole. Cost: its status, and that of a log beside it, in which SQLite writes
        first; of what has grown, a hash of its bytes and reading the new ones.
        """
        name = os.path.abspath(path)
        is_first_look = name not in self._places
        state = self._states[name] = state_of(name)
        self._places.setdefault(name, len(self._places))
        seen = [] if self._reads_all else self._kept.of(name)
        seen = [each for each in seen if each[0].path == name and each[0].number and each[0].options == self._options]
        self._seen[name] = seen
        is_whole = bool(seen) and all(kept.number == len(seen) for kept, _ in seen)
        found: Found | Unchanged | None = None
        is_whole = is_whole and not any(one.conversation in self._taken for _, one in seen)  # from another file
        if is_whole and all(tuple(kept.state) == state for kept, _ in seen):
            found = Unchanged(path)
            self.unchanged |= {one.conversation: one for _, one in seen}
        elif is_whole and len(seen) == 1:
            found = self._grown(path, *seen[0], state)
        self.unread_bytes += state[1] if is_first_look and found is not None else 0
        return found

    def _grown(self, path: Path, kept: _Kept, one: Imported, state: tuple[int, ...]) -> Found | None:
        format = formats().get(kept.format)
        if format is None or not kept.digest or kept.then != one.version or tuple(kept.state[:1]) != state[:1]:
            return None
        if self._store.conversation(one.conversation).redactions:  # new records may repeat what is redacted
            return None
        size = kept.state[1]
        if not size < state[1] <= size + _READ_ON_MAX or _digest(path, size) != kept.digest:
            return None
        events = read_on(format, _Stored(self._store, one.conversation, one.version), JsonLines(path, size))
        grown = one.version, events or []
        return Found(Name(one.conversation), format, path, held_in(path, 0, ()), grown=grown) if events else None

    def redacted_like(self, source: Source) -> list[str]:
        """Return the conversations with redacted events whose first event may be that of a source, by what each
        redaction leaves: the oldest ones first; all, where the first record cannot be read. One that cannot be read,
        for example without its key, is not among them. Cost: after a redaction, the conversations with redacted events,
        and a read of each new one of these.
        """
        recorder = self._store.database.recorder
        if (now := recorder.value("redactions")) != self._redactions:
            there = json.loads(recorder.value("redacted"))
            self._redacted = {key: self._redacted.get(key) or (name, self._first(name)) for key, name in there}
            self._redactions = now
        if not self._redacted:
            return []
        first = next((_gist(events[0]) for _, events in source.decoded()), None)
        return [name for name, gist in self._redacted.values() if gist and (source.findings or gist == first)]

    def _first(self, conversation: str) -> tuple[object, ...]:
        with suppress(EventStoreError):
            return next(map(_gist, self._store.events(conversation, 0, 1)))
        return ()

    def place(self, path: Path) -> int:
        """Return the place of a file among those that were asked for; that of another path is behind them."""
        return self._places.get(os.path.abspath(path), len(self._places))

    def elsewhere(self, path: Path, conversation: str, *, asked_for: bool = False) -> Path | None:
        """Return another file from which a conversation was imported last, or is unchanged, if it is still there; None
        if there is none. ``asked_for``: only one of this import.
        """
        unchanged, other = self.unchanged.get(conversation), self._taken.get(conversation)
        other = unchanged.path if other is None and unchanged is not None else other
        if other is None and self._store.version(conversation):
            known = _paths(self._kept, [self._store.conversation(conversation)]).get(conversation, ())
            other = next(
                (each for each in map(Path, known[:1]) if not asked_for or any(map(each.is_relative_to, self._below))),
                None,
            )
        is_other = other is not None and other.exists() and not (path.exists() and path.samefile(other))
        return other if is_other else None

    def imported(self, source: Source, as_: Imported, *, sound: bool = True) -> None:
        """Note how a history of a file was imported, after the others of this file; ``sound``: without a finding."""
        conversation = as_.conversation
        name = os.path.abspath(source.path)
        if name != self._open:
            self.close_file()
            self._open = name
        if conversation not in self._taken or not as_.is_older:
            self._taken[conversation] = source.path
        is_sound = sound and not source.findings_count and self._of_open.get(conversation, (True,))[0]
        self._of_open[conversation] = is_sound, source.format, as_, source.others

    def close_file(self) -> None:
        """Keep the file whose histories were imported last: there are no more."""
        name, conversations = self._open, self._of_open
        self._open, self._of_open = None, {}
        if name is None:
            return
        state, number = self._states.get(name, ()), len(conversations)
        is_whole = bool(state) and all(is_sound for is_sound, *_ in conversations.values())
        for each, (_, format, as_, others) in conversations.items():
            alone = as_.version * as_.alone
            is_log = is_whole and number == 1 and alone and format_named(format).live and not name.endswith(".zst")
            digest = _digest(Path(name), state[1]) if is_log else ""
            digest = digest if state_of(name) == state else ""  # it was written while it was read
            whole = (state, number, format, alone, digest) if is_whole else ()
            value = _Kept(name, self._options, *whole)
            self._keep(each, value, map(os.path.abspath, others), as_)
        # Those that it continues in a fork of:
        for each in {one.conversation for _, one in self._seen.get(name, ())} - conversations.keys():
            self._keep(each, _Kept(name, self._options))

    def _keep(self, conversation: str, value: _Kept, others: Iterable[str] = (), as_: Imported | None = None) -> None:
        """Keep a value with the paths ``others``, and with those from which the conversation was read before. What has
        less than another file, which is still there, is one of the others.
        """
        row, is_new = self._store.conversation(conversation), as_ is not None and as_.added == as_.version
        known = _Kept(*(() if is_new else self._kept.load([row], of_any_version=True).get(conversation, ())))
        others = {*others, value.path, *known.others, known.path}
        value = known if as_ and as_.is_older and os.path.exists(known.path) else value
        self._kept.keep(row, value._replace(others=sorted({*filter(os.path.exists, others)} - {value.path})))

    def flush(self) -> None:
        """Write what is kept. A file of which only a part was imported is not among it."""
        self._kept.flush()


def source_files(store: Store, rows: Sequence[ConversationRow]) -> dict[str, list[str]]:
    """Return the files and folders from which these conversations were imported, as far as the store knows them, by the
    ids of the conversations; of erased ones those that were noted. Cost: as ``KeptBeside.load``.
    """
    noted = store.database.recorder.query(lambda reader: _noted(reader, [row for row in rows if row.erased_at]))
    return _paths(_Beside(store), rows) | noted


def note_sources(store: Store, rows: Sequence[ConversationRow]) -> None:
    """Note the files that are there from which conversations were imported that are about to be erased together."""
    paths = {*chain.from_iterable(source_files(store, rows).values())}

    def note(transaction: Transaction) -> None:
        for name, before in _noted(transaction, rows).items():
            transaction.set_value(f"imported {name}", json.dumps(sorted(filter(os.path.exists, paths.union(before)))))

    if paths:
        store.database.recorder.transact(note)


def _noted(reader: Reader, rows: Iterable[ConversationRow]) -> dict[str, list[str]]:
    return {row.id: json.loads(reader.value(f"imported {row.id}") or "[]") for row in rows}


def keep_source(store: Store, conversation: str, paths: Sequence[str]) -> None:
    """Keep from which files a conversation was imported that are still there, after a redaction. The next import reads
    them again.
    """
    with _Beside(store) as kept:
        if there := [*filter(os.path.exists, paths)]:
            kept.keep(store.conversation(conversation), _Kept(there[0], others=there[1:]))


def _read_from(path: str, facts: Reader | Recorder) -> list[str]:
    return list(json.loads(facts.value(_fact(path)) or "[]"))


def _fact(path: str) -> str:
    return f"read {blake2b(os.fsencode(path), digest_size=16).hexdigest()}"


def _paths(kept: _Beside, rows: Sequence[ConversationRow]) -> dict[str, list[str]]:
    there = ((name, _Kept(*value)) for name, value in kept.load(rows, of_any_version=True).items())
    return {name: [value.path, *value.others] for name, value in there if value.path}


def _gist(event: Event) -> tuple[object, ...]:
    return type(event), event.origin and (event.origin.format, event.origin.time or None)


def _digest(path: Path, size: int) -> str:
    """Return a hash of the first bytes of a file; empty where it cannot be read, or they do not end a line."""
    hashed, some = blake2b(digest_size=16), b""
    with suppress(OSError), path.open("rb") as file:
        while (left := size - file.tell()) and (read := file.read(min(left, 2**20))):
            hashed.update(some := read)
    return hashed.hexdigest() if some.endswith(b"\n") else ""
