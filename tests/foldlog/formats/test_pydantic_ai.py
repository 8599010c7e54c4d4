"""Messages of pydantic-ai: one event for each part, and back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import foldlog
from foldlog._formats.format import Options
from foldlog._formats.in_parts.pydantic_ai import FORMAT
from foldlog.eventstore import Action, Annotation, CondensationAction, Message, Observation, SystemMessage, codec
from foldlog.formats import Encoder, NotAnEvent, decode, detect, encode
from foldlog.projections import well_formed

CORPUS = Path(__file__).parents[2] / "fuzz" / "corpus" / "pydantic-ai.jsonl"
MESSAGES = [json.loads(line) for line in CORPUS.read_text().splitlines()]


def read(*messages):
    return list(decode(messages, "pydantic-ai"))


def written(*events):
    return list(encode(events, "pydantic-ai"))


def test_each_part_is_one_event_of_its_kind():
    events = read(*MESSAGES[:6])
    assert [type(event) for event in events] == [
        *(SystemMessage, Message),
        *(Annotation, Message, Action, Action),
        *(Observation, Observation),
        *(Annotation, Annotation, Message),
        Annotation,
        Annotation,
    ]
    assert [event.shown for event in events] == [True] * 12 + [False]
    assert [event.origin.id for event in events if event.origin.id is not None] == [f"01a1-{n}" for n in range(6)]
    assert {event.response_id for event in events if isinstance(event, Action)} == {"01a1-1"}
    assert [event.stays_with_next for event in events] == [place == 2 for place in range(13)]
    assert events[1].content[1]["image_url"]["url"] == "data:image/png;base64,AP8="


def test_they_come_back_with_their_keys_in_order():
    assert detect(MESSAGES) == "pydantic-ai"
    assert [json.dumps(one) for one in written(*read(*MESSAGES))] == [json.dumps(one) for one in MESSAGES]


def test_a_view_is_sendable_and_pairs_calls_across_appends():
    with foldlog.open("memory:") as histories:
        history = histories["c1"]
        for message in MESSAGES[:4]:
            history.append_records([message], format="pydantic-ai")
        view = history.view()
        assert [message["role"] for message in view.to_messages()] == [
            *("system", "user", "assistant", "assistant", "tool", "tool", "assistant")
        ]
        assert 3 not in view.cut_points
        assert list(well_formed(view)) == list(view)


def test_what_agents_write_takes_little_more_than_it_took():
    long = "word " * 160
    request, response, results = (json.loads(json.dumps(message)) for message in MESSAGES[:3])
    request["parts"] = [{**request["parts"][1], "content": long}]
    response["parts"] = [{**response["parts"][1], "content": long}, {**response["parts"][2], "args": {"text": long}}]
    results["parts"] = [{**results["parts"][0], "content": long}]
    stored = sum(len(codec.encode(event).body) for event in read(request, response, results))
    source = sum(len(json.dumps(one, separators=(",", ":"))) for one in (request, response, results))
    assert stored <= source


def test_messages_without_ids_and_in_part_are_read_and_written():
    plain = [{key: value for key, value in one.items() if key not in ("entry_id", "parent_id")} for one in MESSAGES]
    assert written(*read(*plain)) == plain
    events = read(*MESSAGES)
    starts = [event.id for event in events if event.origin.id is not None]
    for number, start in enumerate(starts):
        encoder = Encoder(FORMAT)
        part = [message for event in events[start:] for message in encoder.records(event)]
        assert part[: len(starts) - number] == MESSAGES[number : len(starts)]
    with pytest.raises(ValueError, match="begins a record of 4 events, and 2 of them are here"):
        written(*events[:4])


def test_events_of_ours_are_messages_of_their_own():
    events = [
        SystemMessage(id=0, content="be brief"),
        Message(id=1, source="user", content=({"type": "image_url", "image_url": {"url": "https://x/y.png"}},)),
        Action(id=2, tool="run", arguments={"a": 1}),
        Observation(id=3, content="done", cause=2, is_error=True),
        Message(id=4, source="agent", content="fine"),
        CondensationAction(id=5, forgotten_event_ids=[1], summary="before", summary_offset=0),
    ]
    messages = written(*events)
    assert [message["kind"] for message in messages] == ["request", "request", "response", "request", "response"]
    assert [message["parts"][0]["part_kind"] for message in messages] == [
        *("system-prompt", "user-prompt", "tool-call", "tool-return", "text")
    ]
    assert messages[1]["parts"][0]["content"][0]["url"] == "https://x/y.png"
    assert (messages[2]["parts"][0]["tool_call_id"], messages[3]["parts"][0]["tool_call_id"]) == ("call_2", "call_2")
    assert messages[3]["parts"][0]["outcome"] == "failed"


@pytest.mark.parametrize(
    "bad", ["text", [], {"kind": "request"}, {"kind": "other", "parts": []}, {"kind": "request", "parts": [{}]}, None]
)
def test_what_is_not_a_message_is_refused(bad):
    with pytest.raises(NotAnEvent, match="a message is a request or a response with parts that name their part_kind"):
        FORMAT.decoder((), Options()).events(bad)
