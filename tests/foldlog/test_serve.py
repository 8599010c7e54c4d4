"""The server over a store: what it tells, whom it tells, and that it only reads."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import urllib.request
from datetime import datetime
from html import escape
from pathlib import Path

import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

import foldlog
from foldlog import _documents as documents
from foldlog._figures.prices import Prices
from foldlog._figures.shown import collect_stats, document_of
from foldlog._figures.stored import FiguresOfStore
from foldlog._labels import KINDS
from foldlog._page.report import write_report
from foldlog._web.access import POLICY
from foldlog._web.app import application
from foldlog._web.pages import matches
from foldlog._words.reasons import because
from foldlog._words.safe_text import printable
from foldlog.eventstore import (
    ANY_VERSION,
    Action,
    CondensationAction,
    CondensationRequest,
    Message,
    Observation,
    Retraction,
    confirm,
    open_store,
)
from foldlog.eventstore.maintenance.erase import erase
from foldlog.eventstore.maintenance.redact import redact
from foldlog.formats import formats
from foldlog.projections import Views
from tests.beside import SAMPLES
from tests.foldlog.records import CORPUS
from tests.how_many import some
from tests.page_samples import HOSTILE, hostile_history, usual_history
from tests.web_client import asking

ADDING = ("claude_code", "codex_rollout")
TOKEN = "a token of enough length"


@pytest.fixture
def store():
    with open_store("memory:") as store:
        store.ingest("usual", usual_history())
        store.ingest("hostile", hostile_history())
        store.ingest(HOSTILE[0], [Message(source="user", content=HOSTILE[1])])
        yield store


@pytest.fixture
def client(store):
    with asking(application(store, token=None)) as client:
        yield client


@pytest.fixture
def guarded(store):
    app = application(store, token=TOKEN, names=["logs.example"], port=8765)
    with asking(app) as client:
        yield client


def test_a_history_is_told_and_goes_on_with_what_is_appended(client, store):
    whole = client.get("/api/history", params={"id": "usual"}).json()
    version = whole["version"]
    kept = [event for event, left in enumerate(whole["events"]["left"]) if left == 0]
    store.append("usual", [Message(source="user", content="more")], expected_version=version)
    store.append(
        "usual", CondensationAction(forgotten_event_ids=[kept[1]]), expected_version=version + 1
    )
    more = client.get("/api/history", params={"id": "usual", "since": version}).json()
    assert more["version"] == version + 2
    assert [KINDS[kind] for kind in more["events"]["kind"]] == ["user", "condensation"]
    changed = {event: spans for event, spans in more["spans"] if event < version}
    assert changed[kept[1]][-1][:3] == [kept[1] + 1, version + 2, version + 1]


def test_what_a_runtime_keeps_for_itself_is_not_listed(client, store):
    for name in ("strands/s/a", "strands/s/+session"):
        store.append(name, Message(source="user", content="hi"), expected_version=0)
    listed = {
        one["conversation"] for one in client.get("/api/conversations").json()["conversations"]
    }
    assert "strands/s/a" in listed
    assert "strands/s/+session" not in listed


def test_no_title_is_the_words_of_a_redacted_event_also_of_a_fork(client, store):
    store.append("c", Message(source="user", content="the secret word"), expected_version=0)
    store.fork("c", 1, "f")

    def titles():
        """Yield the titles of both again and again: a thread finds them."""
        while True:
            listed = client.get("/api/conversations").json()["conversations"]
            yield [one["title"] for one in listed if one["conversation"] in ("c", "f")]

    assert next(filter(all, titles())) == ["the secret word"] * 2
    redact(store, "c", 0, reason="asked to", by="me")
    for told in titles():
        assert "the secret word" not in told
        if all(told):
            break


def test_a_conversation_has_one_title_in_the_list_at_home_on_its_page_and_in_its_report(
    histories, tmp_path
):
    """Of every format, and of real histories of programs that add to what a user asks, where they
    lie beside.
    """
    asked = "<command-message>review</command-message>\n<command-name>/review</command-name>"
    histories["asked"].append(Message(source="user", content=asked))
    histories["silent"].append(Message(source="agent", content="hi"))
    between = [Message(source="user", content="more")] * 40
    histories["late"].append(
        [*between, Message(source="agent", content="hi", meta={"title": "Late"}), *between]
    )
    corpus = (CORPUS / f"{name}.jsonl" for name in formats())
    for path in [
        *filter(Path.exists, corpus),
        *(SAMPLES / name for name in ADDING if SAMPLES.is_dir()),
    ]:
        histories.import_(path, prefix=f"{path.name}/", findings=lambda _: None)
    store, named = histories.store, {}
    rows = list(store.iter_conversations())
    named["list"] = {
        row.id: one.overview.title for row, one in FiguresOfStore(store).of(rows, whole=False)
    }
    lines = [
        document_of(*row, Prices()) for row in FiguresOfStore(store).of(store.iter_conversations())
    ]
    named["home"] = {line.conversation: line.title for line in lines}
    with asking(application(store, token=None)) as client:
        pages = (client.get("/api/history", params={"id": row.id}).json() for row in rows)
        named["page"] = {page["conversation"]: page["title"] for page in pages}
    assert named["list"] == named["home"] == named["page"]
    assert {name: named["page"][name] for name in ("asked", "silent", "late")} == {
        "asked": "/review",
        "silent": None,
        "late": "more",
    }
    for row in some(rows, 10):
        write_report(store, row.id, tmp_path / "c.html")
        title = printable(named["list"][row.id] or row.id, one_line=True)
        assert f"<title>{escape(title)} · foldlog</title>" in (tmp_path / "c.html").read_text()


def test_a_path_gives_its_document(client):
    for path, kind in {
        "conversations": documents.ServedPageDocument,
        "fleet": documents.FleetDocument,
        "history?id=usual": documents.HistoryDocument,
        "event?id=usual&event=2": documents.ShownDocument,
        "find?id=usual&words=make": documents.FindDocument,
        "search?words=make": documents.HitsDocument,
        "history?id=none": documents.RefusedDocument,
    }.items():
        told = client.get(f"/api/{path}").json()
        assert json.loads(msgspec.json.encode(msgspec.convert(told, kind))) == told, path


def test_an_event_is_told_in_full_and_found_by_its_words(client):
    event = client.get("/api/event", params={"id": "usual", "event": 2}).json()["event"]
    assert (event["kind"], event["arguments"]) == ("action", {"command": "make test-0"})
    hits = client.get("/api/find", params={"id": "usual", "words": "MAKE test-3"}).json()["hits"]
    assert [hit["event"] for hit in hits] == [8]
    assert "make test-3" in hits[0]["snippet"]
    for words, found in (('test-3 "MAKE TEST"', 1), ('"test-3 make"', 0), ('""', 0)):
        hits = client.get("/api/find", params={"id": "usual", "words": words}).json()["hits"]
        assert len(hits) == found, words


def test_all_conversations_are_searched(client):
    hits = client.get("/api/search", params={"words": "build repair", "limit": 5}).json()["hits"]
    assert [(hit["conversation"], hit["event"], hit["kind"]) for hit in hits] == [
        ("usual", 1, "user")
    ]
    snippet, highlights = hits[0]["snippet"], hits[0]["highlights"]
    assert [snippet[start:stop] for start, stop in highlights] == ["build", "repair"]
    refused = client.get("/api/search", params={"words": "-"})
    assert (refused.status, "word" in refused.json()["error"]) == (400, True)


def test_a_search_finds_events_of_the_chosen_conversations_alone(client, store):
    for name, tool in (("one", "Bash"), ("two", "shell")):
        store.ingest(
            name,
            [
                Action(tool=tool, arguments={}, call_id="a"),
                Observation(tool=tool, content="no such file", call_id="a", is_error=True),
            ],
        )

    def found(line):
        asked = {"words": "such file", "q": line}
        hits = client.get("/api/search", params=asked).json()["hits"]
        return {hit["conversation"] for hit in hits}

    assert found("") == {"one", "two"}
    assert found("tool:Bash") == {"one"}
    assert found("tool:Bash program:codex") == set()
    assert client.get("/api/search", params={"words": "a", "q": "state:none"}).status == 400


def test_the_cost_of_the_chosen_runs_is_known_by_model_and_by_day(client, store):
    before = client.get("/api/overview").json()["chosen"]
    assert sum(one["calls"] for one in before["models"]) == before["spent"]["calls"]
    for name, day, model in (("one", "01", "m"), ("two", "02", "m"), ("three", "02", "n")):
        usage = {"model": model, "usage": {"prompt_tokens": 10}, "cost": 0.25}
        at = datetime.fromisoformat(f"2026-03-{day}T09:00:00+00:00")
        said = Message(source="agent", content="hi", meta=usage, timestamp=at)
        store.ingest(name, [said])

    def costs(line):
        chosen = client.get("/api/overview", params={"q": line}).json()["chosen"]
        by_model = [(one["model"], one["cost"]) for one in chosen["models"]]
        return by_model, [(one["day"], one["cost"]) for one in chosen["days"]]

    assert costs("model:m") == ([("m", 0.5)], [("2026-03-01", 0.25), ("2026-03-02", 0.25)])
    assert costs("model:n") == ([("n", 0.25)], [("2026-03-02", 0.25)])


def test_a_run_is_chosen_by_a_part_of_its_id(client, store):
    store.ingest("bench/Window100-x", [Message(source="user", content="hi")])
    listed = client.get("/api/conversations", params={"q": "window100"}).json()["conversations"]
    assert [row["conversation"] for row in listed] == ["bench/Window100-x"]
    assert client.get("/api/conversations", params={"q": "window100 y"}).json()["total"] == 0


def test_the_beginning_of_an_id_leads_to_the_page_of_its_conversation(client):
    led = client.get("/", params={"id": "usu", "x": "1"})
    assert (led.status, led.headers["location"]) == (307, "?x=1&id=usual")
    assert [client.get("/", params={"id": name}).status for name in ("usual", "none", "")] == [
        200,
        200,
        200,
    ]


def test_another_run_is_meant_by_the_beginning_of_its_id_and_not_its_sub_agents(client, store):
    for name in ("session/agent-1", "session"):
        store.ingest(name, usual_history(2))
    for other, answered in (("ses", "session"), ("session/", "session/agent-1"), ("nothing", None)):
        answer = client.get("/api/compare", params={"id": "usual", "other": other})
        assert answer.status == (200 if answered else 404)
        assert answered is None or answer.json()["runs"][1]["conversation"] == answered
    assert client.get("/api/compare", params={"id": "usual", "other": ""}).status == 400


def test_the_list_and_the_fleet_count_every_conversation(client, store):
    def counted():
        listed = client.get("/api/conversations").json()
        return listed if listed["counted"] == listed["total"] == 3 else None

    listed = next(filter(None, (counted() for _ in range(10_000))))
    usual = next(one for one in listed["conversations"] if one["conversation"] == "usual")
    assert (usual["version"], usual["condensations"]) == (store.version("usual"), 2)
    assert usual["title"] == "Find out why the build fails, and repair it."
    fleet = client.get("/api/fleet").json()
    assert fleet["events"] == sum(one["version"] for one in listed["conversations"])
    assert fleet["cost"] == pytest.approx(0.0123)
    assert [fleet[name] for name in ("without_usage", "without_cost")] == [3, 0]
    sizes = foldlog.Histories(store)["usual"].lifetimes().sizes
    saved = sum(sizes[event] - sizes[event + 1] for event in (42, 44))
    assert usual["tokens_saved"] == saved
    history = client.get("/api/history", params={"id": "usual"}).json()
    assert (history["tokens_saved"], history["cost"]) == (saved, 0.0123)
    assert sum(one["condensations"] for one in fleet["reasons"]) == fleet["condensations"] == 3


def test_the_size_of_a_store_has_its_log(tmp_path):
    def size():
        return sum((tmp_path / name).stat().st_size for name in ("a.db", "a.db-wal"))

    with open_store(tmp_path / "a.db") as store:
        store.append("a", [Message(source="user", content="hi")], expected_version=0)
        with asking(application(store, token=None)) as client:
            before = size()
            assert (
                (tmp_path / "a.db").stat().st_size
                < before
                <= client.get("/api/fleet").json()["bytes"]
                <= size()
            )


def test_reasons_of_one_kind_are_one_row():
    figures = [{"events_before": before, "events_max": 80} for before in (81, 82)]
    told = [
        CondensationAction(forgotten_event_ids=(1,), metadata={"reason": "events", **each})
        for each in figures
    ]
    asked = CondensationAction(forgotten_event_ids=(1,), metadata={"reason": "request"})
    requests = [
        CondensationRequest(reason=f"the prompt has {number} tokens") for number in (9_000, 9_001)
    ]
    assert [because(one) for one in told] == [
        "View of 81 events exceeded 80",
        "View of 82 events exceeded 80",
    ]
    assert {because(one, brief=True) for one in told} == {"too many events"}
    assert {because(asked, [request], brief=True) for request in requests} == {"asked for"}


def test_an_excerpt_holds_every_word_whole_and_begins_near_the_first():
    text = f"{'a beginning ' * 9}needle {'between ' * 30}haystack {'an end ' * 90}"
    excerpt = matches({"content": text}, ["haystack", "needle"])
    assert excerpt is not None
    assert excerpt.startswith("…g a beginning needle between")
    assert 0 < excerpt.index("needle") < excerpt.index("haystack") < 80
    assert excerpt.endswith("…")
    assert matches({"content": text}, ["haystack", "nowhere"]) is None
    assert matches({"content": "short"}, ["short"]) == "short"
    assert matches({"content": f"{'a ' * 40}one{'-' * 26}two"}, ["one", "two"]).count("…") == 1, (
        "they touch"
    )


def test_every_list_counts_the_condensations_that_were_made(store):
    asked = [Message(source="user", content=str(n)) for n in range(5)]
    declined = {"outcome": "declined", "reason": "nothing to spare", "cost": 0.5}
    made = [
        CondensationAction(forgotten_event_ids=(n,), metadata={"reason": "tokens"}) for n in (1, 2)
    ]
    later = [CondensationAction(forgotten_event_ids=(), metadata=declined), Retraction(version=6)]
    store.append("some", [*asked, *made, *later], expected_version=0)
    with asking(application(store, token=None)) as client:
        while client.get("/api/fleet").json()["counted"] < 4:
            pass
        rows = {
            row["conversation"]: row
            for row in client.get("/api/conversations").json()["conversations"]
        }
        fleet = client.get("/api/fleet").json()
        history = client.get("/api/history", params={"id": "some"}).json()
    assert rows["some"]["condensations"] == history["condensations"] == 2
    assert fleet["condensations"] == sum(row["condensations"] for row in rows.values())
    assert {each["reason"]: each["condensations"] for each in fleet["reasons"]}[
        "too many tokens"
    ] == 3
    assert not any(each["reason"].startswith("declined") for each in fleet["reasons"])
    assert (fleet["cost"], history["cost"]) == (pytest.approx(0.5123), 0.5)


def test_the_command_and_the_server_list_the_same_documents(foldlog, tmp_path):
    url = f"sqlite:///{tmp_path}/one.db"
    with open_store(url) as store:
        store.append(
            "some", [Message(source="user", content=str(n)) for n in range(5)], expected_version=0
        )
        store.append("some", CondensationAction(forgotten_event_ids=(1,)), expected_version=5)
        store.fork("some", 5, "other")
        listed = foldlog("list --long --json --db", url).document["conversations"]
        with asking(application(store, token=None)) as client:
            served = client.get("/api/conversations").json()["conversations"]
    assert sorted(served, key=lambda row: row["conversation"]) == listed
    assert [(row["conversation"], row["condensations"]) for row in listed] == [
        ("other", 0),
        ("some", 1),
    ]
    assert listed[1]["tokens_saved"] > 0


def test_a_condensation_right_after_one_that_is_counted_is_counted_too(store):
    store.append(
        "some", [Message(source="user", content=str(n)) for n in range(5)], expected_version=0
    )
    for forgotten in (1, 2):
        store.append(
            "some",
            CondensationAction(forgotten_event_ids=(forgotten,)),
            expected_version=ANY_VERSION,
        )
        ((_, one),) = FiguresOfStore(store).of([store.conversation("some")])
        assert (one.condensations, one.tokens_saved > 0) == (forgotten, True)
        made = collect_stats(store, ["some"], views=Views(store)).condensations.values()
        assert one.tokens_saved == sum(each.tokens_saved for each in made)


def test_figures_of_an_earlier_version_are_not_told_as_counted(store, monkeypatch):
    may_count = threading.Event()
    may_count.set()
    refresh = FiguresOfStore.refresh
    monkeypatch.setattr(
        FiguresOfStore, "refresh", lambda self, most: refresh(self, most * may_count.is_set())
    )
    with asking(application(store, token=None)) as client:

        def counted():
            listed, fleet = client.get("/api/conversations").json(), client.get("/api/fleet").json()
            return listed["counted"], fleet["counted"]

        while counted() != (3, 3):
            pass
        may_count.clear()
        store.append(
            "usual", Message(source="user", content="more"), expected_version=store.version("usual")
        )
        assert counted() == (2, 2)
        may_count.set()
        while counted() != (3, 3):
            pass


def test_a_wrong_question_gets_a_reason(client, store):
    store.append("gone", Message(source="user", content="x"), expected_version=0)
    erase(store, "gone", reason="asked to")
    for path, status, said in (
        ("history", 400, "'id' is missing"),
        ("history?id=none", 404, "no conversation"),
        ("history?id=usual&since=-1", 400, "whole number"),
        ("history?id=usual&since=\u0663", 400, "whole number"),
        ("event?id=usual&event=100000", 404, "no event"),
        ("event?id=usual&event=99999999999999999999", 400, "whole number"),
        ("events?id=usual&start=x", 400, "whole number"),
        ("event?id=usual", 400, "'event' is missing"),
        ("find?id=usual", 400, "'words' is missing"),
        ("search?words=+", 400, "'words' is missing"),
        ("compare?id=usual", 400, "'other' is missing"),
        ("conversations?limit=-1", 400, "whole number"),
        ("follow?id=none", 404, "no conversation"),
        ("follow?id=gone", 410, "was erased"),
        ("history?id=gone", 410, "was erased"),
        ("nothing", 404, "no path '/api/nothing'"),
        ("history/?id=usual", 404, "no path"),
    ):
        answer = client.get(f"/api/{path}")
        assert (answer.status, said in answer.json()["error"]) == (status, True), path
        assert "replace_erased" not in answer.json()["error"], "a page has no Python"


def test_conversations_come_in_pages_last_active_first(client, store):
    whole = [
        one["conversation"] for one in client.get("/api/conversations").json()["conversations"]
    ]
    assert len(whole) == 3
    for start, limit in ((0, 2), (2, 2), (1, 0), (9, 5)):
        page = client.get("/api/conversations", params={"start": start, "limit": limit}).json()
        assert [one["conversation"] for one in page["conversations"]] == whole[
            start : start + limit
        ]
        assert page["total"] == 3


PATHS = (
    *(
        "conversations",
        "fleet",
        "history?id=usual",
        "events?id=usual",
        "event?id=usual&event=1",
        "search?words=make",
    ),
    *("find?id=usual&words=make", "follow?id=usual"),
)


def test_head_is_answered_as_get_is(client):
    for path in PATHS:
        told = client.send("HEAD", f"/api/{path}")
        kind = "text/event-stream" if "follow" in path else "application/json"
        assert (told.status, told.headers["content-type"].partition(";")[0]) == (200, kind), path


def test_nothing_that_a_history_says_is_in_the_page_itself(client):
    page = client.get("/", params={"id": HOSTILE[0]}).text
    assert not any(attack in page for attack in HOSTILE)
    assert re.findall(r"<script[^>]*>", page) == ['<script src="page.js">']
    assert (
        client.get("/api/event", params={"id": "hostile", "event": 1}).headers["content-type"]
        == "application/json"
    )


def test_every_response_has_the_policy_and_no_response_has_cors(guarded):
    for path in (
        "/",
        "/page.js",
        "/api/fleet",
        "/none",
        f"/?token={TOKEN}",
        f"/api/fleet?token={TOKEN}",
    ):
        headers = guarded.get(path, headers={"origin": "https://attacker.example"}).headers
        assert headers["content-security-policy"] == POLICY
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] == "no-store"
        assert not [name for name in headers if name.startswith("access-control")]


def test_without_the_token_nothing_is_told(guarded):
    for given in (
        {},
        {"authorization": "Bearer wrong"},
        {"authorization": f"Basic {TOKEN}"},
        {"cookie": "foldlog-8765=wrong"},
        {"cookie": f"foldlog-1={TOKEN}"},
        {"cookie": "\x00=;;;"},
    ):
        for path in (
            "/",
            "/page.js",
            "/api/fleet",
            "/api/follow",
            "/api/history?id=usual",
            "/none",
        ):
            answer = guarded.get(path, headers=given)
            assert (answer.status, "usual" in answer.text) == (401, False), (path, given)


def test_the_token_moves_from_the_address_into_a_cookie(guarded):
    answer = guarded.get("/", params={"token": TOKEN, "id": "a&b"})
    assert (answer.status, answer.headers["location"]) == (303, "/?id=a%26b")
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "samesite=strict" in cookie.lower()
    kept = {"cookie": f"other=1; {cookie.split(';')[0]}"}
    assert guarded.get("/api/fleet", headers=kept).status == 200
    assert guarded.get("/api/fleet", headers={"authorization": f"Bearer {TOKEN}"}).status == 200


def test_a_name_that_was_made_to_point_here_is_refused(guarded):
    ours = ("localhost:8765", "127.0.0.1", "[::1]:8765", "LOGS.example.")
    others = ("attacker.example", "localhost.attacker.example:8765", "127.0.0.1.attacker.example")
    for host in (*ours, *others, "localhost:8765@attacker.example", ""):
        answer = guarded.get(
            "/api/fleet", headers={"host": host, "authorization": f"Bearer {TOKEN}"}
        )
        assert answer.status == (200 if host in ours else 400), host


def test_it_only_reads(guarded):
    for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS"):
        answer = guarded.send(
            method, "/api/history?id=usual", headers={"authorization": f"Bearer {TOKEN}"}
        )
        assert answer.status == 405, method


def test_a_page_of_another_site_gets_nothing(guarded):
    asked = {"sec-fetch-site": "cross-site", "authorization": f"Bearer {TOKEN}"}
    assert guarded.get("/api/fleet", headers=asked).status == 403


def test_the_command_serves_a_store_that_others_write_and_leaves_it_as_it_was(tmp_path):
    url = f"sqlite:///{tmp_path}/h.db"
    with foldlog.open(url) as histories:
        histories["c"].append([Message(source="user", content="hello")])
        command = [sys.executable, "-m", "foldlog", "serve", "--port", "0", "--db", url]
        environment = {**os.environ, "FOLDLOG_TOKEN": ""}
        pipe = subprocess.PIPE
        process = subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=environment)
        try:
            assert process.stdout is not None
            address = process.stdout.readline().strip()
            base, token = address.split("/?token=")
            asked = urllib.request.Request(
                f"{base}/api/follow?id=c", headers={"authorization": f"Bearer {token}"}
            )
            with urllib.request.urlopen(asked, timeout=60) as stream:
                told = (json.loads(line[6:]) for line in stream if line.startswith(b"data: "))
                assert next(told) == {"version": 1, "redactions": 0, "borders": 0}
                histories["c"].append(
                    [
                        Action(tool="t", call_id="1"),
                        Observation(tool="t", call_id="1", content="done"),
                    ]
                )
                assert next(told) == {"version": 3, "redactions": 0, "borders": 0}
                process.send_signal(signal.SIGINT)
                assert list(told) == []  # the stream ends, so the server need not break it off
                _, said = process.communicate(timeout=60)
        finally:
            process.kill()
            process.communicate()
        assert process.returncode in (0, 130)
        assert said.splitlines() == [
            "foldlog: note: open this address in a browser; Ctrl-C ends the server"
        ]
        assert histories["c"].version() == 3


@pytest.mark.parametrize(
    "given, address",
    [([], "http://localhost:"), (["--allow-host", "127.0.0.1"], "http://127.0.0.1:")],
)
def test_the_printed_address_can_be_opened_where_the_server_listens_everywhere(
    tmp_path, given, address
):
    url = f"sqlite:///{tmp_path}/h.db"
    with foldlog.open(url) as histories:
        histories["c"].append([Message(source="user", content="hello")])
    command = [
        sys.executable,
        "-m",
        "foldlog",
        "serve",
        "--port",
        "0",
        "--host",
        "0.0.0.0",
        "--db",
        url,
        *given,
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        printed = process.stdout.readline().strip()
        assert printed.startswith(address)
        with urllib.request.build_opener(urllib.request.HTTPCookieProcessor()).open(
            printed, timeout=60
        ) as page:
            assert page.status == 200
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
        assert ("--allow-host NAME" in said) == (not given)
    finally:
        process.kill()
        process.communicate()


def test_a_server_that_would_be_open_is_not_started(foldlog, write):
    assert foldlog("import", write("c.jsonl", [{"role": "user", "content": "hi"}])).status == 0
    for given, said in (
        (["--no-token", "--host", "0.0.0.0"], "for localhost only"),
        (["--token", "short"], "at least 8"),
        (["--db", "sqlite:///none.db"], "does not exist"),
    ):
        ran = foldlog("serve", *given)
        assert (ran.status, said in ran.err) == (2, True), given


# -- for monitors
# --------------------------------------------------------------------------------------------------


def test_metrics_are_the_figures_of_the_store_in_the_text_of_prometheus(store):
    with asking(application(store, token=None)) as client:
        while client.get("/api/fleet").json()["counted"] < 3:
            pass
        fleet = client.get("/api/fleet").json()
        said = client.get("/metrics")
        while "foldlog_view_tokens" not in said.text:
            said = client.get("/metrics")
    assert said.headers["content-type"].startswith("text/plain; version=0.0.4")
    families = {family.name: family for family in text_string_to_metric_families(said.text)}
    listed = set(
        re.findall(
            r"`(foldlog_\w+)[{`]", (Path(__file__).parents[2] / "docs/OBSERVING.md").read_text()
        )
    )
    of_others = {"foldlog_file_bytes", "foldlog_follower_lag_seconds", "foldlog_events_held_back"}
    assert families.keys() == listed - of_others
    values = {
        name: sum(sample.value for sample in family.samples) for name, family in families.items()
    }
    assert values["foldlog_events"] == fleet["events"] > 0
    assert values["foldlog_condensations"] == fleet["condensations"] > 0
    assert values["foldlog_view_tokens"] == fleet["view_tokens"] > 0
    assert HOSTILE[1] not in said.text


def test_metrics_have_no_sum_before_each_conversation_was_counted(store, monkeypatch):
    counting = threading.Event()
    refresh = FiguresOfStore.refresh
    monkeypatch.setattr(
        FiguresOfStore, "refresh", lambda self, most: refresh(self, most * counting.is_set())
    )
    with asking(application(store, token=None)) as client:
        told = client.get("/metrics").text
        assert "foldlog_conversations " in told
        assert not re.search(
            "^foldlog_(events|view_tokens|condensations|tokens_saved|.*_usd)", told, re.MULTILINE
        )
        counting.set()
        while "foldlog_view_tokens " not in told:
            told = client.get("/metrics").text
    assert "foldlog_conversations_counted 3\n" in told


def test_metrics_name_followers_and_not_backups(tmp_path):
    with foldlog.open(tmp_path / "s.db") as histories:
        histories["c"].append(Message(source="user", content="hi"))
        confirm(histories.store, 'read model "x"', 0)
        histories.maintenance.back_up(str(tmp_path / "b.db"))
        with asking(application(histories.store, token=None)) as client:
            said = client.get("/metrics").text
    assert [
        line for line in said.splitlines() if line.startswith("foldlog_follower_lag_events{")
    ] == ['foldlog_follower_lag_events{follower="read model \\"x\\""} 1']
    assert 'foldlog_file_bytes{file="db"} ' in said


def test_health_needs_no_token_and_metrics_do(guarded, store):
    assert (guarded.get("/healthz").status, guarded.get("/healthz").text) == (200, "ok\n")
    assert guarded.get("/metrics").status == 401
    assert guarded.get("/metrics", headers={"authorization": f"Bearer {TOKEN}"}).status == 200
    assert guarded.get("/metrics", {"token": TOKEN}).status == 200
    assert guarded.get("/healthz", headers={"host": "evil.example"}).status == 400
    store.close()
    assert guarded.get("/healthz").status == 503


def test_a_server_whose_file_was_replaced_tells_nothing_of_the_former_one(tmp_path):
    path = tmp_path / "history.db"
    with open_store(path) as store, asking(application(store, token=None)) as client:
        store.append("c", Message(source="user", content="hi"), expected_version=0)
        asked = {"id": "c", "event": "0"}
        assert (client.get("/healthz").status, client.get("/api/event", params=asked).status) == (
            200,
            200,
        )
        path.rename(tmp_path / "former.db")
        assert client.get("/healthz").status == 503
        answer = client.get("/api/event", params=asked)
        assert answer.status == 503
        assert "start the server again" in answer.text
