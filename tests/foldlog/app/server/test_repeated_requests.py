"""A client that got no answer sends a request again: nothing happens twice, and the second answer
says the same.
"""

import pytest

from foldlog import Histories
from foldlog._app.server.service.service import Service
from foldlog._app.server.service.tokens import TokenEntry, Tokens
from foldlog.eventstore import CondensationAction, CondensationRequest, Message, open_store
from tests.http_client import HttpClient
from tests.said import by_turns
from tests.web_client import Gate, application

TOKEN = "a token of enough length"
KEY = {"idempotency-key": "once"}


@pytest.fixture
def store():
    with open_store("memory:") as store:
        store.append("c1", by_turns(40), expected_version=0)
        yield store


@pytest.fixture
def http(store):
    tokens = Tokens([("admin", TokenEntry(scope="administer", token=TOKEN))])
    service = Service(Histories(store), tokens, check=lambda: None)
    return HttpClient(application(store, gate=Gate("page"), service=service), TOKEN)


def kinds(store):
    return [type(event) for event in store.events("c1")]


def test_condense_with_a_key_condenses_once(http, store):
    first = http("condense", conversation="c1", body={"reason": "tidy"}, headers=KEY)
    assert kinds(store)[-2:] == [CondensationRequest, CondensationAction]
    assert http("condense", conversation="c1", body={"reason": "tidy"}, headers=KEY) == first
    assert kinds(store).count(CondensationAction) == 1


def test_condense_with_a_key_goes_on_after_its_request(http, store):
    store.append(
        "c1", [CondensationRequest(reason="tidy")], expected_version=40, idempotency_key="once"
    )
    http("condense", conversation="c1", body={"reason": "tidy"}, headers=KEY)
    assert kinds(store)[40:] == [CondensationRequest, CondensationAction]


def test_condense_refuses_the_key_of_another_reason(http):
    http("condense", conversation="c1", body={"reason": "tidy"}, headers=KEY)
    refusal = http.refusal("condense", conversation="c1", body={"reason": "other"}, headers=KEY)
    assert refusal.status == 409


def test_condense_is_declined_again(http, store):
    """A request that is repeated does not look as if it had condensed."""
    store.append("short", [Message(source="user", content="hi")], expected_version=0)
    first, second = (http.refusal("condense", conversation="short", headers=KEY) for _ in range(2))
    assert (first.status, first.document) == (second.status, second.document)
    assert store.version("short") == 3


def test_redact_again_answers_the_same(http, store):
    body = {"events": [3, 4], "reason": "a name"}
    first = http("redact", conversation="c1", body=body)
    version = store.version("c1")
    assert http("redact", conversation="c1", body=body) == first
    assert store.version("c1") == version


def test_erase_again_answers_the_same(http):
    first = http("erase", conversation="c1", body={"reason": "asked"})
    assert http("erase", conversation="c1", body={"reason": "asked"}) == first
