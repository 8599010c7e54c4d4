"""What OpenHands V0 records mean, the strange ones too."""

from __future__ import annotations

import json
import re
import sqlite3
from contextlib import closing

import pytest

from foldlog.eventstore import (
    Message,
    Origin,
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
