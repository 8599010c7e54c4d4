"""Which events a search chooses, and in which order; lists by the time of the last event; the
largest prompt beside what the model takes.
"""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from foldlog import Action, Message, Observation, open as foldlog_open
from foldlog._figures import shown
from foldlog._figures.stored import FiguresOfStore
from foldlog._search import search

SESSION = [
    {
        "type": "user",
        "uuid": "u1",
        "sessionId": "session",
        "cwd": "/repo",
        "timestamp": "2025-09-03T10:00:00.000Z",
        "message": {"role": "user", "content": "find the gauge"},
    },
    {
        "type": "assistant",
        "uuid": "u2",
        "parentUuid": "u1",
        "sessionId": "session",
        "timestamp": "2025-09-03T10:00:05.000Z",
        "message": {
            "role": "assistant",
            "id": "m1",
            "model": "claude-sonnet-4",
            "content": [
                {"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": "ls gauge"}}
            ],
            "usage": {"input_tokens": 900, "output_tokens": 7},
        },
    },
    {
        "type": "user",
        "uuid": "u3",
        "parentUuid": "u2",
        "sessionId": "session",
        "timestamp": "2025-09-03T10:00:06.000Z",
        "message": {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "t1",
                    "is_error": True,
                    "content": "gauge: No such file",
                }
            ],
        },
    },
]
"""A session of Claude Code with a call that failed."""


@pytest.fixture
def stored(foldlog, tmp_path):
    """A store of one imported session, one import without times, and one history of its own, that
    was stored before both.
    """
    with foldlog_open("foldlog.db", clock=lambda: datetime(2025, 10, 1, tzinfo=UTC)) as histories:
        histories["own"].append(
            [
                Message(source="user", content="is the gauge there?"),
                Action(tool="Bash", call_id="1", arguments={"command": "cat gauge"}),
                Action(tool="read", call_id="2", arguments={"path": "gauge"}),
                Observation(content="gauge: No such file", call_id="1", is_error=True),
                Observation(content="gauge: No such file", call_id="2", is_error=True),
            ]
        )
    lines = [f"{json.dumps(record)}\n" for record in SESSION]
    (tmp_path / "session.jsonl").write_text("".join(lines))
    Path("chat.json").write_text('{"messages": [{"role": "user", "content": "a gauge, timeless"}]}')
    assert foldlog("import session.jsonl").status == 0
    assert foldlog("import chat.json --conversation chat").status == 0


def found(foldlog, *typed):
    hits = foldlog("search", *typed, "--json").document["hits"]
    return [(hit["conversation"], hit["event"]) for hit in hits]


def test_a_search_is_narrowed_to_a_tool_and_to_a_program(foldlog, stored):
    error = '"No such file"', "--kind", "error"
    assert found(foldlog, *error) == [("own", 4), ("own", 3), ("session", 2)]
    assert found(foldlog, *error, "--tool", "Bash") == [("own", 3), ("session", 2)]
    assert found(foldlog, *error, "--tool", "bash") == []
    assert found(foldlog, *error, "--program", "claude-code") == [("session", 2)]
    assert found(foldlog, *error, "--tool", "read", "--program", "claude-code") == []
    assert found(foldlog, "--tool", "Bash") == [
        *[("own", 3), ("own", 1)],
        *[("session", 2), ("session", 1)],
    ], "calls and results, without words"
    ran = foldlog("search gauge --program codex")
    assert (ran.status, "No event that the options choose has all these words." in ran.out) == (
        1,
        True,
    )


def test_words_in_curly_quotes_stand_side_by_side_too(foldlog, stored):
    straight, curly, apart = (
        foldlog("search --json", words).document["hits"]
        for words in ('"No such file"', "“No such file”", "“file No such”")
    )
    assert straight
    assert curly == straight
    assert apart == []


def test_a_program_is_known_before_and_after_figures_are_counted(foldlog, stored):
    with foldlog_open("foldlog.db") as histories:
        for _ in range(2):
            hits = search(histories.store, "gauge", program="foldlog").hits
            assert {hit.conversation for hit in hits} == {"own"}
            FiguresOfStore(histories.store).refresh()


def test_hits_come_in_the_order_of_lists_by_activity(foldlog, stored):
    def orders():
        hits = [name for name, _ in found(foldlog, "gauge")]
        return list(dict.fromkeys(hits))

    assert orders() == ["own", "session", "chat"], "an import says nothing about the time"
    listed = foldlog("list --sort activity --reverse --json").document
    assert [row["conversation"] for row in listed["conversations"]] == orders()
    with foldlog_open("foldlog.db") as histories:
        histories["session"].append(Message(source="user", content="go on"))
    assert orders() == ["session", "own", "chat"], "before it is counted again"


def test_a_list_since_a_time_goes_by_when_events_happened(foldlog, stored):
    def listed(since):
        rows = foldlog("list --json --since", since).document["conversations"]
        return [row["conversation"] for row in rows]

    assert listed("7d") == []
    assert listed("2025-09-15") == ["own"]
    assert listed("2025-09-03T10:00:06") == ["own", "session"]
    soon = datetime.now(UTC) - timedelta(hours=1)
    with foldlog_open("foldlog.db") as histories:
        histories["session"].append(Message(source="user", content="go on"))
    assert listed(soon.isoformat()) == ["session"]


def test_the_largest_prompt_stands_beside_what_the_model_takes(foldlog, stored, monkeypatch):
    class Window:
        max_input_tokens = 2_000

    windows = {"claude-sonnet-4": Window()}
    monkeypatch.setattr(shown, "window_of", windows.get)

    def stats(conversation):
        document = foldlog("stats --json", conversation).document
        return document["peak_prompt_tokens"], document["max_input_tokens"]

    assert stats("session") == (900, 2_000)
    assert "largest prompt: 900 of 2,000 tokens\n" in foldlog("stats session").out
    assert stats("own") == (None, None)
    Window.max_input_tokens = 800
    assert stats("session") == (900, None), "the limit of the table is not that of the calls"
    assert "largest prompt: 900 tokens\n" in foldlog("stats session").out
