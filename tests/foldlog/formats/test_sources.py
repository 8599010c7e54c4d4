"""Files and folders of histories: what is found in them, under which name, and what is said of the
damaged ones.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from foldlog._archive.importing import Failed, Import
from foldlog._formats.files.readers import on_lines
from foldlog._formats.json_text import RECORD_SIZE_MAX
from tests.foldlog.archive.imports import new_store
from tests.foldlog.formats.reading import records_in


def chat(text="hi", role="user"):
    return {"role": role, "content": text}


def v0(number, text="hi"):
    return {"id": number, "source": "user", "action": "message", "args": {"content": text}}


def v1(name, text="hi", **more):
    said = {"role": "user", "content": [{"type": "text", "text": text}]}
    return {"kind": "MessageEvent", "id": name, "source": "user", "llm_message": said, **more}


@pytest.fixture
def write(tmp_path, monkeypatch):
    """``write("a.jsonl", value, …)``: a value a line in a file of JSON Lines, else one document;
    bytes as they are.

    The folder of the files is the current one.
    """
    monkeypatch.chdir(tmp_path)

    def written(name, *content):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        one = b"\n".join(it if isinstance(it, bytes) else json.dumps(it).encode() for it in content)
        path.write_bytes(one + b"\n" if path.suffix == ".jsonl" else one)
        return path

    return written


def read(*paths, format="auto"):
    """(name, format, records, findings) of each history, and what belongs to none."""
    with new_store() as store:
        imports = Import(store, list(map(Path, paths)), format)
        found, findings = [], []
        for one in imports:
            if isinstance(one, Failed):
                findings.append(str(one.error))
            else:
                records = records_in(store, one.conversation)
                found.append((one.conversation, one.format, records, list(map(str, one.findings))))
        nothing = [] if found else [str(imports.nothing())]
        return found, [*nothing, *map(str, imports.findings), *findings]


def only(*paths, **how):
    (found,), findings = read(*paths, **how)
    assert findings == []
    return found


def refusal(*paths, **how):
    found, findings = read(*paths, **how)
    assert found == []
    return findings[-1]


# -- one history in a file
# --------------------------------------------------------------------------------------------

CHATS = [chat("a"), chat("b", "assistant")]


def test_containers_of_a_history(write):
    for name, content, called in (
        ("a.jsonl", CHATS, "a"),
        ("a.json", [CHATS], "a"),
        (
            "a.traj.json",
            [{"info": {"x": [1]}, "messages": CHATS, "trajectory_format": "mini-swe-agent-1"}],
            "a.traj",
        ),
        ("a.json", [{"conversation": "c9", "messages": CHATS}], "c9"),
        ("a.json", [{"messages": CHATS, "instance_id": "repo__1"}], "a:repo__1"),
        ("repo__1.json", [{"messages": CHATS, "instance_id": "repo__1"}], "repo__1"),
        (
            "a.json",
            [{"conversation": {"title": "t", "conversation_id": "c8"}, "events": CHATS}],
            "c8",
        ),
        ("a.jsonl", [{"conversation": {"id": "c7"}, "events": CHATS}], "c7"),
        ("a.jsonl", [{"task_id": 3, "trial": 1, "traj": CHATS}], "a:3:1"),
        ("a.jsonl", [{"score": 1.0, "history": CHATS}], "a:1"),
        ("a.txt", CHATS, "a"),
    ):
        assert only(write(name, *content)) == (called, "openai-chat", CHATS, [])


def test_the_records_of_a_swe_agent_file_are_its_history_wherever_it_stands(write):
    said = {"role": "user", "content": "mend it", "agent": "main", "message_type": "observation"}
    step = {
        "action": "ls",
        "observation": "a.py",
        "response": "look",
        "thought": "look",
        "state": {},
    }
    for number, container in enumerate(
        (
            {"trajectory": [step], "history": [said], "info": {}},
            {"history": [said], "trajectory": [step]},
        )
    ):
        assert only(write(f"x{number}.traj", container)) == (f"x{number}", "swe-agent", [said], [])


def test_a_codex_rollout_is_named_by_its_session(write):
    item = {"type": "response_item", "payload": {"type": "message", "role": "user", "content": []}}
    lines = [
        {"type": "session_meta", "payload": {"id": session}} for session in ("s1", "s2", 5, "")
    ]
    assert only(write("a.jsonl", *lines, item))[0] == "s1"
    assert only(write("b.jsonl", item, lines[1]))[0] == "s2"
    assert only(write("c.json", [lines[2], lines[3], item]))[0] == "c"


def test_a_document_may_be_indented_or_begin_with_a_byte_order_mark(write):
    document = json.dumps({"id": "x", "events": [v0(0), v0(1)]}, indent=2).encode()
    assert only(write("a.json", document)) == ("x", "openhands-v0", [v0(0), v0(1)], [])
    assert only(write("b.json", b"\xef\xbb\xbf" + document))[2] == [v0(0), v0(1)]
    assert only(write("c.jsonl", b"\xef\xbb\xbf" + json.dumps(v0(0)).encode(), v0(1)))[2:] == (
        [v0(0), v0(1)],
        [],
    )


def test_one_event_alone_is_a_history(write):
    assert only(write("a.json", v0(3))) == ("a", "openhands-v0", [v0(3)], [])


def test_pairs_are_a_history_and_lists_of_messages_are_several(write):
    pair = [v0(0), {"observation": "null", "content": "", "extras": {}}]
    assert only(write("a.json", [pair, pair]))[2] == [pair, pair]
    found, _ = read(write("b.json", [CHATS, CHATS[:1]]))
    assert [(name, records) for name, _, records, _ in found] == [
        ("b:0", CHATS),
        ("b:1", CHATS[:1]),
    ]


@pytest.mark.parametrize("name", ["a.jsonl", "a.json"])
def test_many_histories_in_a_file_each_have_a_name(write, name):
    many = [{"instance_id": f"i{n % 2}", "history": [v0(n)]} for n in range(3)]
    found, findings = read(write(name, *many) if name == "a.jsonl" else write(name, many))
    assert [(it[0], it[2]) for it in found] == [
        ("a:i0", [v0(0)]),
        ("a:i1", [v0(1)]),
        ("a:i0#2", [v0(2)]),
    ]
    assert findings == []


# -- folders
# --------------------------------------------------------------------------------------------------


def test_a_folder_of_v1_events_in_the_order_of_its_indices(write, tmp_path):
    for index, name in [(0, "a"), (10, "c"), (2, "b")]:
        write(f"run/events/event-{index:05}-{name}{'0' * 8}.json", v1(name))
    write("run/events/.eventlog.lock", b"")
    write("run/base_state.json", {"id": "conversation-7", "agent": {"events": []}})
    assert only(tmp_path) == ("conversation-7", "openhands-v1", [v1(name) for name in "abc"], [])
    assert only(tmp_path / "run" / "events")[0] == "conversation-7"


def test_a_folder_of_strands_messages_is_one_history(write):
    for number in (0, 1, 2, 4, 5, 6, 8, 10):
        said = {"role": "user", "content": [{"text": f"m{number}"}]}
        path = f"session_7/agents/agent_a/messages/message_{number}.json"
        write(path, {"message": said, "message_id": number, "redact_message": None})
    write("session_7/session.json", {"session_id": "7"})
    one = read("session_7")[0]
    name, format, records, findings = one[0]
    assert (len(one), name, format) == (1, "session_7/agents/agent_a", "strands")
    assert [each["message_id"] for each in records] == [0, 1, 2, 4, 5, 6, 8, 10]
    assert [each.partition(": ")[0].rpartition("/")[2] for each in findings] == [
        f"message_{n}.json" for n in (3, 7, 9)
    ]


def test_folders_behind_links_are_read_once_and_what_is_no_file_is_told(write, tmp_path):
    for name in ("runs/a.jsonl", "runs/z/b.jsonl", "elsewhere/c.jsonl", "above.jsonl"):
        write(name, chat(), chat())
    for name, to in (("a", "z"), ("link", "../elsewhere"), ("link2", "../elsewhere"), ("up", "..")):
        (tmp_path / "runs" / name).symlink_to(to)
    (tmp_path / "elsewhere/loop").symlink_to("../runs")
    (tmp_path / "runs/dangling.jsonl").symlink_to("nowhere")
    os.mkfifo(tmp_path / "runs/pipe.jsonl")
    found, findings = read("runs")
    assert [name for name, *_ in found] == ["runs/a", "runs/link/c", "runs/z/b"]
    assert sorted(findings) == [
        "runs/dangling.jsonl: is a link to what does not exist",
        "runs/pipe.jsonl: is neither a file nor a folder",
    ]


def test_a_folder_of_v0_events_in_the_order_of_their_numbers_without_the_cache(write, tmp_path):
    for number in (0, 2, 10):
        write(f"sessions/s1/events/{number}.json", v0(number))
    write("sessions/s1/event_cache/0-25.json", [v0(0), v0(2)])
    write("sessions/s1/metadata.json", {"conversation_id": "abc", "title": "x"})
    assert only(tmp_path) == ("abc", "openhands-v0", [v0(0), v0(2), v0(10)], [])


def test_a_tree_of_histories_leaves_other_files_alone(write, tmp_path):
    write("b/x.jsonl", *CHATS)
    write("a/x.json", CHATS)
    write("a/package.json", {"name": "x", "events": {"a": 1}})
    write("a/numbers.json", [1, 2])
    write("a/README.md", b"# messages")
    write("a/0.json", {"messages": CHATS})
    write("empty/LICENSE", b"")
    found, findings = read(tmp_path)
    assert [it[0] for it in found] == ["a/0", "a/x", "b/x"]
    assert findings == []


def test_in_a_tree_what_cannot_be_read_is_a_finding_and_the_rest_is_imported(write, tmp_path):
    write("c.jsonl", *CHATS)
    broken = write("a.json", b'{"messages": oops')
    diary = write("b.jsonl", b"Dear diary")
    found, findings = read(tmp_path)
    assert [it[0] for it in found] == ["c"]
    assert findings[0] == f"{broken}: line 1: not JSON: Expecting value"
    assert findings[1] == f"{diary}: line 1: not JSON at character 0: Expecting value"
    assert len(findings) == 2


# -- damage
# --------------------------------------------------------------------------------------------------


def test_a_damaged_line_is_a_finding_with_file_and_line(write):
    path = write(
        "a.jsonl",
        v0(0),
        b'{"id": 1, "action"',
        b"",
        [],
        v0(2),
        b"{} {}",
        7,
        {"id": 3},
        b'{"a": "\xff"}',
        b"[" * 100_000,
        v0(4),
    )
    _, _, records, findings = only(path)
    assert records == [v0(0), [], v0(2), 7, {"id": 3}, v0(4)]
    assert [finding.removeprefix(str(path)) for finding in findings] == [
        ":2: not JSON at character 18: Expecting ':' delimiter",
        ":6: not JSON at character 3: Extra data",
        ":9: not UTF-8 at byte 7",
        ":10: nested deeper than 480 levels, the limit for one record",
        ":4: expected an event object or an array of them, found an empty array",
        ":7: expected an event object, found a number",
        ":8: an event has a text under 'action' or 'observation', but this object has neither",
    ]


def test_a_damaged_file_of_an_event_is_a_finding(write, tmp_path):
    for index, content in enumerate([v1("a"), b"", b'{"kind": ', v1("b")]):
        write(f"events/event-{index:05}-aa.json", content)
    (found,), _ = read(tmp_path)
    assert found[2] == [v1("a"), v1("b")]
    assert [finding.split("/")[-1] for finding in found[3]] == [
        "event-00001-aa.json: empty",
        "event-00002-aa.json: not JSON at character 9: Expecting value",
    ]


def test_among_many_histories_a_damaged_one_is_a_finding(write):
    path = write(
        "a.jsonl",
        {"history": [v0(0)]},
        b'{"history": [',
        {"history": []},
        5,
        {"history": [v0(1), 7]},
    )
    found, findings = read(path)
    assert [(it[0], it[2]) for it in found] == [("a:1", [v0(0)]), ("a:5", [v0(1), 7])]
    assert [finding.split(":", 2)[1] for finding in findings] == ["2", "3", "4"]


def test_a_telemetry_with_the_messages_of_some_runs_is_no_list_of_histories(write):
    steps = [{"type": "step", "tool": "Bash", "seq": number} for number in range(4)]
    run = {"type": "end", "messages": [chat(), chat("hello", "assistant")]}
    path = write("steps.jsonl", *steps, run, run)
    assert refusal(path).startswith(
        f"{path}: holds no event of a format that is known here, but an object with 'type'"
    )
    write("runs.jsonl", run, run, steps[0])
    found, _ = read("runs.jsonl")
    assert [name for name, *_ in found] == ["runs:1", "runs:2"]


def test_a_record_that_is_too_long_is_a_finding(write):
    long = json.dumps(v0(1, "x" * RECORD_SIZE_MAX)).encode()
    lines = write("a.jsonl", v0(0), long, v0(2))
    array = write(
        "b.json", b"[%s,\n%s,\n%s]" % (json.dumps(v0(0)).encode(), long, json.dumps(v0(2)).encode())
    )
    for path in (lines, array):
        _, _, records, (finding,) = only(path)
        assert records == [v0(0), v0(2)]
        assert finding == f"{path}:2: longer than 16,777,216 bytes, the limit for one record"


def test_what_is_odd_but_legal_is_kept(write):
    args = b'{"a": 1e400, "b": "\\ud800", "c": "\\u0000", "d": NaN, "e": "\t"}'
    odd = b'{"id": 0, "action": "run", "args": %s, "id": 1}' % args
    _, _, (record, _), findings = only(write("a.jsonl", odd, v0(2)))
    assert findings == []
    assert json.dumps(record, sort_keys=True) == json.dumps(
        json.loads(odd, strict=False), sort_keys=True
    )


# -- no history at all
# ------------------------------------------------------------------------------------------------


def test_a_file_that_is_nested_too_deep_is_refused(write):
    path = write("a.json", b"[" * 100_000)
    assert refusal(path).startswith(f"{path}: nested deeper than 480 levels")


def test_paths_without_a_history(write, tmp_path):
    assert refusal(tmp_path / "nowhere").endswith("nowhere: no such file or folder")
    (tmp_path / "folder").mkdir()
    assert "folder: contains no history that can be imported" in refusal(tmp_path / "folder")
    os.mkfifo(tmp_path / "pipe.json")
    assert refusal(tmp_path / "pipe.json").endswith("pipe.json: is neither a file nor a folder")


# -- formats
# --------------------------------------------------------------------------------------------------


def test_a_format_that_is_named_takes_what_can_pass_for_it(write):
    odd = {"action": "zzz", "x": 1}
    assert only(write("a.jsonl", odd), format="openhands-v0")[2] == [odd]


@pytest.mark.parametrize(
    "text, is_on_lines",
    [
        ("{}\n{}", True),
        (" \n {}\n\n\n {}", True),
        ("{}" + " " * 2**16 + "\n{}", True),
        ("{}\n \n", False),
        ("\n", False),
    ],
)
def test_a_file_is_on_lines_if_two_are_not_blank_and_may_be_emptied_while_it_is_read(
    text, is_on_lines, tmp_path, monkeypatch
):
    file, really = tmp_path / "a.json", Path.open
    file.write_text(text)
    assert on_lines(file) is is_on_lines

    def emptied(path, *how):
        os.truncate(path, 0)
        return really(path, *how)

    monkeypatch.setattr(Path, "open", emptied)
    assert not on_lines(file)
