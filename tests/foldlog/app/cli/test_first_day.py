"""What a person meets on the first day: help with examples, pipes, bars that vanish. See also
``tests/golden/sessions/begin.txt``.
"""

import io
import re
import shlex
import sys
import tempfile

import pytest

from foldlog.eventstore import open_store
from tests.commands import NAMES, command_named
from tests.foldlog.records import SAMPLE
from tests.foldlog.terminals import in_a_terminal
from tests.how_many import some
from tests.said import said, say


def test_help_has_a_valid_example():
    for name in NAMES:
        command = command_named(name)
        [example] = re.findall(
            rf"Example: (?:[A-Z_]+=\S+ )?foldlog ({name}) ?(.*)", command.help or ""
        )
        # an unknown option or a missing argument is an error
        command.make_context(name, shlex.split(example[1]))


@pytest.fixture
def stdin(monkeypatch):
    """``stdin(text)``: what the next command reads from its standard input."""

    def set_stdin(text):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text)))

    return set_stdin


def test_rows_fit_80_columns(foldlog, stored):
    stored["a-conversation-with-a-name"].append(said("a long title " * 9))
    (row,) = [line for line in foldlog("").out.splitlines() if "a long title" in line]
    assert 70 < len(row) <= 79


def test_import_from_stdin_leaves_no_file(foldlog, stdin, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    stdin(SAMPLE.read_bytes())
    assert foldlog("import -").status == 0
    stdin(b"no history")
    ran = foldlog("import -")
    assert (ran.status, str(tmp_path) in ran.err) == (2, False)
    assert not list(tmp_path.glob("foldlog-stdin-*"))


@pytest.mark.parametrize("line", ["null", "[" * 100_000], ids=["null", "too deep"])
def test_a_line_that_is_no_message_is_refused_before_all_others(foldlog, stdin, line):
    message = '{"role": "user", "content": "hi"}'
    stdin(f"{message}\n\n{line}\n".encode())
    ran = foldlog("append c --new")
    assert ran.status == 2
    assert "stdin:3: the line is" in ran.err
    assert "nothing was appended" in ran.err


def test_terminal_as_stdin_is_refused(foldlog, monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    monkeypatch.setattr(sys, "stdin", Terminal())
    ran = foldlog("import -")
    assert (ran.status, ran.out) == (2, "")
    assert "pipe a history into it" in ran.err


@pytest.mark.parametrize(
    "command, counted",
    some(
        [
            ("store verify", b"1,500 of 1,500 events"),
            ("stats", b"1,500 of 1,500 events"),
            ("search word", b"searching"),
            ("store rekey", b"1 conversations"),
            ("list app=x", b"listing"),
        ],
        2,
    ),
)
def test_bar_counts_and_vanishes(command, counted, tmp_path):
    with open_store(f"sqlite:///{tmp_path}/foldlog.db") as store:
        say(store, "c", *["a word"] * 1_500)
    with open(tmp_path / "out", "wb") as out:
        environment = {"TERM": "xterm", "COLUMNS": "100", "FOLDLOG_DB": "foldlog.db"}
        status, shown, _ = in_a_terminal(
            *command.split(), environment=environment, cwd=tmp_path, stdout=out
        )
    assert status == 0, shown
    assert counted in shown
    assert b"\x1b" not in (tmp_path / "out").read_bytes()
    last = re.sub(
        rb"\x1b\[\??[0-9;]*[a-zA-Z]|[\r\n]|foldlog: note: .*", b" ", shown.rpartition(b"\x1b[2K")[2]
    )
    assert last.strip() == b"", "something stays on the terminal"


def test_copy_counts_a_tombstone_of_a_reused_id(foldlog, five_messages, stored):
    foldlog("import", five_messages)
    foldlog("store erase five --yes --reason 'asked to'")
    stored.create("five", replace_erased=True).append(said("again"))
    for copied in ("copied 2 events and 1 tombstone", "copied 0 events"):
        assert foldlog("store copy foldlog.db new.db").out.startswith(copied)
    foldlog("store erase five --yes --reason 'asked to'")
    copied = foldlog("store copy foldlog.db third.db").out
    assert copied.startswith("copied 0 events and 2 tombstones of 1 conversation")
