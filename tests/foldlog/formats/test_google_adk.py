"""Events of Google's Agent Development Kit: one event for each part, and back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import foldlog
from foldlog._formats.format import Options
from foldlog._formats.in_parts.google_adk import FORMAT
from foldlog.eventstore import Action, Annotation, Message, Observation, SystemMessage, codec
from foldlog.formats import NotAnEvent, decode, detect, encode
from foldlog.projections import well_formed

CORPUS = Path(__file__).parents[2] / "fuzz" / "corpus" / "google-adk.jsonl"
EVENTS = [json.loads(line) for line in CORPUS.read_text().splitlines()]


def read(*events):
    return list(decode(events, "google-adk"))


def test_each_part_is_one_event_of_its_kind():
    events = read(*EVENTS[:6])
    assert [type(event) for event in events] == [
        *(Message, Message),
        *(Annotation, Message, Action, Action),
        *(Observation, Observation),
        *(Annotation, Annotation, Message),
        Annotation,
        Annotation,
    ]
    assert [event.shown for event in events] == [place != 11 for place in range(13)]
    assert [event.origin.id for event in events if event.origin.id is not None] == [f"e{n}" for n in range(6)]
    assert {event.response_id for event in events if isinstance(event, Action)} == {"e1"}
    assert [event.stays_with_next for event in events] == [place == 2 for place in range(13)]
    assert [event.is_error for event in events if isinstance(event, Observation)] == [False, True]
    assert events[1].content[0]["image_url"]["url"] == "data:image/png;base64,AP8="
    assert events[0].timestamp.timestamp() == EVENTS[0]["timestamp"]


def test_they_come_back_with_their_keys_in_order():
    assert detect(EVENTS) == "google-adk"
    assert [json.dumps(one) for one in encode(read(*EVENTS), "google-adk")] == [json.dumps(one) for one in EVENTS]


def test_a_view_is_sendable_and_pairs_calls_across_appends():
    with foldlog.open("memory:") as histories:
        history = histories["c1"]
        for event in EVENTS[:4]:
            history.append_records([event], format="google-adk")
        roles = [message["role"] for message in history.view().to_messages()]
        assert roles == ["user", "assistant", "assistant", "tool", "tool", "assistant"]
        assert list(well_formed(history.view())) == list(history.view())


def test_what_agents_write_takes_little_more_than_it_took():
    long = "word " * 160
    request, response, results = (json.loads(json.dumps(event)) for event in EVENTS[:3])
    request["content"]["parts"] = [{"text": long}]
    response["content"]["parts"] = [{"text": long}, {"function_call": {"id": "c", "args": {"t": long}, "name": "f"}}]
    results["content"]["parts"] = [{"function_response": {"id": "c", "name": "f", "response": {"result": long}}}]
    stored = sum(len(codec.encode(event).body) for event in read(request, response, results))
    source = sum(len(json.dumps(one, separators=(",", ":"))) for one in (request, response, results))
    assert stored <= 1.12 * source


def test_events_of_ours_are_events_of_their_own():
    events = [
        SystemMessage(id=0, content="be brief"),
        Message(id=1, source="user", content=({"type": "text", "text": "see"},)),
        Action(id=2, tool="run", arguments={"a": 1}),
        Observation(id=3, content="done", cause=2),
        Message(id=4, source="agent", content="fine"),
    ]
    written = list(encode(events, "google-adk"))
    assert [each["author"] for each in written] == ["user", "user", "agent", "agent", "agent"]
    assert [each["content"]["role"] for each in written] == ["user", "user", "model", "user", "model"]
    assert written[2]["content"]["parts"] == [{"function_call": {"id": "call_2", "args": {"a": 1}, "name": "run"}}]
    response = {"id": "call_2", "name": "", "response": {"result": "done"}}
    assert written[3]["content"]["parts"] == [{"function_response": response}]


@pytest.mark.parametrize(
    "bad",
    ["text", [], {"author": "a"}, {"author": "a", "invocation_id": "i", "content": {"parts": ["x"]}}, None],
)
def test_what_is_not_an_event_is_refused(bad):
    with pytest.raises(NotAnEvent, match="an event names its author and its invocation_id, and its parts are objects"):
        FORMAT.decoder((), Options()).events(bad)
