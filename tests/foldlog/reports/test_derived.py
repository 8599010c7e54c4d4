"""Followers that keep derived data apply removals first, and an event that cannot be read stops no
other event.
"""

import sqlite3
from contextlib import closing

import pytest

from foldlog._reports.audit_database import AuditTables
from foldlog._reports.audit_tables import Derived, follow, removals_of
from foldlog.eventstore import open_store
from foldlog.eventstore.errors import CorruptEvent, StoreDamaged, StoreUnavailable
from tests.privacy import erased, redacted
from tests.said import say

ODD = "zebrafinch"


@pytest.fixture(params=["sqlite", "postgresql", "memory"])
def store(request, url_on):
    with open_store(url_on(request.param)) as opened:
        yield opened


@pytest.fixture
def derived(store, tmp_path):
    with closing(AuditTables(store, tmp_path / "audit.db")) as opened:
        yield opened


def texts(derived):
    """Return the texts that it holds."""
    rows = derived._database.execute("SELECT text FROM events WHERE kind = 'message' ORDER BY text")
    return [text for (text,) in rows if text != "[redacted]"]


def left_out(derived):
    return [(damage.conversation, damage.event) for damage in derived.damaged]


def fail_to_read(derived, patch):
    read = derived.row_of

    def row_of(recorded):
        if ODD in getattr(recorded.event, "content", ""):
            raise RecursionError(ODD)
        return read(recorded)

    patch.setattr(derived, "row_of", row_of)


def fail_to_write(derived, patch):
    insert = AuditTables._insert

    def refuse(tables, *arguments):
        insert(tables, *arguments)
        if ODD in repr(arguments):
            raise sqlite3.DataError("string or blob too big")

    patch.setattr(AuditTables, "_insert", refuse)


@pytest.mark.parametrize("fail_for_odd", [fail_to_read, fail_to_write])
def test_failing_event_stops_no_other(fail_for_odd, derived, store, monkeypatch):
    say(store, "secret", "a word to erase", "another word")
    say(store, "other", "a word to redact", "the last word")
    derived.catch_up()
    fail_for_odd(derived, monkeypatch)
    say(store, "c", "a word before", f"a word of a {ODD}", "a word after")
    erased(store, "secret")
    redacted(store, "other", 0)
    derived.catch_up()
    assert texts(derived) == ["a word after", "a word before", "the last word"]
    assert left_out(derived) == [("c", 1)]
    assert derived.position == store.database.last_position


def test_unavailable_store_blames_no_event(derived, store, monkeypatch):
    def away(recorded):
        raise StoreUnavailable("the server is away", kind="away")

    say(store, "c", "a word")
    with monkeypatch.context() as patch:
        patch.setattr(derived, "row_of", away)
        with pytest.raises(StoreUnavailable):
            derived.catch_up()
    derived.catch_up()
    assert (texts(derived), left_out(derived)) == (["a word"], [])


@pytest.mark.parametrize(
    "remove", [erased, lambda *which: redacted(*which, 0)], ids=["erased", "redacted"]
)
def test_removal_between_two_pages(derived, store, remove):
    """A batch is read a page at a time: a removal may come between two pages."""
    say(store, "c", "a word to remove")
    before = list(follow(store, 0))
    remove(store, "c")
    say(store, "other", "a word")
    batch = [*before, *follow(store, before[-1].position)]
    derived.apply(batch, batch[-1].position, after=0)
    assert (texts(derived), left_out(derived)) == (["a word"], [])
    assert derived.position == store.database.last_position


def test_failing_redacted_event_is_removed(derived, store, monkeypatch):
    def fails(recorded):
        raise ValueError

    say(store, "c", "a word", "a word to redact")
    derived.catch_up()
    redacted(store, "c", 1)
    monkeypatch.setattr(derived, "row_of", fails)
    derived.catch_up()
    assert texts(derived) == ["a word"]


def test_erasures_and_redactions_are_removals(store):
    for name in ("erased", "redacted", "both"):
        say(store, name, "a word", "another")
    redacted(store, "redacted", 0)
    redacted(store, "both", 1)
    erased(store, "erased")
    erased(store, "both")
    removals = removals_of(follow(store, 0))
    assert [(removal.conversation, removal.ids) for removal in removals] == [
        ("redacted", {0}),
        ("erased", None),
        ("both", None),
    ]


class Choosy(Derived):
    """Refuses the events whose text is the name of an error."""

    position = 0
    begin_again = refresh = close = write = None

    def row_of(self, recorded):
        text = recorded.event.content
        errors = {
            "damaged": StoreDamaged("the page is damaged"),
            "corrupt": CorruptEvent(recorded.conversation, recorded.event.id, "it is damaged"),
            "odd": ValueError("no such field"),
            "busy": StoreUnavailable("another process writes", kind="busy"),
        }
        if text in errors:
            raise errors[text]
        return text


def test_event_that_cannot_be_added_leaves_out_no_other():
    with open_store("memory:") as store:
        say(store, "a", "one", "damaged", "two", "corrupt", "odd", "three")
        changes = Choosy(store).changes_of([*follow(store, 0)])
        assert [row for _, row in changes.rows] == ["one", "two", "three"]
        assert changes.conversations == {"a"}
        assert [tuple(event) for event in changes.left_out] == [
            ("a", 1, "it cannot be added (StoreDamaged)"),
            ("a", 3, "it is damaged"),
            ("a", 4, "it cannot be added (ValueError)"),
        ]
        say(store, "a", "busy")
        with pytest.raises(StoreUnavailable):
            Choosy(store).changes_of([*follow(store, 0)])
