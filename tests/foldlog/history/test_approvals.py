"""Approvals are events: who was asked, who decided, and the call that the decision allows."""

import json
import os
import pwd
from datetime import UTC, datetime, timedelta

import pytest

import foldlog as api
from foldlog.errors import InvalidArgument, InvalidEvent, NotApproved
from foldlog.eventstore import Annotation
from foldlog.projections.call_states import APPROVAL
from tests.said import said
from tests.web_client import asking_store

CALL = {"id": "pay", "type": "function", "function": {"name": "pay", "arguments": '{"euros": 5}'}}


def ask_to_pay(history):
    """Append a question and the call of the reply, and return the call."""
    history.append(said("pay 5 euros"))
    history.append_reply({"role": "assistant", "content": None, "tool_calls": [CALL]})
    [call] = history.open_calls()
    return call


@pytest.fixture
def call(history):
    call = ask_to_pay(history)
    with history.lease():
        yield call


def pay(history, call, **options):
    paid = []
    history.run(call, lambda euros: paid.append(euros) or "paid", **options)
    return paid


def approve(history, call, **options):
    return history.decide(call, True, by="ann", **options).event


def approve_for_a_past_time(history, call):
    approve(history, call, until=datetime(2026, 1, 1, tzinfo=UTC))


def approve_and_redact(history, call):
    history.redact(approve(history, call).id, reason="a name", by="somebody")


def approve_and_refuse(history, call):
    approve(history, call)
    history.decide(call, False, by="bob")


def approve_and_redact_the_refusal(history, call):
    approve(history, call)
    refusal = history.decide(call, False, by="bob")
    history.redact(refusal.event.id, reason="a name", by="somebody")


@pytest.mark.parametrize(
    "act, decision",
    [
        (lambda history, call: None, "none"),
        (lambda history, call: history.ask_approval(call, to="ann", shown="Pay?"), "none"),
        (approve_and_redact, "none"),
        (approve_and_redact_the_refusal, "none"),
        (approve_and_refuse, "refused"),
        (approve_for_a_past_time, "ended"),
    ],
    ids=["nobody asked", "asked", "redacted", "redacted refusal", "refused", "expired"],
)
def test_tool_without_its_approval_does_not_run(history, call, act, decision):
    act(history, call)
    version = history.version()
    with pytest.raises(NotApproved, match=r"needs an approval.*nothing was run") as raised:
        pay(history, call, needs_approval=True)
    assert raised.value.decision == decision
    assert history.version() == version


def test_a_decision_that_another_program_wrote_may_lack_fields(history, call):
    history.append(Annotation(name=APPROVAL, data={"approved": True}, cause=call.id))
    assert pay(history, call, needs_approval=True) == [5]


def test_a_decision_that_another_program_wrote_with_a_wrong_end_has_ended(history, call):
    data = {"approved": True, "by": "ann", "until": 5}
    history.append(Annotation(name=APPROVAL, data=data, cause=call.id))
    with pytest.raises(NotApproved, match="its approval has ended"):
        pay(history, call, needs_approval=True)


@pytest.mark.parametrize(
    "approved, options, problem",
    [
        (1, {}, "approved must be True or False, not 1"),
        ("no", {}, "approved must be True or False, not 'no'"),
        (True, {"until": datetime(2030, 1, 1)}, "until is 2030-01-01T00:00:00 and has no time"),
        (True, {"until": "2030-01-01"}, "until must be a datetime"),
        (True, {"by": None}, "by must be a text, not None"),
    ],
)
def test_a_decision_of_a_wrong_type_is_not_recorded(history, call, approved, options, problem):
    version = history.version()
    with pytest.raises(TypeError, match=problem):
        history.decide(call, approved, **{"by": "ann", **options})
    assert history.version() == version


def test_mark_of_a_call_names_its_approval(history, call):
    until = datetime.now(UTC) + timedelta(hours=1)
    decided = approve(history, call, reason="small", until=until)
    assert pay(history, call, needs_approval=True) == [5]
    (mark,) = (
        event
        for event in history.events()
        if isinstance(event, Annotation) and "attempt" in event.data
    )
    assert mark.data["approval"] == decided.id
    assert (mark.data["by"], mark.data["reason"]) == ("ann", "small")


def test_a_marked_tool_needs_its_approval(history, call):
    @api.effect(needs_approval=True)
    def tool(euros):
        return "paid"

    with pytest.raises(InvalidArgument, match="needs an approval"):
        history.run(call, tool)
    approve(history, call)
    assert history.run(call, tool).event.content == "paid"


def test_a_closed_call_cannot_be_approved(history, call):
    pay(history, call)
    with pytest.raises(InvalidEvent):
        approve(history, call)


@pytest.fixture
def decided(foldlog, stored):
    """``foldlog``, and a store with a call that ann approved and bob refused afterwards."""
    opened = stored["c"]
    call = ask_to_pay(opened)
    opened.ask_approval(call, to="ann", shown={"euros": 5})
    approve(opened, call, until=datetime(2030, 1, 1, tzinfo=UTC))
    opened.decide(call, False, by="bob", reason="too much")
    return foldlog


WORDS = [
    'asked ann to approve call 1: {"euros": 5}',
    "ann approved call 1 until 2030-01-01T00:00:00+00:00",
    "bob refused call 1: too much",
]


@pytest.mark.parametrize("command", ["why c 1", "log c"])
def test_approvals_of_a_call_are_shown(decided, command):
    lines = [line.partition("annotation")[2].strip() for line in decided(command).out.splitlines()]
    assert [line for line in lines if line] == WORDS
    assert decided("why c 1 --json").document["approvals"] == [2, 3, 4]


def test_an_export_has_the_approvals(decided):
    records = [json.loads(line) for line in decided("export c").out.splitlines()]
    approvals = [record for record in records if record["kind"] == "foldlog.approval"]
    assert [approval.get("by") for approval in approvals] == [None, "ann", "bob"]


def test_page_shows_approvals(decided):
    """The page hides annotations until it is asked for all events."""
    with api.open("foldlog.db") as histories, asking_store(histories.store) as client:
        page = client.json("history?id=c")
    assert [page["kinds"][kind] for kind in page["events"]["kind"]][2:] == ["approval"] * 3


def test_a_decision_names_the_user_of_the_process(history, call, monkeypatch):
    monkeypatch.setenv("LOGNAME", "boss")
    data = approve(history, call).data
    assert data["by"] == "ann"
    assert data["user"] == pwd.getpwuid(os.geteuid()).pw_name != "boss"
