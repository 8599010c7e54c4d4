"""The format of a history is found by its records. Those of other programs are refused, however
alike they look.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
from pathlib import Path
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

GOLDEN = Path(__file__).parents[2] / "golden"
READ = {name: records_of(name) for name in FORMATS}
ASKED = {"role": "user", "content": "how far is it?"}
TEXT = {"role": "assistant", "content": [{"type": "text", "text": "I measure it."}]}

DETECTED = [json.loads(line) for line in (GOLDEN / "detected.jsonl").read_text().splitlines()]
"""Records with the format that they are of; null for a program whose histories are not imported."""
NAMED = {row["name"]: row["records"] for row in DETECTED}
AI_SDK, GOOSE, RESPONSES = NAMED["AI SDK"], NAMED["Goose"], NAMED["items"]
FOREIGN = {"AI SDK": AI_SDK, "Goose": GOOSE}


def lines(path, records):
    path.write_text("".join(f"{json.dumps(record)}\n" for record in records))
    return path


NOTHING = "holds no event of a format that is known here, but an object with"
NAME_IT = "if you know its format, name it with --format"


@pytest.mark.parametrize("row", DETECTED, ids=lambda row: row["name"])
def test_records_are_of_this_format_or_of_none(row, tmp_path):
    if row["format"] is not None:
        assert detect(row["records"]) == row["format"]
        return
    with pytest.raises(ValueError, match="foldlog knows no format with such records"):
        detect(row["records"])
    with pytest.raises(NotAHistory, match=f": {NOTHING} .*; {NAME_IT}"):
        histories_at(lines(tmp_path / "a.jsonl", row["records"]))


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
    path = tmp_path / "b.json"
    for content in (FOREIGN[name], {"model": "m", "messages": FOREIGN[name]}):
        path.write_text(json.dumps(content))
        held = found if type(content) is list else "'model', 'messages'; "
        with pytest.raises(NotAHistory, match=f": {NOTHING} {held}.*{NAME_IT}"):
            histories_at(path)


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


def test_items_as_a_chat_are_findings_but_the_messages(tmp_path):
    path = lines(tmp_path / "a.jsonl", [ASKED, *RESPONSES[1:]])
    (history,) = histories_at(path, "openai-chat")
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
    asks, answers, *_ = NAMED["roles that are not known"]
    (history,) = histories_at(lines(tmp_path / "a.jsonl", [asks, TEXT, ASKED, answers]), format)
    assert [event.source for event in history.events] == ["agent", "user"]
    assert [finding.partition(": ")[2].partition(";")[0] for finding in history.findings] == [
        f"the role {role!r} is not known" for role in ("human", "ai")
    ]


def test_a_database_of_another_program_is_refused_with_its_tables(tmp_path):
    with contextlib.closing(sqlite3.connect(tmp_path / "o.db")) as database:
        for table in ("sessions", "messages", "files"):
            database.execute(f"CREATE TABLE {table} (id)")
    why = "is a SQLite database with the tables sessions, messages, files; docs/how-to"
    with pytest.raises(NotAHistory, match=why):
        histories_at(tmp_path / "o.db")


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
    (tmp_path / "177").mkdir()
    (tmp_path / "177" / "api_conversation_history.json").write_text(json.dumps([ASKED, TEXT]))
    assert detect(tmp_path / "177") == "anthropic-messages"


def test_a_log_whose_first_lines_alone_are_of_a_format_is_not_of_it(tmp_path):
    """The beginning of a log decides without its end, but not by four lines of fifty."""
    own = READ["codex"][:3]
    foreign = NAMED["Haystack"]
    path = lines(tmp_path / "a.jsonl", [*own, *(foreign * 20)[:20]])
    with pytest.raises(NotAHistory):
        histories_at(path)
    assert detection.of_lines(lines(path, [*own, *(foreign * 4)[:4]])) is None
    assert detection.of_lines(lines(path, [*own, *foreign[:1], "the end"])) is not None


OTHERS = {row["name"]: row["records"] for row in DETECTED if row["format"] is None}
LOGS = [
    {"type": "log", "n": 1},
    {"level": "info", "message": "x", "timestamp": "2026"},
    {"id": 1, "name": "y"},
    [],
    3,
]
KINDS = {**READ, **OTHERS, "": LOGS}


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
