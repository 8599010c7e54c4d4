"""The reports of the commands can be read over HTTP too, as far as the token may see them."""

import asyncio
import json
import time
from types import SimpleNamespace

import pytest

from foldlog import Histories
from foldlog._app.server import threads
from foldlog._app.server.service import conversations, exports, reports, search, service, views
from foldlog._app.server.service.service import Service
from foldlog._app.server.service.tokens import TokenEntry, Tokens
from foldlog._reports.figures import of_store
from foldlog.eventstore import open_store
from foldlog.eventstore.maintenance.erase import erase
from foldlog.eventstore.recorders.sqlite.reader import SQLiteReader
from tests.http_client import HttpClient, Refusal
from tests.said import said
from tests.stored_rows import execute
from tests.web_client import Client, Gate, application

ADMIN = "token-of-the-admin"
ANN = "token-of-ann-only"
CALL = {"id": "k1", "type": "function", "function": {"name": "pay", "arguments": '{"to": "Ann"}'}}
KEY = "AKIA" + "Q3EGRZQXN7HD2WLK"  # in two parts, so that no scanner takes it for a secret


@pytest.fixture
def store():
    with open_store("memory:") as store:
        yield store


def served(store):
    tokens = Tokens(
        [
            ("admin", TokenEntry(scope="administer", token=ADMIN)),
            ("ann", TokenEntry(scope="read", token=ANN, where={"user": "ann"})),
        ]
    )
    service = Service(Histories(store), tokens, check=lambda: None)
    return application(store, gate=Gate("page"), service=service)


@pytest.fixture
def app(store):
    return served(store)


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


@pytest.mark.parametrize("user", [None, "bob"])
def test_sums_leave_out_a_conversation_that_is_erased_meanwhile(
    user, admin, ann, store, monkeypatch
):
    """The conversation of another ``user`` may begin under its id."""
    admin("create_conversation", body={"id": "ann-2", "attributes": {"user": "ann"}})
    collect = reports.collect_stats

    def collect_late(store, names, **options):
        monkeypatch.undo()
        erase(store, "ann", reason="asked for")
        if user is not None:
            again = Histories(store).create("ann", {"user": user}, replace_erased=True)
            again.append(said("of another user"))
        return collect(store, names, **options)

    monkeypatch.setattr(reports, "collect_stats", collect_late)
    stats = ann("read_store_stats")
    assert (stats["conversations"], stats["events"].get("user", 0)) == (1, 0)


def test_figures_of_many_conversations_say_what_they_lack(admin, ann, store, monkeypatch):
    for number in range(5):
        admin("create_conversation", body={"id": str(number), "attributes": {"user": "ann"}})
    monkeypatch.setattr(of_store, "_EVENTS_AT_ONCE", 0)  # one conversation
    for left in (5, 4):
        stats = admin("read_store_stats", where="user=ann")
        assert (stats["conversations"], stats["behind"]["conversations"]) == (6 - left, left)
    assert ann("read_store_stats")["behind"]["conversations"] == 3
    of_store.FiguresOfStore(store).refresh()
    assert "behind" not in ann("read_store_stats")
    assert ann("read_stats", conversation="ann")["events"]["action"] == 1


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


@pytest.fixture
def events_read(admin, monkeypatch):
    """Asked for the number of events that were read since it was asked last. The conversation
    "long" has 3,000 messages, and a page of an export has about 150.
    """
    messages = [{"role": "user", "content": f"message {number}"} for number in range(3_000)]
    for start in range(0, 3_000, 100):
        body = {"messages": messages[start : start + 100]}
        admin("append_events", conversation="long", body=body)
    monkeypatch.setattr(reports, "_PAGE_BYTES", 6_000)
    lengths = []
    rows = SQLiteReader.rows

    def counted_rows(*arguments, **options):
        found = rows(*arguments, **options)
        lengths.append(len(found))
        return found

    def since():
        count = sum(lengths)
        lengths.clear()
        return count

    monkeypatch.setattr(SQLiteReader, "rows", counted_rows)
    return since


def exported(client, **query):
    """Yield the pages of an export of "long"."""
    after = 0
    while after is not None:
        page = client("export", conversation="long", after=after, **query)
        yield page
        after = page["next"]


def contents(pages):
    return [record["content"] for page in pages for record in page["records"]]


@pytest.mark.parametrize("format", ["openai-chat", "anthropic-messages"])
def test_the_pages_of_an_export_read_each_event_once(admin, events_read, monkeypatch, format):
    pages = list(exported(admin, format=format))
    count = events_read()
    assert len(pages) > 15
    assert 3_000 <= count < 2 * 3_000
    monkeypatch.setattr(reports, "_PAGE_BYTES", 10_000_000)
    [whole] = exported(admin, format=format)
    assert events_read() == count
    assert contents(pages) == contents([whole])
    assert pages[-1]["notes"] == whole["notes"]


def test_a_page_of_an_export_is_read_again(admin, events_read):
    first, second, third, *_ = exported(admin, format="openai-chat")
    again = admin("export", conversation="long", format="openai-chat", after=first["next"])
    assert again == second
    events_read()
    following = admin("export", conversation="long", format="openai-chat", after=again["next"])
    assert (following, events_read() < 1_500) == (third, True)


def test_an_export_shows_no_content_that_was_redacted_between_its_pages(admin, events_read):
    first = admin("export", conversation="long", format="openai-chat")
    redacted = first["next"]
    body = {"events": [redacted], "reason": "asked"}
    admin("redact", conversation="long", body=body)
    second = admin("export", conversation="long", format="openai-chat", after=redacted)
    assert f"message {redacted}" not in contents([second])
    assert f"message {redacted + 1}" in contents([second])
    admin("erase", conversation="long", body={"reason": "asked"})
    query = {"format": "openai-chat", "after": second["next"]}
    assert admin.refusal("export", conversation="long", **query).status == 410


def test_an_export_behind_its_end_has_no_records(admin):
    page = admin("export", conversation="ann", format="openai-chat", after=10**15)
    assert (page["records"], page["next"]) == ([], None)


def test_each_token_goes_on_with_its_own_export(admin, ann, monkeypatch):
    monkeypatch.setattr(reports, "_PAGE_BYTES", 0)
    query = {"conversation": "ann", "format": "openai-chat"}
    first = admin("export", **query)
    body = {"messages": [{"role": "user", "content": "later"}]}
    admin("append_events", conversation="ann", body=body)
    assert ann("export", **query) == first
    assert admin("export", **query, after=1)["next"] is None  # as it was at its first page
    second = ann("export", **query, after=1)
    assert second["next"] == 2
    assert ann("export", **query, after=2)["records"] == [{"role": "user", "content": "later"}]


def test_of_two_exports_at_one_place_none_is_held(app, admin, monkeypatch):
    """Nobody can tell which of them the next page means."""
    monkeypatch.setattr(reports, "_PAGE_BYTES", 0)
    for held in (1, 0):
        admin("export", conversation="ann", format="openai-chat")
        assert len(app._service._exports._exports) == held


@pytest.mark.parametrize("change", ["redact", "erase"])
def test_a_redaction_drops_the_exports_that_are_held(app, admin, monkeypatch, change):
    monkeypatch.setattr(reports, "_PAGE_BYTES", 0)
    admin("export", conversation="ann", format="openai-chat")
    body = {"events": [0], "reason": "asked"} if change == "redact" else {"reason": "asked"}
    admin(change, conversation="bob", body=body)
    assert len(app._service._exports._exports) == 0


def test_an_export_that_nobody_went_on_with_is_dropped(app, admin, events_read, monkeypatch):
    held = app._service._exports
    for number in range(6):
        admin("export", conversation="long", format="openai-chat", after=number)
    assert len(held._exports) == 4
    later = time.monotonic() + 61
    monkeypatch.setattr(exports, "time", SimpleNamespace(monotonic=lambda: later))
    admin("read_view", conversation="ann")
    assert len(held._exports) == 0


def test_secrets_are_named_without_their_values(admin):
    pytest.importorskip("detect_secrets")
    found = admin("find_secrets", conversation="ann")
    assert [(secret["event"], secret["kinds"]) for secret in found["secrets"]] == [
        (1, ["AWS Access Key"])
    ]
    assert KEY not in json.dumps(found)


def test_secrets_of_a_fork_name_no_conversation_of_another_user(tmp_path):
    pytest.importorskip("detect_secrets")
    path = str(tmp_path / "damaged.db")
    with open_store(path) as store:
        histories = Histories(store)
        histories["bob"].append([said(f"says {KEY} {number}") for number in range(2)])
        histories["bob"].fork(id="of-ann").set_attributes(user="ann")
    execute(path, f"UPDATE events SET body = replace(body, '{KEY} 1', '{KEY} X')")
    with open_store(path) as store:
        found = HttpClient(served(store), ANN)("find_secrets", conversation="of-ann")
    assert [secret["event"] for secret in found["secrets"]] == [0]
    assert found["unread"] == ["of-ann: an event could not be read"]


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
    assert highest_at_once(app, monkeypatch, request_) == most


def highest_at_once(app, monkeypatch, request_):
    """Send a request seven times at once. Return how many of them ran at once. None of them ends
    before each has run or waits for its turn.
    """
    request_ = {**request_, "body": request_.get("body", "").encode()}
    client = Client(app, {"authorization": f"Bearer {ADMIN}"}, waits=True)
    running = highest = 0

    async def ask_together():
        may_end = asyncio.Event()

        async def run(self, function):
            nonlocal running, highest
            running += 1
            highest = max(highest, running)
            await may_end.wait()
            running -= 1
            return function()

        monkeypatch.setattr(threads.Threads, "run", run)
        asked = asyncio.gather(*(client.ask(**request_) for _ in range(7)))
        for _ in range(100):  # more turns of the loop than a request needs until it runs
            await asyncio.sleep(0)
        may_end.set()
        return await asked

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
    assert highest_at_once(app, monkeypatch, read) == 1


def test_a_view_of_too_many_bytes_is_refused(app, admin, monkeypatch):
    monkeypatch.setattr(service, "_LARGE_VIEW_BYTES", 5_000)
    monkeypatch.setattr(service, "VIEW_BYTES_MAX", 20_000)
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


def test_a_view_of_too_many_bytes_can_be_condensed(app, admin, monkeypatch):
    monkeypatch.setattr(service, "_LARGE_VIEW_BYTES", 5_000)
    monkeypatch.setattr(service, "VIEW_BYTES_MAX", 20_000)
    monkeypatch.setattr(views, "VIEW_BYTES_MAX", 20_000)
    body = {"messages": [{"role": "user", "content": "some words " * 30}] * 70}
    admin("append_events", conversation="ann", body=body)
    admin("append_reply", conversation="ann", body={"reply": {"role": "assistant", "content": "A"}})
    assert admin.refusal("read_view", conversation="ann").status == 422
    shown = admin("condense", conversation="ann", body={"reason": "too large"})
    assert len(json.dumps(shown["events"])) < 20_000
    monkeypatch.setattr(views, "VIEW_BYTES_MAX", 2_000)
    before = admin("read_conversation", conversation="ann")["version"]
    refusal = admin.refusal("condense", conversation="ann", body={"reason": "again"})
    assert refusal.status == 422
    assert "was condensed, and its View still has more than 2,000 bytes" in str(refusal)
    kinds = [
        event["kind"] for event in admin("read_events", conversation="ann", start=before)["events"]
    ]
    assert kinds == ["condensation_request", "condensation"]


def test_effects_of_too_many_bytes_are_refused(app, admin, monkeypatch):
    monkeypatch.setattr(service, "_LARGE_VIEW_BYTES", 5_000)
    monkeypatch.setattr(service, "VIEW_BYTES_MAX", 20_000)
    body = {"messages": [{"role": "user", "content": "x" * 30_000}]}
    admin("append_events", conversation="ann", body=body)  # is no part of the answer
    admin("append_tool_result", conversation="ann", body={"call": "k1", "content": "y" * 10_000})
    [effect] = admin("read_effects", conversation="ann")["effects"]
    assert (effect["state"], len(effect["outcome"])) == ("done", 10_000)
    reply = {"role": "assistant", "content": None, "tool_calls": [{**CALL, "id": "k2"}]}
    admin("append_reply", conversation="ann", body={"reply": reply})
    admin("append_tool_result", conversation="ann", body={"call": "k2", "content": "y" * 10_000})
    refusal = admin.refusal("read_effects", conversation="ann")
    assert (refusal.status, refusal.document["error"]) == (422, "TooManyBytes")
    assert "calls of conversation 'ann' and their results have more than 20,000 by" in str(refusal)


def test_a_page_of_a_list_ends_with_its_bytes(admin, monkeypatch):
    monkeypatch.setattr(conversations, "_LISTED_TOGETHER", 1)
    monkeypatch.setattr(conversations, "_LISTED_BYTES", 1)
    first = admin("list_conversations")
    assert [conversation["id"] for conversation in first["conversations"]] == ["bob"]
    second = admin("list_conversations", after=first["next"])
    assert [conversation["id"] for conversation in second["conversations"]] == ["ann"]


def test_a_search_names_the_damage_that_a_token_may_see(tmp_path):
    path = str(tmp_path / "damaged.db")
    ids = ("a", "a: b", "c")
    with open_store(path) as store:
        histories = Histories(store)
        for name, user in zip(ids, ("ann", "bob", "ann"), strict=True):
            histories[name].set_attributes(user=user)
            histories[name].append([said(f"parser {number}") for number in range(3)])
        histories["a: b"].fork(id="of-ann").set_attributes(user="ann")
    execute(path, "UPDATE events SET body = replace(body, 'parser 1', 'parser X')")
    with open_store(path) as store:
        ann = HttpClient(served(store), ANN)
        found = ann("search_events", words="parser")
        named = [
            "'a', event 2" in problem or "'c', event 2" in problem for problem in found["unread"]
        ]
        assert (named, len(found["hits"])) == ([True, True], 4)
        [problem] = ann("search_events", words="parser", within="of-ann")["unread"]
        assert problem == "of-ann: an event that it shares could not be read"
        assert len(HttpClient(served(store), ADMIN)("search_events", words="parser")["unread"]) == 3


@pytest.mark.parametrize("seconds", [10, 0])
def test_a_search_within_a_fork_finds_what_it_shares(store, ann, monkeypatch, seconds):
    monkeypatch.setattr(search, "_SECONDS_MAX", seconds)
    histories = Histories(store)
    histories["bob"].append([said(f"parser {number}") for number in range(5)])
    fork = histories["bob"].fork(id="of-ann")
    fork.set_attributes(user="ann")
    fork.append([said(f"parser {number}") for number in range(5, 8)])
    middle = fork.fork(fork.version() - 1, id="of-ann-too")
    middle.append([said("parser 8")])
    for name, numbers in (("of-ann", range(7, -1, -1)), ("of-ann-too", [8, 6, 5, 4, 3, 2, 1, 0])):
        query = {"words": "parser", "within": name, "limit": 3}
        pages = [ann("search_events", **query)]
        while pages[-1]["next"] is not None:
            pages.append(ann("search_events", **query, after=pages[-1]["next"]))
        assert all(page["complete"] for page in pages) is (seconds > 0)
        hits = [hit for page in pages for hit in page["hits"]]
        assert [hit["snippet"] for hit in hits] == [f"parser {number}" for number in numbers]
        assert {hit["conversation"] for hit in hits} == {name}
        assert "bob" not in json.dumps(pages)


def begin_again(store, name, user):
    """Erase a conversation, and begin one of a user with its id."""
    erase(store, name, reason="asked to")
    history = Histories(store).create(name, {"user": user}, replace_erased=True)
    history.append([said(f"Words of {user} are a secret: pay with {KEY}.")])


@pytest.fixture
def begun_again(store, monkeypatch):
    """Makes a conversation become Bob's when the service begins to read the store with a
    function.
    """

    def before(module, function, name="ann"):
        read = getattr(module, function)

        def read_later(*arguments, **options):
            begin_again(store, name, "bob")
            monkeypatch.setattr(module, function, read)
            return read(*arguments, **options)

        monkeypatch.setattr(module, function, read_later)

    return before


REPORTS = {
    "report": ("write_report", {}),
    "find_secrets": ("secrets_in", {}),
    "read_stats": ("collect_stats", {}),
    "compare_conversations": ("common_past", {"other": "more"}),
}


@pytest.mark.parametrize("name, read", REPORTS.items())
def test_a_report_has_nothing_of_another_conversation_with_this_id(
    admin, ann, begun_again, name, read
):
    if name == "find_secrets":
        pytest.importorskip("detect_secrets")
    admin("create_conversation", body={"id": "more", "attributes": {"user": "ann"}})
    function, query = read
    begun_again(reports, function)
    refusal = ann.refusal(name, conversation="ann", **query)
    assert (refusal.status, refusal.error) == (410, "ConversationErased")


def test_a_comparison_has_nothing_of_another_conversation_with_the_other_id(
    admin, ann, begun_again
):
    admin("create_conversation", body={"id": "more", "attributes": {"user": "ann"}})
    begun_again(reports, "common_past", "more")
    assert ann.refusal("compare_conversations", conversation="ann", other="more").status == 410


def test_a_read_token_gets_no_report_of_another_conversation_with_this_id(app, admin, begun_again):
    token = admin("create_read_token", conversation="ann", body={})["token"]
    begun_again(reports, "write_report")
    assert HttpClient(app, token).refusal("report", conversation="ann").status == 410


def test_a_search_finds_nothing_in_another_conversation_with_this_id(ann, begun_again):
    begun_again(search, "search")
    refusal = ann.refusal("search_events", words="Pay", within="ann")
    assert refusal.status == 410


def test_a_search_of_all_finds_nothing_in_another_conversation_with_an_id(admin, ann, begun_again):
    admin("create_conversation", body={"id": "more", "attributes": {"user": "ann"}})
    admin(
        "append_events",
        conversation="more",
        body={"messages": [{"role": "user", "content": "pay"}]},
    )
    assert {hit["conversation"] for hit in ann("search_events", words="pay")["hits"]} == {
        "ann",
        "more",
    }
    begun_again(search, "search")
    found = ann("search_events", words="pay")
    assert [hit["conversation"] for hit in found["hits"]] == ["more"]
    assert {hit["conversation"] for hit in admin("search_events", words="pay")["hits"]} == {
        "ann",
        "bob",
        "more",
    }
