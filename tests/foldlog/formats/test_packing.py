"""A record comes back from its events alone, whatever it holds."""

import math
from datetime import UTC, datetime
from functools import reduce

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from foldlog._formats import packing
from foldlog._formats.json_text import DEPTH_MAX
from foldlog.eventstore import Action, InvalidEvent, Message, Origin, codec

LONG = 'the same words, once more: "quoted", \\slashed\\, é, \n' * 40
SAMPLES = {
    "openhands-v0": "7a3674e11da1",
    "openhands-v1": "b1257ddb21a8",
    "openai-responses": "1b78f1c946ff",
    "langchain": "6be9e5c60c91",
    "inspect-eval": "0a40280676c0",
    "atif": "11ff3bb528cf",
    "pi": "4586688dac35",
    "anthropic-messages": "258ac33c8282",
    "openai-chat": "fd4acc339e2e",
    "claude-code": "0f552fc4710f",
    "codex": "1ddb7d150f5f",
    "swe-agent": "312fc4094b13",
    "pydantic-ai": "23a694580de1",
    "google-adk": "9d13590f2c48",
    "strands": "9499f0ad086d",
    "agent-framework": "04481d6f7e3e",
    "copilot-cli": "a19d819ba46a",
    "gemini-cli": "bc324f7e13ab",
    "opencode": "4c1f9a005d03",
}
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text()
    | st.sampled_from([LONG, "\x81"]),
    lambda inside: st.lists(inside, max_size=4) | st.dictionaries(st.text(max_size=8), inside, max_size=4),
    max_leaves=12,
)


def packed(record, *events, parsed=False):
    packing.keep(record, events, "openai-chat", parsed=parsed)
    stored = [codec.encode(event) for event in events]
    return [codec.decode(each.kind, each.schema, each.body, place) for place, each in enumerate(stored)]


def message(content="hi"):
    return Message(source="user", content=content, origin=Origin(format="openai-chat"))


@given(values, st.sampled_from(["hi", LONG, "\ud800", ({"type": "text", "text": LONG},)]))
def test_any_json_comes_back_as_it_was(record, content):
    assert repr(packing.unpack(packed(record, message(content)))) == repr(record)


@pytest.mark.parametrize("parsed", [False, True])
@pytest.mark.parametrize(
    "record",
    [
        {"a": math.inf, "b": -0.0},
        {"a": "\ud800", "b": 2**80},
        {"\x01": "\x01\x02" + LONG},
        {"a": LONG, "b": ["\x81", "\x82"]},
        {"a": LONG, "b": reduce(lambda inside, _: [inside], range(200), LONG)},
    ],
    ids=["infinity", "surrogate", "control", "place", "deep"],
)
def test_what_strict_json_or_places_cannot_hold_comes_back_too(record, parsed):
    assert repr(packing.unpack(packed(record, message(LONG), parsed=parsed))) == repr(record)


@pytest.mark.parametrize(
    "numbers, size, own, begin",
    [(60, 2_000, [], "="), (60, 600, [], "1"), (180, 600, [], "1"), (20, 99, "\x81", "1"), (180, 600, "\x81", "1")],
)
def test_what_remains_is_deflated_where_it_is_much_of_a_record(numbers, size, own, begin):
    record = {"content": size * "x", "n": list(range(numbers)), "own": own}
    (event,) = packed(record, message(size * "x"))
    assert (event.origin.rest[0], packing.unpack([event])) == (begin, record)


def test_a_short_rest_is_kept_as_it_is():
    (event,) = packed({"role": "user", "content": LONG}, message(LONG))
    assert event.origin.rest[5:] == "{'role':'user','content':'\x81'}"


def test_a_long_text_of_the_event_costs_a_byte_and_the_values_of_a_call_too():
    call = Action(tool="run", arguments='{"command": "' + "x1 " * 400 + '"}', origin=Origin(format="openai-chat"))
    record = {"role": "assistant", "args": {"command": "x1 " * 400}, "raw": call.arguments}
    (event,) = packed(record, call)
    assert len(event.origin.rest) < 120
    (event,) = packed({"role": "user", "content": LONG, "text": LONG}, message(LONG))
    assert len(event.origin.rest) < 100


def test_the_events_of_a_record_say_where_it_is():
    first, second, third = packed({"x": 1}, *(message(str(number)) for number in range(3)))
    assert (first.origin.rest[1], second.origin.rest, third.origin.rest) == (3, 1, 2)
    assert [packing.events_of(event) for event in (first, second, third)] == [3, 0, 0]
    assert [packing.place_of(event) for event in (first, second, third)] == [0, 1, 2]


def test_a_record_whose_event_was_changed_is_named():
    (event,) = packed({"role": "user", "content": LONG}, message(LONG))
    with pytest.raises(InvalidEvent, match="event 0: the record that it was imported from cannot be unpacked"):
        packing.unpack([replace(event, content=LONG[1:])])
    (event,) = packed({"role": "user", "other": list(range(90))}, message())
    later = replace(event.origin, rest="2" + event.origin.rest[1:])
    with pytest.raises(InvalidEvent, match="needs sample '2' of openai-chat"):
        packing.unpack([replace(event, origin=later)])


def test_a_program_may_set_the_time_of_an_event():
    record = {"role": "user", "content": LONG}
    (event,) = packed(record, message(LONG))
    assert packing.unpack([replace(event, timestamp=datetime(2026, 1, 2, tzinfo=UTC))]) == record


@pytest.mark.parametrize("micros, text", [(0, "01Z"), (20_000, "01.020Z"), (20_001, "01.020001Z"), (0, "01+00:00")])
def test_the_time_of_the_event_costs_two_bytes(micros, text):
    record = {
        "at": f"2026-03-01T09:30:{text}",
        "own": "\x80",
        "surrogate": "\ud800",
        "again": [f"2026-03-01T09:30:{text}"],
    }
    at = datetime(2026, 3, 1, 9, 30, 1, micros, UTC)
    timed, without = packed(record, replace(message(LONG), timestamp=at)) + packed(record, message(LONG))
    assert packing.unpack([timed]) == record
    assert (len(timed.origin.rest) < len(without.origin.rest)) == text.endswith("Z")
    (own,) = packed({"at": "\x80s"}, replace(message(LONG), timestamp=at))
    assert packing.unpack([own]) == {"at": "\x80s"}


def test_what_is_not_json_is_refused():
    with pytest.raises(InvalidEvent, match="the record is not JSON"):
        packing.keep({"x": {1, 2}}, [message()], "openai-chat")
    deep = []
    for _ in range(DEPTH_MAX):
        deep = [deep]
    with pytest.raises(InvalidEvent, match="the record is nested deeper than 480 levels"):
        packing.keep({"x": deep}, [message()], "openai-chat")
