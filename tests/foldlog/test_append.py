"""``foldlog append``, and how many commands there are."""

from __future__ import annotations

import io
import json
import sys

import pytest

from foldlog import Action, open as foldlog_open
from foldlog._cli.catalog import COMMANDS, GROUP

CALL = {"id": "x", "type": "function", "function": {"name": "mail", "arguments": "{}"}}


def test_there_are_24_commands_and_a_group_for_administration(foldlog):
    names = [name for names in COMMANDS.values() for name in names]
    alone = [name for name in names if " " not in name]
    assert (len(alone), len(names) - len(alone)) == (24, 10)
    told = foldlog(GROUP).out
    assert all(f"\n  {name.removeprefix('store ')} " in told for name in names if name not in alone)


def test_a_text_is_appended_as_a_message(foldlog):
    assert foldlog("append", "c", "hello", "--new").out == "c: 1 event appended, 0\n"
    done = foldlog("append", "c", "hi", "--role", "assistant", "--json").document
    assert done == {"conversation": "c", "version": 2, "events": [1]}
    with foldlog_open("foldlog.db") as histories:
        assert [(event.source, event.content) for event in histories["c"].events()] == [
            ("user", "hello"),
            ("agent", "hi"),
        ]


def test_messages_are_read_from_stdin_all_or_none(foldlog, monkeypatch):
    foldlog("append", "c", "hello", "--new")
    records = [
        {"role": "assistant", "content": "", "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "x"},
    ]
    lines = [json.dumps({**records[0]}), "", json.dumps({**records[1], "content": "sent"})]
    for text, status in (
        ("\n".join([*lines, "{broken"]), 2),
        ('"a text"', 2),
        ("", 2),
        ("\n".join(lines), 0),
    ):
        monkeypatch.setattr(sys, "stdin", io.StringIO(text))
        ran = foldlog("append", "c")
        assert ran.status == status, ran
    with foldlog_open("foldlog.db") as histories:
        assert len(histories["c"]) == 3
        assert isinstance([*histories["c"].events()][1], Action)


@pytest.mark.parametrize(
    "given, problem",
    [
        (["c", "again", "--new"], "version"),
        (["d", "hi"], "this store has no conversation 'd'"),
        (["c", "hi", "--expected", "7"], "version"),
    ],
)
def test_a_message_that_does_not_fit_is_refused(foldlog, given, problem):
    foldlog("append", "c", "hello", "--new")
    ran = foldlog("append", *given)
    assert (ran.status, ran.out, problem in ran.err) == (2, "", True), ran.err


def test_a_key_appends_once(foldlog):
    foldlog("append", "c", "hello", "--new")
    for _ in range(2):
        assert foldlog("append", "c", "paid", "--key", "k").out == "c: 1 event appended, 1\n"
    with foldlog_open("foldlog.db") as histories:
        assert len(histories["c"]) == 2
