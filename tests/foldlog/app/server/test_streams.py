"""Streams of conversations over HTTP, beyond what the public suite of the protocol tests
(``scripts/test --streams``).
"""

import asyncio
import json

import pytest

import foldlog
from foldlog._app.server.access import Gate
from foldlog._app.server.server_sent_events import StreamEnd
from foldlog._app.server.service import streams as streams_over_http, tokens as service_tokens
from foldlog._app.server.service.service import Service
from foldlog._app.server.service.stream_sources import StreamSource
from foldlog._app.server.service.tokens import TokenEntry, Tokens
from foldlog.eventstore.log import streams
from foldlog.eventstore.maintenance.erase import erase
from foldlog.types import EndDelta, TextDelta
from tests.privacy import redacted
from tests.waiting import until_in_loop
from tests.web_client import Client, application, running

TOKEN = "a token of enough length"
READER = "a token that reads"
OF_ANN = "a token for the conversations of ann"
JSON = {"content-type": "application/json"}
TEXT = {"content-type": "text/plain"}
REPLY = "/v1/stream/c1/reply"
OTHER = "/v1/stream/c1/drawing"
"""A stream that is no reply may have any content."""
SITE = "https://chat.example"


@pytest.fixture
def histories(tmp_path):
    with foldlog.open(tmp_path / "s.db") as histories:
        histories["c1"].append({"role": "user", "content": "what is a kite?"})
        histories.create("of ann", {"user": "ann"})
        yield histories


@pytest.fixture
def app(histories):
    tokens = Tokens(
        [
            ("worker", TokenEntry(scope="append", token=TOKEN)),
            ("reader", TokenEntry(scope="read", token=READER)),
            ("ann", TokenEntry(scope="append", token=OF_ANN, where={"user": "ann"})),
        ]
    )
    service = Service(histories, tokens, check=lambda: None, origins=[SITE])
    return application(histories.store, gate=Gate("page"), service=service)


@pytest.fixture
def client(app):
    return with_token(app, TOKEN)


def with_token(app, token):
    return Client(app, {"authorization": f"Bearer {token}"}, waits=True)


def put(client, path=REPLY, headers=JSON, body=b""):
    return client.send("PUT", path, headers=headers, body=body)


def post(client, body, path=REPLY, headers=JSON):
    return client.send("POST", path, headers=headers, body=body)


def deltas(*texts):
    return json.dumps([{"type": "text", "text": text} for text in texts]).encode()


def numbered(name):
    """Return the headers of the first body that a producer numbers."""
    return {**JSON, "producer-id": name, "producer-epoch": "0", "producer-seq": "0"}


def take_lease(client):
    """Take the lease, and return the header of its holder."""
    path = "/v1/conversations/c1/lease"
    lease = client.send("POST", path, headers=JSON, body=b'{"worker": "w"}').json()
    return {"foldlog-lease": lease["token"]}


def append_reply(client, body, **headers):
    headers = {**JSON, **{name.replace("_", "-"): value for name, value in headers.items()}}
    path = "/v1/conversations/c1/replies"
    return client.send("POST", path, headers=headers, body=json.dumps(body).encode())


def test_what_the_library_writes_is_read_over_http_and_the_other_way(client, histories):
    history = histories["c1"]
    reply = history.stream_reply()
    reply.feed("A ")
    answer = client.get(REPLY)
    assert answer.json() == [{"type": "text", "text": "A "}]
    held = {**JSON, **take_lease(client)}
    assert post(client, deltas("toy"), headers=held).status == 204
    assert client.get(REPLY, {"offset": answer.headers["stream-next-offset"]}).json() == [
        {"type": "text", "text": "toy"}
    ]
    assert history.unfinished_reply().text == "A toy"
    with pytest.raises(foldlog.errors.StreamConflict, match="another writer appended"):
        reply.feed("!")
    parts = history.follow_reply(answer.headers["stream-next-offset"])
    assert next(parts).delta == TextDelta("toy")
    post(client, b"", headers={**held, "stream-closed": "true"})
    assert next(parts).delta == EndDelta()


def test_a_reply_and_the_end_of_its_stream_are_one_request(client, histories):
    put(client)
    post(client, deltas("A ", "toy"))
    body = {"reply": {"role": "assistant", "content": "A toy"}, "stream": "reply"}
    answer = append_reply(client, body, idempotency_key="step-1")
    assert (answer.status, answer.json()["version"]) == (201, 2)
    assert client.get(REPLY).headers["stream-closed"] == "true"
    late = post(client, deltas("!"))
    assert (late.status, late.headers["stream-closed"]) == (409, "true")
    assert append_reply(client, body, idempotency_key="step-1").json() == answer.json()
    assert append_reply(client, body, idempotency_key="step-2").status == 404
    assert histories["c1"].version() == 2


def test_the_server_makes_the_reply_of_the_deltas(client, histories):
    half = {"type": "call", "at": 0, "id": "a", "tool": "look", "arguments": '{"at'}
    for cut, is_whole in ((True, False), (False, False), (False, True)):
        put(client)
        post(client, deltas("A ", "toy"))
        post(client, json.dumps([half]).encode())
        if is_whole:
            post(client, json.dumps([{**half, "arguments": '":"sky"}'}]).encode())
        append_reply(client, {"stream": "reply", "cut": cut})
    *messages, action = histories["c1"].events(1)
    cut = ("A toy", {"cut": True})
    assert [(message.content, message.meta) for message in messages] == [cut, cut]
    assert (action.thought, action.arguments) == ("A toy", {"at": "sky"})
    assert append_reply(client, {}).status == 422


def test_a_stream_of_another_producer_is_refused(client):
    ours, others = ({**JSON, "producer-id": name} for name in ("ours", "others"))
    assert [put(client, headers=headers).status for headers in (ours, ours, others)] == [
        201,
        200,
        409,
    ]
    assert put(client).status == 200  # it asks for no producer


def test_a_body_is_not_lost_in_the_reply_of_another_writer(client, histories):
    ours = {**JSON, "producer-id": "ours"}
    assert put(client, headers=ours, body=deltas("A")).status == 201
    assert put(client, headers=ours, body=deltas("A")).status == 200  # repeated
    assert put(client, body=deltas("B")).status == 409
    assert put(client, body=b"[]").status == 200
    client.send("DELETE", REPLY, headers=ours)
    histories["c1"].stream_reply().feed("A")
    assert put(client, body=deltas("B")).status == 409
    assert [delta["text"] for delta in client.get(REPLY).json()] == ["A"]


def test_a_lease_fences_a_stream(client, histories):
    held = take_lease(client)
    assert put(client, headers={**JSON, **held}).status == 201
    assert post(client, deltas("A"), headers={**JSON, **held}).status == 204
    client.send("DELETE", "/v1/conversations/c1/lease", headers=held)
    with histories["c1"].lease():
        refused = post(client, deltas("B"), headers={**JSON, **held})
        assert (refused.status, refused.json()["error"]) == (412, "LeaseTaken")
    assert client.get(REPLY).json() == [{"type": "text", "text": "A"}]


def test_a_reply_has_deltas_and_nothing_else(client, histories):
    untyped = put(client, headers={})
    assert (untyped.status, "Content-Type: application/json" in untyped.json()["detail"]) == (
        400,
        True,
    )
    assert put(client, headers=TEXT).status == 400
    assert put(client, body=b'["a"]').status == 400
    put(client)
    wrong = (b'[{"type": "txt", "text": "x"}]', b"[7]", b'[{"type": "text"}]', b'{"type": "end"}')
    for body in (*wrong, deltas("A").replace(b"]", b", 7]")):
        answer = post(client, body)
        assert (answer.status, "no delta of a reply" in answer.json()["detail"]) == (400, True)
    assert client.get(REPLY).json() == []
    assert post(client, deltas("A ")[1:-1]).status == 204
    assert histories["c1"].unfinished_reply().text == "A "


def test_while_a_worker_has_the_lease_nobody_else_writes_its_reply(client, histories):
    worker = histories["c1"]
    with worker.lease(), worker.stream_reply() as reply:
        reply.feed("A ")
        answers = [
            put(client),
            post(client, deltas("B")),
            post(client, b"", headers={"stream-closed": "true"}),
            append_reply(client, {"stream": "reply", "cut": True}),
            append_reply(
                client, {"stream": "reply", "reply": {"role": "assistant", "content": "B"}}
            ),
            client.send("DELETE", REPLY),
        ]
        refusals = {(answer.status, answer.json()["error"]) for answer in answers}
        assert refusals == {(423, "LeaseTaken")}
        assert put(client, OTHER).status == 201  # only the reply is the worker's
        reply.feed("toy")
        reply.end()
    assert worker.view()[-1].content == "A toy"


def test_a_second_producer_needs_the_lease_to_go_on_with_a_reply(client):
    ours, others = numbered("ours"), numbered("others")
    assert put(client, headers={**JSON, "producer-id": "ours"}).status == 201
    assert post(client, deltas("A "), headers=ours).status == 200
    for headers in (others, JSON):
        refused = post(client, deltas("B"), headers=headers)
        detail = refused.json()["detail"]
        assert (refused.status, "take the lease" in detail, "ours" in detail) == (409, True, False)
    held = take_lease(client)
    assert post(client, deltas("toy"), headers={**others, **held}).status == 200
    assert [delta["text"] for delta in client.get(REPLY).json()] == ["A ", "toy"]


def test_the_reply_of_a_worker_without_a_lease_is_its_own(client, histories):
    reply = histories["c1"].stream_reply()
    reply.feed("A ")
    answers = [
        post(client, deltas("B")),
        post(client, deltas("B"), headers=numbered("others")),
        post(client, b"", headers={"stream-closed": "true"}),
        client.send("DELETE", REPLY),
        client.send("DELETE", REPLY, headers={"producer-id": "others"}),
    ]
    assert [answer.status for answer in answers] == [409] * 5
    reply.feed("toy")
    assert [recorded.event.content for recorded in reply.end()] == ["A toy"]


ENDS = ({"cut": True}, {}, {"reply": {"role": "assistant", "content": "B"}})


@pytest.mark.parametrize("body", ENDS)
def test_nobody_else_ends_the_reply_of_a_worker_without_a_lease(client, histories, body):
    reply = histories["c1"].stream_reply()
    reply.feed("A ")
    for headers in ({}, {"producer_id": "others"}):
        assert append_reply(client, {"stream": "reply", **body}, **headers).status == 409
    reply.feed("toy")
    assert [recorded.event.content for recorded in reply.end()] == ["A toy"]


@pytest.mark.parametrize("body", ENDS)
def test_a_producer_ends_its_own_reply(client, histories, body):
    put(client, headers=numbered("ours"))
    post(client, deltas("A"), headers=numbered("ours"))
    body = {"stream": "reply", **body}
    for headers in ({}, {"producer_id": "others"}):
        assert append_reply(client, body, **headers).status == 409
    assert append_reply(client, body, producer_id="ours").status == 201
    assert histories["c1"].version() == 2


def test_the_holder_of_the_lease_ends_what_another_program_left(client, histories):
    histories["c1"].stream_reply().feed("A")
    held = take_lease(client)
    assert append_reply(client, {"stream": "reply", "cut": True}, **held).status == 201


def test_a_repeated_end_leaves_the_next_reply_open(client, histories):
    body = {"stream": "reply"}
    for name in ("first", "second"):
        put(client, headers=numbered(name))
        post(client, deltas(name), headers=numbered(name))
        answer = append_reply(client, body, producer_id="first", idempotency_key="k")
        assert (answer.status, answer.json()["version"]) == (201, 2)
    assert histories["c1"].unfinished_reply().text == "second"


def test_no_name_makes_a_producer_of_the_worker(client, histories):
    worker = histories["c1"]
    worker.stream_reply().feed("A ")
    state = json.loads(worker.unfinished_reply()._stream.state)
    assert state
    for name in map(str, state.values()):
        assert post(client, deltas("B"), headers=numbered(name)).status == 409
        assert client.send("DELETE", REPLY, headers={"producer-id": name}).status == 409
    assert worker.unfinished_reply().text == "A "


def test_the_first_producer_writes_a_reply_that_was_begun_without_one(client):
    put(client)
    assert post(client, deltas("A"), headers=numbered("ours")).status == 200
    for headers in (numbered("others"), JSON):
        assert post(client, deltas("B"), headers=headers).status == 409
    assert [delta["text"] for delta in client.get(REPLY).json()] == ["A"]


def test_a_producer_does_not_go_on_with_a_reply_of_no_producer(client):
    put(client)
    assert post(client, deltas("A")).status == 204
    refused = post(client, deltas("B"), headers=numbered("others"))
    assert (refused.status, "without a Producer-Id" in refused.json()["detail"]) == (409, True)
    assert post(client, deltas("C")).status == 204
    assert client.send("DELETE", REPLY).status == 204


def test_only_its_producer_deletes_an_open_reply(client):
    put(client, headers=numbered("ours"))
    for headers in ({}, {"producer-id": "others"}):
        assert client.send("DELETE", REPLY, headers=headers).status == 409
    assert client.send("DELETE", REPLY, headers={"producer-id": "ours"}).status == 204


def test_a_producer_with_the_lease_keeps_what_the_worker_noted(client, histories):
    worker = histories["c1"]
    reply = worker.stream_reply(view_version=1)
    reply.feed("A ")
    held = take_lease(client)
    assert post(client, deltas("toy"), headers={**numbered("w"), **held}).status == 200
    unfinished = histories["c1"].unfinished_reply()
    assert unfinished._with_view({}) == {"view_version": 1}


def test_the_events_of_a_conversation_are_a_stream(client, histories):
    answer = client.get("/v1/stream/c1", {"offset": "-1"})
    assert [entry["event"]["content"] for entry in answer.json()] == ["what is a kite?"]
    histories["c1"].append({"role": "user", "content": "well?"})
    more = client.get("/v1/stream/c1", {"offset": answer.headers["stream-next-offset"]})
    assert [entry["id"] for entry in more.json()] == [1]
    assert more.headers["stream-up-to-date"] == "true"
    assert client.send("HEAD", "/v1/stream/c1").headers["stream-next-offset"].endswith("2")
    for method in ("PUT", "POST", "DELETE"):
        assert client.send(method, "/v1/stream/c1").status == 405


def test_wrong_requests_of_streams_are_refused(client, app):
    assert client.get(REPLY).json()["error"] == "StreamNotFound"
    assert put(client, "/v1/stream/unknown/reply").status == 404
    assert client.get("/v1/stream/c1/reply/more").status == 404
    forked = put(client, headers={**JSON, "stream-forked-from": REPLY})
    assert (forked.status, "after an erasure" in forked.json()["detail"]) == (405, True)
    for unreadable in (b"{", b'["\xff"]', 100_000 * b"[" + 100_000 * b"]"):
        assert put(client, body=unreadable).status == 400
    without_zone = put(client, headers={**JSON, "stream-expires-at": "2099-01-01T00:00:00"})
    assert (without_zone.status, "without a zone" in without_zone.json()["detail"]) == (400, True)
    without_time = put(client, headers={**JSON, "stream-expires-at": "2099-01-01"})
    assert "send for example 2026-03-01T12:00:00Z" in without_time.json()["detail"]
    put(client)
    for offset in ("7", "1_2_3", f"{'9' * 20}_0"):
        assert client.get(REPLY, {"offset": offset}).status == 400
    assert client.get(REPLY, {"offset": f"{2**63}_0"}).status == 400
    assert client.get(REPLY, {"offset": f"{5:019}_{0:019}"}).status == 410
    number = client.get(REPLY).headers["stream-next-offset"].partition("_")[0]
    behind = client.get(REPLY, {"offset": f"{number}_{1:019}"})
    assert (behind.status, "ends at 0" in behind.json()["detail"]) == (400, True)
    assert client.get(REPLY, {"offset": "-1", "live": "always"}).status == 400
    assert post(client, b"x", headers=TEXT).json()["detail"] == (
        "stream 'reply' has the type 'application/json', not 'text/plain'"
    )
    assert post(client, b"[" + b"1," * 5_000_000 + b"1]").status == 413
    assert with_token(app, "unknown").get(REPLY).status == 401
    assert put(with_token(app, READER), "/v1/stream/c1/other").status == 403


@pytest.mark.parametrize("twice", ["offset=-1", "live=long-poll", "cursor=1"])
def test_a_parameter_that_comes_twice_is_refused(client, twice):
    put(client, body=deltas("a"))
    path = f"{REPLY}?offset=-1&live=long-poll&cursor=1"
    assert client.get(f"{path}&mine=1&mine=2").status == 200
    answer = client.get(f"{path}&{twice}")
    name = twice.partition("=")[0]
    problem = f"the parameter {name!r} comes more than once; send it once"
    assert (answer.status, answer.json()["detail"]) == (400, problem)


def test_a_later_stream_of_the_same_name_has_other_offsets(client):
    put(client, OTHER, TEXT, b"one")
    first = client.get(OTHER).headers["stream-next-offset"]
    assert client.send("DELETE", OTHER).status == 204
    put(client, OTHER, TEXT, b"two")
    assert client.get(OTHER).text == "two"
    assert client.get(OTHER, {"offset": first}).status == 410


def test_a_reader_reaches_the_end_of_a_reply_when_the_next_one_has_begun(client):
    put(client)
    post(client, deltas("a"))
    place = client.get(REPLY).headers["stream-next-offset"]
    post(client, deltas("b"))
    assert post(client, b"", headers={"stream-closed": "true"}).status == 204
    put(client)
    rest = client.get(REPLY, {"offset": place})
    assert (rest.json(), rest.headers["stream-closed"]) == ([{"type": "text", "text": "b"}], "true")
    assert client.get(REPLY).json() == []
    other = client.send("PUT", "/v1/stream/c1/other", headers=JSON)
    assert other.status == 201
    assert client.get("/v1/stream/c1/other", {"offset": place}).status == 410


def test_an_offset_may_be_inside_a_body_of_json(client):
    headers = {"content-type": "Application/JSON; charset=utf-8"}
    put(client, OTHER, headers)
    post(client, b'["a", "b", "c"]', OTHER, headers)
    number = client.get(OTHER).headers["stream-next-offset"].partition("_")[0]
    assert client.get(OTHER, {"offset": f"{number}_{1:019}"}).json() == ["b", "c"]


def test_a_large_body_is_read_page_by_page(client):
    text = "".join(f"{number:7}" for number in range(300_000))
    put(client, OTHER, TEXT, text.encode())
    offset = "-1"
    parts = []
    while not parts or parts[-1]:
        answer = client.get(OTHER, {"offset": offset})
        offset = answer.headers["stream-next-offset"]
        parts.append(answer.text)
    assert "".join(parts) == text
    assert len(parts) > 2


def test_no_page_of_a_text_ends_inside_a_character(app, client, histories):
    text = "x" + "é" * 700_000
    put(client, OTHER, TEXT | {"stream-closed": "true"}, text.encode())
    body = client.get(f"{OTHER}?offset=-1&live=sse").body
    pages = [page.partition(b"event: control")[0] for page in body.split(b"event: data\n")[1:]]
    assert len(pages) == 2
    read = [page.replace(b"data:", b"").strip().decode() for page in pages]
    assert "".join(read) == text


def test_bytes_that_are_no_text_are_cut_anywhere(client):
    body = b"\x80" * 300_000
    assert put(client, OTHER, TEXT, body).status == 201
    assert client.get(OTHER).body == body


@pytest.mark.parametrize("body", [{}, {"stream": "reply", "reply": {"content": "all"}}])
def test_a_reply_that_is_cut_has_a_stream_and_no_other_text(client, histories, body):
    put(client, body=deltas("Paid"))
    assert append_reply(client, {"cut": True, **body}).status == 422
    assert histories["c1"].unfinished_reply().text == "Paid"


def test_a_cut_reply_that_is_sent_again_with_its_key_is_recorded_once(client, histories):
    put(client, headers=JSON | {"producer-id": "p"}, body=deltas("Paid"))
    headers = {"producer-id": "p", "idempotency-key": "k"}
    first, again = (
        append_reply(client, {"stream": "reply", "cut": True}, **headers) for _ in range(2)
    )
    assert (first.status, again.status) == (201, 201)
    assert first.body == again.body
    assert histories["c1"].version() == 2


@pytest.mark.parametrize(
    "body, headers, status",
    [
        ({}, {"if_match": '"1"'}, 409),
        ({"view_version": 99}, {}, 422),
        ({}, {"idempotency_key": "of others"}, 409),
    ],
)
@pytest.mark.parametrize("cut", [True, False])
def test_a_refused_reply_of_a_stream_stays_in_it(client, histories, body, headers, status, cut):
    """Only the stream has the text."""
    history = histories["c1"]
    put(client, body=deltas("Paid"))
    history.append({"role": "user", "content": "paid?"}, idempotency_key="of others")
    ending = {"stream": "reply", "cut": cut}
    assert append_reply(client, {**ending, **body}, **headers).status == status
    assert history.unfinished_reply().text == "Paid"
    assert append_reply(client, ending).status == 201
    (*_, reply) = history.events()
    assert (reply.content, reply.meta.get("cut", False)) == ("Paid", cut)
    assert history.unfinished_reply() is None


def test_a_filter_hides_the_streams_of_other_conversations(app, client):
    put(client)
    put(client, "/v1/stream/of%20ann/notes", TEXT, b"for ann")
    ann = with_token(app, OF_ANN)
    assert ann.get("/v1/stream/of%20ann/notes").text == "for ann"
    for path in (REPLY, "/v1/stream/c1", "/v1/stream/nowhere/reply"):
        assert (ann.get(path).status, ann.get(path).json()["error"]) == (
            404,
            "ConversationNotFound",
        )
    assert put(ann).status == 404


def test_a_read_token_reads_one_conversation_for_some_minutes(app, client, monkeypatch):
    put(client)
    path = "/v1/conversations/c1/read-tokens"
    made = client.send("POST", path, headers=JSON, body=b'{"seconds": 60}').json()
    page = with_token(app, made["token"])
    assert page.get(REPLY).status == page.get("/v1/stream/c1").status == 200
    assert page.get("/v1/conversations/c1/events").status == 200
    assert post(page, deltas("!")).status == 403
    refused = ("/v1/stream/of%20ann", "/v1/conversations/of%20ann/events", "/v1/conversations")
    assert [page.get(other).status for other in refused] == [403] * 3
    assert page.send("POST", path, headers=JSON, body=b"{}").status == 403
    name, _, signature = made["token"].rpartition(".")
    other = "B" if signature.startswith("A") else "A"
    assert with_token(app, f"{name}.{other}{signature[1:]}").get(REPLY).status == 401
    assert with_token(app, "read.x").get(REPLY).status == 401
    basic = Client(app, {"authorization": f"Basic {made['token']}"}, waits=True)
    assert basic.get(REPLY).status == 401
    monkeypatch.setattr(service_tokens.time, "time", lambda: made["expires_at"])
    assert page.get(REPLY).status == 401


def test_pages_of_allowed_sites_may_read(app, client):
    asked = Client(app, waits=True).send("OPTIONS", REPLY, headers={"origin": SITE})
    assert (asked.status, asked.headers["access-control-allow-origin"]) == (204, SITE)
    assert "authorization" in asked.headers["access-control-allow-headers"]
    assert (
        client.get(REPLY, headers={"origin": SITE}).headers["access-control-allow-origin"] == SITE
    )
    other = client.get(REPLY, headers={"origin": "https://other.example"})
    assert "access-control-allow-origin" not in other.headers
    state = REPLY.replace("/stream/", "/conversations/").removesuffix("/reply")
    for path in (state, f"{state}/events", f"{state}/nothing"):
        asked = client.send("OPTIONS", path, headers={"origin": SITE})
        assert (asked.status, asked.headers["access-control-allow-origin"]) == (204, SITE)
        assert "PATCH" in asked.headers["access-control-allow-methods"]
        answer = client.get(path, headers={"origin": SITE})
        assert answer.headers["access-control-allow-origin"] == SITE
        other = client.get(path, headers={"origin": "https://other.example"})
        assert "access-control-allow-origin" not in other.headers


# -- live


@pytest.mark.parametrize(
    "path",
    [
        "/v1/conversations/c1/follow?after=0",
        f"{REPLY}?live=sse&offset=now",
        "/v1/stream/c1?live=sse&offset=now",
    ],
)
def test_a_stream_ends_with_the_token_of_its_reader(app, client, histories, monkeypatch, path):
    put(client)
    tokens = "/v1/conversations/c1/read-tokens"
    made = client.send("POST", tokens, headers=JSON, body=b'{"seconds": 60}').json()
    page = with_token(app, made["token"])

    async def follow():
        async with running(app):
            headers = {"accept": "text/event-stream"}
            reading = asyncio.create_task(page.ask("GET", path, headers=headers))
            changes = changes_of(app)
            await until_in_loop(lambda: changes._stream_followers or changes._followers)
            monkeypatch.setattr(service_tokens.time, "time", lambda: made["expires_at"])
            for _ in range(1_000):
                if reading.done():
                    return reading.result().text
                await asyncio.to_thread(histories["c1"].append, {"role": "user", "content": "a"})
                await asyncio.sleep(0.01)
        raise AssertionError("the stream goes on")

    events = asyncio.run(follow())
    assert ("the read token has ended" in events) == ("/follow" in path)


async def events_of(app, path, write):
    """Read a stream of server-sent events while ``write`` writes, and return its events."""
    client = with_token(app, TOKEN)
    async with running(app):
        reading = asyncio.create_task(client.ask("GET", path))
        await until_in_loop(lambda: changes_of(app)._stream_followers)
        await asyncio.to_thread(write)
        answer = await reading
    events = answer.text.removesuffix("\n\n").split("\n\n")
    return [event.partition("\n")[::2] for event in events]


def test_a_live_reader_gets_what_another_store_object_writes(app, histories):
    with foldlog.open(histories.store.path) as others:
        reply = others["c1"].stream_reply()
        reply.feed("Once ")

        def go_on():
            for text in ("upon ", "a ", "time"):
                reply.feed(text)
            reply.end()

        found = asyncio.run(events_of(app, f"{REPLY}?offset=-1&live=sse", go_on))
    data = [json.loads(text.removeprefix("data:")) for name, text in found if name == "event: data"]
    assert "".join(delta["text"] for batch in data for delta in batch) == "Once upon a time"
    control = json.loads(found[-1][1].removeprefix("data:"))
    assert (control["streamClosed"], control["upToDate"]) == (True, True)


def test_readers_at_one_place_share_a_page(app, histories, monkeypatch):
    reads = []
    page = StreamSource.page

    def counted_page(self, place):
        reads.append(place)
        return page(self, place)

    monkeypatch.setattr(StreamSource, "page", counted_page)
    list(histories["c1"].stream_reply(["A ", "toy"]))

    async def read_by_ten():
        client = with_token(app, TOKEN)
        async with running(app):
            path = f"{REPLY}?offset=-1&live=sse"
            return await asyncio.gather(*[client.ask("GET", path) for _ in range(10)])

    answers = asyncio.run(read_by_ten())
    assert len({answer.body for answer in answers}) == len(reads) == 1


def test_readers_of_streams_with_equal_numbers_share_no_page(app, client, histories, monkeypatch):
    database = histories.store.database
    now = database.now()
    monkeypatch.setattr(database, "now", lambda: now)
    monkeypatch.setattr(streams.os, "urandom", bytes)  # zeros
    ended = {**TEXT, "stream-closed": "true"}
    of_ann = "/v1/stream/of%20ann/drawing"
    made = put(client, OTHER, ended, b"a kite")
    made_for_ann = put(client, of_ann, ended, b"a bird")
    assert made.headers["stream-next-offset"] == made_for_ann.headers["stream-next-offset"]
    live = {"offset": "-1", "live": "sse"}
    assert "a kite" in client.get(OTHER, live).text
    assert "a bird" in client.get(of_ann, live).text


def test_an_erasure_ends_a_live_reader(app, histories):
    histories["c1"].stream_reply().feed("secret")

    def write():
        erase(histories.store, "c1", reason="asked for")

    found = asyncio.run(events_of(app, f"{REPLY}?offset=-1&live=sse", write))
    assert "streamClosed" not in found[-1][1]


def test_an_erased_conversation_has_no_streams(client, histories):
    histories["c1"].stream_reply().feed("secret")
    erase(histories.store, "c1", reason="asked for")
    assert client.get(REPLY).status == put(client).status == 410


def test_a_poll_waits_for_the_next_chunk(app, histories):
    reply = histories["c1"].stream_reply()
    reply.feed("A ")

    async def poll():
        client = with_token(app, TOKEN)
        async with running(app):
            polling = asyncio.create_task(client.ask("GET", f"{REPLY}?offset=now&live=long-poll"))
            await until_in_loop(lambda: changes_of(app)._stream_followers)
            await asyncio.to_thread(reply.feed, "toy")
            return await polling

    assert asyncio.run(poll()).json() == [{"type": "text", "text": "toy"}]


def changes_of(app):
    return app._service.changes


def test_a_chunk_wakes_no_reader_of_events(app, histories, monkeypatch):
    changes = changes_of(app)
    reply = histories["c1"].stream_reply()
    reply.feed("A ")
    key = histories["c1"]._conversation_key()
    rounds = asyncio.Queue()
    wake = changes._wake

    def wake_and_note(changed):
        wake(changed)
        rounds.put_nowait(changed)

    monkeypatch.setattr(changes, "_wake", wake_and_note)

    async def follow():
        async with running(app):
            with changes.following({key}) as events:
                await rounds.get()  # the first round wakes every reader
                assert await events.wait(60)
                stream = histories.store.query("c1", lambda reading: reading.streams()[0])
                end = StreamEnd(stream.end, False)
                with changes.following_stream(key, stream.number, end) as chunks:
                    assert await chunks.wait(60)  # the first wait returns at once
                    await asyncio.to_thread(reply.feed, "toy")
                    woken = await chunks.wait(60)
                    while not rounds.empty():
                        rounds.get_nowait()
                    await rounds.get()  # a round that began after the chunk
                    return woken, await events.wait(0)

    assert asyncio.run(follow()) == (True, False)


def test_a_redacted_event_is_in_no_page_of_a_later_reader(app, histories, monkeypatch):
    """A redaction of an event that a fork shares does not change the version of the fork."""
    monkeypatch.setattr(streams_over_http, "_SSE_S", 0)
    histories["c1"].append({"role": "user", "content": "the code is 7411"})
    fork = histories["c1"].fork(2)

    async def read():
        path = f"/v1/stream/{fork.id}?offset=-1&live=sse"
        return (await with_token(app, TOKEN).ask("GET", path)).text

    async def read_redact_and_read():
        async with running(app):
            before = await read()
            await asyncio.to_thread(redacted, histories.store, "c1", 1)
            return before, await read()

    before, after = asyncio.run(read_redact_and_read())
    assert "7411" in before
    assert "7411" not in after


def test_a_redaction_changes_the_tag_of_a_page(client, histories):
    histories["c1"].append({"role": "user", "content": "the code is 7411"})
    fork = f"/v1/stream/{histories['c1'].fork(2).id}"
    before = client.get(fork)
    known = {"if-none-match": before.headers["etag"]}
    assert client.send("GET", fork, headers=known).status == 304
    redacted(histories.store, "c1", 1)
    after = client.send("GET", fork, headers=known)
    assert (after.status, "7411" in before.text, "7411" in after.text) == (200, True, False)
