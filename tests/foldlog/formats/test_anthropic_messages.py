"""Messages of Anthropic's API: of Cline, of Roo Code, and of programs."""

from __future__ import annotations

import json

import pytest

from foldlog import open as open_histories
from foldlog._formats.imported_calls import calls_of_imported
from foldlog.eventstore import Action, Message, Observation, SystemMessage
from foldlog.formats import NotAHistory, decode, detect, encode
from foldlog.projections import View
from tests.foldlog.formats.reading import histories_at, reader_of
from tests.foldlog.records import used

FORMAT = "anthropic-messages"
T = 1772359200000


def user(text, n=0, **more):
    return {"role": "user", "content": [{"type": "text", "text": text}], "ts": T + n, **more}


def agent(text, n=0, **more):
    return {"role": "assistant", "content": [{"type": "text", "text": text}], "ts": T + n, **more}


def uses(*call_ids):
    return [
        {"type": "tool_use", "id": it, "name": "measure", "input": {"of": it}} for it in call_ids
    ]


def results(*call_ids):
    return [{"type": "tool_result", "tool_use_id": it, "content": f"{it}: 9 km"} for it in call_ids]


read = reader_of(FORMAT)


def texts(events):
    """What the model is sent, one text a message."""
    sent = View.from_events(events).to_messages()
    parts = [
        [each] if isinstance(each, str) else [part["text"] for part in each]
        for each in map(_content, sent)
    ]
    return ["\n".join(each) for each in parts]


def _content(message):
    return message["content"] or ""


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


def test_what_the_user_sees_is_no_second_history_and_is_refused_alone(task):
    with pytest.raises(
        NotAHistory, match=r"holds no event of a format that is known here, but an object with 'ts'"
    ):
        histories_at(task[0] / "ui_messages.json")


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


def test_it_is_recognized_among_chats_by_its_blocks_or_fields():
    asked = {"role": "user", "content": "how far is it?"}
    assert (
        detect(
            [
                asked,
                {"role": "assistant", "content": uses("a")},
                {"role": "user", "content": results("a")},
            ]
        )
        == FORMAT
    )
    assert detect([user("task"), agent("done")]) == FORMAT
    version_4 = {"role": "assistant", "content": [], "modelInfo": {"id": "m", "provider": "p"}}
    assert detect([asked, version_4]) == FORMAT
    assert detect([*[asked] * 5, {"role": "assistant", "content": uses("a")}, asked]) == FORMAT
    assert (
        detect([asked, {"role": "assistant", "content": [{"type": "text", "text": "9 km"}]}])
        == "openai-chat"
    )
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    thinking = {"type": "thinking", "thinking": "hm", "signature": "s"}
    assert (
        detect([asked, {"role": "assistant", "content": [thinking], "tool_calls": [call]}])
        == "openai-chat"
    )


def test_usage_has_one_shape_whoever_wrote_it():
    tokens = {"tokens": {"prompt": 900, "completion": 40, "cached": 300}, "cost": 0.5}
    cline = agent("1", modelInfo={"modelId": "m1", "providerId": "p"}, metrics=tokens)
    version_4 = agent(
        "2",
        modelInfo={"id": "m2"},
        metrics={"inputTokens": 7, "outputTokens": 2, "cacheReadTokens": 5},
    )
    api = {
        **agent("3"),
        "id": "x",
        "model": "m3",
        "usage": {"input_tokens": 3, "cache_read_input_tokens": 2, "output_tokens": 1},
    }
    hostile = [
        agent("4", modelInfo={"modelId": 3}, metrics={"tokens": 7, "cost": "x"}),
        agent("5", usage=[]),
    ]
    calls = list(calls_of_imported(read(cline, version_4, api, *hostile), FORMAT))
    assert [(call.model, *used(call)) for call in calls[:3]] == [
        ("m1", 1200, 300, 40, 0.5),
        ("m2", 7, 5, 2, None),
        ("m3", 5, 2, 1, None),
    ]


def test_events_of_ours_are_messages_that_the_api_takes():
    events = [
        SystemMessage(id=0, content="You measure."),
        Message(id=1, source="user", content="how far?"),
        Action(
            id=2,
            tool="measure",
            arguments='{"of": "a"}',
            call_id="a",
            response_id="r",
            thought="look",
        ),
        Action(id=3, tool="measure", arguments="not JSON", call_id="b", response_id="r"),
        Observation(id=4, content="9 km", call_id="a", cause=2),
        Observation(id=5, content="no", call_id="b", cause=3, is_error=True),
        Message(id=6, source="agent", content="9 km"),
    ]
    written = list(encode(events, FORMAT))
    assert [record["role"] for record in written] == [
        "user",
        "user",
        "assistant",
        "user",
        "assistant",
    ]
    assert written[2]["content"] == [
        {"type": "text", "text": "look"},
        *uses("a"),
        {**uses("b")[0], "input": {"invalid_arguments": "not JSON"}},
    ]
    assert [block.get("is_error") for block in written[3]["content"]] == [None, True]
    again = View.from_events(decode(written, FORMAT)).to_messages()
    assert again[1:] == View.from_events(events).to_messages()[2:]
