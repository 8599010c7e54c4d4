"""Every cell of the table of what follows the ledger: what applied an entry equals what is made
anew after it.

A test makes one change with derived things beside it: an audit database, a list by attribute, what
lists and the home of the page keep, and a copy. All is up to date before the change, and brought up
to date after it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

import foldlog
from foldlog import Message
from foldlog._figures.overview import Overview, overview_of
from foldlog._figures.prices import Prices
from foldlog._figures.shown import collect_stats
from foldlog._figures.spending import spent_by
from foldlog._figures.stored import FiguresOfStore, Row
from foldlog._reports.audit_database import update
from foldlog._search import search
from foldlog._web.conversations import ServedConversations
from foldlog._web.pages import Pages
from foldlog.eventstore import KeyRing, Store, open_store, restore_store
from foldlog.eventstore.maintenance.backup import back_up
from foldlog.eventstore.maintenance.copy import compare_stores, copy_store
from foldlog.eventstore.maintenance.erase import erase as erase_from
from foldlog.eventstore.maintenance.rekey import rekey
from foldlog.projections import Views

KEYS = KeyRing([SecretStr("11" * 32)])
OTHER_KEYS = KeyRing([SecretStr("22" * 32), SecretStr("11" * 32)])
Change = Callable[["Place"], None]


def said(text: str) -> Message:
    return Message(
        source="user", content=f"word {text}", meta={"model": "m", "usage": {}, "cost": 0.5}
    )


class Place:
    """A store, and what is derived from it."""

    def __init__(self, url: str, keys: KeyRing | None, folder: Path) -> None:
        self.url, self.keys, self.folder = url, keys, folder
        self.histories = foldlog.open(url, keys=keys)
        self.keys_of_target = keys
        self.target = open_store(f"sqlite:///{folder}/target.db", keys=keys)
        self._begin()

    def _begin(self) -> None:
        self.pages = Pages(self.histories.store)

    @property
    def store(self) -> Store:
        return self.histories.store

    def open_again(self, keys: KeyRing | None) -> None:
        """Open the store anew, with these keys, and go on with what was derived."""
        self.close()
        self.keys = keys
        self.histories = foldlog.open(self.url, keys=keys)
        self.target = open_store(f"sqlite:///{self.folder}/target.db", keys=self.keys_of_target)
        self._begin()

    def living(self) -> list[str]:
        return [row.id for row in self.store.iter_conversations() if row.erased_at is None]

    def follow(self) -> dict[str, Any]:
        """Bring everything up to date, and return what it holds."""
        self.copy()
        update(self.store, self.folder / "audit.db")
        return {
            "search": self.found(),
            "audit": self.audited("audit.db"),
            "list": self.listed(),
            "overviews": self.overviews(),
            "home": self.home(),
            "stats": collect_stats(self.store, None, views=Views(self.store)).document(),
            "last": {row.id: figures.overview.last_event_at for row, figures in self.rows()},
            "costs": {
                row.id: spent_by(figures.calls, Prices()).cost for row, figures in self.rows()
            },
            "copy": self.copied(),
            "page": {name: self.page(self.pages, name) for name in self.living()},
        }

    def anew(self) -> dict[str, Any]:
        """Make everything anew, and return what it holds."""
        fresh = self.folder / "fresh.db"
        fresh.unlink(missing_ok=True)
        update(self.store, fresh)
        living = self.living()
        return {
            "search": self.found(),
            "audit": self.audited("fresh.db"),
            "list": sorted(
                name for name in living if self.histories[name].attributes().get("user") == "u"
            ),
            "overviews": (anew := self.overviews_anew()),
            "stats": self.stats_anew(),
            "last": {name: one.last_event_at for name, one in anew.items()},
            "costs": {name: self.histories[name].stats().document().spent.cost for name in living},
            "home": {name: (one.title, one.tokens) for name, one in anew.items()},
            "copy": {name: self.events(self.store, name) for name in living},
            "page": {name: self.page(Pages(self.store), name) for name in living},
        }

    def found(self) -> list[tuple[str, int, str]]:
        return sorted(
            (hit.conversation, hit.id, hit.snippet)
            for hit in search(self.store, "word", limit=None).hits
        )

    def audited(self, name: str) -> dict[str, list[Any]]:
        with closing(sqlite3.connect(self.folder / name)) as connection:
            return {
                "events": (
                    connection.execute(
                        "SELECT conversation, id, kind, text FROM events ORDER BY 1, 2"
                    ).fetchall()
                ),
                "conversations": (
                    connection.execute(
                        "SELECT id, version, erased_at FROM conversations ORDER BY 1"
                    ).fetchall()
                ),
                "revisions": (
                    connection.execute(
                        "SELECT conversation, version FROM revisions ORDER BY 1, 2"
                    ).fetchall()
                ),
            }

    def listed(self) -> list[str]:
        return sorted(
            one.id for one in self.histories.list({"user": "u"}, age_max_s=0).conversations
        )

    def rows(self) -> list[Row]:
        living = (row for row in self.store.iter_conversations() if row.erased_at is None)
        return [*FiguresOfStore(self.store).of(living)]

    def overviews(self) -> dict[str, Overview]:
        return {row.id: figures.overview for row, figures in self.rows()}

    def overviews_anew(self) -> dict[str, Overview]:
        rows = [row for row in self.store.iter_conversations() if row.erased_at is None]
        return {row.id: overview_of(self.store, Views(self.store), row) for row in rows}

    def stats_anew(self) -> Any:
        """Count without what is kept."""
        recorder = self.store.database.recorder
        for name in self.living():
            found = recorder.query(
                lambda reader, name=name: self.store.database.find(reader, name, pending=True)
            )
            recorder.transact(lambda transaction, key=found.key: transaction.forget_figures(key))
        return collect_stats(self.store, None, views=Views(self.store)).document()

    def home(self) -> dict[str, tuple[str | None, int | None]]:
        """Return some figures of the home of the page, served anew each time."""
        served = ServedConversations(self.store)
        try:
            while (page := served.list()).counted < page.total:
                pass
        finally:
            served.close()
        return {one.conversation: (one.title, one.tokens) for one in page.conversations}

    def copy(self) -> None:
        """Copy what is new. A copy is never erased by its source: it says so, and is erased by hand
        here.
        """
        refused = [
            moved
            for moved in copy_store(self.store, self.target, jobs=1)
            if moved.problem is not None
        ]
        for moved in refused:
            assert moved.problem is not None
            assert "the source erased the conversation, but the target did not" in moved.problem
            erase_from(self.target, moved.conversation, reason="the source did")
        if refused:
            assert [
                moved.problem
                for moved in copy_store(self.store, self.target, jobs=1)
                if moved.problem
            ] == []
        assert list(compare_stores(self.store, self.target)) == []

    def copied(self) -> dict[str, list[Any]]:
        living = [row.id for row in self.target.iter_conversations() if row.erased_at is None]
        return {name: self.events(self.target, name) for name in living}

    def events(self, store: Store, name: str) -> list[Any]:
        return [
            (event.id, type(event).__name__, getattr(event, "content", None))
            for event in store.events(name)
        ]

    def page(self, pages: Pages, name: str) -> Any:
        document = pages.history(name)
        return document, pages.events(name, 0, 100)

    def close(self) -> None:
        self.histories.close()
        self.target.close()


@pytest.fixture(
    params=[
        pytest.param(("sqlite", None), id="plain"),
        pytest.param(("sqlite", KEYS), id="encrypted"),
        pytest.param(("postgresql", KEYS), id="postgresql-encrypted"),
        # what differs is above it
        pytest.param(("postgresql", None), id="postgresql-plain", marks=pytest.mark.long),
    ]
)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    recorder, keys = request.param
    on_server = recorder == "postgresql"
    url = (
        request.getfixturevalue("postgres_url")()
        if on_server
        else f"sqlite:///{tmp_path}/history.db"
    )
    place = Place(url, keys, tmp_path)
    for name in ("a", "b"):
        history = place.histories.create(name, {"user": "u", "name": name})
        history.append([said(f"{number}") for number in range(4)])
    place.histories["a"].fork(at=3, id="fork")
    place.histories["fork"].append(said("of the fork"))
    yield place
    place.close()


def retract(place: Place) -> None:
    place.histories["a"].retract(3)


def redact(place: Place) -> None:
    for event_id in (1, 2):
        place.histories["a"].redact(event_id, reason="asked for")


def redact_attributes(place: Place) -> None:
    place.histories["a"].redact(0, reason="asked for")


def erase(place: Place) -> None:
    place.histories.erase("b", reason="asked for")


def erase_and_detach(place: Place) -> None:
    place.histories.erase("a", reason="asked for", detach_forks=True)


def use_the_id_again(place: Place) -> None:
    erase(place)
    place.histories.create("b", {"user": "u"}, replace_erased=True).append(
        said("in the second one")
    )


def use_the_id_for_a_fork(place: Place) -> None:
    erase(place)
    place.store.fork("a", 2, "b", replace_erased=True)


def fork(place: Place) -> None:
    place.histories["fork"].fork(at=4, id="another")


def change_the_key(place: Place) -> None:
    place.open_again(OTHER_KEYS)
    assert [each.problem for each in rekey(place.store)] == [None] * 3


def decrypt(place: Place) -> None:
    if place.keys is not None:
        assert [each.problem for each in rekey(place.store, decrypt=True)] == [None] * 3
        place.open_again(None)


def restore(place: Place) -> None:
    if not place.url.startswith("sqlite"):
        return
    backup = f"{place.folder}/backup"
    back_up(place.store, backup)
    erase(place)
    redact(place)
    place.histories["a"].append(said("that is lost"))
    place.follow()
    place.close()
    for name in ("target.db", "target.db-wal", "target.db-shm"):
        # a copy that has more than its source is another history
        (place.folder / name).unlink(missing_ok=True)
    assert restore_store(place.url, backup, keys=place.keys).erased_since == ("b",)
    place.open_again(place.keys)
    place.histories["a"].append(said("that comes after"))


CHANGES: list[Change] = [
    retract,
    redact,
    redact_attributes,
    erase,
    erase_and_detach,
    use_the_id_again,
    use_the_id_for_a_fork,
    fork,
    change_the_key,
    decrypt,
    restore,
]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_what_has_applied_an_entry_equals_what_is_made_anew(place: Place, change: Change):
    place.follow()
    change(place)
    followed = place.follow()
    assert followed == place.anew()


@pytest.mark.parametrize("by_copy", [True, False])
@pytest.mark.parametrize(
    "change", [erase, use_the_id_again, use_the_id_for_a_fork], ids=lambda change: change.__name__
)
def test_a_backup_names_what_is_erased_in_a_copy_that_it_replaces(
    place: Place, change: Change, by_copy: bool
):
    """Positions of a copy, here of a part, begin at 1. A conversation that is the second one of its
    id in the backup is not named.
    """
    for again in (False, True):
        place.histories.create("c", {}, replace_erased=again).append(said("in c"))
        if not again:
            place.histories.erase("c", reason="asked for")
    place.histories["fork"].append([said(f"{number}") for number in range(20)])
    place.copy()
    backup = f"{place.folder}/backup"
    back_up(place.target, backup)
    (folder := place.folder / "second").mkdir()
    if by_copy:
        change(place)
    second = Place(f"sqlite:///{folder}/history.db", place.keys, folder)
    assert [
        moved.problem for moved in copy_store(place.store, second.store, *"abc") if moved.problem
    ] == []
    if not by_copy:
        change(second)
    second.close()
    assert restore_store(second.url, backup, keys=place.keys).erased_since == ("b",)
