"""The HTTP service keeps the promises of the store, on each database."""

import asyncio
from collections import Counter

import pytest

from foldlog import Histories
from foldlog._app.server.service import events, search
from foldlog._app.server.service.service import Service
from foldlog._app.server.service.tokens import TokenEntry, Tokens
from foldlog.eventstore import Store
from tests.http_client import DOCUMENT, OPERATIONS, HttpClient, Refusal
from tests.web_client import Gate, application

CALL = {"id": "k1", "type": "function", "function": {"name": "pay", "arguments": '{"to": "Ann"}'}}
REPLY = {"role": "assistant", "content": None, "tool_calls": [CALL]}
EVENT = {"kind": "message", "source": "user", "content": "hi"}
MESSAGES = [{"role": "user", "content": "hi"}]


class C1Client(HttpClient):
    """A client whose requests are about conversation ``c1`` if they name no other one."""

    def __call__(self, name, **request):
        if "{conversation}" in OPERATIONS[name][1]:
            request.setdefault("conversation", "c1")
        return super().__call__(name, **request)


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
    app = application(store, gate=Gate("page"), service=service)
    return lambda token: C1Client(app, token)


@pytest.fixture
def clients(store):
    return served(store)


@pytest.fixture
def http(clients):
    return clients("administrator")


def say(send, text, conversation="c1", **headers):
    body = {"messages": [{"role": "user", "content": text}]}
    return send("append_events", conversation=conversation, body=body, headers=headers)


def contents(http):
    return [event.get("content") for event in http("read_events")["events"]]


def version(http):
    return http("read_conversation")["version"]


@pytest.fixture
def replied(http):
    """A client whose conversation begins with the reply of a model that calls a tool."""
    http("append_reply", body={"reply": REPLY})
    return http


def pages_of(send, name, **request):
    """Yield the answers of an operation, page by page."""
    after = {}
    while after is not None:
        page = send(name, **request, **after)
        yield page
        after = None if page["next"] is None else {"after": page["next"]}


def begin(http, worker, run, **body):
    """Begin the effect of event 0, and give the lease back. Return the answer and the lost lease."""
    lease = {"foldlog-lease": http("take_lease", body={"worker": worker})["token"]}
    headers = {**lease, "idempotency-key": run}
    begun = http("begin_effect", event=0, body=body, headers=headers)
    http("release_lease", headers=lease)
    return begun, lease


def test_the_document_is_made_from_the_operations(http):
    assert http.read_document() == DOCUMENT, "scripts/json-schema writes it"


def test_an_append_is_read_back(http):
    appended = say(http, "hi")
    assert (appended["version"], appended["recorded"][0]["id"]) == (1, 0)
    assert contents(http) == ["hi"]


def test_a_state_has_the_times_of_its_events(http):
    made = http("create_conversation", body={"id": "c1", "attributes": {"user": "ann"}})
    before = http("read_conversation")
    (recorded,) = say(http, "hi")["recorded"]
    state = http("read_conversation")
    assert before == made
    assert made["created_at"] == made["updated_at"] == state["created_at"] < state["updated_at"]
    assert state["updated_at"] == recorded["recorded_at"]


@pytest.mark.parametrize("name", ["a/b c", "äö", "%2F", "x?y#z", "+", ".x."])
def test_a_conversation_may_have_any_id(http, name):
    say(http, "hi", name)
    assert http("read_conversation", conversation=name)["id"] == name


def test_a_conflict_names_both_versions(http):
    at_0 = {"if-match": '"0"'}
    say(http, "hi", **at_0)
    refusal = say(http.refusal, "again", **at_0)
    assert (refusal.status, refusal.expected, refusal.actual) == (409, 0, 1)
    assert version(http) == 1


def test_appends_to_several_conversations_happen_together(http):
    def append(send, expected):
        appends = [
            {"conversation": name, "events": [EVENT], "expected_version": expected}
            for name in ("c1", "c2")
        ]
        return send("append_together", body={"appends": appends})

    assert [appended["version"] for appended in append(http, 0)["appended"]] == [1, 1]
    say(http, "more", "c2")
    append(http.refusal, 1)
    assert version(http) == 1


def test_repeated_appends_to_several_conversations(http):
    def append(send, *names):
        appends = [
            {"conversation": name, "events": [EVENT], "expected_version": 0} for name in names
        ]
        headers = {"idempotency-key": "k"}
        return send("append_together", body={"appends": appends}, headers=headers)

    first = append(http, "c1", "c2", "c3")
    say(http, "meanwhile", "c2")
    assert append(http, "c1", "c2", "c3") == first
    for names in (("c1", "c4"), ("c4", "c1"), ("c1", "c2", "c4")):
        assert append(http.refusal, *names).status == 409
    assert http.refusal("read_conversation", conversation="c4").status == 404
    assert version(http) == 1


def test_a_turn_goes_from_a_prompt_to_an_outcome(http):
    say(http, "pay Ann")
    view = http("prepare", body={"dialect": "openai"})
    assert view["messages"] == [{"role": "user", "content": "pay Ann"}]
    sent = {"model_request": view["model_request"], "tools": [{"name": "pay"}]}
    with pytest.raises(Refusal, match="was made from a View of 'c1'"):
        http("append_reply", conversation="c2", body={"reply": REPLY, **sent})
    body = {"reply": REPLY, "view_version": view["version"], **sent}
    (action,) = http("append_reply", body=body)["recorded"]
    assert action["event"]["meta"]["request"]["messages"] == sent["model_request"]["messages"]
    assert http("read_documents")["documents"]["request"] == {"tools": sent["tools"]}
    (call,) = http("read_open_calls")["calls"]
    assert call["id"] == action["id"]
    lease = http("take_lease", body={"worker": "w1"})
    held = {"foldlog-lease": lease["token"], "idempotency-key": "run 1"}
    begun, repeated = (http("begin_effect", event=call["id"], headers=held) for _ in range(2))
    assert begun == repeated
    assert (begun["next"], begun["arguments"]) == ("run", {"to": "Ann"})
    http("end_effect", event=call["id"], body={"outcome": "paid"})
    (effect,) = http("read_effects")["effects"]
    assert (effect["state"], effect["outcome"], effect["attempts"]) == ("done", "paid", 1)


def test_a_begun_call_is_not_run_again(replied):
    def begun(worker, **body):
        return begin(replied, worker, worker, **body)[0]

    first = begun("w1", repeat="check")
    assert first["next"] == "run"
    assert begun("w2", repeat="check") == {**first, "next": "check", "arguments": {}}
    assert begun("w2", repeat="check", checked=True)["next"] == "run"
    closed = begun("w3")
    assert (closed["next"], closed["key"]) == ("done", first["key"])
    assert "may have run" in closed["recorded"]["event"]["content"]


def test_an_ended_lease_writes_nothing(http):
    say(http, "hi")
    first = http("take_lease", body={"worker": "w1"})
    refusal = http.refusal("take_lease", body={"worker": "w2"})
    assert (refusal.status, refusal.worker) == (423, "w1")
    held = {"foldlog-lease": first["token"]}
    http("renew_lease", headers=held)
    say(http, "in time", **held)
    http("release_lease", headers=held)
    second = http("take_lease", body={"worker": "w2"})
    for headers in (held, {"foldlog-lease": "0"}, {"foldlog-lease": "not hex"}):
        assert say(http.refusal, "late", **headers).status == 412
    assert http("read_conversation")["lease"] == "w2"
    say(http, "now", **{"foldlog-lease": second["token"]})
    assert contents(http) == ["hi", "in time", "now"]


def test_without_the_lease_no_other_worker_runs_tools(http):
    http("take_lease", body={"worker": "w1"})
    http("append_reply", body={"reply": REPLY})
    for name, path, body, status in (
        ("take_lease", {}, {"worker": "w2"}, 423),
        ("close_open_calls", {}, {}, 423),
        ("begin_effect", {"event": 0}, {}, 400),
    ):
        assert http.refusal(name, body=body, **path).status == status


def test_a_token_sees_only_its_filter(clients):
    http = clients("administrator")
    ann = clients("ann")
    http("create_conversation", body={"id": "bob", "attributes": {"user": "bob"}})
    own = ann("create_conversation", body={"attributes": {"title": "mine"}})
    say(ann, "hi", own["id"])
    assert [row["id"] for row in ann("list_conversations")["conversations"]] == [own["id"]]
    assert {event["conversation"] for event in ann("follow_store")["events"]} == {own["id"]}

    def problem(name, conversation, **arguments):
        refusal = ann.refusal(name, conversation=conversation, **arguments)
        return str(refusal.document).replace(conversation, "ID")

    probes = {
        "read_conversation": {},
        "read_events": {},
        "read_view": {},
        "append_events": {"body": {"messages": MESSAGES}},
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
    to_bob = {"conversation": own["id"], "body": {"attributes": {"user": "bob"}}}
    assert ann.refusal("change_attributes", **to_bob).status == 403
    assert ann.refusal("create_conversation", body={"id": "chosen"}).status == 403


def test_a_token_moves_nothing_out_of_its_filter(clients):
    ann = clients("ann")
    own = ann("create_conversation")["id"]
    other = {"attributes": {"user": "bob"}}
    for values in (other, {"attributes": None}, {"attributes": "bob"}):
        for name, body in (("change_documents", values), ("append_events", {"documents": values})):
            assert ann.refusal(name, conversation=own, body=body).status in (403, 422)
    for values in (other, {"attributes": {"user": "ann"}}):
        clients("administrator")("change_attributes", conversation=own, body=values)
    ann.refusal("fork", conversation=own, body={"at": 2})
    assert ann("list_conversations", where="user=bob")["conversations"] == []
    assert ann("read_attributes", conversation=own)["attributes"] == {"user": "ann"}


def test_a_token_learns_of_no_erasure(clients):
    http = clients("administrator")
    ann = clients("ann")
    http("create_conversation", body={"id": "bob", "attributes": {"user": "bob"}})
    http("erase", conversation="bob", body={"reason": "a secret of bob"})
    refusal = ann.refusal("read_conversation", conversation="bob")
    assert refusal.status == 404
    assert "secret" not in str(refusal)


def test_another_worker_with_the_same_key_runs_nothing_again(replied):
    first, _ = begin(replied, "w1", "run-1")
    second, _ = begin(replied, "w2", "run-1")
    assert (first["next"], second["next"]) == ("run", "done")
    assert "may have run" in second["recorded"]["event"]["content"]


def test_an_outcome_after_a_lost_lease_is_recorded_once(replied):
    _, lost = begin(replied, "w1", "run-1")
    headers = {**lost, "idempotency-key": "outcome-1"}
    first, again = (
        replied("end_effect", event=0, body={"outcome": "paid"}, headers=headers) for _ in range(2)
    )
    assert first == again
    (effect,) = replied("read_effects")["effects"]
    assert (effect["state"], effect["outcome"]) == ("done", "paid")


RESULT = {"call": "k1", "content": "paid"}


def test_a_tool_result_after_a_lost_lease_is_refused_and_recorded(replied):
    held = {"foldlog-lease": replied("take_lease", body={"worker": "w1"})["token"]}
    replied("release_lease", headers=held)
    assert replied.refusal("append_tool_result", body=RESULT, headers=held).status == 412
    assert contents(replied)[-1] == "paid"


NOT_IN_THE_DOCUMENT = [
    ("take_lease", {"body": {"worker": "w", "ttl_s": 0}}),
    ("take_lease", {"body": {"worker": "w", "ttl_s": -1}}),
    ("take_lease", {"body": {"worker": "w", "ttl_s": 9e8}}),
    (
        "append_together",
        {
            "body": {"appends": [{"conversation": "a", "events": [EVENT], "expected_version": 1}]},
            "headers": {"foldlog-lease": "1"},
        },
    ),
    ("append_events", {"headers": {"content-encoding": "gzip"}}),
    ("append_tool_result", {"body": RESULT, "headers": {"if-match": '"9"'}}),
    ("append_events", {"body": {"messages": MESSAGES, "more": 1}}),
    ("append_events", {"body": {"events": [{"kind": "message"}]}}),
    ("append_events", {"body": {"events": [{"kind": "redaction"}]}}),
    ("append_events", {"body": {"messages": MESSAGES}, "headers": {"if-match": "x"}}),
    ("append_events", {"body": {"documents": {"": 1}}}),
    ("change_attributes", {"body": {"attributes": {"title": 1.5}}}),
    ("retract", {"body": {"version": 0.5}}),
]
"""Requests that the document does not allow."""
REFUSED = [
    ("read_view", {"at": 9}, 404),
    ("why", {"event": 99}, 404),
    ("read_records", {"format": "none"}, 422),
    ("append_events", {"body": {"events": [EVENT], "messages": MESSAGES}}, 422),
    ("append_events", {"body": {}}, 422),
    ("follow_store", {"after": "1.1"}, 409),
]
"""Requests that fit the document, and that a rule or the state refuses."""


def test_requests_that_do_not_fit_the_document_are_refused(replied):
    for operation, request in NOT_IN_THE_DOCUMENT:
        assert replied.refusal(operation, **request).status == 400, request
    assert version(replied) == 1


def test_requests_that_a_rule_refuses_change_nothing(replied):
    for operation, request, status in REFUSED:
        assert replied.refusal(operation, **request).status == status, request
    assert version(replied) == 1


def test_a_scope_allows_what_it_names(clients):
    say(clients("worker"), "hi")
    assert version(clients("reader")) == 1
    for token, name, body in (
        ("reader", "append_events", {}),
        ("reader", "take_lease", {"worker": "w"}),
        ("worker", "erase", {"reason": "r"}),
        ("worker", "redact", {"events": [0], "reason": "r"}),
    ):
        assert clients(token).refusal(name, body=body).status == 403


def test_an_unknown_token_is_refused(clients):
    for token in ("other", "reader2"):
        refusal = clients(token).refusal("read_conversation")
        assert refusal.status == 401
        assert "does not know this token" in refusal.detail
    refusal = clients("").refusal("read_conversation")
    assert refusal.status == 401
    assert "does not know this token" not in refusal.detail


def test_an_erased_conversation_is_gone(http):
    say(http, "hi")
    assert http("erase", body={"reason": "asked"})["events"] == 1
    for name in ("read_events", "read_view", "read_conversation"):
        assert http.refusal(name).status == 410


@pytest.fixture
def spoken(http):
    """A client whose conversation has two messages."""
    for text in ("one", "two"):
        say(http, text)
    return http


def test_a_view_lacks_what_was_retracted(spoken):
    http = spoken
    assert http("why", event=1)["fate"] == "shown"
    http("retract", body={"version": 1})
    assert [event["content"] for event in http("read_view")["events"]] == ["one"]
    assert len(http("read_view", at=2)["events"]) == 2
    left = http("difference", before=2, after=3)["left"]
    assert [event["id"] for event in left] == [1]


def test_a_fork_has_the_events_up_to_its_version(spoken):
    forked = spoken("fork", body={"at": 1, "id": "c2"})
    assert (forked["id"], forked["version"]) == ("c2", 1)


def test_a_redaction_names_its_events(spoken):
    redacted = spoken("redact", body={"events": [1], "reason": "asked"})
    assert redacted["redacted"] == [1]


def test_documents_and_attributes_are_read_back(spoken):
    assert spoken("change_documents", body={"plan": [1]})["version"] == 3
    assert spoken("read_documents")["documents"] == {"plan": [1]}
    spoken("change_attributes", body={"attributes": {"user": "ann"}})
    assert spoken("read_attributes")["attributes"]["user"] == "ann"


def test_a_condensation_is_requested(spoken):
    spoken("request_condensation", body={"reason": "long"})
    assert spoken("read_view")["unhandled_condensation_request"]
    with pytest.raises(Refusal, match="never condensed"):
        spoken("dropped")


def test_a_follower_gets_each_event_once(http):
    for text in ("a", "b", "c"):
        say(http, text)
    first = http("follow_conversation", limit=2)
    rest = http("follow_conversation", after=first["after"])
    texts = [recorded["event"]["content"] for recorded in first["events"] + rest["events"]]
    assert texts == ["a", "b", "c"]
    first = http("follow_store", limit=2)
    rest = http("follow_store", after=first["after"])
    positions = [recorded["position"] for recorded in first["events"] + rest["events"]]
    assert len(positions) == len({*positions}) == 3


def test_each_change_is_made_once_for_its_key(replied, clients):
    http = replied
    ann = clients("ann")
    own = ann("create_conversation")["id"]
    changes = (
        (ann, "create_conversation", {"body": {"attributes": {"title": "new"}}}),
        (ann, "fork", {"conversation": own}),
        (http, "create_conversation", {"body": {"id": "chosen"}}),
        (http, "fork", {"body": {"id": "c2"}}),
        (http, "request_condensation", {"body": {"reason": "long"}}),
        (http, "ask_approval", {"body": {"to": "ann"}, "event": 0}),
        (http, "decide", {"body": {"approved": False}, "event": 0}),
        (http, "append_events", {"body": {"messages": MESSAGES}}),
        (http, "retract", {"body": {"version": 0}}),
    )
    for client, name, request in changes:
        keyed = {"headers": {"idempotency-key": name}, **request}
        first = client(name, **keyed)
        say(http, "meanwhile")
        assert client(name, **keyed) == first, name
    for name, body in (
        ("retract", {"version": 1}),
        ("fork", {"at": 1, "id": "c2"}),
        ("append_events", {"events": [EVENT, EVENT]}),
    ):
        refusal = http.refusal(name, body=body, headers={"idempotency-key": name})
        assert refusal.error == "IdempotencyConflict"
    kinds = Counter(event["kind"] for event in http("read_events")["events"])
    assert (kinds["retraction"], kinds["condensation_request"], kinds["annotation"]) == (1, 1, 2)
    assert contents(http).count("hi") == 1


def test_an_approval_precedes_its_tool(replied):
    http = replied
    http("ask_approval", event=0, body={"to": "ann", "shown": "Pay Ann?"})
    lease = http("take_lease", body={"worker": "w1"})
    headers = {"foldlog-lease": lease["token"], "idempotency-key": "run-1"}

    def begin(send):
        return send("begin_effect", event=0, body={"needs_approval": True}, headers=headers)

    for decision_before, approved in (("none", False), ("refused", True)):
        refusal = begin(http.refusal)
        assert (refusal.status, refusal.error) == (403, "NotApproved")
        assert refusal.decision == decision_before
        decided = http("decide", event=0, body={"approved": approved})
        assert decided["event"]["data"]["by"] == "administrator"
    assert begin(http)["next"] == "run"
    http("end_effect", event=0, body={"outcome": "paid"})
    assert http.refusal("decide", event=0, body={"approved": False}).status == 422


def test_what_a_dead_worker_left_is_unfinished(replied):
    http = replied
    assert http("list_unfinished")["conversations"] == ["c1"]
    assert http("read_view")["reply_due"] is False
    http("append_tool_result", body={"call": "k1", "content": "paid"})
    assert http("list_unfinished")["conversations"] == []
    assert http("read_view")["reply_due"] is True
    lease = http("take_lease", body={"worker": "w1"})
    assert http("list_unfinished")["conversations"] == []
    http("release_lease", headers={"foldlog-lease": lease["token"]})
    assert http("list_unfinished")["conversations"] == []


def test_a_client_that_left_frees_its_stream(store):
    tokens = Tokens([("worker", TokenEntry(scope="append", token="worker", connections=1))])
    service = Service(Histories(store), tokens, check=lambda: None)
    http = C1Client(application(store, gate=Gate("page"), service=service), "worker")
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

    sent = []

    async def send(message):
        sent.append(message)
        raise OSError("the client is gone")

    with pytest.raises((OSError, ExceptionGroup)):
        asyncio.run(service(scope, receive, send))
    assert [message["status"] for message in sent] == [200]
    assert version(http) == 1, "the token has one connection, which is free again"


ITEMS = [
    {"type": "message", "role": "user", "content": "Pay Ann."},
    {"type": "function_call", "call_id": "k1", "name": "pay", "arguments": '{"to": "Ann"}'},
    {"type": "function_call_output", "call_id": "k1", "output": "paid"},
]


def append_items(send, items, **headers):
    body = {"format": "openai-responses", "records": items}
    return send("append_records", body=body, headers=headers)


def test_records_are_read_back_unchanged(http):
    append_items(http, ITEMS[:2])
    assert append_items(http, ITEMS[2:])["version"] == 3
    answer = http("read_records", format="openai-responses")
    assert (answer["version"], answer["records"]) == (3, ITEMS)
    http("retract", body={"version": 1})
    sent = http("read_records", format="openai-responses", sent="true")
    assert (sent["records"], sent["newest"]) == (ITEMS[:1], [0])
    assert http("read_records", conversation="c2", format="openai-responses", sent="true") == {
        "version": 0,
        "records": [],
        "newest": [],
    }


def test_more_records_than_the_server_holds_are_read_by_pages(http, monkeypatch):
    append_items(http, ITEMS)
    monkeypatch.setattr(events, "_RECORDS_BYTES_MAX", 100)
    refusal = http.refusal("read_records", format="openai-responses")
    assert refusal.status == 422
    assert "more than 100 bytes; read them by pages of …/export" in refusal.detail
    exported = http("export", format="openai-responses")
    assert len(exported["records"]) == 3


@pytest.mark.parametrize("count", [1, 2, 3])
def test_repeated_records_are_appended_once(http, count):
    key = {"idempotency-key": "k"}
    append_items(http, ITEMS[: count - 1])
    first, again = (append_items(http, ITEMS[count - 1 :], **key) for _ in range(2))
    assert first == again
    assert version(http) == 3
    assert append_items(http.refusal, ITEMS[:1], **key).error == "IdempotencyConflict"


def test_the_conversations_below_an_id_are_listed(http, clients):
    for name in ("a/b", "a/b/c", "ab", "b/a"):
        say(http, "hi", name)
    listed = http("list_conversations", below="a/")["conversations"]
    assert {row["id"] for row in listed} == {"a/b", "a/b/c"}
    own = clients("ann")("create_conversation", body={})["id"]
    listed = clients("ann")("list_conversations", below=own[:1])["conversations"]
    assert [row["id"] for row in listed] == [own]


@pytest.mark.parametrize("where", ["", "user=ann"])
def test_a_list_is_read_in_pages(http, where):
    names = [f"c{number}" for number in range(7)]
    for name in names:
        http("create_conversation", body={"id": name, "attributes": {"user": "ann"}})
    for limit in (1, 2, 3, 7):
        pages = [*pages_of(http, "list_conversations", where=where, limit=limit)]
        assert [row["id"] for page in pages for row in page["conversations"]] == names[::-1]
        assert len(pages) == 7 // limit + 1


def test_a_wrong_place_in_a_list_is_refused(http):
    for wrong in ("x", "1", "1.2.3", "1.-1", f"1.{2**63}"):
        refused = http.refusal("list_conversations", limit=2, after=wrong)
        assert refused.status == 400
        assert "after" in refused.detail


def test_a_list_has_what_was_just_written(http, store):
    other = served(store)("administrator")
    for number in range(3):
        say(http, "hi", f"c{number}")
        for reader in (http, other):
            listed = reader("list_conversations")["conversations"]
            assert listed[0]["id"] == f"c{number}"


def test_search_finds_words_by_pages(http):
    for number in range(7):
        say(http, f"the harbour falcon is teal, says {number}", f"c{number % 3}")
    say(http, "nothing of it")
    pages = [*pages_of(http, "search_events", words='"harbour falc"', limit=2)]
    assert all(page["complete"] for page in pages)
    found = [hit for page in pages for hit in page["hits"]]
    places = [(hit["conversation"], hit["event"]) for hit in found]
    assert len({*places}) == len(places) == 7
    for hit in found:
        start, end = hit["highlights"][0]
        assert hit["snippet"][start:].startswith("harbour")
        assert hit["snippet"][start:end] in ("harbour falcon", "harbour falc", "harbour")


def test_a_search_is_narrowed(http):
    for number in range(3):
        say(http, "the harbour falcon is teal", f"c{number}")
    within = http("search_events", words="teal", within="c1")["hits"]
    assert {hit["conversation"] for hit in within} == {"c1"}
    assert http("search_events", words="teal", kind="agent")["hits"] == []
    assert http.refusal("search_events", words="teal", within="unknown").status == 404
    assert http.refusal("search_events", words="...").status == 422


def test_a_search_that_has_no_time_goes_on_in_its_next_page(http, monkeypatch):
    for number in range(3):
        say(http, "the falcon is teal", f"c{number}")
    monkeypatch.setattr(search, "_SECONDS_MAX", 0.0)
    pages = [http("search_events", words="teal")]
    for _ in range(2):
        pages.append(http("search_events", words="teal", after=pages[-1]["next"]))
    assert [page["complete"] for page in pages] == [False, False, True]
    assert [[hit["conversation"] for hit in page["hits"]] for page in pages] == [
        ["c2"], ["c1"], ["c0"]
    ]  # fmt: skip


def test_a_place_of_a_search_says_nothing_about_other_conversations(http, clients):
    ann = clients("ann")
    own = ann("create_conversation", body={})["id"]
    for name in (own, "c1"):
        say(http, "a secret word", name)
    for name in ("c1", "unknown"):
        place = f"1.{2**62}.9.{name}"
        hits = ann("search_events", words="secret", after=place)["hits"]
        assert [hit["conversation"] for hit in hits] == [own]


def test_search_finds_only_what_a_token_may_see(http, clients):
    ann = clients("ann")
    own = ann("create_conversation", body={})["id"]
    for name in (own, "c1"):
        say(http, "a secret word", name)
    assert [hit["conversation"] for hit in ann("search_events", words="secret")["hits"]] == [own]
    assert len(http("search_events", words="secret")["hits"]) == 2
    assert ann.refusal("search_events", words="secret", within="c1").status == 404


def test_a_repeated_key_after_a_redaction_gets_the_same_events(http):
    key = {"idempotency-key": "k"}
    appended = append_items(http, ITEMS, **key)
    http("redact", body={"events": [0], "reason": "asked"})
    assert recorded_ids(append_items(http, ITEMS, **key)) == recorded_ids(appended)


def recorded_ids(answer):
    return [recorded["id"] for recorded in answer["recorded"]]
