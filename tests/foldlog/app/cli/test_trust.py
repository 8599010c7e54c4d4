"""Damage that commands find, and a check that ended early. The sessions ``verify`` and ``rekey``
show what else the commands say.
"""

import re

import pytest

from foldlog.eventstore import CondensationAction, StoreRefused, StoreUnavailable, open_store
from foldlog.eventstore.recorders.sqlite.reader import SQLiteReader
from foldlog.projections import Views
from tests.said import said
from tests.stored_rows import execute


@pytest.fixture
def store(tmp_path):
    """A store with two short histories."""
    with open_store(tmp_path / "foldlog.db") as opened:
        for name in ("one", "two"):
            opened.append(name, [said(f"{n} of {name}") for n in range(5)], expected_version=0)
    return tmp_path / "foldlog.db"


HISTORIES = 12
EVENTS = 20
"""The number of events of each of these histories."""


@pytest.fixture
def unreadable_in_c04(tmp_path):
    """Make a store of twelve histories in which SQLite cannot read a page with events of c04 and
    c05. Return the number of unreadable events of c04.
    """
    path = tmp_path / "foldlog.db"
    with open_store(path) as opened:
        for n in range(HISTORIES):
            events = [said(f"{m} of {n} " + "x" * 300) for m in range(EVENTS)]
            opened.append(f"c{n:02}", events, expected_version=0)  # one after another in the file
    content = bytearray(path.read_bytes())
    pages = [slice(at, at + 4_096) for at in range(0, len(content), 4_096)]
    (both,) = [
        page for page in pages if b"19 of 4 " in content[page] and b"0 of 5 " in content[page]
    ]
    unreadable = len(re.findall(rb"\d of 4 x", content[both]))
    content[both] = b"\xee" * 4_096
    path.write_bytes(content)
    return unreadable


def test_one_unreadable_page_hides_no_other_conversation(foldlog, unreadable_in_c04):
    ran = foldlog("list --json")
    assert "conversation 'c04': it cannot be read: database disk image is malformed; run" in ran.err
    assert ran.rows() == [f"c{n:02}" for n in range(HISTORIES) if n != 4]
    ran = foldlog("log c05")
    (unread,) = re.findall(r"'c05', events 0 to (\d+): it cannot be read: .* malformed", ran.err)
    assert (len(ran.out.splitlines()), ran.err.count("\n")) == (EVENTS - 1 - int(unread), 1)
    lost = sum(EVENTS - len(foldlog("log", name).out.splitlines()) for name in ("c04", "c05"))
    document = foldlog("search 'xxx*' --limit 500 --json").document
    assert len(document["hits"]) == HISTORIES * EVENTS - lost
    assert {*re.findall(r"\bc\d\d\b", str(document["unread"]))} == {"c04", "c05"}
    ran = foldlog("export --to audit.db")
    unreadable_in_c05 = int(unread) + 1
    readable = HISTORIES * EVENTS - unreadable_in_c04 - unreadable_in_c05
    assert f" {readable} events and 0 condensations of {HISTORIES} " in ran.out
    assert "left out of audit.db: event 0 of conversation 'c05': it cannot be read" in ran.err
    for command in ("stats", "store verify --views", "store verify --views --repair"):
        names = {*re.findall(r"\bc\d\d\b", foldlog(command).err)}
        assert "c05" in names <= {"c04", "c05"}
    rows = foldlog("store verify --json").document["conversations"]
    assert [row["conversation"] for row in rows if row["status"] == "damaged"] == ["c04", "c05"]
    assert len(rows) == HISTORIES


FIND = [
    "list",
    "list --long",
    "log c05",
    "stats",
    "store verify --views",
    "export c05 --to a.db",
    "store verify --views --repair",
    "search x*",
    "store verify",
    "store redact c01 1 --reason x --yes",
]
DO_NOT = [
    "import torn.jsonl --db new.db",
    "store rekey",
    "list app=x",
    "view c00",
    "why c00 1",
    "show c05 --documents",
    "stats c05",
]


def test_command_with_findings_ends_with_1(foldlog, unreadable_in_c04, five_messages, tmp_path):
    """The fixture ``foldlog`` holds every command of these tests to that; here each finds something
    that can.
    """
    (tmp_path / "torn.jsonl").write_text((tmp_path / five_messages).read_text() + '{"torn\n')
    is_found = {command: "found: " in foldlog(command).err for command in (*FIND, *DO_NOT)}
    assert [command for command in is_found if is_found[command]] == FIND


@pytest.mark.parametrize(
    "command, ended_by, status",
    [
        ("store verify", KeyboardInterrupt, 130),
        ("store verify", StoreUnavailable, 2),
        ("store verify --views", KeyboardInterrupt, 130),
        ("store verify --views --repair", KeyboardInterrupt, 130),
    ],
)
def test_interrupted_check_says_where_to_continue(
    store, foldlog, monkeypatch, command, ended_by, status
):
    with open_store(store) as opened:
        opened.register(Views(opened))
        for name in ("one", "two"):
            opened.append(name, CondensationAction(forgotten_event_ids=[1]), expected_version=5)
        ends = opened.query("two", lambda read: read.state.key)
    execute(store, f"UPDATE events SET body = 'x' WHERE id = 2 AND conversation <> {ends}")
    with monkeypatch.context() as changed:
        for question in ("rows", "conversation"):
            ask = getattr(SQLiteReader, question)

            def ending(self, key, *rest, ask=ask, **how):
                if key in (ends, "two"):
                    raise ended_by("now")
                return ask(self, key, *rest, **how)

            changed.setattr(SQLiteReader, question, ending)
        ran = foldlog(command)
    assert (ran.status, "conversation 'one'" in ran.err) == (status, True), ran
    assert f"'foldlog {command} --from one' continues it" in ran.err
    again = foldlog(f"{command} --from two --json")
    assert ("conversation 'one'" in again.err, again.rows()) == (False, ["two"])
    assert foldlog(f"{command} two --from one").status == 2


def test_an_interrupted_comparison_names_no_command_that_does_not_compare(
    store, foldlog, monkeypatch, tmp_path
):
    (tmp_path / "checkpoint.txt").write_text(foldlog("store checkpoint").out)

    def end_at_two(verdict):
        if verdict.conversation == "two":
            raise KeyboardInterrupt

    monkeypatch.setattr("foldlog._app.cli.commands.store.verify.show_redacted", end_at_two)
    ran = foldlog("store verify --against checkpoint.txt")
    assert ran.status == 130
    assert "continues it" not in ran.err


def test_figures_of_a_conversation_never_become_those_of_the_store(store, foldlog, monkeypatch):
    asked = []

    def refuse(opened, names, **options):
        asked.append(names)
        raise StoreRefused("the store was replaced", kind="replaced")

    monkeypatch.setattr("foldlog._app.cli.commands.stats.collect_stats", refuse)
    assert foldlog("stats one").status == 2
    assert asked == [["one"]]
