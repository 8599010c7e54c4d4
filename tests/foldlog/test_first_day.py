"""What a person meets on the first day: help with examples, pipes, bars that vanish, errors that
say what to do.
"""

from __future__ import annotations

import io
import os
import re
import shlex
import sys
import tempfile
import time
from pathlib import Path

import pytest

from foldlog import Action, Message, Observation, open as foldlog_open
from foldlog._cli.catalog import COMMANDS
from foldlog.eventstore import open_store
from tests.commands import command_named
from tests.foldlog.terminals import in_a_terminal
from tests.how_many import some

SAMPLE = Path(__file__).parents[2] / "foldlog" / "sample" / "tidewatch.jsonl"
NAMES = [name for names in COMMANDS.values() for name in names]


def test_the_help_of_each_command_has_an_example_that_it_takes():
    for name in NAMES:
        command = command_named(name)
        [example] = re.findall(
            rf"Example: (?:[A-Z_]+=\S+ )?foldlog ({name}) ?(.*)", command.help or ""
        )
        # an unknown option or a missing argument is an error
        command.make_context(name, shlex.split(example[1]))


def test_without_a_command_and_a_store_the_first_commands_are_shown(foldlog):
    ran = foldlog()
    assert (ran.status, ran.err) == (0, "")
    assert "There is no foldlog.db here: 'foldlog demo' makes a store to try" in ran.out
    shown = re.findall("^  foldlog ([a-z]+) ", ran.out, re.MULTILINE)
    assert shown == re.findall("^  ([a-z]+)  ", foldlog("--help").out, re.MULTILINE)[: len(shown)]
    assert len(shown) == 7
    assert max(map(len, ran.out.splitlines())) <= 100
    assert foldlog("--json").document["db"] is None
    assert "--json follows the command" in foldlog("--json", "list").err


def test_without_a_command_the_store_that_is_here_is_shown_on_one_screen(foldlog, five_messages):
    for name, option in (("foldlog-demo.db", " --db foldlog-demo.db"), ("foldlog.db", "")):
        foldlog("import", five_messages, "--db", name)
        ran = foldlog()
        assert (ran.status, ran.err) == (0, "")
        assert ran.out.startswith(f"{name}: 1 conversation, 6 events, 0 errors\n")
        assert f"\nfoldlog list{option}, view ID" in ran.out
        assert len(ran.out.splitlines()) <= 24
        wrong = foldlog("why", "tidewatch", "17", "--db", "none.db").err
        assert "that of the demo is --db foldlog-demo.db" in wrong


def test_without_a_command_what_needs_attention_is_shown_with_what_mends_it(
    foldlog, tmp_path, monkeypatch
):
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    call = Action(tool="bash", call_id="x")
    with foldlog_open("foldlog.db") as histories:
        histories["open"].append([Message(source="user", content="go"), call])
        histories["failed"].append(
            [call, Observation(cause=0, content="no", call_id="x", is_error=True)]
        )
        histories["gone"].append(Message(source="user", content="go"))
        histories.erase("gone", reason="asked to", complete=False)
    found = foldlog("--json").document
    assert {each["problem"]: each["command"] for each in found["attention"]} == {
        "1 conversation ended with an error": "foldlog list --sort state --reverse",
        "1 conversation ended with a call that has no result": "foldlog list --to-resume",
        "the files may still hold bytes of what was erased": "foldlog store vacuum",
    }
    assert (found["conversations"], found["errors"]) == (2, 1)
    assert (
        "needs attention:\n  1 conversation ended with an error: foldlog list --sort state"
        " --reverse\n" in foldlog().out
    )
    for each in found["attention"]:
        assert foldlog(*each["command"].split()[1:]).status == 0
    assert all("bytes" not in each["problem"] for each in foldlog("--json").document["attention"])


def test_without_a_command_transcripts_that_a_program_will_delete_are_shown(
    foldlog, tmp_path, monkeypatch
):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("CLAUDE_CONFIG_DIR", raising=False)
    foldlog_open("foldlog.db").close()
    old = tmp_path / ".claude" / "projects" / "p" / "old.jsonl"
    old.parent.mkdir(parents=True)
    old.write_text("{}\n")
    os.utime(old, (time.time() - 29 * 86_400,) * 2)
    [attention] = foldlog("--json").document["attention"]
    assert attention["problem"].startswith(
        "claude-code deletes 1 transcript within a week, and 1 of its 1 transcript"
    )
    assert attention["command"] == "foldlog import --from claude-code"


@pytest.fixture
def stdin(monkeypatch):
    """``stdin(text)``: what the next command reads from its standard input."""

    def given(text: bytes) -> None:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text)))

    return given


def test_a_history_is_imported_from_stdin(foldlog, stdin, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    for added in (286, 0):
        stdin(SAMPLE.read_bytes())
        imported = foldlog("import", "-", "--conversation", "c", "--json").document["imported"]
        assert [(one["path"], one["conversation"], one["added"]) for one in imported] == [
            ("stdin", "c", added)
        ]
    exported = foldlog("export", "c").out
    stdin(exported.encode() + b"{broken\n")
    ran = foldlog("import", "-")
    assert ran.status == 0, "all that can be read was imported"
    assert ran.err.startswith("foldlog: note: stdin:287: not JSON")
    stdin(b"no history")
    ran = foldlog("import", "-")
    assert (ran.status, ran.out) == (2, "")
    assert ran.err.startswith("foldlog: stdin: ")
    assert str(tmp_path) not in ran.err
    assert not list(tmp_path.glob("foldlog-stdin-*"))


def test_stdin_that_is_a_terminal_is_refused(foldlog, monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(sys, "stdin", Terminal())
    ran = foldlog("import", "-")
    assert (ran.status, ran.out) == (2, "")
    assert "pipe a history into it" in ran.err


@pytest.mark.parametrize(
    "arguments",
    some(
        [["store", "verify"], ["stats"], ["search", "word"], ["store", "rekey"], ["list", "app=x"]],
        2,
    ),
    ids=" ".join,
)
def test_a_bar_counts_to_its_total_and_leaves_nothing_behind(arguments, tmp_path):
    with open_store(f"sqlite:///{tmp_path}/foldlog.db") as store:
        store.append("c", [Message(source="user", content="a word")] * 1_500, expected_version=0)
    with open(tmp_path / "out", "wb") as out:
        environment = {"TERM": "xterm", "COLUMNS": "100"}
        status, shown, _ = in_a_terminal(
            *arguments, environment=environment, cwd=tmp_path, stdout=out
        )
    assert status == 0, shown
    total = {"rekey": b"1 conversations", "list": b"listing"}.get(
        arguments[0], b"1,500 of 1,500 events"
    )
    assert total in shown
    assert b"\x1b" not in (tmp_path / "out").read_bytes()
    last = re.sub(
        rb"\x1b\[\??[0-9;]*[a-zA-Z]|[\r\n]|foldlog: note: .*", b" ", shown.rpartition(b"\x1b[2K")[2]
    )
    assert last.strip() == b"", "something stays on the terminal"


def test_a_folder_in_the_place_of_a_file_is_named_as_such(foldlog, five_messages):
    foldlog("import", five_messages)
    for typed in (
        "compare five --curve .",
        "report five -o .",
        "export five -o .",
        "export --to .",
    ):
        ran = foldlog(*typed.split())
        assert (ran.status, "is a folder" in ran.err, ".part" in ran.err) == (2, True, False)


def test_an_export_checks_the_database_before_it_writes(foldlog, five_messages):
    foldlog("import", five_messages)
    for file in ("foldlog.db", ".", "nowhere/audit.db"):
        ran = foldlog("export", "--to", file)
        assert (ran.status, ran.out) == (2, "")
        assert f"{file} cannot be the audit database" in ran.err


@pytest.mark.parametrize("removal", [("store", "erase", "five"), ("store", "redact", "five", 0)])
def test_an_audit_database_that_has_not_confirmed_is_updated_by_the_command_that_is_named(
    foldlog, five_messages, removal
):
    foldlog("import", five_messages, "--db", "s.db")
    foldlog("export", "--to", "my audit.db", "--db", "s.db")
    again = (*removal, "--reason", "asked to", "--yes", "--db", "s.db")
    ran = foldlog(*again)
    assert ran.status == 1
    (named,) = re.findall(r"'foldlog (export --to .*?)'", ran.err)
    assert foldlog(*shlex.split(named)).status == 0
    assert (foldlog(*again).status, "read model" in foldlog(*again).err) == (0, False)


def test_an_export_names_the_attributes_that_it_leaves_out(foldlog, five_messages):
    foldlog("import", five_messages)
    foldlog("attributes", "five", "--set", "user=u1")
    foldlog("attributes", "five", "--set", "user=u2")
    for format in ("openai-chat",):
        assert (
            "2 changes of attributes"
            in foldlog("export", "five", "--format", format, "--output", format).err
        )


def test_attributes_are_stored_as_the_help_says(foldlog, five_messages):
    foldlog("import", five_messages)
    told = " ".join(foldlog("attributes", "--help").out.split())
    assert "A value that is a whole number, true, false or a list in JSON is stored as such" in told
    given = {
        "n": "5",
        "flag": "true",
        "tags": '["a"]',
        "share": "1.5",
        "object": '{"a":1}',
        "word": "tides",
    }
    for name, value in given.items():
        foldlog("attributes", "five", "--set", f"{name}={value}")
    stored = {
        "n": 5,
        "flag": True,
        "tags": ["a"],
        "share": "1.5",
        "object": '{"a":1}',
        "word": "tides",
    }
    assert foldlog("attributes", "five", "--json").document["attributes"] == stored
    foldlog("attributes", "five", "--set", "n=")
    assert "n" not in foldlog("attributes", "five", "--json").document["attributes"]


@pytest.fixture
def used_again(foldlog, five_messages):
    """A conversation of 6 events that was erased, and whose id 5 others have now."""
    foldlog("import", five_messages)
    foldlog("store", "erase", "five", "--yes", "--reason", "asked to")
    with foldlog_open("foldlog.db") as histories:
        histories.create("five", replace_erased=True).append(
            Message(source="user", content="again")
        )


def test_a_copy_counts_only_what_it_copied(foldlog):
    for store in ("foldlog.db", "new.db"):
        with foldlog_open(store) as histories:
            for name in ("same", "other"):
                histories[name].append(
                    Message(source="user", content=store if name == "other" else "hi")
                )
    with foldlog_open("foldlog.db") as histories:
        histories["third"].append(Message(source="user", content="hi"))
    ran = foldlog("store", "copy", "foldlog.db", "new.db", "--json")
    assert (ran.status, ran.document["conversations"], ran.document["events"]) == (1, 1, 1)
    assert {each["conversation"] for each in ran.document["findings"]} == {"same", "other"}
    assert (
        foldlog("store", "copy", "foldlog.db", "new.db").out
        == "0 events copied, of 1 conversation (1 had nothing new)\n"
    )


def test_a_copy_counts_records_that_are_no_events_yet(foldlog, five_messages):
    foldlog("import", five_messages)
    copied = foldlog("store", "copy", "foldlog.db", "new.db").out
    assert (
        copied
        == "0 events and 6 records copied, of 1 conversation (0 had nothing new); heads are equal\n"
    )
    assert foldlog("store", "copy", "foldlog.db", "new.db", "--json").document["already_there"] == 1


def test_a_copy_counts_tombstones(foldlog, used_again):
    copied = foldlog("store", "copy", "foldlog.db", "new.db").out
    assert (
        copied
        == "2 events and 1 tombstone copied, of 1 conversation (0 had nothing new); heads are"
        " equal\n"
    )
    assert foldlog("store", "copy", "foldlog.db", "new.db").out.startswith(
        "0 events copied, of 1 conversation (1 had nothing"
    )
    documents = [
        foldlog("store", "copy", "foldlog.db", "other.db", "--json").document for _ in range(2)
    ]
    assert [(one["events"], one["tombstones"], one["already_there"]) for one in documents] == [
        (2, 1, 0),
        (0, 0, 1),
    ]
    foldlog("store", "erase", "five", "--yes", "--reason", "asked to")
    copied = foldlog("store", "copy", "foldlog.db", "third.db").out
    assert (
        copied
        == "0 events and 2 tombstones copied, of 1 conversation (0 had nothing new); heads are"
        " equal\n"
    )
