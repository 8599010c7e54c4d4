"""Words on a terminal, and documents for programs."""

import contextlib
import io
import json
import logging
import re
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, strategies as st
from msgspec import UNSET, UnsetType
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from foldlog import open as open_histories
from foldlog._app.cli import terminal
from foldlog._app.cli.exit_status import Refused
from foldlog._app.cli.tables import Column, print_rows
from foldlog._reports.answers.document import Document
from foldlog._reports.words.safe_text import well_formed
from foldlog.eventstore import Annotation, Origin, UnknownEvent, open_store
from tests.foldlog.terminals import in_a_terminal
from tests.how_many import some
from tests.page_samples import hostile_history
from tests.ports import free_port
from tests.said import said

STEERING = [
    *map(chr, range(0x00, 0x09)),
    *map(chr, range(0x0B, 0x20)),
    *map(chr, range(0x7F, 0xA0)),
    "\u200e",
    "\u202e",
    "\u2066",
    "\u2028",
    "\ud800",
]

values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(st.characters()),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters()), inner),
    max_leaves=10,
)


@given(st.text(st.characters()))
def test_no_text_steers_a_terminal(text):
    assert not set(terminal.printable(text)) & set(STEERING)
    assert not set(terminal.printable(text, one_line=True)) & {*STEERING, "\n", "\t"}


def _shown(value):
    """Return a value with lone surrogates as ``printable`` shows them."""
    match value:
        case str():
            return "".join(
                terminal.printable(letter) if "\ud800" <= letter <= "\udfff" else letter
                for letter in value
            )
        case list():
            return [_shown(item) for item in value]
        case dict():
            return {_shown(name): _shown(member) for name, member in value.items()}
    return value


_any_text = st.text(st.characters(exclude_categories=()))


def test_long_word_beside_heading_is_folded(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "45")
    path = "/".join(map(str, range(30)))
    terminal.say_beside("  file  ", f"at {path}")
    shown = [line.strip() for line in capsys.readouterr().out.splitlines()]
    assert "".join(shown).replace(" ", "") == f"fileat{path}"


@given(
    st.recursive(
        _any_text, lambda inner: st.lists(inner) | st.dictionaries(_any_text, inner, max_size=1)
    )
)
@example(["\\\ud800\udfff", "\\ud800", "\\\\\ud8ff", {"\udfff": "\ud83d 🌍"}])
def test_json_for_programs_has_no_lone_surrogates(value):
    assert msgspec.json.decode(well_formed(terminal.json_text(value))) == _shown(value)
    assert json.loads(well_formed(terminal.json_text(value, indent=2))) == _shown(value)


def test_id_with_lone_surrogate_verifies(foldlog, tmp_path):
    with open_store(tmp_path / "foldlog.db") as store:
        store.append("a\ud800b", said("half \udc00"), expected_version=0)
    (listed,) = msgspec.json.decode(foldlog("list --json").out)["conversations"]
    assert listed["conversation"] == "a\\ud800b"
    (tmp_path / "checkpoint.txt").write_text(foldlog("store checkpoint").out)
    assert foldlog("store verify --against checkpoint.txt").status == 0


@given(values)
@example([float("inf"), {"-": float("-inf")}])
@example(float("inf"))
def test_json_says_the_value_and_steers_no_terminal(value):
    text = terminal.json_text(value)
    assert json.loads(text, parse_constant=pytest.fail) == value
    assert not set(text) & set(STEERING)


def test_not_a_number_is_null_outside_records():
    value = {"NaN": [float("nan"), "a NaN"]}
    assert json.loads(terminal.json_text(value), parse_constant=pytest.fail) == {
        "NaN": [None, "a NaN"]
    }
    assert terminal.json_text(value, exact=True) == '{"NaN":[NaN,"a NaN"]}'


class Listed(Document, frozen=True, kw_only=True):
    head: Any
    absent: int | UnsetType = UNSET
    items: Any
    end: int = 0


@pytest.mark.parametrize("color, bold", [(None, None), ("truecolor", "1;32"), ("truecolor", "1")])
@given(text=st.text(st.characters(exclude_categories=["Cs"]), max_size=90))
@example("…" * 70)
@example("a" * 61)
@example("世" * 31)
@example("e\u0301" * 70)
@example("a" * 44 + "\u0301")
@example("ä" * 44 + "Ж")
@example("ä" * 43 + "…")
@example("ä" * 44 + "\u0301")
@example("ä" * 44 + "世")
@example("a" * 44 + "世")
@example("a" * 44 + "b" + "\ufe0f" * 2)
@example("\x1b[2J" * 20)
def test_line_looks_as_rich_prints_it(color, bold, text):
    """The environment may set NO_COLOR."""
    written = io.StringIO()
    expected = io.StringIO()
    there = Console(
        width=60,
        color_system=color,
        force_terminal=color is not None,
        no_color=bold == "1",
        highlight=False,
        file=expected,
    )
    there.print(
        Text.assemble(
            ("     7  ", "dim"),
            ("user    ", "bold green"),
            terminal.printable(text, one_line=True),
        ),
        no_wrap=True,
        overflow="ellipsis",
    )
    with contextlib.redirect_stdout(written), pytest.MonkeyPatch.context() as patch:
        patch.setattr(terminal, "_console", lambda: there)
        patch.setenv("COLUMNS", "60")
        patch.setenv("FORCE_COLOR", "1")
        lines = terminal.PrintedLines()
        expected_length = len(expected.getvalue())
        lines.write(("     7  ", "dim"), ("user    ", "bold green"), (text, ""))
    assert len(expected.getvalue()) == expected_length
    plain = re.sub("\x1b\\[[0-9;]*m", "", written.getvalue())
    assert plain.rstrip() == re.sub("\x1b\\[[0-9;]*m", "", expected.getvalue()).rstrip()
    assert color is None or written.getvalue().startswith(
        f"\x1b[2m     7  \x1b[0m\x1b[{bold}muser    \x1b[0m"
    )


@given(st.text(st.sampled_from("a~ä\xad\u0300\u02ffЖ\u0483…世\u200d\ufe0f☀") | st.characters()))
def test_text_takes_the_columns_that_rich_counts(text):
    shown = terminal.printable(text, one_line=True)
    assert terminal.count_columns(shown) == cell_len(shown)


@pytest.mark.parametrize(
    "typed, erased",
    some([("y\n", True), ("yes\n", True), ("n\n", False), ("\n", False), ("\4", False)], 2),
)
def test_erase_shows_the_history_and_asks(tmp_path, typed, erased):
    with open_histories(tmp_path / "s.db") as histories:
        histories["c1"].append([said("my \x1b[2Jsecret"), said("hello")])
    command = f"store erase c1 --reason r --db {tmp_path}/s.db".split()
    status, output, _ = in_a_terminal(*command, typed=typed)
    shown = output.decode()
    assert "c1: 2 events, begun " in shown
    assert "my " in shown
    assert "\x1b[2J" not in shown
    question = f"Erase it from {tmp_path / 's.db'} for good? This cannot be undone. [y/N]"
    assert question in shown
    assert status == (0 if erased else 2)
    assert ("nothing was erased" in shown) != erased
    with open_store(tmp_path / "s.db") as store:
        assert (store.conversation("c1").erased_at is not None) == erased
    if erased:  # it is finished without a question
        assert in_a_terminal(*command)[0] == 0


def test_progress_bar_counts_no_erased_events(tmp_path):
    with open_histories(tmp_path / "s.db") as histories:
        histories["c1"].append([said("a"), said("b"), said("c")])
        histories["c2"].append(said("d"))
        histories.erase("c2", reason="r")
    environment = {"TERM": "xterm", "COLUMNS": "100"}
    _, shown, _ = in_a_terminal("store", "verify", f"--db={tmp_path}/s.db", environment=environment)
    assert b"3 of 3 events" in shown


@pytest.mark.parametrize("width", some(["", "0", "1", "19", "-5", "ten", "8 0", "9" * 9], 2))
def test_impossible_width_is_ignored(foldlog, five_messages, monkeypatch, width):
    foldlog("import", five_messages)
    for line in ("--help", "store verify --views", "list", "log five", "why five 1"):
        monkeypatch.delenv("COLUMNS", raising=False)
        expected = foldlog(line).out
        monkeypatch.setenv("COLUMNS", width)
        assert foldlog(line).out == expected != "", line


@pytest.mark.parametrize(
    "name",
    ["tab\tx", "two\nlines", "it's\t\\t", "\x1b[31mred", "\x9b1m", "over\u202eride", "plain é"],
)
def test_id_is_quoted_for_a_shell(foldlog, five_messages, name):
    foldlog("import", five_messages, "--conversation", name)
    _, shown = foldlog("list").out.splitlines()
    word = shown.split("\t")[0]
    assert word == terminal.printable(word, one_line=True)
    typed = word if "$" in word else f"'{word}'"
    pasted = subprocess.run(
        ["bash", "-c", f"printf %s {typed}"], capture_output=True, env={"LC_ALL": "C.UTF-8"}
    )
    assert pasted.stdout.decode() == name


def test_wait_for_a_server_says_how_long(foldlog):
    url = f"postgresql://agent@127.0.0.1:{free_port()}/history?patience_s=1"
    ran = foldlog("list --json --db", url)
    first, error = map(json.loads, ran.err.splitlines())
    assert (ran.status, first["level"], error["level"]) == (2, "note", "error")
    assert first["message"].endswith("; trying again for up to 1 s (patience_s in the URL)")


HOSTILE = "name\x1b]0;pwned\x07\x1b[2J\u202e\u2028\r\x9b"
ONE_LINE = f"{HOSTILE}\nfoldlog: error: a line of its own"
CLI = Path(terminal.__file__).parent
PRINTS = {
    "say": lambda: terminal.say(ONE_LINE, (ONE_LINE, "bold")),
    "say_wrapped": lambda: terminal.say_wrapped(ONE_LINE, (ONE_LINE, "bold")),
    "answer": lambda: (
        terminal.answer(Listed(head=1, items=[]), ONE_LINE),
        terminal.answer(Listed(head=1, items=[]), [ONE_LINE, ONE_LINE]),
    ),
    "print_summary": lambda: terminal.print_summary(HOSTILE, 4),
    "print_indented": lambda: terminal.print_indented(4, HOSTILE, (HOSTILE, "bold")),
    "print_heading": lambda: terminal.print_heading(ONE_LINE),
    "print_cells": lambda: terminal.print_cells([[ONE_LINE, ONE_LINE]]),
    "print_values": lambda: terminal.print_values({ONE_LINE: ONE_LINE}),
    "PrintedLines": lambda: terminal.PrintedLines().write(ONE_LINE, (ONE_LINE, "bold")),
    "print_rows": lambda: print_rows(
        [Column(ONE_LINE)] * 2, [[ONE_LINE, "x"], ["x" * 200, ONE_LINE]]
    ),
    "confirm": lambda: terminal.confirm("erase", "erased", [ONE_LINE], ONE_LINE, ONE_LINE),
    "complain": lambda: terminal.complain(ONE_LINE),
    "warn": lambda: terminal.warn(ONE_LINE),
    "note": lambda: terminal.note(ONE_LINE),
    "print_traceback": lambda: terminal.print_traceback(RuntimeError(HOSTILE)),
    "unread": lambda: (terminal.unread(ONE_LINE), terminal.print_problems()),
    "working": lambda: enter(terminal.working(ONE_LINE, ONE_LINE, 2)),
    "emit": lambda: terminal.emit(Listed(head=1, items=[{ONE_LINE: ONE_LINE}])),
    "emit_list": lambda: terminal.emit_list(Listed(head=1, items=iter([{ONE_LINE: ONE_LINE}]))),
    "logging": lambda: logging.getLogger("foldlog.a").warning("%s", ONE_LINE),
}


def enter(working):
    with working as update:
        update(description=ONE_LINE, unit=ONE_LINE)


@pytest.mark.parametrize("name", PRINTS)
@pytest.mark.parametrize("is_terminal", [False, True])
def test_whatever_prints_escapes_what_it_prints(name, is_terminal, capsys, monkeypatch):
    monkeypatch.setattr(terminal, "_found", False)
    monkeypatch.setattr("sys.stdout.isatty", lambda: is_terminal)
    monkeypatch.setattr("sys.stderr.isatty", lambda: is_terminal)
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    monkeypatch.setattr("sys.stdin.isatty", lambda: is_terminal, raising=False)
    monkeypatch.setenv("PAGER", "cat")
    if is_terminal:
        monkeypatch.setenv("COLUMNS", "60")
    else:
        monkeypatch.delenv("COLUMNS", raising=False)
    logging.getLogger("foldlog").addHandler(terminal._NOTES)
    try:
        with contextlib.suppress(Refused):
            PRINTS[name]()
    finally:
        logging.getLogger("foldlog").removeHandler(terminal._NOTES)
    out, err = capsys.readouterr()
    # what rich makes of styles and of the bar
    printed = re.sub(r"\x1b\[[0-9;?]*[A-Zabf-m]", "", out + err)
    assert is_terminal or printed or name in ("confirm", "working")
    assert not set(printed) & {*STEERING} - {"\r"}
    assert not any(
        line.startswith("foldlog: error: a line of its own") for line in printed.splitlines()
    )


def test_no_other_file_of_the_command_prints():
    """So no text comes to a terminal but as the type that is escaped: the rule is of types, not of
    memory.
    """
    prints = re.compile(
        r"\bprint\(|click\.(?:secho|echo|style)|import rich|from (?:rich|click\.termui)[ .]|from click import"
        r"|sys\.std(?:out|err)\.(?!isatty|flush|fileno|encoding)\w+"
    )
    places = {
        (path.relative_to(CLI).as_posix(), found)
        for path in CLI.rglob("*.py")
        for found in prints.findall(path.read_text())
    }
    assert {place for place in places if place[0] != "terminal.py"} == {
        # constants: nothing more is imported for the version, or where Ctrl-C comes at once
        ("__init__.py", "sys.stdout.write"),
        ("__init__.py", "sys.stderr.write"),
        # the bytes of a file: JSON, or escaped on a terminal
        ("commands/export.py", "sys.stdout.buffer"),
        # for programs, without a module of the terminal: foldlog's own words, and JSON
        ("quick_completion.py", "sys.stdout.write"),
        ("quick_hook.py", "sys.stdout.write"),
    }


def test_traceback_steers_no_terminal(foldlog, monkeypatch):
    def fails(*arguments):
        raise RuntimeError(ONE_LINE)

    monkeypatch.setattr("foldlog._app.cli.commands.list.open_existing", fails)
    for value in ("", "1"):
        monkeypatch.setenv("FOLDLOG_TRACEBACK", value)
        ran = foldlog("list")
        assert ("Traceback" in ran.err, "pwned" in ran.err) == (value == "1", True)
        assert not set(ran.err) & {*STEERING}


def test_no_text_of_an_event_steers_a_terminal(foldlog):
    body = json.dumps({HOSTILE: HOSTILE}).encode()
    events = [
        *hostile_history(),
        UnknownEvent(stored_kind=HOSTILE, stored_schema=1, body=body),
        said("x", origin=Origin(format=HOSTILE, id=HOSTILE, time=HOSTILE)),
        Annotation(name=HOSTILE, data={HOSTILE: [HOSTILE]}, extra={HOSTILE: HOSTILE}),
    ]
    with open_histories("foldlog.db") as histories:
        histories.store.ingest(HOSTILE, events)
        histories[HOSTILE].set_attributes(title=HOSTILE, user=HOSTILE)
    shown = [("show", HOSTILE, place) for place in range(len(events))]
    looks = [(name, HOSTILE) for name in ("log", "view", "stats")]
    keeps = [("store", "verify"), ("store", "erase", HOSTILE, "--yes", "--reason", HOSTILE)]
    refused = [("view", f"{HOSTILE}?"), ("export", HOSTILE)]
    for command in (("list",), *looks, *shown, *refused, *keeps):
        ran = foldlog(*command)
        assert ran.status == (2 if command in refused else 0), ran.err
        assert not set(ran.out + ran.err) & {*STEERING}, command
