"""Rules that hold for every format: what is written, what is sent to a model, and how a source
grows.
"""

import json

import pytest
from msgspec.structs import replace

from foldlog import from_openai, open as open_histories
from foldlog.eventstore import (
    Action,
    CondensationAction,
    InvalidEvent,
    Message,
    Observation,
    SystemMessage,
)
from foldlog.formats import FORMATS, decode, detect, encode
from foldlog.projections import View
from foldlog.runtimes import format_named
from tests.foldlog.formats.reading import histories_at
from tests.foldlog.formats.writing import WRITTEN
from tests.foldlog.records import CORPUS, GOLDEN, records_of, write_lines
from tests.how_many import some
from tests.projections.chat_rules import PROBLEMS
from tests.said import said

RECORDS = {name: records_of(name) for name in FORMATS}
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
OURS = [
    SystemMessage(id=0, content="You are"),
    Message(id=1, source="user", content=({"type": "text", "text": "list"}, IMAGE)),
    Action(
        id=2,
        tool="run",
        arguments='{"command": "ls"}',
        call_id="k1",
        response_id="r",
        thought="I look",
    ),
    Action(id=3, tool="run", arguments={"n": 1}, call_id="k2", response_id="r"),
    Observation(id=4, tool="run", call_id="k1", cause=2, content="lost", is_error=True),
    Observation(id=5, tool="run", call_id="k2", cause=3, content="found"),
    Action(id=6, tool="wait", arguments={}),
    Message(id=7, source="agent", content="done"),
    Message(id=8, source="environment", content="told"),
]


@pytest.mark.parametrize("format", FORMATS)
def test_file_is_read_whatever_its_name(tmp_path, format):
    content = (CORPUS / f"{format}.jsonl").read_bytes()
    read = []
    for name in some(["c.json", "c.jsonl", "c.txt", "c.bak", "c", "stdin"], 3):
        path = tmp_path / name
        path.write_bytes(content)
        (history,) = histories_at(path)
        called = history.name.removesuffix(":1")  # an array of messages may stand on each line
        findings = [str(finding).replace(str(path), "") for finding in history.findings]
        read.append((called.replace("stdin", "c"), history.format, history.events, findings))
        assert len(history.events) > 2
    assert [other for other in read if other != read[0]] == []


HALF = "\ud83d"
"""Half a surrogate pair, which some models write, and UTF-8 does not hold."""


def test_arguments_that_no_json_holds_are_exported(foldlog):
    with open_histories("foldlog.db") as histories:
        histories["c"].append(said(f"hi {HALF}"))
        for n, arguments in enumerate(
            ({"x": HALF}, f'{{"x": "{HALF}"}}', f'{{"x": "{HALF}', "[" * 100_000)
        ):
            call = {
                "tool": f"t{HALF}",
                "arguments": arguments,
                "call_id": f"k{n}{HALF}",
                "thought": f"so {HALF}",
            }
            histories["c"].append(
                [Action(**call), Observation(call_id=f"k{n}{HALF}", content=HALF)]
            )
        summed = {"summary": f"so far b'{HALF}", "summary_offset": 1}
        histories["c"].append(
            CondensationAction(forgotten_events_start_id=1, forgotten_events_end_id=2, **summed)
        )
        for format in WRITTEN:
            records = list(histories["c"].export(format, notes=lambda note: None))
            assert "\\ud" not in json.dumps(records), format
    for format in WRITTEN:
        assert "hi ?" in foldlog("export c --format", format).out


@pytest.mark.parametrize("format", WRITTEN)
def test_unsent_events_are_counted_not_written(format):
    """A command of the user and its result are written as messages, as a View shows them."""
    ran = Action(id=9, tool="run", source="user", thought="I ran it", call_id="k3")
    came = Observation(id=10, tool="run", source="user", cause=9, call_id="k3", content="came")
    words = [
        Message(id=9, source="user", content="I ran it"),
        Message(id=10, source="environment", content="came"),
    ]
    hidden = [
        replace(OURS[1], id=11, shown=False),
        Action(id=12, tool="recall", source="user"),
        Action(id=13, tool="run", call_id="k4", shown=False),
        Observation(
            id=14, tool="run", cause=13, call_id="k4", content="of a sub-agent", shown=False
        ),
        replace(OURS[4], id=15),
    ]
    notes = []
    records = list(encode([*OURS, ran, came, *hidden], format, notes=notes.append))
    assert records == list(encode([*OURS, *words], format))
    note = "left out: 1 message of the user, 2 actions, 2 observations, which no model saw"
    assert f"{note}; 'foldlog log ID' shows them" in notes


@pytest.mark.parametrize("format", WRITTEN)
def test_missing_times_stay_missing(format):
    times = {
        (event.timestamp, event.origin.time or None)
        for event in decode(encode(OURS, format), format)
    }
    assert times == {(None, None)}, (
        "formats that cannot leave out a time write the beginning of 1970"
    )


@pytest.mark.parametrize("format", FORMATS)
def test_history_grows_and_each_version_is_sendable(format):
    """The events of the first records are the first events of all; the View at every version is a
    chat.
    """
    records = RECORDS[format]
    assert detect(records) == format
    events = list(decode(records, format))
    for count in range(len(records)):
        begun = list(decode(records[:count], format))
        assert begun == events[: len(begun)]
    for version in range(len(events) + 1):
        view = View.from_events(events[:version])
        for form, problems in PROBLEMS.items():
            assert problems(view.to_messages(form)) == [], (version, form)


REPEATED = {
    "claude-code": "toolUseResult",
    "cursor": "thinking",
    "gemini-cli": "$set",
    "opencode": "error",
    "openhands-v0": "tool_call_metadata",
}
"""A field of each format that repeats other records, or is for people."""


def with_words(record, words, repeated):
    """Yield the record with a field, and with a part in each of its lists, that no program of today
    writes.
    """
    part = {"type": "future", "text": words}
    yield {**record, "futureWords": [part]}
    for name, member in record.items():
        if name in ("usage", repeated):
            continue
        if type(member) is list and any(type(item) is dict for item in member):
            yield {**record, name: [*member, part]}
        elif type(member) is dict:
            for changed in with_words(member, words, repeated):
                yield {**record, name: changed}


def events_and_findings(records, format):
    findings = []
    events = list(decode(records, format, findings=lambda it: findings.append(str(it))))
    return events, findings


@pytest.mark.parametrize("format", FORMATS)
def test_every_word_becomes_event_or_finding(format):
    words = "words of a later version"
    unseen = []
    shapes = set()
    for number, record in enumerate(RECORDS[format]):
        shape = str(record.get("type")), *sorted(record)
        if shape in shapes:
            continue
        shapes.add(shape)
        for changed in with_words(record, words, REPEATED.get(format)):
            before = RECORDS[format][max(number - 5, 0) : number]
            events, findings = events_and_findings([*before, changed], format)
            is_read = any(words in str(event) for event in events)
            if not is_read and not any(it.startswith(f"record {len(before)}: ") for it in findings):
                unseen.append(changed)
    assert unseen == []


@pytest.mark.parametrize("format", FORMATS)
def test_format_reads_all_its_own_records(format):
    _, findings = events_and_findings(RECORDS[format], format)
    assert [it for it in findings if "does not read" in it] == []


UNTIMED = {"agent-framework", "langchain", "openai-chat", "openai-responses", "swe-agent"}
"""Formats whose first record does not tell when it was written: the same words may be said
twice.
"""
NAMED = {*UNTIMED, "chatgpt", "claude-ai"}
"""Formats in which such a log is named in a finding. An export of a chat has no log that could be
written so.
"""


@pytest.mark.parametrize("format", FORMATS)
def test_log_written_twice_is_read_once_or_named(format, tmp_path):
    records = RECORDS[format]
    problems = []
    count = len(records)
    twice = records * 2
    list(decode(twice, format, findings=problems.append))
    with open_histories("memory:") as histories:

        def imported(name, *lengths):
            for length in lengths:
                write_lines(tmp_path / name, twice[:length])
                options = {"format": format, "conversation": name, "findings": problems.append}
                (history,) = histories.import_(tmp_path / name, **options)
            document = history.stats().document()
            return history, [
                document.models,
                document.tools,
                document.errors,
                history.view().to_messages(),
            ]

        history, figures = imported("twice", count * 2)
        grown, grown_figures = imported("grown", count, count + 1, count * 3 // 2, count * 2)
        assert grown_figures[-1] == figures[-1]
        # Spans are sorted, so a file of spans that grew is a fork, which counts only its own spans.
        if format != "otlp-genai":
            assert grown_figures == figures
            assert [*grown.events()] == [*history.events()]
        is_read_once = figures == imported("once", count)[1]
    is_named = any("repeats all earlier records" in str(problem) for problem in problems)
    assert is_named == (format in NAMED)
    assert is_read_once == (format not in NAMED and format != "openhands-v0")


NO_RECORDS = json.loads((GOLDEN / "no_records.json").read_text("utf-8"))
"""Objects that lack little of what a record has. Each object may be a part of a trajectory of
ATIF.
"""
OF_V0 = {
    "an array": "expected an event object or an array of event objects, found an empty array",
    "another object": (
        "an event has a text under 'action' or 'observation', but this object has neither"
    ),
}


@pytest.mark.parametrize("format", FORMATS)
def test_what_is_no_record_says_where_and_why(format):
    others = [(NO_RECORDS[format], "another object")] if format in NO_RECORDS else []
    usual = []
    list(decode(RECORDS[format], format, findings=usual.append))
    for record, value_name in (
        (5, "a number"),
        ("x", "a string"),
        (None, "null"),
        ([], "an array"),
        *others,
    ):
        findings = []
        events = list(decode([record, *RECORDS[format]], format, findings=findings.append))
        assert events == list(decode(RECORDS[format], format))
        finding, *of_records = map(str, findings)
        assert len(of_records) == len(usual)
        message = f"expected {format_named(format).expected}, found {value_name}"
        if format == "openhands-v0":
            message = OF_V0.get(value_name, message)
        assert finding == f"record 0: {message}"
        with pytest.raises(InvalidEvent, match="record 0"):
            list(decode([record], format))


@pytest.mark.parametrize("format", FORMATS)
def test_an_object_that_no_json_has_is_no_record(format):
    with open_histories("memory:") as histories, pytest.raises(InvalidEvent):
        histories["c1"].append_records([{1: 2}], format=format)


@pytest.mark.parametrize("format", WRITTEN)
def test_custom_calls_and_refusals_are_written(format):
    call = {"id": "k1", "type": "custom", "custom": {"name": "patch", "input": "*** Begin"}}
    refused = {"role": "assistant", "content": None, "refusal": "I cannot."}
    events = from_openai(
        [{"role": "developer", "content": "Be brief."}, refused, {**refused, "tool_calls": [call]}]
    )
    records = list(encode((replace(event, id=n) for n, event in enumerate(events)), format))
    again = View.from_events(replace(event, shown=True) for event in decode(records, format))
    assert "I cannot." in str(again.to_messages())
    assert "*** Begin" in json.dumps(records)
