"""The effect of a call, as the events of a log tell it, whoever wrote them."""

from datetime import UTC, datetime

import pytest
from msgspec.structs import replace

import foldlog
from foldlog.eventstore import Action, Annotation, Message, Observation
from foldlog.eventstore.events import Redacted
from foldlog.projections.call_states import (
    APPROVAL,
    MARK,
    begun_among,
    effect_fields,
    in_doubt,
    is_approval,
    key_of,
    trace,
)

PAY = Action(tool="pay", call_id="k")


def mark(data, cause=0):
    return Annotation(name=MARK, data=data, cause=cause)


def outcome(data, cause=0, **fields):
    return Message(source="environment", cause=cause, content="", meta={MARK: fields | data})


def result(cause=0, **fields):
    return Observation(content="x", call_id="k", cause=cause, **fields)


def traced(*events):
    """Return the traces of the calls among the events, each with a head of its own."""
    return trace((replace(event, id=n), bytes([n]) * 32) for n, event in enumerate(events))


UNKNOWN = {MARK: {"state": "unknown", "key": "a"}}
LATE = {"outcome": "paid"}
REDACTED = Redacted(
    at=datetime(2026, 3, 1, tzinfo=UTC), by="ann", reason="asked to", hash="00", bytes=7
)


@pytest.mark.parametrize(
    "events, state, living",
    [
        ([], "intended", None),
        ([mark({"lease": "w"})], "begun", "w"),
        ([mark({"lease": "w"})], "unknown", "v"),
        ([mark({"lease": "w"})], "unknown", None),
        ([mark({})], "unknown", None),
        ([mark({"lease": None})], "unknown", None),
        ([mark(None)], "unknown", None),
        ([mark("told")], "unknown", None),
        ([mark({"lease": "v"}), mark({"lease": "w"})], "begun", "w"),
        ([mark({"lease": "w"}), mark({"told": True})], "unknown", "w"),
        ([mark({"lease": "w"}), result()], "done", "w"),
        ([mark({"lease": "w"}), mark({"told": True}), result(extras={MARK: {}})], "unknown", "w"),
        ([result(is_error=True)], "failed", None),
        ([mark({"lease": "w"}), result(redacted=REDACTED)], "done", "w"),
        ([result(is_error=True, redacted=REDACTED)], "failed", None),
        ([mark({"lease": "w"}), result(is_error=True, redacted=REDACTED)], "unknown", "w"),
        ([mark({"lease": "w"}), result(is_error=True)], "failed", "w"),
        ([mark({"lease": "w"}), result(is_error=True, extras=UNKNOWN)], "unknown", "w"),
        ([mark({}), result(extras=UNKNOWN), outcome(LATE)], "done", None),
        ([mark({}), result(extras=UNKNOWN), outcome(LATE, is_error=True)], "failed", None),
        ([mark({}), outcome(LATE, is_error=True), outcome(LATE)], "done", None),
        ([mark({}), outcome({"state": "unknown"})], "unknown", None),
        ([Annotation(name="note", data={"told": True}, cause=0)], "intended", None),
    ],
)
def test_state_of_a_call(events, state, living):
    assert traced(PAY, *events)[0].state(living) == state


@pytest.mark.parametrize(
    "events, is_left",
    [
        ([], False),
        ([mark({"lease": "w"})], False),
        ([mark({"lease": "v"})], True),
        ([mark({"lease": "v"}), mark({"told": True})], False),
        ([mark({"lease": "v"}), result()], False),
        ([mark({"lease": "v"}), outcome(LATE)], False),
    ],
)
def test_call_that_another_worker_left(events, is_left):
    assert traced(PAY, *events)[0].is_left_by_another("w") is is_left


def test_newest_outcome_of_a_call():
    assert traced(PAY)[0].outcome is None
    assert traced(PAY, result())[0].outcome == "x"
    assert traced(PAY, result(), outcome(LATE), outcome({"outcome": "back"}))[0].outcome == "back"


def test_result_names_its_call_before_the_id_that_servers_reuse():
    traces = traced(PAY, PAY, result(cause=0), result(cause=None), Observation(content="of none"))
    assert [traces[number].observation.id for number in (0, 1)] == [2, 3]
    assert traces.keys() == {0, 1}


def test_intent_before_its_call():
    """A runtime may record that a tool begins before it stores the call."""
    intent = {"tool": "pay", "call_id": "k", "arguments": {"to": "ann"}}
    begun = traced(mark({"intent": intent}, cause=None))[0]
    assert (begun.call.tool, begun.call.arguments, begun.call.shown) == (
        "pay",
        {"to": "ann"},
        False,
    )
    assert begun.key == key_of(bytes(32)) == 32 * "0"
    odd = traced(mark({"intent": intent | {"arguments": [7]}}, cause=None))[0]
    assert odd.call.arguments is None
    traces = traced(mark({"intent": intent}, cause=None), PAY, result(cause=1), PAY)
    assert traces[1] is traces[0]
    assert traces[0].observation.id == 2
    assert traces[3] is not traces[0], "a call after the result is a call of its own"


def test_calls_that_begun_tools_may_have_run():
    """A fork cannot know whether a call that it shares has run since, and knows its own calls."""
    with foldlog.open("memory:") as histories:
        history = histories["a"]
        history.append([Message(source="user", content="go"), PAY])
        fork = history.fork()
        fork.append(replace(PAY, call_id="l", response_id="r"))
        shared, own = fork.open_calls()
        store = histories.store
        assert (shared.id, own.id) == (1, 2)
        assert begun_among(store, "a", [shared]) == frozenset()
        assert begun_among(store, fork.id, [shared, own]) == {1}
        begun = []
        with fork.lease():
            fork.run(own, lambda: begun.append(begun_among(store, fork.id, [shared, own])))
        assert begun == [{1, 2}]
        assert begun_among(store, "unknown", []) == frozenset()


def test_approvals_of_a_call():
    asked = Annotation(name=APPROVAL, data={"state": "asked"}, cause=0)
    assert [event.id for event in traced(PAY, asked, mark({}))[0].approvals] == [1]
    others = (mark({}), Message(source="user", content="x"))
    assert [*map(is_approval, (asked, *others))] == [True, False, False]


def test_calls_in_doubt_until_a_message_settles_them():
    unknown = result(cause=7, id=8, extras=UNKNOWN)
    nameless = replace(unknown, id=9, cause=None)
    settled = outcome({"key": "a"}, cause=7)
    assert [*in_doubt([unknown, nameless, result(cause=2)])] == [8, 7, 9]
    assert [*in_doubt([unknown, settled])] == []
    assert [*in_doubt([unknown, outcome({"key": "b"}), Message(source="user", content="")])] == [
        8,
        7,
    ]
    odd = replace(unknown, extras={MARK: {"state": "unknown", "key": ["a"]}})
    assert [*in_doubt([odd, settled])] == [8, 7]
    named_none = replace(unknown, extras={MARK: {"state": "unknown", "key": "None"}})
    assert [*in_doubt([named_none, Message(source="user", content="")])] == [8, 7]
    assert [*in_doubt([unknown, outcome({"key": {}})])] == [8, 7]
    assert effect_fields({MARK: "text"}) == effect_fields({}) == {}
