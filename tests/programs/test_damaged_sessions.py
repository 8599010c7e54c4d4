"""A damaged session of Claude Code goes on from foldlog with at least as much as from itself."""

import json
from contextlib import closing

import pytest

from tests.adapters.model_server import Reply
from tests.programs.driving import ClaudeCode
from tests.programs.sent import atoms
from tests.programs.stand_in import StandIn

ASKED = ("oak-asked", "elm-asked", "fir-asked")
SAID = ("ash-called", "yew-result", "oak-said", "elm-said", "fir-said")
NOBODY = "00000000-0000-4000-8000-00000000dead"
REMOVED = object()
"""The value of a field that ``changed`` removes."""


@pytest.fixture(scope="module")
def session(tmp_path_factory):
    """A whole session of three turns. The first turn calls a tool."""
    with closing(StandIn()) as model:
        claude = ClaudeCode(tmp_path_factory.mktemp("grove"), model)
        tool, arguments = claude.shell("echo yew-result")
        call = Reply("ash-called", [(tool, "toolu_grove", arguments)])
        model.answers = [call, "oak-said", "elm-said", "fir-said"]
        claude.run("-p", ASKED[0], "--allowedTools", "Bash")
        for asked in ASKED[1:]:
            claude.run("-p", asked, "--continue")
        (path,) = (claude.home / ".claude/projects").glob("*/*.jsonl")
        yield claude, path, path.read_bytes()


def place(lines, kind, word):
    """Return the number of the first line of a kind whose message has the word."""
    records = [json.loads(line) for line in lines]
    return next(
        number
        for number, record in enumerate(records)
        if record["type"] == kind and word in json.dumps(record["message"])
    )


def changed(lines, number, **fields):
    """Return the lines with other values of some fields in one line."""
    record = {**json.loads(lines[number]), **fields}
    record = {name: value for name, value in record.items() if value is not REMOVED}
    return [*lines[:number], json.dumps(record).encode() + b"\n", *lines[number + 1 :]]


def without(lines, number):
    return [*lines[:number], *lines[number + 1 :]]


def damaged(how, lines):
    """Return the lines of a session with one damage."""
    asked = place(lines, "user", "elm-asked")
    said = place(lines, "assistant", "elm-said")
    last = place(lines, "assistant", "fir-said")
    result = place(lines, "user", "toolu_grove")
    uuid_of = [json.loads(line).get("uuid") for line in lines]
    match how:
        case "last line is cut":
            return [*lines[:last], lines[last][: len(lines[last]) // 2]]
        case "end is NUL bytes":
            return [*lines[:last], b"\0" * 1_000]
        case "line is NUL bytes":
            return [*lines[:asked], b"\0" * len(lines[asked]), *lines[asked + 1 :]]
        case "parent is missing":
            return changed(lines, asked, parentUuid=REMOVED)
        case "parent is null":
            return changed(lines, asked, parentUuid=None)
        case "parent is of no line":
            return changed(lines, asked, parentUuid=NOBODY)
        case "parent is the line":
            return changed(lines, asked, parentUuid=uuid_of[asked])
        case "line is lost":
            return without(lines, asked)
        case "first line is lost":
            return without(lines, place(lines, "user", "oak-asked"))
        case "result is lost":
            return without(lines, result)
        case "ends with a call":
            return lines[:result]
        case "line is repeated":
            return [*lines[: said + 1], lines[said], *lines[said + 1 :]]
        case "two lines have one id":
            return changed(lines, last, uuid=uuid_of[said])
        case "lines are joined":
            return [*lines[:said], lines[said].rstrip(b"\n"), *lines[said + 1 :]]
        case "bytes are not text":
            broken = lines[said].replace(b"elm-said", b"elm-said \xc3\x28\xff")
            return [*lines[:said], broken, *lines[said + 1 :]]
    raise LookupError(how)


DAMAGES = (
    "last line is cut",
    "end is NUL bytes",
    "line is NUL bytes",
    "parent is missing",
    "parent is null",
    "parent is of no line",
    "parent is the line",
    "line is lost",
    "first line is lost",
    "result is lost",
    "ends with a call",
    "line is repeated",
    "two lines have one id",
    "lines are joined",
    "bytes are not text",
)


def sent_after_resuming(claude, session):
    """Return the words of the session that the next request contains. Every call has its result."""
    claude.model.requests.clear()
    claude.model.answers = []
    claude.run("-p", "next", "--resume", session)
    messages = claude.model.requests[0]["messages"]
    blocks = [
        block
        for message in messages
        if isinstance(message["content"], list)
        for block in message["content"]
    ]
    calls = {block["id"] for block in blocks if block["type"] == "tool_use"}
    results = {block["tool_use_id"] for block in blocks if block["type"] == "tool_result"}
    assert calls == results
    text = "\n".join(atoms(messages))
    return {word for word in (*ASKED, *SAID) if word in text}


@pytest.mark.parametrize("how", DAMAGES)
def test_hand_over_is_as_good_as_resuming(session, tmp_path, how):
    claude, path, whole = session
    lines = whole.splitlines(keepends=True)
    content = b"".join(damaged(how, lines))
    try:
        path.write_bytes(content)
        own = sent_after_resuming(claude, path.stem)
        path.write_bytes(content)
        claude.environment["FOLDLOG_DB"] = str(tmp_path / "store.db")
        claude.foldlog("import", str(path))
        options = ("--in", "claude-code", "--cwd", str(claude.work), "--json")
        made = json.loads(claude.foldlog("continue", path.stem, *options))
        ours = sent_after_resuming(claude, made["session"])
        assert own - ours == set()
        assert path.read_bytes() == content
    finally:
        path.write_bytes(whole)
