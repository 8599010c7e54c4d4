"""The server over a store: what it shows, to whom, and that it only reads. The session ``served``
shows its answers.
"""

import json
import re
import signal
import socket
import subprocess
import sys
import threading
import urllib.request
from html import escape
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

import foldlog
from foldlog import Histories
from foldlog._app.cli.serving import listening
from foldlog._reports.search import index
from foldlog._reports.words.safe_text import printable
from foldlog.eventstore import (
    ANY_VERSION,
    CondensationAction,
    Retraction,
    confirm,
    open_store,
)
from foldlog.eventstore.maintenance.erase import erase
from foldlog.eventstore.maintenance.redact import redact
from foldlog.formats.registry import formats
from tests.beside import SAMPLES
from tests.browser.server import serving
from tests.figures import FiguresOfStore
from tests.foldlog.records import CORPUS
from tests.how_many import some
from tests.page_samples import HOSTILE, hostile_history, usual_history
from tests.said import replied, said
from tests.waiting import until
from tests.web_client import Client, Gate, application, asking, asking_store

ADDING = ("claude_code", "codex_rollout")
TOKEN = "a token of enough length"
BEARER = {"authorization": f"Bearer {TOKEN}"}


@pytest.fixture
def store():
    with open_store("memory:") as store:
        store.ingest("usual", usual_history())
        store.ingest("hostile", hostile_history())
        store.ingest(HOSTILE[0], [said(HOSTILE[1])])
        yield store


@pytest.fixture
def client(store):
    with asking_store(store) as client:
        yield client


@pytest.fixture
def guarded(store):
    app = application(store, gate=Gate(TOKEN, ["logs.example"], 8765))
    with asking(app) as client:
        yield client


def append(store, name, *events):
    store.append(name, [*events], expected_version=ANY_VERSION)


def rows(client, query=""):
    """Return the listed conversations, by their ids."""
    listed = client.json("conversations", {"q": query})["conversations"]
    return {row["conversation"]: row for row in listed}


def until_counted(client, count):
    """Wait until a thread has counted so many conversations, and return the list."""
    until(lambda: client.json("conversations")["counted"] >= count)
    return client.json("conversations")


def test_a_page_goes_on_with_what_is_appended(client, store):
    whole = client.json("history?id=usual")
    version = whole["version"]
    shown = [event for event, left_at in enumerate(whole["events"]["left"]) if left_at == 0]
    append(store, "usual", said("more"), CondensationAction(forgotten_event_ids=[shown[1]]))
    more = client.json("history", {"id": "usual", "since": version})
    assert more["version"] == version + 2
    assert [more["kinds"][kind] for kind in more["events"]["kind"]] == ["user", "condensation"]
    changed = {event: spans for event, spans in more["spans"] if event < version}
    assert changed[shown[1]][-1][:3] == [shown[1] + 1, version + 2, version + 1]


def test_redacted_words_are_no_title(client, store):
    append(store, "c", said("the secret word"))
    store.fork("c", 1, "f")

    def titles():
        """Return the titles of both. A title is missing until a thread has found it."""
        listed = rows(client)
        return [listed[name]["title"] for name in ("c", "f")]

    until(lambda: all(titles()))
    assert titles() == ["the secret word"] * 2
    redact(store, "c", 0, reason="asked to", by="me")
    assert "the secret word" not in titles()
    until(lambda: all(titles()))
    assert "the secret word" not in titles()


def test_a_conversation_has_one_title_everywhere(histories):
    """The conversations are of every format, and of programs that add to what a user asks (their
    real histories, if these lie beside the project).
    """
    command = "<command-message>review</command-message>\n<command-name>/review</command-name>"
    histories["asked"].append(said(command))
    histories["silent"].append(replied("hi"))
    between = [said("more")] * 40
    titled = replied("hi", meta={"title": "Late"})
    histories["late"].append([*between, titled, *between])
    corpus = (CORPUS / f"{name}.jsonl" for name in formats())
    beside = (SAMPLES / name for name in ADDING if SAMPLES.is_dir())
    for path in [*filter(Path.exists, corpus), *beside]:
        histories.import_(path, prefix=f"{path.name}/", findings=lambda _: None)
    store = histories.store
    with asking_store(store) as client:
        listed = until_counted(client, len(list(histories)))["conversations"]
        titles = {row["conversation"]: row["title"] for row in listed}
        for name, title in titles.items():
            assert client.json("history", {"id": name})["title"] == title
        for name in some(titles, 10):
            title = printable(titles[name] or name, one_line=True)
            report = client.get("/api/report", {"id": name}).text
            assert f"<title>{escape(title)} · foldlog</title>" in report
    assert (titles["asked"], titles["silent"], titles["late"]) == ("/review", None, "more")


@pytest.mark.parametrize(
    "path, name",
    [
        ("conversations?limit=1&limit=2", "limit"),
        ("events?id=usual&start=0&id=c", "id"),
        ("search?words=a&q=&q=tool:read", "q"),
    ],
)
def test_a_parameter_that_comes_twice_is_refused(client, path, name):
    answer = client.get(f"/api/{path}")
    problem = f"the parameter {name!r} comes more than once; send it once"
    assert (answer.status, answer.json()["error"]) == (400, problem)


def test_a_search_takes_several_kinds(client, store):
    append(store, "c", said("needle"), replied("needle"), said("needle"))

    def found_with(query):
        return [hit["event"] for hit in client.json(f"search?words=needle{query}")["hits"]]

    assert found_with("&kind=user") == [2, 0]
    assert found_with("&kind=user&kind=agent") == [2, 1, 0]


def test_list_has_500_conversations_a_page(client, store):
    for number in range(510):
        store.append(f"many-{number:03}", said("hi"), expected_version=0)
    until_counted(client, 513)
    first = client.json("conversations", {"sort": "id"})
    rest = client.json("conversations", {"sort": "id", "start": 500})
    assert (len(first["conversations"]), first["total"]) == (500, rest["total"])
    ids = [row["conversation"] for page in (first, rest) for row in page["conversations"]]
    assert ids == sorted(row.id for row in store.iter_conversations())


def test_the_size_of_a_store_has_its_log(tmp_path):
    def sizes():
        return [(tmp_path / name).stat().st_size for name in ("a.db", "a.db-wal")]

    with open_store(tmp_path / "a.db") as store:
        append(store, "a", said("hi"))
        with asking_store(store) as client:
            before = sizes()
            assert before[0] < sum(before) <= client.json("fleet")["bytes"] <= sum(sizes())


def test_excerpt_has_each_word_whole(client, store):
    text = f"{'a beginning ' * 9}needle {'between ' * 30}haystack {'an end ' * 90}"
    append(store, "c", *map(said, (text, "short", f"{'a ' * 40}one{'-' * 26}two")))

    def excerpts(words):
        hits = client.json("find", {"id": "c", "words": words})["hits"]
        return [hit["snippet"] for hit in hits]

    (excerpt,) = excerpts("haystack needle")
    assert excerpt.startswith("…g a beginning needle between")
    assert 0 < excerpt.index("needle") < excerpt.index("haystack") < 80
    assert excerpt.endswith("…")
    assert excerpts("haystack nowhere") == []
    assert excerpts("short") == ["short"]
    assert [excerpt.count("…") for excerpt in excerpts("one two")] == [1], "they touch"


def test_excerpt_is_around_the_word_whatever_its_case(client, store):
    """The lower case of the first letter has two characters."""
    append(store, "c", said(f"{'İ' * 300} before NEEDLE after {'an end ' * 90}"))
    (hit,) = client.json("find", {"id": "c", "words": "needle"})["hits"]
    assert hit["snippet"].startswith("…İİİİİİ before NEEDLE after an end")


def test_every_list_counts_the_condensations_that_were_made(store):
    append(store, "some", *(said(str(n)) for n in range(5)))
    declined = {"outcome": "declined", "reason": "nothing to spare", "cost": 0.5}
    with asking_store(store) as client:
        for place in (1, 2):  # one right after another that is counted
            condensation = CondensationAction(
                forgotten_event_ids=(place,), metadata={"reason": "tokens"}
            )
            append(store, "some", condensation)
            figures = Histories(store)["some"].stats().condensations.values()
            page = client.json("history?id=some")
            assert page["condensations"] == place
            assert page["tokens_saved"] == sum(figure.tokens_saved for figure in figures) > 0
        not_made = CondensationAction(forgotten_event_ids=(), metadata=declined)
        append(store, "some", not_made, Retraction(version=6))
        until_counted(client, 4)
        by_name = rows(client)
        fleet = client.json("fleet")
        history = client.json("history?id=some")
    assert by_name["some"]["condensations"] == history["condensations"] == 2
    assert fleet["condensations"] == sum(row["condensations"] for row in by_name.values())
    reasons = {row["reason"]: row["condensations"] for row in fleet["reasons"]}
    assert reasons["too many tokens"] == 3
    assert not any(reason.startswith("declined") for reason in reasons)
    assert (fleet["cost"], history["cost"]) == (pytest.approx(0.5123), 0.5)


@pytest.fixture
def may_count(monkeypatch):
    """An event. Figures are counted while it is set."""
    event = threading.Event()
    refresh = FiguresOfStore.refresh

    def refresh_if_allowed(self, most):
        return refresh(self, most if event.is_set() else 0)

    monkeypatch.setattr(FiguresOfStore, "refresh", refresh_if_allowed)
    return event


def test_no_number_of_counted_conversations_is_below_0(monkeypatch):
    """The rest is at least 1 while another thread counts, also if no conversation is known yet."""
    monkeypatch.setattr(FiguresOfStore, "refresh", lambda self, most: 1)
    with open_store("memory:") as empty, asking_store(empty) as client:
        assert client.json("overview")["counted"] == client.json("fleet")["counted"] == 0


def test_outdated_figures_are_not_counted(client, store, may_count):
    may_count.set()
    until_counted(client, 3)
    may_count.clear()
    append(store, "usual", said("more"))
    assert client.json("conversations")["counted"] == client.json("fleet")["counted"] == 2
    may_count.set()
    until_counted(client, 3)


PATHS = (
    "conversations",
    "fleet",
    "history?id=usual",
    "events?id=usual",
    "event?id=usual&event=1",
    "search?words=make",
    "find?id=usual&words=make",
    "follow?id=usual",
)


@pytest.mark.parametrize("path", PATHS)
def test_head_is_answered_as_get_is(client, path):
    answer = client.send("HEAD", f"/api/{path}")
    kind = "text/event-stream" if "follow" in path else "application/json"
    assert (answer.status, answer.headers["content-type"].partition(";")[0]) == (200, kind)


def test_page_contains_no_text_of_histories(client):
    page = client.get("/", {"id": HOSTILE[0]}).text
    assert not any(attack in page for attack in HOSTILE)
    assert re.findall(r"<script[^>]*>", page) == ['<script src="page.js">']


def test_responses_have_the_policy_and_no_cors(guarded):
    for path in (
        "/",
        "/page.js",
        "/api/fleet",
        "/none",
        f"/?token={TOKEN}",
        f"/api/fleet?token={TOKEN}",
    ):
        headers = guarded.get(path, headers={"origin": "https://attacker.example"}).headers
        assert headers["content-security-policy"].startswith("default-src 'none'")
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] == "no-store"
        assert not [name for name in headers if name.startswith("access-control")]


def test_without_the_token_nothing_is_shown(guarded):
    for headers in (
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
            answer = guarded.get(path, headers=headers)
            assert (answer.status, "usual" in answer.text) == (401, False), (path, headers)


def test_token_moves_into_a_cookie(guarded):
    answer = guarded.get("/", params={"token": TOKEN, "id": "a&b"})
    assert (answer.status, answer.headers["location"]) == (303, "/?id=a%26b")
    # no redirect leads to another host
    answer_elsewhere = guarded.get("//elsewhere.example/", params={"token": TOKEN})
    assert answer_elsewhere.headers["location"] == "/elsewhere.example/"
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "samesite=strict" in cookie.lower()
    headers = {"cookie": f"other=1; {cookie.split(';')[0]}"}
    assert guarded.get("/api/fleet", headers=headers).status == 200
    assert guarded.get("/api/fleet", headers=BEARER).status == 200


def test_foreign_host_name_is_refused(guarded):
    ours = ("localhost:8765", "127.0.0.1", "[::1]:8765", "LOGS.example.")
    others = ("attacker.example", "localhost.attacker.example:8765", "127.0.0.1.attacker.example")
    for host in (*ours, *others, "localhost:8765@attacker.example", ""):
        answer = guarded.get("/api/fleet", headers={"host": host, **BEARER})
        assert answer.status == (200 if host in ours else 400), host


def test_the_page_server_only_reads(guarded):
    for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS"):
        answer = guarded.send(method, "/api/history?id=usual", headers=BEARER)
        assert answer.status == 405, method


@pytest.mark.parametrize(
    "path, allowed",
    [
        ("/", "GET, HEAD"),
        ("/api/notes?id=usual", "GET, HEAD, POST"),
        ("/mcp", "GET, HEAD, POST, DELETE"),
    ],
)
def test_a_refused_method_learns_the_right_ones(guarded, path, allowed):
    answer = guarded.send("PATCH", path, headers=BEARER)
    assert (answer.status, answer.headers["allow"]) == (405, allowed)
    assert f"use {allowed}" in answer.json()["error"]


def test_a_page_of_another_site_gets_nothing(guarded):
    headers = {"sec-fetch-site": "cross-site", **BEARER}
    assert guarded.get("/api/fleet", headers=headers).status == 403


def test_server_follows_and_leaves_the_store(tmp_path):
    with foldlog.open(tmp_path / "h.db") as histories:
        histories["c"].append(said("hello"))
        everywhere = ("--host", "0.0.0.0", "--allow-host", "127.0.0.1")
        with serving(tmp_path / "h.db", *everywhere) as (process, address):
            assert address.startswith("http://127.0.0.1:")
            base, token = address.split("/?token=")
            request = urllib.request.Request(
                f"{base}/api/follow?id=c", headers={"authorization": f"Bearer {token}"}
            )
            with urllib.request.urlopen(request, timeout=60) as stream:
                sent = (json.loads(line[6:]) for line in stream if line.startswith(b"data: "))
                assert next(sent) == {"version": 1, "redactions": 0, "borders": 0}
                histories["c"].append([said("more"), said("still more")])
                assert next(sent) == {"version": 3, "redactions": 0, "borders": 0}
                process.send_signal(signal.SIGINT)
                assert list(sent) == []  # the stream ends, so the server need not break it off
                _, err = process.communicate(timeout=60)
        assert process.returncode in (0, 130)
        assert err.splitlines() == [
            "foldlog: note: open this address in a browser; Ctrl-C ends the server"
        ]
        assert histories["c"].version() == 3


def test_the_server_makes_a_search_index_that_is_asked_for(tmp_path, monkeypatch):
    monkeypatch.setattr(index, "_MANY", 2)
    with foldlog.open(tmp_path / "h.db") as histories:
        histories["small"].append([said("hello")])
        assert not index.is_missed(histories.store)
        histories["large"].append([said("hello")] * 2)
        assert index.is_missed(histories.store)
        with serving(tmp_path / "h.db", "--search-index"):
            assert not index.is_missed(histories.store)


INTERRUPTED_TWICE = """
import runpy, signal, sys, uvicorn

async def main_loop(server):
    for _ in range(2):
        server.handle_exit(signal.SIGINT, None)

uvicorn.Server.main_loop = main_loop
sys.argv[1:] = ["serve", "--port", "0"]
runpy.run_module("foldlog", run_name="__main__")
"""


def test_second_interrupt_prints_no_traceback(tmp_path):
    foldlog.open(tmp_path / "foldlog.db").close()
    command = [sys.executable, "-c", INTERRUPTED_TWICE]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ended.stderr.splitlines() == [
        "foldlog: note: open this address in a browser; Ctrl-C ends the server"
    ]


def test_printed_address_can_be_opened(tmp_path):
    foldlog.open(tmp_path / "h.db").close()
    options = ("--host", "0.0.0.0", "--token", "a&b=c#d+e f%20")
    with serving(tmp_path / "h.db", *options) as (process, printed):
        assert printed.startswith("http://localhost:")
        opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
        with opener.open(printed, timeout=60) as page:
            assert page.status == 200
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
        assert "--allow-host NAME" in err


@pytest.mark.parametrize(
    "options, why",
    [
        ("--no-token --host 0.0.0.0", "for localhost only"),
        ("--no-token --token long-enough --db none.db", "leave out --no-token"),
        ("--token short", "at least 8"),
        ("--token 'ends with a blank '", "begins or ends with a blank"),
        ("--token tökentöken", "outside of printable ASCII"),
        ("--config c.toml", "nothing uses --config without"),
        ("--allow-origin https://a.example", "add --write"),
        ("--db sqlite:///none.db", "does not exist"),
    ],
)
def test_options_that_cannot_be_served_are_refused(foldlog, options, why):
    foldlog("append c hi --new")
    ran = foldlog(f"serve {options}")
    assert ran.status == 2, ran.err
    assert why in ran.err


# -- for monitors
# --------------------------------------------------------------------------------------------------


def test_answers_are_sent_without_delay():
    with listening("127.0.0.1", 0) as listener, socket.create_connection(listener.getsockname()):
        connection, _ = listener.accept()
        with connection:
            assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_metrics_are_figures_of_the_store(client):
    until_counted(client, 3)
    fleet = client.json("fleet")
    until(lambda: "foldlog_view_tokens" in client.get("/metrics").text)
    answer = client.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    page = (Path(__file__).parents[4] / "docs/OBSERVING.md").read_text()
    listed = {*re.findall(r"`(foldlog_\w+)[{`]", page)}
    of_others = {"foldlog_file_bytes", "foldlog_follower_lag_seconds", "foldlog_events_held_back"}
    values = {
        family.name: sum(sample.value for sample in family.samples)
        for family in text_string_to_metric_families(answer.text)
    }
    assert values.keys() == listed - of_others
    for name in ("events", "condensations", "view_tokens"):
        assert values[f"foldlog_{name}"] == fleet[name] > 0
    assert HOSTILE[1] not in answer.text


def test_made_up_reason_is_no_label(client, store):
    condensation = CondensationAction(
        forgotten_event_ids=(0,), metadata={"reason": "a name of a patient"}
    )
    append(store, "own", said("one"), said("two"), condensation)
    until(lambda: 'reason="other"' in client.get("/metrics").text)
    text = client.get("/metrics").text
    assert 'reason="too many tokens"' in text
    assert "patient" not in text


def test_uncounted_conversations_give_no_sums(client, may_count):
    sums = re.compile("^foldlog_(events|view_tokens|condensations|tokens_saved|.*_usd)", re.M)
    text = client.get("/metrics").text
    assert "foldlog_conversations " in text
    assert not sums.search(text)
    may_count.set()
    until(lambda: "foldlog_view_tokens " in client.get("/metrics").text)
    assert "foldlog_conversations_counted 3\n" in client.get("/metrics").text


def test_metrics_name_followers_and_not_backups(tmp_path):
    with foldlog.open(tmp_path / "s.db") as histories:
        histories["c"].append(said("hi"))
        confirm(histories.store, 'read model "x"', 0)
        histories.maintenance.back_up(str(tmp_path / "b.db"))
        with asking_store(histories.store) as client:
            text = client.get("/metrics").text
    lags = [line for line in text.splitlines() if line.startswith("foldlog_follower_lag_events{")]
    assert lags == ['foldlog_follower_lag_events{follower="read model \\"x\\""} 1']
    assert 'foldlog_file_bytes{file="db"} ' in text


def test_health_needs_no_token_and_metrics_do(guarded, store):
    assert (guarded.get("/healthz").status, guarded.get("/healthz").text) == (200, "ok\n")
    assert guarded.get("/metrics").status == 401
    assert guarded.get("/metrics", headers=BEARER).status == 200
    assert guarded.get("/metrics", {"token": TOKEN}).status == 200
    assert guarded.get("/healthz", headers={"host": "evil.example"}).status == 400
    store.close()
    assert guarded.get("/healthz").status == 503


def test_replaced_file_is_not_served(tmp_path):
    path = tmp_path / "history.db"
    with open_store(path) as store, asking_store(store) as client:
        append(store, "c", said("hi"))
        for status in (200, 503):
            answer = client.get("/api/event?id=c&event=0")
            assert (client.get("/healthz").status, answer.status) == (status, status)
            if path.exists():
                path.rename(tmp_path / "former.db")
        assert "start the server again" in answer.text


def test_following_ends_at_an_erasure(store):
    store.append("c", [said("one")], expected_version=0)
    polls = []

    def is_ending():
        polls.append(len(polls))
        if len(polls) == 2:
            erase(store, "c", reason="asked to")
            Histories(store).create("c", replace_erased=True).append([said("two"), said("three")])
        return len(polls) > 4

    app = application(store, gate=Gate(None), is_ending=is_ending)
    text = Client(app, waits=True).get("/api/follow?id=c").text
    assert "event: problem" in text
    assert text.count("event: version") == 1
