"""Codex's records appended one by one: their events are those of an import of the whole rollout."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import foldlog
from foldlog.eventstore import Action, CondensationAction, InvalidEvent, Message
from foldlog.formats import Encoder, decode, encode
from foldlog.projections import View
from tests.foldlog.formats.test_codex import BASE, CODEX, call, compacted, output, record, said, text
from tests.foldlog.formats.test_live import forget_decoders
from tests.how_many import examples


def told(type, **fields):
    return record("event_msg", {"type": type, **fields})


ABORTED = told("turn_aborted", reason="interrupted")


def append_one_by_one(histories, records, restarts):
    history = histories["c1"]
    for number, one in enumerate(records):
        history.append_records([one], format=CODEX)
        if number in restarts:
            forget_decoders(histories)
    return history


def context(instructions):
    return record("turn_context", {"cwd": "/", "user_instructions": instructions})


def session(instructions):
    return record("session_meta", {"id": "s1", "base_instructions": {"text": instructions}})


WORDS = st.sampled_from(["Be kind", "Ask first", "Be brief and ask first", "x"])
STEPS = st.one_of(
    WORDS.map(lambda it: said(it)),
    WORDS.map(lambda it: said(it, role="developer")),
    st.just(said("hello", role="assistant")),
    st.just(["call"]),
    st.just(["call"]),
    st.just(["output"]),
    st.just([ABORTED]),
    WORDS.map(lambda it: [context(it)]),
    WORDS.map(lambda it: [session(it)]),
    st.integers(1, 3).map(lambda turns: [told("thread_rolled_back", num_turns=turns)]),
    st.just([compacted("So far")]),
    WORDS.map(lambda it: [compacted("So far", text(it), text("So far"), text("Mind this", role="developer"))]),
    st.just([told("token_count", info={"total": 1})]),
    st.just([record("response_item", {"type": "reasoning", "summary": [], "encrypted_content": "g"})]),
)


def rollout(steps):
    """The records of these steps, in which each call has an id of its own, and an output is of any earlier call."""
    records, calls = [BASE], 0
    for number, step in enumerate(steps):
        for one in step:
            if one == "call":
                records.append(call(f"c{calls}"))
                calls += 1
            elif one == "output":
                records.append(output(f"c{max(0, calls - 1 - number % 3)}"))
            else:
                records.append(one)
    return records


@example([["call"], [compacted("So far")], ["call"]], {2})
@example([["call"], said("x"), [told("thread_rolled_back", num_turns=1)], ["call"]], {3})
@given(st.lists(STEPS, max_size=30), st.frozensets(st.integers(0, 40)))
@examples(250)
def test_record_by_record_means_what_the_whole_rollout_means(steps, restarts):
    records = rollout(steps)
    whole = list(decode(records, CODEX))
    with foldlog.open("memory:") as histories:
        history = append_one_by_one(histories, records, restarts)
        events = list(history.events())
        assert events == whole
        assert [(event.id, type(event)) for event in history.view()] == [
            (event.id, type(event)) for event in View.from_events(whole)
        ]
    assert list(encode(events, CODEX)) == records


def test_an_append_looks_back_no_further_than_it_must(histories, monkeypatch):
    history = histories["c1"]
    history.append_records([BASE, *said(*map(str, range(2_000))), context("Be kind")], format=CODEX)
    forget_decoders(histories)
    read = []
    before = type(history).events

    def events(self, start=0, stop=None, *, reverse=False):
        for event in before(self, start, stop, reverse=reverse):
            read.append(event.id)
            yield event

    monkeypatch.setattr(type(history), "events", events)
    monkeypatch.setattr(type(history), "at", lambda self, version: pytest.fail("the View was read"))
    history.append_records([*said("new"), call("a"), output("a")], format=CODEX)
    assert read == []
    monkeypatch.undo()
    monkeypatch.setattr(type(history), "events", events)
    forget_decoders(histories)
    history.append_records([context("new instructions")], format=CODEX)
    assert len(read) <= 20 + 3, "it looks for them in the last twenty texts"


def test_events_of_ours_between_the_records_are_forgotten_with_them(histories):
    history = histories["c1"]
    history.append_records([BASE, *said("a")], format=CODEX)
    history.append(Message(source="user", content="ours"))
    history.append(CondensationAction(forgotten_event_ids=(1,), summary="a, in short", summary_offset=1))
    history.append_records([*said("b"), told("thread_rolled_back", num_turns=2)], format=CODEX)
    assert [event.content for event in history.view()] == ["You are", "a, in short"]
    history.append_records([compacted("all", text("all"))], format=CODEX)
    assert [event.content for event in history.view()] == ["You are", "all"]
    history.append_records([call("c0")], format=CODEX)
    history.append(CondensationAction(forgotten_event_ids=(1,)))
    history.append_records([call("c1"), compacted("all"), call("c2")], format=CODEX)
    first, second, third = (event.response_id for event in history.events() if isinstance(event, Action))
    assert first == second != third


def test_an_encoder_that_began_in_the_middle_refuses_what_needs_the_whole_view(histories):
    history = histories["c1"]
    history.append_records([*said("a", "b")], format=CODEX)
    history.append(Message(source="user", content="ours"))
    history.append_records([*said("c")], format=CODEX)
    history.append(CondensationAction(forgotten_event_ids=(0, 1)))
    events = list(history.events())
    encoder = Encoder(CODEX)
    assert encoder.records(events[3]) == said("c")
    with pytest.raises(InvalidEvent, match=r"event 4 changes the View.*the encoder began with event 3: begin with"):
        encoder.records(events[4])
