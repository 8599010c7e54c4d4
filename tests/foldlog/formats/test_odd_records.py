"""The skeletons of logs and the writers handle records that a source rarely has."""

import json
import re

import pytest

from foldlog._reports.figures import writing
from foldlog._reports.figures.checking import find_wrong_figures
from foldlog.eventstore import Observation
from foldlog.formats import decode, skeleton
from foldlog.formats.claude_code.skeleton import ClaudeCodeSkeleton
from foldlog.formats.cursor import _names_of_blobs
from foldlog.formats.openai_chat import alike
from foldlog.projections import Views
from tests.foldlog.imports.imports import (
    bytes_of,
    events_of,
    figures_of,
    imported,
    imported_lines,
    new_store,
    source_of,
)


def read_figures(tmp_path, *lines):
    with new_store() as store:
        texts = [f"{json.dumps(line)}\n".encode() for line in lines]
        outcome = imported_lines(store, tmp_path / "log.jsonl", texts)
        return figures_of(store, outcome.conversation)


@pytest.mark.parametrize("failed", [True, 1])
def test_failed_result_of_two_is_the_error(failed, tmp_path):
    results = [
        {"type": "tool_result", "tool_use_id": "a", "content": "9 km"},
        {"type": "tool_result", "tool_use_id": "b", "content": "no such road", "is_error": failed},
    ]
    message = {"role": "user", "content": results}
    line = {"type": "user", "uuid": "u", "sessionId": "s", "message": message}
    figures = read_figures(tmp_path, line)
    assert (figures["errors"], figures["first_error"]) == (1, "no such road")


def figures_of_log(tmp_path, *lines):
    """Return the figures of a log, of which the events say the same as the skeleton before."""
    with new_store() as store:
        texts = [f"{json.dumps(line)}\n".encode() for line in lines]
        conversation = imported_lines(store, tmp_path / "log.jsonl", texts).conversation
        figures = figures_of(store, conversation)
        assert events_of(store, conversation)
        assert figures_of(store, conversation) == figures
        return figures


def message_line(number, *, parent=None, role="user", at="2026-01-05T09:00:00Z", **fields):
    """Return a line of Claude Code with a message."""
    message = {"role": role, "content": f"message {number}"}
    ids = {"uuid": f"u{number}", "parentUuid": parent, "sessionId": "s"}
    return {"type": role, "timestamp": at, **ids, "message": message, **fields}


@pytest.mark.parametrize(
    "at", ["yesterday", "soonZ", "2026-99-99T00:00:00Z", "1970-01-01T00:00:00Z", "0", ""]
)
def test_text_that_is_no_time_hides_no_other_time(at, tmp_path):
    figures = figures_of_log(
        tmp_path, message_line(1), message_line(2, parent="u1", role="assistant", at=at)
    )
    assert figures["last"] == "2026-01-05T09:00:00+00:00"
    assert figures["days"] == ["(no time)", "2026-01-05"]


def test_compaction_of_a_side_chain_is_none_of_the_session(tmp_path):
    side = {"isSidechain": True}
    figures = figures_of_log(
        tmp_path,
        message_line(1),
        message_line(2, parent="u1", role="assistant"),
        message_line(3, **side),
        message_line(4, parent="u3", **side, isCompactSummary=True),
    )
    assert figures["condensations"] == 0


def queued_line(number, prompt, *, parent=None, **attachment):
    """Return a line of Claude Code with a message that was sent while the model worked."""
    attachment = {"type": "queued_command", "prompt": prompt, **attachment}
    line = message_line(number, parent=parent)
    del line["message"]
    return {**line, "type": "attachment", "attachment": attachment}


def test_first_request_that_was_sent_while_the_model_worked_is_the_title(tmp_path):
    figures = figures_of_log(
        tmp_path,
        message_line(1, role="assistant"),
        queued_line(2, "a note", parent="u1", commandMode="task-notification"),
        queued_line(3, "plan a walk", parent="u2"),
        message_line(4, parent="u3"),
    )
    assert figures["title"] == "plan a walk"


def test_message_in_a_side_chain_is_no_title_of_the_session(tmp_path):
    figures = figures_of_log(
        tmp_path,
        message_line(1, role="assistant"),
        message_line(2, isSidechain=True, agentId="a"),
        message_line(3, parent="u1"),
    )
    assert figures["title"] == "message 3"


def call_line(number, *, parent=None, **fields):
    """Return a line of Claude Code with a call that gets no result."""
    line = message_line(number, parent=parent, role="assistant", **fields)
    line["message"]["content"] = [{"type": "tool_use", "id": f"c{number}", "name": "Bash"}]
    return line


def test_call_before_a_compaction_waits_no_more(tmp_path):
    figures = figures_of_log(
        tmp_path,
        message_line(1),
        call_line(2, parent="u1"),
        message_line(3, parent="u2", isCompactSummary=True),
    )
    assert figures["state"] == "request"


def test_call_of_a_side_chain_is_not_awaited_in_the_session(tmp_path):
    side = {"isSidechain": True, "agentId": "a"}
    figures = figures_of_log(
        tmp_path,
        message_line(1),
        message_line(2, parent="u1", role="assistant"),
        message_line(3, **side),
        call_line(4, parent="u3", **side),
    )
    assert figures["state"] == "answer"


def test_call_of_a_side_chain_is_not_awaited_after_the_session_begins(tmp_path):
    figures = figures_of_log(
        tmp_path, call_line(1, isSidechain=True, agentId="a"), message_line(2, role="assistant")
    )
    assert figures["state"] == "answer"


def test_log_of_a_side_chain_whose_lines_have_no_ids_has_a_title(tmp_path):
    line = message_line(1, isSidechain=True, agentId="a")
    del line["uuid"]
    figures = figures_of_log(tmp_path, line)
    assert (figures["title"], figures["state"]) == ("message 1", "request")


@pytest.mark.parametrize(
    "end",
    [
        {"type": "compacted", "payload": {"message": "walks"}},
        {"type": "event_msg", "payload": {"type": "thread_rolled_back", "num_turns": 1}},
    ],
)
def test_call_before_a_compaction_or_rollback_of_codex_waits_no_more(end, tmp_path):
    items = [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "walk"}]},
        {"type": "function_call", "name": "shell", "arguments": "{}", "call_id": "c"},
    ]
    records = [{"type": "response_item", "payload": item} for item in items]
    figures = figures_of_log(
        tmp_path, {"type": "session_meta", "payload": {"id": "s"}}, *records, end
    )
    assert figures["state"] == "request"


CODEX_SESSION = {"type": "session_meta", "payload": {"id": "s"}}
CODEX_CALL = {
    "type": "response_item",
    "payload": {"type": "function_call", "name": "shell", "arguments": "{}", "call_id": "c"},
}


def test_rollback_without_a_turn_leaves_open_calls_as_they_are(tmp_path):
    rollback = {"type": "event_msg", "payload": {"type": "thread_rolled_back", "num_turns": 1}}
    figures = figures_of_log(tmp_path, CODEX_SESSION, CODEX_CALL, rollback)
    assert figures["state"] == "open_call"


def test_call_before_a_compaction_does_not_fail_with_a_later_turn(tmp_path):
    figures = figures_of_log(
        tmp_path,
        CODEX_SESSION,
        CODEX_CALL,
        {"type": "compacted", "payload": {"message": "walks"}},
        {**CODEX_CALL, "payload": {**CODEX_CALL["payload"], "call_id": "d"}},
        {"type": "event_msg", "payload": {"type": "turn_aborted"}},
    )
    assert (figures["errors"], figures["state"]) == (1, "error")


def test_call_in_the_message_of_an_api_error_is_awaited(tmp_path):
    figures = figures_of_log(
        tmp_path, message_line(1), call_line(2, parent="u1", isApiErrorMessage=True)
    )
    assert figures["state"] == "open_call"


@pytest.mark.parametrize("kind", ["inter_agent_communication", "response_item"])
@pytest.mark.parametrize(
    "content", ["plan a walk", [{"type": "input_text", "text": "plan a walk"}]]
)
def test_message_of_another_agent_is_a_request(kind, content, tmp_path):
    said = {"type": "agent_message", "author": "a", "recipient": "b", "content": content}
    figures = figures_of_log(
        tmp_path,
        {"type": "session_meta", "payload": {"id": "s"}},
        {"type": kind, "payload": said},
    )
    assert (figures["title"], figures["state"]) == ("plan a walk", "request")


def test_result_of_an_aborted_turn_has_no_time(tmp_path):
    call = {"type": "function_call", "name": "shell", "arguments": "{}", "call_id": "c"}
    lines = [
        {"type": "session_meta", "payload": {"id": "s"}},
        {"type": "response_item", "payload": call},
        {"type": "event_msg", "payload": {"type": "turn_aborted"}},
    ]
    figures = figures_of_log(
        tmp_path, *({"timestamp": "2026-01-05T09:00:00Z", **line} for line in lines)
    )
    assert figures["days"] == ["(no time)", "2026-01-05"]


@pytest.mark.parametrize("grows", [False, True])
def test_sums_of_earlier_code_are_not_counted_on(grows, tmp_path, monkeypatch):
    lines = [
        f"{json.dumps(message_line(number, role=role))}\n".encode()
        for number, role in enumerate(["user", "assistant", "user"])
    ]
    path = tmp_path / "log.jsonl"
    with new_store() as store, new_store() as fresh:
        with monkeypatch.context() as patched:
            patched.setattr(skeleton, "_CODE", 0)
            patched.setattr(writing, "CODE", writing.CODE - 1)
            patched.setattr(ClaudeCodeSkeleton, "count_time", lambda *args, **kwargs: None)
            name = imported_lines(store, path, lines[:2]).conversation
        if grows:
            imported_lines(store, path, lines)
            stored = ClaudeCodeSkeleton(source_of(store, name).sums).state
            assert stored.records == len(lines)
        expected = figures_of(fresh, imported(fresh, path).conversation)
        assert expected["days"] == ["2026-01-05"]
        assert figures_of(store, name) == expected
        assert [*find_wrong_figures(store, Views(store), name)] == []


def test_records_of_swe_agent_keep_their_numbers_of_events():
    """A used import grows only if each record becomes as many events as at its first use."""
    ids = {"agent": "main", "tool_call_ids": ["a", "b"]}
    calls = [{"id": name, "function": {"name": "ls", "arguments": "{}"}} for name in "ab"]
    records = [
        {"role": "assistant", "content": "", "tool_calls": calls, **ids},
        {"role": "tool", "content": "9 km", **ids},
        {"role": "tool", "content": "9 km", "tool_call_ids": ["a", None, "b"]},
    ]
    numbers = [len([*decode(records[:stop], "swe-agent")]) for stop in (1, 2, 3)]
    assert numbers == [4, 6, 7]


def test_nameless_shell_call_counts_as_shell(tmp_path):
    kinds = ["local_shell_call", "local_shell_call", "function_call"]
    figures = read_figures(
        tmp_path,
        {"type": "session_meta", "payload": {"id": "s"}},
        *(
            {"type": "response_item", "payload": {"type": kind, "call_id": f"c{number}"}}
            for number, kind in enumerate(kinds)
        ),
    )
    assert figures["tools"] == {"local_shell": (2, 0), "(not named)": (1, 0)}


SESSION = {"type": "session_meta", "payload": {"id": "s"}}


def counted(total):
    """Return the line of a rollout that counts a call of the model."""
    info = {"last_token_usage": {"input_tokens": 3}, "total_token_usage": {"input_tokens": total}}
    return {"type": "event_msg", "payload": {"type": "token_count", "info": info}}


@pytest.mark.parametrize("total", [2**64, -(2**70), 10**30, {"a": [2**64]}])
def test_a_total_that_is_too_long_for_the_state_is_counted_once(total, tmp_path):
    lines = [f"{json.dumps(line)}\n".encode() for line in [SESSION, counted(total), counted(total)]]
    with new_store() as store:
        for count in (2, 3):
            grown = imported_lines(store, tmp_path / "log.jsonl", lines[:count])
        figures = figures_of(store, grown.conversation)
    assert len(figures["calls"]) == 1
    assert figures == read_figures(tmp_path, SESSION, counted(total), counted(total))


NAN = float("nan")
FORKED = {"type": "session_meta", "payload": {"id": "s", "forked_from_id": NAN}}


@pytest.mark.parametrize(
    "session, total", [(SESSION, NAN), (SESSION, float("inf")), (SESSION, 2**64), (FORKED, 7)]
)
def test_figures_go_on_after_a_value_that_json_has_not(session, total, tmp_path):
    lines = [f"{json.dumps(line)}\n".encode() for line in [session, counted(total), counted(total)]]
    with new_store() as store:
        for count in (2, 3):
            outcome = imported_lines(store, tmp_path / "log.jsonl", lines[:count])
            events_of(store, outcome.conversation)
            assert len(figures_of(store, outcome.conversation)["calls"]) == 1
            wrong = find_wrong_figures(store, Views(store), outcome.conversation)
            assert [*wrong] == []


def ended(calls):
    """Return the records of a session of Copilot CLI that made so many calls of a model."""
    usage = {"requests": {"count": calls}, "usage": {"inputTokens": 5}}
    own = {"parentId": None, "timestamp": "2026-01-05T09:00:00Z"}
    return [
        {**own, "type": "session.start", "id": "a", "data": {"sessionId": "s"}},
        {**own, "type": "session.shutdown", "id": "b", "data": {"modelMetrics": {"m": usage}}},
    ]


@pytest.mark.parametrize("calls", [2**63, 10**30, -1, [2]])
def test_a_number_of_calls_that_is_no_count_is_not_counted(calls, tmp_path):
    assert (
        read_figures(tmp_path, *ended(calls))["calls"]
        == (read_figures(tmp_path, *ended(None))["calls"])
    )


@pytest.mark.parametrize("end", [-5, -1, 0, 2, 2**63, 10**30])
def test_a_session_after_records_that_are_not_here_is_its_own(end, tmp_path):
    base = {"thread_id": "s", "end_ordinal_exclusive": end}
    later = {**SESSION, "payload": {"id": "t", "history_base": base}}
    with new_store() as store:
        for session in (SESSION, later):
            line = f"{json.dumps(session)}\n".encode()
            outcome = imported_lines(store, tmp_path / "log.jsonl", [line])
        assert outcome.conversation == "t"
        assert bytes_of(store, "t") == line


def test_other_root_fields_do_not_move_blobs():
    names = [bytes([number]) * 32 for number in (7, 9)]
    fixed = b"\x11" + b"x" * 8, b"\x1d" + b"x" * 4
    root = b"".join(other + b"\x0a\x20" + name for other, name in zip(fixed, names, strict=True))
    assert [*_names_of_blobs(root)] == [name.hex() for name in names]


def stored_reply(**message):
    """Return a message as mini-SWE-agent stores it, with what the model's server answered."""
    choice = {"finish_reason": "stop", "index": 0, "message": {"content": "ls", **message}}
    choice["provider_specific_fields"] = {"stop_reason": "end_turn"}
    response = {"object": "chat.completion", "service_tier": "flex", "choices": [choice]}
    return {"role": "assistant", "content": "ls", "extra": {"response": response}}


@pytest.mark.parametrize(
    "message, noted",
    [
        ({}, []),
        ({"reasoning_content": "The folder first."}, ["message.reasoning_content"]),
        ({"content": "rm -r build"}, ["message.content"]),
        ({"audio": {"transcript": "aloud", "text": "aloud"}}, ["message.audio.text"]),
    ],
)
def test_notes_of_a_stored_reply_name_only_its_texts(message, noted):
    findings = []
    list(decode([stored_reply(**message)], "openai-chat", findings=findings.append))
    fields = re.findall(r"in the field '(.+?)'", " ".join(map(str, findings)))
    assert fields == [f"extra.response.choices.{name}" for name in noted]


def test_stored_reply_without_choices_is_a_reply():
    message = stored_reply()
    message["extra"]["response"]["choices"] = []
    findings = []
    list(decode([message], "openai-chat", findings=findings.append))
    assert findings == []


@pytest.mark.parametrize("code, failed", [(0, False), (1, True), ("", False), ("1", False)])
def test_only_a_number_is_an_exit_code(code, failed):
    call = {"id": "c", "type": "function", "function": {"name": "bash", "arguments": "{}"}}
    result = {"role": "tool", "tool_call_id": "c", "content": "done", "extra": {"returncode": code}}
    records = [{"role": "assistant", "content": "", "tool_calls": [call]}, result]
    *_, observation = decode(records, "openai-chat")
    assert observation.is_error is failed
    assert observation.extras == ({"exit_code": code} if type(code) is int else {})


def test_the_order_of_keys_makes_no_other_message():
    def reply(function: dict[str, str]) -> dict[str, object]:
        call = {"id": "c", "type": "function", "function": function}
        return {"role": "assistant", "content": None, "tool_calls": [call]}

    recorded = reply({"name": "sh", "arguments": "{}"})
    assert alike(recorded, reply({"arguments": "{}", "name": "sh"}))
    assert not alike(recorded, reply({"arguments": "[]", "name": "sh"}))


def span_with(**part):
    messages = [{"role": "tool", "parts": [{"type": "tool_call_response", **part}]}]
    attribute = {"key": "gen_ai.input.messages", "value": {"stringValue": json.dumps(messages)}}
    span = {"traceId": "t", "spanId": "s", "name": "chat", "attributes": [attribute]}
    return {"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}


def lines_with(call_id):
    """Return the lines of a call, and of a result with another id."""
    call = {"functionCall": {"id": "c", "name": "ls", "args": {}}}
    response = {"functionResponse": {"id": call_id, "name": "ls", "response": {"output": "a"}}}
    contents = [("assistant", "model", call), ("tool_result", "user", response)]
    return [
        {
            "uuid": kind,
            "parentUuid": None if kind == "assistant" else "assistant",
            "sessionId": "s",
            "type": kind,
            "message": {"role": role, "parts": [part]},
        }
        for kind, role, part in contents
    ]


def compaction_with(parts):
    content = {"role": "user", "parts": parts}
    times = {"start_timestamp": 1, "end_timestamp": 2}
    actions = {"compaction": {**times, "compacted_content": content}}
    return {"author": "user", "invocation_id": "i", "actions": actions}


def span_named(name):
    """Return a span with an attribute that is a damaged number."""
    attribute = {"key": "gen_ai.request.seed", "value": {"intValue": "--5"}}
    span = {"traceId": "t", "spanId": "s", "name": name, "attributes": [attribute]}
    return {"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}


def rollout_compacted(text):
    """Return a rollout whose compaction names no history, after a message of the user."""
    said = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}
    return [
        {"type": "session_meta", "payload": {"id": "s"}},
        {"type": "response_item", "payload": said},
        {"type": "compacted", "payload": {"message": "The tide turned."}},
    ]


def observed(**observation):
    return {
        "kind": "ObservationEvent",
        "id": "o",
        "source": "environment",
        "observation": observation,
    }


def session_set(*messages):
    return {"sessionId": "s", "$set": {"messages": [*messages]}}


def said(message_id, text):
    return {"id": message_id, "type": "user", "content": [{"text": text}]}


@pytest.mark.parametrize(
    "format, records",
    [
        ("gemini-cli", [session_set(said({}, "a")), session_set(said("m", "b"))]),
        ("otlp-genai", [span_with(id=["c"], response="a")]),
        ("otlp-genai", [span_named("chat")]),
        ("openhands-v1", [observed(kind=["TerminalObservation"], metadata={"exit_code": 0})]),
        ("codex", rollout_compacted("half of a letter: \ud83d")),
        ("codex", rollout_compacted("half of a letter: \ud83d" + "x" * 90_000)),
        ("qwen-code", lines_with({"c": 1})),
        ("google-adk", [compaction_with(5)]),
    ],
)
def test_records_with_values_of_other_types_are_read(format, records):
    assert len([*decode(records, format)]) >= len(records)


def test_a_result_without_an_id_has_not_failed():
    results = [
        event
        for event in decode([span_with(id="", response="a")], "otlp-genai")
        if isinstance(event, Observation)
    ]
    assert [result.is_error for result in results] == [False]
