"""Files and folders of histories: what is found in them, under which name, and what is said of the damaged ones."""

from __future__ import annotations

import json
import os
import tracemalloc
from pathlib import Path

import pytest

from foldlog._formats import sources
from foldlog._formats.files.histories import histories
from foldlog._formats.files.readers import on_lines
from foldlog._formats.json_text import RECORD_SIZE_MAX
from foldlog._importing import import_source
from foldlog.eventstore import open_store
from foldlog.formats import NotAHistory, encode, open_sources
from foldlog.projections import View
from tests.how_many import some


def chat(text="hi", role="user"):
    return {"role": role, "content": text}


def v0(number, text="hi"):
    return {"id": number, "source": "user", "action": "message", "args": {"content": text}}


def v1(name, text="hi", **more):
    said = {"role": "user", "content": [{"type": "text", "text": text}]}
    return {"kind": "MessageEvent", "id": name, "source": "user", "llm_message": said, **more}


@pytest.fixture
def write(tmp_path, monkeypatch):
    """``write("a.jsonl", value, …)``: a value a line in a file of JSON Lines, else one document; bytes as they are.

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


@pytest.fixture(autouse=True)
def _streamed(monkeypatch):
    """Read small sources as large ones are, which are read as often as needed; all other tests hold them."""
    monkeypatch.setattr("foldlog._formats.files.found.HELD_BYTES_MAX", -1)


def read(*paths, **how):
    """(name, format, records, findings) of each history, and what belongs to none."""
    sources = open_sources(paths, **how)
    found = []
    for source in sources:
        records = list(encode(source.events(), source.format))
        found.append((source.name, source.format, records, [str(finding) for finding in source.findings]))
    return found, [str(finding) for finding in sources.findings]


def only(*paths, **how):
    (found,), findings = read(*paths, **how)
    assert findings == []
    return found


def refusal(*paths, **how):
    with pytest.raises(NotAHistory) as refused:
        open_sources(paths, **how)
    return str(refused.value)


# -- one history in a file --------------------------------------------------------------------------------------------

CHATS = [chat("a"), chat("b", "assistant")]


def test_containers_of_a_history(write):
    for name, content, called in (
        ("a.jsonl", CHATS, "a"),
        ("a.json", [CHATS], "a"),
        ("a.traj.json", [{"info": {"x": [1]}, "messages": CHATS, "trajectory_format": "mini-swe-agent-1"}], "a.traj"),
        ("a.json", [{"conversation": "c9", "messages": CHATS}], "c9"),
        ("a.json", [{"messages": CHATS, "instance_id": "repo__1"}], "a:repo__1"),
        ("repo__1.json", [{"messages": CHATS, "instance_id": "repo__1"}], "repo__1"),
        ("a.json", [{"conversation": {"title": "t", "conversation_id": "c8"}, "events": CHATS}], "c8"),
        ("a.jsonl", [{"conversation": {"id": "c7"}, "events": CHATS}], "c7"),
        ("a.jsonl", [{"task_id": 3, "trial": 1, "traj": CHATS}], "a:3:1"),
        ("a.jsonl", [{"score": 1.0, "history": CHATS}], "a:1"),
        ("a.txt", CHATS, "a"),
    ):
        assert only(write(name, *content)) == (called, "openai-chat", CHATS, [])


def test_the_records_of_a_swe_agent_file_are_its_history_wherever_it_stands(write):
    said = {"role": "user", "content": "mend it", "agent": "main", "message_type": "observation"}
    step = {"action": "ls", "observation": "a.py", "response": "look", "thought": "look", "state": {}}
    for number, container in enumerate(
        ({"trajectory": [step], "history": [said], "info": {}}, {"history": [said], "trajectory": [step]})
    ):
        assert only(write(f"x{number}.traj", container)) == (f"x{number}", "swe-agent", [said], [])
    assert "holds no event" in refusal(write("steps.traj", {"trajectory": [step], "info": {}}))


def test_a_codex_rollout_is_named_by_its_session(write):
    item = {"type": "response_item", "payload": {"type": "message", "role": "user", "content": []}}
    lines = [{"type": "session_meta", "payload": {"id": session}} for session in ("s1", "s2", 5, "")]
    assert only(write("a.jsonl", *lines, item))[0] == "s1"
    assert only(write("b.jsonl", item, lines[1]))[0] == "s2"
    assert only(write("c.json", [lines[2], lines[3], item]))[0] == "c"


def test_a_document_may_be_indented_or_begin_with_a_byte_order_mark(write):
    document = json.dumps({"id": "x", "events": [v0(0), v0(1)]}, indent=2).encode()
    assert only(write("a.json", document)) == ("x", "openhands-v0", [v0(0), v0(1)], [])
    assert only(write("b.json", b"\xef\xbb\xbf" + document))[2] == [v0(0), v0(1)]
    assert only(write("c.jsonl", b"\xef\xbb\xbf" + json.dumps(v0(0)).encode(), v0(1)))[2:] == ([v0(0), v0(1)], [])


def test_one_event_alone_is_a_history(write):
    assert only(write("a.json", v0(3))) == ("a", "openhands-v0", [v0(3)], [])


def test_pairs_are_a_history_and_lists_of_messages_are_several(write):
    pair = [v0(0), {"observation": "null", "content": "", "extras": {}}]
    assert only(write("a.json", [pair, pair]))[2] == [pair, pair]
    found, _ = read(write("b.json", [CHATS, CHATS[:1]]))
    assert [(name, records) for name, _, records, _ in found] == [("b:0", CHATS), ("b:1", CHATS[:1])]


@pytest.mark.parametrize("name", ["a.jsonl", "a.json"])
def test_many_histories_in_a_file_each_have_a_name(write, name):
    many = [{"instance_id": f"i{n % 2}", "history": [v0(n)]} for n in range(3)]
    found, findings = read(write(name, *many) if name == "a.jsonl" else write(name, many))
    assert [(it[0], it[2]) for it in found] == [("a:i0", [v0(0)]), ("a:i1", [v0(1)]), ("a:i0#2", [v0(2)])]
    assert findings == []


# -- folders ----------------------------------------------------------------------------------------------------------


def test_a_folder_of_v1_events_in_the_order_of_its_indices(write, tmp_path):
    for index, name in [(0, "a"), (10, "c"), (2, "b")]:
        write(f"run/events/event-{index:05}-{name}{'0' * 8}.json", v1(name))
    write("run/events/.eventlog.lock", b"")
    write("run/base_state.json", {"id": "conversation-7", "agent": {"events": []}})
    assert only(tmp_path) == ("conversation-7", "openhands-v1", [v1(name) for name in "abc"], [])
    assert only(tmp_path / "run" / "events")[0] == "conversation-7"


def test_a_folder_whose_state_is_missing_is_continued_once_its_state_names_it(write, tmp_path):
    for index, name in enumerate("abcd"):
        write(f"k/events/event-{index:05}-{name}.json", v1(name))
    with open_store("memory:") as store:
        for state in ({}, {"id": "conversation-7"}, {"id": "conversation-7"}):
            write("k/base_state.json", state)
            (source,) = open_sources([tmp_path / "k"])
            assert import_source(store, source).conversation == "k"
        assert [row.id for row in store.conversations()] == ["k"]


def test_the_leaf_that_the_state_names_decides_the_branch(write, tmp_path):
    for index, event in enumerate([v1("a"), v1("b", parent_id="a"), v1("c", parent_id="a")]):
        write(f"run/events/event-{index:05}-{event['id']}.json", event)
    (source,) = open_sources([tmp_path])
    assert [event.origin.id for event in View.from_events(source.events())] == ["a", "c"]
    write("run/base_state.json", {"leaf_event_id": "b"})
    (source,) = open_sources([tmp_path])
    assert [event.origin.id for event in View.from_events(source.events())] == ["a", "b"]


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
    assert [each.partition(": ")[0].rpartition("/")[2] for each in findings] == [f"message_{n}.json" for n in (3, 7, 9)]


def test_folders_behind_links_are_read_once_and_what_is_no_file_is_told(write, tmp_path):
    for name in ("runs/a.jsonl", "runs/z/b.jsonl", "elsewhere/c.jsonl", "above.jsonl"):
        write(name, chat(), chat())
    for name, to in (("a", "z"), ("link", "../elsewhere"), ("link2", "../elsewhere"), ("up", "..")):
        (tmp_path / "runs" / name).symlink_to(to)
    (tmp_path / "elsewhere/loop").symlink_to("../runs")
    (tmp_path / "runs/dangling.jsonl").symlink_to("nowhere")
    os.mkfifo(tmp_path / "runs/pipe.jsonl")
    sources = open_sources(["runs"])
    assert [each.name for each in sources] == ["runs/a", "runs/link/c", "runs/z/b"]
    assert sorted(map(str, sources.findings)) == [
        "runs/dangling.jsonl: is a link to what does not exist",
        "runs/pipe.jsonl: is neither a file nor a folder",
    ]
    assert sources.size_bytes() == 3 * (tmp_path / "runs/a.jsonl").stat().st_size


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


# -- damage -----------------------------------------------------------------------------------------------------------


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
    assert records == [v0(0), v0(2), v0(4)]
    assert [finding.removeprefix(str(path)) for finding in findings] == [
        ":2: not JSON at character 19: Expecting ':' delimiter",
        ":4: expected an event object or an array of them, found an empty array",
        ":6: not JSON at character 3: Extra data",
        ":7: expected an event object, found a number",
        ":8: an event has a text under 'action' or 'observation', this object has neither",
        ":9: not UTF-8 at byte 7",
        ":10: nested deeper than 480 levels, the limit for one record",
    ]


def test_a_file_that_ends_in_the_middle_gives_what_came_before(write):
    whole = json.dumps({"trajectory": [v0(n) for n in range(3)]}).encode()
    path = write("a.json", whole[:-30])
    _, _, records, findings = only(path)
    assert records == [v0(0), v0(1)]
    assert findings == [f"{path}:1: not JSON: the file ends in the middle of a value"]
    path = write("b.json", b"[\n" + json.dumps(v0(0)).encode() + b",\n oops,\n" + json.dumps(v0(1)).encode() + b"]")
    assert only(path)[2:] == ([v0(0)], [f"{path}:3: not JSON: Expecting value"])


def test_damage_behind_the_records_is_a_finding(write):
    for document, problem in (
        (b'[{"role": "user", "content": "hi"}] x', "1: not JSON: more text after the end of the array"),
        (b'{"messages":\n[{"role": "user", "content": "hi"}]}{}', "2: not JSON: more text after the end of the object"),
        (b'{"messages":\n[{"role": "user", "content": "hi"}],\n "x": }', "3: not JSON: Expecting value"),
        (
            b'{"messages": [{"role": "user", "content": "hi"}]',
            "1: not JSON: expected a comma, found the end of the file",
        ),
    ):
        path = write("a.json", document)
        assert only(path)[2:] == ([chat()], [f"{path}:{problem}"])


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
    path = write("a.jsonl", {"history": [v0(0)]}, b'{"history": [', {"history": []}, 5, {"history": [v0(1), 7]})
    found, findings = read(path)
    assert [(it[0], it[2]) for it in found] == [("a:1", [v0(0)]), ("a:5", [v0(1)])]
    assert found[1][3] == [f"{path}:5, record 1: expected an event object, found a number"]
    assert [finding.split(":", 2)[1] for finding in findings] == ["2", "3", "4"]


def test_findings_are_counted_and_only_the_first_are_kept(write):
    (source,) = open_sources([write("a.jsonl", v0(0), *[b"oops"] * 1500)])
    assert len(list(source.events())) == 1
    assert (len(source.findings), source.findings_count) == (1000, 1500)
    assert len(list(source.events())) == 1
    assert source.findings_count == 1500


def test_a_file_that_is_gone_when_it_is_read_is_a_finding(write, tmp_path):
    lines = write("a.jsonl", v0(0))
    (source,) = open_sources([lines])
    lines.unlink()
    assert list(source.events()) == []
    assert [str(finding) for finding in source.findings] == [
        f"{lines}: cannot be read any further: No such file or directory"
    ]
    files = [write(f"events/{number}.json", v0(number)) for number in range(2)]
    (source,) = open_sources([tmp_path])
    files[0].unlink()
    assert [event.origin.id for event in source.events()] == [1]
    assert [str(finding) for finding in source.findings] == [f"{files[0]}: cannot be read: No such file or directory"]


def test_a_path_that_changes_after_the_first_look_is_a_finding(write):
    gone, emptied, good = (write(name, *CHATS) for name in ("a.jsonl", "b.jsonl", "c.jsonl"))
    sources = open_sources([gone, emptied, good])
    gone.unlink()
    emptied.write_bytes(b"")
    assert [source.path for source in sources] == [good]
    empty = f"{emptied}: is empty; import it again when its program has written to it"
    assert [str(it) for it in sources.findings] == [f"{gone}: no such file or folder", empty]


def test_a_record_that_is_too_long_is_a_finding(write):
    long = json.dumps(v0(1, "x" * RECORD_SIZE_MAX)).encode()
    lines = write("a.jsonl", v0(0), long, v0(2))
    array = write("b.json", b"[%s,\n%s,\n%s]" % (json.dumps(v0(0)).encode(), long, json.dumps(v0(2)).encode()))
    for path in (lines, array):
        _, _, records, (finding,) = only(path)
        assert records == [v0(0), v0(2)]
        assert finding == f"{path}:2: longer than 16,777,216 bytes, the limit for one record"


def test_what_is_odd_but_legal_is_kept(write):
    args = b'{"a": 1e400, "b": "\\ud800", "c": "\\u0000", "d": NaN, "e": "\t"}'
    odd = b'{"id": 0, "action": "run", "args": %s, "id": 1}' % args
    _, _, (record, _), findings = only(write("a.jsonl", odd, v0(2)))
    assert findings == []
    assert json.dumps(record, sort_keys=True) == json.dumps(json.loads(odd, strict=False), sort_keys=True)


# -- no history at all ------------------------------------------------------------------------------------------------


def test_a_file_without_a_history_says_what_it_is(write):
    for content, why in (
        ([], "is empty"),
        ([b" \n"], "is empty"),
        ([b"hello"], "holds neither a JSON object nor an array; import the JSON"),
        ([b"\xff\xfe{"], "is not UTF-8"),
        ([b"{"], "line 1: not JSON: the file ends in the middle of a value"),
        ([b"[" * 100_000], "line 1: nested deeper than 480 levels"),
        ([b"[]"], "is empty; import it again when its program has written to it"),
        ([b"{}"], "holds no event of a format that is known here; --format NAME chooses one of openhands-v0, "),
        ([b'{"messages": []}'], "is empty; import it again when its program has written to it"),
        ([[1, "a", {}]], "holds no event of a format that is known here"),
    ):
        path = write("a.json", *content)
        assert refusal(path).startswith(f"{path}: {why}")
        assert "\n" not in refusal(path)


def test_a_file_of_another_format_than_the_named_one_says_which_it_is(write):
    chat = write("chat.json", b'[{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yo"}]')
    told = refusal(chat, format="codex")
    assert told.endswith(
        "no event of the format 'codex'; its records are of the format 'openai-chat': name that one, or none"
    )
    assert refusal(write("a.json", b"[{}]"), format="codex").endswith("holds no event of the format 'codex'")


def test_lines_without_a_history_say_where_they_fail(write):
    path = write("a.jsonl", b"oops", b"{")
    assert refusal(path) == f"{path}: line 1: not JSON at character 0: Expecting value"
    assert "holds no event of a format that is known here" in refusal(write("b.jsonl", b"", b""))  # blank lines


def test_paths_without_a_history(write, tmp_path):
    assert refusal(tmp_path / "nowhere").endswith("nowhere: no such file or folder")
    (tmp_path / "folder").mkdir()
    assert refusal(tmp_path / "folder").endswith(".ndjson or .traj; decompress compressed ones first")
    os.mkfifo(tmp_path / "pipe.json")
    assert refusal(tmp_path / "pipe.json").endswith("pipe.json: is neither a file nor a folder")
    assert refusal(tmp_path / "folder", tmp_path / "pipe.json").startswith(str(tmp_path / "folder"))
    write("bad/a.json", b"oops")
    assert "holds no history that can be imported" in refusal(tmp_path / "bad")


# -- formats ----------------------------------------------------------------------------------------------------------


def test_a_format_that_is_named_takes_what_can_pass_for_it(write):
    odd = {"action": "zzz", "x": 1}
    assert "holds no event" in refusal(write("a.jsonl", odd))
    assert only(write("a.jsonl", odd), format="openhands-v0")[2] == [odd]
    assert "holds no event" in refusal(write("a.jsonl", v1("a")), format="openhands-v0")


# -- growth and memory ------------------------------------------------------------------------------------------------


def test_what_cannot_be_read_does_not_shift_the_branches(write):
    path = write("a.jsonl", v1("a"), b"oops", v1("b"), v1("c", parent_id="a"))
    (source,) = open_sources([path])
    assert [event.origin.id for event in View.from_events(source.events())] == ["a", "c"]


def _events(number):
    text = "x" * 2000
    calls = {"tool_call_id": f"c{number}", "model_response": {"id": f"r{number}", "choices": [text]}}
    run = {"id": 2 * number, "action": "run", "args": {"command": text}, "tool_call_metadata": calls}
    ran = {"id": 2 * number + 1, "observation": "run", "content": text, "extras": {}, "cause": 2 * number}
    return [run, {**ran, "tool_call_metadata": calls}]


@pytest.mark.parametrize("container", some(["lines", "folder", "object", "array"], 2))
def test_memory_does_not_grow_with_the_file(tmp_path, container, monkeypatch):
    """A source of 12 MB: three times what is ever held of one, and twice the memory that may be taken."""
    records = (json.dumps(record).encode() for number in range(1_500) for record in _events(number))
    path = tmp_path / ("a.jsonl" if container == "lines" else "a.json")
    if container == "folder":
        path = tmp_path / "events"
        path.mkdir()
        for number, record in enumerate(records):
            (path / f"{number}.json").write_bytes(record)
    else:
        before, between, after = {
            "lines": (b"", b"\n", b"\n"),
            "array": (b"[", b",", b"]"),
            "object": (b'{"trajectory": [', b",\n", b'], "conversation": "c"}'),
        }[container]
        path.write_bytes(before + between.join(records) + after)
    monkeypatch.undo()
    tracemalloc.start()
    try:
        (source,) = open_sources([path])
        count = sum(1 for _ in source.events())
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert count == 3_000
    assert source.findings == []
    assert peak < 6 * 2**20, f"{peak:,} bytes"


def test_the_first_history_of_one_path_is_looked_for_once(write, monkeypatch):
    looked = []
    monkeypatch.setattr(sources, "histories", lambda path, *how: (looked.append(path.name), histories(path, *how))[1])
    one = open_sources([write("a.jsonl", v1("a"), v1("b"))])
    assert [len(list(source.events())) for source in one] == [2]
    assert looked == ["a.jsonl"]
    assert [len(list(source.events())) for source in one] == [2]
    assert looked == ["a.jsonl", "a.jsonl"]
    two = open_sources(["a.jsonl", write("b.json", [v0(0)])])
    assert [len(list(source.events())) for source in two] == [2, 1]
    assert looked[2:] == ["a.jsonl", "b.json", "a.jsonl", "b.json"]  # many would take the memory of many


@pytest.mark.parametrize("name", ["a.json", "a.jsonl"])
def test_a_file_that_is_changed_or_replaced_before_it_is_read_is_read_as_it_is_then(write, name):
    def chat(*texts):
        return {"messages": [{"role": "user", "content": text} for text in texts]}

    path = write(name, chat("first"))
    opened = open_sources([path])
    other = write("b.json", chat("other", "longer"))
    other.rename(path)
    assert [[event.content for event in source.events()] for source in opened] == [["other", "longer"]]


def test_a_folder_that_changes_before_it_is_read_is_read_as_it_is_then(write, tmp_path):
    (tmp_path / "runs").mkdir()
    first = write("runs/b.jsonl", v1("b"))
    opened = open_sources(["runs"])
    first.unlink()
    write("runs/a.jsonl", v1("a"))
    assert [source.path.name for source in opened] == ["a.jsonl"]


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
