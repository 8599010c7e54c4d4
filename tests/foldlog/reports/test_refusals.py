"""A call that a person refused is no error of its tool: in labels, figures, lists and digests."""

import json

import pytest

from foldlog import Action, Message, Observation, SystemMessage
from foldlog._reports.audit_database import update
from foldlog.condensers.strategies.digest import Digest
from foldlog.condensers.strategies.digest.layout import text_of
from foldlog.projections.conversations.labels import label
from tests.condensers.made import later
from tests.figures import FiguresOfStore, Prices, Where
from tests.foldlog.reports.test_resumed_sessions import SESSIONS, Session
from tests.said import said
from tests.stored_rows import execute

REFUSALS = (
    "The user doesn't want to proceed with this tool use. The tool use was rejected.",
    "The user doesn't want to take this action right now. STOP what you are doing and wait.",
    "Error: The user doesn't want to proceed with this tool use. The user said:\nask me first",
    "The user rejected permission to use this specific tool call.",
    "The user denied this operation.",
    "[Operation Cancelled] Reason: User did not allow tool call",
    "User rejected the tool call for `mail` with id c",
    "exec command rejected by user",
    "interrupted: refused by Ann",
)


def result(text, **fields):
    return Observation(tool="mail", call_id="c", content=text, **{"is_error": True, **fields})


@pytest.mark.parametrize("text", REFUSALS)
def test_a_refusal_is_not_an_error(text):
    assert label(result(text)) == "refused"
    call = Action(tool="mail", call_id="c", arguments={"command": "mail ann"})
    events = later(0, said("mail Ann"), call, result(text), Message(source="agent", content="ok"))
    digest = text_of(Digest().plus(events), 2_000)
    assert "Errors" not in digest
    assert "mail ann" in digest.partition("efused by the user")[2]


@pytest.mark.parametrize(
    "observation",
    [
        result("rejected by the server: 550"),
        result("exit 1\n" + "x" * 400 + " the user doesn't want to proceed with this tool use"),
        result("the user is not in the sudoers file"),
        result("refused by Ann", extras={"rejection_source": "hook"}),
    ],
)
def test_an_error_is_not_a_refusal(observation):
    assert label(observation) == "error"


def test_what_a_tool_prints_is_not_a_refusal():
    assert label(result(REFUSALS[0], is_error=False)) == "observation"
    source = result("no", is_error=False, extras={"rejection_source": "user"})
    assert label(source) == "refused"


def refused_session(folder):
    session = Session(SESSIONS[0])
    session.ask("Mail them.")
    session.call("Bash", "exit 1", failed=True)
    session.call("Mail", REFUSALS[0], failed=True)
    session.write(folder)


@pytest.mark.parametrize("is_made", [False, True])
def test_figures_and_lists_count_refusals_apart(is_made, histories, foldlog, tmp_path):
    refused_session(tmp_path / "logs")
    histories.import_(tmp_path / "logs")
    if is_made:
        histories[SESSIONS[0]].view()
    figures = FiguresOfStore(histories.store, None, Prices())
    figures.refresh()
    stats = figures.totals()
    assert (stats.errors, stats.events["refused"], stats.events["error"]) == (1, 1, 1)
    assert {name: (tool.calls, tool.errors) for name, tool in stats.tools.items()} == {
        "Bash": (1, 1),
        "Mail": (1, 0),
    }
    assert figures.ids(Where(state="refused")) == {SESSIONS[0]}
    assert figures.ids(Where(state="error")) == set()
    assert figures.page(sort="state").unknown == 0

    ran = foldlog("import logs")
    if is_made:
        foldlog(f"view {SESSIONS[0]}")
    assert ran.status == 0
    (row,) = foldlog("list state:refused --json").document["conversations"]
    assert row["conversation"] == SESSIONS[0]
    shown = foldlog(f"log {SESSIONS[0]} --kind refused --json").document["events"]
    assert [event["label"] for event in shown] == ["refused"]
    assert "refused" in foldlog(f"log {SESSIONS[0]} --kind observation").out


def test_a_denied_approval_closes_its_call_as_refused(histories):
    history = histories["desk"]
    history.append([SystemMessage(content="You pay."), said("pay")])
    for call_id in ("a", "b"):
        history.append(Action(tool="pay", call_id=call_id, arguments={}))
    with history.lease():
        first, _ = history.open_calls()
        history.ask_approval(first, to="Ann")
        history.decide(first, False, by="Ann", reason="too much")
        closed = history.close_open_calls("the desk is closed")
    assert [label(recorded.event) for recorded in closed] == ["refused", "error"]
    assert closed[0].event.content == "not begun: the desk is closed"


def test_the_audit_database_counts_no_refusal(histories, tmp_path):
    refused_session(tmp_path / "logs")
    histories.import_(tmp_path / "logs")
    histories[SESSIONS[0]].view()
    update(histories.store, tmp_path / "audit.db")
    rows = execute(tmp_path / "audit.db", "SELECT is_error FROM events WHERE kind = 'observation'")
    assert sorted(rows) == [(0,), (1,)]


def test_a_redacted_refusal_has_no_words_left(histories, tmp_path):
    refused_session(tmp_path / "logs")
    (history,) = histories.import_(tmp_path / "logs")
    (refused,) = [event for event in history.events() if label(event) == "refused"]
    history.redact([refused.id], reason="old")
    assert REFUSALS[0] not in json.dumps([str(event) for event in history.events()])
