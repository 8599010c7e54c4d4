"""The next operation finishes an operation that was killed: no event is lost, and nothing that was
erased comes back. ``tests/simulation/test_kills.py`` kills each operation at each statement.
"""

import signal
import subprocess
import sys
from contextlib import suppress
from functools import partial
from itertools import count, islice, product
from operator import attrgetter

import pytest

from foldlog.eventstore import (
    ANY_VERSION,
    ConversationErased,
    ConversationNotFound,
    Documents,
    KeyRing,
    Origin,
    Store,
    open_store,
    restore_store,
)
from foldlog.eventstore.events import ATTRIBUTES, CondensationAction
from foldlog.eventstore.log import importing, origins
from foldlog.eventstore.log.seal import ENCRYPTED, WriteSettings
from foldlog.eventstore.maintenance import erase as detachment, rekey_steps as rekeying
from foldlog.eventstore.maintenance.backup import back_up, vacuum
from foldlog.eventstore.maintenance.copy import copy_store
from foldlog.eventstore.maintenance.rekey import rekey
from foldlog.eventstore.opening import recorder_and_settings
from foldlog.eventstore.recorders.sqlite import SQLiteRecorder
from foldlog.eventstore.recorders.sqlite.memory import MemoryRecorder
from foldlog.eventstore.store import bind
from foldlog.projections import Views
from tests.between import Killed, call_before, kill_after
from tests.conformance.conftest import RECORDERS
from tests.privacy import erased, redacted
from tests.said import ids, said, say, texts
from tests.sound import assert_sound, problems

KEYS = KeyRing(["11" * 32])
SECRET = "SECRET"


def contents(store):
    living = [row.id for row in store.iter_conversations() if row.erased_at is None]
    return {name: list(store.events(name)) for name in living}


@pytest.fixture
def small_steps(monkeypatch):
    monkeypatch.setattr(detachment, "_CHUNK", 3)
    monkeypatch.setattr(importing, "CHUNK", 3)
    monkeypatch.setattr(rekeying, "_ROWS_MAX", 4)
    monkeypatch.setattr(rekeying, "_ROWS_FIRST", 4)


def fill(store):
    store.register(Views(store))
    for name in ("c", "alone"):
        events = [said("first"), said(f"{SECRET} {name}"), *map(said, "abc")]
        store.append(name, events, expected_version=0, idempotency_key="first")
        Documents(store).append(name, (), {ATTRIBUTES: {"app": "tests"}})
        condensation = CondensationAction(forgotten_event_ids=[0, 2], summary="s", summary_offset=0)
        store.append(name, [condensation, said("d")], expected_version=6)
    store.fork("c", 7, "f")
    store.append(
        "f", [said("own"), CondensationAction(forgotten_event_ids=[3])], expected_version=7
    )


@pytest.fixture(params=RECORDERS)
def open_at(request, tmp_path):
    """Return a function that makes a new store for a number, and returns how to open its recorder. In
    memory and on a server, each call returns the same recorder, because only stores have caches.
    """
    recorders = []

    def make_store(number):
        close(recorders)
        if request.param == "sqlite":
            return lambda: add(SQLiteRecorder(str(tmp_path / f"{number}.db")))
        if request.param == "memory":
            memory = MemoryRecorder()
            return lambda: memory
        url = request.getfixturevalue("postgres_url")(another=True)
        on_server = add(recorder_and_settings(url)[0])
        return lambda: on_server

    def add(recorder):
        recorders.append(recorder)
        return recorder

    yield make_store
    close(recorders)


def kill(recorder, transactions, act, settings=None):
    """Act in a process that is killed after so many transactions."""
    with suppress(Killed):
        act(Store(kill_after(recorder, transactions), settings or WriteSettings()))


def close(recorders):
    while recorders:
        recorders.pop().close()


@pytest.fixture
def is_sampled(request, whole):
    """Return whether to kill only at some transactions. Tests with SQLite files kill at all of them."""
    return not whole and request.node.callspec.params["open_at"] != "sqlite"


KILLED = {
    "erase": lambda store: erased(store, "alone"),
    "import": lambda store: store.ingest("imported", [said(f"{SECRET} {n}") for n in range(9)]),
    "erase, forks detached": lambda store: erased(store, "c", detach_forks=True),
    "rekey": lambda store: list(rekey(store)),
    "decrypt": lambda store: list(rekey(store, "c", decrypt=True)),
}


def copy_a_redaction(store):
    """Copy a redaction that was made in the source of the copy."""
    source = Store(MemoryRecorder(), store.database.settings)
    list(copy_store(store, source, "c"))
    redacted(source, "c", 1)
    assert [row.problem for row in copy_store(source, store, "c")] == [None]


MEETING = {
    "redact": lambda store: redacted(store, "c", 1),
    "redact in a fork": lambda store: redacted(store, "f", 7),
    "redact by a copy": copy_a_redaction,
    "erase": lambda store: erased(store, "f"),
    "erase, forks detached": KILLED["erase, forks detached"],
    "fork": lambda store: store.fork("f", 8, "g"),
    "rekey": KILLED["rekey"],
    "vacuum": vacuum,
}
REDACTED = {
    "redact": [("c", 1), ("f", 1)],
    "redact in a fork": [("f", 7)],
    "redact by a copy": [("c", 1), ("f", 1)],
}
"""The conversations and events that an operation redacts, if they are not erased."""


@pytest.mark.usefixtures("small_steps")
@pytest.mark.parametrize("meeting", MEETING)
def test_the_next_operation_finishes_a_killed_one(meeting, open_at, is_sampled, whole):
    cases = [*product(KILLED, (1, 2, 4))]
    if not whole:  # in a file each operation meets each killed one, at one of its kills at least
        step = 7 if is_sampled else 3
        cases = cases[list(MEETING).index(meeting) % step :: step]
    for number, (killed, transactions) in enumerate(cases):
        recorder = open_at(number)
        keys = KEYS if killed in ("rekey", "decrypt") or meeting == "rekey" else None
        settings = WriteSettings(keys=KEYS if killed == "decrypt" else None)
        fill(Store(recorder(), settings))
        contents_before = contents(Store(recorder(), settings))
        kill(recorder(), transactions, KILLED[killed], WriteSettings(keys=keys))
        store = Store(recorder(), WriteSettings(keys=keys))
        MEETING[meeting](store)
        with suppress(ConversationErased, ConversationNotFound):
            KILLED[killed](store)
        contents_after = contents(store)
        for name, events in contents_after.items():
            events_before = contents_before.get(name, events)
            changed = [
                event
                for event, before in zip(events, events_before, strict=False)
                if event != before and event.redacted is None
            ]
            assert changed == []
            assert len(events) >= len(events_before)
        for name, event_id in REDACTED.get(meeting, ()):
            if name in contents_after:
                assert contents_after[name][event_id].redacted is not None
        vacuum(store)
        list(rekey(store))
        unfinished = store.database.recorder.query(lambda reader: reader.unfinished())
        assert [row for row in unfinished if row.operation != "import"] == []
        assert_sound(store)


@pytest.mark.usefixtures("small_steps")
@pytest.mark.parametrize("is_killed", [True, False])
def test_a_redaction_during_an_erasure_reaches_forks(is_killed, open_at, is_sampled):
    """The erasure is killed at that moment and run again, or goes on after another process redacts."""
    for transactions in count(1, 3 if is_sampled else 1):
        recorder = open_at(transactions)
        store = Store(recorder())
        fill(store)
        store.fork("c", 4, "g")
        outcomes = []

        def redact_it(store=store, outcomes=outcomes):
            try:
                outcomes.append(redacted(store, "c", 1))
            except ConversationErased as error:
                outcomes.append(error)

        between = (
            kill_after(recorder(), transactions)
            if is_killed
            else call_before(recorder(), transactions, redact_it)
        )
        erase_it = partial(erased, conversation="c", detach_forks=True)
        try:
            erase_it(Store(between))
        except Killed:
            redact_it()
            erase_it(store)
        if not outcomes:
            assert transactions > 6
            return
        blanked = [name for name in "fg" if SECRET not in str(list(store.events(name)))]
        if isinstance(outcomes[0], ConversationErased):
            assert blanked == []
            assert "copies kept by forks: 'f' events 0 to 6, 'g' events 0 to 3" in str(outcomes[0])
        else:
            assert (blanked, outcomes[0].forks) == (["f", "g"], ("f", "g"))
        assert_sound(store)


@pytest.mark.usefixtures("small_steps")
def test_an_erasure_does_not_trust_discarded_copies(open_at, is_sampled):
    """The erasure goes on between two transactions that discard the copied events of the fork."""
    for transactions in count(1, 2 if is_sampled else 1):
        recorder = open_at(transactions)
        store = Store(recorder())
        fill(store)
        kill(recorder(), 4, KILLED["erase, forks detached"])
        erase_again = partial(erased, store, "c", detach_forks=True)
        try:
            redacted(Store(call_before(recorder(), transactions, erase_again)), "c", 1)
        except ConversationErased:
            assert SECRET in str(list(store.events("f")))
        else:
            assert transactions > 3
            return
        assert ids(store.events("f")) == [*range(9)]
        assert_sound(store)


@pytest.mark.usefixtures("small_steps")
def test_an_erasure_is_completed_under_a_reused_id(open_at):
    """The command that ``verify`` advises must not erase the new conversation."""
    recorder = open_at(0)
    fill(Store(recorder()))
    kill(recorder(), 1, KILLED["erase"])
    store = Store(recorder())
    say_again(store, "alone", "new and wanted")
    (finding,) = problems(store)
    assert "run 'foldlog store vacuum'" in finding
    vacuum(store)
    assert_sound(store)
    assert [event.content for event in store.events("alone")] == ["new and wanted"]
    assert SECRET + " alone" not in str(list(store.follow()))


@pytest.mark.usefixtures("small_steps")
def test_a_fork_without_own_events_gets_a_key(open_at):
    """The fork has plain rows of a killed detachment, and plain keys of events that its parent
    redacted.
    """
    recorder = open_at(0)
    events = [said(str(n), origin=Origin(format="test", id=n)) for n in range(9)]
    plain = Store(recorder())
    encrypted = WriteSettings(keys=KEYS)
    plain.append("c", events, expected_version=0, dedupe="origin")
    redacted(plain, "c", 2)
    for fork in "fg":
        plain.fork("c", 8, fork)
    kill(recorder(), 1, KILLED["erase, forks detached"])
    store = Store(recorder(), encrypted)
    say(store, "g", "own")
    assert store.append("g", events[:8], expected_version=9, dedupe="origin") == ()
    erased(store, "c", detach_forks=True)
    assert [len(list(store.events(fork))) for fork in "fg"] == [8, 9]
    assert_sound(store)
    list(rekey(store))
    assert_sound(store)


@pytest.mark.usefixtures("small_steps")
def test_an_append_encrypts_during_a_compression(open_at):
    """The rows that are already compressed are not encrypted, so the change begins again."""
    recorder = open_at(0)
    plain = Store(recorder())
    say(plain, "c", *("long " * 99 for _ in range(9)), idempotency_key="first")
    kill(recorder(), 2, KILLED["rekey"], WriteSettings(compression="zlib"))
    store = Store(recorder(), WriteSettings(keys=KEYS))
    say(store, "c", "own")
    events = list(store.events("c"))
    list(rekey(store))
    assert list(store.events("c")) == events
    assert_sound(store)
    assert say(store, "c", *("long " * 99 for _ in range(9)), idempotency_key="first")
    key = store.query("c", attrgetter("key"))
    rows = store.database.recorder.query(lambda reader: reader.rows(key, 0, 10, 10))
    assert all(row.encoding & ENCRYPTED for row in rows)


def erased_stores(interrupt, **options):
    """Yield stores of an erased conversation. In each of them ``interrupt`` was called before another
    call of the database that the erasure made.
    """
    for calls in range(8):
        store = Store(MemoryRecorder())
        for name in ("c", "other"):
            event = said(name, origin=Origin(format="test", id=1))
            store.append(name, event, expected_version=0, dedupe="origin")
        store.fork("c", 1, "f")
        interrupted = call_before(
            store.database.recorder, calls, partial(interrupt, store), "query", "transact"
        )
        erased(Store(interrupted), "c", **options)
        yield store


def test_a_fork_is_erased_while_detached():
    erase_fork = partial(erased, conversation="f")
    for store in erased_stores(erase_fork, detach_forks=True):
        assert store.conversation("c").erased_at is not None
        assert store.conversation("f").erased_at is not None
        assert_sound(store)


def test_a_fork_detached_meanwhile_is_not_erased():
    detach = partial(erased, conversation="c", detach_forks=True)
    for store in erased_stores(detach, with_forks=True):
        fork = store.conversation("f")
        assert (fork.erased_at is None) == (fork.parent is None)
        assert_sound(store)


@pytest.mark.usefixtures("small_steps")
def test_a_fork_with_copies_is_erased_with_its_parent():
    for transactions in count():
        recorder = MemoryRecorder()
        store = Store(recorder)
        fill(store)
        kill(recorder, transactions, KILLED["erase, forks detached"])
        if store.conversation("c").erased_at is not None:
            break
        erased(store, "c", with_forks=True, detach_forks=True)
        assert store.conversation("f").erased_at is not None
        assert_sound(store)
    assert transactions > 3  # the fork had copies of some events, and then of all


@pytest.mark.parametrize("option", ["with_forks", "detach_forks"])
@pytest.mark.parametrize("name", ["c", "f"])
def test_an_erasure_leaves_a_successor_alone(name, option):
    stores = []

    def use_again(store):
        erased(store, name, with_forks=True)
        store.fork("other", 1, name, replace_erased=True)
        stores.append(store)

    # before its first call, the erasure has not begun: it then erases a successor of "c", too
    for store in islice(erased_stores(use_again, **{option: True}), 1, None):
        if store in stores:
            assert store.conversation(name).parent == "other"
            assert texts(store, name) == ["other"]
    assert stores


def test_a_successor_is_indexed_too(monkeypatch):
    monkeypatch.setattr(origins, "_CHUNK", 2)

    def history(first):
        return [said("", origin=Origin(format="test", id=first + n)) for n in range(5)]

    def use_again():
        erased(store, "c")
        _, bound = bind(store, "c", replaces_erased=True)
        bound.append("c", history(5), expected_version=0)

    for calls in range(1, 6):
        store = Store(MemoryRecorder())
        store.append("c", history(0), expected_version=0)
        interrupted = call_before(
            store.database.recorder, calls - 1, use_again, "query", "transact"
        )
        again = partial(Store(interrupted).append, expected_version=ANY_VERSION, dedupe="origin")
        assert again("c", history(5)) == (), calls


def say_again(store, conversation, text):
    _, bound = bind(store, conversation, replaces_erased=True)
    say(bound, conversation, text)


def use_again(store):
    say_again(store, "alone", "new")


def use_for_a_fork(store):
    store.fork("c", 2, "alone", replace_erased=True)


@pytest.mark.parametrize("in_copy", [True, False])
@pytest.mark.parametrize("also", [None, use_again, use_for_a_fork])
def test_a_restore_names_later_erasures(also, tmp_path, *, in_copy):
    """The positions of a copy begin at 1, here of a copy of some conversations. A conversation that
    has replaced an erased one in the backup is not named.
    """
    backup = tmp_path / "backup"
    path = tmp_path / "copy.db"
    with open_store(tmp_path / "source.db") as source, open_store(path) as copy:
        fill(source)
        say(source, "twice", "first")
        erased(source, "twice")
        say_again(source, "twice", "second")
        say(source, "f", *["more"] * 20)
        back_up(source, str(backup))
        if in_copy:
            list(copy_store(source, copy, "c", "alone", "twice"))
        changed = copy if in_copy else source
        erased(changed, "alone")
        if also is not None:
            also(changed)
        if not in_copy:
            list(copy_store(source, copy, "c", "alone", "twice"))
    assert restore_store(path, str(backup)).erased_since == ("alone",)


BACK_UP = """
import sys
from foldlog.eventstore import open_store
from foldlog.eventstore.maintenance.backup import back_up

def wait(done, pages):
    print(done, flush=True)
    sys.stdin.read()

back_up(open_store(sys.argv[1]), sys.argv[2], wait)
"""
"""Backs up a store, and waits after the first step until it is killed."""


def test_the_rest_of_a_killed_backup(tmp_path):
    path = tmp_path / "h.db"
    with open_store(f"sqlite:///{path}") as store:
        say(store, "c", *[SECRET] * 20)
    backup = str(tmp_path / "elsewhere.bak")
    command = [sys.executable, "-c", BACK_UP, f"sqlite:///{path}", backup]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as run:
        assert run.stdout is not None
        run.stdout.readline()
        run.send_signal(signal.SIGKILL)
    (part,) = tmp_path.glob("*.part")
    with open_store(f"sqlite:///{path}") as store:
        (finding,) = problems(store)
        assert str(part) in finding
        vacuum(store)
        assert not part.exists()
        assert_sound(store)
        assert back_up(store, backup).events == 20
    with open_store(f"sqlite:///{backup}") as copy:
        assert copy.database.recorder.query(lambda reader: reader.unfinished()) == []
