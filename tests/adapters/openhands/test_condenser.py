"""``FoldlogCondenser``: foldlog's condensers in agents of the SDK."""

import asyncio
import json
import random
from uuid import uuid4

import pytest
from openhands.sdk.context.condenser.base import CondenserBase, NoCondensationAvailableException
from openhands.sdk.context.view import View
from openhands.sdk.event import ActionEvent, ObservationEvent, SystemPromptEvent
from openhands.sdk.event.condenser import (
    Condensation,
    CondensationRequest,
    CondensationSummaryEvent,
)
from openhands.sdk.llm import ImageContent, TextContent
from pydantic import ValidationError

from foldlog.adapters.openhands import FoldlogCondenser, FoldlogFileStore
from tests.adapters.model_server import Reply
from tests.adapters.openhands.agents import conversation, served
from tests.adapters.openhands.chat_server import ChatServer
from tests.adapters.openhands.test_file_store import any_events, said, worked


def messages(count, *, system=True):
    prompt = SystemPromptEvent(system_prompt=TextContent(text="Be brief."), tools=[])
    talk = (said(f"message {number}", source=speaker(number)) for number in range(count))
    return [*([prompt] if system else []), *talk]


def speaker(number):
    """Return who says a message: the user and the agent take turns."""
    return "agent" if number % 2 else "user"


def test_a_condensation_request_is_answered(histories, tmp_path):
    server = ChatServer(lambda prompt, number: Reply("done"))
    conversation_id = uuid4()
    store = FoldlogFileStore(histories, conversation_id)
    talk = conversation(store, conversation_id, served(server.url), tmp_path, FoldlogCondenser())
    for number in range(12):
        talk.send_message(f"message {number}")
        talk.run()
    before = len(talk.state.view)
    talk.condense()
    assert len(talk.state.view) < before
    assert not store.history.view().unhandled_condensation_request
    assert [
        type(event)
        for event in talk.state.events
        if isinstance(event, CondensationRequest | Condensation)
    ] == [
        CondensationRequest,
        Condensation,
    ]
    state = json.loads(store.read("base_state.json"))
    assert state["agent"]["condenser"] == {"kind": "FoldlogCondenser", "config": {}}
    again = conversation(store, conversation_id, served(server.url), tmp_path, FoldlogCondenser())
    assert again.agent.condenser == FoldlogCondenser()
    server.close()
    talk.close()


@pytest.mark.anyio
async def test_a_condensation_has_the_sdks_ids():
    events = messages(30)
    condenser = FoldlogCondenser(config={"type": "digest", "max_size": 20, "keep_first": 1})
    condensation = await condenser.acondense(View.from_events(events))
    assert isinstance(condensation, Condensation)
    after = View.from_events([*events, condensation])
    assert after.events[0] == events[0]
    assert isinstance(after.events[1], CondensationSummaryEvent)
    assert after.events[-1] == events[-1]
    assert condensation.forgotten_event_ids < {event.id for event in events}
    assert condenser.condense(after) is after, "it is small enough"
    many = View.from_events([*events, condensation, *messages(30, system=False)])
    second = condenser.condense(many)
    assert f"{condensation.id}-summary" in second.forgotten_event_ids
    assert "message 3" in second.summary


def test_the_models_context_limit_is_respected():
    talk = (said("word " * 500, source=speaker(number)) for number in range(20))
    view = View.from_events([*messages(1), *talk])
    condenser = FoldlogCondenser(config={"type": "digest", "max_size": 1_000, "keep_first": 1})
    llm = served("http://127.0.0.1:9/v1")
    assert condenser.condense(view, llm) is view
    small = llm.model_copy(update={"max_input_tokens": 6_000, "max_output_tokens": 500})
    assert isinstance(condenser.condense(view, small), Condensation)


def test_masked_results_are_masked_for_the_sdk():
    choice = random.Random(1)
    events = messages(1)
    while len(events) < 30:
        events += any_events(choice, None)
    view = View.from_events(events)
    masked = FoldlogCondenser(
        config={"type": "observation_masking", "attention_window": 5}
    ).condense(view)
    assert [event.id for event in masked.events] == [event.id for event in view.events]
    masks = [TextContent(text="<MASKED>")]
    for before, after in zip(view.events[:-5], masked.events[:-5], strict=True):
        if isinstance(before, ObservationEvent):
            assert after.to_llm_message() == before.to_llm_message().model_copy(
                update={"content": masks}
            )
        else:
            assert after == before
    assert masked.events[-5:] == view.events[-5:]


def test_unshown_events_are_not_forgotten():
    since = [*worked("x"), *messages(40, system=False)[::2]]
    view = View.from_events([*messages(10), *since])
    for config in (
        {"type": "digest", "max_size": 12, "keep_first": 1},
        {"type": "recent_events", "max_events": 4},
    ):
        result = FoldlogCondenser(config=config).condense(view)
        if isinstance(result, Condensation):
            result = View.from_events([*view.events, result])
        assert result.events[-len(since) :] == since
        assert len(result.events) < len(view.events)


def test_long_events_are_shortened_for_the_sdk():
    image = ImageContent(image_urls=["data:image/png;base64,AA=="])
    action, big = worked("word " * 9_000, image, is_error=True)
    view = View.from_events([*messages(0), action, big, said("first " * 9_000)])
    llm = served("http://127.0.0.1:9/v1").model_copy(
        update={"max_input_tokens": 15_000, "max_output_tokens": 500}
    )
    prompt, call, result, last = FoldlogCondenser().condense(view, llm).events
    assert prompt == view.events[0]
    arguments = json.loads(call.tool_call.arguments)["what"]
    assert arguments.startswith("word word")
    assert len(arguments) < 40_000
    assert call.tool_call.id == action.tool_call.id
    header, text, shown = result.to_llm_message().content
    assert (header, shown) == (big.observation.to_llm_content[0], image)
    assert result.to_llm_message().tool_call_id == big.tool_call_id
    for each, begins in ((text, "word word"), (last.to_llm_message().content[0], "first first")):
        assert each.text.startswith(begins)
        assert len(each.text) < 40_000
        assert "the log has all of event" in each.text
    assert view.events[-2] is big


def test_cleared_calls_are_cleared_for_the_sdk():
    view = View.from_events(
        [*messages(2), *worked("one " * 800), *worked("two " * 800), *worked("three " * 800)]
    )
    config = {"type": "clear_tool_uses", "trigger": 200, "keep": 1, "clear_tool_inputs": True}
    events = FoldlogCondenser(config=config).condense(view).events
    arguments = [
        json.loads(event.tool_call.arguments) for event in events if isinstance(event, ActionEvent)
    ]
    assert [[*each] for each in arguments] == [["cleared"], ["cleared"], ["what"]]
    results = [
        "".join(map(str, event.to_llm_message().content))
        for event in events
        if event.to_llm_message().role == "tool"
    ]
    assert ["one" in results[0], "two" in results[1], "three" in results[2]] == [False, False, True]


def test_hidden_events_are_hidden_for_the_sdk():
    view = View.from_events(messages(30))
    recent = FoldlogCondenser(
        config={"type": "recent_events", "max_events": 6, "keep_first": 2}
    ).condense(view)
    assert recent.events == [*view.events[:2], *view.events[-4:]]


def test_nothing_to_forget_is_the_sdks_error():
    view = View.from_events([*messages(0), CondensationRequest()])
    with pytest.raises(NoCondensationAvailableException):
        FoldlogCondenser().condense(view)


def test_a_condenser_survives_json():
    condenser = FoldlogCondenser(config={"type": "digest", "max_size": 50})
    assert CondenserBase.model_validate_json(condenser.model_dump_json()) == condenser


@pytest.mark.parametrize("type, handles", [("digest", True), ("noop", False)])
def test_only_a_condenser_that_forgets_handles_requests(type, handles):
    condenser = FoldlogCondenser(config={"type": type})
    assert condenser.handles_condensation_requests() is handles


def test_a_key_in_the_configuration_is_refused():
    keyed = {"type": "llm", "llm_config": {"model": "openai/gpt-4o", "api_key": "secret"}}
    with pytest.raises(ValidationError, match="set the key in the environment"):
        FoldlogCondenser(config=keyed)


def test_a_misspelt_option_is_refused():
    with pytest.raises(ValidationError, match="max_sise"):
        FoldlogCondenser(config={"type": "digest", "max_sise": 4})


def test_a_condenser_condenses_in_an_event_loop():
    assert asyncio.run(FoldlogCondenser().acondense(View.from_events(messages(3)))).events
