"""Items of OpenAI's Responses API: one event each, and back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import foldlog
from foldlog._formats.format import Options
from foldlog._formats.openai_responses import FORMAT
from foldlog.eventstore import Action, Annotation, Message, Observation, SystemMessage, codec
from foldlog.formats import Encoder, NotAnEvent, decode, encode
from foldlog.projections import View, well_formed

CORPUS = Path(__file__).parents[2] / "fuzz" / "corpus" / "openai-responses.jsonl"
ITEMS = [json.loads(line) for line in CORPUS.read_text().splitlines()]


def read(*items):
    return list(decode(items, "openai-responses"))


def written(*events):
    return list(encode(events, "openai-responses"))


def test_each_item_is_one_event_of_its_kind():
    events = read(*ITEMS[:10])
    kinds = [
        Message,
        Annotation,
        Action,
        Observation,
        Action,
        Observation,
        Annotation,
        Message,
        SystemMessage,
        Annotation,
    ]
    assert [type(event) for event in events] == kinds
    assert [event.cause for event in events] == [None, None, None, 2, None, 4, None, None, None, None]
    assert [event.tool for event in events if isinstance(event, Observation)] == ["measure", "apply"]
    assert [event.stays_with_next for event in events] == [place == 1 for place in range(10)]
    assert all(event.shown for event in events)
    assert [event.source for event in events if isinstance(event, Message)] == ["user", "agent"]


def test_they_come_back_with_their_keys_in_order():
    assert [json.dumps(item) for item in written(*read(*ITEMS))] == [json.dumps(item) for item in ITEMS]


def test_what_agents_write_takes_little_more_than_it_took():
    long = "word " * 160
    usual = [
        {"content": long, "role": "user"},
        {**ITEMS[1], "encrypted_content": long},
        {**ITEMS[2], "arguments": json.dumps({"text": long})},
        {**ITEMS[3], "output": long},
        {**ITEMS[7], "content": [{"annotations": [], "text": long, "type": "output_text"}]},
    ]
    stored = sum(len(codec.encode(event).body) for event in read(*usual))
    assert stored <= 1.12 * sum(len(json.dumps(item, separators=(",", ":"))) for item in usual)


def test_any_part_of_a_history_can_be_written():
    with foldlog.open("memory:") as histories:
        history = histories["c1"]
        history.append_records(ITEMS[:4], format="openai-responses")
        history.append_records(ITEMS[4:], format="openai-responses")
        for start in range(len(ITEMS)):
            encoder = Encoder(FORMAT)
            assert [item for event in history.events(start) for item in encoder.records(event)] == ITEMS[start:]


def test_a_result_finds_its_call_in_another_process():
    with foldlog.open("memory:") as histories:
        history = histories["c1"]
        history.append_records(ITEMS[:3], format="openai-responses")
        del histories._recording
        history.append_records([ITEMS[3]], format="openai-responses")
        assert [event.cause for event in history.tail(1)] == [2]


def test_a_view_is_sendable_and_parts_no_reasoning_from_its_call():
    view = View.from_events(read(*ITEMS[:8]))
    assert len(well_formed(view)) == 8
    assert 2 not in view.cut_points
    assert [message["role"] for message in view.to_messages()] == [
        "user",
        "assistant",
        "tool",
        "assistant",
        "tool",
        "assistant",
    ]


def test_events_of_ours_are_written_as_a_client_would():
    events = [
        SystemMessage(id=0, content="be brief"),
        Message(
            id=1,
            source="user",
            content=({"type": "text", "text": "see"}, {"type": "image_url", "image_url": {"url": "u"}}),
        ),
        Action(id=2, tool="run", arguments={"a": 1}, thought="let me see"),
        Observation(id=3, content="done", cause=2),
        Message(id=4, source="agent", content="fine"),
    ]
    assert written(*events) == [
        {"content": "be brief", "role": "system"},
        {"content": [{"text": "see", "type": "input_text"}, {"type": "input_image", "image_url": "u"}], "role": "user"},
        {"content": "let me see", "role": "assistant"},
        {"arguments": '{"a": 1}', "call_id": "call_2", "name": "run", "type": "function_call", "status": "completed"},
        {"call_id": "call_2", "output": "done", "type": "function_call_output"},
        {"content": "fine", "role": "assistant"},
    ]


@pytest.mark.parametrize("bad", ["text", [], {"content": "x"}, {"type": 3}, None])
def test_what_is_not_an_item_is_refused(bad):
    with pytest.raises(NotAnEvent, match="an item is an object with a text under 'type' or 'role'"):
        FORMAT.decoder((), Options()).events(bad)
