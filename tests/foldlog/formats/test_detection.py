"""The format of a history is found by its records. Those of other programs are refused, however
alike they look.
"""

from __future__ import annotations

import contextlib
import json
import re
import sqlite3
from random import Random

import pytest

from foldlog._archive.importing import Import
from foldlog._formats import detection
from foldlog._formats.registry import format_named
from foldlog.eventstore import Message
from foldlog.formats import FORMATS, NotAHistory, detect
from tests.foldlog.archive.imports import new_store
from tests.foldlog.formats.reading import histories_at
from tests.foldlog.records import records_of

READ = {name: records_of(name) for name in FORMATS}
ASKED = {"role": "user", "content": "how far is it?"}
TEXT = {"role": "assistant", "content": [{"type": "text", "text": "I measure it."}]}

AI_SDK = [
    ASKED,
    TEXT,
    {
        "role": "assistant",
        "content": [{"type": "tool-call", "toolCallId": "t1", "toolName": "measure", "args": {}}],
    },
    {"role": "user", "content": [{"type": "tool-result", "toolCallId": "t1", "result": "9 km"}]},
]
GOOSE = [
    {"working_dir": "/w", "description": "distances", "message_count": 3},
    {
        "role": "user",
        "created": 1760000000,
        "content": [{"type": "text", "text": "how far is it?"}],
    },
    {
        "role": "assistant",
        "created": 1760000001,
        "content": [
            {
                "type": "toolRequest",
                "id": "t1",
                "toolCall": {"status": "success", "value": {"name": "measure"}},
            }
        ],
    },
]
RESPONSES = [
    {
        "type": "message",
        "role": "user",
        "content": [{"type": "input_text", "text": "how far is it?"}],
    },
    {"type": "reasoning", "id": "rs_1", "summary": []},
    {"type": "function_call", "call_id": "call_1", "name": "measure", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "call_1", "output": "9 km"},
]


UNKNOWN = [
    {"role": "human", "content": "how far is it?"},
    {"role": "ai", "content": "I measure it."},
]
FOREIGN = {"AI SDK": AI_SDK, "Goose": GOOSE}


def lines(path, records):
    path.write_text("".join(f"{json.dumps(record)}\n" for record in records))
    return path


NOTHING = "holds no event of a format that is known here, but an object with"
NAME_IT = "if you know its format, name it with --format"


@pytest.mark.parametrize(
    "name, found",
    [
        ("AI SDK", "'role', 'content' and parts of the type 'tool-call'"),
        ("Goose", "'working_dir', 'description', "),
    ],
)
def test_a_history_of_another_program_is_refused_with_what_it_holds_in_every_container(
    name, found, tmp_path
):
    records = FOREIGN[name]
    array, holder = tmp_path / "b.json", tmp_path / "c.json"
    array.write_text(json.dumps(records))
    holder.write_text(json.dumps({"model": "m", "messages": records}))
    for path in (lines(tmp_path / "a.jsonl", records), array):
        with pytest.raises(NotAHistory, match=f": {NOTHING} {found}") as refused:
            histories_at(path)
        assert str(refused.value).endswith(NAME_IT)
    with pytest.raises(NotAHistory, match=f"{NOTHING} 'model', 'messages'; {NAME_IT}"):
        histories_at(holder)
    with pytest.raises(ValueError, match="foldlog knows no format with such records"):
        detect(records)


def test_among_other_files_it_is_left_out_and_among_histories_a_finding(tmp_path):
    lines(tmp_path / "a.jsonl", AI_SDK)
    lines(tmp_path / "b.jsonl", [{"messages": AI_SDK}, {"messages": [ASKED]}])
    lines(tmp_path / "c.jsonl", [ASKED, TEXT])
    with new_store() as store:
        imports = Import(store, [tmp_path])
        assert [one.conversation.split("/")[-1] for one in imports] == ["b:2", "c"]
    assert [(finding.place.split("/")[-1], finding.problem) for finding in imports.findings] == [
        ("b.jsonl:1", "no history in it")
    ]


@pytest.mark.parametrize("name", ["AI SDK", "Goose"])
def test_a_user_who_names_the_format_gets_its_messages_and_what_is_odd_in_them(name, tmp_path):
    (history,) = histories_at(lines(tmp_path / "a.jsonl", FOREIGN[name]), "openai-chat")
    assert "how far is it?" in [
        event.content for event in history.events if isinstance(event, Message)
    ]
    assert any("parts of the type 'tool" in finding for finding in history.findings)


@pytest.mark.parametrize("format", ["auto", "openai-chat", "openai-responses"])
def test_a_chat_of_roles_that_are_not_known_is_refused(format, tmp_path):
    with pytest.raises(NotAHistory, match="holds no event of"):
        histories_at(lines(tmp_path / "a.jsonl", UNKNOWN * 2), format)


def test_items_that_begin_as_a_chat_are_of_the_format_that_they_end_as(tmp_path):
    records = [ASKED, *RESPONSES[1:]]
    assert detect(records) == detect(RESPONSES) == "openai-responses"
    (history,) = histories_at(lines(tmp_path / "a.jsonl", records))
    assert history.format == "openai-responses"
    (history,) = histories_at(tmp_path / "a.jsonl", "openai-chat")
    assert [finding.partition(": ")[2] for finding in history.findings] == [
        "expected a chat message with a text under 'role', found another object"
    ] * 3


@pytest.mark.parametrize("name, kind", [("AI SDK", "tool-result"), ("Goose", "toolRequest")])
def test_a_message_of_another_program_far_into_a_chat_is_a_finding(name, kind, tmp_path):
    foreign = next(
        record for record in reversed(FOREIGN[name]) if type(record.get("content")) is list
    )
    (history,) = histories_at(lines(tmp_path / "a.jsonl", [*[ASKED, TEXT] * 30, foreign]))
    assert len(history.events) == 61
    (finding,) = history.findings
    assert finding.endswith(
        f"a.jsonl:61: has parts of the type {kind!r}, which no chat message has; the message is"
        " stored, but calls and results in it are not shown"
    )


@pytest.mark.parametrize("format", ["openai-chat", "openai-responses"])
def test_a_message_of_a_role_that_is_not_known_is_a_finding(format, tmp_path):
    (history,) = histories_at(
        lines(tmp_path / "a.jsonl", [UNKNOWN[0], TEXT, ASKED, UNKNOWN[1]]), format
    )
    assert [event.source for event in history.events] == ["agent", "user"]
    assert [finding.partition(": ")[2].partition(";")[0] for finding in history.findings] == [
        f"the role {role!r} is not known" for role in ("human", "ai")
    ]


def test_chats_and_sessions_are_of_their_formats():
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    thinking = {"type": "thinking", "thinking": "hm", "signature": "s"}
    chat = [
        {"role": "user", "content": [{"type": "text", "text": "hi"}, image]},
        {"role": "assistant", "content": None, "tool_calls": [call], "thinking_blocks": [thinking]},
        {"role": "tool", "tool_call_id": "c", "content": [{"type": "text", "text": "9 km"}]},
        {"role": "assistant", "content": [{"type": "text", "text": "9 km"}], "created": "2026"},
    ]
    assert detect(chat) == "openai-chat"
    answer = {
        "role": "assistant",
        "content": [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}],
    }
    for other in (answer, RESPONSES[1]):
        assert detect([*chat, other]) == detect([other, *chat]) == "openai-chat"
    session = {
        "type": "user",
        "uuid": "u",
        "sessionId": "s",
        "message": {"role": "user", "content": "hi"},
    }
    boundary = {"type": "system", "subtype": "compact_boundary", "uuid": "b", "sessionId": "s"}
    assert detect([boundary, session]) == "claude-code"


SHAPES = {
    "OpenCode, of which this is one file of many": [
        {"id": "msg", "sessionID": "s", "role": "user", "time": {"created": 1}, "agent": "build"}
    ],
    "the list of prompts of Gemini CLI": [
        {
            "sessionId": "s",
            "messageId": 0,
            "type": "user",
            "message": "hi",
            "timestamp": "2026-03-01T10:00:00Z",
        }
    ],
    "Factory's droid": [
        {"type": "session_start", "id": "s", "owner": "u", "cwd": "/w"},
        {
            "type": "message",
            "id": "a",
            "timestamp": "2026",
            "message": {"role": "user", "content": []},
            "parentId": None,
        },
    ],
    "Amp": [
        {"role": "user", "messageId": 0, "content": [{"type": "text", "text": "hi"}]},
        {
            "role": "assistant",
            "messageId": 1,
            "content": [{"type": "tool_use", "id": "t", "name": "f", "input": {}}],
        },
        {"role": "user", "messageId": 2, "content": [{"type": "tool_result", "toolUseID": "t"}]},
    ],
    "Amazon Bedrock or Strands": [{"role": "user", "content": [{"text": "hi"}]}],
    "Google's Gemini API": [{"role": "user", "parts": [{"text": "hi"}]}],
    "Kimi": [
        {"role": "_system_prompt", "content": "You are Kimi"},
        ASKED,
        {"role": "_checkpoint", "id": 0},
    ],
    "Codex of April 2025": [{"session": {"id": "s", "timestamp": "2025"}, "items": RESPONSES}],
    "the list of prompts of Codex": [{"session_id": "s", "ts": 1, "text": "hi"}],
    "Haystack": [{"role": "user", "meta": {}, "name": None, "content": [{"text": "hi"}]}],
    "Copilot Chat": [{"kind": 0, "v": {"requests": []}}, {"kind": 2, "k": ["requests"], "v": []}],
    "Zed": [{"User": {"id": "a", "content": [{"Text": "hi"}]}}, {"Agent": {"content": []}}],
    "a file of requests for a batch": [{"custom_id": "a", "params": {"messages": [ASKED]}}],
    "the output of opencode run --format json": [
        {"type": "text", "sessionID": "s", "part": {"messageID": "m"}}
    ],
    "the output of claude --output-format stream-json": [
        {"type": "system", "subtype": "init", "session_id": "s", "uuid": "a", "cwd": "/w"},
        {
            "type": "assistant",
            "message": {"role": "assistant", "content": []},
            "session_id": "s",
            "uuid": "b",
        },
    ],
    "an export of OpenCode 2": [
        {"id": "m", "type": "user", "text": "hi", "time": {"created": 1}},
        {
            "id": "n",
            "type": "assistant",
            "time": {"created": 2},
            "model": {"providerID": "p"},
            "content": [],
        },
    ],
}


@pytest.mark.parametrize("name", SHAPES)
def test_records_of_other_programs_are_of_no_format(name, tmp_path):
    with pytest.raises(NotAHistory, match=f": {NOTHING} '.*; {NAME_IT}"):
        histories_at(lines(tmp_path / "a.jsonl", SHAPES[name]))


def test_documents_databases_and_texts_say_what_they_are(tmp_path):
    copilot, aider, request = tmp_path / "c.json", tmp_path / "a.md", tmp_path / "r.json"
    request.write_text(json.dumps({"system": "You measure.", "messages": [ASKED, TEXT]}))
    copilot.write_text(json.dumps({"requests": [], "responderUsername": "copilot"}))
    aider.write_text("TO LLM 2026-03-01T10:00:00\n-------\n")
    with contextlib.closing(sqlite3.connect(tmp_path / "o.db")) as database:
        for table in ("sessions", "messages", "files"):
            database.execute(f"CREATE TABLE {table} (id)")
    said = {"id": "a", "timestamp": "2026-03-01T10:00:00.000Z"}
    session = {
        "sessionId": "s",
        "projectHash": "h",
        "startTime": said["timestamp"],
        "lastUpdated": said["timestamp"],
    }
    told = [{**said, "type": "user", "content": "hi"}, {**said, "type": "qwen", "content": "yo"}]
    (qwen := tmp_path / "q.json").write_text(json.dumps({**session, "messages": told}))
    node = {
        "id": "1",
        "parent": None,
        "message": {"fragments": [{"type": "REQUEST", "content": "hi"}]},
    }
    (deepseek := tmp_path / "d.json").write_text(
        json.dumps([{"id": "c", "title": "t", "mapping": {"1": node}}])
    )
    named = {
        copilot: "an object with 'requests', 'responderUsername'; if you know",
        aider: "holds neither a JSON object nor an array",
        tmp_path / "o.db": (
            "is a SQLite database with the tables sessions, messages, files; docs/how-to"
        ),
        qwen: "an object with 'id', 'timestamp', 'type', 'content'",
        deepseek: "an object with 'id', 'title', 'mapping'",
        request: "holds a system prompt beside the messages; write it as the first message",
    }
    for path, what in named.items():
        with pytest.raises(NotAHistory, match=re.escape(what)):
            histories_at(path)


def test_what_other_programs_write_too_decides_nothing(tmp_path):
    log = [{"type": "log", "n": number} for number in range(5)]
    item = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
    audit, change = {"action": "read", "user": "bob"}, {"$set": {"name": "x"}}
    weather, failure, hook = (
        {"observation": "sun", "content": "x"},
        {"observation": "error"},
        {"action": "a", "args": {}},
    )
    pod = {"kind": "Event", "source": {"component": "x"}, "metadata": {"uid": "a"}}
    others = [[each] * 3 for each in (audit, change, weather, failure, hook, pod)]
    for records in (
        [*log, item],
        [item, *log],
        [*log * 20, item],
        *others,
        *([one] for one, *_ in others),
    ):
        with pytest.raises(NotAHistory, match="holds no event of a format"):
            histories_at(lines(tmp_path / "a.jsonl", records))


def test_a_folder_tells_the_files_of_no_known_format(foldlog, tmp_path):
    (tmp_path / "b.json").write_text('{"name": "x"}')
    (tmp_path / "a.json").write_text("[1, 2]")
    lines(tmp_path / "c.jsonl", [ASKED, TEXT])
    ran = foldlog("import", str(tmp_path))
    assert ran.status == 0
    assert f"left out 2 files of no known format: {tmp_path / 'a.json'}, " in ran.err.replace(
        "\n", ""
    )


def test_a_folder_tells_the_files_whose_names_no_history_has(foldlog, tmp_path):
    (folder := tmp_path / "runs").mkdir()
    lines(folder / "c.jsonl", [ASKED, TEXT])
    lines(folder / "other.log", [ASKED, TEXT])
    for name in ("z.txt", ".hidden", "metadata.json", "empty.txt"):
        (folder / name).write_text("" if name == "empty.txt" else "{}")
    ran = foldlog("import", folder, "--db", folder / "foldlog.db")
    told = ran.err.replace("\n", "")
    assert (
        ran.status,
        "left out 2 files with names that" in told,
        f"{folder / 'other.log'}" in told,
    ) == (
        0,
        True,
        True,
    )
    again = foldlog("import", folder, "--db", folder / "foldlog.db")
    assert "left out 2 files with names" in again.err.replace("\n", "")
    assert "0 records of 1 conversation added" in again.out
    assert (
        "records of 1 conversation added"
        in foldlog("import", folder / "other.log", "--db", folder / "foldlog.db").out
    )


def test_the_last_line_counts_as_the_lines_above_say(foldlog, tmp_path):
    for name in "ab":
        lines(tmp_path / f"{name}.jsonl", [ASKED, TEXT])
    (tmp_path / "b.jsonl").write_text(f"{(tmp_path / 'b.jsonl').read_text()}{{broken\n")
    (tmp_path / "c.json").write_text("{broken")
    ran = foldlog("import", tmp_path)
    assert (ran.err.count("found: "), ran.err.count("note: ")) == (1, 1)
    assert ran.out.splitlines()[-1].endswith("; 2 findings, named above.")


def test_what_a_file_holds_is_of_its_format_if_most_of_its_records_can_be(tmp_path):
    """A line with spans makes no other log a trace. The file of a task tells whose its messages
    are, also if each is a chat message.
    """
    (span,), events = READ["otlp-genai"][:1], READ["copilot-cli"]
    (history,) = histories_at(lines(tmp_path / "a.jsonl", [span, *events]))
    assert (history.format, len(history.records), len(history.findings)) == (
        "copilot-cli",
        len(events) + 1,
        1,
    )
    old = {"id": "s", "timestamp": "2025", "instructions": None}
    assert [detect([old, *each]) for each in (READ["claude-code"], RESPONSES)] == [
        "claude-code",
        "codex",
    ]
    (tmp_path / "177").mkdir()
    (tmp_path / "177" / "api_conversation_history.json").write_text(json.dumps([ASKED, TEXT]))
    assert detect(tmp_path / "177") == "anthropic-messages"


def test_a_log_whose_first_lines_alone_are_of_a_format_is_not_of_it(tmp_path):
    """The beginning of a log decides without its end, but not by four lines of fifty."""
    own = READ["codex"][:3]
    foreign = SHAPES["Haystack"]
    path = lines(tmp_path / "a.jsonl", [*own, *(foreign * 20)[:20]])
    with pytest.raises(NotAHistory):
        histories_at(path)
    assert detection.of_lines(lines(path, [*own, *(foreign * 4)[:4]])) is None
    assert detection.of_lines(lines(path, [*own, *foreign[:1], "the end"])) is not None


LOGS = [
    {"type": "log", "n": 1},
    {"level": "info", "message": "x", "timestamp": "2026"},
    {"id": 1, "name": "y"},
    [],
    3,
]
KINDS = {**READ, **SHAPES, **FOREIGN, "": LOGS}


CHATS = {"openai-chat", "openai-responses", "anthropic-messages"}
"""Formats of which messages are the same until the first call of a tool."""


def is_of(format, name, record):
    """Whether a record of a format or a program is one of ``format``, or a file with it alone is of
    that.
    """
    alike = (
        CHATS if format in CHATS else {format, *(CHATS if format_named(format).looks_like else ())}
    )
    if name == format or any(record in READ.get(each, ()) for each in alike):
        return True
    with contextlib.suppress(ValueError):
        return detect([record]) in alike
    return False


def mixture(at, path):
    """Write a file of lines of several formats and of none. Return the format as which it is read,
    None if as none. Assert that most of its lines are of that one; of calls of two chats the
    foreign ones may be findings.
    """
    chosen = at.sample(sorted(KINDS), at.randint(1, 4))
    mixed = [
        (name, record)
        for name in chosen
        for record in at.choices(KINDS[name], k=at.choice([1, 2, 5, 20]))
    ]
    at.shuffle(mixed)
    lines(path, [record for _, record in mixed])
    try:
        sources = [history for history in histories_at(path) if history.events]
    except NotAHistory:
        return None
    formats = {history.format for history in sources}
    for format in formats:
        objects = [each for each in mixed[:50] if type(each[1]) is dict]
        of_it = sum(is_of(format, *each) for each in objects)
        is_most = 2 * of_it >= len(objects) or (format in CHATS and sources[0].findings != [])
        assert (len(formats), is_most) == (1, True), chosen
    return next(iter(formats), None)


def test_lines_of_all_formats_and_of_none_never_become_a_wrong_one(tmp_path):
    """``python -m tests.fuzz --target "lines of all formats"`` mixes more."""
    assert len({mixture(Random(seed), tmp_path / "a.jsonl") for seed in range(100)}) > 5
