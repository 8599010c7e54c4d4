"""Each format has the calls of one reply together, and each result where its program looks for
it.
"""

import json
import re

import pytest

from foldlog.adapters._shared import shown_records
from foldlog.eventstore import Action, DocumentChanges, Message, Observation, SystemMessage
from foldlog.formats import Encoder, decode
from tests.foldlog.formats.writing import written

HISTORIES = {
    "two": ("?k1 ?k2 =k1 =k2", ["?k1 ?k2 =k1 =k2"]),
    "three, with results in another order": (
        "?k1 ?k2 ?k3 =k3 =k1 =k2",
        ["?k1 ?k2 ?k3 =k1 =k2 =k3"],
    ),
    "one without a result": ("?k1 ?k2 ?k3 =k3 =k1 >stop", ["?k1 ?k2 ?k3 =k1 =k3", ">stop"]),
    "each with its result at once": ("?k1 =k1 ?k2 =k2", ["?k1 ?k2 =k1 =k2"]),
    "a document between": ("?k1 ?k2 =k2 + =k1", ["?k1 ?k2 =k1 =k2"]),
    "two replies that wait": ("?k1 ?k4 ?k5 =k5 =k1 =k4", ["?k1 =k1", "?k4 ?k5 =k4 =k5"]),
    "one reply after the other": (
        "?k1 ?k2 =k2 =k1 ?k4 ?k5 =k5 =k4",
        ["?k1 ?k2 =k1 =k2", "?k4 ?k5 =k4 =k5"],
    ),
    "words between": ("?k1 ?k2 =k2 >stop =k1 >done", ["?k1 ?k2 =k1 =k2", ">stop", ">done"]),
    "a result without a call": ("=k9 ?k1 =k1", ["?k1 =k1"]),
    "a result twice": ("?k1 ?k2 =k2 =k2 =k1", ["?k1 ?k2 =k1 =k2"]),
    "a system prompt between": ("?k1 ?k2 =k2 !rule =k1", ["?k1 ?k2 =k1 =k2", ">rule"]),
    "words of the model between": ("?k1 >so ?k2 =k2 =k1", ["?k1 =k1", ">so", "?k2 =k2"]),
    "a result after more words": ("?k1 >stop >done =k1", ["?k1 =k1", ">stop", ">done"]),
    "a result after another reply": ("?k1 ?k2 =k2 ?k4 =k4 =k1", ["?k1 ?k2 =k1 =k2", "?k4 =k4"]),
}
"""What happens: calls, results, words and a document; and the replies with their results, and the
words.
"""


def events_of(steps):
    """Yield the events of these steps. One reply has the calls k1 to k3, another k4 and k5."""
    calls = {}
    yield Message(id=0, source="user", content="says go")
    for number, step in enumerate(steps.split(), 1):
        name = step[1:]
        response = "r4" if step[1:] > "k3" else "r1"
        if step[0] == "?":
            thought = "I look" if name in ("k1", "k4") else ""
            fields = {
                "arguments": {"asks": name},
                "call_id": name,
                "response_id": response,
                "thought": thought,
            }
            calls[name] = Action(id=number, tool="run", **fields)
            yield calls[name]
        elif step[0] == "=":
            cause = calls[name].id if name in calls else None
            yield Observation(
                id=number, tool="run", content=f"gives {name}", call_id=name, cause=cause
            )
        elif step[0] == ">":
            yield Message(
                id=number,
                source="agent" if name in ("done", "so") else "user",
                content=f"says {name}",
            )
        elif step[0] == "!":
            yield SystemMessage(id=number, content=f"says {name}")
        else:
            yield DocumentChanges(id=number, changed={"plan": {"value": "go"}}, source="user")


MARKS = re.compile(r"(asks|gives|says)\W+(\w+)")
SIGNS = {"asks": "?", "gives": "=", "says": ">"}


def steps_of(record):
    """Return what a record tells, as the steps above."""
    return list(
        dict.fromkeys(SIGNS[mark] + name for mark, name in MARKS.findall(json.dumps(record)))
    )


def each_result(calls, results):
    """Return one message with the calls, and one for each result."""
    return [calls, *([result] for result in results)]


def all_results(calls, results):
    """Return one message with the calls, and one with the results."""
    return [calls, results]


def one_message(calls, results):
    """Return one message with the calls and the results."""
    return [[*calls, *results]]


def items(calls, results):
    """Return a record for each call and each result."""
    return [[item] for item in (*calls, *results)]


SHAPES = {
    each_result: ("openai-chat", "langchain"),
    all_results: ("anthropic-messages", "pydantic-ai", "google-adk", "agent-framework", "strands"),
    one_message: ("atif",),
    items: ("openai-responses",),
}
MESSAGES = [name for names in SHAPES.values() for name in names]


def expected_of(history, shape):
    for reply in (">go", *HISTORIES[history][1]):
        calls, results, words = (
            [step for step in reply.split() if step[0] == sign] for sign in "?=>"
        )
        yield from [words] if words else filter(None, shape(calls, results))


@pytest.mark.parametrize("history", HISTORIES)
@pytest.mark.parametrize(
    "format, shape", [(name, shape) for shape, names in SHAPES.items() for name in names]
)
def test_calls_of_a_reply_come_before_results(format, shape, history):
    records = map(steps_of, written(events_of(HISTORIES[history][0]), format))
    assert list(map(sorted, filter(None, records))) == list(
        map(sorted, expected_of(history, shape))
    )


@pytest.mark.parametrize("format", MESSAGES)
def test_open_call_holds_few_messages_back(format):
    encoder = Encoder(format)
    call, *_ = (event for event in events_of("?k1") if isinstance(event, Action))
    messages = [
        Message(id=number, source="user", content=f"says w{number}") for number in range(2, 102)
    ]
    late = Observation(id=102, tool="run", content="gives k1", call_id="k1", cause=call.id)
    at_once = [
        step
        for event in (call, *messages)
        for record in encoder.records(event)
        for step in steps_of(record)
    ]
    assert len(at_once) > 50
    after = [
        step for record in [*encoder.records(late), *encoder.end()] for step in steps_of(record)
    ]
    assert [*at_once, *after] == ["?k1", *(f">w{number}" for number in range(2, 102)), "=k1"]


@pytest.mark.parametrize("history", HISTORIES)
def test_span_has_results_right_after_calls(history):
    events = list(events_of(HISTORIES[history][0]))
    *_, last = written([*events, Message(id=len(events), source="agent", content="")], "otlp-genai")
    assert steps_of(last) == list(
        dict.fromkeys(step for record in expected_of(history, all_results) for step in record)
    )


def test_each_line_of_a_call_names_its_reply():
    steps = HISTORIES["one reply after the other"][0].split()
    lines = written(events_of(" ".join(steps)), "openhands-v1")
    assert [steps_of(line) for line in lines if steps_of(line)] == [
        [step] for step in (">go", *steps)
    ]
    named = [
        re.findall(r'"(r[14])"', json.dumps(line)) for line in lines if "?" in str(steps_of(line))
    ]
    assert named == [["r1"], ["r1"], ["r4"], ["r4"]]


@pytest.mark.parametrize("format", SHAPES[all_results])
def test_the_results_of_imported_calls_are_one_message(history, format):
    history.append_records(written(events_of("?k1 ?k2"), format), format=format)
    for name in ("k2", "k1"):
        history.append(Observation(tool="run", content=f"gives {name}", call_id=name))
    *_, calling, answering = written(history.events(), format, history._stored_records())
    assert [steps_of(calling), steps_of(answering)] == [["?k1", "?k2"], ["=k2", "=k1"]]


@pytest.mark.parametrize("format", [*MESSAGES, "openhands-v1"])
def test_calls_are_read_back_with_results_and_replies(format):
    steps = HISTORIES["one reply after the other"][0]
    read = list(decode(list(written(events_of(steps), format)), format))
    calls = {
        steps_of(str(event.arguments))[0][1:]: event for event in read if isinstance(event, Action)
    }
    results = [event for event in read if isinstance(event, Observation)]
    assert len(results) == len(calls) > 0
    for result in results:
        call = calls[re.search("gives (..)", str(result.content))[1]]
        assert result.cause == call.id or (result.cause is None and result.call_id == call.call_id)
    if format != "openai-responses":
        replies = [calls[name].response_id for name in ("k1", "k2", "k4", "k5")]
        assert replies[0] == replies[1] != replies[2] == replies[3]


@pytest.mark.parametrize("format", SHAPES[all_results][1:])
def test_calls_shown_in_part_are_one_record(history, format):
    history.append_records(written(events_of("?k1 ?k2 =k1 =k2"), format), format=format)
    shown = [event for event in history.events() if isinstance(event, Action | Observation)]
    records = [list(map(steps_of, records)) for _, records in shown_records(shown, format, history)]
    assert records == [[["?k1", "?k2"]], [["=k1", "=k2"]]]
