"""The reports of the commands can be read over HTTP too, as far as the token may see them."""

import asyncio
import json

import pytest

from foldlog import Histories
from foldlog._app.server import threads
from foldlog._app.server.service import conversations, reports, service
from foldlog._app.server.service.service import Service
from foldlog._app.server.service.tokens import TokenEntry, Tokens
from foldlog.eventstore import open_store
from tests.http_client import HttpClient, Refusal
from tests.web_client import Client, Gate, application

ADMIN = "token-of-the-admin"
ANN = "token-of-ann-only"
CALL = {"id": "k1", "type": "function", "function": {"name": "pay", "arguments": '{"to": "Ann"}'}}
KEY = "AKIA" + "Q3EGRZQXN7HD2WLK"  # in two parts, so that no scanner takes it for a secret


@pytest.fixture
def store():
    with open_store("memory:") as store:
        yield store


@pytest.fixture
def app(store):
    tokens = Tokens(
        [
            ("admin", TokenEntry(scope="administer", token=ADMIN)),
            ("ann", TokenEntry(scope="read", token=ANN, where={"user": "ann"})),
        ]
    )
    served = Service(Histories(store), tokens, check=lambda: None)
    return application(store, gate=Gate("page"), service=served)


@pytest.fixture
def admin(app):
    return HttpClient(app, ADMIN)


@pytest.fixture
def ann(app):
    return HttpClient(app, ANN)


@pytest.fixture(autouse=True)
def written(admin):
    for user in ("ann", "bob"):
        admin("create_conversation", body={"id": user, "attributes": {"user": user}})
        message = {"role": "user", "content": f"Pay Ann with {KEY}, says {user}."}
        admin("append_events", conversation=user, body={"messages": [message]})
        prepared = admin("prepare", conversation=user, body={})
        reply = {"role": "assistant", "content": None, "tool_calls": [CALL]}
        body = {"reply": reply, "model_request": prepared["model_request"]}
        admin("append_reply", conversation=user, body=body)


OF_CONVERSATION = {
    "read_stats": {},
    "export": {},
    "find_secrets": {},
    "replay": {},
    "read_fact": {"words": "Ann"},
    "compare_conversations": {"other": "ann"},
    "recall": {"body": {"arguments": {"query": "Pay"}}},
    "read_recall_tool": {},
}


@pytest.mark.parametrize("name, request_", OF_CONVERSATION.items())
def test_a_token_reads_only_what_it_may_see(ann, name, request_):
    ann(name, conversation="ann", **request_)
    assert ann.refusal(name, conversation="bob", **request_).status == 404


def test_figures_count_what_a_token_may_read(admin, ann):
    stats = admin("read_stats", conversation="ann")
    assert (stats["events"]["action"], stats["tools"]["pay"]["calls"]) == (1, 1)
    assert admin("read_store_stats")["conversations"] == 2
    assert admin("read_store_stats", where="user=bob")["conversations"] == 1
    assert ann("read_store_stats")["conversations"] == 1
    assert ann("read_store_stats", where="user=bob")["conversations"] == 0


def test_tombstones_are_listed_in_pages_for_administrators(admin, ann):
    for user in ("bob", "ann"):
        admin("erase", conversation=user, body={"reason": f"{user} asked"})
    first = admin("list_tombstones", limit=1)
    assert [tombstone["id"] for tombstone in first["tombstones"]] == ["ann"]
    second = admin("list_tombstones", limit=1, after=first["next"])
    assert ([tombstone["reason"] for tombstone in second["tombstones"]], second["next"]) == (
        ["bob asked"],
        None,
    )
    assert ann.refusal("list_tombstones").status == 403


def test_an_export_has_pages(admin, monkeypatch):
    whole = admin("export", conversation="ann", format="openai-chat")
    assert [record["role"] for record in whole["records"]] == ["user", "assistant"]
    assert whole["next"] is None
    monkeypatch.setattr(reports, "_PAGE_BYTES", 0)
    pages = []
    after = 0
    while after is not None:
        page = admin("export", conversation="ann", format="openai-chat", after=after)
        pages.append(page["records"])
        after = page["next"]
    assert pages == [[record] for record in whole["records"]]


def test_secrets_are_named_without_their_values(admin):
    pytest.importorskip("detect_secrets")
    found = admin("find_secrets", conversation="ann")
    assert [(secret["event"], secret["kinds"]) for secret in found["secrets"]] == [
        (1, ["AWS Access Key"])
    ]
    assert KEY not in json.dumps(found)


def test_recorded_requests_are_made_again(admin):
    replayed = admin("replay", conversation="ann")
    assert [(request["event"], request["same"]) for request in replayed["requests"]] == [(2, True)]
    assert replayed["next"] is None


def test_what_an_agent_knows(admin, ann):
    assert admin("read_fact", conversation="ann", words="says ann")["known_by"] == [1]
    answers = admin("read_hand_overs", conversation="ann", words="says ann")["agents"]
    assert [answer["fact"]["is_known"] for answer in answers] == [True]
    assert ann.refusal("read_hand_overs", conversation="ann", words="x").status == 403
    assert admin.refusal("read_hand_overs", conversation="ann").status == 422


def test_two_conversations_are_compared(admin, ann):
    runs = admin("compare_conversations", conversation="ann", other="bob")
    assert (runs["divergence"], runs["runs"]["same"]) == (None, 1)
    admin("fork", conversation="ann", body={"id": "ann-2", "at": 2})
    forked = admin("compare_conversations", conversation="ann", other="ann-2")
    assert (forked["divergence"]["common_past"], forked["runs"]) == (2, None)
    refusal = ann.refusal("compare_conversations", conversation="ann", other="bob")
    assert refusal.status == 404


def test_a_read_token_compares_with_no_other(app, admin):
    made = admin("create_read_token", conversation="ann", body={})
    page = HttpClient(app, made["token"])
    assert page("read_fact", conversation="ann", words="Pay")["is_known"]
    assert page.refusal("compare_conversations", conversation="ann", other="bob").status == 403
    assert page.refusal("read_store_stats").status == 403


def test_a_report_is_a_page(app, monkeypatch):
    client = Client(app, {"authorization": f"Bearer {ANN}"}, waits=True)
    answer = client.get("/v1/conversations/ann/report")
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert answer.body.startswith(b"<!doctype html>")
    monkeypatch.setattr(reports, "_REPORT_BYTES_MAX", 1)
    refused = client.get("/v1/conversations/ann/report")
    assert (refused.status, refused.headers["content-type"]) == (422, "application/problem+json")


def test_the_recall_tool_answers_and_names_wrong_arguments(admin):
    tool = admin("read_recall_tool", conversation="ann", dialect="anthropic")["tool"]
    assert (tool["name"], "input_schema" in tool) == ("recall", True)
    body = {"arguments": '{"ids": [1]}'}
    assert "says ann" in admin("recall", conversation="ann", body=body)["text"]
    wrong = admin("recall", conversation="ann", body={"arguments": {"page": 3}})
    assert "these are not valid arguments" in wrong["text"]


POST = {"method": "POST", "headers": {"content-type": "application/json"}}
MANY = {f"a{number}": "x" for number in range(60)}
LARGE = {"messages": [{"role": "user", "content": "x" * 300_000}]}


@pytest.mark.parametrize(
    "request_, most",
    [
        ({"method": "GET", "path": "/v1/search?words=pay"}, 1),
        ({"method": "GET", "path": "/v1/conversations/ann"}, 4),
        ({**POST, "path": "/v1/conversations", "body": json.dumps({"attributes": MANY})}, 1),
        ({**POST, "path": "/v1/conversations/ann/events", "body": json.dumps(LARGE)}, 1),
        ({**POST, "path": "/v1/conversations", "body": "{}"}, 7),
    ],
)
def test_a_token_leaves_the_others_their_turns(app, monkeypatch, request_, most):
    """Otherwise the reads and the large writes of one token would take the threads of all."""
    assert highest_at_once(app, monkeypatch, request_, most) == most


def highest_at_once(app, monkeypatch, request_, expected):
    """Send a request seven times at once. Return how many of them ran at once. They go on when as many
    as ``expected`` run.
    """
    request_ = {**request_, "body": request_.get("body", "").encode()}
    client = Client(app, {"authorization": f"Bearer {ADMIN}"}, waits=True)
    running = highest = 0

    async def ask_together():
        all_may_begin = asyncio.Event()

        async def run(self, function):
            nonlocal running, highest
            running += 1
            highest = max(highest, running)
            if running == expected:
                all_may_begin.set()
            await all_may_begin.wait()
            running -= 1
            return function()

        monkeypatch.setattr(threads.Threads, "run", run)
        return await asyncio.gather(*(client.ask(**request_) for _ in range(7)))

    answers = asyncio.run(ask_together())
    assert {answer.status for answer in answers} <= {200, 201}
    return highest


def test_a_large_conversation_is_read_by_one_at_a_time(app, admin, monkeypatch):
    monkeypatch.setattr(service, "_LARGE_ANSWER_BYTES", 300_000)
    body = {"messages": [{"role": "user", "content": "x" * 400_000}]}
    admin("append_events", conversation="ann", body=body)
    (principal,) = (entry for _, entry in app._service._tokens._principals if not entry.where)
    admin("read_view", conversation="bob")
    assert "bob" not in principal.large
    admin("read_view", conversation="ann")
    assert "ann" in principal.large
    read = {"method": "GET", "path": "/v1/conversations/ann/view"}
    assert highest_at_once(app, monkeypatch, read, 1) == 1


def test_a_view_of_too_many_bytes_is_refused(app, admin, monkeypatch):
    monkeypatch.setattr(service, "_LARGE_VIEW_BYTES", 5_000)
    monkeypatch.setattr(service, "_VIEW_BYTES_MAX", 20_000)
    body = {"messages": [{"role": "user", "content": "x" * 8_000}]}
    for _ in range(2):
        admin("append_events", conversation="ann", body=body)
    (principal,) = (entry for _, entry in app._service._tokens._principals if not entry.where)
    assert "ann" not in principal.large
    before = len(admin("read_view", conversation="ann")["events"])
    assert "ann" in principal.large
    admin("append_events", conversation="ann", body=body)
    with pytest.raises(Refusal, match="more than 20,000 bytes of events; condense it") as refused:
        admin("read_view", conversation="ann")
    assert refused.value.status == 422
    assert refused.value.document["error"] == "TooManyBytes"
    assert len(admin("prepare", conversation="ann", body={})["events"]) == before + 1
    assert admin("read_events", conversation="ann")["next"] is None
    assert "bob" not in principal.large


def test_a_page_of_a_list_ends_with_its_bytes(admin, monkeypatch):
    monkeypatch.setattr(conversations, "_LISTED_TOGETHER", 1)
    monkeypatch.setattr(conversations, "_LISTED_BYTES", 1)
    first = admin("list_conversations")
    assert [conversation["id"] for conversation in first["conversations"]] == ["bob"]
    second = admin("list_conversations", after=first["next"])
    assert [conversation["id"] for conversation in second["conversations"]] == ["ann"]
