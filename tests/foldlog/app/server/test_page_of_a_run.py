"""What the server answers about one run beside its columns: texts, what was needed again, notes,
progress, and one file. The session ``notes`` shows how a note is written.
"""

import base64
import json
import re
import zlib
from contextlib import contextmanager
from urllib.parse import parse_qsl

import pytest

from foldlog._app.server import pages
from foldlog.eventstore import CondensationAction, Observation, open_store
from foldlog.eventstore.log.keys import KeyRing
from foldlog.eventstore.maintenance.erase import erase
from foldlog.eventstore.maintenance.redact import redact
from tests.foldlog.records import lines_of
from tests.said import replied, said
from tests.web_client import asking_store

JSON = {"content-type": "application/json"}


def needing():
    """Return a conversation that forgets a file and names it again."""
    return [
        said("look at src/alpha.py and src/beta.py"),
        Observation(tool="read", content="def alpha_value"),
        CondensationAction(forgotten_event_ids=[0, 1]),
        replied("I read src/alpha.py again"),
        replied("and src/alpha.py once more"),
    ]


@pytest.fixture
def store():
    with open_store("memory:") as store:
        store.ingest("c", iter(needing()))
        yield store


@pytest.fixture
def client(store):
    with asking_store(store) as client:
        yield client


def note(client, event, text, **headers):
    body = json.dumps({"event": event, "text": text}).encode()
    return client.send("POST", "/api/notes", {"id": "c"}, {**JSON, **headers}, body)


def test_events_come_in_parts(client, monkeypatch):
    document = client.json("events?id=c&start=1&stop=4")
    assert [event["id"] for event in document["events"]] == [1, 2, 3]
    assert document["events"][2]["content"] == "I read src/alpha.py again"
    monkeypatch.setattr(pages, "_TEXT_MAX", 10)
    assert [event["id"] for event in client.json("events?id=c")["events"]] == [0]


def test_term_that_two_condensations_dropped(client, store):
    more = [
        CondensationAction(forgotten_event_ids=[3, 4]),
        replied("src/alpha.py, please"),
    ]
    store.ingest("d", iter([*needing(), *more]))
    dropped = client.json("dropped?id=d")["condensations"]
    assert [[[*term.values()] for term in row["terms"]] for row in dropped] == [
        [["src/alpha.py", 0, 3]],
        [["src/alpha.py", 4, 6]],
    ]


def test_notes_are_encrypted_with_their_conversation(tmp_path):
    keys = KeyRing("00" * 32)
    with open_store(f"sqlite:///{tmp_path}/secret.db", keys=keys) as store:
        store.ingest("c", iter(needing()))
        with asking_store(store) as client:
            note(client, 1, "a remarkable remark")
            assert note(client, 2, "").json()["notes"][0]["text"] == "a remarkable remark"
    files = [path.read_bytes() for path in tmp_path.iterdir()]
    assert not any(b"remarkable" in content for content in files)


def test_too_long_notes_are_refused(client):
    assert note(client, 1, "x" * 10_001).status == 400
    answer = client.send("POST", "/api/notes", {"id": "c"}, JSON, b"x" * 200_001)
    assert (answer.status, "200,000 bytes" in answer.json()["error"]) == (413, True)
    assert client.json("notes?id=c")["notes"] == []


def test_a_note_may_name_its_charset(client):
    headers = {"content-type": "Application/JSON; charset=utf-8"}
    assert note(client, 1, "a remark", **headers).json()["notes"][0]["text"] == "a remark"


def test_no_other_site_can_send_a_note(client):
    body = b'{"event": 1, "text": "attacked"}'
    for headers in (
        {"content-type": "text/plain"},
        {"content-type": "text/plain; application/json"},
        {},
        {**JSON, "sec-fetch-site": "cross-site"},
    ):
        assert client.send("POST", "/api/notes", {"id": "c"}, headers, body).status == 403
    assert client.json("notes?id=c")["notes"] == []


def test_report_has_notes_and_needed_terms(client):
    note(client, 3, "why again?")
    saved = client.get("/api/report", {"id": "c"})
    assert saved.headers["content-disposition"] == 'attachment; filename="foldlog.html"'
    held = {}
    for name in ("notes", "dropped"):
        (packed,) = re.findall(rf'class="{name}" data-first="0">([^<]+)<', saved.text)
        (held[name],) = json.loads(zlib.decompress(base64.b64decode(packed)))
    assert held["notes"]["text"] == "why again?"
    assert held["dropped"]["terms"][0]["needed_in"] == 3


def test_progress_counts_the_events_that_are_read(client, store, monkeypatch):
    monkeypatch.setattr(pages, "_TELL_EVERY", 1)
    pages_of_store = pages.Pages(store)
    counts = [pages_of_store.progress("c").done for _ in pages_of_store._follow("c", 0)]
    assert counts == [0, 1, 2, 3, 4]
    progress = client.json("progress?id=c")
    assert progress == {"conversation": "c", "step": "read", "done": 0, "total": 5}


def test_progress_of_events_still_to_be_made(histories, tmp_path):
    path = tmp_path / "session.jsonl"
    path.write_bytes(b"".join(lines_of("claude-code")))
    (imported,) = histories.import_(path)
    with asking_store(histories.store) as client:
        progress = client.json("progress", {"id": imported.id})
        assert (progress["step"], progress["done"]) == ("made", 0)
        assert progress["total"] == len(lines_of("claude-code"))


@pytest.mark.parametrize(
    "path",
    [
        "history",
        "events",
        "event?event=0",
        "find?words=read",
        "dropped",
        "models",
        "progress",
        "task",
        "report",
    ],
)
def test_erased_conversation_is_named_as_erased(client, store, path):
    path, _, more = path.partition("?")
    query = {"id": "c", **dict(parse_qsl(more))}
    assert client.get(f"/api/{path}", query).status == 200
    erase(store, "c", reason="asked for")
    answer = client.get(f"/api/{path}", query)
    assert (answer.status, "asked for" in answer.text) == (410, True)


def test_page_made_before_a_redaction_is_not_cached(tmp_path, monkeypatch):
    """The redaction of the parent comes while the page of the fork is made."""
    monkeypatch.setattr(pages, "_LONG", 3)
    make_fold = pages.Pages._fold

    @contextmanager
    def redact_after_fold(self, conversation):
        with make_fold(self, conversation) as fold:
            redact(self._store, "c", 0, reason="asked to", by="ana")
            yield fold

    with open_store(f"sqlite:///{tmp_path}/long.db") as store:
        store.ingest("c", iter(needing()))
        store.fork("c", 5, "f")
        with monkeypatch.context() as patch:
            patch.setattr(pages.Pages, "_fold", redact_after_fold)
            assert pages.Pages(store).history("f").redactions == 0
        assert pages.Pages(store).history("f").redactions == 1


def test_page_of_long_conversation_is_cached(tmp_path, monkeypatch):
    monkeypatch.setattr(pages, "_LONG", 3)
    with open_store(f"sqlite:///{tmp_path}/long.db") as store:
        store.ingest("c", iter(needing()))
        with asking_store(store) as client:
            first = client.json("history?id=c")
    with open_store(f"sqlite:///{tmp_path}/long.db") as store, asking_store(store) as client:
        with monkeypatch.context() as patch:
            patch.setattr(pages.Pages, "_fold", None)
            assert client.json("history?id=c") == first
        redact(store, "c", 0, reason="asked to", by="ana")
        assert client.json("history?id=c")["redactions"] == 1
