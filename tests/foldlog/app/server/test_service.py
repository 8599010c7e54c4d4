"""The service below ``/v1``: its headers, how it stops, and how much it holds in memory."""

import asyncio
import gzip
import json
import logging
import threading
from functools import partial

import msgspec
import pytest

import foldlog
from foldlog import Histories
from foldlog._app.server import parameters
from foldlog._app.server.problems import Refusal
from foldlog._app.server.service import conversations, events, service, tokens
from foldlog._app.server.service.encoding import encoded_parts
from foldlog._app.server.service.service import LargeResponse, Service
from foldlog._app.server.service.tokens import Principal, TokenEntry, Tokens
from foldlog._history.history import History
from foldlog.errors import StoreDamaged, StoreUnavailable
from foldlog.eventstore import Action, CondensationAction, InvalidOption, KeyRing, open_store
from foldlog.eventstore.maintenance.erase import erase
from tests.http_client import HttpClient
from tests.said import by_turns, replied, said
from tests.stored_rows import execute
from tests.waiting import until_in_loop
from tests.web_client import Client, Gate, application, running

TOKEN = "a token of enough length"
APPROVING = "token-of-the-desk"
BEARER = ("authorization", f"Bearer {TOKEN}")
JSON = ("content-type", "application/json")
C1 = "/v1/conversations/c1"
LARGE = "/v1/conversations/large"
MEBIBYTE = 1 << 20


@pytest.fixture
def store():
    with open_store("memory:") as store:
        store.append("c1", [said("hi")], expected_version=0)
        yield store


@pytest.fixture
def ending():
    return threading.Event()


@pytest.fixture
def app(store, ending):
    tokens = Tokens(
        [
            ("worker", TokenEntry(scope="append", token=TOKEN)),
            ("desk", TokenEntry(scope="approve", token=APPROVING)),
        ]
    )
    service = Service(Histories(store), tokens, check=lambda: None, is_ending=ending.is_set)
    return application(store, gate=Gate("page"), service=service)


@pytest.fixture
def http(app):
    return HttpClient(app, TOKEN)


@pytest.fixture
def client(app):
    return Client(app, dict([BEARER]), waits=True)


async def ask(app, method, path, *headers, receive, sent, query=b"", bearer=BEARER):
    """Send a request whose headers may come twice. ``sent`` gets what the application sends."""

    async def send(message):
        sent.append(message)

    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "query_string": query,
        "headers": [
            (name.encode(), value.encode())
            for name, value in (("host", "localhost"), bearer, *headers)
        ],
    }
    await app(scope, receive, send)


def answer_to(app, method, path, *headers, body=b""):
    messages = iter([{"type": "http.request", "body": body, "more_body": False}])

    async def receive():
        return next(messages)

    sent = []
    asyncio.run(ask(app, method, path, *headers, receive=receive, sent=sent))
    return sent[0]["status"], json.loads(sent[1]["body"])


def test_a_header_that_comes_twice_is_one_list(app, store):
    def append(*headers):
        body = b'{"messages": [{"role": "user", "content": "more"}]}'
        return answer_to(app, "POST", f"{C1}/events", JSON, *headers, body=body)[0]

    assert append(("if-match", '"9"'), ("if-match", "*")) == 400
    assert append(("idempotency-key", "a"), ("idempotency-key", "b")) == 201
    assert [entry.id for entry in Histories(store)["c1"].recorded("a, b")] == [1]


def test_a_parameter_that_comes_twice_is_refused(client):
    answer = client.get(f"{C1}/events?start=0&start=1")
    problem = "the parameter 'start' comes more than once; send it once"
    assert (answer.status, answer.json()["detail"]) == (400, problem)


def test_only_the_newest_version_is_an_etag(client, http):
    http("append_events", conversation="c1", body={"messages": [{"role": "user", "content": "b"}]})
    paths = ("", "/events", "/view", "/view?dialect=openai", "/documents", "/view?at=1")
    tags = [client.get(f"{C1}{path}").headers.get("etag") for path in paths]
    assert tags == ['"2"'] * 5 + [None]


def test_a_foreign_host_name_is_a_problem(client):
    answer = client.get(C1, headers={"host": "logs.example"})
    assert answer.headers["content-type"] == "application/problem+json"
    assert (answer.status, answer.json()["status"]) == (400, 400)
    assert "--allow-host" in answer.json()["detail"]


def test_attributes_with_a_comma_are_found(http):
    for user in ("ann", "bob,user=ann", "100%"):
        http("create_conversation", body={"id": user, "attributes": {"user": user}})

    def listed(where):
        page = http("list_conversations", where=where)
        return [conversation["id"] for conversation in page["conversations"]]

    assert listed("user=bob%2Cuser%3Dann") == ["bob,user=ann"]
    assert listed("user=100%25") == ["100%"]


def test_a_stopping_server_says_so(app, ending):
    """Uvicorn cancels the requests that are open a second after a signal."""

    async def stopped(method, path, *headers, receive):
        sent = []
        request = asyncio.create_task(ask(app, method, path, *headers, receive=receive, sent=sent))
        await asyncio.sleep(0)
        ending.set()
        request.cancel()
        await request
        return sent[0]["status"], dict(sent[0]["headers"]), json.loads(sent[1]["body"])

    async def no_more_body():
        await asyncio.Event().wait()

    status, headers, document = asyncio.run(
        stopped("POST", f"{C1}/events", JSON, receive=no_more_body)
    )
    assert (status, headers[b"retry-after"], document["status"]) == (503, b"1", 503)


def test_a_wait_for_a_lease_ends_with_the_server(http, ending):
    http("take_lease", conversation="c1", body={"worker": "w1"})
    ending.set()
    body = {"worker": "w2", "wait_s": 30}
    assert http.refusal("take_lease", conversation="c1", body=body).status == 503


@pytest.mark.parametrize(
    "error, status, is_logged",
    [
        (IndexError("a fault"), 500, True),
        (ValueError("a fault, or of the caller"), 422, True),
        (TypeError("a fault, or of the caller"), 422, True),
        (StoreDamaged("of the store"), 503, True),
        (StoreUnavailable("of the disk", kind="space"), 503, False),
        (InvalidOption("of the caller"), 422, False),
    ],
)
def test_what_may_be_a_fault_is_logged(error, status, is_logged, http, caplog, monkeypatch):
    def fail(history):
        raise error

    monkeypatch.setattr(History, "view", fail)
    assert http.refusal("read_view", conversation="c1").status == status
    assert ("the service failed: /conversations/c1/view" in caplog.text) is is_logged


def test_a_client_that_leaves_is_no_failure(app, caplog):
    async def receive():
        return {"type": "http.disconnect"}

    with caplog.at_level(logging.ERROR, "foldlog.serve"):
        asyncio.run(ask(app, "POST", f"{C1}/events", JSON, receive=receive, sent=[]))
    assert caplog.records == []


@pytest.mark.parametrize(
    "method, path, query, body",
    [
        ("GET", f"{C1}/follow", b"after=1&wait_s=30", b""),
        ("POST", f"{C1}/lease", b"", b'{"worker": "w2", "wait_s": 30}'),
    ],
)
def test_a_wait_ends_with_its_client(app, http, method, path, query, body):
    http("take_lease", conversation="c1", body={"worker": "w1", "ttl_s": 600})
    messages = iter([{"type": "http.request", "body": body, "more_body": False}])

    async def receive():
        return next(messages, {"type": "http.disconnect"})

    async def wait():
        request = ask(app, method, path, JSON, receive=receive, sent=[], query=query)
        await asyncio.wait_for(request, 20)

    asyncio.run(wait())


def test_pages_of_large_events_are_short(http, store):
    store.append("big", [said("x" * MEBIBYTE) for _ in range(12)], expected_version=0)
    page = http("read_events", conversation="big")
    assert (len(page["events"]), page["next"]) == (8, 8)
    assert len(http("read_events", conversation="big", start=8)["events"]) == 4
    ids = []
    after = "0"
    while len(ids) < 12:
        page = http("follow_conversation", conversation="big", after=after)
        assert len(page["events"]) == 1
        ids += [event["id"] for event in page["events"]]
        after = page["after"]
    assert ids == [*range(12)]


def test_a_stream_goes_on_after_large_events(app, store, ending):
    large = [said("x" * MEBIBYTE) for _ in range(3)]
    small = [said("y") for _ in range(150)]
    store.append("big", large + small, expected_version=0)
    sent = []

    def counts():
        """Return how many events each message has."""
        return [message.get("body", b"").count(b"event: event") for message in sent]

    async def receive():
        await asyncio.Event().wait()

    async def read():
        accept = ("accept", "text/event-stream")
        path = "/v1/conversations/big/follow"
        stream = asyncio.create_task(ask(app, "GET", path, accept, receive=receive, sent=sent))
        await until_in_loop(lambda: sum(counts()) == 153)
        ending.set()
        await stream

    asyncio.run(read())
    assert [count for count in counts() if count] == [1, 1, 1, 100, 50]


def test_a_stream_reads_a_large_event_alone(http, store, monkeypatch):
    """Thirty events of 15 MB would else be in memory together, for each stream."""
    store.append("big", [said("x" * 2 * MEBIBYTE) for _ in range(20)], expected_version=0)
    counts = []
    log = store.log

    def counted_log(self, conversation, start, stop):
        counts.append(stop - start)
        return log(conversation, start, stop)

    monkeypatch.setattr(type(store), "log", counted_log)
    assert len(http("follow_conversation", conversation="big")["events"]) == 1
    assert counts == [1]


def begin_again(store, *texts):
    """Erase the conversation, and begin another one with its id, which has a message for each text
    behind its first event.
    """
    erase(store, "c1", reason="asked to")
    history = Histories(store).create("c1", replace_erased=True)
    history.append([said(text) for text in texts])


LIVE = [
    ("/v1/conversations/c1/follow", b""),
    ("/v1/stream/c1", b"offset=-1&live=sse"),
]
ACCEPTS_EVENTS = ("accept", "text/event-stream")


def bytes_of(sent):
    return b"".join(message.get("body", b"") for message in sent)


@pytest.mark.parametrize("path, query", LIVE)
def test_a_reader_gets_no_page_of_an_erased_conversation_with_this_id(
    app, store, ending, path, query
):
    store.append("c1", [said("old words")], expected_version=1)
    first = []
    second = []

    async def receive():
        await asyncio.Event().wait()

    async def read():
        reader = partial(ask, app, "GET", path, ACCEPTS_EVENTS, receive=receive, query=query)
        async with running(app):
            one = asyncio.create_task(reader(sent=first))
            await until_in_loop(lambda: b"old words" in bytes_of(first))
            begin_again(store, "new words")  # now it has as many events as before
            other = asyncio.create_task(reader(sent=second))
            await until_in_loop(lambda: b"words" in bytes_of(second))
            ending.set()
            await asyncio.gather(one, other)

    asyncio.run(read())
    assert b"new words" in bytes_of(second)
    assert b"old words" not in bytes_of(second)


@pytest.mark.parametrize("path, query", LIVE)
def test_a_live_reader_does_not_go_on_in_another_conversation_with_this_id(
    app, store, ending, path, query
):
    sent = []

    async def receive():
        await asyncio.Event().wait()

    async def read():
        async with running(app):
            reading = ask(app, "GET", path, ACCEPTS_EVENTS, receive=receive, sent=sent, query=query)
            reader = asyncio.create_task(reading)
            await until_in_loop(lambda: b"hi" in bytes_of(sent))
            begin_again(store, "new words", "more new words")
            await until_in_loop(lambda: reader.done() or b"new words" in bytes_of(sent))
            ending.set()
            await reader

    asyncio.run(read())
    assert b"new words" not in bytes_of(sent)


@pytest.fixture
def desk(app):
    return HttpClient(app, APPROVING)


@pytest.fixture
def asked(http):
    call = {"id": "k1", "type": "function", "function": {"name": "pay", "arguments": "{}"}}
    reply = {"role": "assistant", "content": None, "tool_calls": [call]}
    http("append_reply", conversation="c1", body={"reply": reply})


def test_a_decision_names_its_token(store, desk, asked):
    desk("decide", conversation="c1", event=1, body={"approved": True, "by": "boss"})
    *_, decision = store.events("c1")
    assert (decision.data["by"], decision.data["token"]) == ("boss", "desk")


def test_a_worker_does_not_approve_its_own_call(http, desk, asked):
    body = {"approved": True, "by": "boss"}
    assert http.refusal("decide", conversation="c1", event=1, body=body).status == 403
    annotation = {"kind": "annotation", "name": "foldlog.approval", "cause": 1, "data": body}
    events = {"events": [annotation]}
    assert http.refusal("append_events", conversation="c1", body=events).status == 403
    together = [{"conversation": name, **events, "expected_version": 0} for name in ("x", "y")]
    assert http.refusal("append_together", body={"appends": together}).status == 403
    # A token that approves does not append.
    assert desk.refusal("append_events", conversation="c1", body=events).status == 403


@pytest.mark.parametrize(
    "end, status", [("2030-01-01T00:00:00", 400), ("9999-12-31T23:59:59-23:59", 422)]
)
def test_an_approval_ends_at_a_time_with_a_zone(desk, asked, end, status):
    decision = {"approved": True, "until": end}
    assert desk.refusal("decide", conversation="c1", event=1, body=decision).status == status


def test_a_whole_number_may_have_a_point(http):
    """Some languages write each number so; in JSON it is the same number."""
    retracted = http("retract", conversation="c1", body={"version": 0.0})
    assert retracted["event"]["version"] == 0


def test_a_number_with_a_point_excuses_no_text(http):
    body = {"view_version": 0.0, "cut": "true"}
    refusal = http.refusal("append_reply", conversation="c1", body=body)
    assert "Expected `bool`, got `str` - at `$.cut`" in refusal.detail


def test_a_body_that_does_not_go_on_is_refused(app, monkeypatch):
    monkeypatch.setattr(parameters, "_SILENCE_MAX_S", 0.0)
    parts = iter([{"type": "http.request", "body": b"{", "more_body": True}])
    sent = []

    async def receive():
        return next(parts, None) or await asyncio.Event().wait()

    asyncio.run(ask(app, "POST", f"{C1}/events", JSON, receive=receive, sent=sent))
    assert (sent[0]["status"], dict(sent[0]["headers"])[b"connection"]) == (408, b"close")
    assert b"the body came too slowly: 1 bytes in 0 s" in sent[1]["body"]


def test_a_body_that_says_it_is_too_long_is_not_read(app):
    async def receive():
        pytest.fail("the body was read")

    sent = []
    length = ("content-length", str(1 << 40))
    asyncio.run(ask(app, "POST", f"{C1}/events", JSON, length, receive=receive, sent=sent))
    assert (sent[0]["status"], json.loads(sent[1]["body"])["bytes_max"]) == (413, 32 * MEBIBYTE)


def test_a_request_beyond_the_rate_is_answered_late(store, monkeypatch):
    slept = []

    async def sleep(seconds):
        slept.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    tokens = Tokens([("ann", TokenEntry(scope="read", token=TOKEN, requests_per_s=0.01))])
    app = application(
        store, gate=Gate("page"), service=Service(Histories(store), tokens, check=lambda: None)
    )

    async def receive():
        return {"type": "http.request", "body": b""}

    async def send():
        answers = [], []
        for sent in answers:
            await ask(app, "GET", C1, receive=receive, sent=sent)
        return [sent[0]["status"] for sent in answers]

    assert asyncio.run(send()) == [200, 429]
    assert slept == [service._TOO_FAST_S]


def test_bodies_that_a_token_sends_at_once_have_a_limit():
    principal = Principal("ann", TokenEntry(scope="append", token=TOKEN), b"")
    first = principal.enter()
    second = principal.enter()
    first.take_body(16 * MEBIBYTE)
    second.take_body(16 * MEBIBYTE)
    with pytest.raises(Refusal, match="more than") as refused:
        principal.enter().take_body(1)
    assert refused.value.status == 429
    first.leave()
    second.take_body(16 * MEBIBYTE)


def test_answers_that_a_token_does_not_read_have_a_limit():
    principal = Principal("ann", TokenEntry(scope="append", token=TOKEN), b"")
    first = principal.enter()
    second = principal.enter()
    first.take_answer(32 * MEBIBYTE)
    second.take_answer(32 * MEBIBYTE)
    with pytest.raises(Refusal, match="more than") as refused:
        principal.enter().check_answer(1)
    assert refused.value.status == 429
    first.leave()
    second.check_answer(32 * MEBIBYTE)


@pytest.fixture
def unread(store, monkeypatch):
    """Make a conversation whose answers are nearly as large as the limit of unread ones."""
    monkeypatch.setattr(tokens, "_ANSWER_BYTES_MAX", 300_000)
    store.append("large", [*by_turns(21), replied("x" * 250_000)], expected_version=0)


def answer_beside_an_unread_one(app, path, *headers, body):
    """Return the status of the answer to a POST, while the client leaves another answer unread."""

    async def receive():
        return {"type": "http.request", "body": json.dumps(body).encode()}

    async def post_beside_an_unread_answer():
        is_sent = asyncio.Event()
        is_read = asyncio.Event()

        async def read_slowly(message):
            is_sent.set()
            await is_read.wait()

        scope = {
            "type": "http",
            "method": "GET",
            "path": f"{LARGE}/events",
            "query_string": b"",
            "headers": [(b"host", b"localhost"), (b"authorization", BEARER[1].encode())],
        }
        reading = asyncio.create_task(app(scope, receive, read_slowly))
        await asyncio.wait_for(is_sent.wait(), 60)
        sent = []
        await ask(app, "POST", path, JSON, *headers, receive=receive, sent=sent)
        is_read.set()
        await reading
        return sent[0]["status"]

    return asyncio.run(post_beside_an_unread_answer())


def test_a_request_refused_for_unread_answers_wrote_nothing(app, store, unread):
    """Clients repeat a write that was refused with 429, also without an idempotency key."""
    body = {"messages": [{"role": "user", "content": "y" * 100_000}]}
    assert answer_beside_an_unread_one(app, f"{C1}/events", body=body) == 429
    assert store.version("c1") == 1


def test_a_view_to_send_is_not_held_beside_unread_answers(app, client, unread):
    path = f"{LARGE}/prepare"
    assert answer_beside_an_unread_one(app, path, body={}) == 429
    assert client.send("POST", path, headers=dict([JSON]), body=b"{}").status == 201


def condensations(store):
    return sum(isinstance(event, CondensationAction) for _, event in store.log("large"))


def test_a_condensation_with_a_key_is_asked_for_again_beside_unread_answers(
    app, client, store, unread
):
    key = ("idempotency-key", "k")
    path = f"{LARGE}/condensations"
    assert answer_beside_an_unread_one(app, path, key, body={}) == 429
    assert client.send("POST", path, headers=dict([JSON, key]), body=b"{}").status == 200
    assert condensations(store) == 1


def test_a_condensation_without_a_key_is_not_asked_for_again(app, store, unread):
    """Its answer does not fit beside the unread ones, and clients repeat what 429 refuses."""
    assert answer_beside_an_unread_one(app, f"{LARGE}/condensations", body={}) == 422
    assert condensations(store) == 1


def test_a_report_is_counted_and_kept_by_no_cache(client, monkeypatch):
    taken = []
    monkeypatch.setattr(Principal, "_take_answer", lambda principal, size: taken.append(size))
    answer = client.get(f"{C1}/report")
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert taken == [len(answer.body)]


def test_lists_by_the_beginning_of_ids_find_an_element_of_an_attribute(http):
    http("create_conversation", body={"id": "a/1", "attributes": {"tags": ["x", "y"]}})
    for options in ({}, {"below": "a/"}):
        for tag, found in (("x", ["a/1"]), ("z", [])):
            page = http("list_conversations", where=f"tags={tag}", **options)
            assert [row["id"] for row in page["conversations"]] == found


def test_a_filter_with_two_values_for_a_name_is_refused(http):
    refused = http.refusal("list_conversations", where="tags=x,tags=y")
    assert refused.status == 400
    assert "two values" in refused.detail


def test_an_empty_page_of_a_list_is_refused(http):
    assert http.refusal("list_conversations", limit=0).status == 400


def test_a_large_body_waits_while_a_large_write_runs(monkeypatch):
    """The wait does not count as a pause of the client, however long it takes."""
    monkeypatch.setattr(parameters, "_SILENCE_MAX_S", 0.01)
    sent = 0

    async def parts():
        nonlocal sent
        for sent in range(1, 11):  # noqa: B007 - the test reads it
            yield b" " * 100_000

    async def read():
        turns = asyncio.Semaphore(1)
        await turns.acquire()
        reading = asyncio.create_task(parameters.read_bytes({}, parts(), MEBIBYTE, turns=turns))
        await asyncio.sleep(0.05)  # longer than a client may pause
        sent_meanwhile = sent
        turns.release()
        return sent_meanwhile, len(await reading)

    assert asyncio.run(read()) == (3, 1_000_000)


def test_a_large_answer_is_sent_in_pieces():
    content = bytes(range(256)) * 1_000
    parts = [content[:100_000], content[100_000:]]
    sent = []

    async def send(message):
        sent.append(message)

    asyncio.run(LargeResponse(parts)({}, None, send))
    assert (b"content-length", b"256000") in sent[0]["headers"]
    pieces = [message["body"] for message in sent[1:]]
    assert (b"".join(pieces), max(map(len, pieces))) == (content, 64 * 1024)
    assert [message["more_body"] for message in sent[1:]] == [True, True, True, True, False]


class Answer(msgspec.Struct):
    version: int
    events: list
    messages: list | None = None
    reason: str | msgspec.UnsetType = msgspec.UNSET


LONG = 'ä"\u2028\n𝄞' * 500_000


@pytest.mark.parametrize(
    "answer",
    [
        Answer(1, []),
        Answer(1, [1, "a", None, {}, [], {"a": [1]}]),
        Answer(2, [{"content": LONG}, {"content": [{"type": "text", "text": LONG}], "id": 2}]),
        Answer(3, [{"a": 1}] * 100, [{"role": "user", "content": LONG}], reason="r"),
        {"events": [1]},
    ],
)
def test_an_answer_in_parts_is_the_same_json(answer):
    parts = encoded_parts(answer)
    assert b"".join(parts) == msgspec.json.encode(answer)
    assert max(map(len, parts)) < 4 * MEBIBYTE


@pytest.mark.parametrize("text", ["short " * 300, LONG])
def test_an_answer_is_compressed_for_a_client_that_asks(client, store, text):
    store.append("c2", [said(text)], expected_version=0)
    view = "/v1/conversations/c2/view?dialect=openai"
    plain = client.send("GET", view)
    packed = client.send("GET", view, headers={"accept-encoding": "gzip"})
    assert packed.headers["content-encoding"] == "gzip"
    assert packed.headers["content-length"] == str(len(packed.body))
    assert gzip.decompress(packed.body) == plain.body
    assert json.loads(plain.body)["messages"] == [{"role": "user", "content": text}]


@pytest.mark.parametrize(
    "accepted, coding",
    [
        ("br, gzip;q=0.5", "gzip"),
        ("GZip", "gzip"),
        ("gzip;q=0", None),
        ("br, gzip; q=0.000", None),
        ("x-gzipped", None),
    ],
)
def test_an_answer_has_a_coding_that_the_client_accepts(client, store, accepted, coding):
    store.append("c2", [said("short " * 300)], expected_version=0)
    view = "/v1/conversations/c2/view?dialect=openai"
    answer = client.send("GET", view, headers={"accept-encoding": accepted})
    assert answer.headers.get("content-encoding") == coding


def test_a_wrong_method_learns_the_right_ones(client):
    answer = client.send("DELETE", f"{C1}/lease/", headers={})
    assert answer.status == 404
    answer = client.send("PATCH", f"{C1}/lease", headers={})
    assert (answer.status, answer.headers["allow"]) == (405, "DELETE, POST, PUT")


def test_a_wait_that_is_no_number_is_refused(client):
    answer = client.get(f"{C1}/follow?wait_s=nan")
    assert (answer.status, answer.json()["detail"]) == (400, "wait_s is nan; send a finite number")


def test_a_fork_of_a_fork_is_answered_again(http):
    for number in range(3):
        body = {"messages": [{"role": "user", "content": str(number)}]}
        http("append_events", conversation="c1", body=body)
    http("fork", conversation="c1", body={"id": "fork", "at": 3})
    once = {"conversation": "fork", "headers": {"idempotency-key": "k"}}
    made = http("fork", body={"at": 2}, **once)
    assert http("fork", body={"at": 2}, **once) == made
    assert made["version"] == 2
    assert http.refusal("fork", body={"at": 1}, **once).error == "IdempotencyConflict"


def test_a_conversation_that_is_erased_meanwhile_is_not_listed(http, store, monkeypatch):
    rows = store.conversations()
    erase(store, "c1", reason="asked to")
    monkeypatch.setattr(conversations, "rows_below", lambda histories, start: rows)
    assert http("list_conversations", below="c")["conversations"] == []


def test_a_list_has_no_row_of_an_erased_conversation_with_this_id(http, store, monkeypatch):
    rows = store.conversations()
    begin_again(store, "new words", "more new words")
    monkeypatch.setattr(conversations, "rows_below", lambda histories, start: rows)
    [listed] = http("list_conversations", below="c")["conversations"]
    assert listed == http("read_conversation", conversation="c1")
    assert listed["version"] != rows[0].version


@pytest.mark.parametrize("erased", ["a", "b"])
def test_an_append_to_several_writes_to_no_other_conversation_with_an_id(
    store, monkeypatch, erased
):
    histories = Histories(store)
    for name in "ab":
        histories.create(name, {"user": "ann"})
    prepare = events.prepare_append

    def prepare_later(*arguments):
        erase(store, erased, reason="asked to")
        histories.create(erased, {"user": "bob"}, replace_erased=True)
        return prepare(*arguments)

    monkeypatch.setattr(events, "prepare_append", prepare_later)
    event = {"kind": "message", "source": "user", "content": "of Ann"}
    appends = [{"conversation": name, "events": [event], "expected_version": 1} for name in "ab"]
    refusal = as_ann(histories).refusal("append_together", body={"appends": appends})
    assert refusal.status == 410
    assert [len(histories[name]) for name in "ab"] == [1, 1]


def test_records_of_a_view_have_a_limit_too(http, monkeypatch):
    monkeypatch.setattr(events, "_RECORDS_BYTES_MAX", 1)
    refusal = http.refusal("read_records", conversation="c1", format="openai-chat", sent="true")
    assert refusal.status == 422


@pytest.mark.parametrize(
    "text, problem",
    [
        ('[a]\nscope = "read"\ntoken = ""', "the token 'a' is empty"),
        ('[a]\nscope = "read"\ntoken = "read.more"', "begins with 'read.'"),
        (
            '[a]\nscope = "read"\ntoken = "t"\n[b]\nscope = "append"\ntoken = "t"',
            "'a' and 'b' have the same token",
        ),
    ],
)
def test_tokens_that_no_request_could_use_are_refused(tmp_path, text, problem):
    path = tmp_path / "tokens.toml"
    path.touch(0o600)
    path.write_text(text)
    with pytest.raises(InvalidOption, match=problem):
        Tokens.from_file(path)


def test_file_of_tokens_that_is_not_utf_8_is_refused(tmp_path):
    path = tmp_path / "tokens.toml"
    path.touch(0o600)
    path.write_bytes(b'[caf\xe9]\nscope = "read"\ntoken = "x"')
    with pytest.raises(InvalidOption, match="codec can't decode byte 0xe9"):
        Tokens.from_file(path)


@pytest.mark.parametrize("mebibytes", [5, 33])
def test_figures_and_open_calls_of_a_large_view(tmp_path, mebibytes):
    with foldlog.open(tmp_path / "store.db", compression="zlib") as histories:
        history = histories["large"]
        for _ in range(mebibytes):
            history.append(said("a line " * (MEBIBYTE // 7)))
        history.append(Action(tool="pay", call_id="c"))
        tokens = Tokens([("worker", TokenEntry(scope="append", token=TOKEN))])
        service = Service(histories, tokens, check=lambda: None)
        app = application(histories.store, gate=Gate("page"), service=service)
        client = Client(app, dict([BEARER]), waits=True)
        assert client.get("/v1/unfinished").json()["conversations"] == ["large"]
        stats = client.get("/v1/conversations/large/stats").json()
        assert (stats["errors"], stats["unmarked"], stats["findings"]) == (0, 0, [])


def as_ann(histories, scope="append"):
    """A client whose token sees the conversations of Ann."""
    entry = TokenEntry(scope=scope, token=TOKEN, where={"user": "ann"})
    service = Service(histories, Tokens([("ann", entry)]), check=lambda: None)
    return HttpClient(application(histories.store, gate=Gate("page"), service=service), TOKEN)


def seeing_all(histories):
    """A client whose token sees all conversations."""
    tokens = Tokens([("all", TokenEntry(scope="read", token=TOKEN))])
    service = Service(histories, tokens, check=lambda: None)
    return HttpClient(application(histories.store, gate=Gate("page"), service=service), TOKEN)


def seen_by(client):
    """The conversations that a client finds."""
    found = client("search_events", words="tea")
    return (
        [hit["conversation"] for hit in found["hits"]],
        client("read_store_stats")["conversations"],
        client("list_unfinished")["conversations"],
    )


def test_a_token_sees_no_more_of_a_store_that_is_read_only(tmp_path):
    url = f"sqlite:///{tmp_path}/store.db"
    with foldlog.open(url) as histories:
        for user in ("ann", "bob"):
            history = histories.create(user, {"user": user})
            history.append([{"role": "user", "content": "tea"}, Action(tool="t", call_id="c")])
    with foldlog.open(f"{url}?mode=ro") as histories:
        assert seen_by(as_ann(histories)) == (["ann"], 1, ["ann"])


def test_a_token_finds_no_conversation_that_it_may_not_read(tmp_path):
    with foldlog.open(tmp_path / "store.db") as histories:
        history = histories.create("both", {"user": ["ann", "bob"]})
        history.append([{"role": "user", "content": "tea"}, Action(tool="t", call_id="c")])
        ann = as_ann(histories)
        assert ann.refusal("read_conversation", conversation="both").status == 404
        assert seen_by(ann) == ([], 0, [])
        assert ann("list_conversations")["conversations"] == []


@pytest.fixture
def with_damage(tmp_path):
    """The URL of a store in which an event of Bob's is damaged, and Ann's come before and after."""
    path = tmp_path / "store.db"
    with foldlog.open(path) as histories:
        for user in ("ann", "bob"):
            history = histories.create(f"of-{user}", {"user": user})
            history.append([{"role": "user", "content": "tea"}, Action(tool="t", call_id="c")])
        histories["of-ann"].append({"role": "user", "content": "more"})
    execute(
        path,
        "UPDATE events SET body = x'00' WHERE id = 0"
        " AND conversation = (SELECT key FROM conversations WHERE id = 'of-bob')",
    )
    return f"sqlite:///{path}"


@pytest.mark.parametrize("mode", ["", "?mode=ro"])
def test_damage_of_another_user_changes_no_answer(with_damage, mode):
    with foldlog.open(f"{with_damage}{mode}") as histories:
        ann = as_ann(histories)
        assert seen_by(ann) == (["of-ann"], 1, ["of-ann"])
        listed = ann("list_conversations", below="of-")["conversations"]
        assert [conversation["id"] for conversation in listed] == ["of-ann"]
        followed = ann("follow_store")
        assert [entry["id"] for entry in followed["events"]] == [0, 1, 2, 3]
        assert ann("follow_store", after=followed["after"])["events"] == []


def listed_by(client, **query):
    """The conversations of a list, in the order of their ids."""
    listed = client("list_conversations", **query)["conversations"]
    return sorted(listed, key=lambda conversation: conversation["id"])


@pytest.mark.parametrize("mode", ["", "?mode=ro"])
def test_each_list_has_the_same_damaged_conversations(with_damage, mode):
    with foldlog.open(f"{with_damage}{mode}") as histories:
        client = seeing_all(histories)
        listed = listed_by(client, below="of-")
        assert listed == listed_by(client)
        assert [conversation["id"] for conversation in listed] == ["of-ann", "of-bob"]
        [of_bob] = listed_by(client, below="of-", where="user=bob")
        assert of_bob["attributes"] == {"user": "bob"}


def test_each_list_refuses_attributes_that_are_damaged_everywhere(with_damage):
    execute(with_damage.removeprefix("sqlite:///"), "UPDATE records SET body = x'00'")
    with foldlog.open(with_damage) as histories:
        client = seeing_all(histories)
        for query in ({}, {"below": "of-"}):
            refusal = client.refusal("list_conversations", **query)
            assert (refusal.status, refusal.error) == (500, "CorruptEvent")
            assert "'of-bob', event 0" in refusal.detail


def test_a_refusal_names_no_conversation_of_another_user(with_damage, monkeypatch):
    def read_damaged(histories, start):
        return histories["of-bob"].attributes()

    monkeypatch.setattr(conversations, "rows_below", read_damaged)
    with foldlog.open(with_damage) as histories:
        refusal = as_ann(histories).refusal("list_conversations", below="of-")
    assert refusal.status == 500
    assert "bob" not in str(refusal.document)


def test_a_damaged_conversation_of_another_user_is_a_missing_one(with_damage, caplog):
    with foldlog.open(with_damage) as histories:
        ann = as_ann(histories)
        for name in ("read_view", "read_conversation", "read_open_calls"):
            missing, damaged = (
                ann.refusal(name, conversation=conversation)
                for conversation in ("of-cid", "of-bob")
            )
            assert missing.status == damaged.status == 404
            assert str(damaged.document).replace("bob", "cid") == str(missing.document)
    assert "conversation 'of-bob', event 0: " in caplog.text


def test_a_missing_key_of_another_user_is_refused_without_a_name(tmp_path):
    url = f"sqlite:///{tmp_path}/store.db"
    for user, keys in (("ann", None), ("bob", KeyRing("ab" * 32))):
        with foldlog.open(url, keys=keys) as histories:
            histories.create(f"of-{user}", {"user": user})
    with foldlog.open(f"{url}?mode=ro") as histories:
        ann = as_ann(histories)
        assert ann("list_unfinished")["conversations"] == []
        for name in ("follow_store", "read_store_stats"):
            refusal = ann.refusal(name)
            assert (refusal.status, "bob" in str(refusal.document)) == (503, False)


def becomes_of_ann(histories):
    """Erase Bob's conversation "x", and begin one of Ann's with its id."""
    histories.erase("x", reason="Bob left")
    histories.create("x", {"user": "ann"}, replace_erased=True)
    histories["x"].append({"role": "user", "content": "of Ann"})


def of_bob():
    histories = Histories(open_store("memory:"))
    histories.create("x", {"user": "bob"}).append({"role": "user", "content": "of Bob"})
    return histories


def test_a_token_does_not_follow_the_erasure_of_another_user():
    with of_bob() as histories:
        becomes_of_ann(histories)
        followed = [event["event"]["kind"] for event in as_ann(histories)("follow_store")["events"]]
        assert followed == ["document_changes", "message"]
        assert "erased" in str(seeing_all(histories)("follow_store")["events"])


def test_a_token_follows_no_event_that_was_erased_before_its_conversation_began(monkeypatch):
    with of_bob() as histories:
        follow = histories.store.follow

        def follow_later(after, limit):
            recorded = [*follow(after, limit)]
            if recorded:
                monkeypatch.setattr(histories.store, "follow", follow)
                becomes_of_ann(histories)
            return iter(recorded)

        monkeypatch.setattr(histories.store, "follow", follow_later)
        followed = as_ann(histories)("follow_store")["events"]
        assert [event["event"]["kind"] for event in followed] == ["document_changes", "message"]
        assert "Bob" not in str(followed)


@pytest.fixture
def before_erasure(monkeypatch):
    """Runs a function once, before the service erases a conversation."""

    def run_first(work):
        erase_history = Histories.erase

        def erase_later(self, *arguments, **options):
            monkeypatch.setattr(Histories, "erase", erase_history)
            work(self)
            return self.erase(*arguments, **options)

        monkeypatch.setattr(Histories, "erase", erase_later)

    return run_first


def test_no_other_conversation_with_the_id_is_erased(before_erasure):
    with of_bob() as histories:
        histories["x"].set_attributes(user="ann")

        def become_of_bob(histories):
            histories.erase("x", reason="asked to")
            histories.create("x", {"user": "bob"}, replace_erased=True)

        before_erasure(become_of_bob)
        ann = as_ann(histories, "administer")
        assert ann.refusal("erase", conversation="x", body={"reason": "mine"}).status == 410
        assert histories["x"].attributes() == {"user": "bob"}


def test_a_conversation_with_a_new_event_is_erased(before_erasure):
    with of_bob() as histories:
        histories["x"].set_attributes(user="ann")
        before_erasure(lambda histories: histories["x"].append(said("more")))
        erased = as_ann(histories, "administer")("erase", conversation="x", body={"reason": "r"})
        assert erased["events"] == 4


def test_a_fork_names_no_conversation_of_another_user(store):
    histories = Histories(store)
    histories.create("of-bob", {"user": "bob"}).append({"role": "user", "content": "tea"})
    histories["of-bob"].fork(id="of-ann").set_attributes(user="ann")
    ann = as_ann(histories, "administer")
    body = {"events": [1], "reason": "asked to"}
    refusal = ann.refusal("redact", conversation="of-ann", body=body)
    assert (refusal.status, "bob" in str(refusal.document)) == (422, False)
    histories["of-bob"].set_attributes(user="ann")
    assert "'of-bob'" in ann.refusal("redact", conversation="of-ann", body=body).detail


def test_a_fork_is_not_answered_again_to_a_token_that_may_not_see_it_now(store):
    histories = Histories(store)
    histories.create("of-ann", {"user": "ann"})
    ann = as_ann(histories)
    request = {"conversation": "of-ann", "body": {}, "headers": {"idempotency-key": "k"}}
    fork = ann("fork", **request)
    assert ann("fork", **request) == fork
    histories[fork["id"]].set_attributes(user="bob")
    assert ann.refusal("fork", **request).status == 404


def test_a_token_gets_no_page_of_a_token_whose_number_is_equal(store, ending):
    histories = Histories(store)
    tokens = []
    for tenant in (1, True):
        histories.create(f"tenant-{tenant}", {"tenant": tenant})
        entry = TokenEntry(scope="read", token=f"token-{tenant}", where={"tenant": tenant})
        tokens.append((f"tenant-{tenant}", entry))
    service = Service(histories, Tokens(tokens), check=lambda: None, is_ending=ending.is_set)
    app = application(store, gate=Gate("page"), service=service)
    first = []
    second = []

    async def receive():
        await asyncio.Event().wait()

    async def read():
        follow = partial(ask, app, "GET", "/v1/follow", ACCEPTS_EVENTS, receive=receive)
        async with running(app):
            readers = []
            for tenant, sent in ((1, first), (True, second)):
                bearer = ("authorization", f"Bearer token-{tenant}")
                readers.append(asyncio.create_task(follow(sent=sent, bearer=bearer)))
                await until_in_loop(lambda sent=sent: b"tenant" in bytes_of(sent))
            ending.set()
            await asyncio.gather(*readers)

    asyncio.run(read())
    assert (b"tenant-1" in bytes_of(first), b"tenant-True" in bytes_of(first)) == (True, False)
    assert (b"tenant-1" in bytes_of(second), b"tenant-True" in bytes_of(second)) == (False, True)


def test_a_read_token_reads_no_other_conversation_with_this_id(app, store, http):
    made = http("create_read_token", conversation="c1", body={})
    page = HttpClient(app, made["token"])
    assert len(page("read_events", conversation="c1")["events"]) == 1
    erase(store, "c1", reason="asked to")
    assert page.refusal("read_events", conversation="c1").status == 410
    Histories(store).create("c1", replace_erased=True)
    for name in ("read_events", "read_conversation", "follow_conversation"):
        assert page.refusal(name, conversation="c1").status == 401


def test_an_attribute_of_another_type_is_another_attribute(store):
    entry = TokenEntry(scope="read", token=TOKEN, where={"tenant": 1})
    histories = Histories(store)
    service = Service(histories, Tokens([("one", entry)]), check=lambda: None)
    client = HttpClient(application(store, gate=Gate("page"), service=service), TOKEN)
    for tenant in (1, True, "1"):
        histories.create(f"tenant-{tenant!r}", {"tenant": tenant})
    for below in ("", "tenant-"):
        listed = client("list_conversations", below=below)["conversations"]
        assert [conversation["id"] for conversation in listed] == ["tenant-1"]


def test_a_list_has_the_attributes_that_a_filter_needs(tmp_path, monkeypatch):
    with foldlog.open(tmp_path / "store.db") as histories:
        for number in range(3):
            histories.create(f"{number}", {"user": "ann"}).append(
                {"role": "user", "content": "tea"}
            )
        ann = as_ann(histories)
        reads = []
        read = History.attributes
        monkeypatch.setattr(History, "attributes", lambda self: reads.append(self) or read(self))
        assert seen_by(ann) == (["2", "1", "0"], 3, [])
        assert reads == []
