"""Compactions that a provider makes are stored, shown, and sent back in the form of its API.
``tests/golden/compactions.json`` contains what is appended, and the prompts afterwards.
"""

import json

import pytest
from pydantic import TypeAdapter

from foldlog.eventstore import CondensationAction, Message, SystemMessage
from foldlog.formats import decode, encode
from foldlog.projections import View
from tests.foldlog.records import GOLDEN
from tests.said import ids

CASES = json.loads((GOLDEN / "compactions.json").read_text())
BY_NAME = {case["case"]: case for case in CASES}
OF_ANTHROPIC = BY_NAME["a block of Anthropic stands for all before it, and goes back as it came"]
OF_OPENAI = BY_NAME["an item of OpenAI stands for all before it, and goes back as it came"]
ASKED_FOR = BY_NAME["a compaction that the program asked for keeps the messages of the user"]
MESSAGE = OF_ANTHROPIC["steps"][0]["append_reply"]
"""A reply of Anthropic with a compaction and a text."""
RESPONSE = OF_OPENAI["steps"][0]["append_reply"]
"""A response of OpenAI with a compaction and a message."""


@pytest.fixture
def history(history):
    history.append(SystemMessage(content="Be brief."))
    history.append({"role": "user", "content": "how far?"})
    history.append({"role": "assistant", "content": "9 km"})
    history.append({"role": "user", "content": "and back?"})
    return history


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["case"])
def test_compaction_replaces_all_before_it(history, case):
    for step in case["steps"]:
        for method, appended in step.items():
            getattr(history, method)(appended)
    assert [type(event).__name__ for event in history.events(4)] == case["events"]
    assert ids(history.view()) == case["view"]
    for dialect, prompt in case["prompts"].items():
        assert history.view().to_messages(dialect) == prompt


@pytest.mark.parametrize(
    "case",
    [case for case in CASES if case["prompts"].keys() & {"anthropic", "responses"}],
    ids=lambda case: case["case"],
)
def test_clients_of_providers_accept_the_prompts(case):
    needs = "needs the types of the provider's client"
    if messages := case["prompts"].get("anthropic"):
        beta = pytest.importorskip("anthropic.types.beta", reason=needs)
        TypeAdapter(list[beta.BetaMessageParam]).validate_python(messages, strict=True)
    if items := case["prompts"].get("responses"):
        openai = pytest.importorskip("openai.types.responses", reason=needs)
        TypeAdapter(list[openai.ResponseInputItemParam]).validate_python(items)


def test_compaction_is_a_condensation(history):
    _, message = history.append_reply(MESSAGE)
    edits = MESSAGE["context_management"]
    assert message.event.meta["message"] == {"context_management": edits}
    assert history.view().system_prompt == "Be brief."
    assert "condensation 4 forgot it" in str(history.why(1))
    reply = ASKED_FOR["steps"][0]["append_reply"]
    assert history.append_reply(reply)[1].event.meta["usage"]["prompt_tokens"] == 7


def test_client_objects_are_read_as_maps(history):
    needs = "needs the types of the provider's client"
    beta = pytest.importorskip("anthropic.types.beta", reason=needs)
    history.append_reply(beta.BetaMessage.model_validate(MESSAGE))
    assert history.view().to_messages("anthropic")[1]["content"] == MESSAGE["content"]
    openai = pytest.importorskip("openai.types.responses", reason=needs)
    history.append_reply(openai.Response.model_validate(RESPONSE))
    (_, item, _) = history.view().to_messages("responses")
    assert item["encrypted_content"] == "gAAA"


ASKED = {"role": "user", "content": "how far?"}


def test_import_reads_compactions_as_replies():
    answer = {"role": "assistant", "content": MESSAGE["content"]}
    sure = {"role": "user", "content": "sure?"}
    events = list(decode([ASKED, answer, sure], "anthropic-messages"))
    assert [type(event) for event in events] == [Message, CondensationAction, Message, Message]
    assert View.from_events(events).to_messages("anthropic")[1:] == [
        answer,
        {"role": "user", "content": [{"type": "text", "text": "sure?"}]},
    ]
    item, reply = RESPONSE["output"]
    agent_message = {"role": "assistant", "content": "9 km"}
    before = [{"role": "developer", "content": "Be brief."}, ASKED, agent_message]
    events = list(decode([*before, item, reply], "openai-responses"))
    view = View.from_events(events)
    assert ids(view) == [0, 1, 4, 5]
    assert view.to_messages("responses")[2] == OF_OPENAI["prompts"]["responses"][1]
    _, *again = decode([ASKED, item], "openai-responses")
    # Nothing was sent before this compaction, so it forgets nothing.
    assert [type(event) for event in again] == [Message]


def test_an_item_keeps_fields_that_no_server_accepts():
    item = {"type": "compaction", "encrypted_content": "z", "id": None, "status": "completed"}
    events = list(decode([ASKED, item], "openai-responses"))
    assert events[-1].content == (item,)
    sent = View.from_events(events).to_messages("responses")[-1]
    assert sent == {"type": "compaction", "encrypted_content": "z"}


def test_a_block_is_written_as_it_came(history):
    history.append_reply(MESSAGE)
    *_, written = encode(history.events(), "anthropic-messages")
    assert written == {"role": "assistant", "content": MESSAGE["content"]}
