"""Each format has the calls of one reply together, and each result where its program looks for it."""

from __future__ import annotations

import json
import re
from types import SimpleNamespace

import pytest

from foldlog.adapters._shared import shown_records
from foldlog.eventstore import Action, DocumentChanges, Message, Observation, SystemMessage
from foldlog.formats import FORMATS, Encoder, decode, encode

HISTORIES = {
    "two": ("?k1 ?k2 =k1 =k2", ["?k1 ?k2 =k1 =k2"]),
    "three, with results in another order": ("?k1 ?k2 ?k3 =k3 =k1 =k2", ["?k1 ?k2 ?k3 =k1 =k2 =k3"]),
    "one without a result": ("?k1 ?k2 ?k3 =k3 =k1 >stop", ["?k1 ?k2 ?k3 =k1 =k3", ">stop"]),
    "each with its result at once": ("?k1 =k1 ?k2 =k2", ["?k1 ?k2 =k1 =k2"]),
    "a document between": ("?k1 ?k2 =k2 + =k1", ["?k1 ?k2 =k1 =k2"]),
    "two replies that wait": ("?k1 ?k4 ?k5 =k5 =k1 =k4", ["?k1 =k1", "?k4 ?k5 =k4 =k5"]),
    "one reply after the other": ("?k1 ?k2 =k2 =k1 ?k4 ?k5 =k5 =k4", ["?k1 ?k2 =k1 =k2", "?k4 ?k5 =k4 =k5"]),
    "words between": ("?k1 ?k2 =k2 >stop =k1 >done", ["?k1 ?k2 =k1 =k2", ">stop", ">done"]),
    "a result without a call": ("=k9 ?k1 =k1", ["?k1 =k1"]),
    "a result twice": ("?k1 ?k2 =k2 =k2 =k1", ["?k1 ?k2 =k1 =k2"]),
    "a system prompt between": ("?k1 ?k2 =k2 !rule =k1", ["?k1 ?k2 =k1 =k2", ">rule"]),
    "words of the model between": ("?k1 >so ?k2 =k2 =k1", ["?k1 =k1", ">so", "?k2 =k2"]),
    "a result after more words": ("?k1 >stop >done =k1", ["?k1 =k1", ">stop", ">done"]),
    "a result after another reply": ("?k1 ?k2 =k2 ?k4 =k4 =k1", ["?k1 ?k2 =k1 =k2", "?k4 =k4"]),
}
"""What happens: calls, results, words and a document; and the replies with their results, and the words."""


def events_of(steps: str):
    """The events of these steps: the calls k1 to k3 are of one reply, k4 and k5 of another."""
    calls = {}
    yield Message(id=0, source="user", content="says go")
    for number, step in enumerate(steps.split(), 1):
        name, response = step[1:], "r4" if step[1:] > "k3" else "r1"
        if step[0] == "?":
            said = "I look" if name in ("k1", "k4") else ""
            given = {"arguments": {"asks": name}, "call_id": name, "response_id": response, "thought": said}
            calls[name] = Action(id=number, tool="run", **given)
            yield calls[name]
        elif step[0] == "=":
            cause = calls[name].id if name in calls else None
            yield Observation(id=number, tool="run", content=f"gives {name}", call_id=name, cause=cause)
        elif step[0] == ">":
            yield Message(id=number, source="agent" if name in ("done", "so") else "user", content=f"says {name}")
        elif step[0] == "!":
            yield SystemMessage(id=number, content=f"says {name}")
        else:
            yield DocumentChanges(id=number, changed={"plan": {"value": "go"}}, source="user")


MARKS = re.compile(r"(asks|gives|says)\W+(\w+)")
SIGNS = {"asks": "?", "gives": "=", "says": ">"}


def told(record):
    """What a record tells, as the steps above."""
    return list(dict.fromkeys(SIGNS[mark] + name for mark, name in MARKS.findall(json.dumps(record))))


def each_result(calls, results):
    """One message with the calls, one for each result."""
    return [calls, *([result] for result in results)]


def all_results(calls, results):
    """One message with the calls, one with the results."""
    return [calls, results]


def one_message(calls, results):
    """One message with both."""
    return [[*calls, *results]]


def items(calls, results):
    """A record for each."""
    return [[each] for each in (*calls, *results)]


def in_turn(calls, results):
    """A record for each, a result after its call, which it does not name."""
    return [[each] for each in sorted((*calls, *results), key=lambda each: (each[1:], each[0] == "="))]


SHAPES = {
    each_result: ("openai-chat", "swe-agent", "inspect-eval", "langchain", "pi", "copilot-cli"),
    all_results: ("anthropic-messages", "pydantic-ai", "google-adk", "agent-framework", "strands"),
    one_message: ("claude-ai", "gemini-cli", "opencode", "atif"),
    items: ("openai-responses",),
    in_turn: ("aider", "chatgpt"),
}
LOGS = ("claude-code", "codex", "openhands-v0", "openhands-v1")
"""Logs with a line for each event, as it happened. The lines of calls name their reply, or stand side by side."""


def expected_of(history, shape):
    for reply in (">go", *HISTORIES[history][1]):
        calls, results, words = ([step for step in reply.split() if step[0] == sign] for sign in "?=>")
        yield from [words] if words else filter(None, shape(calls, results))


@pytest.mark.parametrize("history", HISTORIES)
@pytest.mark.parametrize("format, shape", [(name, shape) for shape, names in SHAPES.items() for name in names])
def test_the_calls_of_a_reply_are_together_and_their_results_after_them(format, shape, history):
    written = map(told, encode(events_of(HISTORIES[history][0]), format))
    expected = (record for record in expected_of(history, shape) if format != "aider" or record != [">rule"])
    assert list(map(sorted, filter(None, written))) == list(map(sorted, expected))


@pytest.mark.parametrize("format", sorted({*FORMATS} - {*LOGS, "aider", "otlp-genai"}))
def test_a_call_without_a_result_holds_few_messages_back(format):
    encoder = Encoder(format)
    call, *_ = (each for each in events_of("?k1") if isinstance(each, Action))
    said = [Message(id=number, source="user", content=f"says w{number}") for number in range(2, 102)]
    late = Observation(id=102, tool="run", content="gives k1", call_id="k1", cause=call.id)
    at_once = [step for event in (call, *said) for record in encoder.records(event) for step in told(record)]
    assert len(at_once) > 50
    after = [step for record in [*encoder.records(late), *encoder.end()] for step in told(record)]
    assert [*at_once, *after] == ["?k1", *(f">w{number}" for number in range(2, 102)), "=k1"]


@pytest.mark.parametrize("history", HISTORIES)
def test_a_span_of_a_reply_is_sent_the_results_right_after_the_calls(history):
    events = list(events_of(HISTORIES[history][0]))
    *_, last = encode([*events, Message(id=len(events), source="agent", content="")], "otlp-genai")
    assert told(last) == list(dict.fromkeys(each for record in expected_of(history, all_results) for each in record))


@pytest.mark.parametrize("format", LOGS)
def test_each_line_of_a_call_names_its_reply(format):
    steps = HISTORIES["one reply after the other"][0].split()
    lines = list(encode(events_of(" ".join(steps)), format))
    assert [told(line) for line in lines if told(line)] == [[step] for step in (">go", *steps)]
    if format != "codex":  # its server reads which items stand side by side
        named = [re.findall(r'"(r[14])"', json.dumps(line)) for line in lines if "?" in str(told(line))]
        assert named == [["r1"], ["r1"], ["r4"], ["r4"]]


@pytest.mark.parametrize("format", SHAPES[all_results])
def test_the_results_of_imported_calls_are_one_message(format):
    steps = "?k1 ?k2 =k2 =k1"
    imported = list(decode(list(encode(events_of(steps[:7]), format)), format))
    calls = {each.call_id: each.id for each in imported if isinstance(each, Action)}
    results = [
        Observation(id=len(imported) + place, tool="run", content=f"gives {name}", call_id=name, cause=calls[name])
        for place, name in enumerate(("k2", "k1"))
    ]
    *_, calling, answering = encode([*imported, *results], format)
    assert [told(calling), told(answering)] == [["?k1", "?k2"], ["=k2", "=k1"]]


@pytest.mark.parametrize("format", sorted({*FORMATS} - {"aider", "codex", "otlp-genai"}))
def test_each_call_is_read_back_with_its_result_and_its_reply(format):
    steps = HISTORIES["one reply after the other"][0]
    read = list(decode(list(encode(events_of(steps), format)), format))
    calls = {told(str(each.arguments))[0][1:]: each for each in read if isinstance(each, Action)}
    for each in (each for each in read if isinstance(each, Observation)):
        call = calls[re.search("gives (..)", str(each.content))[1]]
        assert each.cause == call.id or (each.cause is None and each.call_id == call.call_id)
    if format not in SHAPES[in_turn] and format != "openai-responses":
        replies = [calls[name].response_id for name in ("k1", "k2", "k4", "k5")]
        assert replies[0] == replies[1] != replies[2] == replies[3]


@pytest.mark.parametrize("format", ["strands", "google-adk", "anthropic-messages", "langchain", "gemini-cli", "atif"])
@pytest.mark.parametrize("text, given", [('{"of": "a"}', {"of": "a"}), ("of a", {"invalid_arguments": "of a"})])
def test_a_call_is_given_an_object_where_the_sdk_takes_no_text(format, text, given):
    (call,) = (
        each
        for each in decode(list(encode([Action(id=0, tool="run", call_id="k", arguments=text)], format)), format)
        if isinstance(each, Action)
    )
    assert call.arguments == given


def test_every_format_is_here():
    assert {*LOGS, "otlp-genai", *(name for names in SHAPES.values() for name in names)} == set(FORMATS)


@pytest.mark.parametrize("format", SHAPES[all_results][1:])
def test_the_calls_of_a_message_that_is_shown_in_part_are_one_record(format):
    records = list(encode(events_of("?k1 ?k2 =k1 =k2"), format))
    events = list(decode(records, format))
    shown = [each for each in events if isinstance(each, Action | Observation)]
    history = SimpleNamespace(events=lambda start, stop: events[start:stop])
    assert [list(map(told, written)) for _, written in shown_records(shown, format, history)] == [
        [["?k1", "?k2"]],
        [["=k1", "=k2"]],
    ]
