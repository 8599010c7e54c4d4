"""After all figures were counted once, a look at what came since finds the same conversations as a
look at all of them.
"""

from collections import deque
from functools import partial

import pytest

from foldlog import Histories, KeyRing
from foldlog._imports import makes_events
from foldlog._reports.figures import blocks, keeping_up
from foldlog.eventstore import Store
from foldlog.eventstore.lists import keeping_up as list_keeping_up
from foldlog.eventstore.log.seal import WriteSettings
from foldlog.eventstore.maintenance.archive import archive
from foldlog.eventstore.maintenance.copy import copy_store
from foldlog.eventstore.maintenance.rekey import rekey
from foldlog.eventstore.recorders.sqlite.memory import MemoryRecorder
from tests.figures import FiguresOfStore
from tests.foldlog.records import write_lines
from tests.privacy import erased, redacted
from tests.said import say

LINES = [{"role": "user", "content": f"imported text {number}"} for number in range(4)]


@pytest.fixture
def histories(store) -> Histories:
    histories = Histories(store)
    for number in range(4):
        say(store, f"c{number}", f"text {number}")
        say(store, f"c{number}", "more")
    store.fork("c0", 1, "fork")
    return histories


def keep_up(store: Store) -> None:
    FiguresOfStore(store).keep_up()
    assert is_counted(store)


def is_counted(store: Store) -> bool:
    """Return whether a search of what came after the stored position finds nothing to count."""
    return not found(store)[1]


def found(store: Store):
    counter = FiguresOfStore(store)._counter
    return counter._find_outdated(store.database.now())


def import_lines(histories: Histories, tmp_path, count: int) -> None:
    path = write_lines(tmp_path / "a.jsonl", LINES[:count])
    histories.import_(path, conversation="i", format="openai-chat")


def archive_outdated(histories: Histories, tmp_path) -> None:
    say(histories.store, "c1", "not counted before it is archived")
    archive(histories.store, "c1", f"file://{tmp_path}/objects")


def archive_and_restore(histories: Histories, tmp_path) -> None:
    archive_outdated(histories, tmp_path)
    keep_up(histories.store)
    list(histories.store.events("c1"))


def copy_into(histories: Histories, tmp_path) -> None:
    other = Histories(Store(MemoryRecorder())).store
    say(other, "copied", "text")
    for _ in copy_store(other, histories.store):
        pass


def begin_again(histories: Histories, tmp_path) -> None:
    erased(histories.store, "c2")
    keep_up(histories.store)
    histories.create("c2", {"user": "ann"}, replace_erased=True)


CHANGES = {
    "append": lambda histories, folder: say(histories.store, "c1", "later"),
    "new": lambda histories, folder: say(histories.store, "new", "text"),
    "fork": lambda histories, folder: histories.store.fork("c1", 2, "another fork"),
    "fork of a fork": lambda histories, folder: histories.store.fork("fork", 1, "another fork"),
    "redact": lambda histories, folder: redacted(histories.store, "c1", 0),
    "erase": lambda histories, folder: erased(histories.store, "c1"),
    "erase the parent": lambda histories, folder: erased(histories.store, "c0", detach_forks=True),
    "import": lambda histories, folder: import_lines(histories, folder, 2),
    "archive": archive_outdated,
    "restore": archive_and_restore,
    "copy": copy_into,
    "begin again": begin_again,
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_search_from_the_position_finds_what_a_search_of_all_finds(histories, tmp_path, change):
    store = histories.store
    keep_up(store)
    CHANGES[change](histories, tmp_path)
    look, changed = found(store)
    assert look.touched is not None  # it has not looked at all conversations
    assert changed == FiguresOfStore(store)._tables.to_count()
    keep_up(store)
    assert not FiguresOfStore(store)._tables.to_count()


def test_a_source_that_grows_and_is_made_is_found(histories, tmp_path):
    store = histories.store
    import_lines(histories, tmp_path, 2)
    keep_up(store)
    for change in (
        lambda: import_lines(histories, tmp_path, 3),
        lambda: list(makes_events(store).events("i")),
        lambda: import_lines(histories, tmp_path, 4),
    ):
        change()
        assert found(store)[1] == FiguresOfStore(store)._tables.to_count()
        keep_up(store)
        assert not FiguresOfStore(store)._tables.to_count()


def test_a_new_key_makes_figures_again(recorder):
    old = KeyRing(["5c" * 32])
    new = KeyRing(["77" * 32, "5c" * 32])
    store = Histories(Store(recorder, WriteSettings(keys=old))).store
    say(store, "c1", "text")
    keep_up(store)
    store = Histories(Store(recorder, WriteSettings(keys=new))).store
    deque(rekey(store), 0)
    look, changed = found(store)
    assert look.touched is not None
    assert changed == FiguresOfStore(store)._tables.to_count() == {"c1": True}
    keep_up(store)


def test_nothing_is_read_of_conversations_that_did_not_change(histories):
    store = histories.store
    keep_up(store)
    say(store, "c3", "later")
    look, changed = found(store)
    assert (look.touched, changed) == (1, {"c3": False})


def test_many_events_are_a_reason_to_look_at_all(histories, monkeypatch):
    store = histories.store
    keep_up(store)
    monkeypatch.setattr(keeping_up, "_EVENTS_LOOKED_AT", 2)
    for number in range(12):
        say(store, "c1", f"{number}")
    look, changed = found(store)
    assert look.touched is None
    assert changed == {"c1": False}


def test_all_conversations_are_looked_at_each_hour(histories, monkeypatch):
    store = histories.store
    keep_up(store)
    with monkeypatch.context() as patch:
        patch.setattr(keeping_up, "_LOOKS_AT_ALL_EVERY", 0)
        assert found(store)[0].touched is None
    assert found(store)[0].touched == 0


def test_figures_of_other_code_are_made_again(histories, monkeypatch):
    store = histories.store
    keep_up(store)
    monkeypatch.setattr(keeping_up, "CODE", keeping_up.CODE + 1)
    assert found(store)[0].touched is None


def test_figures_that_cannot_be_written_are_searched_again(recorder):
    keys = KeyRing(["5c" * 32])
    with_key = Histories(Store(recorder, WriteSettings(keys=keys))).store
    say(with_key, "sealed", "text")
    without_key = Histories(Store(recorder)).store
    for _ in range(2):
        FiguresOfStore(without_key).keep_up()
        look, changed = found(with_key)
        assert look.touched == 1
        assert changed == {"sealed": True}
    keep_up(with_key)
    assert not found(with_key)[0].notes


def test_a_note_of_a_later_change_stays(histories):
    """A redaction deletes figures while this process counts them."""
    store = histories.store
    keep_up(store)
    redacted(store, "c1", 0)
    figures = FiguresOfStore(store)
    counter = figures._counter
    write = counter._store_replies

    def forget_again() -> None:
        redacted(store, "c1", 1)
        write()

    counter._store_replies = forget_again
    figures.refresh()
    look, changed = found(store)
    assert look.notes
    assert changed == {"c1": True}


def test_two_keepers_at_once_miss_nothing(histories):
    store = histories.store
    first = FiguresOfStore(store)
    second = FiguresOfStore(store)
    keep_up(store)
    say(store, "c1", "later")
    first.refresh(0)
    say(store, "c2", "later")
    second.keep_up()
    # The position of the first one is older, so the next search reads more, and misses nothing.
    first.keep_up()
    say(store, "c3", "later")
    assert found(store)[1] == {"c3": False}


def test_a_keeper_writes_in_short_transactions(histories, monkeypatch):
    monkeypatch.setattr(keeping_up, "_WRITES_S", 0.0)
    monkeypatch.setattr(list_keeping_up, "_WRITES_S", 0.0)
    written = []
    listed = []
    transactions = []
    write_one = keeping_up.FigureCounter._write_one
    list_one = list_keeping_up._list_one

    def write_figures(counter, transaction, row, figures):
        written.append(row.id)
        return write_one(counter, transaction, row, figures)

    def write_entry(transaction, database, newest, stored):
        listed.append(newest.conversation.id)
        list_one(transaction, database, newest, stored)

    offer = type(histories.store.database.recorder).offer

    def count_offers(recorder, work, **options):
        before = len(written), len(listed)
        is_done = offer(recorder, work, **options)
        transactions.append((len(written) - before[0], len(listed) - before[1]))
        return is_done

    monkeypatch.setattr(keeping_up.FigureCounter, "_write_one", write_figures)
    monkeypatch.setattr(list_keeping_up, "_list_one", write_entry)
    monkeypatch.setattr(type(histories.store.database.recorder), "offer", count_offers)
    histories.maintenance.keep_up()
    assert max(figures for figures, _ in transactions) == 1
    assert max(entries for _, entries in transactions) == 1
    assert {*written} == {*listed} == {"c0", "c1", "c2", "c3", "fork"}
    assert is_counted(histories.store)


def test_sums_of_another_process_stay(histories):
    database = histories.store.database
    if database.recorder.store_count > 1:
        pytest.skip("several stores have no sums of blocks")
    keep_up(histories.store)
    say(histories.store, "c1", "later")
    FiguresOfStore(histories.store)._counter.refresh()
    recorder = database.recorder
    [(block, _), *_] = recorder.query(lambda reader: reader.ask_all("marked_blocks"))
    made = recorder.query(partial(blocks._sum_of, block))
    say(histories.store, "c1", "still later")
    keep_up(histories.store)  # as another process does it between the sum and its write

    def stored(reader):
        return reader.ask_all("figure_blocks")

    before = recorder.query(stored)
    recorder.offer(lambda transaction: blocks._write_sums([made], transaction))
    assert made.marks
    assert recorder.query(stored) == before
    assert recorder.query(blocks.find_wrong_sums) == []
