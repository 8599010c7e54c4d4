"""Looking at histories in a terminal: one event in full, parts of a log, the pager, lists, and
beginnings of ids.
"""

import os
import re
import signal
import subprocess
from typing import get_args

import pytest

from benchmarks.counts import collecting
from foldlog import open as foldlog_open
from foldlog.condensers import Condenser
from foldlog.eventstore import (
    Action,
    Annotation,
    CondensationAction,
    CondensationRequest,
    CondensationSummary,
    DocumentChanges,
    Event,
    KeyRing,
    Message,
    Observation,
    Redaction,
    Retraction,
    SystemMessage,
    UnknownEvent,
    open_store,
)
from foldlog.eventstore.events import Entry
from tests.foldlog.terminals import FOLDLOG, in_a_terminal
from tests.privacy import redacted
from tests.said import by_turns, ids as event_ids, replied, said
from tests.web_client import asking_store


def ids(ran):
    return ran.rows("id", of="events")


PARTS = [{"type": "text", "text": "hi"}, {"type": "image_url"}]
EVERY_KIND = [
    SystemMessage(content="be kind", tools=({"name": "run"},)),
    *(Message(source=source, content=PARTS) for source in ("user", "agent", "environment")),
    Action(tool="run", arguments="not {json", call_id="k", thinking=({"thinking": "hm"},)),
    Observation(content="ok", call_id="k", cause=4, extras={"n": 1}),
    Observation(content="no", is_error=True),
    Annotation(name="note", data=[1]),
    DocumentChanges(changed={"plan": {"value": {"n": 1}}}),
    CondensationRequest(reason="too long"),
    CondensationAction(
        forgotten_event_ids=(1,), summary="hi", summary_offset=1, metadata={"reason": "events"}
    ),
    Retraction(version=11),
    CondensationSummary(content="imported"),
]


def test_events_of_every_kind_are_shown(foldlog):
    of_followers = set(Entry.__subclasses__())  # no conversation holds them
    assert {type(event) for event in EVERY_KIND} == set(get_args(Event)) - {
        UnknownEvent,
        Redaction,
    } - of_followers
    with open_store("foldlog.db") as store:
        store.ingest("c", EVERY_KIND)
        redacted(store, "c", 3)
        with asking_store(store) as client:
            kinds_of_the_page = client.json("history?id=c")["kinds"]
    lines = foldlog("log c --all").out.splitlines()
    kinds = [line.split()[3] for line in lines]
    others = {"approval", "damaged", "message", "refused", "unknown"}
    assert set(kinds) == set(kinds_of_the_page) - others
    assert all(len(line.split()) > 4 for line in lines), lines  # each says something
    for event_id, kind in enumerate(kinds):
        assert ids(foldlog("log c --json --kind", kind)).count(event_id) == 1
        assert kind in foldlog("show c", event_id).out.splitlines()[0]


@pytest.mark.parametrize(
    "arguments, line",
    [
        ({"command": "ls -l", "description": "look"}, "ls -l"),
        ('{"command": ["bash", "-lc", "ls | wc"], "workdir": "/w"}', "ls | wc"),
        ({"type": "exec", "command": ["grep", "-r", "a b"]}, "grep -r 'a b'"),
        ('{"cmd": "ls", "yield_time_ms": 100}', "ls"),
        ({"command": "view", "path": "a.py"}, "view a.py"),
        ({"command": ["a", 1], "n": 1}, '{"command": ["a", 1], "n": 1}'),
        ({"command": [], "n": 1}, '{"command": [], "n": 1}'),
    ],
)
def test_call_is_shown_as_its_command(foldlog, arguments, line, stored):
    stored["c"].append(Action(tool="shell", arguments=arguments, call_id="1"))
    assert foldlog("log c").out.endswith(f"shell: {line}\n")


def test_the_end_of_a_log_counts_only_its_own_changes_of_documents(foldlog, stored):
    stored["c"].append(said("one"))
    stored["c"].set_attributes(user="ann")
    stored["c"].append(said("two"))
    assert foldlog("log c --tail 1").err == ""
    assert "1 change of documents and attributes" in foldlog("log c --tail 2").err
    assert "1 change of documents and attributes" in foldlog("log c --tail 9").err


def test_each_id_that_a_terminal_shows_names_its_conversation(tmp_path):
    """A session of sub-agents may have no conversation itself."""
    sessions = [f"0199c1b2-{part}-7a10-b2c8-5d0d3a9f1e42" for part in ("6c3e", "6c3f")]
    ids = [f"{sessions[0]}/agent-1", f"{sessions[0]}/agent-10", f"{sessions[1]}/agent-1"]
    with open_store(f"sqlite:///{tmp_path}/foldlog.db") as store:
        for number, name in enumerate(ids):
            store.ingest(name, [said(f"words {number}")])
    environment = {"COLUMNS": "150", "FOLDLOG_DB": f"{tmp_path}/foldlog.db"}
    _, shown, _ = in_a_terminal("list", environment=environment)
    short = re.findall(rb"0199c1b2\S*agent-\d+", shown)
    assert len(short) == len(ids)
    assert len({*short}) == len(ids)
    for name in short:
        status, shown, _ = in_a_terminal("log", name.decode(), environment=environment)
        assert status == 0, shown
        assert b"words" in shown


def test_a_log_is_followed_until_ctrl_c(tmp_path):
    with foldlog_open(tmp_path / "foldlog.db") as histories:
        histories["c"].append(said("first"))
        with subprocess.Popen(
            [FOLDLOG, "log", "c", "-f", "--db", "foldlog.db"],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            assert "first" in process.stdout.readline()
            for text in ("second", "third"):
                histories["c"].append(said(text))
                line = process.stdout.readline()
                assert text in line
            process.send_signal(signal.SIGINT)
            rest, problems = process.communicate()
            # Python may write a line again if the signal came in the middle of its write.
            assert rest in ("", line)
            assert problems == ""
            assert process.returncode == 0


@pytest.fixture
def paging(tmp_path):
    """``paging(pager, *command)``: the exit status of a command on a terminal of five lines, what
    the terminal shows, and the errors. The store has a long conversation.
    """
    summary = "\n".join(f"line {n}" for n in range(9))
    with foldlog_open(tmp_path / "foldlog.db") as histories:
        histories["c"].append([said("x" * 5_000)] * 500)
        histories["c"].append(
            CondensationAction(forgotten_event_ids=(0,), summary=summary, summary_offset=0)
        )

    def run(pager, *command, **others):
        environment = {
            **others,
            "PAGER": None if pager is None else str(pager),
            "LINES": "5",
            "COLUMNS": "90",
            "FOLDLOG_DB": "foldlog.db",
        }
        return in_a_terminal(
            *command, environment=environment, cwd=tmp_path, stdin=None, stderr=subprocess.PIPE
        )

    return run


@pytest.mark.parametrize("command, shows", [("log c", b"condensation"), ("why c 0", b"line 8")])
def test_terminal_output_goes_to_the_pager(paging, tmp_path, command, shows):
    pager = tmp_path / "pager"
    pager.write_text(f"#!/bin/sh\nexec cat > {tmp_path}/paged\n")
    pager.chmod(0o755)
    assert paging(pager, *command.split()) == (0, b"", b"")
    assert shows in (tmp_path / "paged").read_bytes()


@pytest.mark.parametrize("locale, shown", [("C", b"xx\\u2026"), ("C.UTF-8", "xx…".encode())])
def test_pager_gets_characters_of_its_locale(paging, locale, shown):
    output = paging("head -1", "log", "c", LC_ALL=locale)[1]
    assert output.rstrip().endswith(shown)


def test_a_reader_may_leave_the_pager(paging):
    status, _, err = paging("head -1", "log", "c", "--full")
    assert (status, err) == (0, b"")


@pytest.mark.parametrize("terminal", ["dumb", None])
def test_a_terminal_without_a_cursor_gets_no_pager(paging, tmp_path, monkeypatch, terminal):
    """There, ``less`` waits for a key before its first line."""
    less = tmp_path / "less"
    less.write_text("#!/bin/sh\necho paged\n")
    less.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    assert b"condensation" in paging(None, "log", "c", TERM=terminal)[1]
    assert paging(None, "log", "c", TERM="xterm")[1] == b"paged\r\n"


ANNOTATIONS = "annotations are never shown to a model"


@pytest.mark.parametrize(
    "line, shown",
    [
        ("show c 1", "       thinking:\n        Look at\n        prices.\n        Done.\n"),
        ("show c 2", "thinking:\n        encrypted: only the model's server can read it\n"),
        ("log c --full", "        prices.\n        Done.\n"),
        ("why c 'look at prices'", "the View shows it at index 0\n     1  agent"),
        ("why c 'look at prices' --at 1", f"never shown at version 1: {ANNOTATIONS}\n"),
        ("why c 'AT prices'", "Done.\n        Look at prices. Done.\n"),
        ("why c 0", "never shown to a model; its thinking is shown with event 1\n"),
        ("why d 0", "it sets todo: documents of a conversation are never shown to a model\n"),
    ],
)
def test_thinking_is_shown_and_found(foldlog, line, shown, stored):
    thought = {"type": "thinking", "thinking": "Look at\nprices.", "signature": "c2ln"}
    hidden = {"type": "redacted_thinking", "data": "c2ln"}
    stored["c"].append(
        [
            Annotation(name="assistant", data=[thought]),
            replied("Done.", thinking=[thought]),
            replied("Hidden.", thinking=[hidden]),
        ]
    )
    stored["d"].append((), documents={"todo": ["prices"]})
    assert shown in foldlog(line).out
    assert foldlog("why c c2ln").status == 2


def test_list_of_conversations_to_resume(foldlog, stored):
    def listed():
        ran = foldlog("list --to-resume --json")
        return ran.status, ran.rows()

    stored["c"].append(Action(tool="deploy", call_id="k"))
    with stored["c"].lease():
        assert listed() == (0, [])
        none = foldlog("list --to-resume").out
        assert "None of 1 conversation waits for a worker. Still leased, perhaps by" in none
    assert listed() == (0, ["c"])
    stored["c"].close_open_calls()
    assert listed() == (0, [])
    with foldlog_open("foldlog.db", keys=KeyRing(["11" * 32])) as histories:
        histories["c"].append(Action(tool="deploy", call_id="l"))
    assert listed() == (1, [])


def test_view_marks_hidden_events(foldlog):
    newest = {"type": "recent_events", "max_events": 6, "keep_first": 2}
    with foldlog_open("foldlog.db", condenser=newest) as histories:
        histories["c"].append(by_turns(40))
        prepared = histories["c"].prepare()
    assert (
        "the model is sent 6 events; 34 more hidden; by recent_events (recorded in event 40)"
        in foldlog("view c").out
    )
    document = foldlog("view c --json").document
    assert document["sent_events"] == len(prepared) == 6
    sent = [event for event in document["events"] if event["role"]]
    assert [event["id"] for event in sent] == event_ids(prepared)
    assert {event["state"] for event in document["events"] if event not in sent} == {"hidden"}


def test_a_number_in_a_summary_that_is_no_id_ends_no_answer(foldlog):
    summary = f"- a [0]\n- b [{5_000 * '9'}]"
    with foldlog_open("foldlog.db") as histories:
        histories["c1"].append([said("a"), said("b")])
        condensation = CondensationAction(
            forgotten_event_ids=(0,), summary=summary, summary_offset=0
        )
        histories["c1"].append(condensation)
    for event_id in ("0", "S2"):
        document = foldlog(f"why c1 {event_id} --json").document
        assert document["lines"] == [{"event": 0, "line": "a"}]


class Newest(Condenser):
    """A condenser of an application: the command does not know what it shows."""

    type = "newest"

    def condense(self, view, agent_llm=None):
        return view.with_events(view.events[-1:])


def test_view_of_an_own_condenser_is_unknown(foldlog):
    with foldlog_open("foldlog.db", condenser=Newest()) as histories:
        histories["c"].append([said("ask")] * 3)
        histories["c"].prepare()
    out = foldlog("view c").out
    assert "not know what the model is sent; by newest (recorded in event 3), which" in out
    assert "is sent 3" not in out
    ran = foldlog("view c --json")
    assert (ran.document["sent_events"], ran.document["sent_summaries"]) == (None, None)
    assert {*ran.rows("state", of="events")} == {"unknown"}


def test_list_shows_a_hundred_rows(foldlog, stored, monkeypatch):
    for number in range(103):
        stored[f"c{number:03}"].append(said("a word"))
    note = "foldlog: note: 100 of 103 are shown: -n N shows more"
    monkeypatch.setenv("COLUMNS", "300")
    for options in ("", "--sort recorded -r", "--sort events", "--long"):
        ran = foldlog(f"list {options}")
        assert (len(ran.out.splitlines()), note in ran.err) == (101, True), options
    ran = foldlog("list -n 102")
    assert (len(ran.out.splitlines()), ran.err) == (103, "")
    assert len(foldlog("list --json").rows()) == 103
    assert len(foldlog("list --json -n 5").rows()) == 5


def head_of_list(foldlog, options, *, conversations):
    """Return the head of the list in a pipe, which has all conversations in columns of the head."""
    ran = foldlog(f"list {options}")
    head, *rows = [line.split("\t") for line in ran.out.splitlines()]
    assert len(rows) == conversations
    assert "are shown" not in ran.err
    assert {len(row) for row in rows} == {len(head)}
    return head


@pytest.mark.parametrize(
    "options, rest",
    [
        ("", []),
        ("--sort events -r", []),
        ("--sort cost", ["cost"]),
        ("--sort duration --short", ["duration"]),
        ("--long", ["with sub-agents"]),
        ("--long --sort cost", ["with sub-agents"]),
        ("--long --sort wait", ["with sub-agents", "longest wait"]),
    ],
)
def test_a_pipe_gets_all_rows_in_the_same_columns(foldlog, stored, options, rest):
    """Whatever is in the store: few conversations or many, and with sub-agents or without."""
    stored["c000"].append(said("a word"))
    few = head_of_list(foldlog, options, conversations=1)
    call = {"id": "k", "type": "function", "function": {"name": "ask", "arguments": "{}"}}
    stored["c000"].append_reply({"role": "assistant", "tool_calls": [call]})
    stored["c000"].begin_child(stored["c000"].open_calls()[-1], id="below")
    for number in range(1, 103):
        stored[f"c{number:03}"].append(said("a word"))
    many = head_of_list(foldlog, options, conversations=104)
    assert few == many
    assert few[:3] == ["conversation", "events", "last activity"]
    named = {*few} - {"conversation", "events", "last activity", "title"}
    assert named >= {*rest}
    if "--long" not in options:
        assert few[3:] == ["title", *rest]


@pytest.mark.parametrize("options, more", [("--short", 1), ("--long", 0)])
def test_long_list_costs_few_statements(foldlog, options, more):
    """``more`` is the number of statements for each further conversation."""
    statements = []
    counts = []
    with (
        foldlog_open("sqlite:///foldlog.db", durability="relaxed") as histories,
        collecting(statements),
    ):
        for added in (101, 10):  # a list of more than 100 is read by pages
            for number in range(added):
                histories[f"c{added}-{number}"].append(said("a word"))
            foldlog(f"list -n 200 {options}")  # stores the figures
            del statements[:]
            foldlog(f"list -n 200 {options}")
            counts.append(len(statements))
    assert 0 < counts[0] <= counts[1] <= counts[0] + 10 * more
