"""Each operation that was killed, met by each other one: it is finished first, and nothing is lost or comes back."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import product
from operator import attrgetter
from pathlib import Path

import pytest

from foldlog.eventstore import (
    ANY_VERSION,
    ConversationErased,
    ConversationNotFound,
    Message,
    Origin,
    Store,
    open_store,
)
from foldlog.eventstore.log import importing, origins
from foldlog.eventstore.log.finding import Generation
from foldlog.eventstore.log.seal import ENCRYPTED, WriteSettings
from foldlog.eventstore.maintenance.backup import back_up, vacuum
from foldlog.eventstore.maintenance.copy import copy_store
from foldlog.eventstore.maintenance.erase import detach, erase
from foldlog.eventstore.maintenance.redact import redact
from foldlog.eventstore.maintenance.rekey import rekey
from foldlog.eventstore.maintenance.verify import verify
from foldlog.eventstore.recorders.base import Recorder
from foldlog.eventstore.recorders.sqlite.memory import MemoryRecorder
from tests.between import Killed, killing, meeting
from tests.ledger.test_cells import (
    KEYS,
    SECRET,
    contents,
    fill,
    is_sampled,
    open_at,
    small_steps,
)
from tests.said import said

__all__ = ["is_sampled", "open_at", "small_steps"]

KILLED: dict[str, Callable[[Store], object]] = {
    "erase": lambda store: erase(store, "alone", reason="asked to"),
    "import": lambda store: store.ingest("imported", [said(f"{SECRET} {n}") for n in range(9)]),
    "detach": lambda store: detach(store.database, "f"),
    "rekey": lambda store: list(rekey(store)),
    "decrypt": lambda store: list(rekey(store, "c", decrypt=True)),
}


def copy_a_redaction(store: Store) -> None:
    """Copy the redaction of an event which the store that it is copied from has made."""
    source = Store(MemoryRecorder(), store.database.settings)
    list(copy_store(store, source, "c"))
    redact(source, "c", 1, reason="asked to", by="tests")
    assert [moved.problem for moved in copy_store(source, store, "c")] == [None]


MEETING: dict[str, Callable[[Store], object]] = {
    "redact": lambda store: redact(store, "c", 1, reason="asked to", by="tests"),
    "redact in a fork": lambda store: redact(store, "f", 7, reason="asked to", by="tests"),
    "redact by a copy": copy_a_redaction,
    "erase": lambda store: erase(store, "f", reason="asked to"),
    "erase, forks detached": lambda store: erase(store, "c", reason="asked to", detach_forks=True),
    "detach": lambda store: detach(store.database, "f"),
    "fork": lambda store: store.fork("f", 8, "g"),
    "rekey": lambda store: list(rekey(store)),
    "vacuum": lambda store: vacuum(store),
}


@pytest.mark.usefixtures("small_steps")
@pytest.mark.parametrize("meeting", MEETING)
def test_what_was_killed_is_finished_by_what_meets_it(
    meeting: str,
    open_at: Callable[[int], Callable[[], Recorder]],
    is_sampled: bool,
    whole: bool,
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(importing, "CHUNK", 3)
    cases = [*product(KILLED, (1, 2, 4))]
    if not whole:  # in a file each operation meets each other one, killed at one of its moments
        cases = (
            cases[list(MEETING).index(meeting) % 7 :: 7] if is_sampled else cases[list(MEETING).index(meeting) % 2 :: 2]
        )
    for number, (killed, transactions) in enumerate(cases):
        recorder = open_at(number)
        keys = KEYS if killed in ("rekey", "decrypt") or meeting == "rekey" else None
        before_it = WriteSettings(keys=KEYS if killed == "decrypt" else None)
        fill(Store(recorder(), before_it))
        wanted = contents(Store(recorder(), before_it))
        operated = killing(recorder(), transactions)
        with suppress(Killed):
            KILLED[killed](Store(operated, WriteSettings(keys=keys)))
        store = Store(recorder(), WriteSettings(keys=keys))
        MEETING[meeting](store)
        redacts = meeting in ("redact", "redact by a copy")
        shares = redacts and store.conversation("f").parent is not None
        with suppress(ConversationErased, ConversationNotFound):
            KILLED[killed](store)
        there = contents(store)
        for name, events in there.items():
            before = wanted.get(name, events)
            assert [one for one, was in zip(events, before, strict=False) if one != was and one.redacted is None] == []
            assert len(events) >= len(before)
        if redacts:
            assert there["c"][1].redacted is not None
            assert (there["f"][1].redacted is not None) == shares
        vacuum(store)
        list(rekey(store))
        assert (
            store.database.recorder.query(
                lambda reader: [each for each in reader.unfinished() if each.operation != "import"]
            )
            == []
        )
        assert [verdict.findings for verdict in verify(store) if verdict.findings] == []


@pytest.mark.usefixtures("small_steps")
def test_an_erasure_is_completed_where_its_id_is_used_again(open_at: Callable[[int], Callable[[], Recorder]]):
    """The advice of ``verify`` must not erase the new conversation."""
    recorder = open_at(0)
    fill(Store(recorder()))
    operated = killing(recorder(), 1)
    with suppress(Killed):
        erase(Store(operated), "alone", reason="asked to")
    store = Store(recorder())
    generation = Generation(replaces_erased=True)
    store.append("alone", said("new and wanted"), expected_version=0, generation=generation)
    (finding,) = [finding for verdict in verify(store) for finding in verdict.findings]
    assert "run 'foldlog vacuum'" in str(finding)
    vacuum(store)
    assert [finding for verdict in verify(store) for finding in verdict.findings] == []
    assert [one.content for one in store.events("alone")] == ["new and wanted"]  # type: ignore[union-attr]
    assert SECRET + " alone" not in str(list(store.follow()))


@pytest.mark.usefixtures("small_steps")
def test_a_fork_without_events_of_its_own_gets_a_key(open_at: Callable[[int], Callable[[], Recorder]]):
    """It has plain rows, of a detachment that was killed, and plain keys of what its parent redacted."""
    recorder = open_at(0)
    events = [Message(source="user", content=str(n), origin=Origin(format="test", id=n)) for n in range(9)]
    plain, encrypted = Store(recorder()), WriteSettings(keys=KEYS)
    plain.append("c", events, expected_version=0, dedupe="origin")
    redact(plain, "c", 2, reason="asked to", by="tests")
    for fork in "fg":
        plain.fork("c", 8, fork)
    operated = killing(recorder(), 1)
    with suppress(Killed):
        detach(Store(operated).database, "f")
    store = Store(recorder(), encrypted)
    store.append("g", said("own"), expected_version=8)
    assert store.append("g", events[:8], expected_version=9, dedupe="origin") == ()
    erase(store, "c", reason="asked to", detach_forks=True)
    assert [len(list(store.events(fork))) for fork in "fg"] == [8, 9]
    assert [verdict.findings for verdict in verify(store) if verdict.findings] == []
    list(rekey(store))
    assert [verdict.findings for verdict in verify(store) if verdict.findings] == []


@pytest.mark.usefixtures("small_steps")
def test_an_append_gives_a_key_while_rows_are_compressed(open_at: Callable[[int], Callable[[], Recorder]]):
    """The rows that were compressed before are plain, so the change begins again."""
    recorder = open_at(0)
    plain = Store(recorder())
    plain.append("c", [said("long " * 99) for _ in range(9)], expected_version=0, idempotency_key="first")
    operated = killing(recorder(), 2)
    with suppress(Killed):
        list(rekey(Store(operated, WriteSettings(compression="zlib"))))
    store = Store(recorder(), WriteSettings(keys=KEYS))
    store.append("c", said("own"), expected_version=9)
    wanted = list(store.events("c"))
    list(rekey(store))
    assert list(store.events("c")) == wanted
    assert [verdict.findings for verdict in verify(store) if verdict.findings] == []
    assert store.append("c", [said("long " * 99) for _ in range(9)], expected_version=0, idempotency_key="first")
    key = store.query("c", attrgetter("key"))
    rows = store.database.recorder.query(lambda reader: reader.rows(key, 0, 10, 10))
    assert all(row.encoding & ENCRYPTED for row in rows)


def test_a_fork_may_be_erased_while_it_is_detached():
    for calls in range(1, 9):
        store = Store(MemoryRecorder())
        event = Message(source="user", content="first", origin=Origin(format="test", id=1))
        store.append("c", event, expected_version=0, dedupe="origin")
        store.fork("c", 1, "f")
        met = meeting(
            store.database.recorder, calls - 1, partial(erase, store, "f", reason="asked to"), "query", "transact"
        )
        erase(Store(met), "c", reason="asked to", detach_forks=True)
        assert store.conversation("c").erased_at is not None


def test_a_fork_that_was_detached_meanwhile_is_not_erased():
    for calls in range(1, 9):
        store = Store(MemoryRecorder())
        store.append("c", said("first"), expected_version=0)
        store.fork("c", 1, "f")
        work = partial(erase, store, "c", reason="asked to", detach_forks=True)
        met = meeting(store.database.recorder, calls - 1, work, "query", "transact")
        erase(Store(met), "c", reason="asked to", with_forks=True)
        fork = store.conversation("f")
        assert (fork.erased_at is None) == (fork.parent is None), calls
        assert [verdict.findings for verdict in verify(store) if verdict.findings] == []


@pytest.mark.parametrize("way", ["with_forks", "detach_forks"])
@pytest.mark.parametrize("name", ["c", "f"])
def test_what_has_the_id_of_an_erased_conversation_meanwhile_is_left_as_it_is(name: str, way: str):
    def use_again() -> None:
        erase(store, name, reason="asked to", with_forks=True)
        store.fork("other", 1, name, replace_erased=True)
        used.append(name)

    for calls in range(2, 9):
        store, used = Store(MemoryRecorder()), list[str]()
        for each in ("c", "other"):
            store.append(each, said(each), expected_version=0)
        store.fork("c", 1, "f")
        met = meeting(store.database.recorder, calls - 1, use_again, "query", "transact")
        erase(Store(met), "c", reason="asked to", **{way: True})
        if used:
            assert store.conversation(name).parent == "other", calls
            assert [event.content for event in store.events(name)] == ["other"]  # type: ignore[union-attr]


def test_what_has_the_id_of_an_indexed_conversation_meanwhile_is_indexed(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(origins, "_CHUNK", 2)

    def history(first: int) -> list[Message]:
        return [Message(source="user", content="", origin=Origin(format="test", id=first + n)) for n in range(5)]

    def use_again() -> None:
        erase(store, "c", reason="asked to")
        store.append("c", history(5), expected_version=0, generation=Generation(replaces_erased=True))

    for calls in range(1, 6):
        store = Store(MemoryRecorder())
        store.append("c", history(0), expected_version=0)
        met = meeting(store.database.recorder, calls - 1, use_again, "query", "transact")
        assert Store(met).append("c", history(5), expected_version=ANY_VERSION, dedupe="origin") == (), calls


def test_what_a_killed_backup_leaves_is_named_and_removed(tmp_path: Path):
    path = tmp_path / "h.db"
    with open_store(f"sqlite:///{path}") as store:
        store.append("c", [said(SECRET * 99)] * 5_000, expected_version=0)
    program = (
        "import sys; import foldlog.eventstore as e; from foldlog.eventstore.maintenance.backup import back_up;"
        "back_up(e.open_store(sys.argv[1]), sys.argv[2], lambda done, of: print(done, flush=True))"
    )
    backup = str(tmp_path / "elsewhere.bak")
    with subprocess.Popen([sys.executable, "-c", program, f"sqlite:///{path}", backup], stdout=subprocess.PIPE) as run:
        assert run.stdout is not None
        run.stdout.readline()
        run.send_signal(signal.SIGKILL)
    (part,) = tmp_path.glob("*.part")
    with open_store(f"sqlite:///{path}") as store:
        (finding,) = [finding for verdict in verify(store) for finding in verdict.findings]
        assert str(part) in str(finding)
        vacuum(store)
        assert not part.exists()
        assert [finding for verdict in verify(store) for finding in verdict.findings] == []
        assert back_up(store, backup).events == 5_000
    with open_store(f"sqlite:///{backup}") as copy:
        assert copy.database.recorder.query(lambda reader: reader.unfinished()) == []
