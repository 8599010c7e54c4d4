"""Conversations by attribute and by last activity, on every recorder."""

import os
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import pytest
from pydantic import SecretStr

from foldlog import Histories
from foldlog.eventstore import (
    InvalidArgument,
    InvalidEvent,
    KeyRing,
    KeyUnavailable,
    Store,
    StoreUnavailable,
    VersionConflict,
    open_store,
)
from foldlog.eventstore.lists import keeping_up
from foldlog.eventstore.lists.pages import recent_conversations
from foldlog.eventstore.log import database
from foldlog.eventstore.log.seal import WriteSettings
from foldlog.eventstore.maintenance.rekey import rekey
from tests import stored_rows
from tests.conformance.conftest import KEYS, noted
from tests.golden.rows import rows
from tests.said import said, say
from tests.sound import assert_sound

U1 = {"user": "u1"}


class Clock:
    """A clock that goes on by a second each time."""

    def __init__(self):
        self.now = datetime(2026, 11, 20, tzinfo=UTC)

    def __call__(self):
        self.now += timedelta(seconds=1)
        return self.now


@pytest.fixture
def histories(recorder):
    return Histories(Store(recorder, clock=Clock()))


def names(page):
    return [row.id for row in page.conversations]


def listed_now(histories, attributes=None):
    return names(histories.list(attributes, age_max_s=0))


def test_histories_are_found_by_attributes(histories):
    of_a = {"user": "u1", "app": "chat", "tags": ["red", "big"], "size": 1}
    histories.create("a", of_a)
    histories.create("b", {"user": "u1", "app": "mail", "tags": ["red"]})
    histories.create("c", {"user": "u2"})
    for attributes, expected in rows(
        "documents.json", "attributes, and the histories that have them"
    ):
        assert "".join(names(histories.list(attributes, age_max_s=3600))) == expected, attributes
    (row,) = histories.list({"app": "chat"}).conversations
    assert (row.attributes, row.version) == (of_a, 1)
    assert len(histories["a"].view()) == 0


def test_too_many_attributes_are_refused(histories):
    most = {f"a{number}": number for number in range(998)} | {"tags": ["x", "y"]}
    histories.create("c1", most)
    assert listed_now(histories, {"tags": ["y"], "a997": 997}) == ["c1"]
    for more in ({"one": 1}, {"tags": ["x", "y", "z"]}):
        with pytest.raises(InvalidEvent, match=r"1,001 attributes .* more than 1,000; keep"):
            histories["c1"].set_attributes(**more)
    assert histories["c1"].attributes() == most


@pytest.fixture
def changed(histories):
    """A history whose attributes were changed by its third event."""
    history = histories.create("a", {"user": "u1", "title": "first"})
    history.append(said("hi"))
    history.set_attributes(title="second", user=None, project="p")
    return history


def test_attributes_change_and_stay_with_their_versions(changed):
    assert changed.attributes() == {"title": "second", "project": "p"}
    assert changed.document("attributes", version=2) == {"user": "u1", "title": "first"}
    assert changed.set_attributes(title="third") == {"title": "third", "project": "p"}


@pytest.mark.parametrize("version, where", [(-1, "below 0"), (4, "past its end")])
def test_attributes_of_a_version_that_never_was_are_refused(changed, version, where):
    problem = rf"has 3 events; version {version} is {where} \(use 0 to 3\)"
    with pytest.raises(InvalidArgument, match=problem):
        changed.document("attributes", version=version)


@pytest.mark.usefixtures("changed")
def test_histories_are_found_by_their_present_attributes(histories):
    assert names(histories.list(U1)) == []
    assert names(histories.list({"title": "first"})) == []
    assert names(histories.list({"title": "second"})) == ["a"]


def test_attributes_begin_a_history(histories):
    assert histories["new"].set_attributes(user="u1") == U1
    assert names(histories.list(U1)) == ["new"]


def test_a_history_that_exists_is_not_created_again(histories):
    histories.create("a", U1)
    with pytest.raises(VersionConflict):
        histories.create("a")
    assert histories["a"].attributes() == U1


@pytest.mark.parametrize("value", [1.5, None, [1], {"b": "c"}])
def test_a_value_that_no_attribute_may_have_is_refused(histories, value):
    with pytest.raises(InvalidEvent, match="attributes are a map of names to texts"):
        histories.create("wrong", {"a": value})
    assert "wrong" not in histories


def test_a_list_by_a_value_that_no_attribute_may_have_is_refused(histories):
    with pytest.raises(InvalidArgument, match=r"attribute 'a' is 1\.5"):
        histories.list({"a": 1.5})


def test_lists_show_the_last_active_first(histories):
    for name in "abc":
        histories.create(name, U1)
    first = histories.list(U1, age_max_s=0)
    assert names(first) == ["c", "b", "a"]
    recorded = histories["a"].append(said("newest"))
    old = histories.list(U1, age_max_s=3600)
    assert (names(old), old.as_of) == (["c", "b", "a"], first.as_of)
    new = histories.list(U1, age_max_s=0)
    assert names(new) == ["a", "c", "b"]
    assert new.as_of > recorded[0].recorded_at
    newest = new.conversations[0]
    assert (newest.updated_at, newest.version) == (recorded[0].recorded_at, 2)


def test_a_long_list_comes_page_by_page(histories):
    for n in range(7):
        histories.create(f"c{n}", U1)
    after = None
    for expected in (["c6", "c5", "c4"], ["c3", "c2", "c1"], ["c0"]):
        page = histories.list(U1, limit=3, after=after)
        assert names(page) == expected
        after = page.after
    assert after is None
    assert histories.list(limit=0).conversations == ()


@contextmanager
def others_writing(histories):
    """Let no transaction of these histories get the write lock during the block."""

    def refuse(*_, **__):
        raise StoreUnavailable("database is locked", kind="busy")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(histories.store.database.recorder, "transact", refuse)
        yield patch


@pytest.fixture
def few_at_once(monkeypatch):
    """Let each list bring at most three conversations up to date."""
    monkeypatch.setattr(keeping_up, "_AT_ONCE", 3)
    monkeypatch.setattr(keeping_up, "_EVENTS_AT_ONCE", 2)


@pytest.fixture
def eight(few_at_once, histories):
    """Histories of eight conversations, c0 to c7, of which c0 has attributes. None is listed."""
    histories.create("c0", U1)
    for number in range(1, 8):
        histories[f"c{number}"].append(said("x"))
    return histories


def forget_own_writes(histories):
    """Let the histories not know that this process wrote to any conversation."""
    histories.store.database.written.clear()


def test_a_list_before_all_changes_are_listed_has_the_newest(eight):
    first = eight.list(age_max_s=0)
    assert (names(first)[:3], first.is_complete) == (["c7", "c6", "c5"], False)


def test_attributes_are_found_before_all_changes_are_listed(eight):
    assert not eight.list(age_max_s=0).is_complete
    assert names(eight.list(U1, age_max_s=3_600)) == ["c0"]


def test_repeated_lists_come_to_all_changes(eight):
    forget_own_writes(eight)
    pages = [eight.list(age_max_s=0) for _ in range(8)]
    assert (pages[0].is_complete, pages[-1].is_complete) == (False, True)
    assert sorted(names(pages[-1])) == [f"c{number}" for number in range(8)]
    times = [page.as_of for page in pages]
    assert times == sorted(times)


def test_a_complete_list_has_all_changes_at_once(eight):
    page = recent_conversations(
        eight.store.database, {}, limit=20, after=None, age_max_s=0, is_complete=True
    )
    assert page.is_complete
    assert sorted(names(page)) == [f"c{number}" for number in range(8)]


def test_a_list_of_many_changes_has_what_this_process_wrote(eight):
    while not eight.list(age_max_s=0).is_complete:
        pass
    for number in range(8):
        eight[f"c{number}"].append([said("x"), said("y")])
    forget_own_writes(eight)
    eight.store.database.written.append(key_of(eight, "c1"))
    page = eight.list(age_max_s=0)
    assert not page.is_complete
    assert names(page).count("c1") == 1
    versions = {row.id: row.version for row in page.conversations}
    assert (versions["c1"], versions["c7"], versions["c6"]) == (3, 3, 3)


@pytest.mark.usefixtures("few_at_once")
def test_a_list_that_cannot_be_written_shows_nothing_erased(histories, monkeypatch):
    monkeypatch.setattr(database, "_NEWEST_EVENTS", 2)
    for number in range(12):
        histories[f"c{number}"].append(said("hello"))
    forget_own_writes(histories)
    with others_writing(histories):
        first = histories.list(age_max_s=0)
    assert not first.is_complete
    # Of several stores, the oldest conversation may be in any.
    [oldest, *_] = sorted(name for name in names(first) if name not in ("c10", "c11"))
    histories.erase(oldest, reason="asked to")
    histories["c11"].append([said("a newer event"), said("and another")])
    forget_own_writes(histories)
    with others_writing(histories):
        late = histories.list(age_max_s=0)
    assert oldest not in names(late)
    assert not late.is_complete


def key_of(histories, name):
    return histories.store.database.recorder.query(lambda reader: reader.conversation(name)).key


@pytest.fixture
def one_unlisted(histories):
    """Histories of four conversations: a, b and c are listed, and d was imported since then."""
    histories.create("a", U1)
    histories.create("b", {"user": "u2"})
    histories.create("c", {"user": "u1", "app": "x"})
    histories.list(age_max_s=0)
    histories.store.ingest("d", [said("imported")])
    return histories


def test_a_list_that_cannot_be_written_has_new_conversations(one_unlisted):
    with others_writing(one_unlisted):
        assert listed_now(one_unlisted) == ["d", "c", "b", "a"]
        assert listed_now(one_unlisted, U1) == ["c", "a"]
        assert listed_now(one_unlisted, {"app": "x"}) == ["c"]
        assert listed_now(one_unlisted, {"app": "y"}) == []
        first = one_unlisted.list(limit=3, age_max_s=0)
        rest = one_unlisted.list(limit=3, after=first.after, age_max_s=0)
    assert (names(first), names(rest)) == (["d", "c", "b"], ["a"])


def test_a_conversation_that_cannot_be_listed_is_read_once(one_unlisted):
    with others_writing(one_unlisted) as patch:
        read = noted(patch, keeping_up, "_read_entries")
        for _ in range(3):
            assert listed_now(one_unlisted) == ["d", "c", "b", "a"]
    # Behind a pooler and on Citus, each question of a follower is a transaction of its own.
    if not {"FOLDLOG_PGBOUNCER", "FOLDLOG_CITUS_URL"} & os.environ.keys():
        assert len(read) == 1


def test_a_list_that_cannot_be_written_has_later_events(one_unlisted):
    one_unlisted["a"].append(said("newest"))
    with others_writing(one_unlisted):
        listed = one_unlisted.list(U1, age_max_s=0).conversations
    rows = [(row.id, row.version, row.attributes) for row in listed]
    assert rows == [("a", 2, U1), ("c", 1, {"user": "u1", "app": "x"})]
    assert listed == one_unlisted.list(U1, age_max_s=0).conversations


def test_a_list_that_cannot_be_written_lacks_what_was_erased_since_the_last_list(one_unlisted):
    one_unlisted["b"].append(said("newest"))
    with others_writing(one_unlisted):
        assert listed_now(one_unlisted) == ["b", "d", "c", "a"]
    one_unlisted.erase("b", reason="asked to")
    with others_writing(one_unlisted):
        assert listed_now(one_unlisted) == ["d", "c", "a"]


def test_pages_beside_entries_that_cannot_be_written(histories):
    for number in range(6):
        histories.create(f"c{number}", U1)
    histories.list(age_max_s=0)
    for number in range(3):
        histories[f"c{number}"].append(said("newer"))
    with others_writing(histories):
        first = histories.list(U1, limit=3, age_max_s=0)
        second = histories.list(U1, limit=3, after=first.after, age_max_s=0)
    assert names(first) + names(second) == ["c2", "c1", "c0", "c5", "c4", "c3"]


@pytest.mark.parametrize("age", [True, "1", None])
def test_age_that_is_no_number_of_seconds(histories, age):
    with pytest.raises(TypeError, match="age_max_s must be a number of seconds, not"):
        histories.list(age_max_s=age)


def test_encrypted_attributes_need_their_key(recorder):
    plain, encrypted = (
        Histories(Store(recorder, WriteSettings(keys=keys))) for keys in (None, KEYS)
    )
    plain.create("open", U1)
    encrypted.create("secret", U1)
    assert set(listed_now(encrypted, U1)) == {"secret", "open"}
    with pytest.raises(
        KeyUnavailable,
        match=r"may have these attributes too, but they are encrypted under .*; set FOLDLOG_KEY",
    ):
        plain.list(U1, age_max_s=0)
    third = Histories(Store(recorder, WriteSettings(keys=KeyRing(["33" * 32]))))
    with pytest.raises(
        KeyUnavailable,
        match=f"too, but they are encrypted under key {KEYS.current}; the keys that are set are .*; add",
    ):
        third.list(U1)
    by_id = {row.id: row.attributes for row in plain.list().conversations}
    assert by_id == {"secret": None, "open": U1}
    assert_sound(encrypted.store)


def test_attributes_may_hold_a_lone_surrogate(recorder, settings):
    histories = Histories(Store(recorder, settings))
    attributes = {"title": "caf\u00e9", "cut\udc00": "a\ud800"}
    histories.create("a", attributes)
    assert histories["a"].attributes() == attributes
    [listed] = histories.list({"cut\udc00": "a\ud800"}).conversations
    assert listed.attributes == attributes
    assert names(histories.list({"cut\udc00": "a\ud801"})) == []
    halves = "\ud83d" + "\ude00"
    histories.create("b", {"whole": halves})
    for whole in (halves, "😀"):
        assert names(histories.list({"whole": whole})) == ["b"]
    assert_sound(histories.store)


def test_attributes_are_found_after_rekey(recorder):
    plain = Histories(Store(recorder))
    plain.create("a", U1)
    plain.list(age_max_s=0)
    other = KeyRing([SecretStr("33" * 32), SecretStr("5c" * 32)])
    for keys in (KEYS, other):
        again = Histories(Store(recorder, WriteSettings(keys=keys)))
        assert [result.problem for result in rekey(again.store)] == [None]
        for age_max_s in (3_600, 0):  # a list that is new enough, and one that is made now
            assert names(again.list(U1, age_max_s=age_max_s)) == ["a"]
    with pytest.raises(KeyUnavailable):
        Histories(Store(recorder)).list(U1, age_max_s=0)
    assert [result.problem for result in rekey(again.store, decrypt=True)] == [None]
    assert listed_now(Histories(Store(recorder)), U1) == ["a"]


@pytest.mark.parametrize(
    "change",
    [
        """UPDATE records SET body = CAST('{"user":"u2"}' AS BLOB)""",
        "UPDATE records SET checksum = checksum + 1",
        "UPDATE records SET encoding = 3",
        "UPDATE OR IGNORE records SET conversation = (SELECT max(key) FROM conversations)",
        "DELETE FROM records",
        "DELETE FROM listing; DELETE FROM listed; DELETE FROM store WHERE name = 'listed'",
    ],
)
def test_lists_are_rebuilt_from_events(tmp_path, settings, change):
    keys = settings.keys
    path = tmp_path / "history.db"

    def listed(keys, **attributes):
        with open_store(path, keys=keys) as store:
            listed = Histories(store).list(attributes, age_max_s=0).conversations
        return [(row.id, row.attributes, row.version) for row in listed]

    with open_store(path, keys=keys) as store, Histories(store) as histories:
        histories.create("a", {"user": "ann", "title": "Ta"}).append(said("x"))
        histories.create("b", {"user": "bob"})
        histories["c"].append(said("x"))
    ann = ("a", {"user": "ann", "title": "Ta"}, 2)
    expected = [("c", {}, 1), ("b", {"user": "bob"}, 1), ann]
    assert listed(keys) == expected
    stored_rows.execute(path, *change.split("; "))
    assert listed(keys) == expected
    assert listed(keys, user="ann") == [ann]
    if keys is not None:
        without_key = {name: attributes for name, attributes, _ in listed(None)}
        assert (without_key["a"], without_key["b"]) == (None, None)


@pytest.mark.parametrize("change", ["meta = x'00'", "meta = meta_with(meta, 'shown_before', 1000)"])
@pytest.mark.parametrize("attributes", [None, U1], ids=["plain", "with attributes"])
def test_damaged_histories_are_listed_without_their_key(tmp_path, attributes, change):
    path = tmp_path / "store.db"
    url = f"sqlite:///{path}"
    with open_store(url, keys=KEYS) as store:
        histories = Histories(store)
        for name in ("a", "b"):
            histories.create(name, attributes)
            say(store, name, "x", "y")
        versions = {row.id: row.version for row in store.conversations()}
    with open_store(url) as store:
        assert set(names(Histories(store).list())) == {"a", "b"}
    last = "(SELECT max(position) FROM events WHERE conversation = 1)"
    stored_rows.execute(path, f"UPDATE events SET {change} WHERE position = {last}")
    with open_store(url) as store:
        listed = Histories(store).list().conversations
    assert {entry.id: (entry.version, entry.attributes) for entry in listed} == {
        name: (version, None) for name, version in versions.items()
    }


def test_a_list_by_very_many_attributes_is_refused(histories):
    tags = [f"tag {number}" for number in range(501)]
    histories.create("a", {"tags": tags})
    (row,) = histories.list({"tags": tags[:500]}).conversations
    assert row.id == "a"
    with pytest.raises(InvalidArgument, match="asked for 501 attributes and texts in lists at"):
        histories.list({"tags": tags})
