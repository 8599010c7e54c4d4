"""Messages of LangChain: events of each kind, and back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import foldlog
from foldlog._formats.format import Options
from foldlog._formats.langchain import FORMAT
from foldlog.eventstore import Action, Annotation, Message, Observation, SystemMessage, codec
from foldlog.formats import Decoder, Encoder, NotAnEvent, decode, detect, encode


def record(kind, content="", **data):
    common = {"content": content, "additional_kwargs": {}, "response_metadata": {}, "type": kind, "name": None}
    return {"type": kind, "data": {**common, "id": None, **data}}


def ai(content, *calls, **data):
    tool_calls = [
        {"name": "f", "args": {"n": n}, "id": call_id, "type": "tool_call"} for n, call_id in enumerate(calls)
    ]
    told = {"tool_calls": tool_calls, "invalid_tool_calls": [], "usage_metadata": None}
    return record("ai", content, **{**told, **data})


def tool(call_id, content="done", **data):
    return record("tool", content, **{"tool_call_id": call_id, "artifact": None, "status": "success", **data})


CORPUS = Path(__file__).parents[2] / "fuzz" / "corpus" / "langchain.jsonl"
RECORDS = [json.loads(line) for line in CORPUS.read_text().splitlines()]


def test_each_message_is_of_its_kind():
    events = list(decode(RECORDS, "langchain"))
    kinds = [SystemMessage, Message, Action, Action, Observation, Observation, Action, Observation]
    assert [type(event) for event in events] == [*kinds, Message, Message, Message, Annotation]
    assert [event.cause for event in events][4:8] == [2, 3, None, 6]
    assert [event.tool for event in events if isinstance(event, Observation)] == ["f", "f", "f"]
    assert [event.is_error for event in events if isinstance(event, Observation)] == [False, True, False]
    assert {event.response_id for event in events[2:4]} == {"1"}
    assert (events[2].thinking[0]["thinking"], events[2].thought[0]["text"]) == ("hm", "I look")
    assert [event.source for event in events if isinstance(event, Message)] == ["user", "agent", "environment", "agent"]
    assert [event.shown for event in events] == [True] * 11 + [False]


def test_they_come_back_with_their_keys_in_order():
    written = encode(decode(RECORDS, "langchain"), "langchain")
    assert [json.dumps(one) for one in written] == [json.dumps(one) for one in RECORDS]


def test_they_are_detected():
    assert detect(RECORDS) == "langchain"


def test_what_agents_write_takes_little_more_than_it_took():
    long = "word " * 160
    usual = [record("human", long, id="h" * 36), ai(long, "c" * 24, id="a" * 36), tool("c" * 24, long, id="t" * 36)]
    stored = sum(len(codec.encode(event).body) for event in decode(usual, "langchain"))
    assert stored <= 1.1 * sum(len(json.dumps(one, separators=(",", ":"))) for one in usual)


def test_any_part_of_a_history_can_be_written():
    with foldlog.open("memory:") as histories:
        history = histories["c1"]
        history.append_records(RECORDS[:3], format="langchain")
        history.append_records(RECORDS[3:], format="langchain")
        starts = [0, 1, 2, 4, 5, 6, 7, 8, 9, 10, 11]
        for place, start in enumerate(starts):
            encoder = Encoder(FORMAT)
            assert [one for event in history.events(start) for one in encoder.records(event)] == RECORDS[place:]


def test_a_part_of_a_message_with_several_calls_is_not_written():
    first, second = list(decode([RECORDS[2]], "langchain"))
    encoder = Encoder(FORMAT)
    assert encoder.records(first) == []
    with pytest.raises(ValueError, match="event 0 begins a record of 2 events, and 1 of them"):
        encoder.end()
    (alone,) = Encoder(FORMAT).records(second)
    assert alone["data"]["tool_calls"] == RECORDS[2]["data"]["tool_calls"][1:]


def test_events_of_ours_are_written_as_an_application_would():
    events = [
        SystemMessage(id=0, content="be brief"),
        Message(id=1, source="user", content="go"),
        Action(id=2, tool="run", arguments={"a": 1}, thought="let me see"),
        Observation(id=3, content="done", cause=2, tool="run"),
        Message(id=4, source="agent", content="fine"),
    ]
    written = list(encode(events, "langchain"))
    assert [one["type"] for one in written] == ["system", "human", "ai", "tool", "ai"]
    assert written[2]["data"]["tool_calls"] == [{"name": "run", "args": {"a": 1}, "id": "call_2", "type": "tool_call"}]
    assert (written[3]["data"]["tool_call_id"], written[3]["data"]["name"]) == ("call_2", "run")


def test_a_decoder_leaves_ids_to_other_events():
    with foldlog.open("memory:") as histories:
        history = histories["c1"]
        history.append_records(RECORDS[:2], format="langchain")
        decoder = Decoder("langchain", history)
        decoder.skip(1)
        events = decoder.events(RECORDS[5])
        assert [event.id for event in events] == [3]
        recorded = history.append([Annotation(name="mark"), *events], expected_version=2)
        assert recorded[1].event.tool == "f"
        assert decoder.version == history.version()


@pytest.mark.parametrize("bad", ["text", [], {"type": "ai"}, {"data": {}}, {"type": 3, "data": {}}, None])
def test_what_is_no_message_is_refused(bad):
    with pytest.raises(NotAnEvent, match="a message is an object with a text under 'type' and an object under 'data'"):
        FORMAT.decoder((), Options()).events(bad)


def test_a_report_counts_the_tokens_of_its_messages():
    usage = {"input_tokens": 10, "output_tokens": 2, "total_tokens": 12, "input_token_details": {"cache_read": 4}}
    said = ai("fine", usage_metadata=usage, response_metadata={"model_name": "m"})
    with foldlog.open("memory:") as histories:
        histories["c1"].append_records([said, ai("no usage"), said], format="langchain")
        (figures,) = histories["c1"].stats().models.items()
    (_, model), counted = figures
    assert (model, counted.calls) == ("m", 2)
    assert (counted.prompt_tokens, counted.cached_tokens, counted.completion_tokens) == (20, 8, 4)
