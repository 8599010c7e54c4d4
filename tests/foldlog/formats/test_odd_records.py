"""Records that a source has seldom: what the skeletons of logs and the writers make of them."""

import json

import pytest

from foldlog._formats.claude_code.skeleton import ClaudeCodeSkeleton
from foldlog._formats.codex.skeleton import CodexSkeleton
from foldlog._formats.cursor import _names_of_blobs
from foldlog._formats.skeleton import UNNAMED_TOOL


@pytest.mark.parametrize("failed", [True, 1])
def test_the_first_error_of_a_line_with_two_results_is_of_the_one_that_failed(failed):
    results = [
        {"type": "tool_result", "tool_use_id": "a", "content": "9 km"},
        {"type": "tool_result", "tool_use_id": "b", "content": "no such road", "is_error": failed},
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
