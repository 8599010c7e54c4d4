"""Every cell of the tables in docs/LEDGER.md: each entry reaches each thing that is derived from events.

A row is an operation, run on each database, plain and encrypted; it is killed before each of its transactions in turn.
A column is a check. It compares what is derived, by a process that was open all the time and by one that is opened
afterwards, with the events themselves. What lies outside of the store has its columns beside this file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from foldlog.eventstore import (
    ANY_VERSION,
    ConversationErased,
    ConversationNotFound,
    Detached,
    DocumentChanges,
    Entry,
    Erased,
    Event,
    Forked,
    KeyRing,
    Recorded,
    Redaction,
    Retraction,
    Store,
    recent_conversations,
)
from foldlog.eventstore.events import ATTRIBUTES, CondensationAction
from foldlog.eventstore.log import importing
from foldlog.eventstore.log.finding import Generation
from foldlog.eventstore.log.seal import WriteSettings
from foldlog.eventstore.maintenance import erase as detachment
from foldlog.eventstore.maintenance import rekey_steps as rekeying
from foldlog.eventstore.maintenance.erase import detach, erase
from foldlog.eventstore.maintenance.redact import redact
from foldlog.eventstore.maintenance.rekey import rekey
from foldlog.eventstore.maintenance.verify import verify
from foldlog.eventstore.recorders.base import Recorder
from foldlog.projections import Views, audit
from tests.between import Killed, killing
from tests.conformance.conftest import RECORDERS
from tests.said import said

KEYS = KeyRing(["11" * 32])
SECRET = "SECRET"


# -- rows of the table ------------------------------------------------------------------------------------------------


def use_again(store: Store) -> None:
    with suppress(ConversationNotFound):
        erase(store, "alone", reason="asked to")
    generation = Generation(replaces_erased=True)
    store.append("alone", said("new"), expected_version=ANY_VERSION, idempotency_key="k", generation=generation)


def change_key(store: Store) -> None:
    is_plain = store.database.recorder.query(lambda reader: reader.value("key_ids")) == ""
    keyed = Store(store.database.recorder, WriteSettings(keys=KEYS))
    list(rekey(keyed, decrypt=not getattr(store, "was_plain", is_plain)))


OPERATIONS: dict[str, Callable[[Store], object]] = {
    "Retraction": lambda store: store.append("c", Retraction(version=3), expected_version=ANY_VERSION),
    "Redaction": lambda store: redact(store, "c", 1, reason="asked to", by="tests"),
    "Erased": lambda store: erase(store, "alone", reason="asked to"),
    "the id used again": use_again,
    "Forked": lambda store: store.fork("c", 4, "g"),
    "Detached": lambda store: detach(store.database, "f"),
    "Erased, forks detached": lambda store: erase(store, "c", reason="asked to", detach_forks=True),
    "KeyChanged": change_key,
}

# -- columns of the table ---------------------------------------------------------------------------------------------


def living(store: Store) -> list[str]:
    return [row.id for row in store.iter_conversations() if row.erased_at is None]


def contents(store: Store) -> dict[str, list[Event]]:
    return {name: list(store.events(name)) for name in living(store)}


class Reader:
    """A process that has read everything, and goes on: its store, its Views, and what it followed."""

    def __init__(self, store: Store) -> None:
        self.store, self.views = store, Views(store)
        self.position = 0
        self.followed: dict[str, dict[int, Event]] = {}
        self.shared: dict[str, tuple[str, int]] = {}
        self.read()

    def read(self) -> None:
        for name in contents(self.store):
            self.views.current(name)
        for one in self.store.follow(self.position):
            self.apply(one)
            self.position = one.position
        recent(self.store)

    def apply(self, one: Recorded) -> None:
        """Keep the events of each conversation, as the ledger says."""
        events = self.followed.setdefault(one.conversation, {})
        match one.event:
            case Erased():
                del self.followed[one.conversation]
                self.shared.pop(one.conversation, None)
            case Forked(parent=parent, version=version):
                self.shared[one.conversation] = parent, version
            case Detached():
                del self.shared[one.conversation]
            case Redaction(event_ids=ids):
                for each in ids:
                    events.pop(each, None)  # to be read again
                events[one.event.id] = one.event
            case Entry():
                pass
            case _:
                events[one.event.id] = one.event


def recent(store: Store, **attributes: str) -> list[str]:
    found = recent_conversations(store.database, attributes, limit=100, after=None, age_max_s=0)
    return sorted(one.id for one in found.conversations)


def events_of_open_processes(reader: Reader, fresh: Store) -> None:
    assert contents(reader.store) == contents(fresh)


def revisions(reader: Reader, fresh: Store) -> None:
    for name in living(fresh):
        audited = audit(fresh, name)
        assert (audited.findings, audited.missing) == ((), 0), name


def views_in_memory(reader: Reader, fresh: Store) -> None:
    for name in living(fresh):
        assert reader.views.current(name).events == Views(fresh).current(name).events


def lists(reader: Reader, fresh: Store) -> None:
    there = living(fresh)
    for store in (reader.store, fresh):
        assert recent(store) == there
        assert recent(store, app="tests") == [name for name in there if _has_attributes(fresh, name)]


def _has_attributes(store: Store, name: str) -> bool:
    return any(isinstance(each, DocumentChanges) for each in store.events(name))


def followers(reader: Reader, fresh: Store) -> None:
    """One that goes on, and one that begins, have the ids that the store has: own ones, and those that it shares."""
    reader.read()
    for followed in (reader, Reader(fresh)):
        there = {}
        for name in living(fresh):
            row = fresh.conversation(name)
            begins = row.parent_version or 0
            there[name] = [each.id for each in fresh.events(name) if each.id >= begins and each.redacted is None]
            assert followed.shared.get(name) == (None if row.parent is None else (row.parent, begins))
        found = {
            name: sorted(e.id for e in events.values() if e.redacted is None)
            for name, events in followed.followed.items()
        }
        assert found == there


def verification(reader: Reader, fresh: Store) -> None:
    assert [verdict.findings for verdict in verify(fresh) if verdict.findings] == []


COLUMNS = [events_of_open_processes, revisions, views_in_memory, lists, followers, verification]


# -- the cells --------------------------------------------------------------------------------------------------------


@pytest.fixture
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(detachment, "_CHUNK", 3)
    monkeypatch.setattr(importing, "CHUNK", 3)
    monkeypatch.setattr(rekeying, "_ROWS_MAX", 4)
    monkeypatch.setattr(rekeying, "_ROWS_FIRST", 4)


def fill(store: Store) -> None:
    store.register(Views(store))
    for name in ("c", "alone"):
        events = [said("first"), said(f"{SECRET} {name}"), *map(said, "abc")]
        store.append(name, events, expected_version=0, idempotency_key="first")
        store.append(name, DocumentChanges(changed={ATTRIBUTES: {"value": {"app": "tests"}}}), expected_version=5)
        condensation = CondensationAction(forgotten_event_ids=[0, 2], summary="s", summary_offset=0)
        store.append(name, [condensation, said("d")], expected_version=6)
    store.fork("c", 7, "f")
    store.append("f", [said("own"), CondensationAction(forgotten_event_ids=[3])], expected_version=7)


@pytest.fixture(params=RECORDERS)
def open_at(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[int], Callable[[], Recorder]]]:
    """Return for a number how to open the recorder of a store of its own. A store in memory has one recorder, and so
    has one on a server: it is the stores that remember.
    """
    from foldlog.eventstore.opening import recorder_and_settings
    from foldlog.eventstore.recorders.sqlite import SQLiteRecorder
    from foldlog.eventstore.recorders.sqlite.memory import MemoryRecorder

    opened: list[Recorder] = []

    def of(number: int) -> Callable[[], Recorder]:
        close(opened)
        if request.param == "sqlite":
            return lambda: opening(SQLiteRecorder(str(tmp_path / f"{number}.db")))
        if request.param == "memory":
            memory = MemoryRecorder()
            return lambda: memory
        on_server = opening(recorder_and_settings(request.getfixturevalue("postgres_url")(another=True))[0])
        return lambda: on_server

    def opening(recorder: Any) -> Any:
        opened.append(recorder)
        return recorder

    yield of
    close(opened)


def close(recorders: list[Recorder]) -> None:
    while recorders:
        recorders.pop().close()


@pytest.fixture
def is_sampled(request: pytest.FixtureRequest, whole: bool) -> bool:
    """Whether a part of the kills is enough: SQLite's recorder meets every one, in a file."""
    return not whole and request.node.callspec.params["open_at"] != "sqlite"


@pytest.mark.usefixtures("small_steps")
@pytest.mark.parametrize("operation", OPERATIONS)
def test_each_entry_reaches_what_is_derived(
    operation: str, open_at: Callable[[int], Callable[[], Recorder]], is_sampled: bool, whole: bool
):
    """Plain and encrypted; where a part of the kills is enough, one of these is too.

    In a file each second kill is of a plain store, and the others are of an encrypted one.
    """
    for is_plain in [list(OPERATIONS).index(operation) % 2 == 0] if is_sampled else [True, False]:
        kills = count(1, 3) if is_sampled else count() if whole else count(int(is_plain), 2)
        reach(OPERATIONS[operation], is_plain, open_at, kills)


def reach(
    run: Callable[[Store], object],
    is_plain: bool,
    open_at: Callable[[int], Callable[[], Recorder]],
    kills: Iterable[int],
) -> None:
    keys = None if is_plain and run is not change_key else KEYS
    for transactions in kills:
        recorder = open_at(2 * transactions + is_plain)
        fill(Store(recorder(), WriteSettings(keys=None if is_plain else KEYS)))
        reader = Reader(Store(recorder(), WriteSettings(keys=keys, plain_allowed=True)))
        operated = Store(killing(recorder(), transactions), WriteSettings(keys=keys, plain_allowed=True))
        operated.was_plain = is_plain  # type: ignore[attr-defined]
        operated.register(Views(operated))
        try:
            run(operated)
            is_killed = False
        except Killed:
            is_killed = True
            between = Store(recorder(), WriteSettings(keys=keys, plain_allowed=True))
            assert contents(reader.store) == contents(between)
            again = Store(recorder(), WriteSettings(keys=keys, plain_allowed=True))
            again.was_plain = is_plain  # type: ignore[attr-defined]
            again.register(Views(again))
            with suppress(ConversationErased):
                run(again)
        fresh = Store(recorder(), WriteSettings(keys=keys, plain_allowed=True))
        assert fresh.database.recorder.query(lambda reader: reader.unfinished()) == []
        for column in COLUMNS:
            column(reader, fresh)
        if not is_killed:
            return
