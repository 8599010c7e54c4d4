"""Messages of Anthropic's API: of Cline, of Roo Code, and of programs."""

from __future__ import annotations

import json

import pytest

from foldlog import open as open_histories
from foldlog.projections import View
from tests.foldlog.formats.reading import histories_at

FORMAT = "anthropic-messages"
T = 1772359200000


def user(text, n=0, **more):
    return {"role": "user", "content": [{"type": "text", "text": text}], "ts": T + n, **more}


def agent(text, n=0, **more):
    return {"role": "assistant", "content": [{"type": "text", "text": text}], "ts": T + n, **more}


def texts(events):
    """What the model is sent, one text a message."""
    contents = [message["content"] for message in View.from_events(events).to_messages()]
    return [each if isinstance(each, str) else each[0]["text"] for each in contents]


@pytest.fixture
def task(tmp_path):
    """The folder of a task of Cline, after two truncations."""
    folder = tmp_path / "tasks" / "1772359200000"
    folder.mkdir(parents=True)
    messages = [user(str(n), n) if n % 2 == 0 else agent(str(n), n) for n in range(10)]
    mark = "conversationHistoryDeletedRange"
    shown = [
        {"ts": T, "type": "say", "say": "text", "text": "0", "conversationHistoryIndex": -1},
        {"ts": T + 5, "type": "say", "say": "text", "conversationHistoryIndex": 5, mark: [2, 3]},
        {"ts": T + 6, "type": "say", "say": "text", "conversationHistoryIndex": 6, mark: [2, 3]},
        {
            "ts": T + 9,
            "type": "ask",
            "ask": "followup",
            "conversationHistoryIndex": 8,
            mark: [2, 7],
        },
    ]
    (folder / "api_conversation_history.json").write_text(json.dumps(messages))
    (folder / "ui_messages.json").write_text(json.dumps(shown))
    (folder / "task_metadata.json").write_text(
        json.dumps({"files_in_context": [], "model_usage": []})
    )
    return folder, messages


def test_the_folder_of_a_task_is_one_history_with_what_cline_deleted(task, tmp_path):
    folder, messages = task
    for path in (tmp_path, folder, folder / "api_conversation_history.json"):
        (history,) = histories_at(path)
        assert (history.name, history.format, history.findings) == ("1772359200000", FORMAT, [])
        records = history.records
        assert [record for record in records if "role" in record] == messages
        marks = [
            (n, record["conversationHistoryDeletedRange"])
            for n, record in enumerate(records)
            if "role" not in record
        ]
        assert marks == [(6, [2, 3]), (10, [2, 7])]
        events = history.events
        assert texts(events[:7]) == ["0", "1", "4", "5"]
        assert texts(events) == ["0", "1", "8", "9"]


@pytest.mark.parametrize("size", [0, 20, -20])
def test_a_task_whose_marks_cannot_be_read_is_refused_and_stays_as_it_was_imported(
    foldlog, task, size
):
    shown = task[0] / "ui_messages.json"
    whole = shown.read_text()
    for text, is_torn in ((whole, False), (whole[:size], True), (whole, False)):
        shown.write_text(text)
        ran = foldlog("import", task[0])
        assert (ran.status, "line 1: not JSON" in ran.err) == (2 * is_torn, is_torn)
        with open_histories("foldlog.db") as histories:
            assert texts(histories["1772359200000"].events()) == ["0", "1", "8", "9"]


def test_a_file_whose_first_messages_were_written_again_is_a_fork(foldlog, tmp_path):
    path = tmp_path / "roo.json"
    path.write_text(json.dumps([user("task"), agent("done", 1)]))
    assert foldlog("import", path).status == 0
    tagged = [user("task", condenseParent="c"), agent("done", 1, condenseParent="c")]
    condensed = [*tagged, user("It is done.", 2, isSummary=True, condenseId="c"), user("go on", 3)]
    for _ in range(2):
        path.write_text(json.dumps(condensed))
        ran = foldlog("import", path)
        assert ran.status == 0
    shown = foldlog("view", "roo@0", "--json").document["events"]
    assert [event.get("content") for event in shown] == ["It is done.", "go on"]
    assert foldlog("export", "roo@0", "--output", tmp_path / "out.json").status == 0
    assert json.loads((tmp_path / "out.json").read_text()) == condensed
