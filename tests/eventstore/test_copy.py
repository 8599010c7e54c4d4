"""A copy follows its source: what it cannot apply whole, it does not apply at all, and says so."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import NoReturn

import pytest

from foldlog.eventstore import (
    CondensationAction,
    ConversationNotFound,
    Message,
    Store,
    open_store,
)
from foldlog.eventstore.errors import StoreDamaged
from foldlog.eventstore.log import importing
from foldlog.eventstore.log.keys import KeyRing
from foldlog.eventstore.log.reading import ReadTransaction
from foldlog.eventstore.maintenance.copy import compare_stores, copy_store, keys_of
from foldlog.eventstore.maintenance.erase import erase
from foldlog.eventstore.maintenance.redact import redact
from foldlog.eventstore.maintenance.rekey import rekey
from foldlog.eventstore.recorders.sqlite.reader import SQLiteReader
from foldlog.projections import Views, audit
from tests import stored_rows
from tests.said import said, say
from tests.sound import assert_sound

PAGE = 4_096


def without_page(path: Path, is_that: Callable[[bytes], bool]) -> None:
    """Overwrite the pages that this is true of."""
    content = bytearray(path.read_bytes())
    pages = [at for at in range(0, len(content), PAGE) if is_that(bytes(content[at : at + PAGE]))]
    assert pages
    for at in pages:
        content[at : at + PAGE] = b"\xff" * PAGE
    path.write_bytes(content)


def problems(source: Store, target: Store, *names: str) -> dict[str, str | None]:
    return {
        moved.conversation: moved.problem for moved in copy_store(source, target, *names, jobs=1)
    }


def test_a_conversation_that_went_on_by_itself_is_left_as_it_is_and_named():
    with open_store("memory:") as source, open_store("memory:") as target:
        say(source, "a", "secret", "two", "three")
        say(source, "b", "another")
        list(copy_store(source, target))
        redact(source, "a", 0, reason="asked for", by="tests")
        say(target, "a", "of its own")
        told = problems(source, target)
        assert told["b"] is None
        assert "conversation 'a' has 4 events, and the other history differs from event 3 on" in (
            told["a"] or ""
        )
        assert [
            event.content for event in target.events("a", 0, 1) if isinstance(event, Message)
        ] == ["secret"]
        assert_sound(target)
        assert [each.conversation for each in compare_stores(source, target)] == ["a"]


def test_revisions_are_copied_with_their_events():
    with (
        open_store("memory:") as source,
        open_store("memory:", keys=KeyRing(["11" * 32])) as target,
    ):
        source.register(Views(source))
        for version in (0, 3):
            events = [said("one"), said("two"), CondensationAction(forgotten_event_ids=[version])]
            source.append("a", events, expected_version=version)
            if version:
                source.fork("a", 5, "fork")
            problems(source, target)
        redact(source, "a", 0, reason="asked for", by="tests")
        problems(source, target)
        audits = [audit(target, name) for name in ("a", "fork")]
        assert [(each.revisions, each.missing, each.findings) for each in audits] == [
            (2, 0, ()),
            (1, 0, ()),
        ]


def test_a_redacted_event_that_the_target_shares_is_named():
    with open_store("memory:") as store, open_store("memory:") as copy:
        store.append("a", list(map(said, "abc")), expected_version=0)
        store.fork("a", 3, "fork")
        problems(store, copy)
        redact(copy, "fork", 1, reason="asked for", by="tests")  # its own there
        problem = str(problems(copy, store, "fork")["fork"])
        assert "event 1" in problem
        assert "'a'" in problem
        assert store.version("fork") == 3  # without the receipt of what did not happen
        redact(store, "a", 1, reason="asked for", by="tests")
        assert problems(copy, store, "fork") == {"fork": None}
        assert [event.redacted is not None for event in store.events("fork", 0, 3)] == [
            False,
            True,
            False,
        ]
        store.fork("a", 3, "late")
        problems(store, copy)
        redact(store, "a", 2, reason="asked for", by="tests")  # in the forks too, whose heads stay
        assert [each.conversation for each in compare_stores(copy, store, "late")] == []
        assert [
            (each.conversation, each.behind) for each in compare_stores(store, copy, "late")
        ] == [("late", True)]


def test_what_the_source_redacted_is_redacted_once_the_target_is_not_ahead():
    with open_store("memory:") as source, open_store("memory:") as target:
        source.append("a", list(map(said, "abc")), expected_version=0)
        source.fork("a", 3, "fork")
        problems(source, target)
        say(target, "fork", "of its own")
        # in the fork too, which gets no receipt
        redact(source, "a", 1, reason="asked for", by="tests")
        problems(source, target)
        problems(target, source, "fork")
        assert [each.conversation for each in compare_stores(source, target)] == ["fork"]
        assert problems(source, target) == {"a": None, "fork": None}
        assert [event.redacted is not None for event in target.events("fork")] == [
            False,
            True,
            False,
            False,
        ]
        assert list(compare_stores(source, target)) == []


def test_idempotency_keys_are_copied_while_the_key_of_the_source_changes():
    with open_store("memory:", keys=KeyRing(["11" * 32])) as source:
        say(source, "a", "one", idempotency_key="first")
        found = source.database.recorder.query(lambda reader: source.database.find(reader, "a"))
        assert found is not None
        list(rekey(source, decrypt=True))
        assert [recalled.events for _, recalled in keys_of(source.database, found)] == [1]


DAMAGE = {
    "another text": "UPDATE events SET body = replace(body, 'two', 'owt') WHERE id = 2",
    "a lost event": "DELETE FROM events WHERE id = 2",
    "another type": (
        "UPDATE events SET body = x'ff', meta = meta_with(meta, 'encoding', 3) WHERE id = 2"
    ),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_conversation_is_copied_up_to_its_first_damaged_event(tmp_path, damage):
    texts = ("zero", "one", "two", "three", "four")
    path = tmp_path / "history.db"
    with open_store(f"sqlite:///{path}") as store:
        for name in ("a", "b"):
            for text in texts:
                say(store, name, text, idempotency_key=text)
        store.fork("a", 4, "fork")
        say(store, "fork", "own")
        head = store.query("a", lambda read: read.head_at(2))
        with closing(stored_rows.connect(path)) as connection, connection:
            connection.execute(f"{DAMAGE[damage]} AND conversation = 1")
        with open_store("memory:", keys=KeyRing(["11" * 32])) as target:
            outcomes = {each.conversation: each for each in copy_store(store, target, damaged=True)}
            assert {name: (each.version, each.damaged) for name, each in outcomes.items()} == {
                "a": (2, 2), "b": (5, None), "fork": (2, 2),
            }  # fmt: skip
            assert re.search("event 2: ", outcomes["a"].problem or "")
            for name in ("a", "fork"):
                assert target.query(name, lambda read: read.head) == head
                assert [event.content for event in target.events(name)] == ["zero", "one"]
            # and the whole store
            assert_sound(target)
            (again,) = say(target, "a", "one", idempotency_key="one")
            assert again.id == 1
            assert [each.behind for each in compare_stores(store, target)] == [True, True]
        with open_store("memory:") as target:
            assert {each.conversation for each in copy_store(store, target) if each.problem} == {
                "a",
                "fork",
            }


@pytest.mark.parametrize("lost", ["records", "recalled", "unreadable entries"])
def test_damage_beside_the_events_costs_no_event(monkeypatch, lost):
    def refused(*_: object, **__: object) -> NoReturn:
        raise StoreDamaged("a page is damaged")

    with open_store("memory:") as source, open_store("memory:") as target:
        say(source, "a", "zero", "one", idempotency_key="k")
        if lost == "unreadable entries":
            monkeypatch.setattr(ReadTransaction, "origins", refused)
        else:
            monkeypatch.setattr(SQLiteReader, lost, refused)
        (moved,) = copy_store(source, target, damaged=True)
        monkeypatch.undo()
        assert (moved.version, moved.damaged, moved.problem) == (2, 2, "a page is damaged")
        assert [*target.events("a")] == [*source.events("a")]


def test_an_event_with_another_head_is_not_copied(tmp_path):
    path = tmp_path / "history.db"
    with (
        open_store(f"sqlite:///{path}") as store,
        open_store("memory:") as other,
        open_store("memory:") as target,
    ):
        for each in (store, other):
            say(each, "a", "zero", "one")
        (row,) = other.query("a", lambda read: read.rows(0, 1, 1))
        with closing(sqlite3.connect(path)) as connection, connection:
            body = connection.execute("SELECT body FROM events WHERE id = 0").fetchone()[0].encode()
            stored_rows.put(connection, "a", [row._replace(body=body)])
        (moved,) = copy_store(store, target, damaged=True)
        assert (moved.damaged, moved.version) == (0, 0)
        assert [*target.conversations()] == []
        assert [event.content for event in store.events("a")] == ["zero", "one"]


def test_some_conversations_are_copied_alone():
    with open_store("memory:") as source, open_store("memory:") as target:
        for name in ("a", "b", "c"):
            say(source, name, name)
        assert problems(source, target, "c", "a") == {"a": None, "c": None}
        assert [row.id for row in target.iter_conversations()] == ["a", "c"]
        assert list(compare_stores(source, target, "a", "c")) == []
        with pytest.raises(ConversationNotFound):
            list(copy_store(source, target, "none"))


def test_a_copy_that_is_stopped_goes_on_with_no_conversation(monkeypatch):
    monkeypatch.setattr(importing, "CHUNK", 1)
    with open_store("memory:") as source, open_store("memory:") as target:
        say(source, "long", *["x"] * 300)
        say(source, "short", "x")
        copying = copy_store(source, target, jobs=2)
        assert next(copying).conversation == "short"
        copying.close()  # as Ctrl-C in the thread that called
        assert [row.id for row in target.conversations()] == ["short"]
        assert target.database.recorder.query(lambda reader: reader.unfinished()) == []


def test_a_page_that_cannot_be_read_costs_one_conversation(tmp_path):
    path = tmp_path / "history.db"
    with open_store(f"sqlite:///{path}") as store:
        for name in ("a", "b", "c"):
            say(store, name, *[f"{name} number {n} " + "x" * 300 for n in range(200)])
    without_page(path, lambda page: b"b number 100 " in page)
    with open_store(f"sqlite:///{path}") as source, open_store("memory:") as target:
        told = problems(source, target)
        assert (told["a"], told["c"]) == (None, None)
        assert re.match(r"conversation 'b', event (8|9|10)\d?: it cannot be read", told["b"] or "")
        assert [row.id for row in target.iter_conversations()] == ["a", "c"]
        assert_sound(target)


def test_a_tombstone_that_is_like_an_earlier_one_of_its_id_is_copied():
    """A fork may use the id of its erased parent again, and be erased too: it ended with the same
    event.
    """
    with open_store("memory:") as source, open_store("memory:") as target:
        say(source, "a", "one", "two")
        source.fork("a", 2, "fork")
        erase(source, "a", reason="asked for", detach_forks=True)
        list(copy_store(source, target))
        source.fork("fork", 2, "a", replace_erased=True)
        erase(source, "a", reason="asked for")
        assert [each.conversation for each in compare_stores(source, target)] == ["a"]
        assert sum(moved.tombstones for moved in copy_store(source, target)) == 1
        assert [row.generation for row in target.iter_conversations()] == [1, 0]
        assert sum(moved.tombstones for moved in copy_store(source, target)) == 0
        assert list(compare_stores(source, target)) == []


def test_another_conversation_with_the_same_end_is_named():
    """Both stores forked a conversation at the same event, under one id."""
    with open_store("memory:") as source, open_store("memory:") as target:
        say(source, "a", "one")
        list(copy_store(source, target))
        for store in (source, target):
            store.fork("a", 1, "fork")
        assert [(each.conversation, each.behind) for each in compare_stores(source, target)] == [
            ("fork", False)
        ]
        told = problems(source, target)
        assert told.pop("fork"), "it says that they differ"
        assert set(told.values()) == {None}
