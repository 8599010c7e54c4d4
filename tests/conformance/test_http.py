"""The HTTP service keeps the promises of the store, on each database."""

import asyncio

import pytest

from foldlog import Histories
from foldlog._web.service.service import Service
from foldlog._web.service.tokens import TokenEntry, Tokens
from foldlog.eventstore import Store
from tests.http_client import DOCUMENT, HttpClient, Refusal
from tests.web_client import application

CALL = {"id": "k1", "type": "function", "function": {"name": "pay", "arguments": '{"to": "Ann"}'}}
REPLY = {"role": "assistant", "content": None, "tool_calls": [CALL]}
EVENT = {"kind": "message", "source": "user", "content": "hi"}


def served(store: Store):
    tokens = Tokens(
        [
            ("reader", TokenEntry(scope="read", token="reader")),
            ("worker", TokenEntry(scope="append", token="worker")),
            ("ann", TokenEntry(scope="append", token="ann", where={"user": "ann"})),
            ("administrator", TokenEntry(scope="administer", token="administrator")),
        ]
    )
    service = Service(Histories(store), tokens, check=lambda: None)
    app = application(store, token="page", service=service)
    return lambda token: HttpClient(app, token)


@pytest.fixture
def clients(store):
    return served(store)


@pytest.fixture
def http(clients):
    return clients("administrator")


def say(http, text, conversation="c1", **headers):
    body = {"messages": [{"role": "user", "content": text}]}
    return http("append_events", conversation=conversation, body=body, headers=headers)


def test_the_document_is_made_from_the_operations(http):
    assert http.read_document() == DOCUMENT, "scripts/json-schema writes it"


def test_an_append_is_read_back(http):
    appended = say(http, "hi")
    assert (appended["version"], appended["recorded"][0]["id"]) == (1, 0)
    assert [event["content"] for event in http("read_events", conversation="c1")["events"]] == [
        "hi"
    ]


@pytest.mark.parametrize("name", ["a/b c", "äö", "%2F", "x?y#z", "+", ".x."])
def test_a_conversation_may_have_any_id(http, name):
    say(http, "hi", name)
    assert http("read_conversation", conversation=name)["id"] == name


def test_a_conflict_names_both_versions(http):
    say(http, "hi", **{"if-match": '"0"'})
    with pytest.raises(Refusal) as refusal:
        say(http, "again", **{"if-match": '"0"'})
    assert (refusal.value.status, refusal.value.expected, refusal.value.actual) == (409, 0, 1)
    assert http("read_conversation", conversation="c1")["version"] == 1


def test_a_repeated_append_appends_once(http):
    first, again = (say(http, "hi", **{"idempotency-key": "k"}) for _ in range(2))
    assert first == again
    with pytest.raises(Refusal) as refusal:
        say(http, "other", **{"idempotency-key": "k"})
    assert refusal.value.error == "IdempotencyConflict"


def test_appends_to_several_conversations_happen_together(http):
    def append(version):
        event = {"kind": "message", "source": "user", "content": "hi"}
        names = ("c1", "c2")
        appends = [
            {"conversation": name, "events": [event], "expected_version": version} for name in names
        ]
        return http("append_together", body={"appends": appends})

    assert [each["version"] for each in append(0)["appended"]] == [1, 1]
    say(http, "more", "c2")
    with pytest.raises(Refusal):
        append(1)
    assert http("read_conversation", conversation="c1")["version"] == 1


def test_from_a_prompt_to_an_outcome(http):
    say(http, "pay Ann")
    view = http("prepare", conversation="c1", body={"dialect": "openai"})
    assert view["messages"] == [{"role": "user", "content": "pay Ann"}]
    named = {"model_request": view["model_request"], "tools": [{"name": "pay"}]}
    with pytest.raises(Refusal, match="was made from a View of 'c1'"):
        http("append_reply", conversation="c2", body={"reply": REPLY, **named})
    body = {"reply": REPLY, "view_version": view["version"], **named}
    (action,) = http("append_reply", conversation="c1", body=body)["recorded"]
    assert action["event"]["meta"]["request"]["messages"] == named["model_request"]["messages"]
    assert http("read_documents", conversation="c1")["documents"]["request"] == {
        "tools": named["tools"]
    }
    (call,) = http("read_open_calls", conversation="c1")["calls"]
    assert call["id"] == action["id"]
    lease = http("take_lease", conversation="c1", body={"worker": "w1"})
    held = {"foldlog-lease": lease["token"], "idempotency-key": "run 1"}
    begun = http("begin_effect", conversation="c1", event=call["id"], headers=held)
    repeated = http("begin_effect", conversation="c1", event=call["id"], headers=held)
    assert begun == repeated
    assert (begun["next"], begun["arguments"]) == ("run", {"to": "Ann"})
    http("end_effect", conversation="c1", event=call["id"], body={"outcome": "paid"})
    (effect,) = http("read_effects", conversation="c1")["effects"]
    assert (effect["state"], effect["outcome"], effect["attempts"]) == ("done", "paid", 1)


def test_a_begun_call_is_not_run_again(http):
    http("append_reply", conversation="c1", body={"reply": REPLY})

    def begin(worker, **body):
        lease = http("take_lease", conversation="c1", body={"worker": worker})
        held = {"foldlog-lease": lease["token"], "idempotency-key": worker}
        begun = http("begin_effect", conversation="c1", event=0, body=body, headers=held)
        http("release_lease", conversation="c1", headers=held)
        return begun

    first = begin("w1", repeat="check")
    assert first["next"] == "run"
    assert begin("w2", repeat="check") == {**first, "next": "check", "arguments": {}}
    assert begin("w2", repeat="check", checked=True)["next"] == "run"
    closed = begin("w3")
    assert (closed["next"], closed["key"]) == ("done", first["key"])
    assert "may have run" in closed["recorded"]["event"]["content"]


def test_an_ended_lease_writes_nothing(http):
    say(http, "hi")
    first = http("take_lease", conversation="c1", body={"worker": "w1"})
    refusal = http.refusal("take_lease", conversation="c1", body={"worker": "w2"})
    assert (refusal.status, refusal.worker) == (423, "w1")
    held = {"foldlog-lease": first["token"]}
    http("renew_lease", conversation="c1", headers=held)
    say(http, "in time", **held)
    http("release_lease", conversation="c1", headers=held)
    second = http("take_lease", conversation="c1", body={"worker": "w2"})
    for headers in (held, {"foldlog-lease": "0"}, {"foldlog-lease": "not hex"}):
        with pytest.raises(Refusal) as refusal:
            say(http, "late", **headers)
        assert refusal.value.status == 412
    assert http("read_conversation", conversation="c1")["lease"] == "w2"
    say(http, "now", **{"foldlog-lease": second["token"]})
    contents = [event["content"] for event in http("read_events", conversation="c1")["events"]]
    assert contents == ["hi", "in time", "now"]


def test_a_lease_guards_its_tools(http):
    http("take_lease", conversation="c1", body={"worker": "w1"})
    http("append_reply", conversation="c1", body={"reply": REPLY})
    for name, path, body, status in (
        ("take_lease", {}, {"worker": "w2"}, 423),
        ("close_open_calls", {}, {}, 423),
        ("begin_effect", {"event": 0}, {}, 400),
    ):
        assert http.refusal(name, conversation="c1", body=body, **path).status == status


def test_a_token_sees_only_its_filter(clients):
    http, ann = clients("administrator"), clients("ann")
    http("create_conversation", body={"id": "bob", "attributes": {"user": "bob"}})
    own = ann("create_conversation", body={"attributes": {"title": "mine"}})
    say(ann, "hi", own["id"])
    assert [each["id"] for each in ann("list_conversations")["conversations"]] == [own["id"]]
    assert {each["conversation"] for each in ann("follow_store")["events"]} == {own["id"]}

    def problem(name, conversation, **arguments):
        return str(ann.refusal(name, conversation=conversation, **arguments).document).replace(
            conversation, "ID"
        )

    message = {"messages": [{"role": "user", "content": "hi"}]}
    probes = {
        "read_conversation": {},
        "read_events": {},
        "read_view": {},
        "append_events": {"body": message},
        "append_reply": {"body": {"reply": REPLY}},
        "take_lease": {"body": {"worker": "w"}},
        "fork": {},
        "change_attributes": {"body": {"attributes": {"title": "x"}}},
        "follow_conversation": {},
        "prepare": {},
        "read_effects": {},
        "read_documents": {},
        "change_documents": {"body": {"a": 1}},
        "retract": {"body": {"version": 0}},
    }
    for name, arguments in probes.items():
        assert problem(name, "bob", **arguments) == problem(name, "not there", **arguments)
    assert http("read_conversation", conversation="bob")["version"] == 1
    assert (
        ann.refusal(
            "change_attributes", conversation=own["id"], body={"attributes": {"user": "bob"}}
        ).status
        == 403
    )
    assert ann.refusal("create_conversation", body={"id": "chosen"}).status == 403


def test_a_token_moves_nothing_out_of_its_filter(clients):
    ann = clients("ann")
    own = ann("create_conversation")["id"]
    other = {"attributes": {"user": "bob"}}
    for values in (other, {"attributes": None}, {"attributes": "bob"}):
        for name, body in (("change_documents", values), ("append_events", {"documents": values})):
            assert ann.refusal(name, conversation=own, body=body).status in (403, 422)
    clients("administrator")("change_attributes", conversation=own, body=other)
    clients("administrator")(
        "change_attributes", conversation=own, body={"attributes": {"user": "ann"}}
    )
    with pytest.raises(Refusal):
        ann("fork", conversation=own, body={"at": 2})
    assert ann("list_conversations", where="user=bob")["conversations"] == []
    assert ann("read_attributes", conversation=own)["attributes"] == {"user": "ann"}


def test_a_token_learns_of_no_erasure(clients):
    http, ann = clients("administrator"), clients("ann")
    http("create_conversation", body={"id": "bob", "attributes": {"user": "bob"}})
    http("erase", conversation="bob", body={"reason": "a secret of bob"})
    refusal = ann.refusal("read_conversation", conversation="bob")
    assert (refusal.status, "secret" in str(refusal)) == (404, False)


def begin(http, worker, run, **body):
    lease = http("take_lease", conversation="c1", body={"worker": worker})
    headers = {"foldlog-lease": lease["token"], "idempotency-key": run}
    begun = http("begin_effect", conversation="c1", event=0, body=body, headers=headers)
    return begun, headers


def test_another_worker_with_the_same_key(http):
    http("append_reply", conversation="c1", body={"reply": REPLY})
    first, held = begin(http, "w1", "run-1")
    http("release_lease", conversation="c1", headers={"foldlog-lease": held["foldlog-lease"]})
    second, _ = begin(http, "w2", "run-1")
    assert (first["next"], second["next"]) == ("run", "done")
    assert "may have run" in second["recorded"]["event"]["content"]


def test_an_outcome_after_a_lost_lease(http):
    http("append_reply", conversation="c1", body={"reply": REPLY})
    _, held = begin(http, "w1", "run-1")
    lost = {"foldlog-lease": held["foldlog-lease"]}
    http("release_lease", conversation="c1", headers=lost)
    body = {"outcome": "paid"}
    headers = {**lost, "idempotency-key": "outcome-1"}
    first, again = (
        http("end_effect", conversation="c1", event=0, body=body, headers=headers) for _ in range(2)
    )
    assert first == again
    (effect,) = http("read_effects", conversation="c1")["effects"]
    assert (effect["state"], effect["outcome"]) == ("done", "paid")


def test_a_tool_result_after_a_lost_lease(http):
    http("append_reply", conversation="c1", body={"reply": REPLY})
    lease = http("take_lease", conversation="c1", body={"worker": "w1"})
    held = {"foldlog-lease": lease["token"]}
    http("release_lease", conversation="c1", headers=held)
    body = {"call": "k1", "content": "paid"}
    assert (
        http.refusal("append_tool_result", conversation="c1", body=body, headers=held).status == 412
    )
    assert http("read_events", conversation="c1")["events"][-1]["content"] == "paid"


def test_bounds_of_a_lease(http):
    say(http, "hi")
    for ttl_s in (0, -1, 9e8):
        assert (
            http.refusal(
                "take_lease", conversation="c1", body={"worker": "w", "ttl_s": ttl_s}
            ).status
            == 400
        )
    event = {"kind": "message", "source": "user", "content": "hi"}
    appends = [{"conversation": each, "events": [event], "expected_version": 1} for each in "ab"]
    assert (
        http.refusal(
            "append_together", body={"appends": appends}, headers={"foldlog-lease": "1"}
        ).status
        == 400
    )


def test_mistakes_of_a_client_are_4xx(http):
    say(http, "hi")
    for name, arguments in (
        ("read_view", {"at": 9}),
        ("why", {"event": 99}),
        ("append_events", {"headers": {"content-encoding": "gzip"}}),
        ("read_records", {"format": "none"}),
    ):
        assert 400 <= http.refusal(name, conversation="c1", **arguments).status < 500


def test_a_version_is_refused_where_none_is_checked(http):
    http("append_reply", conversation="c1", body={"reply": REPLY})
    body = {"call": "k1", "content": "paid"}
    assert (
        http.refusal(
            "append_tool_result", conversation="c1", body=body, headers={"if-match": '"9"'}
        ).status
        == 400
    )


def test_a_scope_allows_what_it_names(clients):
    say(clients("worker"), "hi")
    assert clients("reader")("read_conversation", conversation="c1")["version"] == 1
    for token, name, body in (
        ("reader", "append_events", {}),
        ("reader", "take_lease", {"worker": "w"}),
        ("worker", "erase", {"reason": "r"}),
        ("worker", "redact", {"events": [0], "reason": "r"}),
    ):
        assert clients(token).refusal(name, conversation="c1", body=body).status == 403
    for token in ("", "other", "reader2"):
        refusal = clients(token).refusal("read_conversation", conversation="c1")
        assert refusal.status == 401
        assert ("does not know this token" in refusal.detail) == bool(token)


def test_an_erased_conversation_is_gone(http):
    say(http, "hi")
    assert http("erase", conversation="c1", body={"reason": "asked"})["events"] == 1
    for name in ("read_events", "read_view", "read_conversation"):
        assert http.refusal(name, conversation="c1").status == 410


def test_views_forks_and_changes(http):
    for text in ("one", "two"):
        say(http, text)
    assert http("why", conversation="c1", event=1)["fate"] == "shown"
    http("retract", conversation="c1", body={"version": 1})
    assert [event["content"] for event in http("read_view", conversation="c1")["events"]] == ["one"]
    assert len(http("read_view", conversation="c1", at=2)["events"]) == 2
    left = http("difference", conversation="c1", before=2, after=3)["left"]
    assert [event["id"] for event in left] == [1]
    forked = http("fork", conversation="c1", body={"at": 1, "id": "c2"})
    assert (forked["id"], forked["version"]) == ("c2", 1)
    redacted = http("redact", conversation="c1", body={"events": [1], "reason": "asked"})
    assert redacted["redacted"] == [1]
    assert http("change_documents", conversation="c1", body={"plan": [1]})["version"] == 5
    assert http("read_documents", conversation="c1")["documents"] == {"plan": [1]}
    http("change_attributes", conversation="c1", body={"attributes": {"user": "ann"}})
    assert http("read_attributes", conversation="c1")["attributes"]["user"] == "ann"
    http("request_condensation", conversation="c1", body={"reason": "long"})
    assert http("read_view", conversation="c1")["unhandled_condensation_request"]
    with pytest.raises(Refusal, match="never condensed"):
        http("dropped", conversation="c1")


def test_a_follower_gets_each_event_once(http):
    for text in ("a", "b", "c"):
        say(http, text)
    first = http("follow_conversation", conversation="c1", limit=2)
    rest = http("follow_conversation", conversation="c1", after=first["after"])
    texts = [each["event"]["content"] for each in first["events"] + rest["events"]]
    assert texts == ["a", "b", "c"]
    store = http("follow_store", limit=2)
    store_rest = http("follow_store", after=store["after"])
    positions = [each["position"] for each in store["events"] + store_rest["events"]]
    assert len({*positions}) == 3


def test_each_change_is_made_once_for_its_key(http, clients):
    http("append_reply", conversation="c1", body={"reply": REPLY})
    ann = clients("ann")
    own = ann("create_conversation")["id"]
    changes = (
        (ann, "create_conversation", {"attributes": {"title": "new"}}, {}),
        (ann, "fork", {}, {"conversation": own}),
        (http, "create_conversation", {"id": "chosen"}, {}),
        (http, "fork", {"id": "c2"}, {"conversation": "c1"}),
        (http, "request_condensation", {"reason": "long"}, {"conversation": "c1"}),
        (http, "ask_approval", {"to": "ann"}, {"conversation": "c1", "event": 0}),
        (http, "decide", {"approved": False}, {"conversation": "c1", "event": 0}),
        (http, "retract", {"version": 0}, {"conversation": "c1"}),
    )
    for client, name, body, parameters in changes:
        keyed = {"headers": {"idempotency-key": name}, **parameters}
        first = client(name, body=body, **keyed)
        say(http, "meanwhile")
        assert client(name, body=body, **keyed) == first, name
    for name, body in (("retract", {"version": 1}), ("fork", {"at": 1, "id": "c2"})):
        assert (
            http.refusal(
                name, conversation="c1", body=body, headers={"idempotency-key": name}
            ).error
            == "IdempotencyConflict"
        )
    events = http("read_events", conversation="c1")["events"]
    kinds = [event["kind"] for event in events]
    assert [kinds.count(kind) for kind in ("retraction", "condensation_request", "annotation")] == [
        1,
        1,
        2,
    ]


def test_an_approval_precedes_its_tool(http):
    http("append_reply", conversation="c1", body={"reply": REPLY})
    http("ask_approval", conversation="c1", event=0, body={"to": "ann", "shown": "Pay Ann?"})
    lease = http("take_lease", conversation="c1", body={"worker": "w1"})
    headers = {"foldlog-lease": lease["token"], "idempotency-key": "run-1"}

    def begin():
        body = {"needs_approval": True}
        return http("begin_effect", conversation="c1", event=0, body=body, headers=headers)

    for approved in (False, True):
        with pytest.raises(Refusal) as refusal:
            begin()
        assert (refusal.value.status, refusal.value.error) == (403, "NotApproved")
        decided = http("decide", conversation="c1", event=0, body={"approved": approved})
        assert decided["event"]["data"]["by"] == "administrator"
    assert begin()["next"] == "run"
    http("end_effect", conversation="c1", event=0, body={"outcome": "paid"})
    assert (
        http.refusal("decide", conversation="c1", event=0, body={"approved": False}).status == 422
    )


def test_a_client_that_left_frees_its_stream(store):
    tokens = Tokens([("worker", TokenEntry(scope="append", token="worker", connections=1))])
    service = Service(Histories(store), tokens, check=lambda: None)
    http = HttpClient(application(store, token="page", service=service), "worker")
    say(http, "hi")
    scope = {
        "type": "http",
        "method": "GET",
        "path": "/v1/conversations/c1/follow",
        "query_string": b"",
        "headers": [(b"authorization", b"Bearer worker"), (b"accept", b"text/event-stream")],
    }

    async def receive():
        return {"type": "http.disconnect"}

    async def send(message):
        raise OSError("the client is gone")

    with pytest.raises((OSError, ExceptionGroup)):
        asyncio.run(service(scope, receive, send))
    assert http("read_conversation", conversation="c1")["version"] == 1


def test_invalid_requests_are_refused(http, clients):
    say(http, "hi")
    for arguments in (
        {"body": {"messages": [{"role": "user", "content": "x"}], "more": 1}},
        {"body": {"events": [{"kind": "message"}]}},
        {"body": {"events": [{"kind": "redaction"}]}},
        {"body": {"events": [EVENT], "messages": [{"role": "user", "content": "x"}]}},
        {"headers": {"if-match": "x"}, "body": {"messages": [{"role": "user", "content": "x"}]}},
    ):
        assert http.refusal("append_events", conversation="c1", **arguments).status == 400
    assert http("read_conversation", conversation="c1")["version"] == 1


ITEMS = [
    {"type": "message", "role": "user", "content": "Pay Ann."},
    {"type": "function_call", "call_id": "k1", "name": "pay", "arguments": '{"to": "Ann"}'},
    {"type": "function_call_output", "call_id": "k1", "output": "paid"},
]


def append_items(http, items, **headers):
    body = {"format": "openai-responses", "records": items}
    return http("append_records", conversation="c1", body=body, headers=headers)


def test_records_are_read_back_unchanged(http):
    append_items(http, ITEMS[:2])
    assert append_items(http, ITEMS[2:])["version"] == 3
    answer = http("read_records", conversation="c1", format="openai-responses")
    assert (answer["version"], answer["records"]) == (3, ITEMS)
    http("retract", conversation="c1", body={"version": 1})
    sent = http("read_records", conversation="c1", format="openai-responses", sent="true")
    assert (sent["records"], sent["newest"]) == (ITEMS[:1], [0])
    assert http("read_records", conversation="c2", format="openai-responses", sent="true") == {
        "version": 0,
        "records": [],
        "newest": [],
    }


@pytest.mark.parametrize("count", [1, 2, 3])
def test_repeated_records_are_appended_once(http, count):
    append_items(http, ITEMS[: count - 1])
    first, again = (
        append_items(http, ITEMS[count - 1 :], **{"idempotency-key": "k"}) for _ in range(2)
    )
    assert first == again
    assert http("read_conversation", conversation="c1")["version"] == 3
    with pytest.raises(Refusal) as refusal:
        append_items(http, ITEMS[:1], **{"idempotency-key": "k"})
    assert refusal.value.error == "IdempotencyConflict"


def test_the_conversations_below_an_id_are_listed(http, clients):
    for name in ("a/b", "a/b/c", "ab", "b/a"):
        say(http, "hi", name)
    listed = http("list_conversations", below="a/")["conversations"]
    assert {each["id"] for each in listed} == {"a/b", "a/b/c"}
    own = clients("ann")("create_conversation", body={})["id"]
    listed = clients("ann")("list_conversations", below=own[:1])["conversations"]
    assert [each["id"] for each in listed] == [own]


def test_a_repeated_key_after_a_redaction(http):
    appended = append_items(http, ITEMS, **{"idempotency-key": "k"})
    http("redact", conversation="c1", body={"events": [0], "reason": "asked"})
    again = append_items(http, ITEMS, **{"idempotency-key": "k"})
    assert [each["id"] for each in again["recorded"]] == [
        each["id"] for each in appended["recorded"]
    ]
