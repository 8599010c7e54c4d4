"""What OpenHands V0 records mean, the strange ones too."""

from __future__ import annotations

import json
import re
import sqlite3
from contextlib import closing

import pytest

from foldlog.eventstore import (
    Action,
    Annotation,
    CondensationRequest,
    CondensationSummary,
    Message,
    Observation,
    Origin,
    SystemMessage,
)
from foldlog.formats import UnknownFormat, decode, encode
from tests.foldlog.formats.reading import histories_at, reader_of
from tests.foldlog.records import records_of

V0 = "openhands-v0"


def action(name, number=0, source="agent", **args):
    return {"id": number, "source": source, "action": name, "args": args}


def observation(name, number=0, cause=None, content="", **extras):
    record = {
        "id": number,
        "source": "environment",
        "observation": name,
        "content": content,
        "extras": extras,
    }
    return record if cause is None else {**record, "cause": cause}


read = reader_of(V0)


def one(record, **how):
    (event,) = read(record, **how)
    return event


def test_a_message_is_said_by_its_source():
    event = one(action("message", 7, source="user", content="hi", image_urls=None))
    assert isinstance(event, Message)
    assert (event.content, event.source, event.origin.id, event.id, event.shown) == (
        "hi",
        "user",
        7,
        0,
        True,
    )


@pytest.mark.parametrize("spelling", ["image_urls", "images_urls"])
def test_images_of_a_message_become_parts(spelling):
    event = one(action("message", content="look", **{spelling: ["data:a", "https://b"]}))
    assert event.content == (
        {"type": "text", "text": "look"},
        {"type": "image_url", "image_url": {"url": "data:a"}},
        {"type": "image_url", "image_url": {"url": "https://b"}},
    )


def test_the_system_prompt_brings_its_tools():
    event = one(action("system", content="You are", tools=[{"type": "function"}]))
    assert isinstance(event, SystemMessage)
    assert (event.content, event.tools) == ("You are", ({"type": "function"},))


@pytest.mark.parametrize(
    "args, said",
    [
        ({"thought": "bye"}, "bye"),
        ({"final_thought": "done", "thought": "t"}, "done"),
        ({"outputs": {}}, ""),
    ],
)
def test_finish_is_what_the_agent_says_last(args, said):
    event = one(action("finish", **args))
    assert isinstance(event, Message)
    assert (event.content, event.source) == (said, "agent")


def test_an_action_keeps_its_thought_apart_from_its_arguments():
    event = one(action("run", command="ls", thought="look around", hidden=False))
    assert isinstance(event, Action)
    assert (event.tool, event.thought, event.arguments) == (
        "run",
        "look around",
        {"command": "ls", "hidden": False},
    )


def test_the_error_observation_is_an_error():
    assert one(observation("error", content="boom")).is_error
    assert not one(observation("run", content="error")).is_error


def test_a_rejection_without_a_reason_says_that_the_action_was_not_done():
    records = [action("run", command="rm -r /"), observation("user_rejected", 1, cause=0)]
    events = read(*records)
    assert events[1].content == "OBSERVATION:\n\n[Last action has been rejected by the user]"


def test_a_naive_time_stays_text_and_is_never_called_utc():
    event = one({**action("run"), "timestamp": "2025-08-31T15:23:21.581223"})
    assert (event.timestamp, event.origin.time) == (None, "2025-08-31T15:23:21.581223")
    event = one({**action("run"), "timestamp": "2025-08-31T17:23:21.5+02:00"})
    assert (event.timestamp.isoformat(), event.origin.time) == (
        "2025-08-31T15:23:21.500000+00:00",
        None,
    )


# -- condensations
# --------------------------------------------------------------------------------------------------


def test_a_range_with_a_summary_is_one_too():
    args = {
        "forgotten_event_ids": None,
        "forgotten_events_start_id": 9,
        "forgotten_events_end_id": 74,
    }
    event = one(
        {**action("condensation", **args, summary="S", summary_offset=4), "message": "Summary: S"}
    )
    assert (event.forgotten_events_start_id, event.forgotten_events_end_id) == (9, 74)
    assert (event.summary, event.summary_offset, event.shown) == ("S", 4, False)


@pytest.mark.parametrize(
    "args",
    [
        {},
        {"forgotten_events_start_id": 1},
        {"forgotten_event_ids": [1], "forgotten_events_start_id": 1, "forgotten_events_end_id": 2},
        {"forgotten_event_ids": [1], "summary": "x"},
        {"forgotten_event_ids": [1], "summary_offset": 1},
        {"forgotten_event_ids": "all"},
        {"forgotten_event_ids": [True]},
        {"forgotten_events_start_id": 1.0, "forgotten_events_end_id": 2},
    ],
)
def test_what_no_reference_takes_for_a_condensation_is_kept_and_changes_nothing(args):
    event = one(action("condensation", **args), as_history=True)
    assert isinstance(event, Annotation)
    assert (event.name, event.data, event.shown) == ("condensation", {"args": args}, False)


def test_requests_and_stored_summaries_are_what_they_are():
    assert isinstance(one(action("condensation_request")), CondensationRequest)
    summary = one(observation("condense", content="what was"))
    assert isinstance(summary, CondensationSummary)
    assert (summary.content, summary.shown, summary.summary_of) == ("what was", True, None)


# -- from stream to history
# -------------------------------------------------------------------------------------------


def test_a_history_shows_everything_but_condensations_and_requests():
    records = [
        observation("agent_state_changed", 2),
        observation("null", 3),
        action("change_agent_state", 4),
        action("run", 5, command="ls", hidden=True),
        action("condensation_request", 6),
        action("condensation", 7, forgotten_event_ids=[]),
    ]
    events = read(*records, as_history=True)
    assert [event.shown for event in events] == [True, True, True, True, False, False]
    # so that a condenser which masks observations masks it
    assert isinstance(events[0], Observation)
    assert isinstance(events[1], Observation)


# -- odd records
# --------------------------------------------------------------------------------------------------


def test_an_object_with_both_names_is_an_action():
    assert isinstance(one({"action": "run", "observation": "run", "args": {}}), Action)
    assert isinstance(one({"action": None, "observation": "run"}), Observation)


def test_a_format_that_is_not_there_is_named():
    with pytest.raises(
        UnknownFormat, match="'nonsense' is not a format; choose one of openhands-v0, openhands-v1,"
    ):
        decode([], "nonsense")
    with pytest.raises(
        UnknownFormat, match="'Cline' is not a format; its histories are anthropic-messages; choose"
    ):
        decode([], "Cline")
    with pytest.raises(UnknownFormat, match="'nonsense' is not a format"):
        encode([], "nonsense")


def test_an_export_needs_the_whole_history():
    events = read(action("run", 0), action("run", 1))
    with pytest.raises(ValueError, match="expected event 0, found event 1"):
        list(encode(events[1:], "openai-chat"))


def test_a_history_is_not_exported_in_another_format_than_its_own_or_chat():
    events = read(action("message", 0, source="user", content="hi"))
    with pytest.raises(
        UnknownFormat, match=r"imported from 'openhands-v0'.*in any format \(--view, "
    ):
        encode(events, "openhands-v1")
    assert list(encode(events, "openai-chat")) == [{"role": "user", "content": "hi"}]
    # no format writes it
    own = Message(id=0, source="user", content="hi", origin=Origin(format="my-bot"))
    with pytest.raises(UnknownFormat, match="from 'my-bot'; export it as 'openai-chat', or what"):
        encode([own], "openhands-v1")


def test_a_condensation_is_told_in_ids_of_the_log(foldlog, tmp_path):
    """The ids of a V0 file need not begin at 0, and lack those that its program left out."""
    said = [
        action("message", number, "user", content=f"number {number}")
        for number in (4, 6, 9, 11, 12)
    ]
    by_list = action("condensation", 14, forgotten_event_ids=[6, 9, 12, 3])
    by_range = {"forgotten_events_start_id": 5, "forgotten_events_end_id": 10}
    (tmp_path / "v0.json").write_text(
        json.dumps([*said, by_list, action("condensation", 20, **by_range)])
    )
    assert foldlog("import", str(tmp_path / "v0.json"), "--conversation", "c").status == 0
    for command in (
        ("log", "c", "--start", "5", "--stop", "6"),
        ("show", "c", "5"),
        ("why", "c", "5"),
    ):
        assert "1-2, 4" in foldlog(*command).out
    assert re.search(r"forgotten:?\s+1-2\n", foldlog("log", "c", "--full", "--tail", "1").out)
    assert foldlog("show", "c", "5", "--json").document["event"]["forgotten_event_ids"] == [
        6,
        9,
        12,
        3,
    ]
    assert foldlog("export", "--to", "audit.db").status == 0
    with closing(sqlite3.connect("audit.db")) as audit:
        told = audit.execute(
            "SELECT forgotten, forgotten_count FROM condensations ORDER BY id"
        ).fetchall()
    assert told == [("[[1,2],[4,4]]", 3), ("[[1,2]]", 2)]


@pytest.mark.parametrize("format", ["auto", "openhands-v0"])
def test_an_array_on_a_line_is_a_history_unless_it_is_a_pair(tmp_path, format):
    records = records_of("openhands-v0")
    (tmp_path / "kite.jsonl").write_text(
        json.dumps(records[:6]) + "\n" + json.dumps(records) + "\n"
    )
    histories = histories_at(tmp_path / "kite.jsonl", format)
    assert [history.records for history in histories] == [records[:6], records]


def test_what_comes_between_a_delegation_and_its_result_is_not_shown():
    inner = [action("run", 2, command="ls"), observation("run", 3, cause=2, content="a.py")]
    begun = [action("message", 0, "user", content="hi"), action("delegate", 1, agent="B"), *inner]
    ended = [observation("delegate", 4, cause=1), action("run", 5, command="pwd")]
    assert [event.shown for event in read(*begun)] == [True, True, False, False]
    assert [event.shown for event in read(*begun, *ended)] == [True, True, False, False, True, True]
