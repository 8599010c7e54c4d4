"""An operator has the file, SQL and this program, but not the auditor's checkpoint: each change is
named. Lawful work of any kind is not.
"""

import random
import shutil
import sqlite3
from contextlib import closing

import pytest

import foldlog
from foldlog.eventstore import KeyRing, StoreRefused, open_store
from foldlog.eventstore.log.row import checksum_seed, with_checksums
from foldlog.eventstore.log.seal import WriteSettings
from foldlog.eventstore.maintenance.archive import archive
from foldlog.eventstore.maintenance.backup import back_up, restore, vacuum
from foldlog.eventstore.maintenance.copy import copy_store
from foldlog.eventstore.maintenance.rekey import rekey
from foldlog.eventstore.proof.checkpoint import make_checkpoint
from tests.privacy import erased, redacted
from tests.said import all_said, say
from tests.sound import LEDGER_OF_A_COPY, changes
from tests.stored_rows import execute, meta_field, replace, with_fields

KEYS = KeyRing(["33" * 32])
NAMES = [f"c{number}" for number in range(12)]
GONE = ["gone", "also gone"]


def numbered(count):
    return all_said(*map(str, range(count)))


def opened(path):
    return open_store(f"sqlite:///{path}", keys=KEYS)


def findings(path, note):
    with opened(path) as store:
        return changes(store, note)


# -- changes


@pytest.fixture(scope="module")
def sound_store(tmp_path_factory):
    """Return a sound store with erased, redacted, encrypted and forked conversations, and a
    checkpoint of the store.
    """
    folder = tmp_path_factory.mktemp("operator")
    with open_store(f"sqlite:///{folder / 'first.db'}") as store:
        for number, name in enumerate([*NAMES, *GONE]):
            store.append(name, numbered(3 + number), expected_version=0)
    shutil.copy(folder / "first.db", folder / "store.db")
    with opened(folder / "store.db") as store:
        for name in GONE:
            erased(store, name)
        redacted(store, "c5", 1)
        rekey(store, "c1", "c2")
        store.fork("c6", 4, "fork")
        say(store, "fork", "other")
        note = make_checkpoint(store)
    return folder / "store.db", note


def run(path, statement, *values):
    """Change rows of the store's file. The statement must find at least one row."""
    with closing(sqlite3.connect(path)) as connection:
        changed = connection.execute(statement, values).rowcount
        connection.commit()
    assert changed, statement


def key_of(path, name):
    [(key,)] = execute(path, f"SELECT key FROM conversations WHERE id = '{name}'")
    return key


KEY = "(SELECT key FROM conversations WHERE id = ?)"


def change_row(path, name, event):
    run(
        path,
        f"UPDATE events SET body = body || ' ' WHERE conversation = {KEY} AND id = ?",
        name,
        event,
    )


def change_time(path, name, event):
    """Change the time of an event, with true checksums."""
    row = stored_row(path, key_of(path, name), event)
    replace(path, name, with_fields(row, recorded_at=meta_field(row.meta, "recorded_at") + 1))


def stored_row(path, key, event):
    with opened(path) as store:
        [row] = store.database.recorder.query(lambda reader: reader.rows(key, event, event + 1, 1))
    return row


def swap(path, name, event):
    """Exchange the ids of an event and of the next one. No event has the id 900."""
    key = key_of(path, name)
    for old, new in ((event, 900), (event + 1, event), (900, event + 1)):
        run(path, "UPDATE events SET id = ? WHERE conversation = ? AND id = ?", new, key, old)


def remove_row(path, name, event):
    run(path, f"DELETE FROM events WHERE conversation = {KEY} AND id = ?", name, event)


def cut(path, name, event):
    """Remove all events after an event."""
    run(path, f"DELETE FROM events WHERE conversation = {KEY} AND id > ?", name, event)


def remove(path, name, event):
    """Remove a conversation with all its events."""
    run(path, f"DELETE FROM events WHERE conversation = {KEY}", name)
    run(path, "DELETE FROM conversations WHERE id = ?", name)


def rewrite(path, name, event):
    """Write a conversation again with one other event, and with true heads and checksums."""
    with opened(path) as store:
        contents = [getattr(old, "content", "") for old in store.events(name)]
    remove(path, name, event)
    events = all_said(*contents)
    events[event] = all_said("what should have been")[0]
    with open_store(f"sqlite:///{path}?plain=allowed") as store:
        store.append(name, events, expected_version=0)


def lengthen(path, name, event):
    """Rewrite a conversation, and append more events to it."""
    rewrite(path, name, event)
    with open_store(f"sqlite:///{path}?plain=allowed") as store:
        say(store, name, *"more")


def exchange(path, name, event):
    """Exchange the names of a conversation and of the next one."""
    other = NAMES[(NAMES.index(name) + 1) % len(NAMES)]
    key = key_of(path, name)
    other_key = key_of(path, other)
    for renamed, new_name in ((key, "?"), (other_key, name), (key, other)):
        run(path, "UPDATE conversations SET id = ? WHERE key = ?", new_name, renamed)


def hide(path, name, event):
    """Leave a conversation out of all lists."""
    run(path, "UPDATE conversations SET visible = 0 WHERE id = ?", name)


def redact_unseen(path, name, event):
    """Take the content of an event away, without a receipt."""
    where = f"WHERE conversation = {KEY} AND id = ?"
    run(path, f"UPDATE events SET body = '{{}}' {where}", name, event)


def change_reason(path, name, event):
    """Change the reason of an erasure in its tombstone."""
    run(path, "UPDATE conversations SET erased_reason = 'retention' WHERE id = ?", name)


def change_time_of_erasure(path, name, event):
    run(path, "UPDATE conversations SET erased_at = erased_at + 1 WHERE id = ?", name)


def change_number_of_events(path, name, event):
    run(path, "UPDATE conversations SET erased_events = erased_events - 1 WHERE id = ?", name)


def change_last_head(path, name, event):
    run(path, "UPDATE conversations SET erased_head = zeroblob(32) WHERE id = ?", name)


def remove_tombstone(path, name, event):
    remove_entry(path, name, event)
    run(path, "DELETE FROM conversations WHERE id = ?", name)


def bring_back(path, name, event):
    """Put a living conversation in the place of an erased one."""
    remove_tombstone(path, name, event)
    with open_store(f"sqlite:///{path}?plain=allowed") as store:
        store.append(name, numbered(event + 1), expected_version=0)


def remove_entry(path, name, event):
    run(path, f"DELETE FROM events WHERE conversation = -{KEY}", name)


def change_entry(path, name, event):
    """Change the reason in the ledger, with true checksums."""
    key = -key_of(path, name)
    row = stored_row(path, key, 0)
    row = row._replace(body=row.body.replace(b"asked for", b"other"))
    [row] = with_checksums(checksum_seed(name), [row])
    statement = (
        "UPDATE events SET meta = ?, body = CAST(? AS TEXT) WHERE conversation = ? AND id = 0"
    )
    run(path, statement, row.meta, row.body, key)


def change_store_ledger(path, name, event):
    run(path, "DELETE FROM events WHERE conversation = 0")


def remove_list(path, name, event):
    run(path, "DELETE FROM records WHERE projection LIKE 'checkpoints%'")


def forge_list(path, name, event):
    """Rewrite a conversation, and the list of checkpoints with it."""
    rewrite(path, name, event)
    remove_list(path, name, event)
    with open_store(f"sqlite:///{path}") as store:
        make_checkpoint(store)


def another_store(path, name, event):
    path.unlink()
    with opened(path) as store:
        for other in NAMES:
            store.append(other, numbered(20), expected_version=0)
        make_checkpoint(store)


OF_LIVING = [
    change_row,
    change_time,
    swap,
    remove_row,
    cut,
    remove,
    rewrite,
    lengthen,
    exchange,
    hide,
    redact_unseen,
]
OF_TOMBSTONES = [
    change_reason,
    change_time_of_erasure,
    change_number_of_events,
    change_last_head,
    remove_tombstone,
    bring_back,
    remove_entry,
    change_entry,
]
OF_THE_STORE = [change_store_ledger, remove_list, forge_list, another_store]
CHANGES = [*OF_LIVING, *OF_TOMBSTONES, *OF_THE_STORE]


def name_change(path, note, seed):
    """Make a seeded change. Return the conversation that must be named, or None for the store, and
    all findings.
    """
    chance = random.Random(seed)
    change = CHANGES[seed % len(CHANGES)]
    name = chance.choice(GONE if change in OF_TOMBSTONES else NAMES)
    change(path, name, chance.randrange(2))
    return None if change in OF_THE_STORE else name, findings(path, note)


def check_changes(sound_store, tmp_path, seeds):
    """Assert that verify finds each random change of the store, in the conversation that was
    changed.
    """
    path, note = sound_store
    assert findings(path, note) == {}
    for seed in seeds:
        changed = tmp_path / f"{seed}.db"
        shutil.copy(path, changed)
        name, found = name_change(changed, note, seed)
        assert name in found, (seed, CHANGES[seed % len(CHANGES)].__name__, found)


@pytest.mark.parametrize("seed", range(len(CHANGES)), ids=lambda n: CHANGES[n].__name__)
def test_change_of_each_kind_is_named(sound_store, tmp_path, seed):
    check_changes(sound_store, tmp_path, [seed])


@pytest.mark.long
def test_200_changes_are_named(sound_store, tmp_path):
    check_changes(sound_store, tmp_path, range(1000, 1200))


def test_store_ledger_is_compared(sound_store, tmp_path):
    path, note = sound_store
    changed = shutil.copy(path, tmp_path / "changed.db")
    change_store_ledger(changed, None, None)
    found = findings(changed, note)[None]
    assert "the ledger of the store was changed since the checkpoint" in found


# -- lawful work


class Work:
    """A store, and lawful work on it. ``notes`` are the checkpoints that an auditor has."""

    def __init__(self, folder, seed):
        self.folder = folder
        self.path = folder / "store.db"
        self.chance = random.Random(seed)
        self.restores = seed % 2 == 1
        self.names = []
        self.archived = set()
        self.notes = []
        self.backup = None
        self.done = 0

    def step(self, histories):
        """Do one random operation."""
        self.done += 1
        self.histories = histories
        # A restored backup may name objects that were deleted since, which is a true finding.
        kinds = [kind for kind in self.KINDS if not (self.restores and kind is Work.archive)]
        kind = self.chance.choice(kinds)
        try:
            if kind in (Work.begin, Work.check) or self.names:
                kind(self, histories.store)
        except StoreRefused as error:
            # After a restore, an object stays that another copy of the store may need.
            if error.kind != "archive":
                raise

    def name(self):
        return self.chance.choice(self.names)

    def begin(self, store):
        name = f"n{self.done}"
        store.append(name, numbered(self.chance.randrange(2, 9)), expected_version=0)
        self.names.append(name)

    def append(self, store):
        say(store, self.name(), f"more {self.done}")

    def fork(self, store):
        parent = self.name()
        name = f"f{self.done}"
        store.fork(parent, 1, name)
        if self.chance.random() < 0.5:
            say(store, name, "other")
        self.names.append(name)

    def erase(self, store):
        if len(self.names) > 5:
            name = self.name()
            self.names.remove(name)
            erased(store, name, detach_forks=True, complete=False)

    def use_again(self, store):
        if len(self.names) > 5:
            name = self.name()
            erased(store, name, detach_forks=True)
            new = self.histories.create(name, replace_erased=True)
            new.append(all_said("new")[0])

    def redact(self, store):
        name = self.name()
        begins = store.conversation(name).parent_version or 0
        version = store.version(name)
        event = self.chance.randrange(begins, version) if begins < version else 0
        if begins <= event and getattr(next(store.events(name, event, event + 1)), "content", None):
            redacted(store, name, event)

    def rekey(self, store):
        list(rekey(store, self.name(), decrypt=self.chance.random() < 0.3))

    def archive(self, store):
        archive(store, self.name(), f"file://{self.folder}/objects")

    def vacuum(self, store):
        vacuum(store)

    def check(self, store):
        if self.chance.random() < 0.5:
            self.notes.append(make_checkpoint(store))
        self.compare(self.path)

    def copy(self, store):
        with opened(self.folder / f"copy{self.done}.db") as copy:
            assert [moved.problem for moved in copy_store(store, copy) if moved.problem] == []
        self.compare(self.folder / f"copy{self.done}.db", is_copy=True)

    def back_up(self, store):
        self.backup = self.folder / f"backup{self.done}.db"
        back_up(store, str(self.backup))
        self.notes_at_backup = [*self.notes]
        self.names_at_backup = [*self.names]
        self.compare(self.backup)

    def compare(self, path, *, is_copy=False):
        expected = {None: [LEDGER_OF_A_COPY]} if is_copy else {}
        for note in self.notes[:1] + self.notes[-2:]:
            assert findings(path, note) == expected, (self.done, path.name)

    def restore(self):
        # Checkpoints of later events than the backup's are true alarms, so they are left out.
        if self.restores and self.backup is not None:
            restore(str(self.backup), str(self.path), WriteSettings(None, KEYS))
            self.notes = [*self.notes_at_backup]
            self.names = [*self.names_at_backup]
            self.compare(self.path)

    KINDS = (
        begin,
        *[append] * 3,
        fork,
        erase,
        use_again,
        *[redact] * 2,
        rekey,
        archive,
        vacuum,
        check,
        copy,
        back_up,
    )


def work_lawfully(folder, operations, seed):
    """Do random operations of users, and assert that verify finds nothing afterwards."""
    work = Work(folder, seed)
    with opened(work.path) as store:
        work.begin(store)
        work.notes.append(make_checkpoint(store))
    while work.done < operations:
        with foldlog.open(f"sqlite:///{work.path}", keys=KEYS) as histories:
            for _ in range(min(25, operations - work.done)):
                work.step(histories)
        if work.chance.random() < 0.3:
            work.restore()
    with opened(work.path) as store:
        work.notes.append(make_checkpoint(store))
        work.compare(work.path)


@pytest.mark.parametrize("seed", range(2))
def test_lawful_work_raises_no_alarm(tmp_path, seed):
    work_lawfully(tmp_path, 25, seed)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 110))
def test_2_000_lawful_operations_raise_no_alarm(tmp_path, seed):
    work_lawfully(tmp_path, 200, seed)
