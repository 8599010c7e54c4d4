"""Lists of conversations: what ``verify`` compares, and lists of a program without a key."""

import pytest

import foldlog
from foldlog import Histories
from foldlog._imports.making_events import make_events
from foldlog.eventstore import DocumentChanges, KeyRing, KeyUnavailable, open_store
from foldlog.eventstore.lists import keeping_up
from foldlog.eventstore.lists.checking import find_unlisted, find_wrong_attributes
from foldlog.eventstore.lists.tombstones import list_tombstones
from tests.foldlog.records import lines_of
from tests.said import said
from tests.stored_rows import execute

KEYS = KeyRing(["11" * 32])
OTHER_KEYS = KeyRing(["22" * 32])
TIME = "its version or time in lists differs from its events"
FOUND_BY = "lists find it by attributes that differ from its events"


def listed(url, keys=None, **attributes):
    """Return the names and attributes in a list that was made now."""
    with open_store(url, keys=keys) as store:
        page = Histories(store).list(attributes, age_max_s=0)
    return {row.id: row.attributes for row in page.conversations}


@pytest.fixture
def url(tmp_path):
    return f"sqlite:///{tmp_path}/store.db"


@pytest.mark.parametrize(
    "change, problems",
    [
        ("at = at", []),
        ("at = at + 1", [TIME]),
        ("version = version + 1", [TIME]),
        ("version = version + 1, at = at + 1", [TIME]),
        ("version = version - 1", []),
        ("version = version - 1, at = at - 1", []),
        ("digests = x'00112233445566778899aabbccddeeff'", [FOUND_BY]),
        ("digests = CAST(digests || x'00112233445566778899aabbccddeeff' AS BLOB)", [FOUND_BY]),
        ("digests = x''", []),
    ],
)
def test_entry_of_a_list_is_compared_with_its_events(tmp_path, url, change, problems):
    """An older entry, and one that names no attributes, are written again by the next list."""
    with open_store(url) as store:
        histories = Histories(store)
        histories.create("c", {"user": "ann"}).append(said("x"))
        histories.list(age_max_s=0)
    execute(tmp_path / "store.db", f"UPDATE listing SET {change}")
    with open_store(url) as store:
        assert [*find_wrong_attributes(store.database, "c")] == problems
        assert [*find_wrong_attributes(store.database, "unknown")] == []
        assert [*find_unlisted(store.database)] == []


def test_store_that_was_never_listed_lacks_nothing(url):
    with open_store(url) as store:
        Histories(store)["c"].append(said("x"))
        assert [*find_unlisted(store.database)] == []


def test_attributes_of_a_wrong_form_are_not_compared(url):
    """Another program may store an attribute that no list can find."""
    with open_store(url) as store:
        histories = Histories(store)
        histories.create("c", {"user": "ann"})
        odd = DocumentChanges(changed={"attributes": {"value": {"user": {"a": 1}}}})
        store.ingest("d", [odd])
        histories.list(age_max_s=0)
        assert [*find_wrong_attributes(store.database, "d")] == []
    assert listed(url) == {"c": {"user": "ann"}, "d": {}}
    assert listed(url, user="ann") == {"c": {"user": "ann"}}


def test_first_list_that_lacks_a_conversation(tmp_path, url, monkeypatch):
    """While the first list is made, only what it has got to is compared."""
    monkeypatch.setattr(keeping_up, "_AT_ONCE", 2)
    with open_store(url) as store:
        histories = Histories(store)
        for name in "abcde":
            histories[name].append(said("x"))
        assert not histories.list(age_max_s=0).is_complete
        assert [*find_unlisted(store.database)] == []
    execute(
        tmp_path / "store.db",
        "DELETE FROM listing WHERE conversation = 1",
        "DELETE FROM listed WHERE conversation = 1",
    )
    with open_store(url) as store:
        (problem,) = find_unlisted(store.database)
    assert "lack 1 conversation; the events are intact" in problem


def test_many_entries_that_wait_for_a_key(url, monkeypatch):
    """A program without the key lists the conversations, and one with the key finds them again."""
    monkeypatch.setattr(keeping_up, "_AT_ONCE", 2)
    names = [f"c{number}" for number in range(7)]
    with open_store(url, keys=KEYS) as store:
        for name in names:
            Histories(store).create(name, {"user": "ann"})
    for _ in range(5):
        assert set(listed(url).values()) <= {None}
    assert listed(url) == dict.fromkeys(names)
    with pytest.raises(KeyUnavailable):
        listed(url, user="ann")
    with open_store(url, keys=OTHER_KEYS) as store:
        assert Histories(store).list(age_max_s=0).is_complete, "no entry waits for this key"
    pages = []
    for _ in range(8):
        with open_store(url, keys=KEYS) as store:
            pages.append(Histories(store).list({"user": "ann"}, age_max_s=0))
    found = [len(page.conversations) for page in pages]
    assert found == sorted(found)
    assert (found[0] < 7, found[-1]) == (True, 7)
    assert [page.is_complete for page in pages] == [number == 7 for number in found]


def test_many_entries_that_wait_for_a_program_that_cannot_write(url, monkeypatch):
    monkeypatch.setattr(keeping_up, "_AT_ONCE", 2)
    with open_store(url, keys=KEYS) as store:
        for number in range(5):
            Histories(store).create(f"c{number}", {"user": "ann"})
    for _ in range(4):
        listed(url)
    for keys, is_complete in ((KEYS, False), (OTHER_KEYS, True)):
        with open_store(f"{url}?mode=ro", keys=keys) as store:
            assert Histories(store).list(age_max_s=0).is_complete == is_complete


def test_entries_that_wait_are_read_in_turn_without_writing(url, monkeypatch):
    monkeypatch.setattr(keeping_up, "_AT_ONCE", 2)
    names = [f"c{number}" for number in range(7)]
    with open_store(url, keys=KEYS) as store:
        for name in names:
            Histories(store).create(name, {"user": "ann"})
    for _ in range(5):
        listed(url)
    with open_store(f"{url}?mode=ro", keys=KEYS) as store:
        pages = [Histories(store).list(age_max_s=0) for _ in range(6)]
    assert (pages[0].is_complete, pages[-1].is_complete) == (False, True)
    assert {row.id: row.attributes for row in pages[-1].conversations} == {
        name: {"user": "ann"} for name in names
    }


def test_list_beside_an_entry_that_waits_becomes_complete_without_writing(url, monkeypatch):
    monkeypatch.setattr(keeping_up, "_AT_ONCE", 2)
    monkeypatch.setattr(keeping_up, "_EVENTS_AT_ONCE", 2)
    with open_store(url, keys=KEYS) as store:
        Histories(store).create("waits", {"user": "ann"})
    listed(url)
    names = [f"c{number}" for number in range(9)]
    with open_store(url, keys=KEYS) as store:
        for name in names:
            Histories(store)[name].append(said("hi"))
    with open_store(f"{url}?mode=ro", keys=KEYS) as store:
        pages = [Histories(store).list(age_max_s=0) for _ in range(6)]
    assert pages[-1].is_complete
    assert {row.id for row in pages[-1].conversations} == {"waits", *names}


@pytest.mark.parametrize("after", [7, "x", (1,), (1, 2, 3), [1, 2]])
def test_page_after_what_is_no_page(url, after):
    with open_store(url) as store, pytest.raises(TypeError, match="'after' must be the 'after'"):
        Histories(store).list(after=after)


def test_pages_of_erased_conversations(url):
    with open_store(url) as store:
        histories = Histories(store)
        for name in ("b", "a", "\U0001f600", "\uffff"):
            histories[name].append([said("x"), said("y")])
            histories.erase(name, reason=f"asked {name}")
        first = list_tombstones(store.database, "", 2)
        assert [(row.id, row.events, row.reason) for row in first] == [
            ("a", 2, "asked a"),
            ("b", 2, "asked b"),
        ]
        rest = list_tombstones(store.database, "b", 5)
        assert [row.id for row in rest] == ["\uffff", "\U0001f600"]


def test_an_import_is_listed_by_the_attributes_of_its_events(tmp_path, url):
    """They are in its list entry as soon as its records are events."""
    first, *others = lines_of("claude-code")
    (tmp_path / "cut.jsonl").write_bytes(b"".join([first, b"{\n", *others]))
    with foldlog.open(url) as histories:
        [imported] = histories.import_(tmp_path / "cut.jsonl")
        histories.list(age_max_s=0)
    with open_store(url) as store:
        assert store.conversation(imported.id, as_stored=True).unmade
        make_events(store, imported.id)
        assert "incomplete" in Histories(store)[imported.id].attributes()
        assert [*find_wrong_attributes(store.database, imported.id)] == []
