"""A damaged event is named in its place, by the page and by ``view``, and the events around it are
shown.
"""

from __future__ import annotations

import base64
import json
import re
import sqlite3
import zlib
from contextlib import closing
from pathlib import Path

import pytest

from foldlog._page.report import write_report
from foldlog._web.app import application
from foldlog.eventstore import CondensationAction, Retraction, open_store
from tests.said import said
from tests.web_client import asking

DAMAGED = 2
CONDENSATION = 6


@pytest.fixture
def damaged(tmp_path) -> str:
    """The URL of a store with a conversation whose event 2 is damaged."""
    url = f"sqlite:///{tmp_path}/history.db"
    with open_store(url) as store:
        store.ingest("c", (said(f"message {number}") for number in range(6)))
        store.append(
            "c", CondensationAction(forgotten_event_ids=[1]), expected_version=CONDENSATION
        )
        store.append(
            "c", Retraction(version=5, reason="a wrong turn"), expected_version=CONDENSATION + 1
        )
    damage(tmp_path / "history.db", DAMAGED)
    return url


def damage(file: Path, event_id: int) -> None:
    """Change one byte of an event's body in the file."""
    with closing(sqlite3.connect(file)) as connection, connection:
        (body,) = connection.execute("SELECT body FROM events WHERE id = ?", (event_id,)).fetchone()
        body = body.encode() if isinstance(body, str) else body
        changed = body[:-3] + bytes([body[-3] ^ 1]) + body[-2:]
        connection.execute("UPDATE events SET body = ? WHERE id = ?", (changed, event_id))


def test_view_names_a_damaged_event_in_its_place_and_shows_the_others(foldlog, damaged):
    shown = foldlog("view c --db", damaged)
    assert shown.status == 1
    assert [re.split(r"\s+", line.strip())[:2] for line in shown.out.splitlines()[1:]] == [
        ["0", "user"],
        ["1", "user"],
        ["2", "damaged"],
        ["3", "user"],
        ["4", "user"],
    ]
    assert "conversation 'c', event 2: " in shown.err


def test_view_as_json_lists_damaged_events_beside_the_view(foldlog, damaged):
    document = foldlog("view c --db", damaged, "--json").document
    assert document["ids"] == [0, 1, 3, 4]
    assert [finding["event"] for finding in document["damaged"]] == [DAMAGED]


def test_a_view_without_damage_before_its_version_is_read_as_ever(foldlog, damaged):
    shown = foldlog("view c --at 2 --db", damaged)
    assert (shown.status, shown.err) == (0, "")


def test_the_page_shows_a_damaged_event_as_one_and_all_events_after_it(damaged):
    with open_store(damaged) as store, asking(application(store, token=None)) as client:
        document = client.get("/api/history", params={"id": "c"}).json()
        kinds = [document["kinds"][kind] for kind in document["events"]["kind"]]
        event = client.get("/api/event", params={"id": "c", "event": DAMAGED}).json()["event"]
        found = client.get("/api/find", params={"id": "c", "words": "message 3"}).json()["hits"]
    assert kinds == [
        "user",
        "user",
        "damaged",
        "user",
        "user",
        "user",
        "condensation",
        "retraction",
    ]
    assert document["events"]["left"][DAMAGED] == 0
    assert (event["kind"], event["id"]) == ("damaged", DAMAGED)
    assert "checksum" in event["problem"]
    assert [hit["event"] for hit in found] == [3]


def test_a_damaged_condensation_or_retraction_hides_no_event(damaged, tmp_path):
    damage(tmp_path / "history.db", CONDENSATION)
    damage(tmp_path / "history.db", CONDENSATION + 1)
    with open_store(damaged) as store, asking(application(store, token=None)) as client:
        document = client.get("/api/history", params={"id": "c"}).json()
    assert document["version"] == 8
    assert [document["kinds"][kind] for kind in document["events"]["kind"]][CONDENSATION:] == [
        "damaged",
        "damaged",
    ]


def test_a_report_holds_the_problem_in_the_place_of_the_event(damaged, tmp_path):
    path = tmp_path / "c.html"
    with open_store(damaged) as store:
        write_report(store, "c", path)
    (packed,) = re.findall(r'class="texts" data-first="0">([^<]+)<', path.read_text())
    texts = json.loads(zlib.decompress(base64.b64decode(packed)))
    assert [text["id"] for text in texts] == list(range(8))
    assert texts[DAMAGED]["kind"] == "damaged"
