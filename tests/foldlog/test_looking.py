"""Looking at histories in a terminal: one event in full, parts of a log, the pager, lists, and
beginnings of ids.
"""

import signal
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import get_args

import pytest

from foldlog import open as foldlog_open
from foldlog._cli.events import STYLES
from foldlog._labels import KINDS
from foldlog._words.gist import gist
from foldlog.eventstore import (
    ANY_VERSION,
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
    Origin,
    Redaction,
    Retraction,
    SystemMessage,
    UnknownEvent,
    open_store,
)
from foldlog.eventstore.events import Entry
from foldlog.eventstore.maintenance.redact import redact
from tests.foldlog.terminals import FOLDLOG, in_a_terminal
from tests.said import said

SOURCES = ("user", "agent", "environment")
PATCH = "diff --git a/x.py b/x.py\n--- a/x.py\n+++ b/x.py\n@@ -1 +1 @@\n-old\n+new"


@pytest.fixture
def work(tmp_path):
    """A history of one of each that people look at, in the default store."""
    events = [
        Message(
            source="user",
            content="Please\nmend it. " + "x" * 500,
            timestamp=datetime(2026, 3, 1, 12, tzinfo=UTC),
        ),
        Action(
            tool="edit",
            arguments={"path": "x.py", "new_str": "def f():\n    return 1\n", "line": 3},
            call_id="k",
        ),
        Observation(tool="edit", content=PATCH, call_id="k", cause=1, is_error=True),
        Annotation(name="metrics", data={"cost": 1}),
        Message(source="agent", content="Done.", timestamp=datetime(2026, 3, 2, tzinfo=UTC)),
        Retraction(version=4, reason="too soon"),
    ]
    with open_store(f"sqlite:///{tmp_path}/foldlog.db") as store:
        store.append("alpha-1", events, expected_version=0)
        store.append("alpha-2", [Message(source="user", content="hi")] * 3, expected_version=0)
        store.append("beta", Message(source="user", content="other"), expected_version=0)


def ids(ran):
    return [event["id"] for event in ran.document["events"]]


def test_an_event_is_shown_in_full_with_its_line_breaks(foldlog, work):
    out = foldlog("show alpha-1 1").out
    assert '"line": 3' in out
    assert "        def f():\n            return 1\n" in out
    assert (
        f"        {PATCH.replace(chr(10), chr(10) + '        ')}" in foldlog("show alpha-1 2").out
    )
    document = foldlog("show alpha-1 0 --json").document
    assert document["event"]["timestamp"] == "2026-03-01T12:00:00Z"
    assert datetime.fromisoformat(document["event"]["recorded_at"]).year >= 2026
    assert "has no event 6; its events are 0 to 5" in foldlog("show alpha-1 6").err
    assert "event 4 has no summary" in foldlog("show alpha-1 -6").err


EVERY_KIND = [
    SystemMessage(content="be kind", tools=({"name": "run"},)),
    *(
        Message(source=source, content=[{"type": "text", "text": "hi"}, {"type": "image_url"}])
        for source in SOURCES
    ),
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


def test_events_of_every_kind_are_shown(foldlog, tmp_path):
    of_followers = set(Entry.__subclasses__())  # no conversation holds them
    assert {type(event) for event in EVERY_KIND} == set(get_args(Event)) - {
        UnknownEvent,
        Redaction,
    } - of_followers
    with open_store(f"sqlite:///{tmp_path}/foldlog.db") as store:
        store.ingest("c", EVERY_KIND)
        redact(store, "c", 3, reason="asked to", by="me")
    lines = foldlog("log c --all").out.splitlines()
    kinds = [line.split()[3] for line in lines]
    assert set(kinds) == set(KINDS) - {"message", "unknown"} == set(STYLES) - {"unknown", "damaged"}
    assert all(len(line.split()) > 4 for line in lines), lines  # each says something
    for event_id, kind in enumerate(kinds):
        assert ids(foldlog("log c --json --kind", kind)).count(event_id) == 1
        assert kind in foldlog("show c", event_id).out.splitlines()[0]
    for name in (-12, "S10", "s10"):
        assert foldlog("show c", name).out.splitlines()[0].split()[:2] == ["S10", "summary"]


def test_a_call_is_shown_by_its_command_line():
    for arguments, line in [
        ({"command": "ls -l", "description": "look"}, "ls -l"),
        ('{"command": ["bash", "-lc", "ls | wc"], "workdir": "/w"}', "ls | wc"),
        ({"type": "exec", "command": ["grep", "-r", "a b"]}, "grep -r 'a b'"),
        ('{"cmd": "ls", "yield_time_ms": 100}', "ls"),
        ({"command": "view", "path": "a.py"}, "view a.py"),
        ({"command": ["a", 1], "n": 1}, '{"command": ["a", 1], "n": 1}'),
        ({"command": [], "n": 1}, '{"command": [], "n": 1}'),
    ]:
        assert gist(Action(tool="shell", arguments=arguments, call_id="1"), 80) == f"shell: {line}"


def test_nothing_is_cut_where_stdout_is_no_terminal(foldlog, work):
    assert "x" * 500 in foldlog("log alpha-1").out
    assert "x" * 500 in foldlog("view alpha-1").out
    assert "x" * 500 not in foldlog("why alpha-1 0").out, (
        "why answers first, and shortens the event"
    )
    assert "…" not in foldlog("log alpha-1").out


def test_parts_of_a_log(foldlog, work):
    for options, expected in PARTS.items():
        assert ids(foldlog("log alpha-1", *options.split(), "--json")) == expected
        assert len(foldlog("log alpha-1", *options.split()).out.splitlines()) == len(expected)
    for option in ("--kind call", "--since yesterday", "--until 99999999d"):
        ran = foldlog("log alpha-1", *option.split())
        assert (ran.status, ran.out, option.split()[0] in ran.err) == (2, "", True)


PARTS = {
    "--tail 2": [4, 5],
    "--tail 0": [],
    "--kind message": [0, 4],
    "--kind agent --kind observation": [2, 4],
    "--since 2026-03-02 --until 2026-03-03": [4],
    "--until 2026-03-01T12:30": [0],
    "--since 9000d --kind retraction": [5],
}


@pytest.fixture
def condensed_history(tmp_path):
    """A history whose View has a summary, and an observation that is sent as the answer to an
    earlier event.
    """
    with foldlog_open(tmp_path / "foldlog.db") as histories:
        history = histories["c"]
        history.append([Message(source="user", content=f"message {n}") for n in range(5)])
        history.append(
            CondensationAction(
                forgotten_event_ids=(1, 2), summary="two lines\nof it", summary_offset=1
            )
        )
        history.append(Action(tool="run", arguments={}, call_id="k"))
        history.append(Observation(tool="run", content="done", call_id="k", cause=6))
        history.append([Message(source="user", content=f"message {n}") for n in range(5, 8)])


@pytest.mark.parametrize("at", [[], ["--at", 5], ["--at", 9]], ids=str)
def test_the_end_of_a_view_is_the_end_of_the_whole_view(foldlog, condensed_history, at):
    whole = foldlog("view c", *at, "--json").document
    whole_title, *lines = foldlog("view c", *at).out.splitlines()
    for count in range(len(whole["ids"]) + 2):
        document = foldlog("view c", *at, "--tail", count, "--json").document
        last = whole["events"][max(len(whole["ids"]) - count, 0) :]
        assert document == whole | {"events": last}
        title, *shown = foldlog("view c", *at, "--tail", count).out.splitlines()
        assert title == whole_title
        assert shown == lines[len(lines) - len(shown) :]
        assert sum(line.split()[0].lstrip("S").isdigit() for line in shown) == len(last)
    assert foldlog("view c --tail -1").status == 2


def test_a_view_counts_and_marks_what_a_model_is_sent_as_the_list_and_the_page_do(
    foldlog, tmp_path
):
    of_another_runtime = Origin(format="openhands-v0", id=1)
    with foldlog_open(tmp_path / "foldlog.db") as histories:
        history = histories["c"]
        history.append(
            [Message(source="user", content="hello"), Message(source="user", content="gone")]
        )
        history.append(
            [
                Action(tool="run", call_id="a"),
                Observation(tool="run", content="done", call_id="a", cause=2),
            ]
        )
        history.append(
            CondensationAction(forgotten_event_ids=(1, 2), summary="it ran", summary_offset=1)
        )
        history.append([Action(tool="run", call_id="b"), Action(tool="run", call_id="c")])
        history.append(Annotation(name="note", shown=True, origin=of_another_runtime))
        lifetimes = histories.views.lifetimes("c")
    document = foldlog("view c --json").document
    assert {one["id"]: one["state"] for one in document["events"]} == {
        **{0: "sent", -6: "sent", 3: "unsent"},
        **{5: "pending", 6: "pending", 7: "pending"},
    }
    assert {one["id"] for one in document["events"] if one["state"] == "sent"} == {
        one.id for one in lifetimes if one.at(8) == "sent"
    }
    (listed,) = foldlog("list --long --json").document["conversations"]
    figures = [document["sent_events"], document["sent_summaries"]]
    assert figures == [listed["sent_events"], listed["sent_summaries"]] == [1, 1]
    title, *lines = foldlog("view c").out.splitlines()
    assert (
        title
        == "c at version 8: the model is sent 1 event and 1 summary; 3 more pending; 1 more unsent"
    )
    assert [line.split()[0] for line in lines if "pending: " in line or "unsent: " in line] == [
        "3",
        "5",
        "6",
        "7",
    ]


def test_a_log_is_followed_until_ctrl_c(work, tmp_path):
    command = [FOLDLOG, "log", "beta", "-f"]
    with subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert "other" in process.stdout.readline()
        with open_store(f"sqlite:///{tmp_path}/foldlog.db") as store:
            for said in ("second", "third"):
                store.append(
                    "beta", Message(source="agent", content=said), expected_version=ANY_VERSION
                )
                assert said in process.stdout.readline()
        process.send_signal(signal.SIGINT)
        assert process.communicate() == ("", "")
        assert process.returncode == 0


@pytest.mark.parametrize(
    "command, shows",
    [(["log", "alpha-1"], b"too soon"), (["why", "gamma", "0"], b"line 8")],
    ids=str,
)
def test_output_on_a_terminal_goes_to_the_pager(work, tmp_path, command, shows):
    forgotten = CondensationAction(
        forgotten_event_ids=(0,), summary="\n".join(f"line {n}" for n in range(9)), summary_offset=0
    )
    with open_store(f"sqlite:///{tmp_path}/foldlog.db") as store:
        store.append("gamma", [Message(source="user", content="hi"), forgotten], expected_version=0)
    pager = tmp_path / "pager"
    pager.write_text(f"#!/bin/sh\nexec cat > {tmp_path}/paged\n")
    pager.chmod(0o755)
    environment = {"PAGER": str(pager), "LINES": "5", "COLUMNS": "90"}
    ran = in_a_terminal(
        *command, environment=environment, cwd=tmp_path, stdin=None, stderr=subprocess.PIPE
    )
    assert ran == (0, b"", b"")
    assert shows in (tmp_path / "paged").read_bytes()


def test_a_reader_may_leave_the_pager(work, tmp_path):
    with open_store(f"sqlite:///{tmp_path}/foldlog.db") as store:
        store.append(
            "long", [Message(source="user", content="x" * 5_000)] * 500, expected_version=0
        )
    environment = {"PAGER": "head -1", "LINES": "5", "COLUMNS": "60"}
    command = ("log", "long", "--full")
    ran = in_a_terminal(
        *command, environment=environment, cwd=tmp_path, stdin=None, stderr=subprocess.PIPE
    )
    assert (ran[0], ran[2]) == (0, b"")


def test_why_takes_an_id_or_words_and_a_version(foldlog, work):
    for arguments, status, out, err in (
        (["3"], 0, "shown at version 6", ""),
        (["3", "--at", 4], 0, "shown at version 4", ""),
        (
            ["done."],
            0,
            (
                "'done.' is not known: only events that were taken back have it, the last by"
                " retraction 5"
            ),
            "",
        ),
        (["DIFF\n--git a/x.py"], 0, "is known, by event 2", ""),
        (["DIFF --git", "--at", 3], 0, "is known, by event 2", ""),
        (["nothing such"], 2, "", "no event of 'alpha-1' has the words 'nothing such'"),
        (["3", "--at", 3], 2, "", "has no event 3"),
        (["3", "--at", 99], 2, "", "99"),
        (["--frob"], 2, "", "'--frob' is neither an option nor an event"),
    ):
        ran = foldlog("why alpha-1", *arguments)
        assert (ran.status, out in ran.out.replace("\n", " "), err in ran.err) == (
            status,
            True,
            True,
        ), ran


def test_words_are_those_of_a_retracted_event_only_if_no_other_has_them(foldlog):
    said = Message(source="user", content="same words")
    with foldlog_open("foldlog.db") as histories:
        histories["c"].append([said, Message(source="user", content="taken back")])
        histories["c"].retract(0)
        histories["c"].append(said)
    ran = foldlog("why c 'same words'")
    assert ran.out.startswith("'same words' is known, by event 3\nshown at version 4")
    assert foldlog("why c 'same words' --json").document["fact"]["others"] == [0]
    assert "\ntaken back at version 4" in foldlog("why c 'taken back'").out


def test_thinking_is_shown_and_found_in_the_event_that_a_model_is_shown(foldlog):
    thought = {"type": "thinking", "thinking": "Look at\nprices.", "signature": "c2ln"}
    events = [
        Annotation(name="assistant", data=[thought]),
        Message(source="agent", content="Done.", thinking=[thought]),
        Message(
            source="agent",
            content="Hidden.",
            thinking=[{"type": "redacted_thinking", "data": "c2ln"}],
        ),
    ]
    with foldlog_open("foldlog.db") as histories:
        histories["c"].append(events)
        histories["d"].append((), documents={"todo": ["prices"]})
    for command, status, told in (
        (
            ["why", "d", 0],
            0,
            "it sets todo: documents of a conversation are never shown to a model\n",
        ),
        (
            ["show", "c", 1],
            0,
            "       thinking:\n        Look at\n        prices.\n        Done.\n",
        ),
        (
            ["show", "c", 2],
            0,
            "       thinking:\n        without words: only its server can read it\n",
        ),
        (["log", "c", "--full"], 0, "        prices.\n        Done.\n"),
        (
            ["why", "c", "look at prices"],
            0,
            "shown at version 3: the View shows it at index 0\n     1  agent",
        ),
        (
            ["why", "c", "look at prices", "--at", 1],
            0,
            "never shown at version 1: annotations are never shown to a model\n",
        ),
        (["why", "c", "AT prices"], 0, "Done.\n        Look at prices. Done.\n"),
        (["why", "c", 0], 0, "never shown to a model; its thinking is shown with event 1\n"),
        (["why", "c", "c2ln"], 2, ""),
    ):
        ran = foldlog(*command)
        assert (ran.status, told in ran.out) == (status, True), ran


def test_commands_that_only_read_take_the_beginning_of_an_id(foldlog, work):
    for typed in ("log be", "view be", "why be 0", "show be 0", "export be"):
        assert foldlog(*typed.split()).status == 0, typed
    assert foldlog("store verify be --json").document["checked"]["conversations"] == 1
    with open_store("sqlite:///foldlog.db") as store:
        for name in (
            "5e2-a",
            *(f"5e2-a/agent-{n}" for n in range(9)),
            "5e3/agent-1",
            "5e3/agent-2",
        ):
            store.append(name, Message(source="user", content="hi"), expected_version=0)
    assert foldlog("log 5e2 --json").document["conversation"] == "5e2-a", (
        "the session, not one of its agents"
    )
    for given, named in {
        "5e3": "",
        "5e": "'5e2-a', '5e3/agent-1'",
        "alpha": "'alpha-1', 'alpha-2'",
    }.items():
        ran = foldlog("log", given)
        assert (ran.status, ran.out) == (2, "")
        assert f"more than one conversation begins with {given!r}: {named}" in ran.err


def test_commands_that_change_something_want_the_whole_id(foldlog, work):
    for typed in (
        "store erase be --yes --reason r",
        "retract be --to 0",
        "condense be",
        "store verify be --views --repair",
    ):
        ran = foldlog(*typed.split())
        assert (ran.status, ran.out) == (2, "")
        assert "this store has no conversation 'be'; did you mean 'beta'?" in ran.err
    assert foldlog("list --json").document["conversations"][2]["version"] == 1
    assert "did you mean 'beta'?" in foldlog("view bteta").err
    assert "'foldlog list' shows its conversations" in foldlog("view qqq").err


def test_a_list_is_sorted_filtered_and_limited(foldlog, work):
    def listed(typed):
        return [
            row["conversation"]
            for row in foldlog("list", *typed.split(), "--json").document["conversations"]
        ]

    assert {typed: listed(typed) for typed in LISTS} == LISTS
    with open_store("sqlite:///foldlog.db") as store:
        store.append("beta", Message(source="user", content="late"), expected_version=ANY_VERSION)
    assert listed("--sort activity --reverse --long --limit 2") == ["beta", "alpha-2"]
    with foldlog_open("foldlog.db") as histories:
        for name, cost, tokens in (("alpha-1", 0.5, 7), ("beta", 0.0, 9_999)):
            told = {
                "model": "m",
                "cost": cost,
                "usage": {"prompt_tokens": tokens, "completion_tokens": 1},
            }
            histories[name].append(Message(source="agent", content="done", meta=told))
        failed = [
            Observation(tool="run", call_id=call, content="no such file", is_error=True)
            for call in "kl"
        ]
        histories["alpha-2"].append(failed)
    assert listed("--sort cost") == ["beta", "alpha-1", "alpha-2"]
    assert listed("--sort cost --reverse --limit 2") == ["alpha-1", "beta"]
    assert listed("--sort tokens") == ["alpha-1", "beta", "alpha-2"]
    assert listed("--sort errors --reverse --limit 1") == ["alpha-2"]
    heading, first, *_ = foldlog("list --sort tokens --reverse").out.splitlines()
    assert "tokens spent" in heading
    assert "\t10,000\t" in first
    for order, most in (("tokens", "10,000"), ("cost", "$0.5000"), ("errors", "2")):
        heading, first, *_ = foldlog("list --short --reverse --sort", order).out.splitlines()
        assert heading.split("\t")[1] == order.replace("tokens", "tokens spent")
        assert first.split("\t")[1] == most
    (row,) = foldlog("list --long --match alpha-2 --json").document["conversations"]
    assert (row["errors"], row["spent"]["prompt_tokens"]) == (2, None)
    for typed in ("--match zzz", "--since 2099-01-01", "--match zzz --sort recorded"):
        assert foldlog("list", *typed.split()).out == "None of 3 conversations matches.\n"
    assert foldlog("list --limit 0").out == "None of 3 conversations is listed: --limit is 0.\n"
    foldlog("attributes beta --set app=x")
    for name, is_known in (("app", True), ("format", False)):
        said = foldlog("list", f"{name}=y").out
        assert said.startswith("None of 3 conversations matches.")
        assert (f"None has an attribute {name}: an application sets it, or" in said) != is_known, (
            said
        )


def test_a_short_list_as_json_has_what_the_text_shows_and_no_note_about_costs(foldlog, work):
    told = {"model": "no-such-model", "usage": {"prompt_tokens": 5, "completion_tokens": 1}}
    with foldlog_open("foldlog.db") as histories:
        histories["beta"].append(Message(source="agent", content="done", meta=told))
    (row,) = foldlog("list --short --match OTHER --json").document["conversations"]
    assert [row.get(name) for name in ("conversation", "title", "format", "events")] == [
        "beta",
        "other",
        "foldlog",
        2,
    ]
    assert (row["last_event_at"][:10], "tokens" in row, "spent" in row) == (
        row["last_recorded_at"][:10],
        False,
        False,
    )
    notes = {
        order: foldlog("list", *order.split(), "--match", "beta").err
        for order in ("--short", "--long", "--sort cost -s")
    }
    assert [
        "note: 1 unknown cost: the models have no price" in note for note in notes.values()
    ] == [False, True, True]
    assert "1 conversation cannot be sorted by cost" in notes["--sort cost -s"]


LISTS = {
    "--sort events": ["beta", "alpha-2", "alpha-1"],
    "--sort events -r --limit 1": ["alpha-1"],
    "--match PHA --reverse": ["alpha-2", "alpha-1"],
    "--match PLEASE": ["alpha-1"],
    "--match foldlo --limit 1": ["alpha-1"],
    "--sort recorded --limit 2": ["alpha-1", "alpha-2"],
    "--since 2099-01-01": [],
    "--limit 0": [],
}


def test_a_list_of_what_must_be_resumed_has_open_calls_and_no_worker(foldlog, work):
    def listed():
        ran = foldlog("list --to-resume --json")
        return ran.status, [row["conversation"] for row in ran.document["conversations"]]

    with foldlog_open("foldlog.db") as histories:
        histories["beta"].append(Action(tool="deploy", call_id="k"))
        with histories["beta"].lease():
            assert listed() == (0, [])
            said = foldlog("list --to-resume").out
            assert (
                "None of 3 conversations waits for a worker. Still leased, perhaps by workers that"
                " were killed: 1; the" in said
            )
        assert listed() == (0, ["beta"])
        histories["beta"].close_open_calls()
    assert listed() == (0, [])
    with foldlog_open("foldlog.db", keys=KeyRing(["11" * 32])) as histories:
        histories["beta"].append(Action(tool="deploy", call_id="l"))
    assert listed() == (1, [])


def test_conversations_without_times_come_last_in_either_order(foldlog, work):
    Path("chat.json").write_text('{"messages": [{"role": "user", "content": "no time"}]}')
    assert foldlog("import chat.json --conversation a").status == 0
    for options in ([], ["--reverse"], ["--limit", 9]):
        rows = foldlog("list --long --sort activity", *options, "--json").document["conversations"]
        assert [row["conversation"] for row in rows][-1] == "a", options
        assert len(rows) == 4


SAMPLE = Path(__file__).parents[2] / "foldlog" / "sample" / "tidewatch.jsonl"


def test_every_command_tells_of_condensations_alike(foldlog):
    """Only events of the log are counted as events; summaries are counted beside them."""
    assert foldlog("import", SAMPLE).status == 0
    log = foldlog("log tidewatch --kind condensation").out.splitlines()
    assert "events 126-151, 153-166, 168-173 and 2 summaries," in log[2]
    assert "events 225-238, 241-255, 257-268 and 2 summaries," in log[4]
    assert "sent 19 events and 1 summary" in foldlog("view tidewatch").out
    out = foldlog("stats tidewatch").out
    (line,) = (line for line in out.splitlines() if line.startswith("openhands-v1"))
    assert ("≈ 5" in line, line.endswith("unknown")) == (True, True)
    assert (
        "tokens saved: those of the View before each condensation less those after it, ≈ estimated"
        in out
    )
    figures = foldlog("stats tidewatch --json").document["condensations"][
        "openhands-v1 (not named)"
    ]
    assert (figures["events_forgotten"], figures["summaries_forgotten"]) == (253, 4)
    assert figures["tokens_saved"] > 50_000
    assert figures["cost"] is None
    shown, summary = (foldlog("show tidewatch", event).out.splitlines()[0] for event in (93, -95))
    assert shown.endswith("2026-02-17 09:52:59")
    assert summary.endswith("2026-02-17 09:52:59"), "the time of its condensation"
    times = (
        foldlog("show tidewatch --json", event).document["event"]["origin"]["time"]
        for event in (93, -95)
    )
    assert len(set(times)) == 1


CHANGES_OF_DOCUMENTS = (["alpha-1", "--all"], ["alpha-1", "--kind", "documents"])


def test_the_title_attribute_is_the_title_of_a_list(foldlog, work):
    def titles(*more):
        found = foldlog("list --long --json", *more).document["conversations"]
        return [one["title"][:14] for one in found]

    foldlog("attributes alpha-1 --set 'title=the first' --set", 'tags=["a"]')
    foldlog("attributes alpha-2 --set title=7 --set project=tides")
    foldlog("fork alpha-1 fork --at 7")
    assert titles() == ["the first", "hi", "other", "the first"]
    assert 'foldlog: the first  tags=["a"]' in foldlog("list --long").out
    rows = foldlog("list project=tides --long --json").document["conversations"]
    assert [row["attributes"] for row in rows] == [{"title": 7, "project": "tides"}]
    foldlog("attributes alpha-1 --set title=")
    assert titles("--match", "alpha-1") == ["Please mend it"]
    log = foldlog("log alpha-1")
    assert "attributes" not in log.out
    assert log.err == "foldlog: note: 2 changes of documents and attributes: --all shows them\n"
    assert all(
        'attributes title=the first tags=["a"]' in foldlog("log", *more).out
        for more in CHANGES_OF_DOCUMENTS
    )
    assert ids(foldlog("log alpha-1 --json"))[-2:] == [6, 7]


def test_a_list_without_a_terminal_cuts_a_long_title(foldlog, work):
    (line,) = [
        line for line in foldlog("list --long").out.splitlines() if line.startswith("alpha-1")
    ]
    assert line.endswith("x…")
    assert len(line) < 300
    assert (
        "x" * 200
        in foldlog("list --long --json --match alpha-1").document["conversations"][0]["title"]
    )


def test_a_log_that_begins_after_the_end_says_so(foldlog, work):
    ran = foldlog("log alpha-1 --start 500")
    assert (ran.status, ran.out) == (0, "")
    assert ran.err == "foldlog: note: no events from 500 on: the conversation has 6\n"
    assert foldlog("log alpha-1 --start 5").err == ""


def test_the_command_tells_of_an_erased_conversation_without_python(foldlog, work):
    assert foldlog("store erase beta --yes --reason 'asked for'").status == 0
    err = foldlog("log beta").err
    assert err.endswith("(asked for); its events are gone\n")
    assert foldlog("show beta 1").err == err
    assert foldlog("fork alpha-1 beta").err == err.replace(
        "gone\n", "gone; give the fork another id\n"
    )


def test_the_command_counts_and_marks_what_the_condenser_hid(foldlog):
    import foldlog as library

    with library.open(
        "foldlog.db", condenser={"type": "recent_events", "max_events": 6, "keep_first": 2}
    ) as histories:
        history = histories["c"]
        for number in range(20):
            history.append(library.Message(source="user", content=f"ask {number}"))
            history.append(library.Message(source="agent", content=f"said {number}"))
        prepared = history.prepare()
    assert (
        "the model is sent 6 events; 34 more hidden; by recent_events (recorded in event 40)"
        in foldlog("view c").out
    )
    document = foldlog("view c --json").document
    assert document["sent_events"] == len(prepared) == 6
    assert [event["id"] for event in document["events"] if event["role"]] == [
        event.id for event in prepared
    ]
    assert {event["state"] for event in document["events"] if not event["role"]} == {"hidden"}


def test_the_command_says_that_what_a_condenser_of_ones_own_sent_is_not_known(foldlog):
    import foldlog as library
    from foldlog.condensers import Condenser

    class Newest(Condenser):
        type = "newest"

        def condense(self, view, agent_llm=None):
            return view.with_events(view.events[-1:])

    with library.open("foldlog.db", condenser=Newest()) as histories:
        histories["c"].append([library.Message(source="user", content="ask")] * 3)
        histories["c"].prepare()
    out = foldlog("view c").out
    assert (
        "what the model is sent is not known; by newest (recorded in event 3), which cannot be"
        " applied" in out
    )
    assert "is sent 3" not in out
    document = foldlog("view c --json").document
    assert (document["sent_events"], document["sent_summaries"]) == (None, None)
    assert {event["state"] for event in document["events"]} == {"unknown"}


def test_a_list_for_people_shows_a_hundred_and_says_how_many_there_are(foldlog, tmp_path):
    with open_store("sqlite:///foldlog.db") as store:
        for number in range(103):
            store.append(f"c{number:03}", said("a word"), expected_version=0)
    note = "foldlog: note: 100 of 103 are shown: -n N shows more"
    for options in ((), ("--sort", "recorded", "-r"), ("--sort", "events"), ("--long",)):
        ran = foldlog("list", *options)
        assert (ran.status, len(ran.out.splitlines()), note in ran.err) == (0, 101, True), options
    assert (len(foldlog("list -n 102").out.splitlines()), foldlog("list -n 102").err) == (
        103,
        "",
    )
    assert len(foldlog("list --match c00").out.splitlines()) == 11
    assert len(foldlog("list --json").document["conversations"]) == 103
    assert len(foldlog("list --json -n 5").document["conversations"]) == 5


def test_json_has_the_word_for_an_error_that_the_filter_has(foldlog, tmp_path):
    with open_store(f"sqlite:///{tmp_path}/foldlog.db") as store:
        failed = Observation(tool="Bash", content="no such file", call_id="1", is_error=True)
        store.ingest("c", [Action(tool="Bash", arguments={}, call_id="1"), failed])
    (event,) = foldlog("log c --kind error --json").document["events"]
    assert (event["label"], event["kind"]) == ("error", "observation")
    assert foldlog("show c 1 --json").document["event"]["label"] == "error"
    assert [each["label"] for each in foldlog("view c --json").document["events"]] == [
        "action",
        "error",
    ]


def test_the_slowest_events_of_a_log_come_with_how_long_they_took(foldlog):
    start = datetime(2026, 2, 17, 9, tzinfo=UTC)
    at = [start + timedelta(seconds=seconds) for seconds in (0, 3, 603, 604, 10_604)]
    call = Action(tool="bash", arguments={}, call_id="a", source="agent", timestamp=at[1])
    with foldlog_open("foldlog.db") as histories:
        histories["c"].append(
            [
                Message(source="user", content="go", timestamp=at[0]),
                call,
                Observation(content="built", call_id="a", tool="bash", timestamp=at[2]),
                Message(source="agent", content="done", timestamp=at[3]),
                Message(source="user", content="thanks, a day later", timestamp=at[4]),
            ]
        )
    lines = foldlog("log c --slow").out.splitlines()
    assert [line.split()[0] for line in lines] == ["2", "1", "3"], "no user is waited for"
    assert ["10 m 00 s" in lines[0], "3.0 s" in lines[1]] == [True, True]
    assert len(foldlog("log c --slow -n 1").out.splitlines()) == 1
    [first, *_] = foldlog("log c --slow --json").document["events"]
    assert (first["id"], first["waited_s"]) == (2, 600)
    assert foldlog("log c --slow --follow").status == 2


def test_ids_that_programs_made_are_short_on_a_terminal_and_whole_in_a_pipe(foldlog, monkeypatch):
    one, two, three = (f"0199c1b{digit}-6c3e-7a10-b2c8-5d0d3a9f1e42" for digit in "233")
    three = f"{three[:-1]}3"
    agent, words = f"{one}/agent-a1", "a-name-that-somebody-gave-and-that-is-long"
    with foldlog_open("foldlog.db") as histories:
        for name in (one, two, three, agent, words):
            histories[name].append(Message(source="user", content="go"))
    assert [line.split("\t")[0] for line in foldlog("list").out.splitlines()[1:]] == [
        one,
        agent,
        two,
        three,
        words,
    ]
    monkeypatch.setenv("COLUMNS", "140")
    shown = [line.split()[0] for line in foldlog("list --short").out.splitlines()[1:]]
    assert shown == [one[:8], f"{one[:8]}/agent-a1", two, three, words], "of two alike all is shown"
    for short in shown:
        assert foldlog("log", short).status == 0, short
    assert foldlog("search go").out.splitlines()[0].split()[0] in shown
