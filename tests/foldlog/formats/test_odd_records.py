"""Records that a source has seldom: what the skeletons of logs and the writers make of them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from foldlog._formats.claude_code.skeleton import ClaudeCodeSkeleton
from foldlog._formats.codex.skeleton import CodexSkeleton
from foldlog._formats.cursor import _names_of_blobs
from foldlog._formats.skeleton import UNNAMED_TOOL
from foldlog.errors import InvalidArgument
from foldlog.eventstore import Action, Observation
from foldlog.formats import Encoder, detect


def test_the_first_error_of_a_line_with_two_results_is_of_the_one_that_failed():
    results: list[Any] = [
        {"type": "tool_result", "tool_use_id": "a", "content": "9 km"},
        {"type": "tool_result", "tool_use_id": "b", "content": "no such road", "is_error": True},
    ]
    line = {
        "type": "user",
        "uuid": "u",
        "sessionId": "s",
        "message": {"role": "user", "content": results},
    }
    skeleton = ClaudeCodeSkeleton()
    skeleton.add(json.dumps(line).encode(), b"12345678")
    assert (skeleton.state.errors, skeleton.state.first_error) == (1, "no such road")


def test_a_rollout_goes_on_from_the_thread_that_its_first_session_names():
    skeleton = CodexSkeleton()
    for number, (session, thread) in enumerate([("s1", "t1"), ("s0", "t0")]):
        base = {"thread_id": thread, "end_ordinal_exclusive": 4}
        line = {"type": "session_meta", "payload": {"id": session, "history_base": base}}
        skeleton.add(json.dumps(line).encode(), bytes([number]) * 8)
    assert (skeleton.conversation, skeleton.follows) == ("s1", ("t1", 4))


def test_a_shell_call_without_a_name_counts_as_one_of_the_shell():
    skeleton = CodexSkeleton()
    for number, kind in enumerate(["local_shell_call", "local_shell_call", "function_call"]):
        line = {"type": "response_item", "payload": {"type": kind, "call_id": f"c{number}"}}
        skeleton.add(json.dumps(line).encode(), bytes([number]) * 8)
    assert skeleton.state.tools == {"local_shell": 2, UNNAMED_TOOL: 1}


def test_other_fields_of_a_root_do_not_move_the_names_of_its_blobs():
    names = [bytes([number]) * 32 for number in (7, 9)]
    fixed = b"\x11" + b"x" * 8, b"\x1d" + b"x" * 4
    root = b"".join(other + b"\x0a\x20" + name for other, name in zip(fixed, names, strict=True))
    assert [*_names_of_blobs(root)] == [name.hex() for name in names]


def test_an_action_that_is_not_known_is_one_by_its_arguments():
    action = {"action": "dance", "args": {}, "source": "agent", "message": "I dance."}
    assert detect([action] * 2) == "openhands-v0"
    with pytest.raises(InvalidArgument, match="no format with such records"):
        detect([{**action, "args": "x"}] * 2)


def test_a_call_of_a_custom_tool_is_written_as_an_item_of_its_own_kind():
    call = Action(
        id=0,
        tool="patch",
        arguments={"input": "*** Begin"},
        call_id="k",
        meta={"custom_tool": True},
    )
    encoder = Encoder("openai-responses")
    written = [
        encoder.records(call),
        encoder.records(Observation(id=1, cause=0, call_id="k", content="done")),
    ]
    assert [item for items in (*written, encoder.end()) for item in items] == [
        {
            "type": "custom_tool_call",
            "call_id": "k",
            "name": "patch",
            "input": "*** Begin",
            "status": "completed",
        },
        {"type": "custom_tool_call_output", "call_id": "k", "output": "done"},
    ]
