"""Backups are made while others write, and a vacuum returns space and changes no position."""

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest

import foldlog.eventstore.log.importing
from foldlog.eventstore import (
    InvalidOption,
    StoreUnavailable,
    open_store,
)
from foldlog.eventstore.files.written_files import file_words
from foldlog.eventstore.log.importing import BACKUP, staged_keys
from foldlog.eventstore.maintenance import rekey_steps
from foldlog.eventstore.maintenance.archive import archive
from foldlog.eventstore.maintenance.backup import Vacuumed, back_up, vacuum
from foldlog.eventstore.maintenance.rekey_steps import ChangedRows, RekeyState, change_all
from foldlog.eventstore.maintenance.verify import verify
from foldlog.eventstore.recorders.sqlite import SQLiteRecorder
from foldlog.eventstore.recorders.types import Conversation
from tests import stored_rows
from tests.eventstore.test_copy import without_page
from tests.privacy import erased
from tests.reading import reading
from tests.said import said, say
from tests.sound import assert_sound, problems

HI = "hi " * 100


@pytest.fixture
def store(tmp_path, monkeypatch):
    """A store with a live conversation, a published import, and rows that a killed import left."""
    monkeypatch.setattr(foldlog.eventstore.log.importing, "CHUNK", 10)
    store = open_store(f"sqlite:///{tmp_path}/store.db")
    say(store, "live", *[HI] * 5, idempotency_key="first")
    store.ingest("imported", [said(HI)] * 35)
    say(store, "live", HI)
    leave_behind(tmp_path / "store.db")
    yield store
    store.close()


def leave_behind(path):
    """Write the rows that an import leaves if it is killed before it is published."""
    key = "(SELECT max(key) FROM conversations)"
    stored_rows.execute(
        path,
        "INSERT INTO conversations (id, visible, created_at, salt) VALUES ('killed', 0, 1, x'00')",
        f"INSERT INTO unfinished VALUES ({key}, 'import', '')",
        f"INSERT INTO events SELECT (-{key} << 32) - 1000000 + id, {key}, id, kind, shown,"
        " structural, meta_with(meta, 'recorded_at', 1), body FROM events WHERE conversation = 2",
    )


def places(store):
    return [(recorded.position, recorded.conversation, recorded.id) for recorded in store.follow()]


# -- backups
# --------------------------------------------------------------------------------------------------


def test_backup_has_the_same_events_and_positions(store, tmp_path):
    backup = back_up(store, str(tmp_path / "copy.db"))
    assert (backup.conversations, backup.events, backup.findings) == (2, 41, ())
    assert backup.size_bytes == (tmp_path / "copy.db").stat().st_size
    operations = [row.operation for row in store.database.recorder.query(lambda r: r.unfinished())]
    assert BACKUP not in operations
    with open_store(f"sqlite:///{tmp_path}/copy.db") as copy:
        assert places(copy) == places(store)
        assert copy.database.uuid == store.database.uuid
        assert [verdict.findings for verdict in verify(copy)] == [(), (), ()]
        assert say(copy, "live", *[HI] * 5, idempotency_key="first")[0].id == 0
        say(copy, "live", HI)
    assert store.version("live") == 6


def test_backup_does_not_replace_a_file(store, tmp_path):
    (tmp_path / "precious").write_text("mine")
    with pytest.raises(
        InvalidOption, match="precious already exists; choose another name for the backup"
    ):
        back_up(store, str(tmp_path / "precious"))
    assert (tmp_path / "precious").read_text() == "mine"


def test_failed_backup_leaves_nothing(store, tmp_path):
    with pytest.raises(
        StoreUnavailable, match=r"cannot write the backup .*: No such file or directory"
    ):
        back_up(store, str(tmp_path / "nowhere" / "copy.db"))

    def full(pages, of):
        raise OSError(28, "No space left on device")

    before = sorted(tmp_path.iterdir())
    with pytest.raises(StoreUnavailable, match="No space left on device"):
        back_up(store, str(tmp_path / "copy.db"), full)
    assert sorted(tmp_path.iterdir()) == before


def test_backup_is_of_one_moment(store, tmp_path):
    """A backup has each batch of five events whole, and everything that was recorded before it
    began.
    """

    def write(*_):
        say(store, "busy", *["x"] * 5)

    write()
    backup = back_up(store, str(tmp_path / "copy.db"), write)
    assert backup.findings == ()
    assert store.version("busy") > 5
    with open_store(tmp_path / "copy.db") as copy:
        assert copy.version("busy") >= 5
        assert copy.version("busy") % 5 == 0
        assert_sound(copy)


def test_store_in_memory_has_no_backup(tmp_path):
    with open_store("memory:") as store:
        with pytest.raises(InvalidOption, match="only a store in a SQLite file can be backed up"):
            back_up(store, str(tmp_path / "copy.db"))
        assert vacuum(store) == Vacuumed(0, None, None, bytes_pending=False, space_returned=True)


# -- vacuum
# --------------------------------------------------------------------------------------------------


def test_no_position_is_used_twice(store, tmp_path):
    newest = say(store, "to erase", *[HI] * 10)[-1].position
    erased(store, "to erase")
    vacuum(store)
    store.close()
    with open_store(f"sqlite:///{tmp_path}/store.db") as again:
        assert say(again, "live", HI)[0].position > newest
    with open_store(f"sqlite:///{tmp_path}/store.db") as again:
        last = again.follow(newest)
        assert [record.conversation for record in last] == ["to erase", "live"]


def test_vacuum_discards_killed_imports_only(store, tmp_path):
    """An import that goes on for hours has added something within the last hour."""
    recorder = SQLiteRecorder(str(tmp_path / "store.db"))
    now = datetime.now(UTC)
    living = recorder.transact(
        lambda transaction: transaction.begin(
            Conversation(0, "living", int(now.timestamp() * 1e6), b"salt", visible=False)
        )
    )
    recorder.transact(
        lambda transaction: transaction.begin(
            Conversation(0, "killed later", 1, b"salt", visible=False)
        )
    )
    assert vacuum(store).discarded == 2
    with recorder.read() as reader:
        assert staged_keys(reader, "killed") == staged_keys(reader, "killed later") == []
        assert staged_keys(reader, "living") == [living.key]
    assert stored_rows.execute(tmp_path / "store.db", "SELECT count(*) FROM events") == [(41,)]
    later = open_store(f"sqlite:///{tmp_path}/store.db", clock=lambda: now + timedelta(hours=2))
    assert vacuum(later).discarded == 1
    later.close()
    with recorder.read() as reader:
        assert staged_keys(reader, "living") == []
    recorder.close()


def leave_backup(store, path):
    """Write the row that a backup to this path leaves if it is killed."""
    store.database.recorder.transact(
        lambda transaction: transaction.leave_unfinished(-9, BACKUP, str(path))
    )


def test_a_killed_backup_whose_folder_is_gone_is_no_problem(store, tmp_path):
    (tmp_path / "file").touch()
    leave_backup(store, tmp_path / "file" / "x.part")
    assert problems(store) == []
    assert vacuum(store).space_returned
    assert back_up(store, str(tmp_path / "backup.db")).findings == ()


@pytest.mark.parametrize("name", [f"{'x' * 300}.part", "folder.part"], ids=["long", "folder"])
def test_a_killed_backup_that_cannot_be_opened_is_named(store, tmp_path, name):
    """The system refuses to open this name. Other tasks go on."""
    (tmp_path / "folder.part").mkdir()
    leave_backup(store, tmp_path / name)
    [problem] = problems(store)
    assert "a copy of the store that this user cannot read" in problem
    assert str(tmp_path / name) in problem
    with pytest.raises(StoreUnavailable, match=r"was vacuumed.*a (running or a )?killed backup"):
        vacuum(store)
    assert back_up(store, str(tmp_path / "backup.db")).findings == ()


def test_a_conversation_with_a_damaged_page_is_not_archived(tmp_path):
    path = tmp_path / "damaged.db"
    with open_store(path) as store:
        say(store, "a", *[f"number {n} " + "x" * 300 for n in range(100)])
    without_page(path, lambda page: b"number 50 " in page)
    with open_store(path) as store:
        outcome = archive(store, "a", f"file://{tmp_path}/objects")
    assert (outcome.events, "malformed" in outcome.stays) == (0, True)


def test_readers_go_on_during_a_vacuum(store):
    with reading(store, "live") as snapshot:
        before = list(snapshot.events())
        vacuum(store)
        assert list(snapshot.events()) == before


@pytest.mark.parametrize(
    "name, words",
    [
        ('export of ["chat-1"] /b/chat.json', "export /b/chat.json of 'chat-1'"),
        ('report of ["a", "b"] /b/r.html', "report /b/r.html of 'a', 'b'"),
        ("backup /b/s.db", "backup /b/s.db"),
        (
            "not in its place any more, backup /b/s.db",
            "backup /b/s.db, which was moved or deleted",
        ),
        ("a read model", "a read model"),
    ],
)
def test_a_written_file_is_named_in_words(name, words):
    assert file_words(name) == words


def test_a_rekey_adapts_the_rows_of_its_transactions(monkeypatch):
    """A transaction that has read too much halves the next one, each other one doubles it."""
    state = RekeyState(decrypt=False, compression=None, until=100, next=0, key=None)
    too_much = rekey_steps._BYTES + 1
    steps = [
        ChangedRows(4, (1,), False, too_much, state),
        ChangedRows(0, (), False, too_much, state),
        ChangedRows(2, (7, 9), False, too_much, state),
        ChangedRows(1, (), False, rekey_steps._BYTES, state),
        ChangedRows(0, (), False, 0, state),
        ChangedRows(0, (), False, 0, state),
        ChangedRows(5, (80,), True, 0, None),
    ]
    sizes = []
    pauses = []

    def step(transaction, database, key, size):
        assert (transaction, key) == ("transaction", 17)
        sizes.append(size)
        return steps[len(sizes) - 1]

    monkeypatch.setattr(rekey_steps, "_step", step)
    monkeypatch.setattr(rekey_steps, "_ROWS_FIRST", 4)
    monkeypatch.setattr(rekey_steps, "_ROWS_MAX", 5)
    pause = SimpleNamespace(sleep=lambda seconds: pauses.append((len(sizes), seconds)))
    monkeypatch.setattr(rekey_steps, "time", pause)
    recorder = SimpleNamespace(transact=lambda work: work("transaction"))
    changed = change_all(SimpleNamespace(recorder=recorder), 17)
    assert changed == ChangedRows(12, (1, 7, 9, 80), True)
    assert sizes == [4, 2, 1, 1, 2, 4, 5]
    assert pauses == [(step, rekey_steps.REST_S) for step in (1, 3, 4)]
