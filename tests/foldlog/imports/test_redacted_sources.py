"""After a redaction, no import and no copy stores the redacted text again, whatever the name of the
source.
"""

import json
import random
import re

import pytest

from foldlog import Histories
from foldlog._imports import making_events
from foldlog._imports.redacting import redact_beside
from foldlog._privacy.redacting import redact_events
from foldlog.adapters._shared import records_of as records_read
from foldlog.eventstore.files.written_files import read_models
from foldlog.eventstore.maintenance.copy import compare_stores
from foldlog.formats import SourceRefused
from tests.between import Between, before_next_call
from tests.foldlog.imports.imports import (
    Failed,
    Import,
    bytes_of,
    copy_all,
    events_of,
    imported,
    meanwhile,
    new_store,
    redact_event,
    refused,
    set_sizes,
)
from tests.foldlog.imports.kinds import KINDS, Line
from tests.foldlog.imports.sessions_with_secret import (
    DAMAGED,
    LINES,
    OTHER,
    SECRET,
    conversations_with,
    fork as fork,
    line,
    path as path,
    redact,
    redact_secret,
    write,
)
from tests.privacy import erased
from tests.sound import assert_sound

OTHERS = {
    "prefix": lambda path: (path, {"prefix": "p-"}),
    "conversation": lambda path: (path, {"conversation": "c"}),
    "resumed": lambda path: (
        write(path.with_name("s2.jsonl"), [line(9, "on", session="s2"), *LINES]),
        {},
    ),
}


@pytest.mark.parametrize("other", OTHERS)
def test_redacted_record_is_refused_under_other_names(other, path, store, target):
    redact(store)
    copy_all(store, target)
    place, how = OTHERS[other](path)
    for side in (store, target):
        error = refused(side, place, **how)
        assert isinstance(error, SourceRefused)
        assert "was redacted" in str(error)
        assert "--again" in str(error)
        assert conversations_with(side) == []
    with new_store() as unaware:
        imported(unaware, place, **how)
        assert "use again=True (the option --again)" in str(copy_all(unaware, target))
        assert conversations_with(target) == []
        copy_all(unaware, target, again=True)
        assert len(conversations_with(target)) == 1
        imported(store, place, again=True, **how)
        copy_all(store, unaware)
        assert (
            conversations_with(unaware) == conversations_with(store) == conversations_with(target)
        )


def test_redacted_lines_stay_in_the_main_chain(store):
    """Claude Code follows the links of lines, so a wrong link would hide the lines before it."""
    side = {**line(9, "aside"), "isSidechain": True, "parentUuid": None}
    history = Histories(store)["s1"]
    history.append_records([*LINES[:2], side, *LINES[2:]], format="claude-code")
    history.redact([3, 4], reason="asked for")
    read = [*records_read(history, "claude-code")]
    keys = ("uuid", "parentUuid", "sessionId")
    assert [tuple(record[key] for key in keys) for record in read[3:5]] == [
        ("u2", "u1", "s1"),
        ("u3", "u2", "s1"),
    ]


def test_redaction_while_events_are_made(tmp_path, monkeypatch, store):
    path = write(tmp_path / "s1.jsonl", LINES[:2])
    imported(store, path)
    fork = imported(store, write(tmp_path / "other.jsonl", OTHER)).conversation
    write(path, LINES)
    before_next_call(
        monkeypatch, making_events, "decode_records", lambda: redact_secret(store, fork)
    )
    imported(store, path)
    assert SECRET not in str(events_of(store, "s1"))
    assert_sound(store)


@pytest.mark.parametrize("change", ["erase", "redact"])
def test_change_during_the_import_of_a_rewritten_source(change, tmp_path, store):
    """A fork of the erased conversation could not make its events; a fork of the redacted one would
    bring the text back.
    """
    path = write(tmp_path / "s1.jsonl", LINES[:3])
    imported(store, path)

    def act():
        if change == "redact":
            redact_secret(store, "s1")
        else:
            erased(store, "s1", detach_forks=True)

    write(path, OTHER)
    with meanwhile(store, 0, act):
        list(Import(store, [path]))
    for row in store.iter_conversations():
        if row.erased_at is None:
            assert store.version(row.id) >= 3
    assert_sound(store)
    assert change == "erase" or conversations_with(store) == []


def test_redaction_of_a_title_while_events_are_made(tmp_path, monkeypatch, store):
    message = {"author": {"role": "user"}, "content": {"content_type": "text", "parts": ["hi"]}}
    nodes = {"m": {"id": "m", "parent": None, "children": [], "message": message}}
    chat = {"id": "c", "title": SECRET, "current_node": "m", "mapping": nodes}
    path = tmp_path / "conversations.json"
    path.write_text(json.dumps([chat]))
    name = imported(store, path).conversation
    before_next_call(
        monkeypatch, store.database.recorder, "transact", lambda: redact_beside(store, name)
    )
    assert Histories(store)[name].attributes() == {}


@pytest.mark.parametrize("order", [(0, 1, 2), (1, 0, 2), (1, 2, 0)])
def test_redaction_reaches_forks_copied_in_any_order(order, tmp_path, store, target):
    files = [LINES, *([*LINES[:4], line(4, text)] for text in ("or not", "or so"))]
    paths = [write(tmp_path / f"{number}.jsonl", file) for number, file in enumerate(files)]
    names = [imported(store, path).conversation for path in paths]
    for number in order:
        copy_all(store, target, names[number])
    for side in (store, target):
        redact_secret(side, names[0])
        assert conversations_with(side) == []
    assert_sound(target)


@pytest.mark.parametrize("redacting", ["source", "target"])
@pytest.mark.parametrize("number", [1, 2, 3])
def test_redaction_during_a_first_copy(number, redacting, path, store, target):
    side = {"source": store, "target": target}[redacting]
    visible = []

    def act():
        visible.extend(side.conversations())
        if visible:
            redact_secret(side, "s1")

    events_of(store, "s1")
    with meanwhile(target, number, act):
        copy_all(store, target)
    assert store.conversation("s1").redactions == (redacting == "source")
    assert conversations_with(target) == ([] if visible else ["s1"])
    assert_sound(target)


@pytest.mark.parametrize("has_made", ["source", "target"])
@pytest.mark.parametrize("number", range(2, 8))
def test_source_redacts_during_a_later_copy(number, has_made, tmp_path, monkeypatch, store, target):
    set_sizes(monkeypatch, block=300, copied_blocks=1)

    def act(now):
        target.database.recorder = recorder
        if now == number:
            redact_secret(store, "s1")
        if now > number:
            assert_sound(target)
        target.database.recorder = between

    imported(store, write(tmp_path / "s1.jsonl", LINES[:4]))
    if has_made == "source":
        events_of(store, "s1")
    copy_all(store, target)
    if has_made == "target":  # so the events get other heads
        events_of(target, "s1")
    imported(store, write(tmp_path / "s1.jsonl", [*LINES, line(5, "and"), line(6, "on")]))
    recorder = target.database.recorder
    between = Between(recorder, act, ("query", "transact"))
    target.database.recorder = between
    copy_all(store, target, jobs=1)
    target.database.recorder = recorder
    assert_sound(target)
    problems = copy_all(store, target)
    assert_sound(target)
    if has_made == "source":
        assert problems == {"s1": None}
        assert conversations_with(target) == conversations_with(store)


def test_target_redacted_the_record_in_another_conversation(path, fork, store, target):
    other_path = path.with_name("other.jsonl")
    other = imported(store, write(other_path, OTHER[:2])).conversation
    copy_all(store, target, "s1", other)
    redact_secret(target, "s1")
    imported(store, write(other_path, OTHER))
    problems = copy_all(store, target)
    assert problems["s1"] is None
    for conversation in (fork, other):
        assert re.search("the target redacted (record|event) 2", str(problems[conversation]))
    assert conversations_with(target) == []
    redact_secret(store, "s1")
    problems = copy_all(store, target)
    assert problems[fork] is problems[other] is None
    assert conversations_with(target) == []
    assert_sound(target)


def test_two_way_copy_restores_no_redacted_record(path, store, target):
    """The refusal that the source received from its target is no decision of the source's user."""
    copy_all(store, target)
    again = imported(store, path, prefix="p-").conversation
    redact_secret(target, "s1")
    assert copy_all(target, store) == {"s1": None}
    assert conversations_with(store) == [again]
    problems = copy_all(store, target)
    assert problems.pop("s1") is None
    assert "the target redacted or erased in another conversation" in problems[again]
    assert conversations_with(target) == []
    with new_store() as third, new_store() as fourth:
        # A store that decided nothing takes what each of its sources has.
        for source, copy in ((store, third), (third, fourth)):
            assert {*copy_all(source, copy).values()} == {None}
            assert conversations_with(copy) == [again]
    copy_all(store, target, again=True)
    assert conversations_with(target) == [again]


def test_record_redacted_in_both_stores_is_copied(path, store, target):
    copy_all(store, target)
    redact_secret(target, "s1")
    again = imported(store, path, prefix="p-").conversation
    redact_secret(store, "s1")
    copy_all(target, store)  # the refusal stays the user's own
    assert copy_all(store, target)[again] is None
    assert conversations_with(target) == [again]


@pytest.mark.parametrize("grows", [False, True])
@pytest.mark.parametrize("number", range(5))
def test_target_redacts_a_record_during_a_copy(number, grows, path, store, target):
    """The target redacts the secret in ``s1`` while it gets a fork that has the secret in a record of
    its own. If the fork grows, the target has its earlier records.
    """
    had_fork = None

    def redact_in_target():
        nonlocal had_fork
        had_fork = fork in conversations_with(target)
        redact_secret(target, "s1")

    fork_path = path.with_name("fork.jsonl")
    fork = imported(store, write(fork_path, OTHER[:2] if grows else OTHER)).conversation
    copy_all(store, target, "s1")
    if grows:
        copy_all(store, target, fork)
        imported(store, write(fork_path, OTHER))
    events_of(store, fork)
    with meanwhile(target, number, redact_in_target):
        problem = copy_all(store, target, fork)[fork]
    if had_fork is None:  # the copy ran fewer transactions
        redact_in_target()
    assert problem is None or "the target redacted record 2" in problem
    # The redaction of ``s1`` leaves a fork that was there before it.
    assert set(conversations_with(target)) <= ({fork} if had_fork else set())
    redact_secret(store, "s1")
    again = copy_all(store, target, fork)[fork]
    # A fork that was complete got a receipt of its own in the target.
    assert None in (again, problem)
    assert conversations_with(target) == []
    assert_sound(target)


def test_fork_with_an_event_redacted_in_the_target(tmp_path, store, target):
    imported(store, write(tmp_path / "s1.jsonl", LINES[:4]))
    copy_all(store, target)
    redact_secret(target, "s1")
    imported(store, write(tmp_path / "s1.jsonl", LINES))  # so the events get other heads
    store.fork("s1", 4, "fork")
    assert "the target redacted record 2" in str(copy_all(store, target, "fork"))
    assert conversations_with(target) == []


def test_fork_shares_no_record_redacted_in_the_source(path, store, target):
    imported(target, path)
    for text in ("or not", "or so"):
        fork = imported(store, write(path, [*LINES[:4], line(4, text)])).conversation
        copy_all(store, target, fork)
        redact_secret(store, "s1")
        copy_all(store, target, fork)
        assert conversations_with(target) == ["s1"]
    assert_sound(target)


def test_erased_fork_without_shared_records_is_refused(path, store):
    fork = imported(store, write(path, LINES[2:])).conversation
    erased(store, fork)
    assert isinstance(refused(store, path, prefix="p-"), SourceRefused)


def chat(path, *texts):
    """Write a chat whose messages have no ids and no times, and return its path."""
    roles = ["system", *(["user", "assistant"] * len(texts))]
    messages = [
        {"role": role, "content": text}
        for role, text in zip(roles, ("Be short.", *texts), strict=False)
    ]
    path.write_text(json.dumps({"messages": messages}))
    return path


@pytest.fixture
def chats(tmp_path):
    """A chat with a secret, a longer form of it, and another chat with the same prompt."""
    texts = ["is it open?", "shall I look?", "yes", SECRET]
    return (
        chat(tmp_path / "a.json", *texts),
        chat(tmp_path / "c.json", *texts, "thanks"),
        chat(tmp_path / "b.json", "is it late?", "shall I look?", "yes", "it is"),
    )


def test_redaction_by_age_refuses_only_that_history(chats):
    first, longer, other = chats
    for for_content in (False, True):
        with new_store() as store, new_store() as target:
            imported(store, first)
            redact_events(
                store,
                "a",
                range(1, 5),
                reason="old",
                by=None,
                with_summaries=False,
                for_content=for_content,
            )
            copy_all(store, target)
            for side in (store, target):
                assert isinstance(refused(side, longer), SourceRefused)
                assert isinstance(refused(side, first, prefix="p-"), SourceRefused)
                assert conversations_with(side) == []
                (outcome,) = Import(side, [other])
                assert isinstance(outcome, Failed) == for_content


def test_erasure_refuses_only_that_chat(chats, store):
    first, longer, other = chats
    imported(store, first)
    erased(store, "a")
    assert imported(store, other).added == 5
    for source, how in ((first, {}), (first, {"prefix": "p-"}), (longer, {})):
        assert isinstance(refused(store, source, **how), SourceRefused)
    assert conversations_with(store) == []


def redact_beside_events(store, is_by_text):
    """Redact the secret in a line without an event, by its text or with the event beside it."""
    store.version("s1")
    if is_by_text:
        redact(store)
    else:
        redact_secret(store, "s1")


@pytest.mark.parametrize("odd", [DAMAGED, json.dumps({"type": 5, "odd": SECRET})])
@pytest.mark.parametrize("is_by_text", [True, False])
def test_redaction_removes_text_from_damaged_lines(odd, is_by_text, tmp_path, store):
    # a text is found where no event has it too
    lines = [LINES[0], odd, *LINES[3 if is_by_text else 1 :]]
    path = write(tmp_path / "s1.jsonl", lines)
    imported(store, path)
    redact_beside_events(store, is_by_text)
    assert conversations_with(store) == []
    write(path, [*lines, odd, line(5, "more")])
    assert imported(store, path).added
    assert conversations_with(store) == []
    assert_sound(store)


@pytest.mark.parametrize("is_by_text", [True, False])
def test_redaction_removes_damaged_lines_from_a_copy(
    is_by_text, tmp_path, monkeypatch, store, target
):
    set_sizes(monkeypatch, block=200)
    lines = [LINES[0], DAMAGED, *LINES[3 if is_by_text else 1 :]]
    imported(store, write(tmp_path / "s1.jsonl", lines))
    store.version("s1")
    copy_all(store, target)
    assert SECRET.encode() in bytes_of(target, "s1")
    redact_beside_events(store, is_by_text)
    copy_all(store, target)
    assert SECRET.encode() not in bytes_of(target, "s1")
    assert [*compare_stores(store, target)] == []
    assert_sound(target)


def test_copy_restores_no_redacted_damaged_line(tmp_path, store, target):
    path = write(tmp_path / "s1.jsonl", [LINES[0], DAMAGED, LINES[3]])
    imported(store, path)
    store.version("s1")
    copy_all(store, target)
    redact(target)
    assert SECRET.encode() not in bytes_of(target, "s1")
    write(path, [LINES[0], DAMAGED, LINES[3], LINES[4], DAMAGED, line(5, "more")])
    assert imported(store, path).added == 2
    copy_all(store, target)
    assert SECRET.encode() not in bytes_of(target, "s1")
    assert len(bytes_of(target, "s1").splitlines()) == 4
    assert_sound(target)


REPEATING = {
    "codex": "replacement_history",
    "gemini-cli": '"$set": {"messages"',
    "qwen-code": "compressedHistory",
}


def records_of(format, *words):
    """Return records that each say a word, and one that repeats these words."""
    kind = next(kind for kind in KINDS if kind.format == format)
    chosen = random.Random(1)
    records = []
    number = 0
    missing = [*(f"say {word}" for word in words), REPEATING.get(format, "say again")]
    first = kind.first("s1")
    lines = [] if first is None else [json.dumps(first)]
    while missing:
        number += 1
        word = words[len(records)] if len(records) < len(words) else "again"
        record = json.dumps(kind.record(Line(number, word, words, "s1", chosen)))
        is_plain = all(mark not in record for mark in REPEATING.values())
        if missing[0] in record and (is_plain or len(missing) == 1):
            records.append(record)
            missing.pop(0)
    return kind, [*lines, *records]


@pytest.mark.parametrize("format", REPEATING)
def test_redaction_finds_a_later_compaction(format, tmp_path, store):
    kind, lines = records_of(format, "lamp-33", "bench-44")
    path = tmp_path / kind.file
    kind.write(path, lines[:-1], "")
    name = imported(store, path, format).conversation
    redact(store, "lamp-33")
    assert conversations_with(store, "lamp-33") == []
    kind.write(path, lines, "")
    imported(store, path, format)
    assert conversations_with(store, "lamp-33") == [name]  # it is another record
    redact(store, "lamp-33")
    assert conversations_with(store, "lamp-33") == []
    assert imported(store, path, format).added == 0
    assert conversations_with(store, "lamp-33") == []


def test_later_spans_with_redacted_text_are_refused(tmp_path, store):
    kind, lines = records_of("otlp-genai", "lamp-33", "bench-44")
    path = tmp_path / kind.file
    kind.write(path, lines[:2], "")
    imported(store, path, "otlp-genai")
    redact(store, "lamp-33")
    assert conversations_with(store, "lamp-33") == []
    kind.write(path, lines, "")
    assert "repeat the texts of earlier records" in str(refused(store, path, "otlp-genai"))
    assert conversations_with(store, "lamp-33") == []


def test_file_of_a_fork_erased_meanwhile_is_named(path, fork, store):
    for each in ("s1", fork):
        store.version(each)
    with meanwhile(store, 0, lambda: erased(store, fork)):
        receipt = redact_event(store, "s1", 2)
    assert store.conversation(fork).erased_at is not None
    assert any(str(path.with_name("fork.jsonl")) in holder for holder in receipt.unconfirmed)


def test_redaction_forgets_a_deleted_source_file(path, fork, store):
    Histories(store).erase("s1", detach_forks=True, reason="asked for")
    before = read_models(store)
    path.unlink()
    redact_event(store, fork, 1)
    assert read_models(store) == [name for name in before if not name.endswith(str(path))]
