"""Histories in JSON documents: an import gives back the bytes of the document, and a record keeps
its text.
"""

import json
import os

import pytest

from foldlog import Histories
from foldlog._app.coding_agents.refreshing import import_again
from foldlog.eventstore import open_store
from foldlog.formats import NotAHistory
from foldlog.formats.files.readers import array_in
from tests.foldlog.imports.imports import (
    Failed,
    Import,
    Imported,
    bytes_of,
    events_of,
    figures_of,
    imported,
    redact_event,
    set_sizes,
)
from tests.foldlog.records import GOLDEN
from tests.said import say

FILE = GOLDEN / "whole_documents.json"
DOCUMENTS = json.loads(FILE.read_text("utf-8"))
MESSAGES = DOCUMENTS["messages"]
TASK = DOCUMENTS["a task with messages"]
ASKED, *_, ANSWERED = MESSAGES
SHAPES = [{}, {"indent": 2}, {"indent": "\t", "ensure_ascii": False}, {"separators": (",", ":")}]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "one.json"


def write(path, value, shape):
    data = json.dumps(value, **shape).encode()
    path.write_bytes(data)
    return data


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_document_is_exported_byte_for_byte(name, shape, path, store):
    document = DOCUMENTS[name]
    data = write(path, document, shape)
    is_array = type(document) is list and document is not MESSAGES
    held = json.dumps(document[0], **shape).encode() if is_array else data
    outcome = imported(store, path)
    # A history in an array has its own part of the document. If the document is indented, so is
    # the part, and ``held`` is not.
    if "indent" not in shape or held is data:
        assert bytes_of(store, outcome.conversation) == held
    else:
        assert bytes_of(store, outcome.conversation) in data
    before = figures_of(store, outcome.conversation)
    assert events_of(store, outcome.conversation)
    assert figures_of(store, outcome.conversation) == before
    assert imported(store, path).added == 0


@pytest.mark.parametrize(
    "begin, end", [(b"\xef\xbb\xbf", b""), (b"\n \t", b"\n\n"), (b"", b"\0\0")]
)
def test_bytes_around_a_document_are_exported(begin, end, path, store):
    data = begin + json.dumps(TASK, indent=1).encode() + end
    path.write_bytes(data)
    assert bytes_of(store, imported(store, path).conversation) == data


def test_lax_json_is_exported_unchanged(path, store):
    data = json.dumps(MESSAGES).replace("one\\ntwo", "tab\there \\ud83d").encode()
    data = data.replace(b'"tool_call_id"', b'"score": NaN, "tool_call_id"')
    path.write_bytes(data)
    outcome = imported(store, path, "openai-chat")
    assert bytes_of(store, outcome.conversation) == data
    assert outcome.records == len(MESSAGES)
    path.write_bytes(data[:-1] + b', {"role": "user", "content": "go on"}]')
    assert imported(store, path, "openai-chat")[:2] == (outcome.conversation, 1)


def test_refresh_with_an_at_sign_in_the_name(tmp_path, store):
    path = tmp_path / "kite@home.json"
    write(path, MESSAGES[:2], {})
    assert imported(store, path).conversation == "kite@home"
    write(path, MESSAGES, {})
    import_again(store, "kite@home")
    assert bytes_of(store, "kite@home") == path.read_bytes()


def test_last_import_sets_the_other_fields(path, store):
    for cost in (1, 2):
        data = write(path, {**TASK, "cost": cost}, {})
        outcome = imported(store, path)
        assert bytes_of(store, outcome.conversation) == data
    older = write(path, {**TASK, "messages": MESSAGES[:3]}, {})
    assert imported(store, path).is_older
    assert bytes_of(store, outcome.conversation) == data != older


def all_bytes(store, conversation):
    return bytes_of(store, conversation) + repr(events_of(store, conversation)).encode()


def test_redaction_removes_text_beside_records(path, store):
    document = {
        **TASK,
        "messages": [*MESSAGES, {"role": "user", "content": "my secret"}],
        "info": {"last": "my secret"},
    }
    write(path, document, {"indent": 2})
    name = imported(store, path).conversation
    last = store.version(name) - 1
    assert b"my secret" in bytes_of(store, name)
    redact_event(store, name, last)
    for _ in range(2):
        exported = bytes_of(store, name)
        assert b"my secret" not in all_bytes(store, name)
        assert json.loads(exported) == [*MESSAGES, {"role": "user"}]
        document["info"]["last"] = "my secret again"
        document["messages"] = [*document["messages"], ANSWERED][: len(MESSAGES) + 1]
        write(path, document, {"indent": 2})
        imported(store, path)
    document["messages"] = [*document["messages"], ASKED]
    write(path, document, {"indent": 2})
    assert imported(store, path).added == 1
    assert json.loads(bytes_of(store, name)) == [*MESSAGES, {"role": "user"}, ASKED]
    assert b"my secret" not in all_bytes(store, name)


def test_dry_run_leaves_the_bytes_pending(path, tmp_path, foldlog):
    write(path, {**TASK, "info": {"task": "the deal"}}, {})
    foldlog("import", path)
    with open_store(tmp_path / "foldlog.db") as store:
        say(store, "c", "my secret")
    redact = "store redact --reason 'asked for'"
    foldlog(f"{redact} c 0 --no-vacuum --yes")
    dry = foldlog(f"{redact} --matching 'the deal' --dry-run --json")
    assert dry.document["beside"] == ["one:a__b-1"]
    with open_store(tmp_path / "foldlog.db") as store:
        assert store.database.bytes_pending


@pytest.mark.parametrize("used", [False, True])
@pytest.mark.parametrize(
    "info", [{"task": "the Caf\u00e9 deal"}, {"secrets": [{"caf\u00e9 deal": 1}]}], ids=repr
)
def test_redaction_finds_text_between_records(info, used, path, foldlog):
    write(path, {**TASK, "info": info}, {})
    assert foldlog("import", path).status == 0
    if used:
        foldlog("view one:a__b-1")
    redact = "store redact --matching 'CAFE deal' --reason 'asked for'"
    dry = foldlog(f"{redact} --dry-run")
    assert (
        "one:a__b-1: its source contains the text in its title or between records"
        in dry.out.replace("\n", " ")
    )
    assert foldlog(f"{redact} --dry-run --json").document["beside"] == ["one:a__b-1"]
    result = foldlog(f"{redact} --yes --json")
    assert result.status == 0
    assert result.document["stay"] == []
    assert result.document["holders"] == [f"imported file {path}"]
    assert result.document["not_searched"].startswith("other files")
    write(path, {**TASK, "messages": [*MESSAGES, ASKED], "info": info}, {})
    for source in ((path,), (path, "--check"), (path, "--prefix", "p-")):
        exported = foldlog("export one:a__b-1").document
        assert "deal" not in json.dumps(exported)
        assert exported[: len(MESSAGES)] == MESSAGES
        foldlog("import", *source)
        assert foldlog(f"{redact} one:a__b-1 --dry-run --json").status == 1, "nothing is found"


def test_last_value_of_a_repeated_key_counts(path, store):
    path.write_text(f'{{"messages": [{{}}], "info": "[", "messages": {json.dumps(MESSAGES)}}}')
    outcome = imported(store, path, "openai-chat")
    assert outcome.records == len(MESSAGES)
    assert bytes_of(store, outcome.conversation) == path.read_bytes()


def test_unstorable_record_is_a_finding(path, store):
    deep = json.dumps(MESSAGES).replace('"one\\ntwo"', "[" * 490 + "]" * 490)
    path.write_text(deep)
    outcome = imported(store, path, "openai-chat")
    assert (outcome.records, len(outcome.findings)) == (3, 1)
    assert bytes_of(store, outcome.conversation) == deep.encode()


def parts_of(store, path):
    """Import a file, and return the bytes of each of its histories."""
    return [bytes_of(store, outcome.conversation) for outcome in Import(store, [path])]


def test_histories_of_one_document_have_their_parts(tmp_path, store):
    path = tmp_path / "runs.json"
    other = {**TASK, "instance_id": "a__b-2"}
    write(path, [TASK, other], {"indent": 2})
    parts = parts_of(store, path)
    assert list(map(json.loads, parts)) == [TASK, other]
    assert all(part in path.read_bytes() for part in parts)


def write_runs(path, texts):
    """Write a document with a history for each text. The history has the text as a message, and its
    first character as the name.
    """
    runs = [
        {"instance_id": text[0], "messages": [ASKED, {"role": "user", "content": text}]}
        for text in texts
    ]
    write(path, runs, {})


def added_by(imports):
    """Return the conversation and the number of new records of each history."""
    return [outcome[:2] for outcome in imports if isinstance(outcome, Imported)]


@pytest.fixture
def added(tmp_path, store):
    """``added(texts)``: the outcome of an import of a document with these histories."""
    path = tmp_path / "kite.json"

    def import_runs(texts):
        write_runs(path, texts)
        return added_by(Import(store, [path]))

    return import_runs


def test_history_of_a_document_is_recognized_by_its_name(added, monkeypatch):
    with monkeypatch.context() as patch:  # an earlier version had other places
        patch.setattr(Import, "_place", lambda *_: os.urandom(16))
        added("ab")
    assert added("cab") == [("kite:c", 2), ("kite:a", 0), ("kite:b", 0)]
    assert added("bc") == [("kite:b", 0), ("kite:c", 0)]


def test_erased_history_of_a_document_stays_erased(added, tmp_path, store):
    added("bc")
    for again, last in ((True, Imported), (False, Failed)):
        Histories(store).erase("kite:c", reason="asked for")
        outcomes = [*Import(store, [tmp_path / "kite.json"], again=again)]
        assert [type(outcome) for outcome in outcomes] == [Imported, last]
    assert added("dcb") == [("kite:d", 2), ("kite:b", 0)]


def test_histories_of_a_document_may_have_equal_or_odd_names(added):
    texts = ["e1", "e2", ":", "@", "\ud800", "#"]
    names = ["kite:e", "kite:e#2", "kite::", "kite:@", "kite:?", "kite:#"]
    assert added(texts) == [(name, 2) for name in names]
    assert added(texts[:2] + texts[:1:-1]) == [(name, 0) for name in names[:2] + names[:1:-1]]


def test_interrupted_import_of_a_document_goes_on(tmp_path, store, monkeypatch):
    set_sizes(monkeypatch, short=0)
    path = tmp_path / "kite.json"
    write_runs(path, "fgh")
    next(iter(Import(store, [path])))
    assert added_by(Import(store, [path])) == [("kite:f", 0), ("kite:g", 2), ("kite:h", 2)]


def test_second_file_replaces_no_record(tmp_path, store):
    for name in "ab":
        run = {"session_id": "kite", "messages": [ASKED, {"role": "user", "content": name}]}
        write(tmp_path / f"{name}.json", run, {})
    added = [outcome[:2] for outcome in Import(store, [tmp_path])]
    assert added == [("kite", 2), ("kite@1", 1)]


def test_line_with_a_history_is_exported_unchanged(tmp_path, store):
    path = tmp_path / "runs.jsonl"
    lines = [
        json.dumps({**TASK, "instance_id": name}, indent=None).encode() + b"\n"
        for name in ("a__b-1", "a__b-2")
    ]
    path.write_bytes(b"".join(lines))
    parts = parts_of(store, path)
    assert parts == lines


@pytest.mark.parametrize(
    "text", ["[]", " [ ] ", "[1 , 2]\n", "[]x", "[1]]", "[1,2", "[1 2]", "", "[", '["a']
)
def test_array_is_read_as_by_json(text, tmp_path):
    path = tmp_path / "a.json"
    path.write_text(text)
    try:
        expected = json.loads(text)
    except ValueError:
        with pytest.raises(NotAHistory):
            array_in(path)
    else:
        assert [row.value for row in array_in(path)[1]] == expected
